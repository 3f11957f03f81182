"""Nodes sorted into classes by what is expected of them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from freetrain.broker.pool import Pool, PoolNode, classify_by
from freetrain.lookahead.base import Prospect
from milp.problem import throughput
from milp.window import Window, WindowClass, WindowTrainer, gain
from tests.broker.broker_records import NOW_S, lease
from tests.broker.foretold import Told, foresight

if TYPE_CHECKING:
    from collections.abc import Mapping

    from freetrain.broker.lease import Lease
    from milp.window import Holding


def pool(*ends_s: float, leased: Mapping[str, Lease] | None = None) -> Pool:
    nodes = (
        PoolNode(name, frozenset({"any"}), NOW_S + end_s, (leased or {}).get(name))
        for name, end_s in ((f"n{k}", end_s) for k, end_s in enumerate(ends_s))
    )
    return Pool(tuple(nodes), {})


def _gains(
    stays: Mapping[int, WindowClass],
    keep: Holding,
    grow: Holding,
    *,
    fresh: dict[int, float],
) -> list[float]:
    """Return what keeping and what growing gains."""
    curve = throughput([n**0.9 for n in range(12)])
    one = WindowTrainer(curve, keep, 20.0, 20.0, 20.0, 1_800.0, fresh)
    window = Window(stays, {}, (one,), hit_weight=0.37, change_weight=1.2)
    return [gain(window, 0, keep), gain(window, 0, grow)]


def stays_of(told: Told, idle: Pool) -> list[WindowClass]:
    _, forecast = classify_by(foresight(told), idle, now_s=NOW_S)
    return list(forecast.stays.values())


def test_nodes_of_a_group_are_a_class_and_those_that_leave_alone_are_another() -> None:
    told = Told(groups={"n1": "rack", "n3": "rack"})
    classes, _ = classify_by(foresight(told), pool(*[math.inf] * 5), now_s=NOW_S)
    by_class: dict[int, set[str]] = {}
    for name, k in classes.index.items():
        by_class.setdefault(k, set()).add(name)
    assert sorted(map(sorted, by_class.values())) == [["n0", "n2", "n4"], ["n1", "n3"]]


def test_hits_on_nodes_that_leave_alone_add_up_and_those_of_a_group_do_not() -> None:
    moody = Prospect(300.0, 0.2, 1.0)
    alone = Told(prospects={f"n{k}": moody for k in range(4)})
    rack = Told(dict.fromkeys(("n0", "n1", "n2", "n3"), "rack"), {"rack": moody})
    idle = pool(*[math.inf] * 4)

    (apart,) = stays_of(alone, idle)
    (one,) = stays_of(rack, idle)

    assert apart.hits() == pytest.approx([0.0, 0.2, 0.4, 0.6, 0.8], abs=1e-4)
    assert one.hits() == pytest.approx([0.0, 0.2, 0.2, 0.2, 0.2])
    assert apart.life_s == one.life_s == 300.0


@given(st.floats(0.0, 1.0), st.floats(0.05, 1.0), st.integers(1, 8), st.data())
def test_hits_on_the_part_of_a_group_that_is_in_the_pool_are_those_of_the_whole_group(
    hit: float, share: float, size: int, data: st.DataObject
) -> None:
    here = data.draw(st.integers(1, size))
    names = [f"n{k}" for k in range(here)]
    told = Told(
        dict.fromkeys(names, "rack"),
        {"rack": Prospect(300.0, hit, share)},
        {"rack": size},
    )

    (stay,) = stays_of(told, pool(*[math.inf] * here))

    whole = WindowClass(size, 300.0, hit, share)
    assert stay.hits() == pytest.approx(whole.hits()[: here + 1])
    assert here < size or stay == whole


@given(
    st.floats(0.0, 1.0),
    st.floats(0.05, 1.0),
    st.tuples(
        st.integers(1, 4), st.integers(0, 3), st.integers(1, 4), st.integers(0, 3)
    ),
)
def test_growing_to_the_rest_of_its_own_group_is_worth_what_it_is_in_a_replay(
    hit: float, share: float, parts: tuple[int, int, int, int]
) -> None:
    """Some are its own, some leased and free, some wait; others are in no pool."""
    own, free, waiting, _ = parts
    here, size = own + free + waiting, sum(parts)
    told = Told(
        {f"n{k}": "rack" for k in range(here)},
        {"rack": Prospect(300.0, hit, share)},
        {"rack": size},
    )
    leased = {f"n{k}": lease(k, f"n{k}") for k in range(own + free)}
    classes, forecast = classify_by(
        foresight(told, wait_s=1e-9),
        pool(*[math.inf] * here, leased=leased),
        now_s=NOW_S,
    )
    first, last = classes.index["n0"], classes.index[f"n{here - 1}"]
    whole = WindowClass(size, 300.0, hit, share)

    split = _gains(
        forecast.stays,
        {first: own},
        {first: own + free, last: waiting},
        fresh=forecast.fresh({first: own}, {first: free, last: waiting}),
    )
    replayed = _gains({0: whole}, {0: own}, {0: here}, fresh={})

    assert first != last
    assert split == pytest.approx(replayed)


@given(
    st.lists(st.sampled_from(["a", "b", "c"]), max_size=6),
    st.sampled_from([0.0, 30.0]),
    st.sets(st.sampled_from(["a", "b", "c"])),
)
def test_hits_count_as_they_are_where_no_group_is_split(
    groups: list[str], wait_s: float, groups_leased: set[str]
) -> None:
    told = Told({f"n{k}": group for k, group in enumerate(groups)})
    leased = {
        f"n{k}": lease(k, f"n{k}")
        for k, group in enumerate(groups)
        if group in groups_leased
    }

    _, forecast = classify_by(
        foresight(told, wait_s=wait_s),
        pool(*[math.inf] * len(groups), leased=leased),
        now_s=NOW_S,
    )

    free = {k: stay.nodes for k, stay in forecast.stays.items()}
    assert forecast.fresh({}, free) == {}


def test_another_trainers_part_of_a_group_eases_nothing() -> None:
    told = Told(dict.fromkeys(("n0", "n1", "n2"), "rack"))
    idle = pool(*[math.inf] * 3, leased={"n0": lease(0, "n0")})
    classes, forecast = classify_by(foresight(told, wait_s=30.0), idle, now_s=NOW_S)
    waits = classes.index["n1"]
    assert forecast.fresh({}, {waits: 2}) == {}
    assert forecast.fresh({classes.index["n0"]: 1}, {waits: 2}) == {waits: 0.0}
    assert forecast.fresh({classes.index["n0"]: 1}, {}) == {}


def test_nodes_alone_in_the_pool_are_hit_as_one_of_their_group() -> None:
    told = Told(
        {f"n{k}": f"rack {k}" for k in range(3)},
        {f"rack {k}": Prospect(300.0, 0.4, 0.125) for k in range(3)},
        {f"rack {k}": 8 for k in range(3)},
    )
    (stay,) = stays_of(told, pool(*[math.inf] * 3))
    one = WindowClass(8, 300.0, 0.4, 0.125).hits()[1]
    assert stay.hits() == pytest.approx([0.0, one, 2 * one, 3 * one], abs=1e-4)


def test_a_known_end_before_the_horizon_ends_the_life_of_a_class_of_its_own() -> None:
    classes, forecast = classify_by(
        foresight(Told()), pool(100.0, 110.0, 9_000.0), now_s=NOW_S
    )
    stays = {classes.index[f"n{k}"]: k for k in range(3)}
    assert len(stays) == 2
    soon = forecast.stays[classes.index["n0"]]
    assert (soon.nodes, soon.life_s) == (2, 60.0)
    assert soon.hits() == [0.0, 1.0, 1.0], "lost at once"


def test_nothing_counts_that_comes_after_plans_reach() -> None:
    told = Told(prospects={"n1": Prospect(370.0, 0.9, 1.0), "n2": Prospect(80.0, 1, 1)})
    nodes = pool(9_000.0, 9_000.0, 9_000.0)
    classes, forecast = classify_by(
        foresight(told, horizon_s=120.0), nodes, now_s=NOW_S
    )
    stays = [forecast.stays[classes.index[f"n{k}"]] for k in range(3)]
    assert [stay.life_s for stay in stays] == [120.0, 120.0, 80.0]
    assert [stay.hit for stay in stays] == [0.0, 0.0, 1.0]
