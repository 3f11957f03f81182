"""What agents do about a trainer's program, its sizes, and other trainers."""

from __future__ import annotations

from itertools import pairwise

from msgspec import structs

from freetrain.config.job import Nodes, Restart
from freetrain.state.files import GAVE_UP, Ended
from tests.agent.model_cluster import TRAINER, ModelCluster, a_job


def test_a_trainer_goes_on_only_with_sizes_that_its_user_allows() -> None:
    cluster = ModelCluster()
    nodes = Nodes(max_nodes=4, only=(2, 4))
    cluster.add_trainer(structs.replace(a_job(), nodes=nodes))
    keys = [cluster.add_lease() for _ in range(4)]
    cluster.assign(*keys)
    cluster.run_until(lambda: cluster.training() == [1])

    cluster.tell(keys[1])
    cluster.run_until(lambda: cluster.training() == [2])
    assert cluster.newest().keys == {keys[0], keys[2]}
    cluster.tell(keys[0])
    cluster.run(10)

    assert cluster.newest().members == ()
    assert cluster.leases[keys[2]].is_alive


def test_a_program_that_fails_is_tried_again_later_and_then_no_more() -> None:
    cluster = ModelCluster()
    restart = Restart(attempts=3, wait_s=5.0)
    cluster.add_trainer(structs.replace(a_job(), restart=restart))
    cluster.fails_s = 1.0
    keys = [cluster.add_lease() for _ in range(2)]
    cluster.assign(*keys)

    cluster.run(60)

    newest = cluster.newest()
    assert (newest.generation, newest.members) == (4, ())
    assert newest.reason.startswith(GAVE_UP)
    waits = [b - a for a, b in pairwise(cluster.launched_s)]
    assert 5.0 <= waits[0] <= 10.0 <= waits[1] <= 16.0


def test_a_world_that_is_launched_ahead_is_given_up_when_a_later_one_comes() -> None:
    cluster = ModelCluster()
    cluster.add_trainer()
    keys = [cluster.add_lease() for _ in range(4)]
    cluster.assign(*keys[:1])
    cluster.run_until(lambda: cluster.training() == [1])
    cluster.assign(*keys[:2])
    cluster.run_until(lambda: (TRAINER, 2) in cluster.worlds)

    cluster.assign(*keys[:3])
    cluster.run_until(lambda: cluster.training() == [3])
    cluster.run(2)

    assert cluster.board.over[TRAINER, 2].ended is Ended.NOT_LAUNCHED
    assert cluster.board.over[TRAINER, 1].ended is Ended.RESCALED


def test_a_program_that_is_not_elastic_is_launched_when_the_last_one_is_swept() -> None:
    cluster = ModelCluster()
    cluster.add_trainer(structs.replace(a_job(), elastic=False))
    keys = [cluster.add_lease() for _ in range(3)]
    cluster.assign(*keys[:2])
    cluster.run_until(lambda: cluster.training() == [1])

    cluster.assign(*keys)
    cluster.run_until(lambda: cluster.training() == [2])

    assert cluster.launches == [(1, (), None), (2, (), None)]
    assert cluster.board.over[TRAINER, 1].ended is Ended.RESCALED


def test_a_trainer_whose_work_is_done_is_stopped_and_counts_as_finished() -> None:
    cluster = ModelCluster()
    cluster.add_trainer()
    key = cluster.add_lease()
    cluster.assign(key)
    cluster.run_until(lambda: cluster.training() == [1])

    cluster.board.done.add(TRAINER)
    cluster.run(5)

    assert cluster.board.over[TRAINER, 1].ended is Ended.FINISHED
    assert cluster.newest().members == ()


def test_a_program_that_ignores_every_request_is_killed_and_is_no_failure() -> None:
    cluster = ModelCluster()
    cluster.add_trainer()
    cluster.ignores_stop = True
    keys = [cluster.add_lease() for _ in range(3)]
    cluster.assign(*keys)
    cluster.run_until(lambda: cluster.training() == [1])
    told_s = cluster.now_s

    cluster.tell(keys[1])
    cluster.run_until(lambda: cluster.training() == [2], limit_s=15)

    ended_s = cluster.leases[keys[1]].ended_s
    assert ended_s is not None
    assert ended_s - told_s < 7
    assert cluster.board.over[TRAINER, 1].ended is Ended.KILLED


def test_a_lease_that_moves_is_used_when_its_old_trainer_has_left_it() -> None:
    cluster = ModelCluster()
    cluster.add_trainer()
    cluster.add_trainer(a_job("b"))
    keys = [cluster.add_lease() for _ in range(2)]
    cluster.assign(*keys)
    cluster.run_until(lambda: cluster.training() == [1])

    cluster.assign(keys[0])
    cluster.assign(keys[1], trainer="b")
    cluster.run_until(lambda: cluster.training("b") == [1], limit_s=10)

    assert not cluster.worlds[TRAINER, 1].ranks
    cluster.run_until(lambda: cluster.training() == [2])


def test_a_lease_that_two_trainers_got_stays_with_the_later_one() -> None:
    cluster = ModelCluster()
    cluster.add_trainer()
    cluster.add_trainer(a_job("b"))
    keys = [cluster.add_lease() for _ in range(2)]
    cluster.assign(*keys)
    cluster.run_until(lambda: cluster.training() == [1])

    cluster.assign(keys[1], trainer="b")
    cluster.run_until(lambda: cluster.training("b") == [1], limit_s=15)

    assert cluster.newest().keys == {keys[0]}
    cluster.run_until(lambda: cluster.training() == [2])
    assert cluster.leases[keys[1]].is_alive


def test_training_goes_on_while_the_files_cannot_be_reached() -> None:
    cluster = ModelCluster()
    cluster.add_trainer()
    keys = [cluster.add_lease() for _ in range(2)]
    cluster.assign(*keys)
    cluster.run_until(lambda: cluster.training() == [1])
    for key in keys:
        cluster.leases[key].cut_until_s = cluster.now_s + 60

    cluster.run(59)
    assert cluster.training() == [1]
    cluster.run(30)

    assert cluster.training() == [1]
    assert cluster.newest().generation == 1
