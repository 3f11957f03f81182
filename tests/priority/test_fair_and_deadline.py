"""``fair``: equal shares, or turns. ``deadline``: in time if that can be."""

import json
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from freetrain.priority.base import Contender, Memory, RatingInputs
from freetrain.priority.deadline import Deadline, fewest_nodes
from freetrain.priority.fair import Fair
from tests.priority.inputs import contender, inputs_of, planned, planned_by, speeds

COSTS = {"grow_s": 5.0, "shrink_s": 5.0, "start_s": 10.0}
SMALL = contender("small", sizes=(1, 2), samples_per_s=speeds(2))
LARGE = contender("large", sizes=(16,), samples_per_s=speeds(16))
A, B = contender("a"), contender("b")


@settings(deadline=None)
@given(st.integers(1, 6), st.integers(1, 40))
def test_no_trainer_gets_two_nodes_more_than_another(trainers: int, nodes: int) -> None:
    team = [contender(f"t{k}", samples_per_s=speeds(8) ** (1 + k)) for k in range(6)]
    counts = planned_by(Fair(), inputs_of(*team[:trainers], nodes=nodes)).values()
    assert max(counts) - min(counts) <= 1
    assert sum(counts) == min(nodes, 8 * trainers)


OLD, NEW = contender("old", held=8, **COSTS), contender("new", **COSTS)
SHARES = {
    "others get what it cannot use": ((SMALL, A, B), 12, [2, 5, 5]),
    "nodes too few for a size stay in use": ((LARGE, A), 8, [0, 8]),
    "a newcomer gets its share": ((OLD, NEW), 8, [4, 4]),
}


@pytest.mark.parametrize(("team", "nodes", "counts"), SHARES.values(), ids=SHARES)
def test_shares_are_equal_as_far_as_sizes_allow(
    team: tuple[Contender, ...], nodes: int, counts: list[int]
) -> None:
    assert list(planned_by(Fair(), inputs_of(*team, nodes=nodes)).values()) == counts


# Turns

TURN_S = 600.0
LOOK_S = 60.0


def had_by(priority: Fair, nodes: int, looks: int) -> list[int]:
    """Return how many ratings long each of five trainers held a node."""
    return list(held_over(priority, crowd(nodes), looks).values())


def held_over(priority: Fair, inputs: RatingInputs, looks: int) -> Counter[str]:
    """Return at how many ratings each trainer held nodes."""
    had = Counter[str]()
    memory: Memory = {}
    for _ in range(looks):
        rated = priority.rate(inputs, memory)
        memory = json.loads(json.dumps(rated.memory))
        counts = planned(inputs, rated.ratings)
        had.update(name for name, own in counts.items() if own)
        held = [replace(one, held=counts[one.name]) for one in inputs.contenders]
        inputs = replace(inputs, now_s=inputs.now_s + LOOK_S, contenders=tuple(held))
    return had


def crowd(nodes: int) -> RatingInputs:
    return inputs_of(*[contender(k, start_s=20.0) for k in "abcde"], nodes=nodes)


def test_where_nodes_are_fewer_than_trainers_a_trainer_keeps_its_node() -> None:
    assert had_by(Fair(), 2, looks=50) == [50, 50]


def test_in_turns_all_have_had_the_same_in_the_end() -> None:
    had = had_by(Fair(turn_s=TURN_S), 2, looks=250)
    assert len(had) == 5
    assert max(had) - min(had) <= TURN_S / LOOK_S


def test_a_turn_is_not_cut_short() -> None:
    assert had_by(Fair(turn_s=TURN_S), 1, looks=10) == [10]
    assert len(had_by(Fair(turn_s=TURN_S), 1, looks=11)) == 2


def test_a_trainer_that_needs_several_nodes_has_its_turn_too() -> None:
    small = [contender(f"s{k}", sizes=(1,), samples_per_s=speeds(1)) for k in range(7)]
    large = contender("large", sizes=(3,), samples_per_s=speeds(3))
    had = held_over(Fair(turn_s=TURN_S), inputs_of(large, *small, nodes=4), 1000)
    assert 3 * had["large"] / (4 * 1000) == pytest.approx(1 / 8, rel=0.2)
    assert max(had[s.name] for s in small) - min(had[s.name] for s in small) < 30


