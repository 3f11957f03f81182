"""Equal shares, by way of the planner."""

import json
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from freetrain.errors import UsageError
from freetrain.priority.base import Memory, RatingInputs
from freetrain.priority.fair import Fair, level_nodes
from tests.priority.inputs import contender, inputs_of, planned, planned_by, speeds


@settings(deadline=None)
@given(st.integers(1, 6), st.integers(1, 40))
def test_no_trainer_gets_two_nodes_more_than_another(trainers: int, nodes: int) -> None:
    inputs = inputs_of(
        *[
            contender(f"t{k}", samples_per_s=speeds(8) ** (1 + k))
            for k in range(trainers)
        ],
        nodes=nodes,
    )
    counts = planned_by(Fair(), inputs).values()
    assert max(counts) - min(counts) <= 1
    assert sum(counts) == min(nodes, 8 * trainers)


def test_what_a_small_trainer_cannot_use_goes_to_the_others() -> None:
    small = contender("small", sizes=(1, 2), samples_per_s=speeds(2))
    inputs = inputs_of(small, contender("a"), contender("b"), nodes=12)
    assert planned_by(Fair(), inputs) == {
        "small": 2,
        "a": 5,
        "b": 5,
    }


def test_nodes_that_a_large_trainer_cannot_use_are_not_left_idle() -> None:
    large = contender("large", sizes=(16,), samples_per_s=speeds(16))
    inputs = inputs_of(large, contender("a"), nodes=8)
    assert planned_by(Fair(), inputs) == {"large": 0, "a": 8}


def test_a_newcomer_gets_its_share_from_a_trainer_that_holds_all() -> None:
    costs = {"grow_s": 5.0, "shrink_s": 5.0, "start_s": 10.0}
    inputs = inputs_of(contender("old", held=8, **costs), contender("new", **costs))
    assert planned_by(Fair(), inputs) == {"old": 4, "new": 4}


@pytest.mark.parametrize(
    ("most", "nodes", "level"),
    [([8, 8], 8, 4.0), ([2, 8, 8], 12, 5.0), ([2, 2], 12, 2.0), ([4], 0, 1.0)],
)
def test_the_level_fills_the_pool(most: list[int], nodes: int, level: float) -> None:
    assert level_nodes(most, nodes) == level


TURN_S = 600.0
LOOK_S = 60.0


def had_by(priority: Fair, inputs: RatingInputs, looks: int) -> Counter[str]:
    """Return how many looks long each held a node, memory going through JSON."""
    had: Counter[str] = Counter()
    memory: Memory = {}
    for _ in range(looks):
        rated = priority.rate(inputs, memory)
        memory = json.loads(json.dumps(rated.memory))
        counts = planned(inputs, rated.ratings)
        had.update(name for name, nodes in counts.items() if nodes)
        held = [replace(one, held=counts[one.name]) for one in inputs.contenders]
        inputs = replace(inputs, now_s=inputs.now_s + LOOK_S, contenders=tuple(held))
    return had


def crowd(nodes: int) -> RatingInputs:
    return inputs_of(*[contender(k, start_s=20.0) for k in "abcde"], nodes=nodes)


def test_where_nodes_are_fewer_than_trainers_a_trainer_keeps_its_node() -> None:
    assert set(had_by(Fair(), crowd(2), looks=50).values()) == {50}


def test_in_turns_all_have_had_the_same_in_the_end() -> None:
    had = had_by(Fair(turn_s=TURN_S), crowd(2), looks=250)
    assert len(had) == 5
    assert max(had.values()) - min(had.values()) <= TURN_S / LOOK_S


def test_a_turn_is_not_cut_short() -> None:
    had = had_by(Fair(turn_s=TURN_S), crowd(1), looks=10)
    assert list(had.values()) == [10]
    assert len(had_by(Fair(turn_s=TURN_S), crowd(1), looks=11)) == 2


def test_there_are_no_turns_where_there_are_nodes_for_all() -> None:
    inputs = crowd(5)
    usual, turning = (Fair(turn_s=s).rate(inputs, {}) for s in (0.0, TURN_S))
    assert [r.reason for r in turning.ratings] == [r.reason for r in usual.ratings]
    assert turning.memory == {}


@pytest.mark.parametrize("turn_s", [-1.0, float("nan"), float("inf")])
def test_a_turn_that_means_nothing_is_refused(turn_s: float) -> None:
    with pytest.raises(UsageError, match="turn_s"):
        Fair(turn_s=turn_s)
