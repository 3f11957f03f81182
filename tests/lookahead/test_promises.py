"""What is promised of idle nodes, held against what came."""

from __future__ import annotations

import json
import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from freetrain.lookahead.base import Prospect
from freetrain.lookahead.promises import Promise, Promises

HORIZON_S = 400.0
STAYS = Prospect(HORIZON_S, 0.0, 1.0)
MOODY = Prospect(350.0, 0.25, 1.0)


def promised(end_s: float, *nodes: int, by: str = "7") -> dict[int, Promise]:
    return dict.fromkeys(nodes, Promise(end_s, by))


def lived(promises: Promises, *, lead_s: float, usable_s: float = math.inf) -> Prospect:
    return promises.prospect(
        STAYS, lead_s=lead_s, usable_s=usable_s, horizon_s=HORIZON_S
    )


def taught(part: float, *, times: int = 30, lead_s: float = 1_000.0) -> Promises:
    """Show promises that all come after *part* of their lead."""
    promises = Promises()
    for turn in range(times):
        at_s = turn * 1e5
        promises.see(at_s, left=(), promised=promised(at_s + lead_s, 1))
        promises.see(at_s + part * lead_s, left=(1,), promised={})
    return promises


def test_a_promise_is_believed_until_something_is_known_of_promises() -> None:
    promises = Promises()

    soon, later = lived(promises, lead_s=100.0), lived(promises, lead_s=3_000.0)

    assert soon.life_s < 150.0
    assert soon.hit > 0.99
    assert later.life_s == pytest.approx(HORIZON_S)
    assert later.hit == pytest.approx(0.0)


def test_what_is_expected_without_the_promise_counts_until_it_is_due() -> None:
    promises = Promises()

    told = promises.prospect(
        MOODY, lead_s=50_000.0, usable_s=math.inf, horizon_s=HORIZON_S
    )

    assert told.hit == pytest.approx(MOODY.hit)


def test_promises_that_came_early_are_expected_to_come_early_again() -> None:
    early, late = taught(0.1), taught(1.8)

    assert lived(early, lead_s=1_000.0).life_s < 200.0
    assert lived(late, lead_s=1_000.0).life_s == pytest.approx(HORIZON_S, rel=0.05)
    assert early.survival(0.0, lead_s=1_000.0, after_s=300.0) < 0.3
    assert late.survival(0.0, lead_s=300.0, after_s=400.0) < late.survival(
        0.0, lead_s=1_000.0, after_s=400.0
    )


def test_nobody_lives_beyond_what_can_be_used_of_a_hole_and_then_is_hit() -> None:
    told = lived(taught(1.8), lead_s=1_000.0, usable_s=60.0)

    assert told.life_s <= 60.0
    assert told.hit == 1.0


def test_a_promise_that_is_taken_back_still_counts_for_what_it_was() -> None:
    promises = Promises()
    for turn in range(30):
        at_s = turn * 1e5
        promises.see(at_s, left=(), promised=promised(at_s + 300.0, 1))
        promises.see(at_s + 60.0, left=(), promised={})
        promises.see(at_s + 9_000.0, left=(1,), promised={})

    (told,) = promises.intervals()

    assert lived(promises, lead_s=300.0).life_s > 0.9 * HORIZON_S
    assert told.late == 1.0
    assert told.lead_s == 300.0


def test_the_interval_between_promised_and_came_is_told_by_lead() -> None:
    promises = Promises()
    for turn, came_s in enumerate((500.0, 900.0, 1_000.0, 1_040.0, 1_400.0)):
        at_s = turn * 1e5
        promises.see(at_s, left=(), promised=promised(at_s + 1_000.0, 1, 2))
        promises.see(at_s + came_s, left=(1, 2), promised={})

    (told,) = promises.intervals()

    assert (told.lead_s, told.nodes) == (600.0, 10)
    assert (told.early, told.late) == (0.4, 0.2)
    assert told.low_s < -60.0 < told.middle_s < 60.0 < told.high_s


