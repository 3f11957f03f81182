from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from freetrain.errors import UsageError
from freetrain.planning.freetrain import FreeTrain
from freetrain.planning.lookahead import QuickSearch
from freetrain.planning.policy import Tools
from freetrain.priority.base import priority_named
from freetrain.replay.accounting import RealAccountant, Tally
from freetrain.replay.engine import BrokenPolicyError, Engine
from freetrain.replay.policies.base import Change, View
from freetrain.replay.policies.ratings import GivenSpeeds, RatedOnce
from freetrain.replay.policies.registry import (
    MeasuredSolver,
    PlannedPolicy,
    SolverUse,
)
from freetrain.replay.pool import PoolTimeline
from freetrain.replay.settings import ReplaySettings
from freetrain.replay.trainers import Costs, Scaling, TrainerSpec
from milp.answer import Answer, PlanStatus
from milp.problem import Problem, keep
from tests.replay.worlds import linear, no_clock, replay, run, trace_of, trainer, view

COMMITS_RARELY = Costs(
    grow_s=3.0, shrink_s=2.0, start_s=5.0, checkpoint_every_s=1_000.0
)


FOUR_NODES = {n: [(0.0, 9.0)] for n in range(4)}


class Scripted:
    """Answers with what it was told to, event by event; keeps what it saw."""

    name = "scripted"

    def __init__(self, *answers: Sequence[Change]) -> None:
        self.answers = list(answers)
        self.seen: list[tuple[list[int], list[set[int]]]] = []

    def decide(self, view: View) -> Sequence[Change]:
        self.seen.append((list(view.free), [set(t.held) for t in view.trainers]))
        return self.answers.pop(0) if self.answers else ()


def play(
    policy: Scripted,
    team: Sequence[TrainerSpec],
    pool: Mapping[int, Sequence[tuple[float, float]]],
) -> None:
    timeline = PoolTimeline.from_trace(trace_of(pool))
    accountant = RealAccountant(Tally())
    settings = ReplaySettings()
    Engine(
        timeline, team, policy=policy, accountant=accountant, settings=settings
    ).run()


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ([Change(0, take=(7,))], "node 7 is taken, which is not free"),
        ([Change(0, take=(1, 1))], "node 1 is taken, which is not free"),
        (
            [Change(0, take=(1,)), Change(1, take=(1,))],
            "node 1 is taken, which is not free",
        ),
        ([Change(0, drop=(1,))], "drops node 1, not its own"),
        ([Change(0, take=(1,)), Change(0, take=(2,))], "changed twice"),
        ([Change(5, take=(1,))], "out of range"),
    ],
)
def test_a_policy_that_breaks_its_contract_stops_the_replay(
    changes: list[Change], why: str
) -> None:
    with pytest.raises(BrokenPolicyError, match=why) as caught:
        play(Scripted(changes), [trainer("a"), trainer("b")], FOUR_NODES)

    assert caught.value.exit_code == 70


def test_a_policy_may_not_migrate_a_trainer_node_by_node() -> None:
    policy = Scripted([Change(0, take=(1, 2))], [Change(0, drop=(1,), take=(3,))])

    with pytest.raises(BrokenPolicyError, match="keeps nodes, drops some, takes some"):
        play(policy, [trainer()], {n: [(0.0, 9.0 + n)] for n in range(4)})


def test_a_policy_sees_the_pool_after_losses_and_arrivals() -> None:
    policy = Scripted([Change(0, take=(0, 2))])
    pool = {0: [(0.0, 9.0)], 1: [(0.0, 5.0)], 2: [(0.0, 5.0)], 3: [(5.0, 9.0)]}

    play(policy, [trainer("a"), trainer("b", arrival_s=3.0)], pool)

    assert policy.seen == [
        ([0, 1, 2], [set()]),
        ([1], [{0, 2}, set()]),
        ([3], [{0}, set()]),
    ]


