"""Which holes can be planned with, and the classes they fall into."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from freetrain.broker.limits import Limits, Refusal
from freetrain.broker.pool import classify, pool_of
from freetrain.broker.yielding import Claims, KeptFree
from tests.broker.broker_records import NOW_S, generation, hole, lease, situation

if TYPE_CHECKING:
    from collections.abc import Sequence

    from freetrain.broker.pool import PoolNode


def test_holes_that_cannot_be_used_say_why() -> None:
    found = [hole(f"n{i}") for i in range(7)]
    found[1] = hole("n1", NOW_S + 179)
    found[2] = replace(found[2], end_s=None)
    found[3] = replace(found[3], held_by=(1,))
    leases = (lease(4, "n4", notice_s=NOW_S), lease(5, "n5", end_s=NOW_S + 5))

    claims = Claims({"n0": 1, "n6": 1}, {}, kept_free=KeptFree({"n6": 1}, 0))
    seen = situation(
        *leases,
        holes={"any": found},
        claims=claims,
        assignments=(generation("a", 5),),
    )

    pool = pool_of(seen, Limits())

    assert [node.name for node in pool.nodes] == ["n5"]
    assert pool.refused == {
        "n0": Refusal.CLAIMED,
        "n1": Refusal.TOO_SHORT,
        "n2": Refusal.HIDDEN_END,
        "n3": Refusal.LEAVING,
        "n4": Refusal.LEAVING,
        "n6": Refusal.KEPT_FREE,
    }


def test_nobody_is_ranked_where_all_may_be_leased() -> None:
    def rank(nodes: Sequence[PoolNode]) -> Sequence[PoolNode]:
        ranked.append(len(nodes))
        return nodes

    ranked: list[int] = []
    for cap in (2, 3):
        seen = situation(holes={"any": [hole("n0"), hole("n1"), hole("n2")]})
        pool_of(seen, Limits(most_leases=cap), rank=rank)

    assert ranked == [3]


def test_a_lease_of_the_least_limit_is_still_worth_a_start_when_it_runs() -> None:
    limits = Limits(least_limit_min=2)
    leases = (
        lease(0, "n0", end_s=NOW_S + 115),  # five seconds old, not assigned yet
        lease(1, "n1", end_s=NOW_S + 59),
    )

    holes = {"any": [hole("n0", NOW_S + 150), hole("n1", NOW_S + 150)]}

    pool = pool_of(situation(*leases, holes=holes), limits)

    assert [node.name for node in pool.nodes] == ["n0"]
    assert pool.refused == {"n1": Refusal.TOO_SHORT}


def test_classes_are_told_apart_by_use_and_live_as_long_as_their_shortest() -> None:
    holes = {
        "any": [hole(f"n{i}", NOW_S + 200.0 * (i + 1)) for i in range(3)],
        "gpu": [hole("n0", NOW_S + 200.0)],
    }
    pool = pool_of(situation(holes=holes), Limits())

    classes = classify(pool, now_s=NOW_S).classes

    assert [(one.name, one.nodes, one.life_s) for one in classes] == [
        ("any", 2, 400.0),
        ("any+gpu", 1, 200.0),
    ]
