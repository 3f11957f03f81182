"""Leases of all users as one pool: who gives, who is deaf, and who gets how many."""

import itertools
import math
from collections import Counter
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from freetrain.broker.lease import Lease, LeaseKey
from freetrain.broker.sharing import (
    DWELL_S,
    HANDOVER_S,
    LOOK_SLACK_S,
    MOST_WAITING,
    OWNER_ANSWERS_S,
    OWNER_SILENT_S,
    RECENT_S,
    CallMemory,
    LeasePool,
    PooledLease,
    Share,
    dealt,
    movable,
    pool_order,
    recent_use,
    share_of,
    silent_owners,
)
from tests.broker.broker_records import NOW_S

ANN, BEN, CAT = 1001, 1002, 1003
BF_S = 30.0


def held(owner: int, count: int, **changes: object) -> list[PooledLease]:
    """Return leases of *owner* that run; the first ends first."""
    fields: dict[str, object] = {"submit_s": NOW_S - 600, "beat_s": NOW_S - 10}
    return [
        PooledLease(
            job_id=owner * 100 + k,
            owner=owner,
            node=f"n{owner}-{k}",
            end_s=NOW_S + 600 + k,
            **(fields | changes),  # type: ignore[arg-type]
        )
        for k in range(count)
    ]


def asked(owner: int, count: int, *, for_s: float = 60.0) -> list[PooledLease]:
    """Return leases of *owner* that have waited for so long."""
    return [
        PooledLease(
            job_id=owner * 100 + 50 + k,
            owner=owner,
            submit_s=NOW_S - for_s,
            beat_s=NOW_S - 10,
        )
        for k in range(count)
    ]


def pool_with(*leases: PooledLease, idle: int = 0, **changes: object) -> LeasePool:
    return LeasePool(leases=leases, idle=idle, now_s=NOW_S, **changes)  # type: ignore[arg-type]


# The order in which leases give way.


def test_the_owner_with_most_leases_gives_first_and_of_it_what_ends_soonest() -> None:
    leases = [*held(ANN, 2), *held(BEN, 4)]
    order = [lease.job_id % 1000 for lease in pool_order(leases, {})]
    assert order == [200, 201, 100, 202, 101, 203]


def test_a_weight_of_two_keeps_twice_as_many() -> None:
    leases = [*held(ANN, 4), *held(BEN, 4)]
    gone = Counter(lease.owner for lease in pool_order(leases, {ANN: 2.0})[:2])
    assert gone == {BEN: 2}


@st.composite
def pools(draw: st.DrawFn) -> list[PooledLease]:
    counts = draw(st.dictionaries(st.integers(1, 9), st.integers(0, 6), max_size=5))
    leases = [
        replace(lease, end_s=NOW_S + draw(st.sampled_from((60.0, 120.0, math.inf))))
        for owner, count in counts.items()
        for lease in held(owner, count)
    ]
    for owner in draw(st.sets(st.integers(1, 9), max_size=4)):
        for_s = draw(st.sampled_from((5.0, 30.0, 300.0)))
        leases += asked(owner, draw(st.integers(1, 8)), for_s=for_s)
    return leases


@given(pools(), st.randoms(use_true_random=False), st.integers(0, 8))
def test_every_broker_finds_the_same_order_and_what_was_done_of_it_changes_no_rest(
    leases: list[PooledLease], random: Random, size: int
) -> None:
    running = [lease for lease in leases if lease.runs]
    order = pool_order(running, {})
    shuffled = random.sample(running, len(running))
    assert pool_order(shuffled, {}) == order

    called = set(order[:size])
    leaving = {lease for lease in called if lease.owner % 2}
    after = [replace(one, is_leaving=one in leaving) for one in running]
    again = set(pool_order(after, {})[: len(called) - len(leaving)])
    assert again == called - leaving


# Brokers that do not answer.


