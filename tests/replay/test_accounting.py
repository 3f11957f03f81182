"""Replays small enough to be worked out by hand, in each accounting.

Trainers do 10 samples/s a node; under ``equal`` one alone has all nodes.
"""

from typing import Any

import pytest

from freetrain.replay.run import ReplayResult
from freetrain.replay.settings import Accounting
from freetrain.replay.trainers import Costs, TrainerSpec
from tests.replay.worlds import FOR_NOTHING, linear, replay, trainer

REAL = Costs(grow_s=3.0, shrink_s=2.0, start_s=5.0, checkpoint_every_s=4.0)
LOSSLESS = Costs(grow_s=3.0, shrink_s=2.0, start_s=5.0)
LUMPS = Costs(grow_s=3.0, shrink_s=2.0, start_s=50.0, checkpoint_every_s=70.0)
DAY_S = 86_400.0
Pool = dict[int, list[tuple[float, float]]]
GROWS: Pool = {0: [(0, 30)], 1: [(10, 20)]}


def play(
    pool: Pool,
    *team: TrainerSpec,
    costs: Costs = REAL,
    **choices: Any,  # noqa: ANN401 - any setting
) -> ReplayResult:
    """Replay *team*, or one trainer with *costs*."""
    return replay(pool, team or [trainer(costs=costs)], policy="equal", **choices)


@pytest.mark.parametrize(
    ("pool", "costs", "figures"),
    [
        # 0-5 s start; 5-10 s on 1 node: 50. At 10 s it grows and commits. 10-13 s
        # pause; 13-20 s on 2 nodes: 140, commits at 17 s: 3 s x 20 to lose. At 20 s it
        # loses one node: back to the commit, 60 lost; pause until 22 s. 22-30 s on 1
        # node: 80. 40 node-s idle and held; 5 + 3 x 2 + 3 x 2 (lost) + 2 did not train.
        pytest.param(
            GROWS,
            REAL,
            {
                "samples": 50 + 140 - 60 + 80,
                "start_samples": 5 * 10,
                "rescale_samples": 3 * 20,
                "preempt_samples": 60 + 2 * 10,
                "preemptions": 1,
                "rescales": 1,
                "pool_node_s": 40,
                "used_node_s": 40,
                "coverage": (40 - 19) / 40,
            },
            id="starting, growing and losing nodes are pauses",
        ),
        # As above: nothing trained is lost, only the 2 s of the pause.
        pytest.param(
            GROWS,
            LOSSLESS,
            {"samples": 50 + 140 + 80, "preempt_samples": 2 * 10},
            id="without an interval every step is committed",
        ),
        # 5-7 s: 20, committed by growing at 7 s. Pause until 10 s; 10-12 s: 40, lost
        # at 12 s. Pause until 14 s; 14-20 s: 60.
        pytest.param(
            {0: [(0, 20)], 1: [(7, 12)]},
            REAL,
            {"samples": 20 + 60, "preempt_samples": 40 + 2 * 10},
            id="a rescale commits",
        ),
        # Start until 5 s; it grows at 4 s: pause until 7 s. It grows at 6 s: until 9.
        # Each pause is charged to its cause, at the size that waits: 4 s of the start
        # on 1 node, 2 s on 2 nodes and 3 s on 3 nodes of growing.
        pytest.param(
            {0: [(0, 10)], 1: [(4, 10)], 2: [(6, 10)]},
            REAL,
            {"samples": 30, "start_samples": 40, "rescale_samples": 2 * 20 + 3 * 30},
            id="a change in a pause begins a pause of its own",
        ),
        # Start until 5 s; at 1 s it loses a node, which alone would cost until 3 s.
        pytest.param(
            {0: [(0, 10)], 1: [(0, 1)]},
            REAL,
            {"samples": 50, "start_samples": 20 + 4 * 10, "preempt_samples": 0},
            id="a short pause does not cut a longer one short",
        ),
        # Start until 5 s; 5-8 s: 30, no commit yet, lost at 8 s with the node. Node 1
        # comes at 9 s: start until 14 s; 14-20 s: 60.
        pytest.param(
            {0: [(0, 8)], 1: [(9, 20)]},
            REAL,
            {"samples": 60, "preempt_samples": 30, "start_samples": 50 + 50},
            id="the next start after losing every node is a start",
        ),
        # A mean of 1.5 nodes rounds to 2, which would train 20/s from 0 s on.
        pytest.param(
            {0: [(0, 20)], 1: [(10, 20)]},
            FOR_NOTHING,
            {"eq_nodes": 1.5, "efficiency": (300 / 20) / 20},
            id="efficiency is speed over that of as many dedicated nodes",
        ),
    ],
)
def test_real_costs_of_one_trainer(
    pool: Pool, costs: Costs, figures: dict[str, float]
) -> None:
    result = play(pool, costs=costs)

    found = {name: getattr(result, name) for name in figures}
    assert found == pytest.approx(figures)


