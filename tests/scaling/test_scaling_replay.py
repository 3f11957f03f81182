from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean

import numpy as np
import pytest

from freetrain.losscurve.forecast import MetricPoint
from freetrain.priority.base import Target
from freetrain.replay.policies.base import Change, View
from freetrain.replay.policies.ratings import GivenSpeeds, LearnedSpeeds, WatchedPolicy
from freetrain.replay.policies.registry import changes_to
from freetrain.replay.pool import NO_NODES, PoolTimeline
from freetrain.replay.run import run_replay
from freetrain.replay.settings import ReplaySettings
from freetrain.replay.trainers import Costs, Scaling, TrainerSpec, builtin_trainers
from freetrain.scaling import Profiling
from logs.timeline import UnitRanges
from tests.scaling import summit as summit_window
from tests.scaling.summit import MIXED, Case, summit
from tests.scaling.tables import (
    FAMILIES,
    NODES,
    contending,
    learning,
    lost_alone,
    lost_contending,
    play,
    table,
    took_s,
    trainer,
)

COSTS = Costs(grow_s=18.0, shrink_s=12.0, start_s=18.0)
TRUE_PER_S = 1000.0 * np.array([0.0, 1.0, 1.7, 2.2, 2.5, 1.5])


@dataclass(slots=True)
class FakeTrainer:
    """A trainer as policies see it, whose samples the test sets."""

    spec: TrainerSpec
    held: set[int] = field(default_factory=set)
    done: float = 0.0
    serial: int = 0
    arrival_s: float = 0.0
    points: tuple[MetricPoint, ...] = ()
    target: Target | None = None


class Scripted:
    """Gives its only trainer the counts of a script, one at each event."""

    name = "scripted"

    def __init__(self, speeds: LearnedSpeeds, counts: list[int]) -> None:
        self._speeds = speeds
        self._counts = counts

    def decide(self, view: View) -> Sequence[Change]:
        self._speeds.scalings(view)
        return changes_to([self._counts.pop(0)], view)


def spec(scaling: Scaling) -> TrainerSpec:
    return TrainerSpec("one", scaling, 1e9, 0.0, COSTS, 1)


def watch(
    counts: list[int], *, every_s: float = 100.0
) -> tuple[LearnedSpeeds, FakeTrainer]:
    """Play *counts*, an event each: a change pauses the trainer as COSTS says."""
    # Its user's curve is absurd: it must not be used.
    trainer = FakeTrainer(spec(Scaling("lie", np.full(6, 1e6), (1, 2, 3, 4, 5))))
    speeds = LearnedSpeeds()
    policy = WatchedPolicy(Scripted(speeds, list(counts)), speeds)
    for k in range(len(counts)):
        view = view_of(trainer, k * every_s)
        before = len(trainer.held)
        for change in policy.decide(view):
            trainer.held -= set(change.drop)
            trainer.held |= set(change.take)
        after = len(trainer.held)
        pause_s = 18.0 if after > before else 12.0 if after < before else 0.0
        trainer.done += (every_s - pause_s) * float(TRUE_PER_S[after])
    return speeds, trainer


def view_of(trainer: FakeTrainer, now_s: float) -> View:
    return View(
        now_s=now_s,
        trainers=(trainer,),
        free=UnitRanges.of([node for node in range(5) if node not in trainer.held]),
        idle_nodes=5,
        joined=NO_NODES,
        left=NO_NODES,
    )


def scaling_at(speeds: LearnedSpeeds, trainer: FakeTrainer, now_s: float) -> Scaling:
    return speeds.scalings(view_of(trainer, now_s))[0]


def test_sizes_that_were_used_have_their_true_speeds_whatever_the_user_wrote() -> None:
    speeds, trainer = watch([1] * 4 + [3] * 4 + [5] * 4)

    learned = scaling_at(speeds, trainer, 1200.0).samples_per_s

    assert learned[[1, 3, 5]] == pytest.approx(TRUE_PER_S[[1, 3, 5]], rel=0.05)
    assert learned.max() < 1e4


