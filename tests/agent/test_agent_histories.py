"""Random histories of several agents: whatever happens, the rules hold."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hypothesis import event, given, settings
from hypothesis import strategies as st

from freetrain.state.files import EndingKind
from tests.agent.model_cluster import GRACE_S, TRAINER, ModelCluster

if TYPE_CHECKING:
    from freetrain.broker.lease import LeaseKey

LEASES = 5
SETTLE_S = 90.0
"""Longer than all patience together: silence, turns, restarts."""


@dataclass(frozen=True, slots=True)
class Event:
    """An event; *number* picks the lease, and *then_s* passes afterwards."""

    kind: str
    number: int
    then_s: float


EVENTS = st.builds(
    Event,
    kind=st.sampled_from(
        [
            *("assign", "assign", "signal", "die", "agent dies", "freeze", "nap"),
            *("cut off", "rank stops", "rank dies", "new lease"),
        ]
    ),
    number=st.integers(0, 31),
    then_s=st.sampled_from([0.1, 0.3, 0.7, 1.5, 4.0, 11.0, 15.0]),
)


def assigned(leases: int, used: int) -> ModelCluster:
    cluster = ModelCluster()
    cluster.add_trainer()
    keys = [cluster.add_lease() for _ in range(leases)]
    cluster.assign(*keys[:used])
    return cluster


@given(st.lists(EVENTS, max_size=12))
@settings(max_examples=25)
def test_whatever_happens_the_rules_hold(events: list[Event]) -> None:
    cluster = assigned(LEASES, 2)
    cluster.run(0.5)
    for event_ in events:
        _happen(cluster, event_)
        cluster.run(event_.then_s)
        _check_always(cluster)
    cluster.run(SETTLE_S)
    _check_always(cluster)
    _check_settled(cluster, len(events))


@given(st.lists(EVENTS, max_size=8))
@settings(max_examples=8)
def test_everything_ends_when_the_leases_do(events: list[Event]) -> None:
    cluster = assigned(LEASES, 3)
    for event_ in events:
        _happen(cluster, event_)
        cluster.run(event_.then_s)
    awake = [k for k in cluster.living() if not _is_asleep(cluster, k)]
    for key in awake:
        cluster.signal(key)
    signalled_s = cluster.now_s

    cluster.run(SETTLE_S)

    for key in awake:
        ended_s = cluster.leases[key].ended_s
        assert ended_s is not None
        assert ended_s - signalled_s <= GRACE_S
    left = [w.ranks & set(awake) for w in cluster.worlds.values()]
    assert not any(left), cluster.log


def _happen(cluster: ModelCluster, event_: Event) -> None:
    alive = cluster.living()
    if event_.kind == "new lease":
        cluster.add_lease()
    if not alive:
        return
    key = alive[event_.number % len(alive)]
    lease = cluster.leases[key]
    match event_.kind:
        case "assign":
            _assign(cluster, event_.number)
        case "signal":
            cluster.signal(key)
        case "die":
            cluster.end_lease(key)
        case "agent dies":
            cluster.end_lease(key, goodbye=True)
        case "freeze":
            lease.frozen_until_s = cluster.now_s + 1e6
        case "nap":
            lease.frozen_until_s = cluster.now_s + 1.0 + event_.number
        case "cut off":
            lease.cut_until_s = cluster.now_s + 1.0 + event_.number
        case _:
            _to_a_rank(cluster, event_)


def _assign(cluster: ModelCluster, number: int) -> None:
    """Make a generation as the broker does: of leases whose agents answered."""
    up = [k for k in cluster.living() if k in cluster.board.beats]
    fit = [k for k in up if cluster.leases[k].signalled_s is None]
    chosen = [k for n, k in enumerate(fit) if (number >> (n % 5)) & 1]
    if set(chosen) != cluster.newest().keys:
        cluster.assign(*chosen)


def _to_a_rank(cluster: ModelCluster, event_: Event) -> None:
    worlds = [w for w in cluster.worlds.values() if w.ranks and w.exit_code is None]
    if not worlds:
        return
    world = worlds[-1]
    key = sorted(world.ranks)[event_.number % len(world.ranks)]
    if event_.kind == "rank stops":
        world.freeze(key)
    else:
        world.lose_rank(key)


def _check_always(cluster: ModelCluster) -> None:
    assert len(cluster.training()) <= 1
    for generation, others, after in cluster.launches:
        # At most one other world that is not over, and the new one waits for it.
        assert len(others) <= 1, (generation, others)
        assert not others or after == others[0], (generation, others, after)
    heads = {where: w.members[0] for where, w in cluster.worlds.items()}
    for where, head in heads.items():
        assert cluster.board.made[where].members[0].key == head


def _check_settled(cluster: ModelCluster, events: int) -> None:
    newest = cluster.newest()
    assert newest.generation <= 3 + 3 * events, cluster.log
    fit = [k for k in newest.keys if _is_fit(cluster, k)]
    if not newest.members or not fit:
        event("nobody left")
        return
    assert set(fit) == newest.keys, cluster.log
    for number in cluster.board.generations(TRAINER)[:-1]:
        if cluster.board.made[TRAINER, number].members:
            assert (TRAINER, number) in cluster.board.over, (number, cluster.log)
    assert cluster.training() == [newest.generation], cluster.log
    event("trains")
    for where, world in cluster.worlds.items():
        if where[1] != newest.generation:
            assert not world.ranks & set(fit), (where, cluster.log)


def _is_fit(cluster: ModelCluster, key: LeaseKey) -> bool:
    return cluster.leases[key].is_alive and not _is_asleep(cluster, key)


def _is_asleep(cluster: ModelCluster, key: LeaseKey) -> bool:
    lease = cluster.leases[key]
    return cluster.now_s < max(lease.frozen_until_s, lease.cut_until_s)


def test_no_ending_counts_a_lost_lease_against_the_program() -> None:
    cluster = assigned(8, 8)
    keys = list(cluster.leases)
    cluster.run(3)

    for key in keys[:6]:
        cluster.end_lease(key)
        cluster.run(30)

    ended = [ending.ended for ending in cluster.board.over.values()]
    assert EndingKind.FAILED not in ended
    assert all(ending.lost_lease for ending in cluster.board.over.values())
    assert cluster.newest().keys == set(keys[6:])
    assert cluster.training() == [cluster.newest().generation]