def test_nodes_go_highest_number_first_and_come_back_lowest_first() -> None:
    # One trainer on 4 nodes, until a second arrives at 10 s and gets half.
    result = replay(
        {n: [(0, 30)] for n in range(4)},
        [trainer("a"), trainer("b", arrival_s=10.0)],
        policy="equal",
    )

    assert result.steps[0].resized == (("a", 4),)
    assert result.steps[1].time_s == 10
    assert result.steps[1].resized == (("a", 2), ("b", 2))
    # a: 4 nodes x 10 s + 2 x 20 s; b: 2 x 20 s; 10 samples/s a node.
    assert result.samples == pytest.approx(10 * (40 + 40 + 40))


def test_a_scavenger_waits_for_its_size_and_is_killed_whole() -> None:
    # Node 1 is missing from 20 to 50 s. Job a (2 nodes) runs 0-20, is killed,
    # and runs again from 50; each start takes 5 s and nothing was committed. Job b
    # needs 1 node, but is behind a in the queue and so waits while node 0 idles.
    result = replay(
        {0: [(0, 60)], 1: [(0, 20), (50, 60)]},
        [
            trainer("a", costs=COMMITS_RARELY, fixed_nodes=2),
            trainer("b", costs=COMMITS_RARELY, fixed_nodes=1),
        ],
        policy="scavenger",
    )

    assert result.preemptions == 1
    assert result.preempt_samples == pytest.approx(15 * 20)
    # 10 s on 2 nodes, 5 of them for the start.
    assert result.samples == pytest.approx(5 * 20)
    assert result.used_node_s == pytest.approx(20 * 2 + 10 * 2)
    assert [step.used_nodes for step in result.steps] == [2, 0, 2]
    # To give up what is left of a killed job is no rescale.
    assert result.rescales == 0


def test_a_killed_scavenger_starts_at_once_where_other_nodes_are_free() -> None:
    result = replay(
        {0: [(0, 60)], 1: [(0, 20)], 2: [(0, 60)]},
        [trainer("a", costs=COMMITS_RARELY, fixed_nodes=2)],
        policy="scavenger",
    )

    # It ran on 2 and 1 (highest first), lost 1 at 20 s, and went on with 2 and 0.
    assert result.steps[1].resized == (("a", 2),)
    assert result.samples == pytest.approx((40 - 5) * 20)
    assert result.start_samples == pytest.approx(5 * 20 * 2)


def test_rigid_jobs_have_the_size_that_trains_most_and_a_queue_without_bound() -> None:
    # Four nodes for a minute; a second node brings a fifth of the first.
    flat = Scaling("flat", np.array([0.0, 10.0, 12.0, 13.0, 14.0]), (1, 2, 3, 4))
    team = [trainer(f"t{k}", scaling=flat, fixed_nodes=None) for k in range(5)]

    result = replay(
        {n: [(0, 60)] for n in range(4)}, team, policy="scavenger", parallel=1
    )

    # Whatever the bound on other policies, four jobs of one node run.
    assert (result.fixed_nodes, result.samples) == (1, 4 * 10 * 60)


def test_rigid_jobs_of_few_trainers_are_large() -> None:
    result = replay(
        {n: [(0, 60)] for n in range(4)},
        [trainer(fixed_nodes=None)],
        policy="scavenger",
    )

    assert (result.fixed_nodes, result.samples) == (4, 4 * 10 * 60)


def test_a_stated_size_of_rigid_jobs_stays_where_the_machine_is_large_enough() -> None:
    for nodes, fixed in ((4, 3), (2, 2)):
        result = replay(
            {n: [(0, 60)] for n in range(nodes)},
            [trainer(fixed_nodes=3)],
            policy="scavenger",
        )

        assert (result.fixed_nodes, result.samples) == (fixed, fixed * 10 * 60)


def test_static_runs_on_the_mean_pool_and_is_its_own_yardstick() -> None:
    # 121 node-s in 60 s: two nodes all the time, and a third for the first second.
    result = replay(
        {n: [(0, 30)] for n in range(4)} | {4: [(59, 60)]},
        [trainer(costs=COMMITS_RARELY)],
        policy="static",
    )

    assert result.eq_nodes == pytest.approx(121 / 60)
    assert result.samples == pytest.approx(10 * 121)
    assert result.efficiency == 1


