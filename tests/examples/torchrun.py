"""Launch worlds of PyTorch by torchrun, as FreeTrain does: a static rendezvous."""

import os
import signal
import socket
import sys
from contextlib import suppress
from pathlib import Path

from tests.elastic.launching import Launched, Stand, wait_until

TORCHRUN = (sys.executable, "-m", "torch.distributed.run")


class TorchStand(Stand):
    """A run directory, and worlds of it that torchrun starts."""

    def torchrun(
        self, size: int, generation: int, *program: str, **extra: str
    ) -> Launched:
        """Start *program* on *size* ranks of this machine."""
        place = ("--nnodes", "1", "--node-rank", "0", "--master-addr", "127.0.0.1")
        port = ("--master-port", str(free_port()))
        ranks = ("--nproc-per-node", str(size), "--no-python")
        argv = (*TORCHRUN, *place, *port, *ranks, sys.executable, *program)
        return self.start(argv, size, generation, **extra)

    def ranks(self, generation: int) -> dict[int, int]:
        """The processes of the ranks of *generation* that run, by rank."""
        return {
            int(said["RANK"]): pid
            for pid, said in self._processes()
            if "RANK" in said and said["FREETRAIN_GENERATION"] == str(generation)
        }

    def close(self) -> None:
        """Kill what still runs; each of torchrun's ranks has a session of its own."""
        super().close()
        for pid, _ in self._processes():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not list(self._processes()))

    def _processes(self) -> list[tuple[int, dict[str, str]]]:
        """Processes with this run directory in their environment, and that."""
        found = []
        for entry in Path("/proc").iterdir():
            said = environment_of(entry) if entry.name.isdigit() else {}
            if said.get("FREETRAIN_RUN_DIR") == str(self.run_dir):
                found.append((int(entry.name), said))
        return found


def environment_of(entry: Path) -> dict[str, str]:
    """The variables that a process was started with; none of a zombie."""
    with suppress(OSError):
        content = (entry / "environ").read_bytes().decode(errors="replace")
        pairs = (pair.partition("=") for pair in content.split("\0"))
        return {name: value for name, _, value in pairs}
    return {}


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])