def test_nobody_falls_behind_while_there_are_no_nodes() -> None:
    priority, none = Fair(turn_s=TURN_S), crowd(0)
    memory = priority.rate(none, {}).memory
    later = replace(none, now_s=none.now_s + 86400.0)
    memory = priority.rate(later, memory).memory
    assert {turn["ahead_node_s"] for turn in memory.values()} == {0.0}  # type: ignore[index]


def test_turns_go_on_after_the_clock_went_back() -> None:
    priority, inputs = Fair(turn_s=TURN_S), crowd(1)
    memory = priority.rate(inputs, {}).memory
    held = [replace(one, held=int(one.name == "a")) for one in inputs.contenders]
    before = replace(inputs, now_s=inputs.now_s - 86400, contenders=tuple(held))
    memory = priority.rate(before, memory).memory
    after = replace(before, now_s=before.now_s + TURN_S + 1)
    first, *others = priority.rate(after, memory).ratings
    assert first.floor == 0
    assert sum(rating.floor for rating in others) == 1


def test_there_are_no_turns_where_there_are_nodes_for_all() -> None:
    usual, turning = (Fair(turn_s=s).rate(crowd(5), {}) for s in (0.0, TURN_S))
    assert [r.reason for r in turning.ratings] == [r.reason for r in usual.ratings]
    assert turning.memory == {}


# Deadlines

NOW_S = 1000.0


def due(name: str, *, in_s: float, samples: float, **changes: object) -> Contender:
    """A trainer that has *in_s* seconds for *samples*; 100 a second on one node."""
    own = {"total_samples": samples, "done_samples": 0.0}
    return contender(name, deadline_s=NOW_S + in_s, **own, **changes)


LATE = due("late", in_s=2000.0, samples=8e5)
EARLY = due("early", in_s=1000.0, samples=4e5)


def test_slack_and_the_stop_of_a_rescale_are_time_that_is_not_there() -> None:
    one = due("a", in_s=1000.0, samples=3.4e5)  # 268 a second on 3, 348 on 4
    growing = due("a", in_s=1000.0, samples=3.4e5, held=1, grow_s=50.0)
    assert fewest_nodes(one, 3.4e5, 1000.0) == 4
    assert fewest_nodes(growing, 3.4e5, 1000.0) == 5
    first, second = Deadline(slack=0.0).rate(inputs_of(one, B), {}).ratings
    assert (first.floor, second.floor) == (4, 0)
    assert first.reason == "4 nodes towards its deadline"
    assert Deadline(slack=0.1).rate(inputs_of(one), {}).ratings[0].floor == 5


@pytest.mark.parametrize(
    ("nodes", "floors", "can_have"), [(8, (3, 5), "3"), (5, (0, 5), "none")]
)
def test_the_earliest_deadline_is_served_first(
    nodes: int, floors: tuple[int, int], can_have: str
) -> None:
    inputs = inputs_of(LATE, EARLY, nodes=nodes)
    late, early = Deadline().rate(inputs, {}).ratings
    assert (late.floor, early.floor) == floors
    assert planned(inputs, (late, early)) == dict(
        zip(("late", "early"), floors, strict=True)
    )
    why = f"5 nodes would meet its deadline; it can have {can_have} now"
    assert late.reason == why
    assert early.reason == "5 nodes towards its deadline"


@pytest.mark.parametrize(
    ("hopeless", "why"),
    [
        (due("h", in_s=10.0, samples=1e9), "its deadline cannot be met"),
        (contender("h", deadline_s=NOW_S + 100), "it is unknown how much is left"),
    ],
    ids=["too late", "unknown work"],
)
def test_a_deadline_that_cannot_be_met_is_no_floor_and_starves_no_other(
    hopeless: Contender, why: str
) -> None:
    inputs = inputs_of(hopeless, B)
    rating = Deadline().rate(inputs, {}).ratings[0]
    assert rating.floor == 0
    assert why in rating.reason
    assert planned_by(Deadline(), inputs) == {"h": 4, "b": 4}