def test_only_leases_of_living_brokers_that_know_the_pool_move() -> None:
    old = held(CAT, 1, is_pooled=False)
    leases = [*held(ANN, 1), *held(BEN, 1), *old]
    assert {x.owner for x in movable(leases, owner=ANN, deaf={BEN})} == {ANN}
    assert {x.owner for x in movable(leases, owner=CAT, deaf=())} == {ANN, BEN, CAT}


@pytest.mark.parametrize(
    ("age_s", "is_silent"), [(OWNER_SILENT_S - 1, False), (121.0, True)]
)
def test_a_broker_without_a_beat_for_long_is_silent(
    age_s: float, *, is_silent: bool
) -> None:
    leases = held(ANN, 2, beat_s=NOW_S - age_s)
    assert silent_owners(leases, now_s=NOW_S) == ({ANN} if is_silent else set())
    fresh = [*leases, *asked(ANN, 1, for_s=5.0)]
    assert silent_owners(fresh, now_s=NOW_S) == set()


def test_a_beat_from_the_future_does_not_keep_a_broker_alive_for_ever() -> None:
    leases = held(ANN, 1, beat_s=NOW_S + 1e9)
    memory = CallMemory().after_signs(leases, now_s=NOW_S)
    assert memory.owners[ANN].sign_s == NOW_S


def call(memory: CallMemory, after_s: float, leases: list[PooledLease]) -> CallMemory:
    now_s = NOW_S + after_s
    seen = memory.after_signs(leases, now_s=now_s)
    return seen.after_calls(leases, now_s=now_s, bf_interval_s=BF_S)


def beating(after_s: float, *, every_s: float) -> list[PooledLease]:
    """Return Ann's leases, whose broker beats every so often until the call."""
    last = min(after_s, 0.0) // every_s * every_s
    return held(ANN, 2, beat_s=NOW_S + last)


@pytest.mark.parametrize(
    ("every_s", "patience_s"), [(30.0, BF_S + LOOK_SLACK_S), (60.0, OWNER_ANSWERS_S)]
)
def test_a_broker_that_leaves_a_call_unanswered_is_deaf_until_its_next_sign(
    every_s: float, patience_s: float
) -> None:
    memory = CallMemory()
    for at_s in (-120.0, -60.0, -30.0):
        memory = memory.after_signs(beating(at_s, every_s=every_s), now_s=NOW_S + at_s)
    leases = beating(0.0, every_s=every_s)
    memory = call(memory, 0.0, leases)
    assert not call(memory, patience_s - 1, leases).deaf
    memory = call(memory, patience_s, leases)
    assert memory.deaf == {ANN}
    # Its leases are immovable now, so that they are not called.
    later = memory.after_signs(leases, now_s=NOW_S + 100).after_calls(
        (), now_s=NOW_S + 100, bf_interval_s=BF_S
    )
    assert later.deaf == {ANN}
    fresh = held(ANN, 2, beat_s=NOW_S + 101)
    assert not later.after_signs(fresh, now_s=NOW_S + 102).deaf


def test_the_time_for_which_an_owner_was_away_says_nothing_of_how_often_it_beats() -> (
    None
):
    memory = CallMemory()
    for at_s in (-120.0, -60.0):
        beats = held(ANN, 2, beat_s=NOW_S + at_s)
        memory = memory.after_signs(beats, now_s=NOW_S + at_s)
    assert memory.owners[ANN].gap_s == 60.0
    memory = memory.after_signs((), now_s=NOW_S - 50.0)
    leases = held(ANN, 2, beat_s=NOW_S - 30.0)  # 30 s after the last, as one that looks

    memory = call(memory, 0.0, leases)

    assert memory.owners[ANN].gap_s is None
    assert not call(memory, BF_S + LOOK_SLACK_S, leases).deaf
    assert call(memory, OWNER_ANSWERS_S, leases).deaf == {ANN}
    again = held(ANN, 2, beat_s=NOW_S + 1.0)
    assert call(memory, 1.0, again).owners[ANN].gap_s == 31.0


