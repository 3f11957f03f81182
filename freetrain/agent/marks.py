"""The two variables that every process of a world carries, and what they say."""

from __future__ import annotations

import re
from dataclasses import dataclass

from freetrain.broker.lease import LeaseKey
from freetrain.launch.request import LEASE_MARK, WORLD_MARK

_LEASE = re.compile(r"(.{1,100})-([0-9]{1,10})", re.ASCII)
_WORLD = re.compile(r"([^/\0]{1,200})/([0-9]{1,10})")


@dataclass(frozen=True, slots=True)
class Mark:
    """Whose a process is.

    Attributes:
        lease: The lease on whose node it was started.
        trainer: The trainer.
        generation: The generation, 0 for none.
    """

    lease: LeaseKey
    trainer: str
    generation: int


def read_mark(environ: bytes) -> Mark | None:
    """Return the mark in *environ*, as ``/proc/PID/environ`` has it; None for none.

    Whatever else is in it is hostile, and stays unread.
    """
    lease = _LEASE.fullmatch(_value(environ, LEASE_MARK))
    if lease is None:
        return None
    world = _WORLD.fullmatch(_value(environ, WORLD_MARK))
    key = LeaseKey(lease[1], int(lease[2]))
    return Mark(key, world[1], int(world[2])) if world else Mark(key, "", 0)


def _value(environ: bytes, name: str) -> str:
    start = b"\0" + environ
    at = start.find(f"\0{name}=".encode())
    if at < 0:
        return ""
    begin = at + len(name) + 2
    end = start.find(b"\0", begin)
    value = start[begin : end if end >= 0 else len(start)]
    return value.decode("utf-8", "replace")
