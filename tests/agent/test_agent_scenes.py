"""Agents among themselves, scene by scene, in a made-up world."""

from __future__ import annotations

from typing import TYPE_CHECKING

from freetrain.state.files import Ended
from tests.agent.model_cluster import TRAINER, ModelCluster

if TYPE_CHECKING:
    from freetrain.broker.lease import LeaseKey


def training_on(nodes: int) -> tuple[ModelCluster, list[LeaseKey]]:
    """Return a world in which a trainer's first generation trains on *nodes*."""
    cluster = ModelCluster()
    cluster.add_trainer()
    keys = [cluster.add_lease() for _ in range(nodes)]
    cluster.assign(*keys)
    cluster.run_until(lambda: cluster.training() == [1])
    return cluster, keys


def test_the_head_launches_once_every_member_beats() -> None:
    cluster = ModelCluster()
    cluster.add_trainer()
    keys = [cluster.add_lease() for _ in range(3)]

    cluster.assign(*keys)
    cluster.run_until(lambda: cluster.training() == [1], limit_s=5)


def test_a_grown_world_is_launched_ahead_and_the_old_one_stops_when_it_is_ready() -> (
    None
):
    cluster = ModelCluster()
    cluster.add_trainer()
    keys = [cluster.add_lease() for _ in range(3)]
    cluster.assign(*keys[:2])
    cluster.run_until(lambda: cluster.training() == [1])

    cluster.assign(*keys)
    cluster.run_until(lambda: cluster.training() == [2], limit_s=5)

    assert cluster.launches == [(1, (), None), (2, (1,), 1)]
    cluster.run(2)
    assert cluster.board.over[TRAINER, 1].ended == "rescaled"
    assert cluster.board.over[TRAINER, 1].was_asked


def test_a_lease_that_gets_its_notice_is_gone_within_seconds_and_others_go_on() -> None:
    cluster, keys = training_on(3)
    told_s = cluster.now_s

    cluster.tell(keys[1])
    cluster.run_until(lambda: cluster.training() == [2], limit_s=5)
    cluster.run(1)

    ended_s = cluster.leases[keys[1]].ended_s
    assert ended_s is not None
    assert ended_s - told_s < 1.5
    assert cluster.newest().keys == {keys[0], keys[2]}


def test_the_head_gets_its_notice() -> None:
    cluster, keys = training_on(3)
    told_s = cluster.now_s

    cluster.tell(keys[0])
    cluster.run_until(lambda: cluster.training() == [2], limit_s=5)
    cluster.run(1)

    ended_s = cluster.leases[keys[0]].ended_s
    assert ended_s is not None
    assert ended_s - told_s < 1.5
    assert cluster.board.over[TRAINER, 1].ended == "rescaled"


def test_the_last_lease_leaves_a_trainer_that_runs_nowhere() -> None:
    cluster = ModelCluster()
    cluster.add_trainer()
    key = cluster.add_lease()
    cluster.assign(key)
    cluster.run_until(lambda: cluster.training() == [1])

    cluster.tell(key)
    cluster.run(3)

    assert not cluster.leases[key].is_alive
    assert cluster.newest().members == ()
    assert cluster.board.over[TRAINER, 1].ended == "rescaled"


def test_survivors_of_a_killed_lease_go_on_without_it() -> None:
    cluster, keys = training_on(3)

    cluster.end_lease(keys[2])
    cluster.run_until(lambda: cluster.training() == [2], limit_s=15)

    assert cluster.newest().keys == set(keys[:2])
    assert cluster.board.over[TRAINER, 1].lost_lease


def test_survivors_of_a_killed_head_go_on_without_it() -> None:
    cluster, keys = training_on(3)

    cluster.end_lease(keys[0])
    cluster.run_until(lambda: cluster.training() == [2], limit_s=20)
    cluster.run(3)

    assert cluster.newest().keys == set(keys[1:])
    assert cluster.board.over[TRAINER, 1].lost_lease


def test_a_world_that_a_dead_agents_sweep_stops_counts_nothing_against_it() -> None:
    cluster, keys = training_on(3)

    cluster.leases[keys[1]].agent = None  # its job's script sweeps its node, politely
    cluster.worlds[TRAINER, 1].ask_to_stop()
    cluster.run_until(lambda: (TRAINER, 1) in cluster.board.over)

    ending = cluster.board.over[TRAINER, 1]
    assert (ending.ended, ending.was_asked) == (Ended.RESCALED, False)
    assert ending.lost_lease
    cluster.end_lease(keys[1])
    cluster.run_until(lambda: cluster.training() == [cluster.newest().generation])
    assert cluster.newest().keys == {keys[0], keys[2]}


def test_a_frozen_head_is_ended_and_its_world_commits_before() -> None:
    cluster, keys = training_on(3)

    cluster.leases[keys[0]].frozen_until_s = 1e9
    cluster.run_until(lambda: cluster.training() == [2], limit_s=20)
    cluster.run(5)

    assert cluster.board.over[TRAINER, 1].ended == "rescaled"
    assert not cluster.leases[keys[0]].is_alive


def test_a_frozen_rank_costs_a_generation_and_no_lease() -> None:
    cluster, keys = training_on(3)

    cluster.worlds[TRAINER, 1].freeze(keys[1])
    cluster.run_until(lambda: (TRAINER, 1) in cluster.board.over, limit_s=20)

    assert cluster.newest().keys == set(keys)
    cluster.run(5)
    assert not cluster.worlds[TRAINER, 1].ranks


def test_a_lease_leaves_before_its_time_limit() -> None:
    cluster = ModelCluster()
    cluster.add_trainer()
    short, long = cluster.add_lease(limit_s=120.0), cluster.add_lease()
    cluster.assign(long, short)
    cluster.run_until(lambda: cluster.training() == [1])

    cluster.run(120)

    ended_s = cluster.leases[short].ended_s
    assert ended_s is not None
    assert 105.0 <= ended_s - 1000.0 <= 115.0
    assert cluster.training() == [2]
    assert cluster.board.over[TRAINER, 1].ended is Ended.RESCALED


def test_a_lease_without_work_is_given_back_after_a_while() -> None:
    cluster = ModelCluster()
    key = cluster.add_lease()

    cluster.run(890)
    assert cluster.leases[key].is_alive
    cluster.run(20)

    assert not cluster.leases[key].is_alive
