"""Single actions, each with the situation that calls for it."""

import math
from dataclasses import replace
from typing import Any

import pytest

from freetrain.broker.lease import Assignment, LeaseKey, LeaseState
from freetrain.broker.limits import Mode, Pace
from freetrain.broker.pool import Situation
from freetrain.broker.reasons import EndReason
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
    keys,
    lease,
    reconciled,
    situation,
)

NOTHING = Wanted((), ())
KEPT_FREE = Claims({"n1": 6}, {}, kept_free=KeptFree({"n1": 6}, 0))


def request(count: int, limit_min: int = 60, end_s: float = math.inf) -> Wanted:
    nodes, deadline_s = tuple(f"m{i}" for i in range(count)), NOW_S + 7_200.0
    asked = WantedLeases("any", limit_min, limit_min + 1, deadline_s, end_s, nodes)
    return Wanted((), (asked,))


def wanted(name: str, *tasks: int, awaited: int = 0) -> WantedTrainer:
    return WantedTrainer(name, (1, 2, 3, 4), keys(*tasks), awaited)


def plan(*tasks: int, awaited: int = 0) -> Wanted:
    return Wanted((wanted("a", *tasks, awaited=awaited),), ())


def asked(wanted: Wanted, world: Situation, **limits: Any) -> list[int]:  # noqa: ANN401
    """Return how many leases each submission asks for."""
    done = reconciled(wanted, world, **limits)
    return [action.tasks for action in done if isinstance(action, Submit)]


def ended(
    world: Situation,
    wanted: Wanted = NOTHING,
    **limits: Any,  # noqa: ANN401 - fields of Limits, and the pool
) -> list[EndLeases]:
    done = reconciled(wanted, world, **{"mode": Mode.YIELD, **limits})
    return [action for action in done if isinstance(action, EndLeases)]


def test_missing_leases_are_asked_for_in_arrays_no_larger_than_allowed() -> None:
    done = reconciled(request(5), situation(lease(0)), most_array_tasks=3)
    assert done == (
        Submit("any", 60, NOW_S + 7_200.0, 3),
        Submit("any", 60, NOW_S + 7_200.0, 1),
    )


@pytest.mark.parametrize(
    ("limits", "leases"),
    [
        ({"most_leases": 3}, 2),
        ({"most_new_leases": 1}, 1),
        ({"most_churn": 2}, 2),
        ({"most_calls": 0}, 0),
    ],
)
def test_caps_are_kept(limits: dict[str, int], leases: int) -> None:
    assert sum(asked(request(9), situation(lease(0)), **limits)) == leases


def test_submissions_under_way_count_as_leases_that_wait_and_against_the_cap() -> None:
    other = situation(intents=(intent(shape="gpu"),))
    assert asked(request(4), situation(intents=(intent(),))) == []
    assert asked(request(9), other, most_leases=6) == [2]


def test_no_leases_are_asked_for_while_paused_blind_or_yielding() -> None:
    failing = Pace(0, 3, NOW_S - 10)
    over = replace(failing, last_failed_s=0.0)
    assert not reconciled(request(1), situation(pace=failing))
    assert asked(request(1), situation(pace=over)) == [1]
    assert not reconciled(request(1), situation(is_plan_known=False))
    assert not reconciled(request(1), situation(claims=Claims({"n1": 1}, {})))
    assert asked(request(1), situation(claims=KEPT_FREE)) == [1]


def test_a_waiting_lease_that_would_outlast_its_hole_goes() -> None:
    gone, new = reconciled(request(1, 30, NOW_S + 1_900.0), situation(lease(0)))
    assert gone == EndLeases(("7_0",), (key(0),), EndReason.SURPLUS)
    assert isinstance(new, Submit)


def test_a_short_lease_that_could_start_too_late_for_its_hole_goes_too() -> None:
    world = situation(lease(0, limit_min=20, deadline_s=NOW_S + 1_900.0))
    assert len(reconciled(request(1, 30, NOW_S + 1_840.0), world)) == 0
    assert len(reconciled(request(1, 30, NOW_S + 1_839.0), world)) == 2


def test_a_waiting_lease_that_can_no_longer_start_is_left_to_slurm() -> None:
    assert not ended(situation(lease(0, deadline_s=NOW_S + 3_599.0)))


