"""Replays small enough to be worked out by hand, in each accounting.

Trainers do 10 samples/s a node; under ``equal`` one alone has all nodes.
"""

from typing import Any

import pytest

from freetrain.replay.run import ReplayResult
from freetrain.replay.settings import Accounting
from freetrain.replay.trainers import Costs, TrainerSpec
from tests.replay.worlds import FOR_NOTHING, cases, check, linear, pool, replay, trainer

REAL = Costs(grow_s=3.0, shrink_s=2.0, start_s=5.0, checkpoint_every_s=4.0)
LOSSLESS = Costs(grow_s=3.0, shrink_s=2.0, start_s=5.0)
LUMPS = Costs(grow_s=3.0, shrink_s=2.0, start_s=50.0, checkpoint_every_s=70.0)
PUBLISHED, PUBLISHED_C = Accounting.PUBLISHED, Accounting.PUBLISHED_C
DAY_S = 86_400.0


def play(nodes: str, *team: TrainerSpec, **choices: Any) -> ReplayResult:  # noqa: ANN401
    return replay(pool(nodes), team, policy="equal", **choices)


@pytest.mark.parametrize(
    ("nodes", "costs", "figures"),
    cases(
        # 0-5 s start; 5-10 s on 1 node: 50. At 10 s it grows and commits. 10-13 s
        # pause; 13-20 s on 2 nodes: 140, commits at 17 s: 3 s x 20 to lose. At 20 s it
        # loses one node: back to the commit, 60 lost; pause until 22 s. 22-30 s on 1
        # node: 80. 40 node-s idle and held; 5 + 3 x 2 + 3 x 2 (lost) + 2 did not train.
        (
            "starting, growing and losing nodes are pauses",
            *("0-30 10-20", REAL),
            (
                "samples=210 start_samples=50 rescale_samples=60 preempt_samples=80 "
                "preemptions=1 rescales=1 pool_node_s=40 used_node_s=40 coverage=21/40"
            ),
        ),
        # As above: nothing trained is lost, only the 2 s of the pause.
        (
            "without an interval every step is committed",
            *("0-30 10-20", LOSSLESS, "samples=270 preempt_samples=20"),
        ),
        # 5-7 s: 20, committed by growing at 7 s. Pause until 10 s; 10-12 s: 40, lost
        # at 12 s. Pause until 14 s; 14-20 s: 60.
        ("a rescale commits", "0-20 7-12", REAL, "samples=80 preempt_samples=60"),
        # Start until 5 s; it grows at 4 s: pause until 7 s. It grows at 6 s: until 9.
        # Each pause is charged to its cause, at the size that waits: 4 s of the start
        # on 1 node, 2 s on 2 nodes and 3 s on 3 nodes of growing.
        (
            "a change in a pause begins a pause of its own",
            *("0-10 4-10 6-10", REAL),
            "samples=30 start_samples=40 rescale_samples=130",
        ),
        # Start until 5 s; at 1 s it loses a node, which alone would cost until 3 s.
        (
            "a short pause does not cut a longer one short",
            *("0-10 0-1", REAL, "samples=50 start_samples=60 preempt_samples=0"),
        ),
        # Start until 5 s; 5-8 s: 30, no commit yet, lost at 8 s with the node. Node 1
        # comes at 9 s: start until 14 s; 14-20 s: 60.
        (
            "the next start after losing every node is a start",
            *("0-8 9-20", REAL, "samples=60 preempt_samples=30 start_samples=100"),
        ),
        # 300 samples in 20 s on 1.5 nodes; two dedicated ones train 20/s, one 10/s.
        (
            "efficiency is speed over that of as many dedicated nodes",
            *("0-20 10-20", FOR_NOTHING, "eq_nodes=1.5 efficiency=1"),
        ),
        # 2.2 nodes are a fifth of the way from two to three: 22/s, and not 20/s.
        (
            "a part of a node counts as such among dedicated nodes",
            *("0-100 0-100 0-20", FOR_NOTHING, "samples=2200 efficiency=1"),
        ),
    ),
)
def test_real_costs_of_one_trainer(nodes: str, costs: Costs, figures: str) -> None:
    check(play(nodes, trainer(costs=costs)), figures)


