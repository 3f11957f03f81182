import operator
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from freetrain.lookahead.learned import LearnedForecaster
from freetrain.planning.lookahead import Lookahead, QuickSearch
from freetrain.planning.policy import PlanTrainer, Tools
from freetrain.priority.speed import Throughput
from freetrain.replay.accounting import PublishedAccountant, Tally
from freetrain.replay.engine import Engine, Step
from freetrain.replay.policies.base import Change, View
from freetrain.replay.policies.lookahead import (
    ClusteredTrainers,
    LookaheadPolicy,
    Weights,
)
from freetrain.replay.policies.ratings import GivenSpeeds, RatedOnce
from freetrain.replay.pool import PoolTimeline
from freetrain.replay.run import run_replay
from freetrain.replay.settings import Accounting, ReplaySettings
from freetrain.replay.trainers import Costs, Scaling, TrainerSpec
from milp.planner import Planner
from milp.problem import custom
from milp.window import Window
from tests.replay.worlds import (
    FOR_NOTHING,
    linear,
    no_clock,
    pools,
    replay,
    run,
    settings,
    teams,
    trace_of,
    trainer,
)

Node = list[tuple[float, float]]
Pool = dict[int, Node]
LOOKAHEAD = settings(policy="lookahead")


class Recorded:
    """Looks ahead, and keeps its decisions."""

    name = "lookahead"

    def __init__(
        self,
        note: Callable[[Window, float], None] | None = None,
        *,
        learns_s: float = 0.0,
    ) -> None:
        policy = Lookahead(
            Tools(
                solver=Planner,
                start_solver=Planner,
                search=lambda: QuickSearch(note),
                verifies=False,
            )
        )
        curves = RatedOnce(Throughput(), GivenSpeeds(), t_fwd_s=120.0)
        forecaster = LearnedForecaster(Weights().horizon_s, learns_s=learns_s)
        self._policy = LookaheadPolicy(forecaster, policy, curves, Weights())
        self.decided: list[tuple[float, tuple[Change, ...]]] = []

    def decide(self, view: View) -> Sequence[Change]:
        changes = self._policy.decide(view)
        self.decided.append((view.now_s, tuple(changes)))
        return changes


def decisions(
    pool: Pool,
    team: Sequence[TrainerSpec],
    *,
    note: Callable[[Window, float], None] | None = None,
    learns_s: float = 0.0,
) -> list[tuple[float, tuple[Change, ...]]]:
    recorded = Recorded(note, learns_s=learns_s)
    Engine(
        PoolTimeline.from_trace(trace_of(pool, nodes=6)),
        team,
        policy=recorded,
        accountant=PublishedAccountant(Tally(), notices_at_once=True),
        settings=ReplaySettings(),
    ).run()
    return recorded.decided


def steps(
    pool: Pool, team: Sequence[TrainerSpec], choice: ReplaySettings
) -> list[Step]:
    timeline = PoolTimeline.from_trace(trace_of(pool))
    return list(run_replay(timeline, team, choice, clock=no_clock).steps)


def until(node: Node, cut_s: float) -> Node:
    """Return what of *node* is known by *cut_s*; what is open then ends at once."""
    return [(a, min(b, cut_s)) for a, b in node if a < cut_s]


# The engine refuses a node that is not free, one's own given twice, and migration.
@given(pools(), teams(), LOOKAHEAD)
def test_looking_ahead_keeps_the_contract_of_policies(
    pool: Pool, team: tuple[TrainerSpec, ...], choice: ReplaySettings
) -> None:
    for step in steps(pool, team, choice):
        assert 0 <= step.used_nodes <= step.idle_nodes


@given(pools(), teams(), LOOKAHEAD)
def test_looking_ahead_decides_the_same_again(
    pool: Pool, team: tuple[TrainerSpec, ...], choice: ReplaySettings
) -> None:
    assert steps(pool, team, choice) == steps(pool, team, choice)


