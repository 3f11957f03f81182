"""Agents in leases of a real cluster: worlds that grow, shrink, and lose nodes."""

from __future__ import annotations

import json
import signal
import time
from typing import TYPE_CHECKING

import pytest

from freetrain.state.files import Ended
from slurm.records import JobKey
from tests.cluster.waiting import wait_for

if TYPE_CHECKING:
    from freetrain.state.files import AssignedLease
    from tests.agent_live.ground import Ground

pytestmark = pytest.mark.slurm


def test_a_world_grows_and_shrinks_and_loses_no_step(ground: Ground) -> None:
    leases = ground.leases(3)

    shapes = leases[:2], leases, leases[1:]
    trained = [ground.wait_for_training(ground.assign(*members)) for members in shapes]

    for number in trained[:2]:
        ending = ground.wait_for_ending(number)
        assert (ending.ended, ending.was_asked) == (Ended.RESCALED, True)
    steps = _steps(ground)
    assert steps == sorted(set(steps))


def test_a_trainer_that_is_done_is_launched_no_more(ground: Ground) -> None:
    leases = ground.leases(2)
    ground.assign(*leases)

    ending = ground.wait_for_ending(1)

    assert ending.ended is Ended.FINISHED
    wait_for("the last generation", lambda: ground.newest().members == ())
    assert max(_steps(ground)) == 84


@pytest.mark.parametrize("who", [0, 1])
def test_a_lease_told_to_leave_is_gone_at_once_and_no_step_is_lost(
    ground: Ground, who: int
) -> None:
    leases = ground.leases(3)
    ground.assign(*leases)
    began = ground.wait_for_training(1)
    told_s = time.monotonic()

    ground.tell(leases[who])
    wait_for("the lease to end", lambda: ground.is_over(leases[who]))
    gone_s = time.monotonic() - told_s
    ground.wait_for_training(began + 1)

    ending = ground.wait_for_ending(began)
    assert ending.ended is Ended.RESCALED, ground.words()
    assert leases[who].key not in ground.newest().keys
    steps = _steps(ground)
    assert steps == sorted(set(steps))
    assert gone_s < 10, ground.words()  # the grace time: Slurm had nothing to do


def test_a_preempted_trainer_commits_and_its_nodes_are_free_before_the_grace_is_over(
    ground: Ground,
) -> None:
    leases = ground.leases(3)
    ground.assign(*leases)
    began = ground.wait_for_training(1)
    told_s = time.monotonic()

    job = ground.site.others_running_job(8, minutes=5)
    started_s = time.monotonic() - told_s

    ending = ground.wait_for_ending(began)
    assert ending.ended is Ended.RESCALED, ground.words()
    # Lines of progress come once a second; steps come more often.
    assert ending.step == ending.committed_step >= max(_steps(ground))
    assert started_s < 10, (job, ground.words())  # the grace time
    assert ground.newest().members == ()


@pytest.mark.parametrize("who", [0, 1])
def test_survivors_go_on_without_a_lease_that_was_killed(
    ground: Ground, who: int
) -> None:
    leases = ground.leases(3)
    ground.assign(*leases)
    began = ground.wait_for_training(1)

    ground.site.backend().cancel([_key(leases[who])])
    ground.wait_for_training(began + 1)

    assert leases[who].key not in ground.newest().keys
    ground.wait_for_ending(began)


@pytest.mark.parametrize("who", [0, 1])
def test_an_agent_that_is_killed_takes_its_lease_with_it(
    ground: Ground, who: int
) -> None:
    leases = ground.leases(3)
    ground.assign(*leases)
    began = ground.wait_for_training(1)

    ground.signal(ground.pid_of_agent(leases[who]), signal.SIGKILL)
    ground.wait_for_training(began + 1)

    assert leases[who].key not in ground.newest().keys
    assert ground.wait_for_ending(began).lost_lease
    wait_for("its job to end", lambda: ground.is_over(leases[who]))


@pytest.mark.parametrize("who", [0, 1])
def test_an_agent_that_is_stopped_is_replaced_and_its_job_ended(
    ground: Ground, who: int
) -> None:
    leases = ground.leases(3)
    ground.assign(*leases)
    began = ground.wait_for_training(1)

    ground.signal(ground.pid_of_agent(leases[who]), signal.SIGSTOP)
    ground.wait_for_training(began + 1)

    assert ground.wait_for_ending(began).ended is Ended.RESCALED, ground.words()
    wait_for("its job to end", lambda: ground.is_over(leases[who]))
    steps = _steps(ground)
    assert steps == sorted(set(steps))


@pytest.mark.parametrize("what", ["tests.elastic.program", "prted"])
def test_a_process_that_is_stopped_costs_a_generation_and_no_lease(
    ground: Ground, what: str
) -> None:
    leases = ground.leases(3)
    ground.assign(*leases)
    began = ground.wait_for_training(1)

    ground.signal(_remote(ground, what, leases[1]), signal.SIGSTOP)
    ground.wait_for_training(began + 1)

    ending = ground.wait_for_ending(began)
    assert (ending.ended, ending.lost_lease) == (Ended.KILLED, False), ground.words()
    assert ground.newest().keys == {lease.key for lease in leases}
    wait_for("all of it to be swept", lambda: not _of_generation(ground, began))


def test_a_rank_that_is_killed_costs_a_generation_and_no_lease(ground: Ground) -> None:
    leases = ground.leases(3)
    ground.assign(*leases)
    began = ground.wait_for_training(1)

    ground.signal(ground.pid_of_rank(began, 1), signal.SIGKILL)
    ground.wait_for_training(began + 1)

    ending = ground.wait_for_ending(began)
    assert (ending.ended, ending.lost_lease) == (Ended.KILLED, False), ground.words()
    assert ground.newest().keys == {lease.key for lease in leases}


def _steps(ground: Ground) -> list[int]:
    lines = map(json.loads, ground.progress().splitlines())
    return [line["step"] for line in lines if "loss" in line]


def _key(member: AssignedLease) -> JobKey:
    return JobKey(member.job_id, member.display_id)


def _remote(ground: Ground, what: str, member: AssignedLease) -> int:
    """Return the process of *what* on the node of *member*."""
    found = [
        pid
        for pid, command in ground.marked().items()
        if any(word.endswith(what) for word in command.split("\0")[:3])
        and ground.lease_of(pid) == member.key
    ]
    assert found, ground.marked()
    return found[0]


def _of_generation(ground: Ground, generation: int) -> list[int]:
    mark = f"FREETRAIN_WORLD=live/{generation}".encode()
    return [p for p in ground.marked() if mark in ground.environ(p).split(b"\0")]
