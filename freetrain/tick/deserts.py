"""Who deserves what: what a tick is told by the site's priority; pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from freetrain.priority.interface import Contender, Memory
    from freetrain.store.outlooks import OutlookRow
    from milp.problem import Curve


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Deserts:
    """Who deserves what.

    Attributes:
        priority: Who says so.
        contenders: The trainers, as they were rated.
        curves: What the planner is told of each.
        reasons: Why, for people.
        background: Who gets only what the others leave.
        losses_s: Seconds of its work that losing nodes costs each trainer.
        memory: What the priority is to be told next.
        fresh: Outlooks that were fitted for it, to be kept.
    """

    priority: str
    contenders: Mapping[str, Contender] = field(default_factory=dict)
    curves: Mapping[str, Curve] = field(default_factory=dict)
    reasons: Mapping[str, str] = field(default_factory=dict)
    background: frozenset[str] = frozenset()
    losses_s: Mapping[str, float] = field(default_factory=dict)
    memory: Memory = field(default_factory=dict)
    fresh: tuple[OutlookRow, ...] = ()
