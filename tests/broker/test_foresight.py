"""Nodes sorted into classes by what is expected of them."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from freetrain.broker.foresight import classify_by
from freetrain.broker.pool import Pool, PoolNode
from freetrain.forecast.interface import Prospect
from milp.window import Stay
from tests.broker.broker_records import NOW_S
from tests.broker.foretold import HORIZON_S, Told


def pool(*ends_s: float) -> Pool:
    nodes = (
        PoolNode(f"n{k}", frozenset({"any"}), NOW_S + end_s)
        for k, end_s in enumerate(ends_s)
    )
    return Pool(tuple(nodes), {})


def test_nodes_of_a_group_are_a_class_and_those_that_leave_alone_are_another() -> None:
    told = Told(groups={"n1": "rack", "n3": "rack"})

    found = classify_by(told, pool(*[math.inf] * 5), now_s=NOW_S, horizon_s=HORIZON_S)

    by_class: dict[int, set[str]] = {}
    for name, k in found.classes.index.items():
        by_class.setdefault(k, set()).add(name)
    assert sorted(map(sorted, by_class.values())) == [["n0", "n2", "n4"], ["n1", "n3"]]


def test_hits_on_nodes_that_leave_alone_add_up_and_those_of_a_group_do_not() -> None:
    moody = Prospect(300.0, 0.2, 1.0)
    alone = Told(prospects={f"n{k}": moody for k in range(4)})
    rack = Told(dict.fromkeys(("n0", "n1", "n2", "n3"), "rack"), {"rack": moody})
    idle = pool(*[math.inf] * 4)

    (apart,) = classify_by(alone, idle, now_s=NOW_S, horizon_s=HORIZON_S).stays
    (one,) = classify_by(rack, idle, now_s=NOW_S, horizon_s=HORIZON_S).stays

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

    (stay,) = classify_by(
        told, pool(*[math.inf] * here), now_s=NOW_S, horizon_s=HORIZON_S
    ).stays

    whole = Stay(size, 300.0, hit, share)
    assert stay.hits() == pytest.approx(whole.hits()[: here + 1])
    assert here < size or stay == whole


def test_each_of_nodes_that_are_alone_in_the_pool_is_hit_as_one_of_its_own_group() -> (
    None
):
    told = Told(
        {f"n{k}": f"rack {k}" for k in range(3)},
        {f"rack {k}": Prospect(300.0, 0.4, 0.125) for k in range(3)},
        {f"rack {k}": 8 for k in range(3)},
    )

    (stay,) = classify_by(
        told, pool(*[math.inf] * 3), now_s=NOW_S, horizon_s=HORIZON_S
    ).stays

    one = Stay(8, 300.0, 0.4, 0.125).hits()[1]
    assert stay.hits() == pytest.approx([0.0, one, 2 * one, 3 * one], abs=1e-4)


def test_a_known_end_before_the_horizon_ends_the_life_of_a_class_of_its_own() -> None:
    found = classify_by(
        Told(), pool(100.0, 110.0, 9_000.0), now_s=NOW_S, horizon_s=HORIZON_S
    )

    stays = {found.classes.index[f"n{k}"]: k for k in range(3)}
    assert len(stays) == 2
    soon = found.stays[found.classes.index["n0"]]
    assert (soon.nodes, soon.life_s) == (2, 60.0)
    assert soon.hits() == [0.0, 1.0, 1.0], "lost at once"


def test_nothing_counts_that_comes_after_plans_reach() -> None:
    told = Told(prospects={"n1": Prospect(370.0, 0.9, 1.0), "n2": Prospect(80.0, 1, 1)})
    nodes = pool(9_000.0, 9_000.0, 9_000.0)
    found = classify_by(told, nodes, now_s=NOW_S, horizon_s=120.0)

    stays = [found.stays[found.classes.index[f"n{k}"]] for k in range(3)]
    assert [stay.life_s for stay in stays] == [120.0, 120.0, 80.0]
    assert [stay.hit for stay in stays] == [0.0, 0.0, 1.0]
