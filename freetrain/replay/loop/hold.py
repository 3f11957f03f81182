"""How leases stand with the scheduler: invisible where it preempts, jobs where not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from freetrain.broker.ground import Span

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from freetrain.replay.loop.leases import Leases
    from freetrain.replay.loop.nodes import Nodes
    from freetrain.replay.loop.queue import Queue
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

    A lease tells its limit when it begins, and ends then at the latest. At each tick
    those go that the broker makes room by for others.
    """

    def __init__(
        self,
        simulation: Simulation,
        nodes: Nodes,
        leases: Leases,
        queue: Queue,
        *,
        start_s: float,
    ) -> None:
        self.units: UnitSet = 0
        self._simulation = simulation
        self._nodes = nodes
        self._leases = leases
        self._queue = queue
        self._start_s = start_s
        self._could_s: dict[int, float] = {}
        self._spans: dict[int, Span] = {}

    def watch(self, moment: Moment) -> None:
        """Note who would have started but for us."""
        for job in moment.put_off:
            self._could_s.setdefault(job, moment.time_s)

    def waited_s(self, starts_s: Mapping[int, float]) -> dict[int, float]:
        """Count from when the scheduler would have started a job but for leases."""
        waits = ((job, starts_s[job] - s) for job, s in self._could_s.items())
        return {job: wait_s for job, wait_s in waits if wait_s > 0}

    def yield_claimed(self, now_s: float) -> tuple[Sequence[int], Sequence[Moment]]:
        """Give up what waiting jobs have a claim to, and lease none of it."""
        claimed = self._queue.claimed(self._spans, now_s)
        self._leases.claimed = frozenset(self._nodes.touched(claimed.units))
        self._leases.booked_s = {
            node: start_s - self._start_s for node, start_s in claimed.booked_s.items()
        }
        given = sorted(self._leases.claimed.intersection(self._leases.nodes))
        self._leases.drop(given)
        self._forget()
        return given, self._release(self._nodes.units(given) & self.units, now_s)

    def hand_over(self, now_s: float) -> Sequence[Moment]:
        """Give back what is not leased any more, and let what is new be jobs."""
        held = self._leases.nodes
        self._forget()
        back = self._release(self.units & ~self._nodes.units(held), now_s)
        by_end: dict[float, list[int]] = {}
        for node in held - self._spans.keys():
            by_end.setdefault(self._leases.usable_until_s(node), []).append(node)
        begun = (self._lease(*one, now_s) for one in sorted(by_end.items()))
        return [*back, *begun]

    def _forget(self) -> None:
        held = self._leases.nodes
        self._spans = {node: span for node, span in self._spans.items() if node in held}

    def _lease(self, until_s: float, nodes: Sequence[int], now_s: float) -> Moment:
        """Let new leases of *nodes* be jobs with a limit."""
        self._leases.limit(nodes, until_s)
        end_s = until_s + self._start_s
        self._spans |= dict.fromkeys(nodes, Span(now_s, end_s))
        units = self._nodes.units(nodes)
        self.units |= units
        return self._simulation.lease(units, until_s=end_s, now_s=now_s)

    def give_all_back(self, now_s: float) -> Sequence[Moment]:
        """Let all leases end."""
        return self._release(self.units, now_s)

    def _release(self, units: UnitSet, now_s: float) -> Sequence[Moment]:
        if not units:
            return ()
        self.units &= ~units
        return (self._simulation.release(units, now_s=now_s),)