def test_a_completion_is_an_event_and_frees_its_nodes_at_once() -> None:
    # a starts until 5 s and needs 5 s more. b arrived at 1 s, starts at 10 s and
    # trains from 15 s to the end of the log; that is no loss of nodes.
    team = (
        trainer("a", samples=50.0, costs=REAL),
        trainer("b", arrival_s=1.0, costs=REAL),
    )

    result = play({0: [(0, 20)]}, *team, parallel=1)

    first, second = result.completions
    assert (first.finished_s, second.admitted_s) == (10, 10)
    assert (first.samples, second.samples) == (50, 50)
    assert first.slowdown == pytest.approx(10 / (50 / 40))
    assert (result.finished, result.preemptions, result.events) == (1, 0, 1)


def test_an_arrival_is_an_event() -> None:
    team = trainer("a"), trainer("b", arrival_s=5.0)

    result = play({0: [(0, 20)], 1: [(0, 20)]}, *team)

    assert [step.time_s for step in result.steps] == [0, 5]
    assert result.completions[1].admitted_s == 5


def test_a_replay_ends_on_time_or_when_all_are_done_and_the_end_is_no_loss() -> None:
    on_time = play({0: [(0, 15)]}, trainer(), days=10 / DAY_S)
    done = play({0: [(0, 1000)]}, trainer(samples=70.0))

    assert (on_time.end_s, on_time.samples, on_time.preemptions) == (10, 100, 0)
    assert (done.end_s, done.samples, done.finished) == (7, 70, 1)


def test_a_trainer_that_requeues_starts_over_behind_those_that_wait() -> None:
    team = trainer("a", samples=50.0), trainer("b", samples=50.0)

    result = play({0: [(0, 18)]}, *team, parallel=1, requeue=True)

    names = [c.trainer for c in result.completions]
    assert names == ["a", "b", "a", "b", "a"][: len(names)]
    assert result.finished == 3
    assert [c.arrival_s for c in result.completions] == [0, 0, 5, 10, 15]
    assert result.samples == 180


def test_costs_are_multiplied_but_not_the_checkpoint_interval() -> None:
    # Start until 10 s instead of 5; 10-15 s: one commit at 14 s, 10 lost.
    result = play({0: [(0, 15)], 1: [(16, 30)]}, cost_factor=2.0)

    assert (result.preempt_samples, result.samples) == (1 * 10, 40 + 4 * 10)


def test_efficiency_compares_speeds_where_the_yardstick_is_done_early() -> None:
    # 100 samples in 10 s here; two dedicated nodes would do them in 5 s.
    start = Costs(grow_s=0.0, shrink_s=0.0, start_s=5.0)
    result = play({0: [(0, 20)], 1: [(0, 20)]}, trainer(samples=100.0, costs=start))

    assert result.end_s == 10
    assert result.efficiency == pytest.approx((100 / 10) / (100 / 5))


def test_the_yardstick_of_trainers_that_start_over_is_cut_short() -> None:
    # 15 days at 10 samples/s, then 5 days at 20; the yardstick plays 14 days only.
    team = (
        trainer("slow", samples=15 * DAY_S * 10),
        trainer("fast", scaling=linear(20.0), samples=30 * DAY_S * 20),
    )
    pool: Pool = {0: [(0.0, 20 * DAY_S)]}

    whole = play(pool, *team, parallel=1)
    cut = play(pool, *team, parallel=1, requeue=True)

    assert whole.efficiency == pytest.approx(1.0)
    assert cut.efficiency == pytest.approx(12.5 / 10)


# As the authors counted: published, and with completions and arrivals as events (+ C)


