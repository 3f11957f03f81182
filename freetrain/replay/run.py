"""Replay one log under one policy, and sum up its figures.

``run_replay`` plays the log, and then, as a yardstick, the same trainers on as many
nodes that never leave. docs/notes/replay.md defines every figure of a result.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from freetrain.errors import UsageError
from freetrain.planning.settings import POLICIES, RATED_POLICIES
from freetrain.priority.base import RatingBasis, priority_named
from freetrain.replay.accounting import PublishedAccountant, RealAccountant, Tally
from freetrain.replay.engine import Engine
from freetrain.replay.policies.adaptive import FOLLOWED, AdaptivePolicy
from freetrain.replay.policies.base import Foretelling
from freetrain.replay.policies.registry import (
    SolverUse,
    follows,
    policy_for,
    shadows_for,
)
from freetrain.replay.pool import PoolTimeline
from freetrain.replay.settings import DEFAULT_PRIORITY, LOOK_EVERY_S, Accounting
from freetrain.replay.trainers import Costs
from freetrain.text import DAY_S

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from freetrain.lookahead.reliability import ForecastRecord
    from freetrain.losscurve.forecast import MetricPoint
    from freetrain.replay.accounting import Accountant, Run
    from freetrain.replay.engine import Step
    from freetrain.replay.policies.base import ReplayPolicy
    from freetrain.replay.policies.registry import Gap
    from freetrain.replay.settings import ReplaySettings
    from freetrain.replay.trainers import QualityTruth, TrainerSpec

    Clock = Callable[[], float]
    Progress = Callable[[float], None]


_SETTLING_S = 14 * DAY_S
"""After this the speed on dedicated nodes is within 0.3 % of that over 90 days
(20 imagenet trainers on 322 and on 1,050 nodes)."""


def run_replay(
    timeline: PoolTimeline,
    trainers: Sequence[TrainerSpec],
    settings: ReplaySettings,
    *,
    clock: Clock,
    on_progress: Progress | None = None,
) -> ReplayResult:
    """Replay *timeline* under one policy, and once more on dedicated nodes.

    The second replay is the yardstick of ``efficiency``: the same trainers on as many
    nodes as the pool had on average, which never leave, and where no change costs
    anything. Policy ``static`` is that replay itself, and runs once.

    Args:
        timeline: The pool over time.
        trainers: The trainers to run; at least one.
        settings: Policy, accounting and the rest.
        clock: Seconds from any time on; it only measures the solver.
        on_progress: Called now and then with the fraction that is done.

    Returns:
        The figures; ``wall_s`` and ``peak_rss_bytes`` are 0, for the caller to fill in.

    Raises:
        UsageError: There is no such policy or priority, or the trainers do not fit.
        BrokenPolicyError: The policy has a defect.
    """
    settings = _with_polls(settings)
    engine, use = play(
        timeline, trainers, settings, clock=clock, on_progress=on_progress
    )
    return result_of(
        engine,
        settings,
        use,
        efficiency=1.0
        if settings.policy == "static"
        else _efficiency(engine.tally, trainers, settings, clock),
        forecasts=forecasts_of(engine.policy, timeline.node_names),
    )


def play(
    timeline: PoolTimeline,
    trainers: Sequence[TrainerSpec],
    settings: ReplaySettings,
    *,
    clock: Clock,
    on_progress: Progress | None = None,
) -> tuple[Engine, SolverUse]:
    """Replay *timeline* to its end, without a yardstick; as ``run_replay`` otherwise.

    Returns:
        The replay, and the calls of its solver.
    """
    _check(timeline, trainers, settings)
    settings = _with_polls(settings)
    if settings.policy == "scavenger":
        trainers = best_rigid(timeline, trainers, settings, clock=clock)
        settings = replace(settings, parallel=_most_jobs(timeline, trainers))
    use = SolverUse()
    policy = _policy_of(timeline, trainers, settings, clock, use)
    if settings.policy == "static":
        nodes, span_s = timeline.mean_nodes, timeline.horizon_s
        engine = _dedicated(nodes, span_s, trainers, settings, policy)
    else:
        engine = engine_for(timeline, trainers, settings, policy)
    engine.run(on_progress)
    if settings.policy == "static":
        engine.tally.preemptions = 0  # a node that is there for a part is not taken
    return engine, use


def _policy_of(
    timeline: PoolTimeline,
    trainers: Sequence[TrainerSpec],
    settings: ReplaySettings,
    clock: Clock,
    use: SolverUse,
) -> ReplayPolicy:
    """Return the policy that *settings* name, with its shadows if it has some."""
    if settings.policy != "adaptive":
        return policy_for(settings, clock, use)
    if not follows(settings):
        return policy_for(replace(settings, policy=FOLLOWED[0]), clock, use)
    # What a user states: how good models truly become no policy may know.
    stated = [replace(each, quality=None, target=None) for each in trainers]
    endless = replace(timeline, horizon_s=math.inf)

    def shadow(own: ReplaySettings, policy: ReplayPolicy) -> Engine:
        return engine_for(endless, stated, own, policy)

    return AdaptivePolicy(
        shadows_for(
            settings,
            shadow,
            clock,
            use,
            scalings={each.scaling for each in stated},
        ),
        is_alike=not any(each.quality for each in trainers),
    )


def engine_for(
    timeline: PoolTimeline,
    trainers: Sequence[TrainerSpec],
    settings: ReplaySettings,
    policy: ReplayPolicy,
) -> Engine:
    """Return a replay of *timeline* that has not begun."""
    return Engine(
        timeline,
        [with_costs(trainer, settings) for trainer in trainers],
        policy=policy,
        accountant=accountant_for(settings.accounting),
        settings=settings,
    )


# Rigid jobs


def best_rigid(
    timeline: PoolTimeline,
    trainers: Sequence[TrainerSpec],
    settings: ReplaySettings,
    *,
    clock: Clock,
    parallel: int | None = None,
) -> list[TrainerSpec]:
    """Return *trainers* as jobs of the fixed size that trains most on *timeline*.

    Sizes double from the smallest, until two in a row have trained less than the best:
    each is replayed in whole, which is hindsight that no user has. A trainer that
    cannot run on a size has its next one below, or its smallest; one with a stated
    size keeps that, as far as the machine is large enough.

    Args:
        timeline: The pool over time.
        trainers: The trainers.
        settings: Those of the policy ``scavenger``.
        clock: Seconds from any time on.
        parallel: Jobs in the queue at a time; None for as many as arrive.
    """
    most = len(timeline.node_names)
    top = min(most, max(trainer.scaling.sizes[-1] for trainer in trainers))
    size = min(trainer.scaling.sizes[0] for trainer in trainers)
    best_done, worse = (-math.inf, 0.0), 0
    best: list[TrainerSpec] = []
    jobs: list[TrainerSpec] = []
    while worse < _WORSE and (not jobs or size <= top):
        before = jobs
        jobs = [_as_rigid(trainer, min(size, top), most) for trainer in trainers]
        size *= 2
        if jobs != before:
            asked = replace(
                settings,
                parallel=parallel or _most_jobs(timeline, jobs),
                record_steps=False,
            )
            policy = policy_for(asked, clock, SolverUse())
            engine = engine_for(timeline, jobs, asked, policy)
            engine.run()
            done = engine.tally.samples, -engine.tally.end_s
            worse = 0 if done > best_done else worse + 1
            best, best_done = (jobs, done) if not worse else (best, best_done)
    return best


_WORSE = 2
"""Sizes in a row that train less than the best, after which no larger one is tried."""


def _as_rigid(trainer: TrainerSpec, size: int, most: int) -> TrainerSpec:
    """Return *trainer* with a fixed size up to *size*, on *most* nodes."""
    stated = trainer.fixed_nodes
    if stated is not None and stated <= most:
        return trainer
    fitting = [n for n in trainer.scaling.sizes if n <= (most if stated else size)]
    fixed = max(fitting, default=trainer.scaling.sizes[0])
    return replace(trainer, fixed_nodes=fixed)


def _most_jobs(timeline: PoolTimeline, jobs: Sequence[TrainerSpec]) -> int:
    """Return how many of *jobs* can run at a time.

    As they start in order, a queue of so many is as good as one without a bound.
    """
    least = min(job.fixed_nodes or 1 for job in jobs)
    return max(1, timeline.most_nodes // least)


def _check(
    timeline: PoolTimeline, trainers: Sequence[TrainerSpec], settings: ReplaySettings
) -> None:
    if settings.policy not in POLICIES:
        raise UsageError(
            f"there is no policy {settings.policy!r}; nothing was replayed. "
            f"Choose one of {', '.join(POLICIES)}."
        )
    if not trainers:
        raise UsageError("there are no trainers; nothing was replayed. Name some.")
    machine = len(timeline.node_names)
    largest = max(trainers, key=lambda trainer: trainer.scaling.sizes[0])
    least = largest.scaling.sizes[0]
    if settings.policy == "scavenger" and least > machine:
        raise UsageError(
            f"trainer {largest.name!r} as a rigid job needs {least} nodes and "
            f"{machine} take part, so it would block the queue for ever; nothing was "
            f"replayed. Lower its min_nodes, or replay more nodes."
        )


def _with_polls(settings: ReplaySettings) -> ReplaySettings:
    """Return *settings* with the polls that their policy needs.

    Raises:
        UsageError: There is no such priority, or it has no such setting.
    """
    priority = priority_named(settings.priority, dict(settings.priority_settings))
    is_steady = priority.basis is RatingBasis.TRAINER
    if settings.policy == "static" and not is_steady:
        return replace(settings, priority=DEFAULT_PRIORITY, priority_settings=())
    is_steady = is_steady and not settings.learns_speeds
    if is_steady or settings.look_every_s or settings.policy not in RATED_POLICIES:
        return settings
    return replace(settings, look_every_s=LOOK_EVERY_S)


def with_costs(trainer: TrainerSpec, settings: ReplaySettings) -> TrainerSpec:
    """Return *trainer* with the costs that this replay's accounting knows."""
    costs = trainer.costs.times(settings.cost_factor)
    if settings.accounting is not Accounting.REAL:
        costs = replace(costs, start_s=0.0, checkpoint_every_s=0.0)
    return replace(trainer, costs=costs)


