"""The variable by which agents know whose a process is, as the kernel shows it."""

from __future__ import annotations

import os
from pathlib import Path

WORLD = "FREETRAIN_WORLD"
"""Names the generation that a process belongs to, ``TRAINER/G``."""

_ENV_START, _ENV_END = 47, 48  # fields of stat(5) after the name, from 0


def wear(world: str) -> None:
    """Have ``/proc/PID/environ`` tell *world*, with more zeros if there is more room.

    The kernel shows the memory in which a process got its variables when it was
    started, so that a fork still shows those of the process that it was made of.

    Args:
        world: A trainer and one of its generations, ``TRAINER/G``.

    Raises:
        OSError: This process may not write there.
        ValueError: There is no mark, or it has no room for this one.
    """
    fields = Path("/proc/self/stat").read_bytes().rpartition(b")")[2].split()
    start, end = (int(fields[one]) for one in (_ENV_START, _ENV_END))
    with Path("/proc/self/mem").open("r+b", buffering=0) as memory:
        memory.seek(start)
        there = b"\0" + memory.read(end - start)
        name = f"\0{WORLD}=".encode()
        at = there.index(name) + len(name)
        mark = _filled(os.fsencode(world), there.index(b"\0", at) - at)
        memory.seek(start + at - 1)
        memory.write(mark)


def _filled(world: bytes, room: int) -> bytes:
    trainer, _, generation = world.rpartition(b"/")
    mark = b"%s/%s" % (trainer, generation.zfill(room - len(trainer) - 1))
    if len(mark) != room:
        raise ValueError(f"there is no room for {world!r}")
    return mark
