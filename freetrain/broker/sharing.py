"""Who gets which nodes, were our leases away: those who could start, in their order."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from freetrain.broker.booking import Bookings
from freetrain.broker.ground import is_bound
from slurm.holes import HoleEnd

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from freetrain.broker.ground import Ground, Rank
    from freetrain.broker.suiting import Wish
    from slurm.holes import Hole


@dataclass(frozen=True, slots=True)
class Shared:
    """Who gets which nodes.

    Attributes:
        taken: Nodes that are given up or left alone, each with the job's number.
        started: Jobs that could start on them.
        booked_s: When the others have their nodes, by node, Unix time.
        moving: Nodes whose leases outlast the start of a job that is booked there.
    """

    taken: Mapping[str, int]
    started: frozenset[int]
    booked_s: Mapping[str, float]
    moving: tuple[str, ...]


def share(
    waiting: Sequence[Wish],
    ground: Ground,
    now_s: float,
    *,
    rank: Rank,
    until: frozenset[int] | None = None,
) -> Shared:
    """Let each job have what it could start on, the first by *rank*.

    Args:
        waiting: What jobs need, in order of priority.
        ground: Where they might start.
        now_s: When the snapshot was taken, Unix time.
        rank: Which nodes are to be given first.
        until: Who is asked about; who comes after the last of them delays none, and
            gets nothing. None for all.
    """
    taken: dict[str, int] = {}
    started = set()
    bookings = _bookings(waiting, ground, now_s, rank)
    planned = {
        hole.node: hole for hole in ground.holes if hole.ends_by is HoleEnd.PLANNED_JOB
    }
    for wish in waiting[: _end_of(until, waiting)]:
        if len(taken) == len(ground.holes):
            break
        got = bookings.start(wish)
        if got is not None:
            started.add(wish.job_id)
        else:
            got = bookings.book(wish)
        if got:
            if any(_is_planned_away(planned.get(name), wish, now_s) for name in got):
                got += bookings.moving
            taken.update(dict.fromkeys(got, wish.job_id))
    return Shared(taken, frozenset(started), bookings.booked_s, moving=bookings.moving)


def _end_of(until: frozenset[int] | None, waiting: Sequence[Wish]) -> int:
    if until is None:
        return len(waiting)
    asked = (place for place, wish in enumerate(waiting) if wish.job_id in until)
    return 1 + max(asked, default=-1)


def _bookings(
    waiting: Sequence[Wish], ground: Ground, now_s: float, rank: Rank
) -> Bookings:
    """Return who has what when, but for leases and for *waiting*."""
    soon_s = math.nextafter(now_s, math.inf)  # who is past its limit is still there
    busy_s = {name: max(end_s, soon_s) for name, end_s in ground.busy_until_s.items()}
    free_s = {**busy_s, **{hole.node: now_s for hole in ground.holes}}
    asked = set(map(str, (wish.job_id for wish in waiting)))
    closed_s = {
        hole.node: hole.end_s
        for hole in ground.holes
        if hole.end_s is not None and is_bound(hole) and hole.blocker not in asked
    }
    return Bookings(now_s, ground, free_s, rank=rank, closed_s=closed_s)


def _is_planned_away(hole: Hole | None, wish: Wish, now_s: float) -> bool:
    """Tell whether backfill means somebody else to start before a job would be over.

    Then it does not start that job there, unless it plans anew without the leases
    because of which it planned so.
    """
    if hole is None or hole.end_s is None or hole.blocker == str(wish.job_id):
        return False
    return hole.end_s < now_s + wish.least_s