def test_a_lease_that_left_is_called_anew_from_then_on() -> None:
    first, second = held(ANN, 2)
    memory = call(CallMemory(), 0.0, [first])
    memory = call(memory, 50.0, [second])
    assert dict(memory.called_s) == {second.job_id: NOW_S + 50.0}


# Shares.


@pytest.mark.parametrize(
    ("capacity", "wants", "weights", "shares"),
    [
        (8, {1: 8, 2: 8}, {}, {1: 4, 2: 4}),
        (8, {1: 2, 2: 8, 3: 8}, {}, {1: 2, 2: 3, 3: 3}),
        (7, {1: 8, 2: 8}, {}, {1: 4, 2: 3}),
        (9, {1: 9, 2: 9}, {2: 2.0}, {1: 3, 2: 6}),
        (3, {5: 9, 2: 9, 9: 0, 7: 9, 8: 9}, {}, {5: 1, 2: 1, 9: 0, 7: 1, 8: 0}),
        (9, {1: 2, 2: 1}, {}, {1: 2, 2: 1}),
    ],
)
def test_nodes_are_dealt_to_those_who_have_least(
    capacity: int,
    wants: dict[int, int],
    weights: dict[int, float],
    shares: dict[int, int],
) -> None:
    assert dealt(capacity, wants, weights) == shares


WANTS = st.dictionaries(st.integers(1, 9), st.integers(0, 12), min_size=1)
WEIGHTS = st.dictionaries(st.integers(1, 9), st.sampled_from((0.5, 1.0, 3.0)))


@given(st.integers(0, 40), WANTS, WEIGHTS)
def test_shares_add_up_grow_with_the_pool_and_are_max_min_fair(
    capacity: int, wants: dict[int, int], weights: dict[int, float]
) -> None:
    shares = dealt(capacity, wants, weights)
    assert sum(shares.values()) == min(capacity, sum(wants.values()))
    assert all(shares[owner] <= wants[owner] for owner in wants)
    more = dealt(capacity + 1, wants, weights)
    assert all(more[owner] >= shares[owner] for owner in wants)
    for poor, rich in itertools.permutations(wants, 2):
        if shares[poor] < wants[poor] and shares[rich]:
            level = (shares[poor] + 1) / weights.get(poor, 1.0)
            assert shares[rich] / weights.get(rich, 1.0) <= level


def test_alone_and_without_a_cap_there_is_nothing_to_share() -> None:
    assert share_of(pool_with(*held(ANN, 4), idle=3), owner=ANN, want=64) is None


def test_a_newcomer_on_a_full_machine_waits_for_its_share_and_no_more_than_eight() -> (
    None
):
    pool = pool_with(*held(ANN, 64, want=64))
    share = share_of(pool, owner=BEN, want=64)
    most = MOST_WAITING
    assert share == Share(nodes=32, may_ask=most, may_wait=most, is_full=True)


def test_who_has_its_share_asks_for_nothing() -> None:
    pool = pool_with(*held(ANN, 4, want=8), *held(BEN, 4, want=8))
    share = share_of(pool, owner=ANN, want=8)
    assert share == Share(nodes=4, may_ask=0, is_full=True)


def test_who_has_all_it_wants_is_bound_by_no_share() -> None:
    leases = [*held(ANN, 2, want=2), *held(BEN, 4, want=8)]
    share = share_of(pool_with(*leases, idle=2), owner=ANN, want=2)
    assert share == Share(nodes=2, may_ask=0, binds=False)


