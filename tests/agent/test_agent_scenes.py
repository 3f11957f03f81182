"""Agents among themselves, scene by scene, in a made-up world."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from msgspec import structs

from freetrain.agent.observation import is_failure
from freetrain.config.job import LaunchSettings, NodeSettings, RestartSettings
from freetrain.state.files import GAVE_UP, EndingKind, TickSign
from tests.agent.model_cluster import (
    DIE_S,
    PATIENCE,
    TRAINER,
    ModelCluster,
    a_job,
    training_on,
)

if TYPE_CHECKING:
    from freetrain.broker.lease import LeaseKey


def until_gone(cluster: ModelCluster, key: LeaseKey, *, limit_s: float) -> float:
    """Signal that a lease ends; return its seconds, once the next world trains."""
    signalled_s = cluster.now_s
    cluster.signal(key)
    cluster.run_until(lambda: cluster.training() == [2], limit_s=limit_s)
    cluster.run(1)
    ended_s = cluster.leases[key].ended_s
    assert ended_s is not None
    return ended_s - signalled_s


def test_the_head_launches_once_every_member_beats() -> None:
    cluster = ModelCluster()
    cluster.add_trainer()
    keys = [cluster.add_lease() for _ in range(3)]

    cluster.assign(*keys)
    cluster.run_until(lambda: cluster.training() == [1], limit_s=5)


def test_a_grown_world_is_launched_ahead_and_the_old_one_stops_when_it_is_ready() -> (
    None
):
    cluster, keys = training_on(2, more=1)

    cluster.assign(*keys)
    cluster.run_until(lambda: cluster.training() == [2], limit_s=5)

    assert cluster.launches == [(1, (), None), (2, (1,), 1)]
    cluster.run(2)
    assert cluster.board.over[TRAINER, 1].ended == "rescaled"
    assert cluster.board.over[TRAINER, 1].was_asked


@pytest.mark.parametrize("place", [0, 1], ids=["head", "member"])
def test_a_shrunk_world_is_launched_ahead_while_the_old_one_trains_on_all_leases(
    place: int,
) -> None:
    cluster, keys = training_on(3)

    cluster.assign(*keys[:place], *keys[place + 1 :])
    cluster.run_until(lambda: cluster.training() == [2], limit_s=5)
    cluster.run(2)

    assert cluster.launches == [(1, (), None), (2, (1,), 1)]
    assert cluster.board.over[TRAINER, 1].ended == "rescaled"


@pytest.mark.parametrize("place", [0, 1], ids=["head", "member"])
def test_a_lease_that_gets_its_notice_is_gone_within_seconds_and_others_go_on(
    place: int,
) -> None:
    cluster, keys = training_on(3)

    assert until_gone(cluster, keys[place], limit_s=5) < 1.5

    assert cluster.newest().keys == set(keys) - {keys[place]}
    assert cluster.board.over[TRAINER, 1].ended == "rescaled"


def test_the_last_lease_leaves_a_trainer_that_runs_nowhere() -> None:
    cluster, (key,) = training_on(1)

    cluster.signal(key)
    cluster.run(3)

    assert not cluster.leases[key].is_alive
    assert cluster.newest().members == ()
    assert cluster.board.over[TRAINER, 1].ended == "rescaled"


@pytest.mark.parametrize("place", [0, 2])
@pytest.mark.parametrize("does_slurm_answer", [True, False])
def test_survivors_of_a_killed_lease_go_on_without_it(
    place: int, *, does_slurm_answer: bool
) -> None:
    """By silence alone the others would know only after 11 s."""
    cluster, keys = training_on(3, does_slurm_answer=does_slurm_answer)
    limit_s = 4 if does_slurm_answer else 20

    cluster.end_lease(keys[place])
    cluster.run_until(lambda: cluster.training() == [2], limit_s=limit_s)
    cluster.run(3)

    assert cluster.newest().keys == set(keys) - {keys[place]}
    assert cluster.board.over[TRAINER, 1].lost_lease


@pytest.mark.parametrize("daemon_s", [0.0, 3.0])
@pytest.mark.parametrize("later_s", [0.0, 0.3, 0.6])
def test_a_survivor_sees_at_once_that_its_ranks_are_gone_and_asks_slurm(
    later_s: float, daemon_s: float
) -> None:
    """Daemons may outlive the ranks, and the head, which saw the end, is gone."""
    cluster, keys = training_on(3)
    cluster.daemon_s = daemon_s
    cluster.run(later_s)  # agents look at all processes once a second

    cluster.end_lease(keys[0])
    cluster.run_until(lambda: (TRAINER, 1) in cluster.board.over, limit_s=DIE_S + 0.4)

    assert cluster.board.over[TRAINER, 1].lost_lease


def test_a_world_that_a_dead_agents_sweep_stops_counts_nothing_against_it() -> None:
    cluster, keys = training_on(3)

    cluster.leases[keys[1]].agent = None  # its job's script sweeps its node, politely
    cluster.worlds[TRAINER, 1].ask_to_stop()
    cluster.run_until(lambda: (TRAINER, 1) in cluster.board.over)

    ending = cluster.board.over[TRAINER, 1]
    assert (ending.ended, ending.was_asked) == (EndingKind.RESCALED, False)
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
    assert cluster.board.over[TRAINER, 1].ended is EndingKind.RESCALED


def test_a_lease_without_work_is_given_back_after_a_while() -> None:
    cluster = ModelCluster()
    key = cluster.add_lease()

    cluster.run(890)
    assert cluster.leases[key].is_alive
    cluster.run(20)

    assert not cluster.leases[key].is_alive


def test_a_trainer_goes_on_only_with_sizes_that_its_user_allows() -> None:
    nodes = NodeSettings(max_nodes=4, only=(2, 4))
    cluster, keys = training_on(4, job=structs.replace(a_job(), nodes=nodes))

    cluster.signal(keys[1])
    cluster.run_until(lambda: cluster.training() == [2])
    assert cluster.newest().keys == {keys[0], keys[2]}
    cluster.signal(keys[0])
    cluster.run(10)

    assert cluster.newest().members == ()
    assert cluster.leases[keys[2]].is_alive


def test_a_program_that_fails_is_tried_again_later_and_then_no_more() -> None:
    cluster = ModelCluster()
    restart = RestartSettings(attempts=3, wait_s=5.0)
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


def test_a_world_that_fails_as_it_grows_goes_back_to_a_size_that_trains() -> None:
    restart = RestartSettings(attempts=2, wait_s=5.0)
    job = structs.replace(a_job(), restart=restart)
    cluster, keys = training_on(2, more=3, job=job, refuses=frozenset({3, 4}))
    cluster.run(3)
    cluster.assign(*keys[:4])
    cluster.run(40)

    newest = cluster.newest()
    assert newest.keys == set(keys[:2])
    assert cluster.training() == [newest.generation]
    failed = [e for e in cluster.board.over.values() if is_failure(e)]
    assert [e.leases for e in failed] == [4, 4]

    # Others are tried still, and the one that was left out never again.
    cluster.assign(*keys)
    cluster.run(10)
    assert cluster.training() == [newest.generation + 1]
    cluster.signal(keys[4])
    cluster.run(40)
    assert len(cluster.newest().members) == 2
    assert cluster.training() == [cluster.newest().generation]
    failed = [e for e in cluster.board.over.values() if is_failure(e)]
    assert [e.leases for e in failed] == [4, 4, 3, 3]


def test_leases_that_come_and_go_meanwhile_do_not_bring_the_next_attempt_forward() -> (
    None
):
    """Nor do they put it off: the generations that were not launched do not count."""
    cluster = ModelCluster()
    restart = RestartSettings(attempts=2, wait_s=20.0)
    cluster.add_trainer(structs.replace(a_job(), restart=restart))
    cluster.fails_s = 1.0
    keys = [cluster.add_lease() for _ in range(3)]
    cluster.assign(*keys)
    cluster.run_until(lambda: (TRAINER, 2) in cluster.board.made, limit_s=10)

    for members in (keys[:2], keys, keys[:2]):
        cluster.run(4)
        cluster.assign(*members)
    cluster.run(30)

    waits = [b - a for a, b in pairwise(cluster.launched_s)]
    assert [round(wait_s, -1) for wait_s in waits] == [20.0]
    assert cluster.newest().reason.startswith(GAVE_UP)


def kill_again_and_again(
    cluster: ModelCluster, times: int, *, exit_code: int = 137, output: bytes = b""
) -> None:
    """End the worlds that train, one after another, as by a signal to a rank."""
    for _ in range(times):
        cluster.run_until(lambda: bool(cluster.training()), limit_s=300)
        where = (TRAINER, cluster.training()[0])
        cluster.board.outputs[where] = output
        cluster.worlds[where].exit_code = exit_code
        cluster.worlds[where].ranks = set()
        while where not in cluster.board.over:
            cluster.step()


def test_kills_from_outside_are_no_failures_and_the_trainer_goes_on() -> None:
    cluster, keys = training_on(2)

    kill_again_and_again(cluster, 4)
    cluster.run_until(lambda: bool(cluster.training()), limit_s=300)

    assert cluster.training() == [5]
    assert cluster.newest().keys == set(keys)
    ending = cluster.board.over[TRAINER, 2]
    assert ending.message == "killed from outside by signal 9"
    assert not is_failure(ending)
    waits = [b - a for a, b in pairwise(cluster.launched_s)]
    assert waits[0] < 5
    assert waits[1] < waits[2] < waits[3]


@pytest.mark.parametrize(
    ("exit_code", "output", "message"),
    [
        pytest.param(139, b"", "exit code 139", id="its own SEGV"),
        pytest.param(
            137,
            b"slurmstepd: error: Detected 1 oom_kill event in StepId=3.0.",
            "killed for want of memory",
            id="too little memory, says Slurm",
        ),
        pytest.param(
            143,
            b"srun: error: n1: task 1: Exited with exit code 1\n"
            b"srun: error: n2: task 0: Terminated",
            "exit code 143",
            id="srun killed the others after an error",
        ),
    ],
)
def test_a_program_fails_by_its_own_signals_memory_and_errors(
    exit_code: int, output: bytes, message: str
) -> None:
    cluster, _ = training_on(2)

    kill_again_and_again(cluster, 3, exit_code=exit_code, output=output)
    cluster.run(3)

    assert cluster.newest().members == ()
    assert cluster.newest().reason.startswith(GAVE_UP)
    assert message in cluster.newest().reason


def test_what_the_kernel_killed_for_memory_is_the_programs_own_failure() -> None:
    cluster, _ = training_on(2)

    cluster.oom_kills = 1
    kill_again_and_again(cluster, 1)

    assert is_failure(cluster.board.over[TRAINER, 1])


def test_a_kill_for_memory_on_a_shared_node_may_be_of_another_job() -> None:
    pieces = NodeSettings(max_nodes=8, gpus_per_lease=1)
    cluster, _ = training_on(2, job=structs.replace(a_job(), nodes=pieces))

    cluster.oom_kills = 1
    kill_again_and_again(cluster, 1)

    assert not is_failure(cluster.board.over[TRAINER, 1])


def test_a_world_that_is_launched_ahead_is_given_up_when_a_later_one_comes() -> None:
    cluster, keys = training_on(1, more=3)
    cluster.assign(*keys[:2])
    cluster.run_until(lambda: (TRAINER, 2) in cluster.worlds)

    cluster.assign(*keys[:3])
    cluster.run_until(lambda: cluster.training() == [3])
    cluster.run(2)

    assert cluster.board.over[TRAINER, 2].ended is EndingKind.NOT_LAUNCHED
    assert cluster.board.over[TRAINER, 1].ended is EndingKind.RESCALED


def test_a_program_that_is_not_elastic_is_launched_when_the_last_one_is_swept() -> None:
    cluster, keys = training_on(2, more=1, job=structs.replace(a_job(), elastic=False))

    cluster.assign(*keys)
    cluster.run_until(lambda: cluster.training() == [2])

    assert cluster.launches == [(1, (), None), (2, (), None)]
    assert cluster.board.over[TRAINER, 1].ended is EndingKind.RESCALED


def test_a_trainer_whose_work_is_done_is_stopped_and_counts_as_finished() -> None:
    cluster, _ = training_on(1)

    cluster.board.done.add(TRAINER)
    cluster.run(5)

    assert cluster.board.over[TRAINER, 1].ended is EndingKind.FINISHED
    assert cluster.newest().members == ()


def test_a_program_that_ignores_every_request_is_killed_and_is_no_failure() -> None:
    cluster, keys = training_on(3, ignores_stop=True)

    seconds = until_gone(cluster, keys[1], limit_s=15)

    assert seconds < 7
    assert cluster.board.over[TRAINER, 1].ended is EndingKind.KILLED


def test_a_lease_that_moves_is_used_when_its_old_trainer_has_left_it() -> None:
    cluster, keys = training_on(2)
    cluster.add_trainer(a_job("b"))

    cluster.assign(keys[0])
    cluster.assign(keys[1], trainer="b")
    cluster.run_until(lambda: cluster.training("b") == [1], limit_s=10)

    assert not cluster.worlds[TRAINER, 1].ranks
    cluster.run_until(lambda: cluster.training() == [2])


def test_a_lease_that_two_trainers_got_stays_with_the_later_one() -> None:
    cluster, keys = training_on(2)
    cluster.add_trainer(a_job("b"))

    cluster.assign(keys[1], trainer="b")
    cluster.run_until(lambda: cluster.training("b") == [1], limit_s=15)

    assert cluster.newest().keys == {keys[0]}
    cluster.run_until(lambda: cluster.training() == [2])
    assert cluster.leases[keys[1]].is_alive


@pytest.mark.parametrize("what", ["", "heartbeat", "write_heartbeat"])
def test_training_goes_on_while_the_files_cannot_be_reached(what: str) -> None:
    """On a full disk, all leases fall silent, and all can be read."""
    cluster, keys = training_on(2)
    for key in keys:
        cluster.leases[key].cut_until_s = cluster.now_s + 60
        cluster.leases[key].cut = what

    cluster.run(59)
    assert cluster.training() == [1]
    cluster.run(30)

    assert cluster.training() == [1]
    assert cluster.newest().generation == 1


def test_a_world_that_never_begins_is_killed_and_counts_as_a_failure() -> None:
    """An mpirun was seen to hang before the program begins."""
    cluster = ModelCluster(hangs=True)
    cluster.add_trainer()
    cluster.assign(cluster.add_lease(), cluster.add_lease())

    cluster.run_until(lambda: (TRAINER, 1) in cluster.board.over, limit_s=620)

    ending = cluster.board.over[TRAINER, 1]
    assert ending.ended is EndingKind.KILLED
    assert not ending.was_asked
    assert not ending.lost_lease
    assert ending.message == "it did not begin within 600 s"


def test_a_world_that_trains_is_left_alone_however_long() -> None:
    cluster, _ = training_on(2)
    cluster.run(PATIENCE.begin_patience_s + 30)
    assert cluster.training() == [1]


def test_leases_that_get_their_notice_together_are_left_out_together() -> None:
    cluster, keys = training_on(5)
    cluster.run(1)

    cluster.signal(keys[2])
    cluster.step()  # the others hear it a turn later
    cluster.signal(keys[0])
    cluster.signal(keys[1])
    cluster.run_until(lambda: cluster.training() == [2], limit_s=3)

    assert cluster.newest(TRAINER).keys == set(keys[3:])
    assert cluster.board.generations(TRAINER) == (1, 2)


def test_a_job_is_ended_by_force_only_where_something_of_it_is_left() -> None:
    """Slurm takes a second to do so, and none where the batch script ends."""
    cluster, (_, two) = training_on(2)

    cluster.signal(two)
    cluster.run_until(lambda: not cluster.leases[two].is_alive)

    assert not cluster.leases[two].is_forced


def test_a_world_that_began_has_begun_though_its_successor_removed_the_sign_of_it() -> (
    None
):
    cluster, (_, two) = training_on(2)
    cluster.run(1)
    cluster.board.begun.clear()
    cluster.board.ready.clear()

    cluster.signal(two)
    cluster.run_until(lambda: cluster.training() == [2])
    cluster.run(2)

    ending = cluster.board.over[TRAINER, 1]
    assert (ending.ended, ending.was_asked) == (EndingKind.RESCALED, True)


# Worlds that hang.


def test_a_world_that_hangs_is_ended_and_formed_again_and_that_is_a_failure() -> None:
    cluster, keys = training_on(2, stalls_s=30.0)
    began_s = cluster.now_s

    cluster.run_until(lambda: (TRAINER, 1) in cluster.board.over, limit_s=200)

    assert 145 <= cluster.now_s - began_s <= 170
    ending = cluster.board.over[TRAINER, 1]
    assert ending.message.startswith("stalled: no step for 120 s")
    assert (ending.ended, ending.was_asked) == (EndingKind.KILLED, False)
    assert is_failure(ending)
    cluster.run_until(lambda: cluster.training() == [2])
    assert cluster.newest().keys == set(keys)


def test_a_head_says_that_its_world_has_stalled() -> None:
    cluster, keys = training_on(2, stalls_s=30.0)
    cluster.run(140)
    assert not any(beat.is_stalled for beat in cluster.board.beats.values())

    cluster.run(15)

    assert [cluster.board.beats[key].is_stalled for key in keys] == [True, False]


def test_a_program_that_hangs_each_time_fails_after_longer_and_longer_waits() -> None:
    """It may have been at work after all, as in a long validation."""
    twice = structs.replace(a_job(), restart=RestartSettings(attempts=2, wait_s=5.0))
    cluster, _ = training_on(1, job=twice, stalls_s=30.0)

    cluster.run(720)

    newest = cluster.newest()
    assert newest.members == ()
    assert newest.reason.startswith(f"{GAVE_UP}, 2 in a row without a commit: stalled")
    over = cluster.board.over.values()
    ran_s = [e.ended_s - (e.started_s or 0.0) for e in over]
    assert 150 <= ran_s[0] <= 170
    assert 510 <= ran_s[1] <= 530


@pytest.mark.parametrize("step_s", [1.0, 110.0])
def test_a_world_that_makes_steps_however_slowly_is_left_alone(step_s: float) -> None:
    cluster, _ = training_on(1, step_s=step_s)

    cluster.run(400)

    assert cluster.training() == [1]
    assert cluster.newest().generation == 1


def test_slow_steps_make_the_watch_patient() -> None:
    cluster, _ = training_on(1, step_s=50.0, stalls_s=120.0)

    cluster.run(100 + 230)  # its last step, and almost five pauses
    assert cluster.newest().generation == 1
    cluster.run(40)

    assert (TRAINER, 1) in cluster.board.over


def test_a_program_that_reports_nothing_is_never_judged() -> None:
    cluster, _ = training_on(1, stalls_s=30.0, reports=False)

    cluster.run(400)

    assert cluster.newest().generation == 1


def test_a_world_that_writes_a_checkpoint_or_cannot_report_is_not_judged() -> None:
    cluster, _ = training_on(1, stalls_s=30.0)
    for second in range(40):
        cluster.board.stamps[TRAINER] = second
        cluster.run(10)
    assert cluster.newest().generation == 1
    cluster.board.is_full = True
    cluster.run(400)
    assert cluster.newest().generation == 1

    cluster.board.is_full = False
    cluster.run(200)

    assert (TRAINER, 1) in cluster.board.over


def test_a_time_in_which_reports_cannot_be_read_does_not_count() -> None:
    cluster, keys = training_on(1)
    cluster.leases[keys[0]].cut = "steps_reported"
    cluster.leases[keys[0]].cut_until_s = cluster.now_s + 400

    cluster.run(500)

    assert cluster.newest().generation == 1


# Ticks that fall silent.


def silent(
    nodes: int, *, silence_s: float | None = 180.0
) -> tuple[ModelCluster, list[LeaseKey]]:
    """Return a world that trains beside a sign that will not change any more."""
    cluster, keys = training_on(nodes)
    cluster.board.sign = TickSign(tick=7, silence_s=silence_s)
    cluster.run(4)  # agents look every few seconds
    return cluster, keys


def gone_s(cluster: ModelCluster, key: LeaseKey, *, since_s: float) -> float:
    ended_s = cluster.leases[key].ended_s
    assert ended_s is not None, "\n".join(cluster.log)
    return ended_s - since_s


def test_leases_end_themselves_together_when_no_tick_gives_a_sign() -> None:
    cluster, keys = silent(3)
    since_s = cluster.now_s

    cluster.run(140)
    assert cluster.training() == [1]
    assert cluster.questions_s == []
    cluster.run(45)

    assert not cluster.living()
    assert all(140 <= gone_s(cluster, key, since_s=since_s) <= 180 for key in keys)
    ending = cluster.board.over[TRAINER, 1]
    assert (ending.ended, ending.was_asked) == (EndingKind.RESCALED, True)
    assert [g for g, *_ in cluster.launches] == [1]
    assert cluster.newest().members == ()
    assert "leaving: no tick has given a sign for 150 s" in "\n".join(cluster.log)


def test_a_program_that_does_not_stop_keeps_no_lease_beyond_the_silence() -> None:
    cluster, (key,) = silent(1)
    since_s = cluster.now_s
    cluster.worlds[TRAINER, 1].ignores_stop = True

    cluster.run(185)

    assert gone_s(cluster, key, since_s=since_s) <= 180


def test_leases_stay_while_every_tick_gives_a_sign() -> None:
    cluster, keys = silent(2)

    for tick in range(8, 11):
        cluster.run(100)
        cluster.board.sign = TickSign(tick=tick, silence_s=180.0)

    assert cluster.living() == keys
    assert cluster.training() == [1]


@pytest.mark.parametrize("sign", [None, TickSign(tick=7, silence_s=None)])
def test_leases_without_a_sign_or_where_slurm_preempts_them_stay(
    sign: TickSign | None,
) -> None:
    cluster, keys = training_on(2)
    cluster.board.sign = sign
    cluster.board.sign_age_s = 10_000.0

    cluster.run(400)

    assert cluster.living() == keys


def test_leases_stay_while_slurm_does_not_answer_either_and_then_go() -> None:
    cluster, keys = silent(2)
    cluster.does_slurm_answer = False

    cluster.run(320)
    assert cluster.living() == keys
    assert len(cluster.questions_s) <= 2 * 320 / 145
    assert "slurmctld does not answer" in "\n".join(cluster.log)
    cluster.does_slurm_answer = True
    cluster.run(180)

    assert not cluster.living()


def test_an_agent_that_wakes_up_looks_at_the_sign_before_it_leaves() -> None:
    cluster, (key,) = silent(1)
    cluster.leases[key].frozen_until_s = cluster.now_s + 300
    cluster.run(299)
    cluster.board.sign = TickSign(tick=8, silence_s=180.0)

    cluster.run(20)

    assert cluster.living() == [key]
    assert cluster.questions_s == []


def test_an_agent_that_was_frozen_counts_that_time_as_silence_too() -> None:
    cluster, (key,) = silent(1)
    cluster.leases[key].frozen_until_s = cluster.now_s + 300

    cluster.run(303)

    assert not cluster.living(), cluster.log


def test_a_sign_that_cannot_be_read_counts_as_unchanged() -> None:
    cluster, (key,) = silent(1)
    cluster.leases[key].cut, cluster.leases[key].cut_until_s = "tick_sign", 1e9

    cluster.run(180)

    assert not cluster.living()


@pytest.mark.parametrize(
    ("age_s", "gone_s"), [(100.0, 50.0), (200.0, 15.0), (80_000.0, 15.0)]
)
def test_a_lease_that_starts_beside_an_old_sign_gives_itself_back_soon(
    age_s: float, gone_s: float
) -> None:
    """Not at once: the tick that asked for it changes the sign when it is done."""
    for is_renewed in (False, True):
        cluster = ModelCluster()
        cluster.board.sign = TickSign(tick=7, silence_s=180.0)
        cluster.board.sign_age_s = age_s
        key = cluster.add_lease()

        cluster.run(gone_s - 1)
        assert cluster.living() == [key]
        if is_renewed:
            cluster.board.sign = TickSign(tick=8, silence_s=180.0)
        cluster.run(2)

        assert (cluster.living() == [key]) == is_renewed


# Spares.

OTHER = "other"


def with_spares() -> tuple[ModelCluster, LeaseKey, LeaseKey]:
    """Return a world with two leases, whose trainers want spares, and its leases."""
    cluster = ModelCluster()
    for name in (TRAINER, OTHER):
        wants = structs.replace(a_job(name), launch=LaunchSettings(spare=True))
        cluster.add_trainer(wants)
    one, two = cluster.add_lease(), cluster.add_lease()
    cluster.assign(one, two)
    return cluster, one, two


def spares(cluster: ModelCluster) -> list[str]:
    return [lease.spare for lease in cluster.leases.values()]


def spares_run(cluster: ModelCluster) -> None:
    cluster.run_until(lambda: spares(cluster) == [TRAINER, TRAINER])


def test_every_lease_of_a_world_keeps_a_spare_from_when_it_trains() -> None:
    cluster, *keys = with_spares()

    while not cluster.training():
        assert spares(cluster) == ["", ""]
        cluster.step()
    cluster.run(0.5)
    assert spares(cluster) == [TRAINER, TRAINER]
    assert [cluster.board.spare_of(key) for key in keys] == ["", ""]  # not ready
    cluster.run(1.5)

    assert spares(cluster) == [TRAINER, TRAINER]
    assert [cluster.board.spare_of(key) for key in keys] == [TRAINER, TRAINER]


def test_a_spare_outlives_its_generation_and_goes_where_its_lease_is_given_away() -> (
    None
):
    cluster, one, two = with_spares()
    spares_run(cluster)

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
    cluster, one, two = with_spares()
    three = cluster.add_lease()
    for keys in ((), (one, two, three), (two, three)):
        if keys:
            cluster.assign(*keys)
        newest = cluster.newest().generation
        while cluster.training() != [newest]:
            cluster.step()
        cluster.run(2)

    forked = [world.is_forked for world in cluster.worlds.values()]
    assert forked == [False, False, True]  # the third lease had no spare at first


@pytest.mark.parametrize("has_memory", [True, False])
def test_without_a_word_in_the_job_file_there_are_spares_where_memory_is_free(
    *, has_memory: bool
) -> None:
    cluster, (one, two) = training_on(2)
    cluster.has_memory = has_memory
    cluster.run(4)

    name = TRAINER if has_memory else ""
    assert spares(cluster) == [name, name]
    cluster.has_memory = False  # what is there stays
    cluster.signal(one)
    cluster.run_until(lambda: cluster.training() == [2])

    assert cluster.worlds[TRAINER, 2].is_forked is has_memory
    assert cluster.leases[two].spare == name


@pytest.mark.parametrize(
    "launch", [LaunchSettings(spare=False), LaunchSettings(ahead=False)]
)
def test_a_job_file_can_say_that_there_is_no_room_for_a_second_process(
    launch: LaunchSettings,
) -> None:
    cluster, _ = training_on(2, job=structs.replace(a_job(), launch=launch))
    cluster.has_memory = True
    cluster.run(4)

    assert spares(cluster) == ["", ""]


def test_a_spare_that_ended_by_itself_is_not_started_again() -> None:
    cluster, one, _ = with_spares()
    spares_run(cluster)

    cluster.leases[one].spares[0].exit_code = 69
    cluster.run(5)

    assert len(cluster.leases[one].spares) == 1
    assert not cluster.board.spare_of(one)
    assert "the spare of" in "\n".join(cluster.log)


def test_after_a_failure_there_is_a_new_spare_as_the_program_may_be_another() -> None:
    cluster, one, _ = with_spares()
    cluster.fails_s = 6.0
    spares_run(cluster)

    cluster.run_until(lambda: (TRAINER, 1) in cluster.board.over)
    assert is_failure(cluster.board.over[TRAINER, 1])
    cluster.run(1)
    assert not cluster.leases[one].spare
    cluster.run_until(lambda: cluster.training() == [2])
    cluster.run(2)

    assert cluster.leases[one].spare == TRAINER
    assert len(cluster.leases[one].spares) == 2


def test_a_trainer_that_is_done_or_cancelled_keeps_no_spare() -> None:
    cluster, *keys = with_spares()
    spares_run(cluster)
    cluster.run(2)

    cluster.assign()
    cluster.run(5)

    assert spares(cluster) == ["", ""]
    assert [cluster.board.spare_of(key) for key in keys] == ["", ""]


def test_a_trainer_that_asks_for_no_spare_gets_none() -> None:
    cluster, (key,) = training_on(1)

    cluster.run(3)

    assert cluster.leases[key].spares == []


def test_one_look_at_files_that_cannot_be_read_costs_no_spare() -> None:
    cluster, one, _ = with_spares()
    spares_run(cluster)

    cluster.leases[one].cut_until_s = cluster.now_s + 0.5
    cluster.run(3)

    assert len(cluster.leases[one].spares) == 1
    assert cluster.leases[one].spare == TRAINER