def accountant_for(accounting: Accounting) -> Accountant:
    """Return a new accountant of the kind that *accounting* names."""
    if accounting is Accounting.REAL:
        return RealAccountant(Tally())
    at_once = accounting is Accounting.PUBLISHED_C
    return PublishedAccountant(Tally(), notices_at_once=at_once)


def _dedicated(
    nodes: float,
    span_s: float,
    trainers: Sequence[TrainerSpec],
    settings: ReplaySettings,
    policy: ReplayPolicy,
) -> Engine:
    """Return a replay of nodes that never leave; no change costs anything on them."""
    nothing = Costs(grow_s=0.0, shrink_s=0.0)
    return Engine(
        PoolTimeline.dedicated(nodes, span_s),
        [replace(trainer, costs=nothing) for trainer in trainers],
        policy=policy,
        accountant=RealAccountant(Tally()),
        settings=settings,
    )


def _efficiency(
    tally: Tally,
    trainers: Sequence[TrainerSpec],
    settings: ReplaySettings,
    clock: Clock,
) -> float | None:
    """Return samples/s over those of dedicated equivalent nodes, if there are any."""
    if tally.end_s <= 0:
        return None
    nodes = tally.pool_node_s / tally.end_s
    yardstick = _with_polls(
        replace(settings, policy="static", look_every_s=None, record_steps=False)
    )
    if settings.policy == "scavenger":
        most = max(1, math.ceil(nodes))  # more could not run
        yardstick = replace(yardstick, parallel=most)
    engine = _dedicated(
        nodes,
        _yardstick_span_s(tally.end_s, trainers, settings),
        trainers,
        yardstick,
        policy_for(yardstick, clock, SolverUse()),
    )
    engine.run()
    static = engine.tally
    if static.samples <= 0:
        return None
    return (tally.samples / tally.end_s) / (static.samples / static.end_s)


