"""How leases stand with the scheduler: invisible where it preempts, jobs where not."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from freetrain.replay.loop.leases import Leases
    from freetrain.replay.loop.nodes import Nodes
    from logs.schedule.machine import PlannedJob
    from logs.schedule.simulation import Moment, Simulation
    from logs.schedule.unitset import UnitSet


class Hold(Protocol):
    """Tells the scheduler of leases, as far as it may know of them.

    Times are seconds of the log.
    """

    @property
    def units(self) -> UnitSet:
        """Units that the scheduler holds for leases, and so are not free."""
        ...

    def watch(self, moment: Moment) -> None:
        """Take note of what happened to jobs."""
        ...

    def waited_s(self, starts_s: Mapping[int, float]) -> dict[int, float]:
        """Return how long each job waited for leases to go, by job that met any.

        Args:
            starts_s: When each job started, by job.
        """
        ...

    def plan(self, moment: Moment, now_s: float) -> Sequence[PlannedJob]:
        """Return what is planned now, as far as leases are not in the way of it.

        Args:
            moment: The last thing that happened.
            now_s: When the broker looks.
        """
        ...

    def yield_claimed(self, now_s: float) -> tuple[Sequence[int], Sequence[Moment]]:
        """Give up what waiting jobs could start on.

        Returns:
            The nodes that were given up, and what the scheduler did with them.
        """
        ...

    def hand_over(self, now_s: float) -> Sequence[Moment]:
        """Tell the scheduler what is leased now; return what it did then."""
        ...

    def give_all_back(self, now_s: float) -> Sequence[Moment]:
        """Let all leases end; return what the scheduler did then."""
        ...


class Unseen:
    """Mode ``preempt``: the scheduler places jobs as if there were no leases.

    Attributes:
        units: None.
    """

    def __init__(self) -> None:
        self.units: UnitSet = 0

    def watch(self, moment: Moment) -> None:
        """Take note of nothing."""

    def waited_s(self, starts_s: Mapping[int, float]) -> dict[int, float]:
        """Name nobody: `Trainees` notes who waits for a notice."""
        del starts_s
        return {}

    def plan(self, moment: Moment, now_s: float) -> Sequence[PlannedJob]:
        """Return the scheduler's own plan: it knows nothing of leases."""
        del now_s
        return moment.plan

    def yield_claimed(self, now_s: float) -> tuple[Sequence[int], Sequence[Moment]]:
        """Give up nothing: jobs take what they need."""
        del now_s
        return (), ()

    def hand_over(self, now_s: float) -> Sequence[Moment]:
        """Tell nothing."""
        del now_s
        return ()

    def give_all_back(self, now_s: float) -> Sequence[Moment]:
        """Have nothing to give back."""
        del now_s
        return ()


class AsJobs:
    """Mode ``yield``: leases are jobs, for which others wait until they are given up.

    At each tick the jobs that could start at once, were nothing leased, get the nodes
    that they would start on.
    """

    def __init__(
        self,
        simulation: Simulation,
        nodes: Nodes,
        leases: Leases,
        *,
        start_s: float,
    ) -> None:
        self.units: UnitSet = 0
        self._simulation = simulation
        self._nodes = nodes
        self._leases = leases
        self._start_s = start_s
        self._could_s: dict[int, float] = {}
        self._told_s: dict[int, float] = {}

    def watch(self, moment: Moment) -> None:
        """Note who would have started but for us."""
        for job in moment.put_off:
            self._could_s.setdefault(job, moment.time_s)

    def waited_s(self, starts_s: Mapping[int, float]) -> dict[int, float]:
        """Count from when the scheduler would have started a job but for leases."""
        waits = ((job, starts_s[job] - s) for job, s in self._could_s.items())
        return {job: wait_s for job, wait_s in waits if wait_s > 0}

    def plan(self, moment: Moment, now_s: float) -> Sequence[PlannedJob]:
        """Return what would be planned were nothing leased."""
        del moment
        return self._simulation.unleased(now_s).plan

    def yield_claimed(self, now_s: float) -> tuple[Sequence[int], Sequence[Moment]]:
        """Give up what waiting jobs would start on, and lease none of it."""
        claimed: UnitSet = 0
        for job in self._simulation.unleased(now_s).started:
            claimed |= job.units
        self._leases.claimed = frozenset(self._nodes.touched(claimed))
        given = sorted(self._leases.claimed.intersection(self._leases.nodes))
        self._leases.drop(given)
        # First who stays says until when: else a job that is planned where a lease
        # will end keeps the one that gets its nodes now from starting.
        told = self._tell(now_s, self._leases.nodes & self._told_s.keys())
        back = self._release(self._nodes.units(given) & self.units, now_s)
        return given, [*told, *back]

    def hand_over(self, now_s: float) -> Sequence[Moment]:
        """Give back what is not leased any more, and let what is new be jobs.

        A lease that must end sooner than it said says so: users can shorten limits,
        and not extend them.
        """
        held = self._leases.nodes
        self._told_s = {n: s for n, s in self._told_s.items() if n in held}
        back = self._release(self.units & ~self._nodes.units(held), now_s)
        return [*back, *self._tell(now_s, held)]

    def _tell(self, now_s: float, nodes: Iterable[int]) -> list[Moment]:
        """Let leases of *nodes* be jobs until they are to end, as far as it is news."""
        by_end: dict[float, list[int]] = {}
        for node in nodes:
            until_s = self._leases.usable_until_s(node)
            if until_s < self._told_s.get(node, math.inf):
                self._told_s[node] = until_s
                by_end.setdefault(until_s, []).append(node)
        return [
            self._lease(together, until_s, now_s)
            for until_s, together in sorted(by_end.items())
        ]

    def _lease(self, nodes: Sequence[int], until_s: float, now_s: float) -> Moment:
        units = self._nodes.units(nodes)
        self.units |= units
        return self._simulation.lease(
            units, until_s=until_s + self._start_s, now_s=now_s
        )

    def give_all_back(self, now_s: float) -> Sequence[Moment]:
        """Let all leases end."""
        return self._release(self.units, now_s)

    def _release(self, units: UnitSet, now_s: float) -> Sequence[Moment]:
        if not units:
            return ()
        self.units &= ~units
        return (self._simulation.release(units, now_s=now_s),)
