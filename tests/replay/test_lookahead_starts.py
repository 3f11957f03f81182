from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from freetrain.replay.policies.lookahead import Holders, Seen, Starts
from freetrain.replay.policies.planned import MeasuredPlanner, SolverUse
from freetrain.replay.result import Run
from freetrain.replay.trainers import Costs
from milp.planner import Answer, Outcome, Planner
from milp.problem import NodeClass, Problem, custom
from tests.replay.worlds import no_clock, trainer

HORIZON_S = 50.0
CURVES = (custom([0.0, 10.0, 19.0, 27.0]), custom([0.0, 10.0, 20.0], (2,)))
COSTS = (Costs(0.0, 0.0), Costs(4.0, 2.0, 3.0), Costs(4.0, 2.0, 9.0))
Team = list[tuple[int, int, int]]

# Few sizes of few kinds, so that the same is asked again and again.
teams = st.lists(
    st.tuples(st.integers(0, 1), st.integers(0, 2), st.integers(0, 2)), max_size=4
)
moments = st.lists(st.tuples(teams, st.integers(0, 2)), max_size=12)


def seen_by(holders: Holders, team: Team) -> tuple[Seen, ...]:
    """Return trainers of curves, costs and counts as *team* says."""
    runs, first = [], 0
    for serial, (_, costs, held) in enumerate(team):
        nodes = set(range(first, first + held))
        spec = trainer(costs=COSTS[costs])
        runs.append(Run(serial, spec, [0.0] * 4, 0.0, held=nodes))
        first += held
    return holders.of(runs, [CURVES[curve] for curve, _, _ in team], lambda node: node)


def starts(use: SolverUse | None = None) -> Starts:
    planner = MeasuredPlanner(Planner(), use or SolverUse(), no_clock)
    return Starts(planner)


@given(moments)
def test_counts_that_are_known_are_those_that_would_be_answered_anew(
    asked: list[tuple[Team, int]],
) -> None:
    kept, holders = starts(), Holders()
    for team, spare in asked:
        seen = seen_by(holders, team)
        nodes = spare + sum(held for _, _, held in team)

        states = tuple(one.state for one in seen)
        fresh = Planner().plan(
            Problem((NodeClass("idle", nodes),), states, t_fwd_s=HORIZON_S)
        )
        counts = kept.counts(seen, nodes, HORIZON_S)
        assert list(counts) == [n for (n,) in fresh.plan.counts]


def test_the_same_is_asked_once_whoever_the_trainers_are() -> None:
    use, holders = SolverUse(), Holders()
    kept = starts(use)

    kept.counts(seen_by(holders, [(0, 0, 1), (1, 1, 2)]), 4, HORIZON_S)
    holders.forget()
    kept.counts(seen_by(holders, [(0, 0, 1), (1, 1, 2)]), 4, HORIZON_S)

    assert use.calls == 1


class Stopped(Planner):
    """A planner that proves nothing."""

    def plan(self, problem: Problem) -> Answer:
        return replace(super().plan(problem), outcome=Outcome.INCUMBENT)


def test_what_is_not_proven_is_asked_for_again() -> None:
    use, holders = SolverUse(), Holders()
    kept = Starts(MeasuredPlanner(Stopped(), use, no_clock))

    for _ in range(2):
        kept.counts(seen_by(holders, [(0, 0, 1)]), 4, HORIZON_S)

    assert use.calls == 2


def test_another_pool_count_curve_cost_or_look_ahead_is_asked_anew() -> None:
    use, holders = SolverUse(), Holders()
    kept = starts(use)

    for team, nodes, t_fwd_s in (
        ([(0, 0, 1)], 2, 120.0),
        ([(0, 0, 1)], 3, 120.0),
        ([(0, 0, 2)], 3, 120.0),
        ([(1, 0, 2)], 3, 120.0),
        ([(1, 1, 2)], 3, 120.0),
        ([(1, 2, 2)], 3, 120.0),
        ([(1, 1, 2)], 3, 500.0),
    ):
        kept.counts(seen_by(holders, team), nodes, t_fwd_s)

    assert use.calls == 7