@given(pools(), pools(), teams(), st.floats(1.0, 400.0))
def test_another_future_changes_no_decision_before_it(
    pool: Pool, other: Pool, team: tuple[TrainerSpec, ...], cut_s: float
) -> None:
    later = {
        node: [(a + cut_s, b + cut_s) for a, b in own] for node, own in other.items()
    }
    past = {node: until(own, cut_s) for node, own in pool.items()}
    replaced = {n: past.get(n, []) + later.get(n, []) for n in {*past, *later}}
    # A replay ends with its log, whoever is still to arrive.
    ends = [max(b for own in one.values() for _, b in own) for one in (pool, replaced)]
    known_s = min(cut_s, *ends)

    before = [one for one in decisions(pool, team) if one[0] < known_s]
    instead = [one for one in decisions(replaced, team) if one[0] < known_s]

    assert before == instead


def test_nodes_that_left_together_go_to_one_trainer_when_they_are_back() -> None:
    pairs: Pool = {0: [], 1: [], 2: [], 3: []}
    for round_s in range(0, 6000, 1000):
        for node in (0, 2):
            pairs[node].append((float(round_s), round_s + 400.0))
        for node in (1, 3):
            pairs[node].append((float(round_s), round_s + 700.0))
    costs = Costs(grow_s=30.0, shrink_s=30.0)
    team = [
        replace(trainer(name), scaling=linear(most=2), samples=1e9, costs=costs)
        for name in ("a", "b")
    ]

    last = [changes for now_s, changes in decisions(pairs, team) if now_s == 5000.0]

    taken = sorted(change.take for changes in last for change in changes)
    assert taken == [(0, 2), (1, 3)]


def test_a_stay_is_made_anew_only_with_a_new_forecast() -> None:
    # The forecast of a node holds for a fiftieth of its age.
    pool: Pool = {
        0: [(0.0, 9_000.0)],
        1: [(5_000.0, 9_000.0)],
        2: [(5_050.0, 9_000.0)],
        3: [(5_200.0, 9_000.0)],
    }
    windows: list[Window] = []

    decisions(pool, [trainer()], note=lambda window, _: windows.append(window))

    of_node_0 = [window.classes[0] for window in windows[1:4]]
    assert of_node_0[1] is of_node_0[0]
    assert of_node_0[2].life_s != of_node_0[0].life_s


# Clusters: what a trainer holds of them, and which of their nodes it gets

RUNS = st.dictionaries(
    st.integers(0, 3),
    st.tuples(st.frozensets(st.integers(0, 5)), st.booleans(), st.booleans()),
    min_size=1,
)
CURVES = custom([0.0, 10.0, 20.0]), custom([0.0, 11.0, 21.0])
DEAR = Costs(2.0, 3.0, 4.0, checkpoint_every_s=10.0)