def _yardstick_span_s(
    end_s: float, trainers: Sequence[TrainerSpec], settings: ReplaySettings
) -> float:
    """Return how long the dedicated nodes are played for.

    Where finished trainers start over, the queue goes round and round once all
    have arrived, at the same speed. A year of it would take as long to play as
    the replay itself.
    """
    if not settings.requeue:
        return end_s
    settled_s = max(trainer.arrival_s for trainer in trainers) + _SETTLING_S
    return min(end_s, settled_s)


def forecasts_of(
    policy: ReplayPolicy, node_names: Sequence[str]
) -> ForecastRecord | None:
    """Return the forecasts of *policy* and what came, if they are recorded."""
    watched = policy.forecasts if isinstance(policy, Foretelling) else None
    return None if watched is None else watched.record(node_names)


# Results


@dataclass(frozen=True, slots=True)
class ReplayResult:
    """One policy's replay of one log.

    Node-seconds and samples are sums over the replay; ``*_samples`` losses are
    samples that were not trained because of the cause named. ``gap`` is None if no
    plan had an objective, ``forecaster`` if the policy has none, and ``forecasts`` also
    if they were not to be recorded. ``fixed_nodes`` is the largest size of rigid jobs;
    None for other policies. ``followed_s`` has for how long ``adaptive`` followed each
    policy; it is empty for others.
    """

    policy: str
    priority: str
    accounting: str
    samples: float
    finished: int
    end_s: float
    images_per_s: float
    eq_nodes: float
    pool_node_s: float
    used_node_s: float
    rescale_samples: float
    preempt_samples: float
    start_samples: float
    preemptions: int
    rescales: int
    events: int
    efficiency: float | None
    coverage: float
    solver_calls: int
    solver_s: float
    solver_fallbacks: int
    wall_s: float
    peak_rss_bytes: int
    steps: tuple[Step, ...]
    completions: tuple[Completion, ...]
    learning: tuple[Learning, ...] = ()
    priority_settings: tuple[tuple[str, float], ...] = ()
    gap: Gap | None = None
    forecaster: str | None = None
    forecasts: ForecastRecord | None = None
    fixed_nodes: int | None = None
    followed_s: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Completion:
    """When one trainer came, started and finished, and what it trained.

    Attributes:
        admitted_s: When it was admitted; None for never, as below.
        samples: Samples it trained, net of losses.
        slowdown: Time from arrival to finish over the time it would need alone
            on its best size; None where it did not finish.
    """

    trainer: str
    arrival_s: float
    admitted_s: float | None
    finished_s: float | None
    samples: float
    slowdown: float | None


