"""A simulated scheduler in the loop: the broker ticks while jobs come and go.

A stage plays the jobs of a log up to where the broker begins. From there jobs, ends of
leases and ticks take turns; the same jobs without the broker show the harm it did.
"""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass, replace
from functools import cached_property
from heapq import merge
from itertools import count
from typing import TYPE_CHECKING

import numpy as np

from freetrain.broker.limits import Mode
from freetrain.planning.settings import HORIZON_S, POLICIES
from freetrain.replay.engine import Engine
from freetrain.replay.loop_leases import (
    IdleSlots,
    LeaseJobs,
    Leases,
    LeaseSlots,
    PromisedForecaster,
    QueueClaims,
    TickedPolicy,
    TrainerGuests,
    UnseenLeases,
)
from freetrain.replay.policies.registry import (
    SolverUse,
    forecaster_for,
    lookahead_by,
    policy_for,
)
from freetrain.replay.pool import (
    NO_NODES,
    Nodes,
    PoolEvent,
    log_cautions,
)
from freetrain.replay.run import (
    accountant_for,
    forecasts_of,
    result_of,
    with_costs,
)
from freetrain.replay.settings import check_policy
from freetrain.text import DAY_S
from logs.simulation import Passes, Simulation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from freetrain.replay.policies.base import ReplayPolicy
    from freetrain.replay.run import Clock, Progress, ReplayResult
    from freetrain.replay.settings import LoopSettings, ReplaySettings
    from freetrain.replay.trainers import TrainerSpec
    from logs.simulation import Guests, Method, ScheduleMoment
    from logs.timeline import UnitSet
    from logs.trace import JobTrace


class Stage:
    """Jobs played up to the start of a replay; each run goes its own way from there.

    Args:
        trace: The jobs.
        method: The scheduler: ``easy`` or ``slurm``.
        start_s: Second of the log at which the broker begins.
        days: How long it stays; None until the last job is submitted.
        passes: When the scheduler makes a pass.
        lease_gpus: GPUs of a lease, of which several may be on a node; None for leases
            of whole nodes.
        on_progress: Called now and then with the fraction of the time up to *start_s*
            that has been played.

    Raises:
        UnusableLogError: Leases do not fit the log.

    Attributes:
        end_s: Second of the log at which the broker stops.
        slots: Where leases can be.
        moment: The scheduler's last step; None if there was none so far.
        cautions: Those of the log, as ``freetrain.replay.pool.log_cautions`` has them.
    """

    def __init__(  # noqa: PLR0913 - as the command line has it
        self,
        trace: JobTrace,
        method: Method,
        *,
        start_s: float = 0.0,
        days: float | None = None,
        passes: Passes = Passes.MOMENT,
        lease_gpus: int | None = None,
        on_progress: Callable[[float], None] | None = None,
    ) -> None:
        simulation = Simulation(trace, method, passes=passes)
        admitted = simulation.admitted
        last_s = max((trace.jobs[job].submit_s for job in admitted), default=0)
        self.start_s = start_s
        self.end_s = last_s if days is None else start_s + days * DAY_S
        self.slots = LeaseSlots(trace.source, simulation.layout, lease_gpus)
        self.cautions = log_cautions(trace, method, simulation.refused)
        self.moment: ScheduleMoment | None = None
        self._simulation = simulation
        self._begun: set[int] = set()
        self._submitted = {
            job for job in admitted if trace.jobs[job].submit_s <= self.end_s
        }
        self._play_up(on_progress)

    @property
    def free(self) -> UnitSet:
        """Units that no job holds."""
        return self._simulation.machine.free

    def branch(self, guests: Guests | None = None) -> Simulation:
        """Return a simulation that goes on from here, with *guests* on the machine."""
        return self._simulation.branch(guests)

    @cached_property
    def alone_s(self) -> Mapping[int, float]:
        """When each job starts that is submitted by the end, without the broker."""
        return self.play_out(self.branch(), {})

    def play_out(
        self, simulation: Simulation, starts_s: Mapping[int, float]
    ) -> dict[int, float]:
        """Play on until all have started that are submitted while the broker is there.

        Args:
            simulation: A branch.
            starts_s: When jobs have started in it so far.

        Returns:
            Their starts, of those that had not begun before the broker came.
        """
        starts = dict(starts_s)
        missing = self._submitted.difference(starts, self._begun)
        while missing and (moment := simulation.step()) is not None:
            for started in moment.started:
                starts[started.job] = started.start_s
                missing.discard(started.job)
        return {job: s for job, s in starts.items() if job in self._submitted}

    def _play_up(self, on_progress: Callable[[float], None] | None) -> None:
        while self._simulation.next_s <= self.start_s:
            self.moment = self._simulation.step()
            if self.moment is not None:
                self._begun.update(job.job for job in self.moment.started)
                if on_progress is not None and self.start_s > 0:
                    on_progress(max(0.0, self.moment.time_s / self.start_s))


