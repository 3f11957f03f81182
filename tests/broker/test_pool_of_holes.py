"""Which holes can be planned with, and the classes they fall into."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from freetrain.broker.limits import Limits
from freetrain.broker.pool import Refusal, classify, pool_of
from tests.broker.broker_records import NOW_S, hole, key, lease

if TYPE_CHECKING:
    from collections.abc import Sequence

    from freetrain.broker.pool import PoolNode


def test_holes_that_cannot_be_used_say_why() -> None:
    found = [hole(f"n{i}") for i in range(6)]
    found[1] = hole("n1", NOW_S + 179)
    found[2] = replace(found[2], end_s=None)
    found[3] = replace(found[3], held_by=(1,))
    leases = (lease(4, "n4", notice_s=NOW_S), lease(5, "n5", end_s=NOW_S + 5))

    pool = pool_of(
        {"any": found},
        leases,
        claimed=frozenset({"n0"}),
        assigned=frozenset({key(5)}),
        now_s=NOW_S,
        limits=Limits(),
    )

    assert [node.name for node in pool.nodes] == ["n5"]
    assert pool.refused == {
        "n0": Refusal.CLAIMED,
        "n1": Refusal.TOO_SHORT,
        "n2": Refusal.HIDDEN_END,
        "n3": Refusal.LEAVING,
        "n4": Refusal.LEAVING,
    }


def test_nobody_is_ranked_where_all_may_be_leased() -> None:
    def rank(nodes: Sequence[PoolNode]) -> Sequence[PoolNode]:
        ranked.append(len(nodes))
        return nodes

    ranked: list[int] = []
    for cap in (2, 3):
        pool_of(
            {"any": [hole("n0"), hole("n1"), hole("n2")]},
            (),
            claimed=frozenset(),
            assigned=frozenset(),
            now_s=NOW_S,
            limits=Limits(most_leases=cap),
            rank=rank,
        )

    assert ranked == [3]


def test_a_lease_of_the_least_limit_is_still_worth_a_start_when_it_runs() -> None:
    limits = Limits(least_limit_min=2)
    leases = (
        lease(0, "n0", end_s=NOW_S + 115),  # five seconds old, not assigned yet
        lease(1, "n1", end_s=NOW_S + 59),
    )

    pool = pool_of(
        {"any": [hole("n0", NOW_S + 150), hole("n1", NOW_S + 150)]},
        leases,
        claimed=frozenset(),
        assigned=frozenset(),
        now_s=NOW_S,
        limits=limits,
    )

    assert [node.name for node in pool.nodes] == ["n0"]
    assert pool.refused == {"n1": Refusal.TOO_SHORT}


def test_classes_are_told_apart_by_use_and_by_life_and_stay_few() -> None:
    lives_s = [200.0, 400.0, 800.0, 1_600.0, 3_200.0, 6_400.0, 60_000.0]
    holes = {
        "any": [hole(f"n{i}", NOW_S + life_s) for i, life_s in enumerate(lives_s)],
        "gpu": [hole("n0", NOW_S + 200.0)],
    }
    pool = pool_of(
        holes,
        (),
        claimed=frozenset(),
        assigned=frozenset(),
        now_s=NOW_S,
        limits=Limits(),
    )
    rungs_s = (300.0, 600.0, 1_200.0, 2_400.0, 4_800.0, 9_600.0)

    plain = classify(pool, now_s=NOW_S)
    fine = classify(pool, now_s=NOW_S, rungs_s=rungs_s)
    few = classify(pool, now_s=NOW_S, rungs_s=rungs_s, most=4)

    assert [one.nodes for one in plain.classes] == [6, 1]
    assert len(fine.classes) == 7
    assert len(few.classes) <= 4
    assert few.classes[0].life_s == 400.0
