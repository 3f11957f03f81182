"""What is not leased, so that no single end of a job makes somebody wait for long.

A job that ends in the second before a cycle of backfill's is seen by no look: in that
cycle somebody who needs leased nodes does not start, and others may start instead who
hold what it needs for hours. So at each look every job of others that runs is supposed
to have ended: who would start in the next cycle without leases, but neither beside
those that stay nor in the cycle after, when they have been given up? The nodes that
such a job would have are left alone (docs/replay.md, "Harm under yield").
"""

from __future__ import annotations

import math
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from freetrain.broker.ground import idle_first, slurms_order
from freetrain.broker.sharing import share
from slurm.holes import Hole, HoleEnd

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from freetrain.broker.ground import Ground, Rank
    from freetrain.broker.sharing import Shared
    from freetrain.broker.suiting import Wish

MOST_ENDS = 100
"""Jobs that are supposed to have ended at one look; each costs a plan, or several."""


def _never() -> bool:
    return False


@dataclass(frozen=True, slots=True)
class Caution:
    """What there is to be careful about, and how long that may take.

    Attributes:
        running: Nodes of each job of others that runs, one entry a job.
        again_s: Seconds from one cycle of backfill's to the next.
        longest_s: The longest lease, seconds.
        most_ends: How many of the jobs that run are tried at most: those on the most
            nodes.
        is_late: Tells when no more may be planned; asked before each plan.
    """

    running: Sequence[frozenset[str]]
    again_s: float
    longest_s: float
    most_ends: int = MOST_ENDS
    is_late: Callable[[], bool] = _never


@dataclass(frozen=True, slots=True)
class Care:
    """What came of it.

    Attributes:
        kept: Nodes to keep leases off, each with the number of who would need it.
        untried: Jobs that run whose end could still make somebody wait: there were
            too many, or there was no time.
    """

    kept: Mapping[str, int]
    untried: int


NO_CARE = Care({}, 0)


class _TimeIsOverError(Exception):
    """No more may be planned; what is being tried stays undecided."""


@dataclass(frozen=True, slots=True, eq=False)
class _End:
    """What would be so if one job ended now.

    Attributes:
        freed: Its nodes; none for how it is now.
        ground: Where others might start then, were there no leases.
        alone: Who would.
    """

    freed: frozenset[str]
    ground: Ground
    alone: Shared


@dataclass(frozen=True, slots=True)
class Scene:
    """What is so at a look.

    Attributes:
        waiting: What others' jobs need that nothing but nodes keeps waiting, in their
            order.
        ground: Where they might start.
        given: Nodes that are given up or left alone anyway, each with a job's number.
        booked_s: When nodes are booked for jobs, by node, Unix time.
        now_s: When the snapshot was taken, Unix time.
    """

    waiting: Sequence[Wish]
    ground: Ground
    given: Mapping[str, int]
    booked_s: Mapping[str, float]
    now_s: float


def keep_free(scene: Scene, caution: Caution) -> Care:
    """Return what not to lease, besides what is given up anyway.

    Args:
        scene: What is so; somebody waits.
        caution: What runs, and how long this may take.
    """
    if all(hole.node in scene.given for hole in scene.ground.holes):
        return NO_CARE
    trial = _Trial(scene, caution)
    freed = sorted(_freed(caution.running), key=len, reverse=True)
    untried = [frozenset[str](), *freed[: caution.most_ends]]  # first how it is now
    ends: list[_End] = []
    unsure: list[_End] = []
    kept: dict[str, int] = {}
    with suppress(_TimeIsOverError):
        while untried or unsure:
            end = trial.end(untried[0]) if untried else unsure[0]
            more = trial.needed(end, {**scene.given, **kept}) if end else {}
            (untried or unsure).pop(0)
            if more:  # whoever has been asked before may come out otherwise now
                kept |= more
                unsure += [one for one in ends if one is not end and one not in unsure]
            if end and end not in ends:
                ends.append(end)
    beyond = freed[caution.most_ends :]
    left = [*beyond, *filter(None, untried), *(end for end in unsure if end.freed)]
    return Care(kept, len(left))


def _freed(running: Sequence[frozenset[str]]) -> Iterator[frozenset[str]]:
    """Yield the nodes that nobody would hold any more, were one job to end."""
    holders = Counter(name for nodes in running for name in nodes)
    for nodes in running:
        freed = frozenset(name for name in nodes if holders[name] == 1)
        if freed:
            yield freed


