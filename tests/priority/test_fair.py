"""Equal shares, by way of the planner."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from freetrain.priority.fair import Fair, level_nodes
from tests.priority.looks import contender, look, planned, speeds


@settings(deadline=None)
@given(st.integers(1, 6), st.integers(1, 40))
def test_nobody_gets_two_nodes_more_than_another(trainers: int, nodes: int) -> None:
    seen = look(
        *[
            contender(f"t{k}", samples_per_s=speeds(8) ** (1 + k))
            for k in range(trainers)
        ],
        nodes=nodes,
    )
    counts = planned(seen, Fair().rate(seen, {}).ratings).values()
    assert max(counts) - min(counts) <= 1
    assert sum(counts) == min(nodes, 8 * trainers)


def test_what_a_small_trainer_cannot_use_goes_to_the_others() -> None:
    small = contender("small", sizes=(1, 2), samples_per_s=speeds(2))
    seen = look(small, contender("a"), contender("b"), nodes=12)
    assert planned(seen, Fair().rate(seen, {}).ratings) == {"small": 2, "a": 5, "b": 5}


def test_nodes_that_a_large_trainer_cannot_use_are_not_left_idle() -> None:
    large = contender("large", sizes=(16,), samples_per_s=speeds(16))
    seen = look(large, contender("a"), nodes=8)
    assert planned(seen, Fair().rate(seen, {}).ratings) == {"large": 0, "a": 8}


def test_a_newcomer_gets_its_share_from_who_holds_all() -> None:
    costs = {"grow_s": 5.0, "shrink_s": 5.0, "start_s": 10.0}
    seen = look(contender("old", held=8, **costs), contender("new", **costs))
    assert planned(seen, Fair().rate(seen, {}).ratings) == {"old": 4, "new": 4}


@pytest.mark.parametrize(
    ("most", "nodes", "level"),
    [([8, 8], 8, 4.0), ([2, 8, 8], 12, 5.0), ([2, 2], 12, 2.0), ([4], 0, 1.0)],
)
def test_the_level_fills_the_pool(most: list[int], nodes: int, level: float) -> None:
    assert level_nodes(most, nodes) == level
