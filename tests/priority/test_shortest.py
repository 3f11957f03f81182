"""``shortest``: nodes for the trainers with the least work left."""

from freetrain.priority.shortest import Shortest
from tests.priority.inputs import contender, inputs_of, planned_by, speeds


def test_where_nodes_are_few_those_with_the_least_time_left_have_one_each() -> None:
    inputs = inputs_of(
        contender("long", total_samples=3e5),
        contender("short", total_samples=2e5),
        contender("quick", total_samples=3e5, samples_per_s=speeds(8, one_node=1e3)),
        nodes=2,
    )
    assert planned_by(Shortest(), inputs) == {"long": 0, "short": 1, "quick": 1}


def test_an_unknown_end_is_as_far_away_as_the_beginning() -> None:
    """Newcomers are tried first."""
    known = contender("known", total_samples=2e5, done_samples=1.5e5)
    for done, counts in ((0.0, (0, 1)), (4e4, (0, 1)), (6e4, (1, 0))):
        inputs = inputs_of(known, contender("other", done_samples=done), nodes=1)
        assert tuple(planned_by(Shortest(), inputs).values()) == counts


def test_a_trainer_on_its_last_samples_is_not_worth_everything() -> None:
    one, other = (
        contender("a", total_samples=1e5 + 1),
        contender("b", total_samples=2e5),
    )
    first, second = Shortest().rate(inputs_of(one, other), {}).ratings
    assert first.curve.value_per_s[1] < 10 * second.curve.value_per_s[1]
