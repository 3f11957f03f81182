"""Single decisions, each with the world that calls for it."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from freetrain.broker.belief import DuplicateJob
from freetrain.broker.lease import Assignment, LeaseState
from freetrain.broker.limits import EndReason, Limits, Mode, Pace
from freetrain.broker.reconcile import (
    EndLeases,
    Submit,
    Wanted,
    WantedLeases,
    WantedTrainer,
    marked_ending,
)
from freetrain.broker.yielding import Claims, KeptFree
from tests.broker.broker_records import (
    NOW_S,
    generation,
    intent,
    key,
    lease,
    reconciled,
    situation,
)

if TYPE_CHECKING:
    from collections.abc import Collection

    from freetrain.broker.pool import Situation

SIZES = (1, 2, 3, 4)
NOTHING = Wanted((), ())


def request(count: int, limit_min: int = 60, end_s: float = math.inf) -> Wanted:
    nodes = tuple(f"m{i}" for i in range(count))
    deadline_s = NOW_S + 7_200.0
    asked = WantedLeases("any", limit_min, limit_min + 1, deadline_s, end_s, nodes)
    return Wanted((), (asked,))


def run(
    wanted: Wanted,
    world: Situation,
    *,
    pool: Collection[str] | None = None,
    **changes: Any,  # noqa: ANN401 - fields of Limits
) -> tuple[object, ...]:
    limits = replace(Limits(), **changes)
    return reconciled(wanted, world, limits, pool=pool)


def wanted(name: str, *tasks: int, awaited: int = 0) -> WantedTrainer:
    return WantedTrainer(name, SIZES, frozenset(key(task) for task in tasks), awaited)


def test_what_is_missing_is_asked_for_in_arrays_no_larger_than_allowed() -> None:
    asked = run(request(5), situation(lease(0)), most_array_tasks=3)

    assert asked == (
        Submit("any", 60, NOW_S + 7_200.0, 3),
        Submit("any", 60, NOW_S + 7_200.0, 1),
    )


def test_a_submission_under_way_counts_as_leases_that_wait() -> None:
    open_intent = intent(deadline_s=NOW_S + 7_200.0, tasks=4)

    asked = run(request(4), situation(intents=(open_intent,)))

    assert asked == ()


@pytest.mark.parametrize(
    ("cap", "leases"),
    [
        ({"most_leases": 3}, 2),
        ({"most_new_leases": 1}, 1),
        ({"most_churn": 2}, 2),
        ({"most_calls": 0}, 0),
    ],
)
def test_caps_are_kept(cap: dict[str, Any], leases: int) -> None:
    asked = run(request(9), situation(lease(0)), **cap)

    assert sum(one.tasks for one in asked if isinstance(one, Submit)) == leases


def test_nothing_is_asked_for_while_paused_blind_or_yielding() -> None:
    failing = Pace(0, 3, NOW_S - 10)
    gives = Claims({"n9": 1}, {})

    assert run(request(1), situation(pace=failing)) == ()
    assert run(request(1), situation(pace=replace(failing, last_failed_s=0.0))) != ()
    assert run(request(1), situation(is_plan_known=False)) == ()
    assert run(request(1), situation(claims=gives)) == ()
    assert (
        run(
            request(1),
            situation(claims=replace(gives, kept_free=KeptFree({"n9": 1}, 0))),
        )
        != ()
    )


def test_a_waiting_lease_that_would_outlast_its_hole_goes() -> None:
    waits = lease(0)

    actions = run(request(1, 30, NOW_S + 1_900.0), situation(waits))

    assert actions[0] == EndLeases(("7_0",), (key(0),), EndReason.SURPLUS)
    assert isinstance(actions[1], Submit)


def test_a_short_one_that_could_start_too_late_for_its_hole_goes_too() -> None:
    waits = lease(0, limit_min=20, deadline_s=NOW_S + 1_900.0)

    kept = run(request(1, 30, NOW_S + 1_840.0), situation(waits))
    replaced = run(request(1, 30, NOW_S + 1_839.0), situation(waits))

    assert kept == ()
    assert len(replaced) == 2


def test_submissions_under_way_count_against_the_cap() -> None:
    other = intent(shape="gpu", tasks=4)

    asked = run(request(9), situation(intents=(other,)), most_leases=6)

    assert [one.tasks for one in asked if isinstance(one, Submit)] == [2]


def test_one_that_can_no_longer_start_is_left_to_slurm() -> None:
    late = lease(0, deadline_s=NOW_S + 3_599.0)

    assert run(NOTHING, situation(late)) == ()


def test_leases_that_nobody_wants_are_told_once_then_ended_when_they_stay() -> None:
    world = situation(lease(0, "n0"), lease(1, "n1"))
    (first,) = run(NOTHING, world)
    assert isinstance(first, EndLeases)
    leases = world.belief.leases
    leaving = situation(*(marked_ending(one, first, NOW_S) for one in leases))
    again = run(NOTHING, leaving)
    late = replace(leaving, now_s=NOW_S + 60.0)

    (last,) = run(NOTHING, late)

    assert (first.by_notice, first.display_ids) == (True, ("7_0", "7_1"))
    assert again == ()
    assert isinstance(last, EndLeases)
    assert (last.why, last.by_notice) == (EndReason.STAYED, False)


def test_a_lease_whose_hole_closed_is_told_whatever_the_churn() -> None:
    world = situation(lease(0, "n0"))
    unseen = situation(lease(0, "n0", start_s=NOW_S + 1.0))

    (one,) = run(NOTHING, world, pool=(), most_churn=0)

    assert isinstance(one, EndLeases)
    assert (one.why, one.by_notice) == (EndReason.HOLE_CLOSED, True)
    assert run(NOTHING, unseen, pool=()) == ()


def test_others_get_claimed_nodes_at_once_and_waiting_leases_go_first() -> None:
    world = situation(
        lease(0),
        lease(1, "n1"),
        lease(2, "n2"),
        claims=Claims({"n1": 5}, {}),
        assignments=(generation("a", 1, 2),),
    )
    plan = Wanted((wanted("a", 2),), ())

    assign, room, gives = run(plan, world, mode=Mode.YIELD, most_churn=0)

    assert isinstance(assign, Assignment)
    assert assign.leases == {key(2)}
    assert room == EndLeases(("7_0",), (key(0),), EndReason.MAKES_ROOM)
    assert gives == EndLeases(("7_1",), (key(1),), EndReason.CLAIMED, by_notice=True)


@pytest.mark.parametrize(
    ("told_s", "cancelled_s", "gentle"),
    [
        (None, None, [True]),
        (NOW_S - 19.0, None, []),
        (NOW_S - 20.0, None, [False]),
        (NOW_S - 90.0, NOW_S - 59.0, []),
        (NOW_S - 90.0, NOW_S - 60.0, [False]),
        (None, NOW_S - 60.0, [False]),
    ],
)
def test_a_claimed_lease_is_told_and_only_ended_where_it_stays(
    told_s: float | None, cancelled_s: float | None, gentle: list[bool]
) -> None:
    one = lease(1, "n1", notice_s=told_s, cancel_s=cancelled_s)
    world = situation(one, claims=Claims({"n1": 5}, {}))

    done = run(NOTHING, world, pool=(), mode=Mode.YIELD)

    assert [d.by_notice for d in done if isinstance(d, EndLeases)] == gentle


def test_second_jobs_end() -> None:
    (one,) = run(NOTHING, situation(duplicates=(DuplicateJob("u", "50_0"),)))

    assert one == EndLeases(("50_0",), (), EndReason.SECOND_JOB)


def test_a_lease_leaves_one_trainer_before_it_joins_another() -> None:
    world = situation(
        lease(0, "n0"), lease(1, "n1"), assignments=(generation("b", 0, 1),)
    )

    actions = run(Wanted((wanted("a", 1), wanted("b", 0)), ()), world)

    assert [one.trainer for one in actions if isinstance(one, Assignment)] == [
        "b",
        "a",
    ]


def test_growing_by_a_part_waits_a_while_but_losing_and_starting_do_not() -> None:
    leases = (lease(0, "n0"), lease(1, "n1"))
    plan = Wanted((wanted("a", 0, 1, awaited=1),), ())
    young = situation(*leases, assignments=(generation("a", 0, age_s=59.0),))
    grown = situation(*leases, assignments=(generation("a", 0, age_s=60.0),))
    lost = situation(*leases, assignments=(generation("a", 0, 5, age_s=1.0),))
    by_a_fast_clock = situation(*leases, assignments=(generation("a", 0, age_s=-9e5),))

    assert run(plan, young) == ()
    assert len(run(plan, grown)) == len(run(plan, lost)) == 1
    assert len(run(plan, by_a_fast_clock)) == 1
    assert len(run(plan, situation(*leases))) == 1


def test_a_world_that_survivors_made_while_a_tick_looked_does_not_grow() -> None:
    """Broker and survivors act at one moment, and a start would be thrown away."""
    leases = (lease(0, "n0"), lease(1, "n1"))
    whole = Wanted((wanted("a", 0, 1),), ())
    since = situation(*leases, assignments=(generation("a", 0, age_s=-1.5),))

    assert run(whole, since) == ()


def test_a_world_that_was_only_just_made_does_not_grow_but_shrinks_at_once() -> None:
    leases = (lease(0, "n0"), lease(1, "n1"))
    more = Wanted((wanted("a", 0, 1),), ())
    young, settled = (
        situation(*leases, assignments=(generation("a", 0, age_s=age_s),))
        for age_s in (9.0, 10.0)
    )
    too_much = situation(*leases, assignments=(generation("a", 0, 1, age_s=1.0),))

    assert run(more, young) == ()
    assert len(run(more, settled)) == 1
    assert len(run(Wanted((wanted("a", 0),), ()), too_much)) > 0


def test_a_lease_joins_nobody_before_its_agent_is_up_and_is_waited_for() -> None:
    leases = (lease(0, "n0"), lease(1, "n1"), lease(2, "n2"))
    plan = Wanted((wanted("a", 0, 1, 2),), ())
    alone = situation(*leases, not_ready=frozenset({key(1)}))
    young, grown = (
        replace(alone, assignments=(generation("a", 0, age_s=age_s),))
        for age_s in (59.0, 60.0)
    )
    left = replace(alone, assignments=(generation("a", 0, 1, age_s=1.0),))

    assert run(plan, young) == ()
    for world in (alone, grown, left):
        (one,) = run(plan, world)
        assert isinstance(one, Assignment)
        assert one.leases == {key(0), key(2)}


def test_a_trainer_runs_on_a_size_it_can_use_and_keeps_what_it_holds() -> None:
    two = WantedTrainer("a", (2, 4), frozenset(map(key, range(3))), 1)
    world = situation(
        *(lease(task, f"n{task}") for task in range(3)),
        assignments=(generation("a", 1, 2),),
    )

    assert run(Wanted((two,), ()), world) == ()


def test_a_trainer_that_wants_nothing_more_gets_an_empty_generation() -> None:
    world = situation(lease(0, "n0"), assignments=(generation("a", 0),))

    assign, cancel = run(NOTHING, world)

    assert isinstance(assign, Assignment)
    assert (assign.generation, len(assign.leases)) == (2, 0)
    assert isinstance(cancel, EndLeases)


def test_without_slurms_plan_everything_stays_but_what_is_lost() -> None:
    world = situation(
        lease(0, "n0"),
        lease(1),
        lease(2, "n2", state=LeaseState.ENDING),
        assignments=(generation("a", 0, 2),),
        is_plan_known=False,
    )

    (assign,) = run(Wanted((wanted("a"),), ()), world)

    assert isinstance(assign, Assignment)
    assert assign.leases == {key(0)}