def test_costs_of_rescales_are_learned_from_the_samples() -> None:
    counts = [n for k in range(12) for n in [1 + k % 2] * 3]
    speeds, trainer = watch(counts)

    costs = speeds.costs(trainer)

    assert costs.grow_s == pytest.approx(18.0, abs=1.0)
    assert costs.shrink_s == pytest.approx(12.0, abs=1.0)


def test_a_scaling_stays_the_same_object_while_nothing_new_is_seen() -> None:
    speeds, trainer = watch([2] * 8)

    first = scaling_at(speeds, trainer, 800.0)
    trainer.done += 100.0 * float(TRUE_PER_S[2])

    assert scaling_at(speeds, trainer, 900.0) is first


def test_an_interval_that_ends_in_a_loss_is_not_measured() -> None:
    speeds, trainer = watch([3] * 5)
    trainer.held.pop()
    trainer.done -= 20_000.0  # back to its last commit

    learned = scaling_at(speeds, trainer, 500.0).samples_per_s

    assert learned[3] == pytest.approx(TRUE_PER_S[3], rel=0.01)


def test_of_two_that_wait_the_one_that_trained_longer_seems_quicker() -> None:
    short, long = (
        scaling_at(*watch([2] * count + [0]), now_s=100.0 * (count + 1)).samples_per_s[
            2
        ]
        for count in (3, 30)
    )

    assert short < 0.997 * long
    assert long < TRUE_PER_S[2]


@pytest.mark.parametrize(
    ("priority", "deviations"), [("throughput", 1.0), ("speedup", 0.0)]
)
def test_replays_are_cautious_where_samples_of_trainers_are_compared(
    priority: str, deviations: float
) -> None:
    timeline = PoolTimeline.dedicated(24, 12_000.0)
    # Starts are free, as the policy of these tests does not spread them.
    trainers = tuple(
        replace(own, samples=own.samples / 10, costs=replace(own.costs, start_s=0.0))
        for own in MIXED[:40]
    )
    settings = ReplaySettings(
        priority=priority, parallel=None, learns_speeds=True, solver_limit_s=60.0
    )

    result = run_replay(timeline, trainers, settings, clock=lambda: 0.0)

    case = Case(trainers, len(trainers), is_speed_up=priority == "speedup")
    found = [
        summit_window.play(
            timeline, case, LearnedSpeeds(Profiling(), deviations=own)
        ).samples
        for own in (deviations, 1.0 - deviations)
    ]
    assert result.samples == found[0]
    assert result.samples != found[1]


@pytest.mark.parametrize("family", FAMILIES)
def test_a_trainer_alone_loses_at_most_3_percent_by_trying_sizes(family: str) -> None:
    lost = [lost_alone(table(family, 1000 + k)) for k in range(4)]

    assert fmean(lost) < 0.03


def test_the_last_count_before_a_cliff_is_found_among_all_counts() -> None:
    counts = range(1, NODES + 1)
    lost = [lost_alone(table("cliff", 1000 + k, counts)) for k in range(10)]

    assert fmean(lost) < 0.03
    assert max(lost) < 0.1


def test_contending_trainers_whose_speed_falls_are_as_soon_done() -> None:
    completion, node_s = lost_contending(contending(["falling"], 100))

    assert completion < 0.1
    assert node_s < 0.25


def test_a_second_trainer_of_a_program_tries_no_sizes() -> None:
    own = trainer(table("falling", 1000), 1.0)
    later = replace(own, name="later", arrival_s=7200.0)

    engine = play((own, later), learning())

    first_s, second_s = took_s(engine)
    assert second_s < 0.99 * first_s
    assert second_s == pytest.approx(own.shortest_s, rel=0.02)


@pytest.mark.shared
@pytest.mark.long
@pytest.mark.usefixtures("shared")
@pytest.mark.parametrize("is_real", [True, False])
def test_half_a_day_of_summit_gives_nearly_as_much_as_true_curves(
    *, is_real: bool
) -> None:
    case = Case(builtin_trainers("hps"), 10, is_real=is_real)

    true = summit_window.play(summit(0.5), case, GivenSpeeds())
    learned = summit_window.play(summit(0.5), case, LearnedSpeeds(Profiling()))

    assert learned.samples > 0.95 * true.samples