def test_surplus_goes_at_once_to_those_who_have_waited_and_hold_two_fewer() -> None:
    def gives(*leases: PooledLease, idle: int = 0) -> int:
        share = share_of(pool_with(*leases, idle=idle), owner=ANN, want=8)
        assert share is not None
        return share.gives

    mine = held(ANN, 8, want=8)
    assert gives(*mine, *asked(BEN, 8)) == 4
    assert gives(*mine, *asked(BEN, 3)) == 3
    assert gives(*mine, *asked(BEN, 8), idle=1) == 3  # shares are 5 and 4 then
    assert gives(*mine, *asked(BEN, 8, for_s=DWELL_S - 1)) == 0
    even = [*held(ANN, 3, want=8), *held(BEN, 2, want=8), *asked(BEN, 8)]
    assert gives(*even) == 0


def test_two_that_have_too_much_give_what_is_lacking_once_and_not_twice() -> None:
    leases = [*held(ANN, 6, want=8), *held(BEN, 6, want=8), *asked(CAT, 2)]
    shares = [share_of(pool_with(*leases), owner=one, want=8) for one in (ANN, BEN)]
    assert sum(share.gives for share in shares if share) == 2


def test_a_deaf_owners_leases_are_no_part_of_what_is_shared() -> None:
    leases = [*held(ANN, 4, want=8), *held(BEN, 4, want=8), *held(CAT, 8, want=8)]
    pool = pool_with(*leases, deaf=frozenset({CAT}))
    share = share_of(pool, owner=ANN, want=8)
    assert share == Share(nodes=4, may_ask=0, is_full=True)


# Nodes that cannot be split go around, by the recent use that owners announce.


def shares_of(*leases: PooledLease, idle: int = 0) -> dict[int, int]:
    """Return the shares of two owners who both want eight nodes."""
    pool = pool_with(*leases, idle=idle)
    shares = {owner: share_of(pool, owner=owner, want=8) for owner in (ANN, BEN)}
    return {owner: share.nodes for owner, share in shares.items() if share}


def test_of_equals_the_next_node_is_for_who_held_less_lately() -> None:
    ann, ben = (
        held(ANN, 2, want=8, recent_node_s=900.0),
        held(BEN, 2, want=8, recent_node_s=700.0),
    )
    assert shares_of(*ann, *ben, idle=1) == {ANN: 2, BEN: 3}


def test_who_has_the_odd_node_keeps_it_until_it_is_well_ahead() -> None:
    def shares(ahead_s: float) -> dict[int, int]:
        ann = held(ANN, 3, want=8, recent_node_s=900.0 + ahead_s)
        return shares_of(*ann, *held(BEN, 2, want=8, recent_node_s=900.0))

    assert shares(HANDOVER_S - 1.0) == {ANN: 3, BEN: 2}
    assert shares(HANDOVER_S + 1.0) == {ANN: 2, BEN: 3}


def test_the_odd_node_is_given_once_the_other_has_asked_for_it() -> None:
    ann = held(ANN, 3, want=8, recent_node_s=1_200.0)
    ben = held(BEN, 2, want=8, recent_node_s=900.0)
    share = share_of(pool_with(*ann, *ben), owner=ANN, want=8)
    assert share is not None
    assert share.gives == 0
    asks = replace(asked(BEN, 1)[0], recent_node_s=900.0)
    share = share_of(pool_with(*ann, *ben, asks), owner=ANN, want=8)
    assert share is not None
    assert share.gives == 1


def test_beside_a_version_that_does_not_say_what_it_held_all_is_as_it_was() -> None:
    ann = held(ANN, 3, want=8, recent_node_s=1_800.0)
    ben = [*held(BEN, 2, want=8), *asked(BEN, 1)]
    share = share_of(pool_with(*ann, *ben), owner=ANN, want=8)
    assert share == Share(nodes=3, may_ask=0, is_full=True)