def test_unwanted_leases_get_one_notice_and_are_ended_when_they_stay() -> None:
    world = situation(lease(0, "n0"), lease(1, "n1"))
    (first,) = ended(world)
    leases = world.belief.leases
    leaving = situation(*(marked_ending(one, first, NOW_S) for one in leases))
    (last,) = ended(replace(leaving, now_s=NOW_S + 60.0))
    assert (first.by_notice, first.display_ids) == (True, ("7_0", "7_1"))
    assert not ended(leaving)
    assert (last.why, last.by_notice) == (EndReason.STAYED, False)


SHRINKING = situation(
    lease(0, "n0"), lease(1, "n1"), assignments=(generation("a", 0, 1, age_s=600.0),)
)


def test_a_world_that_shrinks_trains_on_all_leases_until_the_next_one_is_ready() -> (
    None
):
    (assign,) = reconciled(plan(0), SHRINKING)
    assert isinstance(assign, Assignment)
    made = replace(assign, created_s=NOW_S)
    after = replace(SHRINKING, assignments=(made,), training={key(1): "a"})

    (over,) = ended(replace(after, training={}), plan(0))

    assert assign.leases == keys(0)
    assert not ended(after, plan(0))
    assert (over.leases, over.why) == ((key(1),), EndReason.SURPLUS)


def test_a_lease_is_given_up_at_once_where_it_is_needed_or_its_trainer_stops() -> None:
    claimed = replace(SHRINKING, claims=Claims({"n1": 5}, {}))

    needed = ended(claimed, plan(0))
    closed = ended(SHRINKING, plan(0), pool=["n0"])
    stopped = ended(SHRINKING, NOTHING)

    assert [(end.leases, end.why) for end in (*needed, *closed)] == [
        ((key(1),), EndReason.CLAIMED),
        ((key(1),), EndReason.HOLE_CLOSED),
    ]
    assert [(end.leases, end.why) for end in stopped] == [
        ((key(0), key(1)), EndReason.SURPLUS)
    ]


@pytest.mark.parametrize("age_s", [60.0, -60.0])
def test_a_lease_on_which_an_old_world_does_not_end_gets_the_notice(
    age_s: float,
) -> None:
    made = generation("a", 0, age_s=age_s)
    world = replace(SHRINKING, assignments=(made,), training={key(1): "a"})
    (end,) = ended(world, plan(0))
    assert (end.leases, end.by_notice) == ((key(1),), True)


def test_a_lease_whose_hole_closed_gets_a_notice_whatever_the_churn() -> None:
    unseen = situation(lease(0, "n0", start_s=NOW_S + 1.0))
    (end,) = ended(situation(lease(0, "n0")), pool=(), most_churn=0)
    assert (end.why, end.by_notice) == (EndReason.HOLE_CLOSED, True)
    assert not ended(unseen, pool=())


def test_others_get_claimed_nodes_at_once_and_waiting_leases_go_first() -> None:
    world = situation(
        lease(0),
        lease(1, "n1"),
        lease(2, "n2"),
        claims=Claims({"n1": 5}, {}),
        assignments=(generation("a", 1, 2),),
    )

    assign, room, gives = reconciled(plan(2), world, mode=Mode.YIELD, most_churn=0)

    assert isinstance(assign, Assignment)
    assert assign.leases == keys(2)
    assert room == EndLeases(("7_0",), (key(0),), EndReason.MAKES_ROOM)
    assert gives == EndLeases(("7_1",), (key(1),), EndReason.CLAIMED, by_notice=True)


def test_many_claimed_leases_need_two_commands_whatever_their_submissions() -> None:
    names = [LeaseKey(f"u{number}", 0) for number in range(20)]
    leases = [
        lease(number, f"n{number}" if number % 2 else "", key=name)
        for number, name in enumerate(names)
    ]
    claims = Claims({one.node: 5 for one in leases if one.node}, {})

    room, noticed = ended(situation(*leases, claims=claims), most_calls=2)

    assert (room.why, noticed.why) == (EndReason.MAKES_ROOM, EndReason.CLAIMED)
    assert {*room.leases, *noticed.leases} == set(names)


def test_a_lease_on_a_node_kept_free_says_why_it_goes_and_ends_no_waiting_one() -> None:
    leases = lease(0, "n0"), lease(1, "n1"), lease(2)
    claimed = replace(KEPT_FREE, leased={"n0": 5, "n1": 6})

    kept_free = ended(situation(*leases, claims=KEPT_FREE), pool=["n0"])
    both = ended(situation(*leases, claims=claimed), pool=())

    assert {end.why: end.leases for end in kept_free}[EndReason.KEPT_FREE] == (key(1),)
    assert EndReason.MAKES_ROOM not in {end.why for end in kept_free}
    assert {end.why: end.leases for end in both} == {
        EndReason.MAKES_ROOM: (key(2),),
        EndReason.CLAIMED: (key(0),),
        EndReason.KEPT_FREE: (key(1),),
    }


