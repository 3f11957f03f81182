"""Learned scaling on the Summit window: ``python -m tests.scaling.summit [WORD ...]``.

Six days of the first 1,024 nodes, built-in trainers, 10 and 40 at a time. Prints what
comes out with learned curves as a share of what comes out with the true ones. Words:
``hps``, ``imagenet``, ``mixed`` choose trainers, ``published`` the accounting and
``speedup`` the objective.
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from freetrain.replay.accounting import PublishedAccountant, RealAccountant, Tally
from freetrain.replay.engine import Engine
from freetrain.replay.policies.base import Change, TrainerView, View
from freetrain.replay.policies.ratings import (
    GivenSpeeds,
    LearnedSpeeds,
    Speeds,
    WatchedPolicy,
)
from freetrain.replay.policies.registry import changes_to
from freetrain.replay.pool import PoolTimeline
from freetrain.replay.settings import LOOK_EVERY_S, ReplaySettings
from freetrain.replay.trainers import (
    BUILTIN_NAMES,
    Costs,
    Scaling,
    TrainerSpec,
    builtin_trainers,
)
from freetrain.scaling import ASSUMED_EXPONENT, Profiling, deviations_for
from milp.planner import Planner, SolverName
from milp.problem import Curve, NodeClass, Problem, ProblemTrainer, speed_up, throughput
from tests.lookahead.reliability_table import shared_folder, timeline

T_FWD_S = 120.0
MOST = 64
SIZES = tuple(range(1, MOST + 1))


def summit(days: float = 6.0) -> PoolTimeline:
    return timeline(shared_folder(), from_day=0.0, days=days)


class AssumedSpeeds:
    """Speeds that grow as the number of nodes to the 0.9, for every trainer."""

    def __init__(self) -> None:
        speeds = np.arange(MOST + 1, dtype=np.float64) ** ASSUMED_EXPONENT
        self._scaling = Scaling("assumed", speeds, SIZES)

    def scalings(self, view: View) -> Sequence[Scaling]:
        return [self._scaling] * len(view.trainers)


def _mixed_trainers() -> tuple[TrainerSpec, ...]:
    """Return trainers whose scaling is as different as users' programs make it."""
    n = np.arange(MOST + 1, dtype=np.float64)
    saturating = n * 9.0 / (n + 8.0)
    peaked = n * np.exp((1.0 - n) / 24.0)
    across_switches = n**0.95 * np.where(n > 18, 0.7, 1.0)
    even = n**0.9 * np.where(n % 2, 0.8, 1.0) / 0.8
    even[1] = 1.0
    slow_to_begin = np.where(n < 2, n, 0.5 * n)
    shapes = (n, saturating, peaked, across_switches, even, slow_to_begin)
    scalings = [
        Scaling(f"shape-{k}-{scale:g}", shape * scale, SIZES)
        for scale in (1000.0, 2500.0, 6000.0, 4000.0, 1600.0)
        for k, shape in enumerate(shapes)
    ]
    return tuple(
        TrainerSpec(
            name=f"mixed-{k:04d}",
            scaling=scalings[k % len(scalings)],
            samples=1.3e8,
            arrival_s=36.0 * k,
            costs=Costs(
                grow_s=18.0, shrink_s=12.0, start_s=18.0, checkpoint_every_s=60.0
            ),
        )
        for k in range(600)
    )


MIXED = _mixed_trainers()


@dataclass(frozen=True, slots=True)
class Case:
    """One replay to be compared.

    Attributes:
        parallel: Trainers at a time.
        is_real: Whether costs are pauses, or lumps as published.
        is_speed_up: Whether the planner uses speed-up, or throughput.
    """

    trainers: tuple[TrainerSpec, ...]
    parallel: int
    is_real: bool = True
    is_speed_up: bool = False


class PlannedPolicy:
    """The planner at every event, with the speeds and costs it is given."""

    name = "planned"

    def __init__(
        self, speeds: Speeds, costs: Callable[[TrainerView], Costs], case: Case
    ) -> None:
        self._planner = Planner(SolverName.EXACT, limit_s=10.0)
        self._speeds = speeds
        self._costs = costs
        self._make = speed_up if case.is_speed_up else throughput
        self._curves: dict[Scaling, Curve] = {}

    def decide(self, view: View) -> Sequence[Change]:
        scalings = self._speeds.scalings(view)
        if not view.trainers or not view.idle_nodes:
            return ()
        before, self._curves = self._curves, {}
        for scaling in scalings:
            self._curves[scaling] = before.get(scaling) or self._make(
                scaling.samples_per_s, scaling.sizes
            )
        states = [
            self._state(trainer, self._curves[scaling])
            for trainer, scaling in zip(view.trainers, scalings, strict=True)
        ]
        pool = (NodeClass("idle", view.idle_nodes),)
        answer = self._planner.plan(Problem(pool, tuple(states), T_FWD_S))
        return changes_to([row[0] for row in answer.plan.counts], view)

    def _state(self, trainer: TrainerView, curve: Curve) -> ProblemTrainer:
        costs = self._costs(trainer)
        return ProblemTrainer(
            name=trainer.spec.name,
            curve=curve,
            held=(len(trainer.held),),
            up_s=costs.grow_s,
            down_s=costs.shrink_s,
            start_s=costs.start_s,
        )


