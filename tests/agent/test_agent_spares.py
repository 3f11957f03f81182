"""When a lease keeps a spare, and for whom."""

from __future__ import annotations

from msgspec import structs

from freetrain.agent.observation import is_failure
from freetrain.config.job import LaunchSettings
from tests.agent.model_cluster import TRAINER, ModelCluster, a_job

OTHER = "other"


def cluster_of(*trainers: str) -> ModelCluster:
    """Return one with two leases, and trainers that want spares."""
    cluster = ModelCluster()
    for name in trainers:
        cluster.add_trainer(
            structs.replace(a_job(name), launch=LaunchSettings(spare=True))
        )
    for _ in range(2):
        cluster.add_lease()
    return cluster


def spares(cluster: ModelCluster) -> list[str]:
    return [lease.spare for lease in cluster.leases.values()]


def test_every_lease_of_a_world_keeps_a_spare_from_when_it_trains() -> None:
    cluster = cluster_of(TRAINER)
    cluster.assign(*cluster.leases)

    while not cluster.training():
        assert spares(cluster) == ["", ""]
        cluster.step()
    cluster.run(2)

    assert spares(cluster) == [TRAINER, TRAINER]


def test_a_spare_outlives_its_generation_and_goes_where_its_lease_is_given_away() -> (
    None
):
    cluster = cluster_of(TRAINER, OTHER)
    one, two = cluster.leases
    cluster.assign(one, two)
    cluster.run_until(lambda: spares(cluster) == [TRAINER, TRAINER])

    cluster.assign(one)
    cluster.run_until(lambda: cluster.training() == [2])
    cluster.run(2)
    assert spares(cluster) == [TRAINER, ""]
    assert len(cluster.leases[one].spares) == 1

    cluster.assign(two, trainer=OTHER)
    cluster.run_until(lambda: cluster.training(OTHER) == [1])
    cluster.run(2)
    assert spares(cluster) == [TRAINER, OTHER]


def test_a_world_is_forked_where_every_lease_of_it_has_a_spare() -> None:
    cluster = cluster_of(TRAINER)
    one, two, three = *cluster.leases, cluster.add_lease()
    for keys in ((one, two), (one, two, three), (two, three)):
        cluster.assign(*keys)
        newest = cluster.newest().generation
        while cluster.training() != [newest]:
            cluster.step()
        cluster.run(2)

    forked = [world.is_forked for world in cluster.worlds.values()]
    assert forked == [False, False, True]  # the third lease had no spare at first


def test_a_spare_that_ended_by_itself_is_not_started_again() -> None:
    cluster = cluster_of(TRAINER)
    one, _ = cluster.leases
    cluster.assign(*cluster.leases)
    cluster.run_until(lambda: cluster.leases[one].spare == TRAINER)

    cluster.leases[one].spares[0].exit_code = 69
    cluster.run(5)

    assert len(cluster.leases[one].spares) == 1
    assert not cluster.board.spare_of(one)
    assert "the spare of" in "\n".join(cluster.log)


def test_after_a_failure_there_is_a_new_spare_as_the_program_may_be_another() -> None:
    cluster = cluster_of(TRAINER)
    cluster.fails_s = 6.0
    one, _ = cluster.leases
    cluster.assign(*cluster.leases)
    cluster.run_until(lambda: cluster.leases[one].spare == TRAINER)

    cluster.run_until(lambda: (TRAINER, 1) in cluster.board.over)
    assert is_failure(cluster.board.over[TRAINER, 1])
    cluster.run(1)
    assert not cluster.leases[one].spare
    cluster.run_until(lambda: cluster.training() == [2])
    cluster.run(2)

    assert cluster.leases[one].spare == TRAINER
    assert len(cluster.leases[one].spares) == 2


def test_a_trainer_that_is_done_or_cancelled_keeps_no_spare() -> None:
    cluster = cluster_of(TRAINER)
    cluster.assign(*cluster.leases)
    cluster.run_until(lambda: spares(cluster) == [TRAINER, TRAINER])

    cluster.assign()
    cluster.run(5)

    assert spares(cluster) == ["", ""]


def test_a_trainer_that_asks_for_no_spare_gets_none() -> None:
    cluster = ModelCluster()
    cluster.add_trainer()
    key = cluster.add_lease()
    cluster.assign(key)
    cluster.run_until(lambda: cluster.training() == [1])

    cluster.run(3)

    assert cluster.leases[key].spares == []


def test_one_look_at_files_that_cannot_be_read_costs_no_spare() -> None:
    cluster = cluster_of(TRAINER)
    one, _ = cluster.leases
    cluster.assign(*cluster.leases)
    cluster.run_until(lambda: cluster.leases[one].spare == TRAINER)

    cluster.leases[one].cut_until_s = cluster.now_s + 0.5
    cluster.run(3)

    assert len(cluster.leases[one].spares) == 1
    assert cluster.leases[one].spare == TRAINER
