"""Learned scaling on the Summit window: ``python -m tests.scaling.summit [WORD ...]``.

Six days of the first 1,024 nodes, built-in trainers, 10 and 40 at a time. Prints what
comes out with learned curves as a share of what comes out with the true ones. Words:
``hps``, ``imagenet``, ``mixed`` choose trainers, ``published`` the accounting and
``speedup`` the objective.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

from freetrain.replay.accounting import PublishedAccountant, RealAccountant, Tally
from freetrain.replay.engine import Engine
from freetrain.replay.policies.ratings import GivenSpeeds, LearnedSpeeds, WatchedPolicy
from freetrain.replay.policies.registry import changes_to
from freetrain.replay.pool import PoolTimeline
from freetrain.replay.settings import ReplaySettings
from freetrain.replay.trainers import BUILTIN_NAMES, builtin_trainers
from freetrain.scaling import Profiling, deviations_for
from logs.read import read_trace
from logs.trace import IdleTrace
from milp.planner import Planner, SolverName
from milp.problem import NodeClass, Problem, ProblemTrainer, speed_up, throughput
from tests.scaling.mixed import MIXED, AssumedSpeeds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from freetrain.replay.policies.base import Change, TrainerView, View
    from freetrain.replay.policies.ratings import Speeds
    from freetrain.replay.trainers import Costs, Scaling, TrainerSpec
    from milp.problem import Curve

START_S = 72_743.0
T_FWD_S = 120.0


@dataclass(frozen=True, slots=True)
class Case:
    """One replay to be compared.

    Attributes:
        trainers: Who is trained.
        parallel: At a time.
        is_real: Whether costs are pauses, or lumps as published.
        is_speed_up: Whether the planner goes by speed-up, or by throughput.
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
    timeline: PoolTimeline,
    case: Case,
    speeds: Speeds,
    *,
    costs: Callable[[TrainerView], Costs] | None = None,
) -> Tally:
    """Return the sums of one replay; *costs* are the true ones where not given."""
    policy = PlannedPolicy(speeds, costs or _true_costs, case)
    trainers = case.trainers if case.is_real else _as_published(case.trainers)
    accountant = (
        RealAccountant(Tally())
        if case.is_real
        else PublishedAccountant(Tally(), notices_at_once=False)
    )
    engine = Engine(
        timeline,
        trainers,
        policy=WatchedPolicy(policy, speeds)
        if isinstance(speeds, LearnedSpeeds)
        else policy,
        accountant=accountant,
        settings=ReplaySettings(parallel=case.parallel, record_steps=False),
    )
    engine.run()
    return accountant.tally


def _true_costs(trainer: TrainerView) -> Costs:
    return trainer.spec.costs


def _as_published(trainers: Sequence[TrainerSpec]) -> tuple[TrainerSpec, ...]:
    """Return *trainers* as the published accounting has them: starting is free."""
    return tuple(
        replace(one, costs=replace(one.costs, start_s=0.0, checkpoint_every_s=0.0))
        for one in trainers
    )


def ways(priority: str) -> Iterator[tuple[str, Speeds, bool]]:
    """Yield how to learn: name, who learns, and whether costs are learned too."""
    deviations = deviations_for(priority)
    for name, is_cost_learned in (("", False), (", costs learned", True)):
        speeds = LearnedSpeeds(Profiling(), deviations=deviations)
        yield f"profiling{name}", speeds, is_cost_learned
    yield "no profiling", LearnedSpeeds(deviations=deviations), False
    yield "assumed, never learned", AssumedSpeeds(), False


def lines(shared: Path, words: Sequence[str] = ()) -> Iterator[str]:
    """Yield the table, row by row, as it comes; *words* choose rows."""
    trace = read_trace(shared / "logs" / "summit_2021-02.fragments.csv.gz")
    assert isinstance(trace, IdleTrace)
    timeline = PoolTimeline.from_trace(trace, start_s=START_S, nodes=1024, days=6)
    for jobs, parallel in product(sets_of(words), (10, 40)):
        case = Case(
            MIXED if jobs == "mixed" else builtin_trainers(jobs),
            parallel,
            is_real="published" not in words,
            is_speed_up="speedup" in words,
        )
        yield from _rows(timeline, case, f"{jobs:8} {parallel:2}")


def sets_of(words: Sequence[str]) -> Sequence[str]:
    """Return the sets of trainers among *words*; those of the figure for none."""
    return [one for one in (*BUILTIN_NAMES, "mixed") if one in words] or BUILTIN_NAMES


def _rows(timeline: PoolTimeline, case: Case, title: str) -> Iterator[str]:
    true = play(timeline, case, GivenSpeeds())
    yield f"{title} true curves: {true.samples / 1e9:.3f}e9, {true.rescales} rescales"
    objective = "speedup" if case.is_speed_up else "throughput"
    for name, speeds, is_cost_learned in ways(objective):
        costs = None
        if is_cost_learned and isinstance(speeds, LearnedSpeeds):
            costs = speeds.costs
        tally = play(timeline, case, speeds, costs=costs)
        share = 100 * tally.samples / true.samples
        yield f"{title} {name:24} {share:6.2f} %, {tally.rescales} rescales"


def main(arguments: Sequence[str]) -> int:
    beside = Path(__file__).resolve().parents[3] / "shared"
    shared = Path(os.environ.get("FREETRAIN_SHARED", beside))
    for line in lines(shared, arguments):
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