@pytest.mark.parametrize(
    ("notice_s", "cancel_s", "by_notice"),
    [
        (None, None, [True]),
        (NOW_S - 19.0, None, []),
        (NOW_S - 20.0, None, [False]),
        (NOW_S - 90.0, NOW_S - 59.0, []),
        (NOW_S - 90.0, NOW_S - 60.0, [False]),
        (None, NOW_S - 60.0, [False]),
    ],
)
def test_a_claimed_lease_gets_a_notice_and_is_only_ended_where_it_stays(
    notice_s: float | None, cancel_s: float | None, by_notice: list[bool]
) -> None:
    claimed = lease(1, "n1", notice_s=notice_s, cancel_s=cancel_s)
    ends = ended(situation(claimed, claims=Claims({"n1": 5}, {})), pool=())
    assert [end.by_notice for end in ends] == by_notice


@pytest.mark.parametrize(
    ("over_s", "asked_s", "by_notice"),
    [
        (19.0, None, []),
        (20.0, None, [True]),
        (39.0, 19.0, []),
        (40.0, 20.0, [False]),
    ],
)
def test_a_lease_that_slurm_lets_overrun_its_limit_gets_a_notice_and_is_ended(
    over_s: float, asked_s: float | None, by_notice: list[bool]
) -> None:
    # Its agent need not know of this limit, if it was lowered.
    notice_s = None if asked_s is None else NOW_S - asked_s
    overrun = lease(0, "n0", end_s=NOW_S - over_s, notice_s=notice_s)
    ends = ended(situation(overrun, assignments=(generation("a", 0),)), plan(0))
    assert [end.by_notice for end in ends] == by_notice
    assert {end.why for end in ends} <= {EndReason.OVERRAN}


def test_a_lease_that_overran_its_limit_unheard_is_ended_at_once() -> None:
    overrun = lease(0, "n0", end_s=NOW_S - 20.0)
    found = situation(overrun, never_heard=frozenset({overrun.key}))
    assert [end.by_notice for end in ended(found, plan(0))] == [False]


@pytest.mark.parametrize(
    ("notice_s", "claimed", "overran"),
    [
        (None, [EndReason.CLAIMED], [EndReason.OVERRAN]),
        (NOW_S - 19.0, [EndReason.CLAIMED], []),
        (NOW_S - 20.0, [EndReason.CLAIMED], [EndReason.OVERRAN]),
    ],
)
def test_an_unheard_lease_with_a_notice_goes_at_once_only_where_others_wait_for_it(
    notice_s: float | None, claimed: list[EndReason], overran: list[EndReason]
) -> None:
    over = lease(0, "n0", end_s=NOW_S - 50.0, notice_s=notice_s)
    world = situation(over, never_heard=keys(0), assignments=(generation("a", 0),))
    waited_for = replace(world, claims=Claims({"n0": 5}, {}))

    for found, why in ((waited_for, claimed), (world, overran)):
        ends = ended(found, plan(0))
        assert [(end.why, end.by_notice) for end in ends] == [(w, False) for w in why]


@pytest.mark.parametrize(
    ("unheard_s", "assignments", "why"),
    [
        (179.0, (), []),
        (180.0, (), [EndReason.UNHEARD]),
        (9_999.0, (generation("a", 0),), []),
    ],
    ids=["not for long", "for long", "it may train"],
)
def test_a_lease_that_trains_nothing_and_is_not_heard_is_ended(
    unheard_s: float, assignments: tuple[Assignment, ...], why: list[EndReason]
) -> None:
    world = situation(
        lease(0, "n0"),
        assignments=assignments,
        unheard_s={key(0): unheard_s},
        not_ready=keys(0),
    )
    assert [end.why for end in ended(world, plan(0))] == why


