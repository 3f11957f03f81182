"""Where waiting jobs might start."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from freetrain.broker.suiting import Suiting
from slurm.holes import HoleEnd

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Mapping, Sequence

    from freetrain.broker.suiting import Kind
    from logs.schedule.unitset import UnitSet
    from slurm.holes import Hole
    from slurm.records import Node


Rank: TypeAlias = "Callable[[Hole], tuple[bool, float, str]]"
"""Sorts holes, those first that are to be given first."""


@dataclass(frozen=True, slots=True)
class Span:
    """How long a lease holds its node.

    Attributes:
        start_s: When it began, Unix time.
        end_s: When its limit ends it, Unix time.
    """

    start_s: float
    end_s: float


class Backfill(NamedTuple):
    """How Slurm's backfill plans.

    Attributes:
        grain_s: In slots of this length.
        window_s: No start further ahead than this; nothing is held for those.
    """

    grain_s: float = 1.0
    window_s: float = math.inf


TO_THE_SECOND = Backfill()


@dataclass(frozen=True, slots=True)
class Ground:
    """Where jobs might start.

    Attributes:
        holes: Every hole, those under our leases included; into one that ends
            with a reservation, or the planned start of a job that is not among those
            asked about, only jobs are let that are over by then, as Slurm does it. No
            margin is taken off: it does not bind others.
        nodes: Every node by name.
        leased: Nodes that our leases hold.
        partly: Nodes that others' jobs hold a part of: a job that shares nodes
            could start there as well.
        spans: How long leases hold their nodes, by node.
        busy_until_s: When nodes that others hold come free by the limits of their
            jobs, by node, Unix time.
        backfill: How others' starts are planned.
        suiting: Which of the nodes suit whom; what is made of this ground shares it.
    """

    holes: Sequence[Hole]
    nodes: Mapping[str, Node]
    leased: frozenset[str]
    partly: frozenset[str] = frozenset()
    spans: Mapping[str, Span] = field(default_factory=dict)
    busy_until_s: Mapping[str, float] = field(default_factory=dict)
    backfill: Backfill = TO_THE_SECOND
    suiting: Suiting = field(default_factory=lambda: Suiting({}), compare=False)

    def __post_init__(self) -> None:
        """Share what suits whom with a ground of the same nodes, and no other."""
        if self.suiting.nodes is not self.nodes:
            object.__setattr__(self, "suiting", Suiting(self.nodes))

    def beside(self, given: Container[str], booked_s: Mapping[str, float]) -> Ground:
        """Return where jobs might start where nothing but *given* is given up.

        Idle nodes that are not among these are leased from now on, until they are
        booked.

        Args:
            given: Nodes that are given up or left alone.
            booked_s: When nodes are booked for jobs, by node, Unix time.
        """
        kept = [hole.node for hole in self.holes if hole.node not in given]
        begun_s = {name: booked_s.get(name, math.inf) for name in kept}
        until_s = {name: span.end_s for name, span in self.spans.items()}
        held_s = {name: until_s.get(name, begun_s[name]) for name in kept}
        return replace(
            self,
            holes=[hole for hole in self.holes if hole.node in given],
            leased=frozenset(),
            spans={},
            busy_until_s={**self.busy_until_s, **held_s},
        )


@dataclass(frozen=True, slots=True)
class Fitting:
    """Where jobs of a kind might start.

    Attributes:
        now: Nodes that are idle or ours; none where the jobs insist on one that they
            cannot have now.
        others: How many there are that others hold a part of.
    """

    now: UnitSet
    others: int


class Fittings:
    """Where jobs might start on a ground, worked out once for each kind.

    Args:
        ground: Where any might.
    """

    def __init__(self, ground: Ground) -> None:
        units = ground.suiting.units
        self._holes = units(hole.node for hole in ground.holes)
        self._partly = units(ground.partly)
        self._known: dict[Kind, Fitting] = {}

    def of(self, kind: Kind) -> Fitting:
        """Return where jobs of *kind* might start."""
        if kind not in self._known:
            self._known[kind] = self._of(kind)
        return self._known[kind]

    def _of(self, kind: Kind) -> Fitting:
        now = kind.suits & self._holes
        if kind.insists & ~(now | self._partly):
            return Fitting(0, 0)
        return Fitting(now, (kind.suits & self._partly).bit_count())


def slurms_order(ground: Ground) -> Rank:
    """Rank nodes as Slurm lists them."""
    places = {name: place for place, name in enumerate(ground.nodes)}
    return lambda hole: (False, places.get(hole.node, math.inf), hole.node)


def idle_first(ground: Ground) -> Rank:
    """Rank idle ones first; given up first is what would have ended soonest."""
    slurms = slurms_order(ground)
    return lambda hole: (
        (True, _life_end_s(hole), hole.node)
        if hole.node in ground.leased
        else slurms(hole)
    )


def is_bound(hole: Hole) -> bool:
    """Tell whether others must be gone too; limits of our partition bind only us."""
    return hole.ends_by in {HoleEnd.PLANNED_JOB, HoleEnd.RESERVATION}


def _life_end_s(hole: Hole) -> float:
    return math.inf if hole.end_s is None or not is_bound(hole) else hole.end_s
