"""Replays one log under one policy, and one yardstick of dedicated nodes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from freetrain.errors import UsageError
from freetrain.planning.settings import POLICIES, RATED_POLICIES
from freetrain.priority.base import Basis
from freetrain.priority.registry import priority_named
from freetrain.replay.accounting import (
    PublishedAccountant,
    RealAccountant,
    Tally,
)
from freetrain.replay.engine import Engine
from freetrain.replay.policies.base import Foretelling
from freetrain.replay.policies.planned import SolverUse
from freetrain.replay.policies.registry import policy_for
from freetrain.replay.result import Completion, ReplayResult, learning_of
from freetrain.replay.settings import DEFAULT_PRIORITY, LOOK_EVERY_S, Accounting
from freetrain.replay.timeline import DAY_S, PoolTimeline
from freetrain.replay.trainers import Costs

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from freetrain.lookahead.reliability import ForecastRecord
    from freetrain.replay.accounting import Accountant, Run
    from freetrain.replay.policies.base import ReplayPolicy
    from freetrain.replay.result import Step
    from freetrain.replay.settings import ReplaySettings
    from freetrain.replay.trainers import TrainerSpec

    Clock = Callable[[], float]
    Progress = Callable[[float], None]


_SETTLING_S = 14 * DAY_S
"""After this the speed on dedicated nodes is within 0.3 % of that over 90 days
(20 imagenet trainers on 322 and on 1,050 nodes)."""


@dataclass(frozen=True, slots=True)
class Caller:
    """What a replay needs from outside.

    Attributes:
        clock: Seconds from any time on; it only measures the solver.
        on_progress: Called now and then with the fraction that is done.
    """

    clock: Clock
    on_progress: Progress | None = None


@dataclass(frozen=True, slots=True)
class PlayedReplay:
    """A replay that was played to its end."""

    tally: Tally
    use: SolverUse
    runs: Sequence[Run]
    steps: Sequence[Step]
    forecasts: ForecastRecord | None = None


def run_replay(
    timeline: PoolTimeline,
    trainers: Sequence[TrainerSpec],
    settings: ReplaySettings,
    *,
    clock: Clock,
    on_progress: Progress | None = None,
) -> ReplayResult:
    """Replay *timeline* under one policy.

    Args:
        timeline: The pool over time.
        trainers: The trainers to run; at least one.
        settings: Policy, accounting and the rest.
        clock: Seconds from any time on; it only measures the solver.
        on_progress: Called now and then with the fraction that is done.

    Returns:
        The figures of docs/notes/replay.md; ``wall_s`` and ``peak_rss_bytes`` are 0,
        for the caller to fill in.

    Raises:
        UsageError: There is no such policy or priority, or the trainers do not fit.
        BrokenPolicyError: The policy has a defect.
    """
    _check(timeline, trainers, settings)
    caller = Caller(clock, on_progress)
    settings = _with_polls(settings)
    if settings.policy == "static":
        dedicated = PoolTimeline.dedicated(
            round(timeline.mean_nodes), timeline.horizon_s
        )
        played = _play_free_of_cost(dedicated, trainers, settings, caller)
        return result_of(settings, played, efficiency=1.0)
    paying = [with_costs(trainer, settings) for trainer in trainers]
    accountant = accountant_for(settings.accounting)
    played = _play(timeline, paying, settings, accountant, caller)
    efficiency = _efficiency(played.tally, trainers, settings, Caller(clock))
    return result_of(settings, played, efficiency=efficiency)


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
    largest = max(trainers, key=lambda trainer: trainer.fixed_nodes)
    if settings.policy == "scavenger" and largest.fixed_nodes > machine:
        raise UsageError(
            f"trainer {largest.name!r} as a rigid job needs {largest.fixed_nodes} "
            f"nodes and {machine} take part, so it would block the queue for ever; "
            f"nothing was replayed. Lower its fixed_nodes, or replay more nodes."
        )


def _with_polls(settings: ReplaySettings) -> ReplaySettings:
    """Return *settings* with the polls that their policy needs.

    Raises:
        UsageError: There is no such priority, or it has no such setting.
    """
    priority = priority_named(settings.priority, dict(settings.priority_settings))
    is_steady = priority.basis is Basis.TRAINER
    if settings.policy == "static" and not is_steady:
        return replace(settings, priority=DEFAULT_PRIORITY, priority_settings=())
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


def _play(
    timeline: PoolTimeline,
    trainers: Sequence[TrainerSpec],
    settings: ReplaySettings,
    accountant: Accountant,
    caller: Caller,
) -> PlayedReplay:
    use = SolverUse()
    policy = policy_for(settings, caller.clock, use)
    engine = Engine(
        timeline,
        trainers,
        policy=policy,
        accountant=accountant,
        settings=settings,
    )
    engine.run(caller.on_progress)
    return PlayedReplay(
        tally=accountant.tally,
        use=use,
        runs=engine.queue.runs,
        steps=engine.steps,
        forecasts=forecasts_of(policy, timeline.node_names),
    )


def forecasts_of(
    policy: ReplayPolicy, node_names: Sequence[str]
) -> ForecastRecord | None:
    """Return the forecasts of *policy* and what came, if they are recorded."""
    watched = policy.forecasts if isinstance(policy, Foretelling) else None
    return None if watched is None else watched.record(node_names)


def _play_free_of_cost(
    dedicated: PoolTimeline,
    trainers: Sequence[TrainerSpec],
    settings: ReplaySettings,
    caller: Caller,
) -> PlayedReplay:
    """Play the trainers as if no change cost anything, whatever the accounting."""
    nothing = Costs(grow_s=0.0, shrink_s=0.0)
    free = [replace(trainer, costs=nothing) for trainer in trainers]
    return _play(dedicated, free, settings, RealAccountant(Tally()), caller)


def _efficiency(
    tally: Tally,
    trainers: Sequence[TrainerSpec],
    settings: ReplaySettings,
    caller: Caller,
) -> float | None:
    """Return samples/s over those of dedicated equivalent nodes, if there are any."""
    if tally.end_s <= 0:
        return None
    nodes = round(tally.pool_node_s / tally.end_s)
    dedicated = PoolTimeline.dedicated(
        nodes, _yardstick_span_s(tally.end_s, trainers, settings)
    )
    yardstick = _with_polls(
        replace(settings, policy="static", look_every_s=None, record_steps=False)
    )
    static = _play_free_of_cost(dedicated, trainers, yardstick, caller).tally
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


def result_of(
    settings: ReplaySettings, played: PlayedReplay, *, efficiency: float | None
) -> ReplayResult:
    """Return the figures of what was *played*."""
    tally, use = played.tally, played.use
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
        steps=tuple(played.steps),
        completions=tuple(_completion(run) for run in played.runs),
        learning=learning_of(played.runs),
        priority_settings=settings.priority_settings,
        gap=use.gaps.summary(),
        forecaster=settings.forecaster if settings.policy == "lookahead" else None,
        forecasts=played.forecasts,
    )


def _completion(run: Run) -> Completion:
    took_s = None if run.finished_s is None else run.finished_s - run.arrival_s
    return Completion(
        trainer=run.spec.name,
        arrival_s=run.arrival_s,
        admitted_s=run.admitted_s,
        finished_s=run.finished_s,
        samples=run.done,
        slowdown=None if took_s is None else took_s / run.spec.shortest_s,
    )
