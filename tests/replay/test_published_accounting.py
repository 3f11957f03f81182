"""Replays small enough to be worked out by hand, counted as the authors did."""

import pytest

from freetrain.replay.settings import Accounting
from freetrain.replay.trainers import Costs
from tests.replay.worlds import replay, trainer

COSTS = Costs(grow_s=3.0, shrink_s=2.0, start_s=50.0, checkpoint_every_s=70.0)
PUBLISHED = Accounting.PUBLISHED
PUBLISHED_C = Accounting.PUBLISHED_C


def test_a_start_is_free_and_a_grow_is_a_lump_at_the_old_speed() -> None:
    # 0-10 s: 1 node, 10 s x 10 = 100. At 10 s it grows to 2: a lump of
    # 3 s x 10 = 30. 10-20 s: 10 s x 20 - 30 = 170. At 20 s it loses both nodes:
    # 2 s x 20 = 40 more. 100 + 170 - 40 = 230.
    result = replay(
        {0: [(0, 20)], 1: [(10, 20)]},
        [trainer(costs=COSTS)],
        policy="equal",
        accounting=PUBLISHED,
    )

    assert result.samples == 230
    assert result.rescale_samples == 30
    assert result.preempt_samples == 40
    assert result.start_samples == 0
    assert (result.preemptions, result.rescales, result.events) == (1, 1, 2)
    assert (result.pool_node_s, result.used_node_s) == (30, 30)
    # Costs are node-time in which nothing was trained: 3 s on 1, 2 s on 2 nodes.
    assert result.coverage == pytest.approx((30 - 3 - 4) / 30)


def test_losing_many_nodes_costs_once_and_a_lump_may_exceed_what_was_trained() -> None:
    # 0-1 s: 4 nodes, 40 samples. At 1 s three are lost: 2 s x 40 = 80.
    # 1-2 s: 1 node, 10 samples; at 2 s it is lost: 20 more. 40 - 80 + 10 - 20.
    result = replay(
        {0: [(0, 2)], 1: [(0, 1)], 2: [(0, 1)], 3: [(0, 1)]},
        [trainer(costs=COSTS)],
        policy="equal",
        accounting=PUBLISHED,
    )

    assert result.samples == -50
    assert result.preemptions == 2
    assert result.preempt_samples == 100


def test_a_completion_is_noticed_at_the_next_change_of_the_pool_only() -> None:
    # a has 50 samples and would be done at 5 s; it holds its node until 20 s.
    # The overshoot is taken off. b trains from 20 s on: 0.5 s on 2 nodes, 9.5 on 1.
    team = [trainer("a", samples=50.0), trainer("b")]
    pool = {0: [(0.0, 30.0)], 1: [(20.0, 20.5)]}

    result = replay(pool, team, policy="equal", parallel=1, accounting=PUBLISHED)

    assert result.samples == 50 + 10 + 95
    assert result.completions[0].finished_s == 20
    assert result.completions[0].slowdown == pytest.approx(20 / (50 / 40))
    assert result.completions[1].admitted_s == 20
    assert result.events == 3


def test_an_arrival_is_noticed_at_the_next_change_of_the_pool_only() -> None:
    team = [trainer("a"), trainer("b", arrival_s=5.0)]
    pool = {0: [(0.0, 20.0)], 1: [(0.0, 20.0)], 2: [(10.0, 20.0)]}

    result = replay(pool, team, policy="equal", accounting=PUBLISHED)

    assert [c.admitted_s for c in result.completions] == [0, 10]


def test_the_event_past_the_end_is_still_counted() -> None:
    # 10 s of --days, but the next event is at 15 s.
    result = replay(
        {0: [(0, 15)]},
        [trainer()],
        days=10 / 86_400,
        policy="equal",
        accounting=PUBLISHED,
    )

    assert (result.end_s, result.samples, result.events) == (15, 150, 1)


def test_nothing_is_decided_after_the_end() -> None:
    # At 15 s, past the 10 s of --days, a node joins; growing on to it is too late.
    result = replay(
        {0: [(0, 30)], 1: [(15, 30)]},
        [trainer(costs=COSTS)],
        days=10 / 86_400,
        policy="equal",
        accounting=PUBLISHED,
    )

    assert (result.end_s, result.rescales, result.rescale_samples) == (15, 0, 0)


def test_a_trainer_that_finishes_as_it_loses_nodes_still_pays() -> None:
    # 60 samples by 6 s, less 2 s x 10 for the loss: 40 < 50, so it goes on.
    result = replay(
        {0: [(0, 6)], 1: [(7, 9)]},
        [trainer(samples=50.0, costs=COSTS)],
        policy="equal",
        accounting=PUBLISHED,
    )

    # 7-9 s: 20 more samples are 60, but losing the node costs 20 again.
    assert result.finished == 0
    assert result.samples == 40 + 0


def test_with_c_completions_and_arrivals_are_events_and_costs_stay_lumps() -> None:
    # a: 50 samples, done at 5 s. b arrives at 2 s, is admitted at 5 s and trains
    # 15 s x 10; it loses its node at 20 s for 2 s x 10.
    team = [
        trainer("a", samples=50.0, costs=COSTS),
        trainer("b", arrival_s=2.0, costs=COSTS),
    ]

    result = replay(
        {0: [(0, 20)]}, team, policy="equal", parallel=1, accounting=PUBLISHED_C
    )

    assert result.completions[0].finished_s == 5
    assert result.completions[1].admitted_s == 5
    assert result.samples == 50 + 150 - 20
    assert result.events == 2


def test_with_c_a_lump_delays_the_completion() -> None:
    # 10 s on 1 node: 100. Grows at 10 s: 30 to pay, so 130 to go at 20/s: 6.5 s.
    result = replay(
        {0: [(0, 60)], 1: [(10, 60)]},
        [trainer(samples=200.0, costs=COSTS)],
        policy="equal",
        accounting=PUBLISHED_C,
    )

    assert result.completions[0].finished_s == pytest.approx(16.5)
    assert result.samples == pytest.approx(200)
    assert result.end_s == pytest.approx(16.5)


def test_with_c_a_trainer_that_is_done_as_its_node_leaves_loses_nothing() -> None:
    result = replay(
        {0: [(0, 5)], 1: [(6, 9)]},
        [trainer(samples=50.0, costs=COSTS)],
        policy="equal",
        accounting=PUBLISHED_C,
    )

    assert (result.finished, result.preemptions, result.samples) == (1, 0, 50)
