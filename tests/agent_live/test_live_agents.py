"""Agents in leases of a real cluster: worlds that grow, shrink, and lose nodes."""

from __future__ import annotations

import json
import signal
import time
from typing import TYPE_CHECKING

import pytest

from freetrain.state.files import EndingKind
from slurm.records import JobKey
from tests.cluster.waiting import wait_for

if TYPE_CHECKING:
    from freetrain.state.files import AssignedLease
    from tests.agent_live.live_leases import LiveLeases

pytestmark = pytest.mark.slurm


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
    steps = _steps(live)
    assert steps == sorted(set(steps))


def test_a_trainer_that_is_done_is_launched_no_more(live: LiveLeases) -> None:
    leases = live.leases(2)
    live.assign(*leases)

    ending = live.wait_for_ending(1)

    assert ending.ended is EndingKind.FINISHED
    wait_for("the last generation", lambda: live.newest().members == ())
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
    steps = _steps(live)
    assert steps == sorted(set(steps))
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

    live.site.backend().cancel([_key(leases[who])])
    live.wait_for_training(began + 1)

    assert leases[who].key not in live.newest().keys
    live.wait_for_ending(began)


@pytest.mark.parametrize("who", [0, 1])
def test_an_agent_that_is_killed_takes_its_lease_with_it(
    live: LiveLeases, who: int
) -> None:
    leases, began = three(live)

    live.signal(live.pid_of_agent(leases[who]), signal.SIGKILL)
    live.wait_for_training(began + 1)

    assert leases[who].key not in live.newest().keys
    assert live.wait_for_ending(began).lost_lease
    wait_for("its job to end", lambda: live.is_over(leases[who]))


@pytest.mark.parametrize("who", [0, 1])
def test_an_agent_that_is_stopped_is_replaced_and_its_job_ended(
    live: LiveLeases, who: int
) -> None:
    leases, began = three(live)

    live.signal(live.pid_of_agent(leases[who]), signal.SIGSTOP)
    live.wait_for_training(began + 1)

    assert live.wait_for_ending(began).ended is EndingKind.RESCALED, live.words()
    wait_for("its job to end", lambda: live.is_over(leases[who]))
    steps = _steps(live)
    assert steps == sorted(set(steps))


@pytest.mark.parametrize("what", ["tests.elastic.program", "prted"])
def test_a_process_that_is_stopped_costs_a_generation_and_no_lease(
    live: LiveLeases, what: str
) -> None:
    leases, began = three(live)

    live.signal(_remote(live, what, leases[1]), signal.SIGSTOP)
    live.wait_for_training(began + 1)

    ending = live.wait_for_ending(began)
    assert (ending.ended, ending.lost_lease) == (EndingKind.KILLED, False), live.words()
    assert live.newest().keys == {lease.key for lease in leases}
    wait_for("all of it to be swept", lambda: not _of_generation(live, began))


def test_a_rank_that_is_killed_costs_a_generation_and_no_lease(
    live: LiveLeases,
) -> None:
    leases, began = three(live)

    live.signal(live.pid_of_rank(began, 1), signal.SIGKILL)
    live.wait_for_training(began + 1)

    ending = live.wait_for_ending(began)
    assert (ending.ended, ending.lost_lease) == (EndingKind.KILLED, False), live.words()
    assert live.newest().keys == {lease.key for lease in leases}


def _steps(live: LiveLeases) -> list[int]:
    lines = map(json.loads, live.progress().splitlines())
    return [line["step"] for line in lines if "loss" in line]


def _key(member: AssignedLease) -> JobKey:
    return JobKey(member.job_id, member.display_id)


def _remote(live: LiveLeases, what: str, member: AssignedLease) -> int:
    """Return the process of *what* on the node of *member*."""
    found = [
        pid
        for pid, command in live.marked().items()
        if any(word.endswith(what) for word in command.split("\0")[:3])
        and live.lease_of(pid) == member.key
    ]
    assert found, live.marked()
    return found[0]


def _of_generation(live: LiveLeases, generation: int) -> list[int]:
    mark = f"FREETRAIN_WORLD=live/{generation}".encode()
    return [p for p in live.marked() if mark in live.environ(p).split(b"\0")]