@given(
    st.lists(st.integers(0, 9), min_size=2, max_size=5),
    st.lists(st.integers(0, 6_000), min_size=5, max_size=5),
    st.integers(0, 12),
)
def test_all_brokers_deal_the_same_shares_whatever_each_held(
    have: list[int], lately: list[int], idle: int
) -> None:
    owners = range(1, len(have) + 1)
    leases = [
        lease
        for owner, count, s in zip(owners, have, lately, strict=False)
        for lease in held(owner, max(1, count), want=12, recent_node_s=float(s))
    ]
    pool = pool_with(*leases, idle=idle)
    found = [share_of(pool, owner=owner, want=12) for owner in owners]
    nodes = [share.nodes for share in found if share]
    assert sum(nodes) == min(len(leases) + idle, 12 * len(have))
    assert max(nodes) - min(nodes) <= 1


def test_what_was_held_counts_for_a_while_by_leases_that_ended_too() -> None:
    past = [
        own_lease(1, start_s=NOW_S - 100),
        own_lease(2, start_s=NOW_S - 1_900, end_s=NOW_S - RECENT_S + 100),
        own_lease(3, start_s=NOW_S - 1_900, end_s=NOW_S - RECENT_S - 100),
        own_lease(4, start_s=NOW_S - 300, end_s=NOW_S + 600, missed_s=NOW_S - 250),
        own_lease(5, start_s=None),
    ]
    assert recent_use(past, now_s=NOW_S) == 100 + 100 + 0 + 50


def own_lease(number: int, **changes: object) -> Lease:
    fields: dict[str, object] = {
        "key": LeaseKey("u", number),
        "job_id": number,
        "display_id": f"{number}",
        "shape": "main",
        "limit_min": 30,
        "deadline_s": NOW_S + 600,
    }
    return Lease(**(fields | changes))  # type: ignore[arg-type]


# Owners whose leases all went at once, since another job took all nodes.


def test_the_share_of_an_owner_whose_leases_went_is_kept_until_nodes_were_idle() -> (
    None
):
    ann, ben = held(ANN, 2, want=8), held(BEN, 2, want=6)
    memory = CallMemory().after_signs([*ann, *ben], now_s=NOW_S)
    assert memory.away == {}
    gone = memory.after_signs((), now_s=NOW_S + 20)
    assert gone.away == {ANN: 8, BEN: 6}
    later = gone.with_shares_kept(now_s=NOW_S + 900)
    assert later.after_signs((), now_s=NOW_S + 900 + OWNER_ANSWERS_S).away == {
        ANN: 8,
        BEN: 6,
    }
    assert later.after_signs((), now_s=NOW_S + 901 + OWNER_ANSWERS_S).away == {}
    fresh = held(ANN, 2, want=8, beat_s=NOW_S + 900)
    assert later.after_signs(fresh, now_s=NOW_S + 901).away == {BEN: 6}


def test_no_share_is_kept_for_brokers_that_were_silent_or_deaf() -> None:
    leases = held(ANN, 2, want=8)
    memory = CallMemory().after_signs(leases, now_s=NOW_S)
    assert memory.after_signs((), now_s=NOW_S + OWNER_SILENT_S + 1).away == {}
    deaf = call(call(CallMemory(), 0.0, leases), OWNER_ANSWERS_S, leases)
    assert deaf.deaf == {ANN}
    assert deaf.after_signs((), now_s=NOW_S + OWNER_ANSWERS_S + 1).away == {}


def test_the_first_after_a_job_of_all_nodes_takes_no_more_than_its_share() -> None:
    pool = pool_with(idle=9, away={BEN: 8, CAT: 8})
    share = share_of(pool, owner=ANN, want=8)
    assert share == Share(nodes=3, may_ask=3, may_wait=3)


# A cap for all users together.


def test_under_a_cap_for_all_the_shares_and_the_requests_keep_it() -> None:
    alone = share_of(pool_with(*held(ANN, 3), idle=20, most=4), owner=ANN, want=20)
    assert alone == Share(nodes=4, may_ask=1, may_wait=1)
    leases = [*held(ANN, 3, want=8), *held(BEN, 1, want=8)]
    share = share_of(pool_with(*leases, idle=20, most=4), owner=BEN, want=8)
    assert share == Share(nodes=2, may_ask=0, may_wait=1)
    donor = share_of(pool_with(*leases, idle=20, most=4), owner=ANN, want=8)
    assert donor == Share(nodes=2, may_ask=0, gives=1)