def run_in_the_loop(  # noqa: PLR0913 - settings of two things, and two callbacks
    stage: Stage,
    trainers: Sequence[TrainerSpec],
    settings: ReplaySettings,
    loop: LoopSettings,
    *,
    clock: Clock,
    on_progress: Progress | None = None,
) -> LoopResult:
    """Go on from *stage* with the broker, and compare it with going on without.

    Args:
        stage: The jobs, and from when until when the broker is there.
        trainers: The trainers to run.
        settings: Policy, accounting and the rest.
        loop: When the broker polls, and how it holds and leaves nodes.
        clock: Seconds from any time on; it only measures the solver.
        on_progress: Called now and then with the fraction that is done.

    Raises:
        UsageError: The policy cannot be asked at ticks only.
        BrokenPolicyError: The policy has a defect.
    """
    parts = LoopParts.of(stage, trainers, settings, loop, clock=clock)
    engine, source = parts.engine, parts.source
    engine.run(on_progress)
    parts.guests.pool = None
    source.finish(engine.tally.end_s)
    with_us_s = stage.play_out(parts.simulation, source.starts_s)
    return LoopResult(
        replay=result_of(
            engine,
            settings,
            parts.use,
            efficiency=None,
            forecasts=forecasts_of(parts.policy, stage.slots.names),
        ),
        holes=parts.holes.figures(engine.tally.end_s),
        harm=harm_of(
            with_us_s,
            stage.alone_s,
            parts.guests.waited_s | parts.lease_view.waited_s(with_us_s),
            bound_s=loop.longest_wait_s,
        ),
    )


@dataclass(frozen=True, slots=True)
class LoopParts:
    """The parts of one loop, before it begins.

    Attributes:
        engine: Plays the trainers on the events of ``source``.
        simulation: The jobs from the start of the loop on.
        policy: Decides at ticks.
        use: Counts its calls of the solver.
    """

    engine: Engine
    source: LoopSource
    simulation: Simulation
    guests: TrainerGuests
    lease_view: UnseenLeases | LeaseJobs
    holes: HoleUse
    policy: ReplayPolicy
    use: SolverUse

    @classmethod
    def of(
        cls,
        stage: Stage,
        trainers: Sequence[TrainerSpec],
        settings: ReplaySettings,
        loop: LoopSettings,
        *,
        clock: Clock,
    ) -> LoopParts:
        """Return them; ``run_in_the_loop`` has the arguments, and what is raised."""
        check_policy(settings.policy)
        use = SolverUse()
        leases = Leases(stage.slots.count, loop)
        holes = HoleUse(stage.slots.count)
        policy = _policy(settings, clock, use, leases if loop.knows_plans else None)
        ticked = TickedPolicy(policy, leases, holes)
        idle = IdleSlots(stage.slots, stage.free, leases)
        guests = TrainerGuests(idle, loop, start_s=stage.start_s)
        simulation, lease_view = _on_stage(stage, guests, leases, loop)
        source = LoopSource(stage, simulation, leases, ticked, lease_view, idle)
        engine = Engine(
            source,
            [_paying(trainer, settings, loop) for trainer in trainers],
            policy=ticked,
            accountant=accountant_for(settings.accounting),
            settings=replace(settings, look_every_s=None),
        )
        guests.pool = engine.pool
        return cls(engine, source, simulation, guests, lease_view, holes, policy, use)


def _on_stage(
    stage: Stage, guests: TrainerGuests, leases: Leases, loop: LoopSettings
) -> tuple[Simulation, UnseenLeases | LeaseJobs]:
    """Return the jobs from now on, and their scheduler's view of leases."""
    if loop.mode is Mode.PREEMPT:
        return stage.branch(guests), UnseenLeases()
    simulation = stage.branch()
    claims = QueueClaims(
        simulation,
        stage.slots,
        knows_plans=loop.knows_plans,
        margin_s=loop.margin_s or 0.0,
        careful_s=loop.longest_s if loop.is_careful else None,
    )
    return simulation, LeaseJobs(
        simulation, stage.slots, leases, claims, start_s=stage.start_s
    )


