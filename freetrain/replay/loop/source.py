"""Pool events out of a scheduler that is simulated while the broker ticks."""

from __future__ import annotations

import math
from heapq import merge
from itertools import count
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from freetrain.replay.loop.leases import PlannedStart
from freetrain.replay.timeline import PoolEvent

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from freetrain.replay.loop.hold import Hold
    from freetrain.replay.loop.leases import Leases
    from freetrain.replay.loop.policy import TickedPolicy
    from freetrain.replay.loop.settings import LoopSettings
    from freetrain.replay.loop.stage import Stage
    from logs.schedule.machine import PlannedJob
    from logs.schedule.simulation import Moment, Simulation
    from logs.schedule.unitset import UnitSet


class Broker(NamedTuple):
    """What stands for the broker.

    Attributes:
        leases: What it holds.
        policy: What it decides by.
        hold: How the scheduler sees its leases.
    """

    leases: Leases
    policy: TickedPolicy
    hold: Hold


class Look(NamedTuple):
    """When the broker looks.

    Attributes:
        time_s: Seconds of the replay.
        is_last: Whether it ticks only where something has happened since it did.
    """

    time_s: float
    is_last: bool = False


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
        broker: Broker,
        settings: LoopSettings,
    ) -> None:
        self.node_names = stage.names
        self.horizon_s = stage.end_s - stage.start_s
        self.starts_s: dict[int, float] = {}
        self._start_s = stage.start_s
        self._nodes = stage.nodes
        self._simulation = simulation
        self._leases, self._policy, self._hold = broker
        self._settings = settings
        self._moment = stage.moment
        self._idle = _idle_at(stage)
        self._taken: UnitSet = 0
        self._happened = False

    def events(self) -> Iterator[PoolEvent]:
        """Yield the events, each played by the engine before the next one is made."""
        self._look()
        yield self._tick(PoolEvent(0.0, _indices(self._idle), ()))
        yield from self._hand_over(0.0)
        looks = self._looks()
        look = next(looks)
        while True:
            jobs_s = self._simulation.next_s - self._start_s
            ends_s = self._leases.next_end_s
            now_s = min(jobs_s, ends_s, look.time_s)
            if now_s >= self.horizon_s:
                break
            if ends_s <= now_s:
                yield from self._end_leases(now_s)
            if jobs_s <= now_s:
                yield self._jobs(now_s)
            if look.time_s <= now_s:
                if not look.is_last or self._is_stirred():
                    yield from self._ticks(now_s)
                look = next(looks)
        yield PoolEvent(self.horizon_s, (), ())

    def _looks(self) -> Iterator[Look]:
        """Yield when the broker looks after the first time, at 0; in order of time."""
        wanted = self._settings
        if wanted.lead_s is None:
            return (Look(number * wanted.tick_s) for number in count(1))
        looks = [self._before_cycles(wanted.lead_s)]
        if wanted.last_lead_s is not None:
            looks.append(self._before_cycles(wanted.last_lead_s, is_last=True))
        return merge(*looks)

    def _before_cycles(self, lead_s: float, *, is_last: bool = False) -> Iterator[Look]:
        every_s = self._settings.tick_s
        for number in count(math.floor(self._start_s / every_s)):
            time_s = number * every_s - self._start_s - lead_s
            if time_s > 0.0:
                yield Look(time_s, is_last)

    def _is_stirred(self) -> bool:
        """Tell whether somebody waits, and something happened since the last tick."""
        return self._happened and bool(self._simulation.machine.waiting)

    def finish(self, now_s: float) -> None:
        """Let the broker go, and with it its leases."""
        self._moments(self._hold.give_all_back(now_s + self._start_s))

    def _jobs(self, now_s: float) -> PoolEvent:
        """Let everything happen to jobs that happens now."""
        while self._simulation.next_s <= now_s + self._start_s:
            moment = self._simulation.step()
            if moment is not None:
                self._happened |= bool(moment.ended or moment.arrived)
                self._moments([moment])
        return self._changed(now_s)

    def _end_leases(self, now_s: float) -> Iterator[PoolEvent]:
        yield PoolEvent(now_s, (), ())
        yield from self._hand_over(now_s)

    def _ticks(self, now_s: float) -> Iterator[PoolEvent]:
        self._happened = False
        self._look()
        if self._leases.next_end_s <= now_s:
            yield from self._end_leases(now_s)
        given, moments = self._hold.yield_claimed(now_s + self._start_s)
        self._moments(moments)
        yield self._tick(self._changed(now_s, given))
        yield from self._hand_over(now_s)

    def _hand_over(self, now_s: float) -> Iterator[PoolEvent]:
        """Let the scheduler see what leases there are now, and what it does then."""
        moments = self._hold.hand_over(now_s + self._start_s)
        if moments:
            self._moments(moments)
            event = self._changed(now_s)
            if event.joined or event.left:
                yield event

    def _moments(self, moments: Iterable[Moment]) -> None:
        for moment in moments:
            for started in moment.started:
                self.starts_s[started.job] = started.start_s
                self._taken |= started.units
            self._moment = moment
            self._hold.watch(moment)

    def _changed(self, now_s: float, given: Sequence[int] = ()) -> PoolEvent:
        """Return what has changed for the pool, besides that *given* were given up."""
        idle, self._taken, taken = self._idle, 0, self._taken
        if self._moment is not None:
            self._idle = self._nodes.idle(self._moment.free | self._hold.units)
        left = self._nodes.mask(taken) & idle
        left[list(given)] = True
        joined = self._idle & (~idle | left)
        gone = _indices(left)
        self._leases.drop(gone)
        return PoolEvent(now_s, _indices(joined), gone)

    def _tick(self, event: PoolEvent) -> PoolEvent:
        self._policy.tick_s = event.time_s
        return event

    def _look(self) -> None:
        """See what is planned, as of the last thing that happened."""
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