@dataclass(frozen=True, slots=True)
class Learning:
    """How good the model of one trainer with a quality curve became, and when.

    Attributes:
        times_s: When it passed each evaluation for good, ascending.
        quality: The best by then, as a share of the best it has by the end of its
            work, by evaluation: 0 where it began, never falling.
        deliver_s: When it reached the first tier of its target; None for never.
        final_s: When it reached the second, likewise.
    """

    trainer: str
    arrival_s: float
    finished_s: float | None
    times_s: tuple[float, ...]
    quality: tuple[float, ...]
    deliver_s: float | None
    final_s: float | None


def result_of(
    engine: Engine,
    settings: ReplaySettings,
    use: SolverUse,
    *,
    efficiency: float | None,
    forecasts: ForecastRecord | None,
) -> ReplayResult:
    """Return the figures of a replay that was played to its end."""
    tally, runs = engine.tally, engine.queue.runs
    useful_node_s = tally.used_node_s - tally.wasted_node_s
    return ReplayResult(
        policy=settings.policy,
        priority=settings.priority,
        accounting=settings.accounting,
        samples=tally.samples,
        finished=tally.finished,
        end_s=tally.end_s,
        images_per_s=tally.samples / tally.end_s if tally.end_s else 0.0,
        eq_nodes=tally.pool_node_s / tally.end_s if tally.end_s else 0.0,
        pool_node_s=tally.pool_node_s,
        used_node_s=tally.used_node_s,
        rescale_samples=tally.rescale_samples,
        preempt_samples=tally.preempt_samples,
        start_samples=tally.start_samples,
        preemptions=tally.preemptions,
        rescales=tally.rescales,
        events=tally.events,
        efficiency=efficiency,
        coverage=useful_node_s / tally.pool_node_s if tally.pool_node_s else 0.0,
        solver_calls=use.calls,
        solver_s=use.spent_s,
        solver_fallbacks=use.fallbacks,
        wall_s=0.0,
        peak_rss_bytes=0,
        steps=tuple(engine.steps),
        completions=_completions(runs),
        learning=learning_of(runs),
        priority_settings=settings.priority_settings,
        gap=use.gaps.summary(),
        forecaster=settings.forecaster
        if POLICIES[settings.policy].looks_ahead
        else None,
        forecasts=forecasts,
        fixed_nodes=max((run.spec.fixed_nodes or 0 for run in runs), default=None)
        if settings.policy == "scavenger"
        else None,
        followed_s=tuple(engine.policy.led_s.items())
        if isinstance(engine.policy, AdaptivePolicy)
        else (),
    )


def _completions(runs: Iterable[Run]) -> tuple[Completion, ...]:
    # A trainer that starts over has many runs.
    shortest_s = {spec: spec.shortest_s for spec in {run.spec for run in runs}}
    return tuple(
        Completion(
            trainer=run.spec.name,
            arrival_s=run.arrival_s,
            admitted_s=run.admitted_s,
            finished_s=run.finished_s,
            samples=run.done,
            slowdown=None
            if run.finished_s is None
            else (run.finished_s - run.arrival_s) / shortest_s[run.spec],
        )
        for run in runs
    )


def learning_of(runs: Iterable[Run]) -> tuple[Learning, ...]:
    """Return how good each of *runs* that has a quality curve became, and when."""
    shares: dict[tuple[QualityTruth, float], tuple[float, ...]] = {}
    made = []
    for run in runs:
        truth = run.spec.quality
        if truth is not None:
            key = truth, run.work
            if key not in shares:
                shares[key] = tuple(truth.quality(until=run.work).tolist())
            made.append(_learning(run, truth, shares[key]))
    return tuple(made)


def _learning(run: Run, truth: QualityTruth, shares: Sequence[float]) -> Learning:
    target = run.spec.target
    return Learning(
        trainer=run.spec.name,
        arrival_s=run.arrival_s,
        finished_s=run.finished_s,
        times_s=tuple(point.t_s for point in run.points),
        quality=tuple(shares[: len(run.points)]),
        deliver_s=_reached_s(run.points, truth, target.deliver if target else None),
        final_s=_reached_s(run.points, truth, target.final if target else None),
    )


def _reached_s(
    points: Sequence[MetricPoint], truth: QualityTruth, value: float | None
) -> float | None:
    if value is None:
        return None
    good = (p.t_s for p in points if truth.better.is_reached(value, p.value))
    return next(good, None)