def _paying(
    trainer: TrainerSpec, settings: ReplaySettings, loop: LoopSettings
) -> TrainerSpec:
    """Return *trainer* with its costs; it loses no work if it commits on notice."""
    paying = with_costs(trainer, settings)
    if not loop.commits_in_time:
        return paying
    return replace(paying, costs=replace(paying.costs, checkpoint_every_s=0.0))


def _policy(
    settings: ReplaySettings,
    clock: Clock,
    use: SolverUse,
    leases: Leases | None,
) -> ReplayPolicy:
    """Return the policy; ``lookahead`` uses planned starts that *leases* knows."""
    if leases is None or not POLICIES[settings.policy].looks_ahead:
        return policy_for(settings, clock, use)
    learned = forecaster_for(settings)
    forecaster = PromisedForecaster(learned, leases, horizon_s=HORIZON_S)
    return lookahead_by(forecaster, settings, clock, use, regroups=True)


class LoopSource:
    """Plays jobs, ends of leases and ticks in order of time.

    At one time leases end first, so that a job that is planned for then finds its
    nodes empty; then jobs end, come and start; then the broker ticks.

    Args:
        stage: Where the loop begins.
        simulation: The jobs from then on.
        leases: The broker's.
        policy: Decides at its ticks.
        lease_view: The scheduler's view of its leases.
        idle: Which slots are idle.

    Attributes:
        horizon_s: When the replay ends, seconds from its start.
        starts_s: When each job started, by job, seconds of the log.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - the parts that it plays in turn
        self,
        stage: Stage,
        simulation: Simulation,
        leases: Leases,
        policy: TickedPolicy,
        lease_view: UnseenLeases | LeaseJobs,
        idle: IdleSlots,
    ) -> None:
        self.node_names = stage.slots.names
        self.horizon_s = stage.end_s - stage.start_s
        self.starts_s: dict[int, float] = {}
        self._start_s = stage.start_s
        self._slots = stage.slots
        self._simulation = simulation
        self._leases = leases
        self._policy = policy
        self._lease_view = lease_view
        self._settings = leases.settings
        self._moment = stage.moment
        self._idle = idle
        self._was_idle = idle.idle
        self._happened = False

    def events(self) -> Iterator[PoolEvent]:
        """Yield the events, each played by the engine before the next one is made."""
        self._see_plans()
        yield self._tick(PoolEvent(0.0, _indices(self._was_idle), NO_NODES))
        yield from self._hand_over(0.0)
        polls = self._polls()
        poll_s, is_last = next(polls)
        while True:
            jobs_s = self._simulation.next_s - self._start_s
            ends_s = self._leases.next_end_s
            now_s = min(jobs_s, ends_s, poll_s)
            if now_s >= self.horizon_s:
                break
            if ends_s <= now_s:
                yield from self._end_leases(now_s)
            if jobs_s <= now_s:
                yield self._jobs(now_s)
            if poll_s <= now_s:
                if not is_last or self._has_changed():
                    yield from self._ticks(now_s)
                poll_s, is_last = next(polls)
        yield PoolEvent(self.horizon_s, NO_NODES, NO_NODES)

    def _polls(self) -> Iterator[tuple[float, bool]]:
        """Yield the polls of the broker after that at 0, in order of time.

        Of each poll: seconds of the replay, and whether it is the last before a cycle,
        which ticks only if something has changed since the poll before.
        """
        settings = self._settings
        if settings.lead_s is None:
            return ((number * settings.tick_s, False) for number in count(1))
        polls = [self._before_cycles(settings.lead_s)]
        if settings.last_lead_s is not None:
            polls.append(self._before_cycles(settings.last_lead_s, is_last=True))
        return merge(*polls)

    def _before_cycles(
        self, lead_s: float, *, is_last: bool = False
    ) -> Iterator[tuple[float, bool]]:
        every_s = self._settings.tick_s
        for number in count(math.floor(self._start_s / every_s)):
            time_s = number * every_s - self._start_s - lead_s
            if time_s > 0.0:
                yield time_s, is_last

    def _has_changed(self) -> bool:
        """Return whether jobs wait, and something happened since the last tick."""
        return self._happened and bool(self._simulation.machine.waiting)

    def finish(self, now_s: float) -> None:
        """Let the broker stop, and all its leases end."""
        self._moments(self._lease_view.give_all_back(now_s + self._start_s))

    def _jobs(self, now_s: float) -> PoolEvent:
        """Play what happens to jobs now."""
        while self._simulation.next_s <= now_s + self._start_s:
            moment = self._simulation.step()
            if moment is not None:
                self._happened |= bool(moment.ended or moment.arrived)
                self._moments([moment])
        return self._changed(now_s)

    def _end_leases(self, now_s: float) -> Iterator[PoolEvent]:
        yield PoolEvent(now_s, NO_NODES, NO_NODES)
        yield from self._hand_over(now_s)

    def _ticks(self, now_s: float) -> Iterator[PoolEvent]:
        self._happened = False
        self._see_plans()
        if self._leases.next_end_s <= now_s:
            yield from self._end_leases(now_s)
        given, moments = self._lease_view.yield_claimed(now_s + self._start_s)
        self._moments(moments)
        yield self._tick(self._changed(now_s, given))
        yield from self._hand_over(now_s)

    def _hand_over(self, now_s: float) -> Iterator[PoolEvent]:
        """Show the scheduler the leases of now; yield the change by its next steps."""
        moments = self._lease_view.hand_over(now_s + self._start_s)
        if moments:
            self._moments(moments)
            event = self._changed(now_s)
            if event.joined or event.left:
                yield event

    def _moments(self, moments: Iterable[ScheduleMoment]) -> None:
        for moment in moments:
            for started in moment.started:
                self.starts_s[started.job] = started.start_s
            self._moment = moment
            self._idle.fit(moment.free | self._lease_view.units)
            self._lease_view.watch(moment)

    def _changed(self, now_s: float, given: Sequence[int] = ()) -> PoolEvent:
        """Return the change of the pool, with the nodes *given* that were given up."""
        idle, self._was_idle = self._was_idle, self._idle.idle
        left = self._idle.take_gone() & idle
        left[list(given)] = True
        joined = self._was_idle & (~idle | left)
        gone = _indices(left)
        self._leases.drop(gone)
        return PoolEvent(now_s, _indices(joined), gone)

    def _tick(self, event: PoolEvent) -> PoolEvent:
        self._policy.tick_s = event.time_s
        return event

    def _see_plans(self) -> None:
        """Tell the leases the planned starts of the scheduler's last step."""
        if self._moment is None or not self._settings.knows_plans:
            return
        self._leases.see(
            (job.start_s - self._start_s, job.job, self._slots.touched(job.units))
            for job in self._moment.plan
        )


