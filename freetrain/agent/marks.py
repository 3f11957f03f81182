"""Which processes of a node belong to which lease and generation.

Every process of a world carries two variables, its marks; agents find by them what is
to be counted and swept, also daemons that left the session of their launcher. A process
that emptied its environment is not found.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from freetrain.broker.lease import LeaseKey
from freetrain.elastic.contract import SPARE
from freetrain.launch.request import LEASE_MARK, WORLD_MARK
from freetrain.processes import PROC, context_switches, environments, status_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# Open MPI, MPICH's and Slurm's PMI, and our starters give one of these to ranks.
_RANKS = (b"OMPI_COMM_WORLD_RANK", b"PMI_RANK", b"PMIX_RANK", b"RANK")
_LEASE = re.compile(r"(.{1,100})-([0-9]{1,10})", re.ASCII)
_WORLD = re.compile(r"([^/\0]{1,200})/([0-9]{1,10})")


@dataclass(frozen=True, slots=True)
class Mark:
    """The marks of a process.

    Attributes:
        lease: The lease on whose node it was started.
        trainer: The trainer; empty for none.
        generation: The generation, 0 for none.
        is_rank: Whether it is a rank, or stands for one, and no daemon or client.
    """

    lease: LeaseKey
    trainer: str
    generation: int
    is_rank: bool = False

    @property
    def world(self) -> tuple[str, int]:
        """The trainer and the generation."""
        return (self.trainer, self.generation)


@dataclass(frozen=True, slots=True)
class MarkedProcess:
    """A process of a world.

    Attributes:
        pid: Its number.
        started: When it began, in clock ticks since boot.
        mark: Its marks.
        is_stopped: Whether it is stopped, as by SIGSTOP.
        switches: How often it was put on a CPU or off it, where it is stopped: members
            of a pack may take turns, and have more of them from look to look.
    """

    pid: int
    started: int
    mark: Mark
    is_stopped: bool = False
    switches: int = 0


def marked_processes(
    *, uid: int, own_pid: int, proc: Path = PROC
) -> Iterator[MarkedProcess]:
    """Yield the marked processes of user *uid* on this node, but for *own_pid*.

    Zombies and processes that vanish meanwhile are left out.

    Raises:
        OSError: The processes cannot be listed.
    """
    for pid, environ in environments(LEASE_MARK.encode(), uid=uid, proc=proc):
        mark = read_mark(environ)
        status = status_of(pid, proc=proc)
        if pid == own_pid or mark is None or status is None or status.has_ended:
            continue
        try:
            switches = context_switches(pid, proc=proc) if status.is_stopped else 0
        except OSError:
            continue
        yield MarkedProcess(
            pid,
            status.started,
            mark,
            is_stopped=status.is_stopped,
            switches=switches,
        )


def read_mark(environ: bytes) -> Mark | None:
    r"""Return the marks in *environ*, ``NAME=text\0`` again and again; None for none.

    All the rest of it may be hostile, and is not read.
    """
    lease = _LEASE.fullmatch(_value(environ, LEASE_MARK))
    if lease is None:
        return None
    world = _WORLD.fullmatch(_value(environ, WORLD_MARK))
    key = LeaseKey(lease[1], int(lease[2]))
    if world is None:
        return Mark(key, "", 0)
    generation = int(world[2])
    # A fork shows the variables of its spare, but for the generation, which it wrote.
    is_fork = generation > 0 and b"\0%s=" % SPARE.encode() in environ
    is_rank = is_fork or any(b"\0%s=" % name in environ for name in _RANKS)
    return Mark(key, world[1], generation, is_rank=is_rank)


def _value(environ: bytes, name: str) -> str:
    start = b"\0" + environ
    at = start.find(f"\0{name}=".encode())
    if at < 0:
        return ""
    begin = at + len(name) + 2
    end = start.find(b"\0", begin)
    value = start[begin : end if end >= 0 else len(start)]
    return value.decode("utf-8", "replace")