@pytest.mark.parametrize(
    ("nodes", "one", "choices", "figures"),
    cases(
        (
            "it ends on time, which is no loss of nodes",
            *("0-15", trainer(), {"days": 10 / DAY_S}),
            "end_s=10 samples=100 preemptions=0",
        ),
        (
            "it ends when all are done",
            *("0-1000", trainer(samples=70.0), {}, "end_s=7 samples=70 finished=1"),
        ),
        # Start until 10 s instead of 5; 10-15 s: one commit at 14 s, 10 lost.
        (
            "costs are multiplied but not the checkpoint interval",
            *("0-15 16-30", trainer(costs=REAL), {"cost_factor": 2.0}),
            "preempt_samples=10 samples=80",
        ),
        # 100 samples in 10 s here; two dedicated nodes would do them in 5 s.
        (
            "efficiency compares speeds where the yardstick is done early",
            *("0-20 0-20", trainer(samples=100.0, costs=Costs(0.0, 0.0, 5.0)), {}),
            "end_s=10 efficiency=0.5",
        ),
        # 0-10 s: 1 node, 10 s x 10 = 100. At 10 s it grows to 2: a lump of 3 s x 10 =
        # 30. 10-20 s: 10 s x 20 - 30 = 170. At 20 s it loses both nodes: 2 s x 20 = 40
        # more. Costs are node-time without training: 3 s on 1, 2 s on 2 nodes.
        (
            "published: a start is free and growing is a lump at the old speed",
            *("0-20 10-20", trainer(costs=LUMPS), {"accounting": PUBLISHED}),
            (
                "samples=230 rescale_samples=30 preempt_samples=40 start_samples=0 "
                "events=2 preemptions=1 rescales=1 pool_node_s=30 used_node_s=30 "
                "coverage=23/30"
            ),
        ),
        # 0-1 s: 4 nodes, 40 samples. At 1 s three are lost: 2 s x 40 = 80.
        # 1-2 s: 1 node, 10 samples; at 2 s it is lost: 20 more.
        (
            "published: losing many nodes costs once, even more than was trained",
            *("0-2 0-1 0-1 0-1", trainer(costs=LUMPS), {"accounting": PUBLISHED}),
            "samples=-50 preemptions=2 preempt_samples=100",
        ),
        # 10 s of --days, but the next event is at 15 s; growing is too late then.
        (
            "published: the event past the end counts, and decides nothing",
            "0-15 15-30",
            trainer(costs=LUMPS),
            {"accounting": PUBLISHED, "days": 10 / DAY_S},
            "end_s=15 events=1 rescales=0 rescale_samples=0 preempt_samples=20",
        ),
        # 60 samples by 6 s, less 2 s x 10 for the loss: 40 < 50, so it goes on. 7-9 s:
        # 20 more samples are 60, but losing the node costs 20 again.
        (
            "published: a trainer that finishes as it loses nodes still pays",
            "0-6 7-9",
            trainer(samples=50.0, costs=LUMPS),
            {"accounting": PUBLISHED},
            "finished=0 samples=40",
        ),
        # 10 s on 1 node: 100. Grows at 10 s: 30 to pay, so 130 to go at 20/s: 6.5 s.
        (
            "with + C a lump delays the completion",
            "0-60 10-60",
            trainer(samples=200.0, costs=LUMPS),
            {"accounting": PUBLISHED_C},
            "samples=200 end_s=16.5 finished=1",
        ),
        (
            "with + C a trainer that is done as its node leaves loses nothing",
            "0-5 6-9",
            trainer(samples=50.0, costs=LUMPS),
            {"accounting": PUBLISHED_C},
            "finished=1 preemptions=0 samples=50",
        ),
    ),
)
def test_figures_of_one_trainer(
    nodes: str, one: TrainerSpec, choices: dict[str, Any], figures: str
) -> None:
    check(play(nodes, one, **choices), figures)