def _indices(nodes: NDArray[np.bool_]) -> Nodes:
    return Nodes.of(np.flatnonzero(nodes).tolist())


# Results: harm to other users' jobs, and the use of holes


LONG_S = 600.0
"""Holes of ten minutes and more are counted apart."""


@dataclass(frozen=True, slots=True)
class LoopResult:
    """The figures of one policy in the loop.

    Attributes:
        replay: Figures of a replay of the holes that it met.
    """

    replay: ReplayResult
    holes: HoleFigures
    harm: Harm


@dataclass(frozen=True, slots=True)
class Harm:
    """Start times with us, less start times without us, over the jobs compared.

    Attributes:
        jobs: Jobs compared.
        later: Jobs that started later.
        sooner: Jobs that started sooner: a delay of one lets another in.
        mean_s: Mean difference; that of a job that started sooner is negative.
        high_s: Difference that 95 % of the jobs do not exceed.
        most_s: Largest difference.
        total_s: By how much jobs started later, added up; sooner ones left out.
        met: Jobs that were placed on nodes we held.
        waited_mean_s: How long these waited for our leases to go, mean.
        waited_longer: How many waited longer than the notice, or one tick.
        met_later_mean_s: Mean difference of the jobs that met leases.
    """

    jobs: int
    later: int
    sooner: int
    mean_s: float
    median_s: float
    high_s: float
    most_s: float
    total_s: float
    met: int
    waited_mean_s: float
    waited_median_s: float
    waited_most_s: float
    waited_longer: int
    met_later_mean_s: float
    met_later_most_s: float


