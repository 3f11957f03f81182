"""What leases keep off, lest the end of one job makes somebody wait for long."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import pytest

from freetrain.broker.backfill import BackfillState, LeaseSpan
from freetrain.broker.yielding import DelayProtection, find_claims, keep_free
from slurm.holes import Hole, HoleEnd
from tests.broker.broker_records import NOW_S, hole
from tests.broker.test_claims import NODES, waiting

if TYPE_CHECKING:
    from collections.abc import Callable

    from freetrain.broker.yielding import Claims
    from slurm.records import JobRecord

FOUR = {f"n{k}": replace(NODES["n0"], name=f"n{k}") for k in range(4)}
GROUND = BackfillState(
    holes=(hole("n0"), hole("n1")),
    nodes=FOUR,
    leased=frozenset({"n0"}),
    spans={"n0": LeaseSpan(NOW_S - 600, NOW_S + 1_620)},
    busy_until_s={"n2": NOW_S + 2_300, "n3": NOW_S + 9_000},
)
ONE, OTHER = frozenset({"n2"}), frozenset({"n3"})
WIDE = waiting(1, nodes=3, priority=3)
SECOND = waiting(2, priority=2, limit_s=1_000.0, requested_nodes="n2")


def careful(
    *jobs: JobRecord,
    running: tuple[frozenset[str], ...] = (ONE, OTHER),
    most_ends: int = 100,
    is_late: Callable[[], bool] = bool,
    ground: BackfillState = GROUND,
) -> Claims:
    caution = DelayProtection(
        running, 30.0, 14_400.0, most_ends=most_ends, is_out_of_time=is_late
    )
    return find_claims(
        jobs,
        ground,
        is_ours=lambda _: False,
        now_s=NOW_S,
        protect=partial(keep_free, protection=caution),
    )


def test_nodes_are_kept_off_that_one_needs_whom_another_would_go_ahead_of() -> None:
    # n2 comes free early, a second before a cycle: three nodes for the first, were
    # none leased. Beside leases the second is over before the first can begin.
    claims = careful(WIDE, SECOND)

    assert claims.kept_free.nodes == {"n0": 1, "n1": 1}
    assert (claims.leased, claims.idle) == ({"n0": 1}, {"n1": 1})
    assert claims.kept_free.untried == 0


def test_who_starts_a_cycle_later_is_worth_no_care() -> None:
    assert careful(WIDE).nodes == set()


def test_what_was_planned_for_somebody_who_starts_elsewhere_is_free_for_others() -> (
    None
):
    # The first has n0 and n1 with n3 in 20 s. If n2, n4 and n5 come free it starts
    # there, beside leases, and the second a cycle later on what was planned for it.
    six = {f"n{k}": replace(NODES["n0"], name=f"n{k}") for k in range(6)}
    two = dict.fromkeys(("n0", "n1"), LeaseSpan(NOW_S - 600, NOW_S + 9_000))
    ground = replace(
        GROUND,
        holes=tuple(
            Hole(name, NOW_S, NOW_S + 35.0, HoleEnd.PLANNED_JOB, "1") for name in two
        ),
        nodes=six,
        leased=frozenset(two),
        spans=two,
        busy_until_s={"n3": NOW_S + 20, **dict.fromkeys(("n2", "n4", "n5"), 2e9)},
    )
    jobs = (WIDE, waiting(2, nodes=2, priority=2, limit_s=600.0))

    claims = careful(*jobs, running=(frozenset({"n2", "n4", "n5"}),), ground=ground)

    assert claims.kept_free.nodes == {}


def test_nothing_is_kept_off_where_the_other_cannot_go_ahead() -> None:
    # A lease that begins on n1 ends when n2 comes free by its limit, in 2,300 s.
    def nodes(limit_s: float) -> frozenset[str]:
        return careful(WIDE, replace(SECOND, limit_s=limit_s)).nodes

    assert nodes(2_310.0) == set()
    # Of n0 and n1 the idle one is enough: the lease of n0 is over after 1,620 s, and
    # nobody can go ahead until then.
    assert nodes(2_290.0) == {"n1"}
    assert nodes(1_610.0) == {"n0", "n1"}


def test_where_nobody_waits_nothing_is_kept_off() -> None:
    # Who comes later, in the second before a cycle, nobody can know of.
    assert careful().nodes == set()


def test_a_node_that_two_jobs_hold_comes_free_with_neither() -> None:
    assert careful(WIDE, SECOND, running=(ONE, OTHER | ONE)).nodes == set()
    assert careful(WIDE, SECOND, running=(ONE, OTHER)).nodes == {"n0", "n1"}


def test_those_on_the_most_nodes_are_tried_and_it_is_told_that_others_are_not() -> None:
    five = {**FOUR, "n4": replace(NODES["n0"], name="n4")}
    ground = replace(
        GROUND, nodes=five, busy_until_s={**GROUND.busy_until_s, "n4": 2e5}
    )
    small, large = ONE, frozenset({"n3", "n4"})

    claims = careful(WIDE, SECOND, running=(small, large), most_ends=1, ground=ground)
    assert (set(claims.nodes), claims.kept_free.untried) == (set(), 1)

    claims = careful(WIDE, SECOND, running=(small, large), ground=ground)
    assert (set(claims.nodes), claims.kept_free.untried) == ({"n0", "n1"}, 0)


@pytest.mark.parametrize(
    ("plans", "untried", "kept"),
    [(0, 2, 0), (5, 2, 0), (6, 1, 2), (10, 1, 2), (11, 0, 2)],
)
def test_when_time_is_over_what_was_not_tried_to_the_end_is_counted(
    plans: int, untried: int, kept: int
) -> None:
    answers = iter([False] * plans)
    late = careful(WIDE, SECOND, is_late=lambda: next(answers, True))

    assert (late.kept_free.untried, len(late.kept_free.nodes)) == (untried, kept)


def test_when_time_is_over_while_fewer_are_looked_for_all_that_suffice_are_kept() -> (
    None
):
    # The idle node is enough: the lease is over before the second could go ahead.
    shorter = replace(SECOND, limit_s=2_290.0)

    def kept(plans: int) -> set[str]:
        answers = iter([False] * plans)
        found = careful(WIDE, shorter, is_late=lambda: next(answers, True))
        return set(found.kept_free.nodes)

    assert [kept(plans) for plans in (5, 6, 8)] == [set(), {"n0", "n1"}, {"n0", "n1"}]
    assert kept(9) == {"n1"}


def test_leases_are_kept_off_that_move_the_plan_of_another_onto_what_comes_free() -> (
    None
):
    # Without the lease of n0 the first has n0, n1 and n2 in 200 s, and the second n3,
    # which comes free now. Beside it the first has n3 then, and the third till then.
    ground = replace(
        GROUND,
        holes=(hole("n0"),),
        spans={"n0": LeaseSpan(NOW_S - 600, NOW_S + 3_600)},
        busy_until_s={"n1": NOW_S + 200, "n2": NOW_S + 200, "n3": NOW_S + 9_000},
    )
    slow = {
        name: replace(node, features=node.features | {"slow"})
        for name, node in FOUR.items()
        if name != "n0"
    }
    jobs = [
        waiting(1, nodes=3, priority=3),
        waiting(2, priority=2, limit_s=1_000.0, features="slow"),
        waiting(3, priority=1, limit_s=100.0, features="slow"),
    ]
    ground = replace(ground, nodes={**FOUR, **slow})

    claims = careful(*jobs, running=(OTHER,), ground=ground)
    assert claims.kept_free.nodes == {"n0": 2}
    assert careful(*jobs[:2], running=(OTHER,), ground=ground).nodes == set()
