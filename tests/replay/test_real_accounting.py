"""Replays small enough to be worked out by hand, counted as training would go."""

import pytest

from freetrain.replay.run import ReplayResult
from freetrain.replay.trainers import Costs
from tests.replay.worlds import linear, replay, trainer

COSTS = Costs(grow_s=3.0, shrink_s=2.0, start_s=5.0, checkpoint_every_s=4.0)


def alone(
    pool: dict[int, list[tuple[float, float]]], costs: Costs = COSTS
) -> ReplayResult:
    """Replay one trainer that always takes all nodes."""
    return replay(pool, [trainer(costs=costs)], policy="equal")


def test_starting_growing_and_losing_nodes_are_pauses() -> None:
    # 0-5 s start; 5-10 s on 1 node: 50. At 10 s it grows and commits.
    # 10-13 s pause; 13-20 s on 2 nodes: 140, commits at 17 s: 3 s x 20 to lose.
    # At 20 s it loses one node: back to the commit, 60 lost; pause until 22 s.
    # 22-30 s on 1 node: 80.
    result = alone({0: [(0, 30)], 1: [(10, 20)]})

    assert result.samples == 50 + 140 - 60 + 80
    assert result.start_samples == 5 * 10
    assert result.rescale_samples == 3 * 20
    assert result.preempt_samples == 60 + 2 * 10
    assert (result.preemptions, result.rescales) == (1, 1)
    # 40 node-s idle and held; 5 + 3 x 2 + 3 x 2 (lost work) + 2 did not train.
    assert (result.pool_node_s, result.used_node_s) == (40, 40)
    assert result.coverage == pytest.approx((40 - 19) / 40)


def test_without_an_interval_every_step_is_committed() -> None:
    # As above: nothing trained is lost, only the 2 s of the pause.
    lossless = Costs(grow_s=3.0, shrink_s=2.0, start_s=5.0)

    result = alone({0: [(0, 30)], 1: [(10, 20)]}, lossless)

    assert result.samples == 50 + 140 + 80
    assert result.preempt_samples == 2 * 10


def test_a_rescale_commits_so_that_a_later_loss_goes_back_no_further() -> None:
    # 5-7 s: 20, committed by growing at 7 s. Pause until 10 s; 10-12 s: 40, lost
    # at 12 s. Pause until 14 s; 14-20 s: 60.
    result = alone({0: [(0, 20)], 1: [(7, 12)]})

    assert result.samples == 20 + 60
    assert result.preempt_samples == 40 + 2 * 10


def test_a_change_in_a_pause_begins_a_pause_of_its_own() -> None:
    # Start until 5 s; it grows at 4 s: pause until 7 s. It grows at 6 s: until 9.
    result = alone({0: [(0, 10)], 1: [(4, 10)], 2: [(6, 10)]})

    assert result.samples == 1 * 30
    # Each pause is charged to what caused it, at the size that waits: 4 s of the
    # start on 1 node, 2 s on 2 nodes and 3 s on 3 nodes of growing.
    assert result.start_samples == 4 * 10
    assert result.rescale_samples == 2 * 20 + 3 * 30


def test_a_short_pause_does_not_cut_a_longer_one_short() -> None:
    # Start until 5 s; at 1 s it loses a node, which alone would cost until 3 s.
    result = alone({0: [(0, 10)], 1: [(0, 1)]})

    assert result.samples == 5 * 10
    assert result.start_samples == 1 * 20 + 4 * 10
    assert result.preempt_samples == 0


def test_losing_every_node_ends_the_pause_and_the_next_start_is_a_start() -> None:
    # Start until 5 s; 5-8 s: 30, no commit yet, lost at 8 s with the node.
    # Node 1 comes at 9 s: start until 14 s; 14-20 s: 60.
    result = alone({0: [(0, 8)], 1: [(9, 20)]})

    assert result.samples == 60
    assert result.preempt_samples == 30
    assert result.start_samples == 5 * 10 + 5 * 10