class _Trial:
    """Tries who would start if jobs ended, without leases and beside them.

    Args:
        scene: What is so.
        caution: When the next cycles are, and how long leases last.
    """

    def __init__(self, scene: Scene, caution: Caution) -> None:
        ground = scene.ground
        self._waiting, self._ground, self._now_s = scene.waiting, ground, scene.now_s
        self._again_s, self._is_late = caution.again_s, caution.is_late
        self._rank: Rank = slurms_order(ground)
        ranked = sorted(ground.holes, key=idle_first(ground))
        self._places = {hole.node: place for place, hole in enumerate(ranked)}
        self._alone = replace(ground, leased=frozenset(), spans={})
        self._smallest = min(wish.nodes for wish in scene.waiting)
        end_s = scene.now_s + caution.longest_s
        # New leases end in time for who is booked by the claims.
        self._ends_s = {
            hole.node: min(end_s, scene.booked_s.get(hole.node, end_s))
            for hole in ground.holes
        }

    def end(self, freed: frozenset[str]) -> _End | None:
        """Return what would be so if the job on *freed* ended; None if nobody starts.

        Args:
            freed: Its nodes; none for how it is now.
        """
        ground = self._ended(self._alone, freed)
        if len(ground.holes) + len(ground.partly) < self._smallest:
            return None
        alone = self._share(self._waiting, ground)
        return _End(freed, ground, alone) if alone.started else None

    def needed(self, end: _End, given: Mapping[str, int]) -> dict[str, int]:
        """Return what must go besides *given*, so that nobody waits for long."""
        late = self._late(end, given)
        if not late:
            return {}
        taken, first = end.alone.taken, min(late)
        theirs = {name: by for name, by in taken.items() if by in late}
        # Where nothing stays on what anybody takes or is booked on, all is as alone.
        everything = {**dict.fromkeys(end.alone.booked_s, first), **taken}
        holes = {hole.node for hole in self._ground.holes}
        more: dict[str, int] = {}
        for way in (theirs, everything):
            more = {n: by for n, by in way.items() if n in holes and n not in given}
            if more and not self._late(end, {**given, **more}):
                return self._fewest(end, given, more)
        return more

    def _fewest(
        self, end: _End, given: Mapping[str, int], enough: Mapping[str, int]
    ) -> dict[str, int]:
        """Return the first of *enough* that suffice, by halves; idle nodes first.

        When time is over those are returned that are known to suffice by then.

        Args:
            end: What is so.
            given: Nodes that are not leased anyway.
            enough: Nodes that suffice.
        """
        ordered = sorted(enough.items(), key=lambda item: self._places[item[0]])
        few, many = 0, len(ordered)  # the first many suffice
        while many - few > 1:
            half = (few + many) // 2
            try:
                late = self._late(end, {**given, **dict(ordered[:half])})
            except _TimeIsOverError:
                break
            few, many = (half, many) if late else (few, half)
        return dict(ordered[:many])

    def _late(self, end: _End, given: Mapping[str, int]) -> frozenset[int]:
        """Return who would start in the next cycle without leases, but for long not so.

        Args:
            end: What is so.
            given: Nodes that are not leased.
        """
        beside = self._ended(self._ground.beside(given, self._ends_s), end.freed)
        alone = end.alone.started
        late = alone - self._share(self._waiting, beside, until=alone).started
        if not late or not end.freed:
            return late
        shared = self._share(self._waiting, beside)
        return late - self._a_cycle_later(late, end, shared)

    def _a_cycle_later(
        self, late: frozenset[int], end: _End, shared: Shared
    ) -> frozenset[int]:
        """Return who starts once leases are given up, a cycle after others have.

        Args:
            late: Who is asked about.
            end: What is so.
            shared: Who started beside leases.
        """
        ends_s = {one.job_id: self._now_s + one.most_s for one in self._waiting}
        busy_s = {name: ends_s[by] for name, by in shared.taken.items()}
        ground = replace(
            end.ground,
            holes=[
                _open(hole) if _is_planned_for(hole, shared.started) else hole
                for hole in end.ground.holes
                if hole.node not in busy_s
            ],
            busy_until_s={**end.ground.busy_until_s, **busy_s},
        )
        rest = [one for one in self._waiting if one.job_id not in shared.started]
        then_s = self._now_s + self._again_s
        return self._share(rest, ground, at_s=then_s, until=late).started

    def _share(
        self,
        waiting: Sequence[Wish],
        ground: Ground,
        *,
        at_s: float | None = None,
        until: frozenset[int] | None = None,
    ) -> Shared:
        """Return who gets what, now unless another time is told.

        Raises:
            _TimeIsOverError: Nothing was planned.
        """
        if self._is_late():
            raise _TimeIsOverError
        now_s = self._now_s if at_s is None else at_s
        return share(waiting, ground, now_s, rank=self._rank, until=until)

    def _ended(self, ground: Ground, freed: frozenset[str]) -> Ground:
        """Return *ground* with the nodes *freed* as holes without end."""
        new = (
            Hole(name, self._now_s, math.inf, HoleEnd.OPEN)
            for name in self._ground.nodes
            if name in freed
        )
        busy_s = ground.busy_until_s
        return replace(
            ground,
            holes=[*ground.holes, *new],
            partly=ground.partly - freed,
            busy_until_s={n: s for n, s in busy_s.items() if n not in freed},
        )


def _is_planned_for(hole: Hole, jobs: frozenset[int]) -> bool:
    is_planned = hole.ends_by is HoleEnd.PLANNED_JOB
    return is_planned and hole.blocker.isdecimal() and int(hole.blocker) in jobs


def _open(hole: Hole) -> Hole:
    return replace(hole, end_s=math.inf, ends_by=HoleEnd.OPEN, blocker="")