def harm_of(
    with_us_s: Mapping[int, float],
    without_us_s: Mapping[int, float],
    waited_s: Mapping[int, float],
    *,
    bound_s: float,
) -> Harm:
    """Compare two runs of the same jobs, with and without FreeTrain.

    Args:
        with_us_s: When each job started, by job.
        without_us_s: The same without FreeTrain; the same jobs.
        waited_s: How long each job that met a lease waited for it to go.
        bound_s: How long a job should wait at most.
    """
    later_s = {job: with_us_s[job] - s for job, s in without_us_s.items()}
    differences = sorted(later_s.values())
    waits_s = list(waited_s.values())
    met_s = [later_s[job] for job in waited_s if job in later_s]
    return Harm(
        jobs=len(differences),
        later=sum(s > 0 for s in differences),
        sooner=sum(s < 0 for s in differences),
        mean_s=_mean(differences),
        median_s=_median(differences),
        high_s=differences[math.ceil(0.95 * len(differences)) - 1]
        if differences
        else 0.0,
        most_s=max(differences, default=0.0),
        total_s=math.fsum(s for s in differences if s > 0),
        met=len(waited_s),
        waited_mean_s=_mean(waits_s),
        waited_median_s=_median(waits_s),
        waited_most_s=max(waits_s, default=0.0),
        waited_longer=sum(s > bound_s for s in waits_s),
        met_later_mean_s=_mean(met_s),
        met_later_most_s=max(met_s, default=0.0),
    )


def _mean(values: list[float]) -> float:
    return math.fsum(values) / len(values) if values else 0.0


def _median(values: list[float]) -> float:
    return statistics.median(values) if values else 0.0


@dataclass(frozen=True, slots=True)
class HoleFigures:
    """Holes and their use; docs/notes/replay.md defines each.

    Attributes:
        holes: How many there were.
        node_s: Their node-seconds.
        long_holes: Holes of 600 s and more.
        long_used_node_s: Node-seconds of long holes that a trainer held.
    """

    holes: int
    node_s: float
    long_holes: int
    long_node_s: float
    long_used_node_s: float

    @property
    def long_use(self) -> float | None:
        """The share of long holes that was used; None where there were none."""
        return self.long_used_node_s / self.long_node_s if self.long_node_s else None


class HoleUse:
    """Counts, node by node, how long it is idle and how long a trainer holds it."""

    def __init__(self, nodes: int) -> None:
        self._since_s = np.zeros(nodes)
        self._used_s = np.zeros(nodes)
        self._idle = np.zeros(nodes, np.bool_)
        self._used = np.zeros(nodes, np.bool_)
        self._at_s = 0.0
        self._holes = 0
        self._long_holes = 0
        self._node_s = 0.0
        self._long_node_s = 0.0
        self._long_used_node_s = 0.0

    def until(self, now_s: float) -> None:
        """Count the time until *now_s*."""
        if now_s > self._at_s:
            self._used_s[self._used] += now_s - self._at_s
            self._at_s = now_s

    def moved(self, joined: Sequence[int], left: Sequence[int]) -> None:
        """Close the holes of *left* and open those of *joined*, now."""
        if left:
            self._close(np.array([*left]))
        if joined:
            opened = np.array([*joined])
            self._since_s[opened] = self._at_s
            self._used_s[opened] = 0.0
            self._idle[opened] = True

    def free(self, nodes: Iterable[int]) -> None:
        """Count all idle nodes but *nodes* as used from now on."""
        self._used = self._idle.copy()
        self._used[np.array([*nodes], np.intp)] = False

    def held(self, nodes: Sequence[int]) -> None:
        """Count *nodes* as used from now on."""
        self._used[np.asarray(nodes, np.intp)] = True

    def given_up(self, nodes: Sequence[int]) -> None:
        """Count *nodes* as idle and unused from now on."""
        self._used[np.asarray(nodes, np.intp)] = False

    def figures(self, end_s: float) -> HoleFigures:
        """Close every hole at *end_s* and return the sums."""
        self.until(end_s)
        self._close(np.flatnonzero(self._idle))
        return HoleFigures(
            self._holes,
            self._node_s,
            self._long_holes,
            self._long_node_s,
            self._long_used_node_s,
        )

    def _close(self, nodes: NDArray[np.intp]) -> None:
        length_s = self._at_s - self._since_s[nodes]
        is_long = length_s >= LONG_S
        self._holes += int((length_s > 0).sum())
        self._node_s += float(length_s.sum())
        self._long_holes += int(is_long.sum())
        self._long_node_s += float(length_s[is_long].sum())
        self._long_used_node_s += float(self._used_s[nodes][is_long].sum())
        self._idle[nodes] = False
        self._used[nodes] = False
