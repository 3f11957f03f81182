"""Backfill's plans as last seen, for looks that are torn."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from freetrain.store.rows import put, select
from slurm.snapshot import HiddenPlan, PlannedStart, Plans

if TYPE_CHECKING:
    import sqlite3


@dataclass(frozen=True, slots=True)
class SeenPlans:
    """What earlier looks told of backfill's plans.

    Attributes:
        plans: ``plans_of`` the last look.
        whole_s: When the last look that was not torn was taken, Unix time; None
            for never.
    """

    plans: Plans = Plans()  # noqa: RUF009 - frozen
    whole_s: float | None = None


def put_plans(connection: sqlite3.Connection, seen: SeenPlans) -> None:
    """Keep *seen* instead of what was kept, inside the caller's transaction."""
    names = ("one", "whole_s", "plans")
    row = (1, seen.whole_s, json.dumps(asdict(seen.plans)))
    put(connection, "plans", names, key=("one",), rows=[row])


def seen_plans(connection: sqlite3.Connection) -> SeenPlans:
    """Return what was kept last; nothing in a new state.

    Raises:
        StoreError: It could not be read.
    """
    rows = select(connection, "plans", ("whole_s", "plans"))
    if not rows:
        return SeenPlans()
    whole_s, text = rows[0]
    kept = json.loads(text)
    plans = Plans(
        starts=tuple(PlannedStart(**one) for one in kept["starts"]),
        hidden=tuple(HiddenPlan(**one) for one in kept["hidden"]),
    )
    return SeenPlans(plans, whole_s)
