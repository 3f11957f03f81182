"""Pool events out of a scheduler that is simulated while the broker ticks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from freetrain.replay.loop.leases import PlannedStart
from freetrain.replay.timeline import PoolEvent

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from freetrain.replay.loop.leases import Leases
    from freetrain.replay.loop.policy import TickedPolicy
    from freetrain.replay.loop.settings import LoopSettings
    from freetrain.replay.loop.stage import Stage
    from logs.schedule.machine import PlannedJob
    from logs.schedule.simulation import Moment, Simulation


class LoopSource:
    """Plays jobs, ends of leases and ticks in order of time.

    At one time leases end first, so that a job that is planned for then finds its
    nodes empty; then jobs end, come and start; then the broker ticks.

    Attributes:
        node_names: The nodes.
        horizon_s: When the replay ends, seconds from its start.
        starts_s: When each job started, by job, seconds of the log.
    """

    def __init__(
        self,
        stage: Stage,
        simulation: Simulation,
        leases: Leases,
        policy: TickedPolicy,
        settings: LoopSettings,
    ) -> None:
        self.node_names = stage.names
        self.horizon_s = stage.end_s - stage.start_s
        self.starts_s: dict[int, float] = {}
        self._start_s = stage.start_s
        self._nodes = stage.nodes
        self._simulation = simulation
        self._leases = leases
        self._policy = policy
        self._settings = settings
        self._moment = stage.moment
        self._idle = _idle_at(stage)

    def events(self) -> Iterator[PoolEvent]:
        """Yield the events, each played by the engine before the next one is made."""
        self._look()
        yield self._tick(0.0, joined=_indices(self._idle))
        tick_s = self._settings.tick_s
        while True:
            jobs_s = self._simulation.next_s - self._start_s
            ends_s = self._leases.next_end_s
            now_s = min(jobs_s, ends_s, tick_s)
            if now_s >= self.horizon_s:
                break
            if ends_s <= now_s:
                yield PoolEvent(now_s, (), ())
            if jobs_s <= now_s:
                yield self._jobs(now_s)
            if tick_s <= now_s:
                yield from self._ticks(now_s)
                tick_s += self._settings.tick_s
        yield PoolEvent(self.horizon_s, (), ())

    def _jobs(self, now_s: float) -> PoolEvent:
        """Let everything happen to jobs that happens now."""
        idle, taken = self._idle, 0
        while self._simulation.next_s <= now_s + self._start_s:
            for started in self._step().started:
                taken |= started.units
        left = self._nodes.mask(taken) & idle
        joined = self._idle & (~idle | left)
        gone = _indices(left)
        self._leases.drop(gone)
        return PoolEvent(now_s, _indices(joined), gone)

    def _step(self) -> Moment:
        moment = self._simulation.step()
        if moment is None:
            raise AssertionError("a moment was due")
        self.starts_s.update((job.job, job.start_s) for job in moment.started)
        self._idle = self._nodes.idle(moment.free)
        self._moment = moment
        return moment

    def _ticks(self, now_s: float) -> Iterator[PoolEvent]:
        self._look()
        if self._leases.next_end_s <= now_s:
            yield PoolEvent(now_s, (), ())
        yield self._tick(now_s)

    def _tick(self, now_s: float, joined: tuple[int, ...] = ()) -> PoolEvent:
        self._policy.tick_s = now_s
        return PoolEvent(now_s, joined, ())

    def _look(self) -> None:
        """See what is planned, as of now."""
        if self._moment is None or not self._settings.knows_plans:
            return
        self._leases.see(map(self._seen, self._moment.plan))

    def _seen(self, planned: PlannedJob) -> PlannedStart:
        start_s = planned.start_s - self._start_s
        return PlannedStart(start_s, planned.job, self._nodes.mask(planned.units))


def _idle_at(stage: Stage) -> NDArray[np.bool_]:
    if stage.moment is None:
        return np.ones(stage.nodes.count, np.bool_)
    return stage.nodes.idle(stage.moment.free)


def _indices(nodes: NDArray[np.bool_]) -> tuple[int, ...]:
    return tuple(np.flatnonzero(nodes).tolist())