def test_freetrain_gives_nodes_where_they_train_most() -> None:
    result = replay(
        {n: [(0, 30)] for n in range(4)},
        [trainer("slow", scaling=linear(1.0)), trainer("fast")],
        policy="freetrain",
    )

    assert result.steps[0].resized == (("fast", 4),)
    assert result.solver_calls == 1


def test_weights_count_only_under_the_priority_weight() -> None:
    team = [trainer("plain", scaling=linear(20.0)), trainer("dear", weight=9.0)]
    pool = {n: [(0.0, 30.0)] for n in range(4)}

    by_throughput = replay(pool, team, priority="throughput")
    by_weight = replay(pool, team, priority="weight")

    assert by_throughput.steps[0].resized == (("plain", 4),)
    assert by_weight.steps[0].resized == (("dear", 4),)


@pytest.mark.parametrize("policy", ["freetrain", "lookahead"])
def test_nodes_that_never_leave_are_used_however_dear_starts_are(policy: str) -> None:
    # A start of 180 s against plans of 120 s: nothing learned, so the node may stay.
    dear = Costs(grow_s=180.0, shrink_s=120.0, start_s=180.0)

    result = replay({0: [(0, 1_000)]}, [trainer(costs=dear)], policy=policy)

    assert result.samples == pytest.approx((1_000 - 180) * 10)


def test_a_start_that_nodes_may_not_last_for_is_made_where_they_would_be_idle() -> None:
    # A node is there for 100 s of every 200, and for 300 s at last: a start of 150 s
    # was seen to be too long eight times, and costs nobody anything.
    dear = Costs(grow_s=0.0, shrink_s=0.0, start_s=150.0)
    spans = [(200.0 * k, 200.0 * k + 100.0) for k in range(8)]

    result = replay(
        {0: [*spans, (1_600.0, 1_900.0)]}, [trainer(costs=dear)], policy="freetrain"
    )

    assert result.samples == pytest.approx((300 - 150) * 10)


def test_a_rigid_job_of_a_size_it_cannot_run_on_trains_nothing() -> None:
    gappy = Scaling("gappy", linear().samples_per_s, (1, 2, 4))

    result = replay(
        {n: [(0, 30)] for n in range(3)},
        [trainer(scaling=gappy, fixed_nodes=3)],
        policy="scavenger",
    )

    assert (result.used_node_s, result.samples) == (90, 0)


class GivesUp:
    """A planner that never has anything better than the present plan."""

    def plan(self, problem: Problem) -> Answer:
        return Answer(keep(problem), PlanStatus.KEPT, "too slow")


def test_a_solver_without_an_answer_keeps_what_runs_and_is_counted() -> None:
    use = SolverUse()
    tools = Tools(
        solver=lambda: MeasuredSolver(GivesUp(), use, no_clock),
        start_solver=GivesUp,
        search=QuickSearch,
    )
    ratings = RatedOnce(priority_named("throughput"), GivenSpeeds(), t_fwd_s=120.0)
    policy = PlannedPolicy("freetrain", FreeTrain(tools), ratings, t_fwd_s=120.0)

    assert policy.decide(view(run(0, 1, 2), run(1), free=[0])) == ()
    assert (use.calls, use.fallbacks) == (1, 1)


@pytest.mark.parametrize(
    ("team", "choices", "why"),
    [
        ([trainer()], {"policy": "greedy"}, "freetrain, equal, scavenger, static"),
        ([], {}, "no trainers"),
        (
            [trainer(scaling=Scaling("large", linear().samples_per_s, (4,)))],
            {"policy": "scavenger"},
            "needs 4 nodes and 2 take part",
        ),
    ],
    ids=["an unknown policy", "no trainers", "a rigid job larger than the machine"],
)
def test_a_replay_of_nothing_that_can_run_is_refused(
    team: list[TrainerSpec], choices: dict[str, Any], why: str
) -> None:
    with pytest.raises(UsageError, match=why):
        replay({0: [(0, 9)], 1: [(0, 9)]}, team, **choices)