@given(st.lists(RUNS, min_size=1, max_size=6))
def test_trainers_that_are_kept_from_event_to_event_are_those_made_anew(
    events: list[dict[int, tuple[frozenset[int], bool, bool]]],
) -> None:
    kept = ClusteredTrainers()

    def waiting(costs: Costs) -> tuple[float, float]:
        return costs.start_s, costs.checkpoint_every_s

    for event in events:
        runs = [
            run(serial, *held, costs=DEAR if is_dear else FOR_NOTHING)
            for serial, (held, is_dear, _) in event.items()
        ]
        curves = [CURVES[is_better] for _, _, is_better in event.values()]
        found = kept.of(runs, curves, lambda node: node // 2, waiting)
        anew = ClusteredTrainers().of(runs, curves, lambda node: node // 2, waiting)
        assert list(map(seen, found)) == list(map(seen, anew))
        again = kept.of(runs, curves, lambda node: node // 2, waiting)
        assert all(map(operator.is_, again, found))


def seen(trainer: PlanTrainer) -> tuple[object, ...]:
    costs_s = trainer.up_s, trainer.down_s, trainer.start_s, trainer.loss_s
    return trainer.name, trainer.curve, trainer.held, costs_s


def test_without_trainers_or_nodes_there_is_nothing_to_decide() -> None:
    late = trainer("late", arrival_s=60.0)

    assert decisions({0: [(0.0, 50.0), (90.0, 100.0)]}, [late])[0] == (0.0, ())


def takes(pool: Pool, team: Sequence[TrainerSpec], at_s: float) -> list[Change]:
    return [one for now_s, own in decisions(pool, team) if now_s == at_s for one in own]


def test_nodes_that_soon_leave_are_taken_only_where_a_loss_costs_little() -> None:
    rounds = range(0, 60_000, 1000)
    pool: Pool = {
        0: [(0.0, 60_100.0)],
        1: [(float(t), t + 65.0) for t in rounds] + [(60_000.0, 60_065.0)],
    }
    for cost_s, taken in ((0.1, 1), (300.0, 0)):
        costs = Costs(grow_s=cost_s, shrink_s=cost_s)
        one = replace(trainer("a"), samples=1e9, costs=costs, scaling=linear(most=2))

        assert len(takes(pool, [one], 60_000.0)) == taken


def test_a_whole_cluster_does_not_go_to_one_where_two_gain_more_by_halves() -> None:
    rounds = [(float(t), t + 600.0) for t in range(0, 7000, 1000)]
    pool: Pool = {node: [*rounds, (7000.0, 7600.0)] for node in range(4)}
    speeds = np.array([0.0, 10.0, 17.0, 21.0, 24.0])
    team = [
        replace(trainer(name), samples=1e9, scaling=Scaling("s", speeds, (1, 2, 3, 4)))
        for name in ("a", "b")
    ]

    assert sorted(len(one.take) for one in takes(pool, team, 7000.0)) == [2, 2]


@pytest.mark.parametrize(("t_fwd_s", "cold"), [(500.0, 2), (120.0, 1)])
def test_a_replay_learns_for_an_hour_before_it_goes_by_what_leaves(
    t_fwd_s: float, cold: int
) -> None:
    """Until then it goes as far ahead as the published planner: to grow takes 300 s."""
    pool: Pool = {
        0: [(0.0, 4_200.0)],
        1: [(float(t), t + 65.0) for t in range(0, 4_000, 100)],
    }
    costs = Costs(grow_s=300.0, shrink_s=300.0)
    one = replace(trainer("a"), samples=1e9, costs=costs, scaling=linear(most=2))
    choice = ReplaySettings(
        policy="lookahead", accounting=Accounting.PUBLISHED_C, t_fwd_s=t_fwd_s
    )

    used = {step.time_s: step.used_nodes for step in steps(pool, [one], choice)}

    assert [used[t] for t in (2_900.0, 3_500.0)] == [cold, cold]
    assert [used[t] for t in (3_600.0, 3_900.0)] == [1, 1]


def test_what_changes_count_for_is_learned_and_told_after_an_hour() -> None:
    pool: Pool = {
        0: [(0.0, 9_000.0)],
        1: [(float(t), t + 100.0) for t in range(0, 9_000, 200)],
    }
    windows: list[Window] = []

    decisions(
        pool,
        [trainer("a", samples=1e9)],
        note=lambda window, _: windows.append(window),
        learns_s=3_600.0,
    )

    assert [window.change_weight for window in windows[:30]] == [1.0] * 30
    assert windows[-1].change_weight > 1.5
    assert {window.hit_weight for window in windows} != {0.25}, "hits come one by one"


def test_nodes_are_used_that_stay_no_longer_than_a_start_takes() -> None:
    draw, idle = np.random.default_rng(1), {}
    for node in range(48):
        at_s, own = float(draw.uniform(0.0, 600.0)), []
        while at_s < 21_600.0:
            end_s = at_s + float(draw.exponential(120.0))
            own.append((at_s, end_s))
            at_s = end_s + float(draw.exponential(600.0))
        idle[node] = own
    costs = Costs(grow_s=120.0, shrink_s=120.0, start_s=120.0, checkpoint_every_s=60.0)
    team = [trainer(f"t{k}", costs=costs, samples=1e9) for k in range(8)]

    ahead, published = (
        replay(idle, team, policy=name) for name in ("lookahead", "freetrain")
    )

    assert ahead.samples > published.samples > 0.0
    assert ahead.used_node_s > 0.9 * ahead.pool_node_s
