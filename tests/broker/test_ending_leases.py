"""Leases that end whatever the plan: too long there, not heard, or in the way."""

from __future__ import annotations

from dataclasses import replace

import pytest

from freetrain.broker.lease import LeaseKey
from freetrain.broker.limits import EndReason, Limits, Mode
from freetrain.broker.reconcile import Action, EndLeases, Wanted
from freetrain.broker.yielding import Claims, KeptFree
from tests.broker.broker_records import (
    NOW_S,
    generation,
    key,
    lease,
    reconciled,
    situation,
)

LIMITS = Limits(mode=Mode.YIELD, most_calls=2)
NOTHING = Wanted((), ())


def cancels(actions: tuple[Action, ...]) -> list[EndLeases]:
    return [one for one in actions if isinstance(one, EndLeases)]


def test_nodes_that_others_wait_for_need_two_commands_however_many_submissions() -> (
    None
):
    keys = [LeaseKey(f"u{number}", 0) for number in range(20)]
    leases = [
        lease(number, f"n{number}" if number % 2 else "", key=one)
        for number, one in enumerate(keys)
    ]
    claims = Claims({one.node: 5 for one in leases if one.node}, {})

    room, told = cancels(reconciled(NOTHING, situation(*leases, claims=claims), LIMITS))

    assert (room.why, told.why) == (EndReason.MAKES_ROOM, EndReason.CLAIMED)
    assert set(room.leases) | set(told.leases) == set(keys)


def test_a_lease_that_is_in_nobodys_way_yet_tells_why_it_must_go_even_so() -> None:
    claims = Claims({"n0": 5, "n1": 6}, {}, kept_free=KeptFree({"n1": 6}, 0))
    world = situation(lease(0, "n0"), lease(1, "n1"), claims=claims)

    ended = cancels(reconciled(NOTHING, world, LIMITS))

    assert {one.leases: one.why for one in ended} == {
        (key(0),): EndReason.CLAIMED,
        (key(1),): EndReason.KEPT_FREE,
    }


def test_what_is_in_nobodys_way_yet_ends_no_lease_that_waits_for_another_node() -> None:
    claims = Claims({"n1": 6}, {}, kept_free=KeptFree({"n1": 6}, 0))
    needed = replace(claims, leased={"n0": 5, "n1": 6})
    world = situation(lease(0, "n0"), lease(1, "n1"), lease(2), claims=claims)

    kept, room = (
        {one.why for one in cancels(reconciled(NOTHING, one, LIMITS))}
        for one in (world, replace(world, claims=needed))
    )

    assert EndReason.KEPT_FREE in kept
    assert EndReason.MAKES_ROOM in room - kept


@pytest.mark.parametrize(("over_s", "ends"), [(19.0, False), (20.0, True)])
def test_a_lease_that_slurm_lets_overrun_its_limit_is_ended(
    *, over_s: float, ends: bool
) -> None:
    world = situation(
        lease(0, "n0", end_s=NOW_S - over_s), assignments=(generation("a", 0),)
    )

    ended = [x for x in cancels(reconciled(NOTHING, world, LIMITS)) if not x.by_notice]

    assert [x.why for x in ended] == [EndReason.OVERRAN] * ends


@pytest.mark.parametrize(
    ("unheard_s", "trains", "ends"),
    [(179.0, False, False), (180.0, False, True), (9_999.0, True, False)],
)
def test_a_lease_without_an_agent_is_ended_unless_it_may_train(
    *, unheard_s: float, trains: bool, ends: bool
) -> None:
    world = situation(
        lease(0, "n0"),
        assignments=(generation("a", 0),) if trains else (),
        unheard_s={key(0): unheard_s},
        not_ready=frozenset({key(0)}),
    )

    ended = [x for x in cancels(reconciled(NOTHING, world, LIMITS)) if not x.by_notice]

    assert [(x.why, x.leases) for x in ended] == [(EndReason.UNHEARD, (key(0),))] * ends


def test_a_claimed_lease_whose_agent_never_came_is_ended_without_a_word() -> None:
    world = situation(
        lease(0, "n0"),
        claims=Claims({"n0": 5}, {}),
        never_heard=frozenset({key(0)}),
    )

    (one,) = cancels(reconciled(NOTHING, world, LIMITS, pool=()))

    assert (one.why, one.by_notice) == (EndReason.CLAIMED, False)


@pytest.mark.parametrize("pool", ["n0", ""])
def test_a_lease_without_an_agent_is_not_told_what_nobody_there_hears(
    pool: str,
) -> None:
    world = situation(lease(0, "n0"), never_heard=frozenset({key(0)}))

    (one,) = cancels(reconciled(NOTHING, world, LIMITS, pool=pool.split()))

    assert one.why is (EndReason.SURPLUS if pool else EndReason.HOLE_CLOSED)
    assert not one.by_notice
