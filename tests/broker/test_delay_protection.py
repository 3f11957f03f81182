"""Nodes kept free, lest the early end of one job makes another wait for long."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import pytest

from freetrain.broker.yielding import DelayProtection, find_claims, keep_free
from slurm.holes import Hole, HoleEnd
from tests.broker.broker_records import NOW_S
from tests.broker.waiting_jobs import NODES, state_of, waiting

if TYPE_CHECKING:
    from collections.abc import Callable

    from freetrain.broker.backfill import BackfillState
    from freetrain.broker.yielding import Claims
    from slurm.records import JobRecord

BUSY_S = {"n2": 2_300, "n3": 9_000}
STATE = state_of("n1", "n0", lease_s=(-600, 1_620), busy_s=BUSY_S)
ONE, OTHER = frozenset({"n2"}), frozenset({"n3"})
WIDE = waiting(1, nodes=3, priority=3)
SECOND = waiting(2, priority=2, limit_s=1_000.0, requested_nodes="n2")


def careful(
    *jobs: JobRecord,
    running: tuple[frozenset[str], ...] = (ONE, OTHER),
    most_ends: int = 100,
    is_late: Callable[[], bool] = bool,
    state: BackfillState = STATE,
) -> Claims:
    protection = DelayProtection(
        running, 30.0, 14_400.0, most_ends=most_ends, is_out_of_time=is_late
    )
    return find_claims(
        jobs,
        state,
        is_ours=lambda _: False,
        now_s=NOW_S,
        protect=partial(keep_free, protection=protection),
    )


def after(plans: int, second: JobRecord = SECOND) -> Claims:
    """Return the claims where there is time for so many plans."""
    answers = iter([False] * plans)
    return careful(WIDE, second, is_late=lambda: next(answers, True))


def test_nodes_are_kept_free_for_a_job_that_another_would_go_ahead_of() -> None:
    # n2 comes free early, a second before a cycle: three nodes for the first, were
    # none leased. Beside leases the second is over before the first can begin.
    claims = careful(WIDE, SECOND)
    assert claims.kept_free.nodes == {"n0": 1, "n1": 1}
    assert (claims.leased, claims.idle) == ({"n0": 1}, {"n1": 1})
    assert claims.kept_free.untried == 0


@pytest.mark.parametrize(
    ("jobs", "running"),
    [
        pytest.param([WIDE], (ONE, OTHER), id="it starts a cycle later"),
        pytest.param([], (ONE, OTHER), id="no job waits"),
        pytest.param([WIDE, SECOND], (ONE, OTHER | ONE), id="two jobs hold the node"),
    ],
)
def test_nothing_is_kept_free_where(
    jobs: list[JobRecord], running: tuple[frozenset[str], ...]
) -> None:
    assert careful(*jobs, running=running).nodes == set()


@pytest.mark.parametrize(
    ("limit_s", "nodes"),
    [(2_310.0, set()), (2_290.0, {"n1"}), (1_610.0, {"n0", "n1"})],
)
def test_only_nodes_whose_leases_let_the_other_go_ahead_are_kept_free(
    limit_s: float, nodes: set[str]
) -> None:
    # A lease that begins on n1 ends when n2 comes free by its limit, in 2,300 s; that
    # of n0 is over after 1,620 s, and no job can go ahead until then.
    assert careful(WIDE, replace(SECOND, limit_s=limit_s)).nodes == nodes


def test_nodes_planned_for_a_job_that_starts_elsewhere_are_free_for_others() -> None:
    # The first has n0 and n1 with n3 in 20 s. If n2, n4 and n5 come free it starts
    # there, beside leases, and the second a cycle later on what was planned for it.
    freed = frozenset({"n2", "n4", "n5"})
    state = state_of(
        "",
        "n0 n1",
        lease_s=(-600, 9_000),
        busy_s={"n3": 20, **dict.fromkeys(sorted(freed), 2e9)},
        holes=tuple(
            Hole(name, NOW_S, NOW_S + 35.0, HoleEnd.PLANNED_JOB, "1")
            for name in ("n0", "n1")
        ),
    )
    second = waiting(2, nodes=2, priority=2, limit_s=600.0)

    claims = careful(WIDE, second, running=(freed,), state=state)

    assert claims.kept_free.nodes == {}


def test_jobs_on_the_most_nodes_are_tried_and_the_others_are_counted() -> None:
    large = frozenset({"n3", "n4"})
    state = state_of("n1", "n0", lease_s=(-600, 1_620), busy_s={**BUSY_S, "n4": 2e5})
    jobs, running = (WIDE, SECOND), (ONE, large)
    largest = careful(*jobs, running=running, most_ends=1, state=state)
    both = careful(*jobs, running=running, state=state)
    assert (set(largest.nodes), largest.kept_free.untried) == (set(), 1)
    assert (set(both.nodes), both.kept_free.untried) == ({"n0", "n1"}, 0)


@pytest.mark.parametrize(
    ("plans", "untried", "kept"),
    [(0, 2, 0), (5, 2, 0), (6, 1, 2), (10, 1, 2), (11, 0, 2)],
)
def test_when_time_is_over_the_ends_not_tried_in_full_are_counted(
    plans: int, untried: int, kept: int
) -> None:
    late = after(plans).kept_free
    assert (late.untried, len(late.nodes)) == (untried, kept)


@pytest.mark.parametrize(
    ("plans", "kept"), [(5, set()), (6, {"n0", "n1"}), (8, {"n0", "n1"}), (9, {"n1"})]
)
def test_when_time_is_over_before_the_fewest_are_found_all_that_suffice_are_kept(
    plans: int, kept: set[str]
) -> None:
    # The idle node is enough: the lease is over before the second could go ahead.
    shorter = replace(SECOND, limit_s=2_290.0)
    assert set(after(plans, shorter).kept_free.nodes) == kept


@pytest.mark.parametrize(("jobs", "kept"), [(3, {"n0": 2}), (2, {})])
def test_leases_go_that_move_the_plan_of_another_onto_the_freed_node(
    jobs: int, kept: dict[str, int]
) -> None:
    # Without the lease of n0 the first has n0, n1 and n2 in 200 s, and the second n3,
    # which comes free now. Beside it the first has n3 then, and the third till then.
    slow = {
        name: replace(NODES[name], features=frozenset({"fast", "slow"}))
        for name in ("n1", "n2", "n3")
    }
    state = state_of(
        "",
        "n0",
        busy_s={"n1": 200, "n2": 200, "n3": 9_000},
        nodes={"n0": NODES["n0"], **slow},
    )
    queue = [
        waiting(1, nodes=3, priority=3),
        waiting(2, priority=2, limit_s=1_000.0, features="slow"),
        waiting(3, priority=1, limit_s=100.0, features="slow"),
    ]

    claims = careful(*queue[:jobs], running=(OTHER,), state=state)

    assert (claims.kept_free.nodes, set(claims.nodes)) == (kept, set(kept))