@pytest.mark.parametrize(
    ("claims", "pool", "why"),
    [
        (Claims({"n0": 5}, {}), "", EndReason.CLAIMED),
        (Claims({}, {}), "n0", EndReason.SURPLUS),
        (Claims({}, {}), "", EndReason.HOLE_CLOSED),
    ],
)
def test_a_lease_whose_agent_never_came_is_ended_without_notice(
    claims: Claims, pool: str, why: EndReason
) -> None:
    world = situation(lease(0, "n0"), claims=claims, never_heard=keys(0))
    ends = ended(world, pool=pool.split())
    assert [(end.why, end.by_notice) for end in ends] == [(why, False)]


def test_second_jobs_end() -> None:
    (end,) = ended(situation(duplicates={"50_0": "u"}))
    assert end == EndLeases(("50_0",), (), EndReason.SECOND_JOB)


# New generations.


def grown(world: Situation, *tasks: int, awaited: int = 0) -> list[frozenset[LeaseKey]]:
    """Return the leases of the generations made for a trainer that wants *tasks*."""
    done = reconciled(plan(*tasks, awaited=awaited), world)
    return [action.leases for action in done if isinstance(action, Assignment)]


TWO = lease(0, "n0"), lease(1, "n1")


def aged(age_s: float, *tasks: int) -> Situation:
    return situation(*TWO, assignments=(generation("a", *tasks, age_s=age_s),))


def test_a_lease_leaves_one_trainer_before_it_joins_another() -> None:
    world = situation(*TWO, assignments=(generation("b", 0, 1),))
    done = reconciled(Wanted((wanted("a", 1), wanted("b", 0)), ()), world)
    made = [action.trainer for action in done if isinstance(action, Assignment)]
    assert made == ["b", "a"]


@pytest.mark.parametrize(
    ("world", "made"),
    [
        pytest.param(aged(59.0, 0), 0, id="young"),
        pytest.param(aged(60.0, 0), 1, id="old enough"),
        pytest.param(aged(1.0, 0, 5), 1, id="it lost a lease"),
        pytest.param(aged(-9e5, 0), 1, id="made by a fast clock"),
        pytest.param(situation(*TWO), 1, id="it starts"),
    ],
)
def test_growing_by_a_part_waits_a_while_but_losing_and_starting_do_not(
    world: Situation, made: int
) -> None:
    assert grown(world, 0, 1, awaited=1) == [keys(0, 1)] * made


@pytest.mark.parametrize(("age_s", "made"), [(-1.5, 0), (9.0, 0), (10.0, 1)])
def test_a_world_that_was_only_just_made_does_not_grow(age_s: float, made: int) -> None:
    """Survivors may act at the same moment, and a start would be thrown away."""
    assert grown(aged(age_s, 0), 0, 1) == [keys(0, 1)] * made


def test_a_world_that_was_only_just_made_shrinks_at_once() -> None:
    assert grown(aged(1.0, 0, 1), 0) == [keys(0)]


def test_a_lease_joins_no_trainer_before_its_agent_is_up_and_is_waited_for() -> None:
    alone = situation(*TWO, lease(2, "n2"), not_ready=keys(1))

    def after(*tasks: int, age_s: float) -> Situation:
        return replace(alone, assignments=(generation("a", *tasks, age_s=age_s),))

    assert grown(after(0, age_s=59.0), 0, 1, 2) == []
    for world in (alone, after(0, age_s=60.0), after(0, 1, age_s=1.0)):
        assert grown(world, 0, 1, 2) == [keys(0, 2)]


def test_a_trainer_runs_on_a_size_it_can_use_and_keeps_its_leases() -> None:
    even = WantedTrainer("a", (2, 4), keys(0, 1, 2), 1)
    world = situation(*TWO, lease(2, "n2"), assignments=(generation("a", 1, 2),))
    assert reconciled(Wanted((even,), ()), world) == ()


def test_a_trainer_that_wants_no_nodes_any_more_gets_an_empty_generation() -> None:
    world = situation(lease(0, "n0"), assignments=(generation("a", 0),))
    assign, end = reconciled(NOTHING, world)
    assert isinstance(assign, Assignment)
    assert (assign.generation, assign.leases) == (2, frozenset())
    assert isinstance(end, EndLeases)


def test_without_slurms_plan_only_lost_leases_change() -> None:
    lost = lease(2, "n2", state=LeaseState.ENDING)
    newest = generation("a", 0, 2)
    world = situation(TWO[0], lease(1), lost, assignments=(newest,))
    (assign,) = reconciled(plan(), replace(world, is_plan_known=False))
    assert isinstance(assign, Assignment)
    assert assign.leases == keys(0)