@pytest.mark.parametrize(
    ("accounting", "pool", "samples", "choices", "figures"),
    [
        # 0-10 s: 1 node, 10 s x 10 = 100. At 10 s it grows to 2: a lump of 3 s x 10 =
        # 30. 10-20 s: 10 s x 20 - 30 = 170. At 20 s it loses both nodes: 2 s x 20 = 40
        # more. Costs are node-time without training: 3 s on 1, 2 s on 2 nodes.
        pytest.param(
            Accounting.PUBLISHED,
            {0: [(0, 20)], 1: [(10, 20)]},
            1e6,
            {},
            {
                "samples": 100 + 170 - 40,
                "rescale_samples": 30,
                "preempt_samples": 40,
                "start_samples": 0,
                "preemptions": 1,
                "rescales": 1,
                "events": 2,
                "pool_node_s": 30,
                "used_node_s": 30,
                "coverage": (30 - 3 - 4) / 30,
            },
            id="a start is free and growing is a lump at the old speed",
        ),
        # 0-1 s: 4 nodes, 40 samples. At 1 s three are lost: 2 s x 40 = 80.
        # 1-2 s: 1 node, 10 samples; at 2 s it is lost: 20 more.
        pytest.param(
            Accounting.PUBLISHED,
            {0: [(0, 2)], 1: [(0, 1)], 2: [(0, 1)], 3: [(0, 1)]},
            1e6,
            {},
            {"samples": 40 - 80 + 10 - 20, "preemptions": 2, "preempt_samples": 100},
            id="losing many nodes costs once, even more than was trained",
        ),
        # 10 s of --days, but the next event is at 15 s.
        pytest.param(
            Accounting.PUBLISHED,
            {0: [(0, 15)], 1: [(15, 30)]},
            1e6,
            {"days": 10 / DAY_S},
            {"end_s": 15, "events": 1, "rescales": 0, "rescale_samples": 0},
            id="the event past the end counts, and nothing is decided then",
        ),
        # 60 samples by 6 s, less 2 s x 10 for the loss: 40 < 50, so it goes on. 7-9 s:
        # 20 more samples are 60, but losing the node costs 20 again.
        pytest.param(
            Accounting.PUBLISHED,
            {0: [(0, 6)], 1: [(7, 9)]},
            50.0,
            {},
            {"finished": 0, "samples": 40},
            id="a trainer that finishes as it loses nodes still pays",
        ),
        # 10 s on 1 node: 100. Grows at 10 s: 30 to pay, so 130 to go at 20/s: 6.5 s.
        pytest.param(
            Accounting.PUBLISHED_C,
            {0: [(0, 60)], 1: [(10, 60)]},
            200.0,
            {},
            {"samples": 200, "end_s": 16.5, "finished": 1},
            id="+ C: a lump delays the completion",
        ),
        pytest.param(
            Accounting.PUBLISHED_C,
            {0: [(0, 5)], 1: [(6, 9)]},
            50.0,
            {},
            {"finished": 1, "preemptions": 0, "samples": 50},
            id="+ C: a trainer that is done as its node leaves loses nothing",
        ),
    ],
)
def test_published_costs_of_one_trainer(
    accounting: Accounting,
    pool: Pool,
    samples: float,
    choices: dict[str, Any],
    figures: dict[str, float],
) -> None:
    one = trainer(samples=samples, costs=LUMPS)
    result = play(pool, one, accounting=accounting, **choices)

    found = {name: getattr(result, name) for name in figures}
    assert found == pytest.approx(figures)


def test_published_completions_are_noticed_at_the_next_change_of_the_pool() -> None:
    # a has 50 samples and would be done at 5 s; it holds its node until 20 s. The
    # overshoot is taken off. b trains from 20 s on: 0.5 s on 2 nodes, 9.5 on 1.
    team = trainer("a", samples=50.0), trainer("b")
    pool: Pool = {0: [(0.0, 30.0)], 1: [(20.0, 20.5)]}

    result = play(pool, *team, parallel=1, accounting=Accounting.PUBLISHED)

    first, second = result.completions
    assert result.samples == 50 + 10 + 95
    assert (first.finished_s, second.admitted_s, result.events) == (20, 20, 3)
    assert first.slowdown == pytest.approx(20 / (50 / 40))


def test_published_arrivals_are_noticed_at_the_next_change_of_the_pool() -> None:
    team = trainer("a"), trainer("b", arrival_s=5.0)
    pool: Pool = {0: [(0.0, 20.0)], 1: [(0.0, 20.0)], 2: [(10.0, 20.0)]}

    result = play(pool, *team, accounting=Accounting.PUBLISHED)

    assert [c.admitted_s for c in result.completions] == [0, 10]


def test_with_c_completions_and_arrivals_are_events_and_costs_stay_lumps() -> None:
    # a: 50 samples, done at 5 s. b arrives at 2 s, is admitted at 5 s and trains
    # 15 s x 10; it loses its node at 20 s for 2 s x 10.
    team = (
        trainer("a", samples=50.0, costs=LUMPS),
        trainer("b", arrival_s=2.0, costs=LUMPS),
    )

    result = play({0: [(0, 20)]}, *team, parallel=1, accounting=Accounting.PUBLISHED_C)

    first, second = result.completions
    assert (first.finished_s, second.admitted_s, result.events) == (5, 5, 2)
    assert result.samples == 50 + 150 - 20
