"""Who would start if a job ended, without leases and beside them.

What ``freetrain.broker.caution`` goes by.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from freetrain.broker.ground import idle_first, slurms_order
from freetrain.broker.sharing import share
from slurm.holes import Hole, HoleEnd

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from freetrain.broker.caution import Caution, Scene
    from freetrain.broker.ground import Ground, Rank
    from freetrain.broker.sharing import Shared
    from freetrain.broker.suiting import Wish


class TimeIsOverError(Exception):
    """No more may be planned; what is being tried stays undecided."""


@dataclass(frozen=True, slots=True, eq=False)
class End:
    """What would be so if one job ended now.

    Attributes:
        freed: Its nodes; none for how it is now.
        ground: Where others might start then, were there no leases.
        alone: Who would.
    """

    freed: frozenset[str]
    ground: Ground
    alone: Shared


class Trial:
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
        self._over_s = {
            one.job_id: scene.now_s + one.most_s for one in scene.waiting
        }  # of those who start now
        end_s = scene.now_s + caution.longest_s
        # New leases end in time for who is booked by the claims.
        self._ends_s = {
            hole.node: min(end_s, scene.booked_s.get(hole.node, end_s))
            for hole in ground.holes
        }

    def end(self, freed: frozenset[str]) -> End | None:
        """Return what would be so if the job on *freed* ended; None if nobody starts.

        Args:
            freed: Its nodes; none for how it is now.

        Raises:
            TimeIsOverError: It was not found out.
        """
        ground = self._ended(self._alone, freed)
        if len(ground.holes) + len(ground.partly) < self._smallest:
            return None
        alone = self._share(self._waiting, ground)
        return End(freed, ground, alone) if alone.started else None

    def needed(self, end: End, given: Mapping[str, int]) -> dict[str, int]:
        """Return what must go besides *given*, so that nobody waits for long.

        Args:
            end: What is so.
            given: Nodes that are not leased anyway.

        Raises:
            TimeIsOverError: It was not found out.
        """
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
        self, end: End, given: Mapping[str, int], enough: Mapping[str, int]
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
            except TimeIsOverError:
                break
            few, many = (half, many) if late else (few, half)
        return dict(ordered[:many])

    def _late(self, end: End, given: Mapping[str, int]) -> frozenset[int]:
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
        self, late: frozenset[int], end: End, shared: Shared
    ) -> frozenset[int]:
        """Return who starts once leases are given up, a cycle after others have.

        Args:
            late: Who is asked about.
            end: What is so.
            shared: Who started beside leases.
        """
        busy_s = {name: self._over_s[by] for name, by in shared.taken.items()}
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
            TimeIsOverError: Nothing was planned.
        """
        if self._is_late():
            raise TimeIsOverError
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