def test_a_node_counts_once_for_each_kind_of_promise_however_often_it_is_told() -> None:
    promises = Promises()
    for now_s in range(0, 1_000, 10):
        promises.see(now_s, left=(), promised=promised(1_000.0 + now_s % 20, 1))
    promises.see(1_000.0, left=(1,), promised={})

    assert [one.nodes for one in promises.intervals()] == [1, 1, 1, 1]
    assert [one.lead_s for one in promises.intervals()] == [0.0, 120.0, 300.0, 600.0]


def test_many_nodes_of_one_promise_teach_less_than_as_many_promises() -> None:
    many, few = Promises(), Promises()
    many.see(0.0, left=(), promised=promised(1_000.0, *range(100)))
    many.see(100.0, left=range(100), promised={})
    for turn in range(100):
        few.see(turn * 1e5, left=(), promised=promised(turn * 1e5 + 1_000.0, 1))
        few.see(turn * 1e5 + 100.0, left=(1,), promised={})

    assert lived(few, lead_s=1_000.0).hit > lived(many, lead_s=1_000.0).hit + 0.1


def test_a_pool_that_was_lost_sight_of_teaches_nothing() -> None:
    promises = Promises()
    promises.see(0.0, left=(), promised=promised(1_000.0, 1))
    promises.forget_pool()
    promises.see(9e5, left=(), promised={})

    assert promises.intervals() == ()
    assert lived(promises, lead_s=1_000.0) == lived(Promises(), lead_s=1_000.0)


LOOKS = st.lists(
    st.tuples(
        st.floats(1.0, 5_000.0),
        st.sets(st.integers(0, 5)),
        st.dictionaries(st.integers(0, 5), st.floats(-500.0, 9_000.0)),
    ),
    max_size=12,
)


def shown(looks: list[tuple[float, set[int], dict[int, float]]]) -> Promises:
    promises, now_s = Promises(), 0.0
    for passed_s, left, leads_s in looks:
        now_s += passed_s
        told = {n: Promise(now_s + lead_s, "7") for n, lead_s in leads_s.items()}
        promises.see(now_s, left=left, promised=told)
    return promises


@given(LOOKS, st.floats(-500.0, 9_000.0), st.floats(0.0, 9_000.0))
def test_prospects_are_possible_whatever_was_seen(
    looks: list[tuple[float, set[int], dict[int, float]]],
    lead_s: float,
    usable_s: float,
) -> None:
    promises = shown(looks)

    told = promises.prospect(
        MOODY, lead_s=lead_s, usable_s=usable_s, horizon_s=HORIZON_S
    )
    chances = [
        promises.survival(1e-3, lead_s=lead_s, after_s=after_s)
        for after_s in (0.0, 30.0, 300.0, 3_000.0)
    ]

    assert 0.0 <= told.life_s <= min(usable_s, HORIZON_S)
    assert 0.0 <= told.hit <= 1.0
    assert chances[0] == 1.0
    assert all(0.0 <= b <= a for a, b in pairwise(chances))


@given(LOOKS, LOOKS)
def test_what_is_kept_in_between_goes_on_as_if_nothing_had_been(
    before: list[tuple[float, set[int], dict[int, float]]],
    after: list[tuple[float, set[int], dict[int, float]]],
) -> None:
    straight = shown(before)
    kept = Promises(json.loads(json.dumps(straight.to_state())))
    now_s = 1e5
    for passed_s, left, leads_s in after:
        now_s += passed_s
        for one in (straight, kept):
            told = {n: Promise(now_s + lead, "7") for n, lead in leads_s.items()}
            one.see(now_s, left=left, promised=told)

    assert kept.to_state() == straight.to_state()


@pytest.mark.parametrize(
    "broken",
    [
        {"hits": [[1.0]]},
        {"hits": [[-1.0] * 9] * 6},
        {"delays": []},
        {"delays": [[1]] * 6},
        {"told": [[5.0, 4.0, 0, 1, [1], 0.0]]},
        {"told": [[1, 2]]},
    ],
)
def test_a_state_that_cannot_be_is_refused(broken: dict[str, object]) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - whatever it says
        Promises(Promises().to_state() | broken)