# a has 50 samples, b arrives at 1 s; trainers are admitted one at a time.
@pytest.mark.parametrize(
    ("nodes", "costs", "accounting", "figures", "completions"),
    cases(
        # a starts until 5 s and needs 5 s more. b starts at 10 s and trains from 15 s
        # to the end of the log; that is no loss of nodes.
        (
            "a completion is an event and frees its nodes at once",
            *("0-20", REAL, Accounting.REAL, "finished=1 preemptions=0 events=1"),
            (10, 50, 10, 50),
        ),
        # a would be done at 5 s; it holds its node until 20 s. The overshoot is taken
        # off. b trains from 20 s on: 0.5 s on 2 nodes, 9.5 on 1.
        (
            "published completions are noticed at the next change of the pool",
            *("0-30 20-20.5", FOR_NOTHING, PUBLISHED, "samples=155 events=3"),
            (20, 50, 20, 105),
        ),
        # a is done at 5 s. b is admitted at 5 s and trains 15 s x 10;
        # it loses its node at 20 s for 2 s x 10.
        (
            "with + C completions are events and costs stay lumps",
            *("0-20", LUMPS, PUBLISHED_C, "samples=180 events=2"),
            (5, 50, 5, 130),
        ),
    ),
)
def test_a_trainer_follows_another(
    nodes: str,
    costs: Costs,
    accounting: Accounting,
    figures: str,
    completions: tuple[float, float, float, float],
) -> None:
    team = (
        trainer("a", samples=50.0, costs=costs),
        trainer("b", arrival_s=1.0, costs=costs),
    )

    result = play(nodes, *team, parallel=1, accounting=accounting)

    check(result, figures)
    a, b = result.completions
    assert (a.finished_s, a.samples, b.admitted_s, b.samples) == completions
    assert a.slowdown == pytest.approx(completions[0] / (50 / 40))


@pytest.mark.parametrize(
    ("accounting", "admitted_s"),
    [(Accounting.REAL, 5), (PUBLISHED_C, 5), (PUBLISHED, 10)],
)
def test_published_arrivals_alone_wait_for_the_next_change_of_the_pool(
    accounting: Accounting, admitted_s: float
) -> None:
    team = trainer("a"), trainer("b", arrival_s=5.0)

    result = play("0-20 0-20 10-20", *team, accounting=accounting)

    assert [c.admitted_s for c in result.completions] == [0, admitted_s]


def test_a_trainer_that_requeues_starts_over_behind_those_that_wait() -> None:
    team = trainer("a", samples=50.0), trainer("b", samples=50.0)

    result = play("0-18", *team, parallel=1, requeue=True)

    check(result, "finished=3 samples=180")
    assert [(c.trainer, c.arrival_s) for c in result.completions] == [
        ("a", 0),
        ("b", 0),
        ("a", 5),
        ("b", 10),
        ("a", 15),
    ]


def test_the_bound_itself_has_the_part_of_a_node_too() -> None:
    nodes = pool("0-100 0-100 0-20")

    result = replay(nodes, [trainer(costs=REAL)], policy="static")

    check(result, "samples=2200 pool_node_s=220 used_node_s=220 eq_nodes=2.2")


def test_the_yardstick_of_trainers_that_start_over_is_cut_short() -> None:
    # 15 days at 10 samples/s, then 5 days at 20; the yardstick plays 14 days only.
    team = (
        trainer("slow", samples=15 * DAY_S * 10),
        trainer("fast", scaling=linear(20.0), samples=30 * DAY_S * 20),
    )
    nodes = f"0-{20 * DAY_S}"

    whole = play(nodes, *team, parallel=1)
    cut = play(nodes, *team, parallel=1, requeue=True)

    assert whole.efficiency == pytest.approx(1.0)
    assert cut.efficiency == pytest.approx(12.5 / 10)
