"""Spares in leases of a real cluster: worlds whose ranks are forks of them."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from msgspec import structs

from freetrain.state.files import Ended, lease_name
from tests.agent_live.ground import a_live_job
from tests.cluster.waiting import wait_for

if TYPE_CHECKING:
    from freetrain.state.files import AssignedLease
    from tests.agent_live.ground import Ground

pytestmark = pytest.mark.slurm


def forked(ground: Ground) -> tuple[tuple[AssignedLease, ...], int]:
    """Return three leases, and the generation of forks in which two of them train."""
    job = a_live_job(ground.state.path)
    ground.prepare(structs.replace(job, launch=structs.replace(job.launch, spare=True)))
    leases = ground.leases(3)
    ground.assign(*leases[:2])
    ground.wait_for_training(1)
    wait_for("spares", lambda: _listening(leases[:2]) and not _listening(leases[2:]))
    grown = ground.assign(*leases)
    trains = ground.wait_for_training(grown)
    # The third has no spare to fork of, but where a world had to be started again.
    assert trains > grown or not _is_fork(ground, grown, 0)
    wait_for("a third spare", lambda: _listening(leases))
    shrunk = ground.wait_for_training(ground.assign(*leases[:2]))
    assert [_is_fork(ground, shrunk, rank) for rank in range(2)] == [True, True]
    return leases, shrunk


def test_ranks_of_later_worlds_are_forks_and_no_step_is_lost(ground: Ground) -> None:
    leases, generation = forked(ground)

    ground.tell(leases[0])
    wait_for("the lease to end", lambda: ground.is_over(leases[0]))
    trains = ground.wait_for_training(generation + 1)

    assert _is_fork(ground, trains, 0)
    assert ground.wait_for_ending(generation).ended is Ended.RESCALED, ground.words()
    lines = map(json.loads, ground.progress().splitlines())
    steps = [line["step"] for line in lines if "loss" in line]
    assert steps == sorted(set(steps))
    assert not _listening(leases[:1])


def test_a_forked_rank_that_is_stopped_is_seen_to_be_one_of_its_generation(
    ground: Ground,
) -> None:
    leases, generation = forked(ground)

    ground.signal(ground.pid_of_rank(generation, 1), signal.SIGSTOP)
    ground.wait_for_training(generation + 1)

    ending = ground.wait_for_ending(generation)
    assert (ending.ended, ending.lost_lease) == (Ended.KILLED, False), ground.words()
    assert ground.newest().keys == {lease.key for lease in leases[:2]}


def test_a_spare_that_is_killed_costs_a_generation_and_no_lease(
    ground: Ground,
) -> None:
    leases, generation = forked(ground)

    ground.signal(_parent(ground.pid_of_rank(generation, 0)), signal.SIGKILL)
    ground.wait_for_training(generation + 1)

    ending = ground.wait_for_ending(generation)
    assert (ending.ended, ending.lost_lease) == (Ended.KILLED, False), ground.words()
    assert ground.newest().keys == {lease.key for lease in leases[:2]}


def _listening(leases: tuple[AssignedLease, ...]) -> bool:
    sockets = Path("/proc/net/unix").read_text(encoding="utf-8")
    return all(f"freetrain-spare-{lease_name(one.key)}" in sockets for one in leases)


def _is_fork(ground: Ground, generation: int, rank: int) -> bool:
    parent = _parent(ground.pid_of_rank(generation, rank))
    return b"FREETRAIN_SPARE=1" in ground.environ(parent).split(b"\0")


def _parent(pid: int) -> int:
    stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    return int(stat.rpartition(")")[2].split()[1])
