"""The weights of hits and changes, learned from trainers' losses and changes."""

import json
import math
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from freetrain.lookahead.experience import Experience, ServiceTime
from freetrain.planning.rating import start_cost_s, start_loss_s

HORIZON_S = 500.0
TWO_CLUSTERS = {"a": frozenset({1, 2, 3, 4})}


def half(node: int) -> int:
    """Return the cluster of a node: two clusters of two."""
    return node // 3


def test_a_start_is_spread_over_the_time_that_nodes_served() -> None:
    service = ServiceTime()
    assert service.stay_s == 1_000.0

    # Four nodes for ten seconds, three times, each time lost: (1000 + 120) / 13 = 86 s.
    for _ in range(3):
        service.note(10.0, held=4, ended=4)
    assert service.stay_s == 86.0

    # Counts fade: after a week without service the prior is back.
    service.note(7 * 86_400.0, held=0, ended=0)
    assert service.stay_s == pytest.approx(1_000.0, abs=20.0)


@pytest.mark.parametrize(
    ("start_s", "stay_s", "reach_s", "cost_s"),
    [
        # By the first term of the series: 18 s of the 1,000 s that the node serves,
        # of which a plan has 120 s.
        (18.0, 1_000.0, 120.0, 18.0 * 0.12),
        (180.0, 1_000.0, 120.0, 120.0 * (1.0 - 0.8353)),
        # Service does not last for a start: nearly all of it is lost, and no more.
        (180.0, 60.0, 120.0, 60.0 * (1.0 - 0.0498)),
        (0.0, 60.0, 120.0, 0.0),
    ],
)
def test_a_plan_is_charged_what_a_start_takes_of_its_service(
    start_s: float, stay_s: float, reach_s: float, cost_s: float
) -> None:
    found = start_cost_s(start_s, stay_s=stay_s, reach_s=reach_s)
    assert found == pytest.approx(cost_s, rel=0.01)
    assert found < min(start_s or 1.0, reach_s)


def test_a_trainer_that_waits_loses_only_what_it_will_have_trained() -> None:
    early, late, never = (
        start_loss_s(30.0, start_s, stay_s=100.0) for start_s in (10.0, 200.0, 9_000.0)
    )

    assert early == pytest.approx(27.1, abs=0.1)
    assert late == pytest.approx(4.06, abs=0.01)
    assert never == pytest.approx(0.0, abs=1e-12)


def test_services_end_where_all_nodes_went_and_not_where_the_work_was_done() -> None:
    experience, nodes = Experience(), frozenset({1, 2})

    experience.note(0.0, {"a": nodes, "b": frozenset({3}), "c": frozenset({4})})
    # a lost both nodes and has others, b is done, c has none: three ends on 2 + 1.
    experience.note(500.0, {"a": frozenset({5}), "c": frozenset()})

    # (1,000 + 4 * 500) / (1 + 3) = 750 s, but for the fading.
    assert experience.service.stay_s == pytest.approx(750.0, abs=10.0)


HITS = {
    "prior": (0, set[int](), {}, 0.25),
    "clusters leave singly": (2_000, {1, 2}, TWO_CLUSTERS, 1.0),
    "both clusters leave": (2_000, {1, 2, 3}, TWO_CLUSTERS, 0.0),
    "it holds one cluster": (50, {1, 2}, {"a": frozenset({1, 2})}, 0.25),
    "it loses nothing": (50, {7, 8}, TWO_CLUSTERS, 0.25),
    "no trainer": (50, {1}, {}, 0.25),
}


@pytest.mark.parametrize(("times", "left", "held", "weight"), HITS.values(), ids=HITS)
def test_a_hit_weighs_as_many_hits_came_alone(
    times: int, left: set[int], held: Mapping[str, frozenset[int]], weight: float
) -> None:
    experience = Experience()
    for turn in range(times):
        experience.note(100.0 * turn, held)
        experience.lose(left, half)

    within = 0.01 if times > 50 else 0.0
    assert experience.hit_weight == pytest.approx(weight, abs=within)


@pytest.mark.parametrize(
    ("sizes", "weight"),
    [
        pytest.param((2, 3), 5.0 / -math.expm1(-5.0), id="a change every 100 s"),
        pytest.param((4,), 1.0, id="none"),
        pytest.param((0, 4), 1.0, id="starts and ends are none"),
        pytest.param((4, 0), 1.0, id="ends and starts are none"),
    ],
)
def test_a_change_weighs_more_the_more_often_trainers_change(
    sizes: tuple[int, ...], weight: float
) -> None:
    experience = Experience()
    for turn in range(2_000):
        nodes = frozenset(range(sizes[turn % len(sizes)]))
        experience.note(100.0 * turn, {"a": nodes})

    assert experience.change_weight(HORIZON_S) == pytest.approx(weight, rel=0.01)


def test_time_without_nodes_is_not_time_trained() -> None:
    experience = Experience()
    for turn in range(2_000):
        for after_s, nodes in ((0.0, 1), (100.0, 2), (200.0, 0)):
            held = {"a": frozenset(range(nodes)), "b": frozenset[int]()}
            experience.note(1_000.0 * turn + after_s, held)

    # A change in 200 s of training.
    weight = 2.5 / -math.expm1(-2.5)
    assert experience.change_weight(HORIZON_S) == pytest.approx(weight, rel=0.01)


@given(st.lists(st.sets(st.integers(0, 9)), max_size=30))
def test_a_change_never_weighs_less_and_a_hit_never_more_than_1(
    holdings: list[set[int]],
) -> None:
    experience = Experience()
    for turn, held in enumerate(holdings):
        experience.lose(held, half)
        experience.note(10.0 * turn, {"a": frozenset(held)})

    assert experience.change_weight(HORIZON_S) >= 1.0
    assert 0.0 <= experience.hit_weight <= 1.0


def test_saved_and_loaded_it_goes_on_as_if_it_had_not_been() -> None:
    straight, first = Experience(), Experience()
    for own in (straight, first):
        own.note(0.0, TWO_CLUSTERS)
    second = Experience(json.loads(json.dumps(first.to_state())))
    for own in (straight, second):
        own.lose({1, 2}, half)
        own.note(70.0, {"a": frozenset({3, 4})})

    assert second.to_state() == straight.to_state()
    assert second.nodes == {3, 4}


def test_nothing_is_learned_of_the_time_of_a_gap() -> None:
    experience = Experience()
    experience.note(0.0, TWO_CLUSTERS)
    before = experience.to_state()
    experience.forget_pool()
    experience.note(9_000.0, {"a": frozenset({1})})

    after = experience.to_state()
    assert {**after, "held": 0, "at_s": 0} == {**before, "held": 0, "at_s": 0}
