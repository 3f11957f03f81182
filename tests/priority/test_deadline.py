"""In time if it can be, and no nodes wasted on what cannot."""

import pytest

from freetrain.errors import UsageError
from freetrain.priority.base import Contender
from freetrain.priority.deadline import Deadline, fewest_nodes
from tests.priority.inputs import contender, inputs_of, planned, planned_by

NOW_S = 1000.0


def due(name: str, *, in_s: float, samples: float, **changes: object) -> Contender:
    """One that has *in_s* seconds for *samples*; 100 a second on one node."""
    return contender(
        name,
        deadline_s=NOW_S + in_s,
        total_samples=samples,
        done_samples=0.0,
        **changes,
    )


def test_a_trainer_gets_the_fewest_nodes_that_are_in_time() -> None:
    inputs = inputs_of(due("a", in_s=1000.0, samples=3e5), contender("b"))
    first, second = Deadline(slack=0.0).rate(inputs, {}).ratings
    assert (first.floor, second.floor) == (4, 0)  # 268 a second on 3, 348 on 4
    assert "4 nodes" in first.reason


def test_slack_and_the_stop_of_a_rescale_are_time_that_is_not_there() -> None:
    one = due("a", in_s=1000.0, samples=3.4e5)
    growing = due("a", in_s=1000.0, samples=3.4e5, held=1, grow_s=50.0)
    assert fewest_nodes(one, 3.4e5, 1000.0) == 4
    assert fewest_nodes(growing, 3.4e5, 1000.0) == 5
    assert Deadline(slack=0.1).rate(inputs_of(one), {}).ratings[0].floor == 5


def test_the_earliest_deadline_is_served_first() -> None:
    late = due("late", in_s=2000.0, samples=8e5)
    early = due("early", in_s=1000.0, samples=4e5)
    inputs = inputs_of(late, early, nodes=8)
    ratings = Deadline().rate(inputs, {}).ratings
    counts = planned(inputs, ratings)
    assert counts["early"] == 5
    assert counts["late"] == 3
    assert "5 nodes would meet its deadline; it can have 3 now" in ratings[0].reason
    assert ratings[1].reason == "5 nodes towards its deadline"


def test_a_deadline_that_earlier_ones_leave_no_node_for_is_not_called_hopeless() -> (
    None
):
    late = due("late", in_s=2000.0, samples=8e5)
    early = due("early", in_s=1000.0, samples=4e5)
    first = Deadline().rate(inputs_of(late, early, nodes=5), {}).ratings[0]
    assert first.floor == 0
    assert first.reason == "5 nodes would meet its deadline; it can have none now"


def test_a_hopeless_trainer_starves_no_other() -> None:
    hopeless = due("hopeless", in_s=10.0, samples=1e9)
    inputs = inputs_of(hopeless, contender("b"))
    assert planned_by(Deadline(), inputs) == {
        "hopeless": 4,
        "b": 4,
    }
    assert "cannot be met" in Deadline().rate(inputs, {}).ratings[0].reason


def test_a_deadline_for_an_unknown_amount_of_work_is_no_floor() -> None:
    one = contender("a", deadline_s=NOW_S + 100)
    (rating,) = Deadline().rate(inputs_of(one), {}).ratings
    assert rating.floor == 0
    assert "it is unknown" in rating.reason


@pytest.mark.parametrize("slack", [-0.1, 1.0, float("nan")])
def test_a_slack_that_means_nothing_is_refused(slack: float) -> None:
    with pytest.raises(UsageError, match="slack"):
        Deadline(slack=slack)
