"""What becomes of floors and background once the planner decides."""

from freetrain.planning.rating import planned_curves
from freetrain.priority.base import Rating
from milp.planner import Planner
from milp.problem import NodeClass, Problem, TrainerState, custom

STEEP = custom([0.0, 10.0, 20.0, 30.0, 40.0])
FLAT = custom([0.0, 1.0, 2.0, 2.5, 2.6])


def counts(*ratings: Rating, nodes: int = 4) -> list[int]:
    """Plan for trainers that hold nothing and whose changes are free."""
    trainers = tuple(
        TrainerState(name=str(k), curve=curve, held=(0,), up_s=0.0, down_s=0.0)
        for k, curve in enumerate(planned_curves(ratings))
    )
    problem = Problem((NodeClass("idle", nodes),), trainers, 120.0)
    return [row[0] for row in Planner().plan(problem).plan.counts]


def test_without_floors_and_background_curves_stay_the_very_same() -> None:
    curves = planned_curves((Rating(curve=STEEP), Rating(curve=FLAT)))

    assert curves[0] is STEEP
    assert curves[1] is FLAT


def test_the_background_gets_what_the_others_leave() -> None:
    behind = Rating(curve=STEEP, is_background=True)

    assert counts(Rating(curve=FLAT), behind) == [4, 0]
    assert counts(Rating(curve=FLAT), behind, nodes=6) == [4, 2]
    assert counts(behind, behind, nodes=6) == [4, 2]


def test_a_floor_is_met_before_anybody_gets_more() -> None:
    assert counts(Rating(curve=FLAT), Rating(curve=STEEP)) == [0, 4]
    assert counts(Rating(curve=FLAT, floor=2), Rating(curve=STEEP)) == [2, 2]
    floors = Rating(curve=FLAT, floor=2), Rating(curve=STEEP, floor=1)
    assert counts(*floors, nodes=5) == [2, 3]


def test_idle_nodes_go_to_whoever_wants_any_and_nobody_else_misses_them() -> None:
    late = Rating(curve=custom([0.0, 0.0, 0.0, 0.0, 0.5]))

    assert counts(late, nodes=3) == [3]
    assert counts(late, Rating(curve=FLAT), nodes=3) == [0, 3]
    assert counts(late, Rating(curve=FLAT), nodes=6) == [2, 4]


def test_a_trainer_that_is_worth_nothing_at_any_size_gets_nothing() -> None:
    assert counts(Rating(curve=custom([0.0, 0.0, 0.0]))) == [0]
