"""Promised ends of idle nodes, scored by when the nodes left."""

import json
import math
from collections.abc import Collection
from itertools import pairwise
from typing import TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from freetrain.lookahead.base import Prospect
from freetrain.lookahead.promises import Promise, Promises

HORIZON_S = 400.0
STAYS = Prospect(HORIZON_S, 0.0, 1.0)
UNSURE = Prospect(350.0, 0.25, 1.0)

Snapshots: TypeAlias = "list[tuple[float, set[int], dict[int, float]]]"
"""Seconds since the one before, the nodes that left, and leads of promises by node."""


def see(
    promises: Promises, at_s: float, *nodes: int, end_s: float, lost: Collection[int]
) -> None:
    promises.see(at_s, left=lost, promised=dict.fromkeys(nodes, Promise(end_s, "7")))


def lived(
    promises: Promises,
    *,
    lead_s: float,
    usable_s: float = math.inf,
    plain: Prospect = STAYS,
) -> Prospect:
    return promises.prospect(
        plain, lead_s=lead_s, usable_s=usable_s, horizon_s=HORIZON_S
    )


def taught(
    *left_s: float, lead_s: float = 1_000.0, nodes: int = 1, times: int = 1
) -> Promises:
    """Promise some nodes *lead_s* ahead, which leave after *left_s*, in turn."""
    promises = Promises()
    for turn, after_s in enumerate(left_s * times):
        at_s, own = turn * 1e5, range(nodes)
        see(promises, at_s, *own, end_s=at_s + lead_s, lost=())
        see(promises, at_s + after_s, end_s=0.0, lost=own)
    return promises


def test_a_promise_is_believed_until_something_is_learned_of_promises() -> None:
    soon, later = (lived(Promises(), lead_s=lead_s) for lead_s in (100.0, 3_000.0))

    assert soon.life_s < 150.0
    assert soon.hit > 0.99
    assert later.life_s == pytest.approx(HORIZON_S)
    assert later.hit == pytest.approx(0.0)


def test_an_overdue_promise_is_expected_to_come_four_times_a_lead() -> None:
    survival = Promises().survival(0.0, lead_s=-10.0, after_s=30.0)

    assert survival == pytest.approx(math.exp(-4.0))


def test_the_prospect_without_the_promise_counts_until_it_is_due() -> None:
    far = lived(Promises(), lead_s=50_000.0, plain=UNSURE)

    assert far.hit == pytest.approx(UNSURE.hit)


def test_promises_that_came_early_are_expected_to_come_early_again() -> None:
    early, late = taught(100.0, times=30), taught(1_800.0, times=30)

    assert lived(early, lead_s=1_000.0).life_s < 200.0
    assert lived(late, lead_s=1_000.0).life_s == pytest.approx(HORIZON_S, rel=0.05)
    assert early.survival(0.0, lead_s=1_000.0, after_s=300.0) < 0.3
    assert late.survival(0.0, lead_s=300.0, after_s=400.0) < late.survival(
        0.0, lead_s=1_000.0, after_s=400.0
    )


def test_a_promise_that_is_withdrawn_still_counts() -> None:
    promises = Promises()
    for turn in range(30):
        at_s = turn * 1e5
        see(promises, at_s, 1, end_s=at_s + 300.0, lost=())
        see(promises, at_s + 60.0, end_s=0.0, lost=())
        see(promises, at_s + 9_000.0, end_s=0.0, lost=(1,))

    (interval,) = promises.intervals()

    assert lived(promises, lead_s=300.0).life_s > 0.9 * HORIZON_S
    assert (interval.late, interval.lead_s) == (1.0, 300.0)


def test_delays_are_counted_by_lead() -> None:
    (interval,) = taught(500.0, 900.0, 1_000.0, 1_040.0, 1_400.0, nodes=2).intervals()

    assert (interval.lead_s, interval.nodes) == (600.0, 10)
    assert (interval.early, interval.late) == (0.4, 0.2)
    assert interval.low_s < -60.0 < interval.middle_s < 60.0 < interval.high_s


def test_a_node_counts_once_for_each_kind_of_promise() -> None:
    promises = Promises()
    for now_s in range(0, 1_000, 10):
        see(promises, now_s, 1, end_s=1_000.0 + now_s % 20, lost=())
    see(promises, 1_000.0, end_s=0.0, lost=(1,))

    assert [(own.lead_s, own.nodes) for own in promises.intervals()] == [
        *((0.0, 1), (120.0, 1), (300.0, 1), (600.0, 1))
    ]


def test_many_nodes_of_one_promise_teach_less_than_as_many_promises() -> None:
    many, few = taught(100.0, nodes=100), taught(100.0, times=100)

    assert lived(few, lead_s=1_000.0).hit > lived(many, lead_s=1_000.0).hit + 0.1


def test_promises_from_before_a_gap_teach_nothing() -> None:
    promises = Promises()
    see(promises, 0.0, 1, end_s=1_000.0, lost=())
    promises.forget_pool()
    see(promises, 9e5, end_s=0.0, lost=())

    assert promises.intervals() == ()
    assert lived(promises, lead_s=1_000.0) == lived(Promises(), lead_s=1_000.0)


SNAPSHOTS = st.lists(
    st.tuples(
        st.floats(1.0, 5_000.0),
        st.sets(st.integers(0, 5)),
        st.dictionaries(st.integers(0, 5), st.floats(-500.0, 9_000.0)),
    ),
    max_size=12,
)


def show(snapshots: Snapshots, *learners: Promises, now_s: float = 0.0) -> None:
    for passed_s, left, leads_s in snapshots:
        now_s += passed_s
        promised = {n: Promise(now_s + lead_s, "7") for n, lead_s in leads_s.items()}
        for promises in learners:
            promises.see(now_s, left=left, promised=promised)


@given(SNAPSHOTS, st.floats(-500.0, 9_000.0), st.floats(0.0, 9_000.0))
def test_prospects_and_survivals_are_always_possible(
    snapshots: Snapshots, lead_s: float, usable_s: float
) -> None:
    promises = Promises()
    show(snapshots, promises)

    prospect = lived(promises, lead_s=lead_s, usable_s=usable_s, plain=UNSURE)
    chances = [
        promises.survival(1e-3, lead_s=lead_s, after_s=after_s)
        for after_s in (0.0, 30.0, 300.0, 3_000.0)
    ]

    assert 0.0 <= prospect.life_s <= min(usable_s, HORIZON_S)
    assert 0.0 <= prospect.hit <= 1.0
    assert chances[0] == 1.0
    assert all(0.0 <= b <= a for a, b in pairwise(chances))


@given(SNAPSHOTS, SNAPSHOTS)
def test_saved_and_loaded_promises_go_on_as_if_they_had_not_been(
    before: Snapshots, after: Snapshots
) -> None:
    straight = Promises()
    show(before, straight)
    kept = Promises(json.loads(json.dumps(straight.to_state())))
    show(after, straight, kept, now_s=1e5)

    assert kept.to_state() == straight.to_state()