def test_a_completion_is_an_event_and_frees_its_nodes_at_once() -> None:
    # a starts until 5 s and needs 5 s more. b arrived at 1 s, starts at 10 s and
    # trains from 15 s to the end of the log; that is no loss of nodes.
    team = [
        trainer("a", samples=50.0, costs=COSTS),
        trainer("b", arrival_s=1.0, costs=COSTS),
    ]

    result = replay({0: [(0, 20)]}, team, policy="equal", parallel=1)

    first, second = result.completions
    assert (first.finished_s, second.admitted_s) == (10, 10)
    assert first.samples == 50
    assert second.samples == 50
    assert first.slowdown == pytest.approx(10 / (50 / 40))
    assert (result.finished, result.preemptions, result.events) == (1, 0, 1)


def test_an_arrival_is_an_event() -> None:
    team = [trainer("a"), trainer("b", arrival_s=5.0)]

    result = replay({0: [(0, 20)], 1: [(0, 20)]}, team, policy="equal")

    assert [step.time_s for step in result.steps] == [0, 5]
    assert result.completions[1].admitted_s == 5


def test_a_replay_ends_on_time_and_the_end_of_the_log_is_no_loss() -> None:
    result = replay({0: [(0, 15)]}, [trainer()], days=10 / 86_400, policy="equal")

    assert (result.end_s, result.samples, result.preemptions) == (10, 100, 0)


def test_a_replay_ends_when_everybody_is_done() -> None:
    result = replay({0: [(0, 1000)]}, [trainer(samples=70.0)], policy="equal")

    assert (result.end_s, result.samples, result.finished) == (7, 70, 1)


def test_a_trainer_that_requeues_starts_over_behind_those_who_wait() -> None:
    team = [trainer("a", samples=50.0), trainer("b", samples=50.0)]

    result = replay({0: [(0, 18)]}, team, policy="equal", parallel=1, requeue=True)

    names = [c.trainer for c in result.completions]
    assert names == ["a", "b", "a", "b", "a"][: len(names)]
    assert result.finished == 3
    assert [c.arrival_s for c in result.completions] == [0, 0, 5, 10, 15]
    assert result.samples == 180


def test_costs_are_multiplied_but_not_the_checkpoint_interval() -> None:
    # Start until 10 s instead of 5; 10-15 s: one commit at 14 s, 10 lost.
    result = replay(
        {0: [(0, 15)], 1: [(16, 30)]},
        [trainer(costs=COSTS)],
        policy="equal",
        cost_factor=2.0,
    )

    assert result.preempt_samples == 1 * 10
    assert result.samples == 40 + 4 * 10


def test_efficiency_is_speed_over_that_of_as_many_dedicated_nodes() -> None:
    # A mean of 1.5 nodes rounds to 2, which would train 20/s from 0 s on.
    result = alone({0: [(0, 20)], 1: [(10, 20)]}, Costs(grow_s=0.0, shrink_s=0.0))

    assert result.eq_nodes == pytest.approx(1.5)
    assert result.efficiency == pytest.approx((300 / 20) / 20)


def test_efficiency_compares_speeds_where_the_yardstick_is_done_early() -> None:
    # 100 samples in 10 s here; two dedicated nodes would do them in 5 s.
    result = replay(
        {0: [(0, 20)], 1: [(0, 20)]},
        [trainer(samples=100.0, costs=Costs(grow_s=0.0, shrink_s=0.0, start_s=5.0))],
        policy="equal",
    )

    assert result.end_s == 10
    assert result.efficiency == pytest.approx((100 / 10) / (100 / 5))


def test_the_yardstick_of_trainers_that_start_over_is_cut_short() -> None:
    # 15 days at 10 samples/s, then 5 days at 20; the yardstick plays 14 days only.
    day_s = 86_400.0
    team = [
        trainer("slow", samples=15 * day_s * 10),
        trainer("fast", scaling=linear(20.0), samples=30 * day_s * 20),
    ]
    pool = {0: [(0.0, 20 * day_s)]}

    whole = replay(pool, team, policy="equal", parallel=1)
    cut = replay(pool, team, policy="equal", parallel=1, requeue=True)

    assert whole.efficiency == pytest.approx(1.0)
    assert cut.efficiency == pytest.approx(12.5 / 10)
