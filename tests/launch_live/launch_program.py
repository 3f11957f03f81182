"""The training program of these tests: it says what it finds, and trains until asked.

Run as ``python -m tests.launch_live.launch_program FOLDER elastic|plain``. Its ranks
meet by MPI, or by sockets where the launcher leaves that to the program.
"""

from __future__ import annotations

import json
import os
import pickle
import signal
import socket
import struct
import sys
import time
from pathlib import Path
from typing import Any

from freetrain import elastic
from tests.elastic.threads import ThreadWorld

PATIENCE_S = 60.0
_SHOWN = ("FREETRAIN_", "SLURM_", "RANK", "LOCAL_", "WORLD_SIZE", "CUSTOM_", "CUDA_")


class SocketMeeting:
    """Where ranks of several nodes put what the others are to see: at rank 0."""

    def __init__(self, rank: int, size: int, place: tuple[str, int]) -> None:
        self.size = size
        self._links: list[socket.socket] = []
        if rank == 0:
            with socket.create_server(place) as server:
                self._links = [server.accept()[0] for _ in range(size - 1)]
        else:
            self._links = [_connected(place)]

    def swap(self, rank: int, thing: Any) -> list[Any]:  # noqa: ANN401
        if rank:
            _send(self._links[0], (rank, thing))
            return list(_receive(self._links[0]))
        table = dict([(0, thing), *map(_receive, self._links)])
        seen = [table[one] for one in range(self.size)]
        for link in self._links:
            _send(link, seen)
        return seen


def _connected(place: tuple[str, int]) -> socket.socket:
    end_s = time.monotonic() + PATIENCE_S
    while True:
        try:
            return socket.create_connection(place)
        except OSError:
            if time.monotonic() > end_s:
                raise
            time.sleep(0.02)


def _send(link: socket.socket, thing: object) -> None:
    content = pickle.dumps(thing)
    link.sendall(struct.pack("!q", len(content)) + content)


def _receive(link: socket.socket) -> Any:  # noqa: ANN401
    (length,) = struct.unpack("!q", _exactly(link, 8))
    return pickle.loads(_exactly(link, length))  # noqa: S301 -- our own ranks


def _exactly(link: socket.socket, count: int) -> bytes:
    content = b""
    while len(content) < count:
        content += link.recv(count - len(content)) or sys.exit("a rank has gone")
    return content


def own_world() -> elastic.World | None:
    """The world of a launcher that leaves it to the program; None under MPI."""
    if "RANK" not in os.environ or "OMPI_COMM_WORLD_RANK" in os.environ:
        return None
    # torchrun's own store listens on the port itself.
    port = int(os.environ["MASTER_PORT"]) + ("TORCHELASTIC_RUN_ID" in os.environ)
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    meeting: Any = SocketMeeting(rank, size, (os.environ["MASTER_ADDR"], port))
    return ThreadWorld(meeting, rank)


def tell(folder: Path, rank: int, size: int) -> None:
    shown = {k: v for k, v in os.environ.items() if k.startswith(_SHOWN)}
    told = {"pid": os.getpid(), "parent": _parent(), "rank": rank, "size": size}
    told |= {"environment": shown, "argv": sys.argv[3:], "cwd": str(Path.cwd())}
    generation = os.environ["FREETRAIN_GENERATION"]
    temporary = folder / f".{os.getpid()}"
    temporary.write_text(json.dumps(told))
    temporary.replace(folder / f"{generation}-{rank}.json")
    sys.stdout.write(f"rank {rank} of {size}\n")
    sys.stdout.flush()


def _parent() -> str:
    return Path(f"/proc/{os.getppid()}/comm").read_text().strip()


def train(folder: Path) -> None:
    with elastic.join(world=own_world()) as run:
        state = run.restore({"n": 0})
        tell(folder, run.rank, run.size)
        for _ in run.batches(samples=100_000, global_batch=10, epochs=100):
            time.sleep(0.02)
            state["n"] += 1
            run.end_step(state)


def wait_for_signal(folder: Path) -> None:
    """Be a program that knows nothing of FreeTrain: QUIT asks it to commit."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGQUIT})
    rank = next(
        int(os.environ[name])
        for name in ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "RANK")
        if name in os.environ
    )
    tell(folder, rank, int(os.environ["FREETRAIN_WORLD_SIZE"]))
    signal.sigwait({signal.SIGQUIT})
    (folder / f"committed-{rank}").touch()


if __name__ == "__main__":
    act = {"elastic": train, "plain": wait_for_signal}[sys.argv[2]]
    act(Path(sys.argv[1]))
