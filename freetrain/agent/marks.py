"""The two variables that every process of a world carries, and what they say."""

from __future__ import annotations

import re
from dataclasses import dataclass

from freetrain.broker.lease import LeaseKey
from freetrain.elastic.launch import SPARE
from freetrain.launch.request import LEASE_MARK, WORLD_MARK

# What Open MPI, MPICH's and Slurm's PMI, and starters give to ranks.
_RANKS = (b"OMPI_COMM_WORLD_RANK", b"PMI_RANK", b"PMIX_RANK", b"RANK")
_LEASE = re.compile(r"(.{1,100})-([0-9]{1,10})", re.ASCII)
_WORLD = re.compile(r"([^/\0]{1,200})/([0-9]{1,10})")


@dataclass(frozen=True, slots=True)
class Mark:
    """Whose a process is.

    Attributes:
        lease: The lease on whose node it was started.
        trainer: The trainer.
        generation: The generation, 0 for none.
        is_rank: Whether it is a rank, or stands for one, and no daemon or client.
    """

    lease: LeaseKey
    trainer: str
    generation: int
    is_rank: bool = False


def read_mark(environ: bytes) -> Mark | None:
    """Return the mark in *environ*, as ``/proc/PID/environ`` has it; None for none.

    Whatever else is in it is hostile, and stays unread.
    """
    lease = _LEASE.fullmatch(_value(environ, LEASE_MARK))
    if lease is None:
        return None
    world = _WORLD.fullmatch(_value(environ, WORLD_MARK))
    key = LeaseKey(lease[1], int(lease[2]))
    if world is None:
        return Mark(key, "", 0)
    generation = int(world[2])
    # A fork shows the variables of its spare, but for the generation that it wears.
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
