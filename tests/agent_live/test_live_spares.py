"""Spares in leases of a real cluster: worlds whose ranks are forks of them."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from msgspec import structs

from freetrain.state.files import EndingKind, lease_name
from tests.agent_live.live_leases import a_live_job
from tests.cluster.waiting import wait_for

if TYPE_CHECKING:
    from freetrain.state.files import AssignedLease
    from tests.agent_live.live_leases import LiveLeases

pytestmark = pytest.mark.slurm


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
    lines = map(json.loads, live.progress().splitlines())
    steps = [line["step"] for line in lines if "loss" in line]
    assert steps == sorted(set(steps))
    assert not _listening(leases[:1])


@pytest.mark.parametrize(
    ("of_spare", "number"), [(False, signal.SIGSTOP), (True, signal.SIGKILL)]
)
def test_a_forked_rank_or_its_spare_that_fails_costs_a_generation_and_no_lease(
    live: LiveLeases, *, of_spare: bool, number: signal.Signals
) -> None:
    leases, generation = forked(live)

    rank = live.pid_of_rank(generation, 0 if of_spare else 1)
    live.signal(_parent(rank) if of_spare else rank, number)
    live.wait_for_training(generation + 1)

    ending = live.wait_for_ending(generation)
    assert (ending.ended, ending.lost_lease) == (EndingKind.KILLED, False), live.words()
    assert live.newest().keys == {lease.key for lease in leases[:2]}


def _listening(leases: tuple[AssignedLease, ...]) -> bool:
    sockets = Path("/proc/net/unix").read_text(encoding="utf-8")
    return all(f"freetrain-spare-{lease_name(one.key)}" in sockets for one in leases)


def _is_fork(live: LiveLeases, generation: int, rank: int) -> bool:
    parent = _parent(live.pid_of_rank(generation, rank))
    return b"FREETRAIN_SPARE=1" in live.environ(parent).split(b"\0")


def _parent(pid: int) -> int:
    stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    return int(stat.rpartition(")")[2].split()[1])