def play(
    pool: PoolTimeline,
    case: Case,
    speeds: Speeds,
    *,
    costs: Callable[[TrainerView], Costs] | None = None,
) -> Tally:
    """Return the sums of one replay; *costs* are the true ones where not given."""
    return played(pool, case, speeds, costs=costs).tally


def played(
    pool: PoolTimeline,
    case: Case,
    speeds: Speeds,
    *,
    costs: Callable[[TrainerView], Costs] | None = None,
) -> Engine:
    """Return one replay that is over, with decisions a minute apart at most."""
    policy = PlannedPolicy(speeds, costs or _true_costs, case)
    trainers = case.trainers if case.is_real else _as_published(case.trainers)
    accountant = (
        RealAccountant(Tally())
        if case.is_real
        else PublishedAccountant(Tally(), notices_at_once=False)
    )
    engine = Engine(
        pool,
        trainers,
        policy=WatchedPolicy(policy, speeds)
        if isinstance(speeds, LearnedSpeeds)
        else policy,
        accountant=accountant,
        settings=ReplaySettings(
            parallel=case.parallel, look_every_s=LOOK_EVERY_S, record_steps=False
        ),
    )
    engine.run()
    return engine


def _true_costs(trainer: TrainerView) -> Costs:
    return trainer.spec.costs


def _as_published(trainers: Sequence[TrainerSpec]) -> tuple[TrainerSpec, ...]:
    """Return *trainers* as the published accounting has them: starting is free."""
    return tuple(
        replace(own, costs=replace(own.costs, start_s=0.0, checkpoint_every_s=0.0))
        for own in trainers
    )


def ways(priority: str) -> Iterator[tuple[str, Speeds, bool]]:
    """Yield ways to learn: name, speeds, and whether costs are learned too."""
    deviations = deviations_for(priority)
    for name, is_cost_learned in (("", False), (", costs learned", True)):
        speeds = LearnedSpeeds(Profiling(), deviations=deviations)
        yield f"profiling{name}", speeds, is_cost_learned
    yield "no profiling", LearnedSpeeds(deviations=deviations), False
    yield "assumed, never learned", AssumedSpeeds(), False


def trainers_of(jobs: str) -> tuple[TrainerSpec, ...]:
    return MIXED if jobs == "mixed" else builtin_trainers(jobs)


def lines(words: Sequence[str] = ()) -> Iterator[str]:
    """Yield the table, row by row, as it comes; *words* choose rows."""
    pool = summit()
    for jobs, parallel in product(sets_of(words), (10, 40)):
        case = Case(
            trainers_of(jobs),
            parallel,
            is_real="published" not in words,
            is_speed_up="speedup" in words,
        )
        yield from _rows(pool, case, f"{jobs:8} {parallel:2}")


def sets_of(words: Sequence[str]) -> Sequence[str]:
    """Return the sets of trainers among *words*; those of the figure for none."""
    known = (*BUILTIN_NAMES, "mixed")
    return [name for name in known if name in words] or BUILTIN_NAMES


def _rows(pool: PoolTimeline, case: Case, title: str) -> Iterator[str]:
    true = play(pool, case, GivenSpeeds())
    yield f"{title} true curves: {true.samples / 1e9:.3f}e9, {true.rescales} rescales"
    objective = "speedup" if case.is_speed_up else "throughput"
    for name, speeds, is_cost_learned in ways(objective):
        costs = None
        if is_cost_learned and isinstance(speeds, LearnedSpeeds):
            costs = speeds.costs
        tally = play(pool, case, speeds, costs=costs)
        share = 100 * tally.samples / true.samples
        yield f"{title} {name:24} {share:6.2f} %, {tally.rescales} rescales"


def write(lines: Iterator[str]) -> int:
    """Print *lines* as they come; return the exit status."""
    for line in lines:
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(write(lines(sys.argv[1:])))