def test_a_newcomer_shows_itself_by_one_lease_though_the_cap_is_reached() -> None:
    pool = pool_with(*held(ANN, 4, want=8), idle=4, most=4)
    share = share_of(pool, owner=BEN, want=8)
    assert share is not None
    assert share.may_ask == 1


def test_what_is_above_a_cap_that_was_lowered_is_given_up() -> None:
    pool = pool_with(*held(ANN, 6, want=8), idle=2, most=4)
    share = share_of(pool, owner=ANN, want=8)
    assert share == Share(nodes=4, may_ask=0, gives=2)


# All brokers act, once or again and again.


def acted(
    leases: list[PooledLease], idle: int, want: dict[int, int]
) -> tuple[list[PooledLease], int]:
    """Let every broker act on one queue; return the queue and the idle nodes then.

    Slurm starts the waiting leases in the order of their submission.
    """
    pool = pool_with(*leases, idle=idle)
    left = list(leases)
    for owner in sorted(want):
        share = share_of(pool, owner=owner, want=want[owner])
        own = [lease for lease in leases if lease.owner == owner]
        running = [lease for lease in own if lease.runs]
        waits = len(own) - len(running)
        nodes = math.inf if share is None else share.nodes
        gives = 0 if share is None else share.gives
        for lease in running[:gives]:
            left.remove(lease)
            idle += 1
        if share is not None:
            for lease in [one for one in own if not one.node][share.may_wait :]:
                left.remove(lease)
        most = want[owner] - len(own)
        asks = most if share is None else min(most, share.may_ask)
        assert len(running) + waits + max(0, asks) <= max(nodes, len(own))
        left += [
            replace(one, job_id=next_id(left), want=want[owner])
            for one in asked(owner, max(0, int(asks)))
        ]
    for k, lease in enumerate(left):
        if not lease.node and idle:
            left[k] = replace(lease, node=f"m{lease.job_id}", end_s=NOW_S + 60)
            idle -= 1
    return left, idle


def next_id(leases: list[PooledLease]) -> int:
    return 10_000 + max((lease.job_id for lease in leases), default=0)


@given(
    st.dictionaries(st.integers(1, 5), st.integers(0, 10), min_size=2, max_size=5),
    st.dictionaries(st.integers(1, 5), st.integers(0, 12), min_size=2, max_size=5),
    st.integers(0, 10),
)
def test_brokers_that_act_again_and_again_come_to_rest_at_their_shares(
    have: dict[int, int], want: dict[int, int], idle: int
) -> None:
    want = {owner: max(want.get(owner, 0), 1) for owner in {*have, *want}}
    leases = [
        replace(lease, want=want[owner])
        for owner, count in have.items()
        for lease in held(owner, min(count, want[owner]))
    ]
    total = len(leases) + idle
    leases, idle = acted(leases, idle, want)  # from now on all are known to all
    shares = dealt(total, want, {})
    held_then = Counter(lease.owner for lease in leases if lease.runs)
    moves = 0
    for _ in range(40):
        before = {lease.job_id for lease in leases if lease.runs}
        leases, idle = acted(leases, idle, want)
        moves += len(before - {lease.job_id for lease in leases if lease.runs})
    rest, _ = acted(leases, idle, want)
    holds = Counter(lease.owner for lease in rest if lease.runs)
    assert {o: holds[o] for o in want} == pytest.approx(shares, abs=1)
    assert sum(holds.values()) == min(total, sum(want.values()))
    assert moves <= sum(max(0, held_then[o] - shares[o]) for o in want)
