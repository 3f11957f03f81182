"""Replays a log of jobs with the broker in the loop."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from freetrain.replay.engine import Engine
from freetrain.replay.loop.guests import Trainees
from freetrain.replay.loop.harm import harm_of
from freetrain.replay.loop.hold import AsJobs, Unseen
from freetrain.replay.loop.hole_use import HoleUse
from freetrain.replay.loop.leases import Leases
from freetrain.replay.loop.policy import TickedPolicy
from freetrain.replay.loop.promised import PromisedForecaster
from freetrain.replay.loop.queue import Queue
from freetrain.replay.loop.settings import Mode, check_policy
from freetrain.replay.loop.source import Broker, LoopSource
from freetrain.replay.policies.lookahead import HORIZON_S
from freetrain.replay.policies.planning import SolverUse
from freetrain.replay.policies.registry import POLICIES, forecaster_for, lookahead_by
from freetrain.replay.run import (
    Played,
    accountant_for,
    forecasts_of,
    result_of,
    with_costs,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from freetrain.replay.loop.harm import Harm
    from freetrain.replay.loop.hole_use import HoleFigures
    from freetrain.replay.loop.settings import LoopSettings
    from freetrain.replay.loop.stage import Stage
    from freetrain.replay.policies.interface import Policy
    from freetrain.replay.result import ReplayResult
    from freetrain.replay.run import Caller
    from freetrain.replay.settings import ReplaySettings
    from freetrain.trainers.spec import TrainerSpec
    from logs.schedule.simulation import Simulation


@dataclass(frozen=True, slots=True)
class LoopResult:
    """What came of one policy in the loop.

    Attributes:
        replay: Its figures as a replay of the holes that it met.
        holes: Those holes, and their use.
        harm: What it did to jobs.
    """

    replay: ReplayResult
    holes: HoleFigures
    harm: Harm


def run_in_the_loop(
    stage: Stage,
    trainers: Sequence[TrainerSpec],
    settings: ReplaySettings,
    loop: LoopSettings,
    caller: Caller,
) -> LoopResult:
    """Go on from *stage* with the broker, and hold it against going on without.

    Args:
        stage: The jobs, and from when until when the broker is there.
        trainers: Who is to be trained.
        settings: Policy, accounting and the rest.
        loop: How the broker looks, holds and leaves nodes.
        caller: What is needed from outside.

    Raises:
        UsageError: The policy cannot be asked at ticks only.
        BrokenPolicyError: The policy has a defect.
    """
    check_policy(settings.policy)
    use, accountant = SolverUse(), accountant_for(settings.accounting)
    leases = Leases(stage.nodes.count, loop)
    holes = HoleUse(stage.nodes.count)
    policy = _policy(settings, caller.clock, use, leases if loop.knows_plans else None)
    ticked = TickedPolicy(policy, leases, holes)
    trainees = Trainees(stage.nodes, loop, start_s=stage.start_s)
    simulation, hold = _on_stage(stage, trainees, leases, loop)
    source = LoopSource(stage, simulation, Broker(leases, ticked, hold), loop)
    engine = Engine(
        source,
        [_paying(trainer, settings, loop) for trainer in trainers],
        policy=ticked,
        accountant=accountant,
        settings=replace(settings, look_every_s=None),
    )
    trainees.pool = engine.pool
    engine.run(caller.on_progress)
    trainees.pool = None
    source.finish(accountant.tally.end_s)
    with_us_s = stage.play_out(simulation, source.starts_s)
    played = Played(
        tally=accountant.tally,
        use=use,
        runs=engine.queue.runs,
        steps=engine.steps,
        forecasts=forecasts_of(policy, stage.names),
    )
    return LoopResult(
        replay=result_of(settings, played, efficiency=None),
        holes=holes.figures(accountant.tally.end_s),
        harm=harm_of(
            with_us_s,
            stage.alone_s,
            trainees.waited_s | hold.waited_s(with_us_s),
            bound_s=loop.longest_wait_s,
        ),
    )


def _on_stage(
    stage: Stage, trainees: Trainees, leases: Leases, loop: LoopSettings
) -> tuple[Simulation, Unseen | AsJobs]:
    """Return the jobs from now on, and how leases stand with their scheduler."""
    if loop.mode is Mode.PREEMPT:
        return stage.branch(trainees), Unseen()
    simulation = stage.branch()
    queue = Queue(
        simulation,
        stage.nodes,
        knows_plans=loop.knows_plans,
        careful_s=loop.longest_s if loop.is_careful else None,
    )
    hold = AsJobs(simulation, stage.nodes, leases, queue, start_s=stage.start_s)
    return simulation, hold


def _paying(
    trainer: TrainerSpec, settings: ReplaySettings, loop: LoopSettings
) -> TrainerSpec:
    """Return *trainer* with its costs; who commits on notice loses nothing more."""
    paying = with_costs(trainer, settings)
    if not loop.commits_in_time:
        return paying
    return replace(paying, costs=replace(paying.costs, checkpoint_every_s=0.0))


def _policy(
    settings: ReplaySettings,
    clock: Callable[[], float],
    use: SolverUse,
    leases: Leases | None,
) -> Policy:
    """Return the policy; ``lookahead`` goes by plans where *leases* knows of them."""
    if leases is None or settings.policy != "lookahead":
        return POLICIES[settings.policy](settings, clock, use)
    learned = forecaster_for(settings)
    forecaster = PromisedForecaster(learned, leases, horizon_s=HORIZON_S)
    return lookahead_by(forecaster, settings, clock, use, regroups=True)
