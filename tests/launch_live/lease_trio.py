"""Three leases on a real cluster, held by hand, and worlds launched over them."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import SystemRandom
from typing import TYPE_CHECKING, Any

from freetrain.broker.lease import LeaseKey
from freetrain.config.job import (
    CheckpointSettings,
    LaunchSettings,
    NodeSettings,
    StopSettings,
    StopSignal,
    TrainerJob,
)
from freetrain.launch.base import WORLD_MARK
from freetrain.launch.local import LocalLauncher, this_node
from freetrain.state.files import AssignedLease, StateDir
from tests.cluster.waiting import wait_for
from tests.state.endings import a_lease, an_assignment

if TYPE_CHECKING:
    from freetrain.launch.local import Session
    from tests.cluster.cluster import Cluster

REPOSITORY = Path(__file__).resolve().parents[2]
PATIENCE_S = 90.0
HOSTILE = "$(touch hurt); `touch hurt` * 'a\"b"

# All nodes of the cluster are this machine. Ranks share cores, Open MPI 5's shared
# memory and hierarchical collectives take nodes for one, and Open MPI 4's daemons
# would meet in one session folder, so each node gets its own.
ONE_MACHINE = {
    "OMPI_MCA_mpi_yield_when_idle": "1",
    "OMPI_MCA_coll": "^han",
    "OMPI_MCA_btl": "self,tcp",
    "OPENBLAS_NUM_THREADS": "1",
}
_ROOT = ("OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM")
_SRUN = """\
#!/bin/sh
for word in "$@"; do
    case $word in
    --nodelist=*) node=${word#*=} ;;
    esac
done
OMPI_MCA_orte_tmpdir_base=%s/$node
export OMPI_MCA_orte_tmpdir_base
mkdir -p "$OMPI_MCA_orte_tmpdir_base"
exec %s "$@"
"""


@dataclass
class Trio:
    """Three leases, and what is launched over them.

    Attributes:
        cluster: Where.
        folder: For all files.
        members: The leases.
        short: A folder with a short name: sockets' names are limited.
        started: Worlds so far.
    """

    cluster: Cluster
    folder: Path
    members: tuple[AssignedLease, ...]
    short: tempfile.TemporaryDirectory[str] = field(
        default_factory=lambda: tempfile.TemporaryDirectory(prefix="ft")
    )
    started: list[Session] = field(default_factory=list)

    @property
    def state(self) -> StateDir:
        return StateDir(self.folder / "state")

    @property
    def seen(self) -> Path:
        return self.folder / "seen"

    def job(
        self, launch: LaunchSettings, mode: str = "elastic", **extra: str
    ) -> TrainerJob:
        program = (sys.executable, "-m", "tests.launch_live.launch_program")
        return TrainerJob(
            name="digits",
            command=(*program, str(self.seen), mode, HOSTILE),
            directory=REPOSITORY,
            nodes=NodeSettings(max_nodes=3),
            launch=launch,
            elastic=mode == "elastic",
            checkpoint=CheckpointSettings(every_s=1.0),
            stop=StopSettings(
                signal=StopSignal.USR2 if mode == "elastic" else StopSignal.QUIT
            ),
            environment=tuple((ONE_MACHINE | extra).items()),
        )

    def launch(
        self,
        a_job: TrainerJob,
        generation: int = 1,
        *,
        members: tuple[AssignedLease, ...] | None = None,
    ) -> Session:
        self.seen.mkdir(exist_ok=True)
        assigned = an_assignment(
            generation, *(members or self.members), trainer=a_job.name
        )
        head = this_node(self._environment())
        launcher = LocalLauncher(self.state, head, SystemRandom())
        self.started.append(launcher.launch(a_job, assigned, after=None))
        return self.started[-1]

    def ranks(self, world: Session, count: int, generation: int = 1) -> list[Any]:
        """What every rank told, once all are there."""
        paths = [self.seen / f"{generation}-{rank}.json" for rank in range(count)]
        end_s = time.monotonic() + PATIENCE_S
        while not all(path.exists() for path in paths):
            assert world.poll() is None, self.log(generation)
            assert time.monotonic() < end_s, self.log(generation)
            time.sleep(0.02)
        return [json.loads(path.read_text()) for path in paths]

    def wait(self, world: Session, generation: int = 1) -> int:
        end_s = time.monotonic() + PATIENCE_S
        while (status := world.poll()) is None:
            assert time.monotonic() < end_s, self.log(generation)
            time.sleep(0.02)
        return status

    def log(self, generation: int = 1) -> str:
        path = self.state.trainer("digits").logs / f"{generation:010d}.log"
        return path.read_text() if path.exists() else ""

    def outcome(self, generation: int = 1) -> dict[str, Any]:
        path = self.state.trainer("digits").run.outcome(generation)
        return dict(json.loads(path.read_text()))

    def close(self) -> None:
        for world in self.started:
            world.kill()
            world.poll()
        wait_for("no process of any world", self.swept)
        self.short.cleanup()

    def swept(self) -> bool:
        """Kill what the worlds left, as agents do; tell whether nothing is left."""
        left = self.marked()
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return not left

    def marked(self) -> list[int]:
        """The processes that carry the mark of a world of these tests."""
        mark = f"FREETRAIN_RUN_DIR={self.state.trainer('digits').run.path}".encode()
        return [pid for pid, environ in _environs() if mark in environ]

    def of_world(self, generation: int) -> list[int]:
        world = f"{WORLD_MARK}=digits/{generation}".encode()
        pids = set(self.marked())
        return [p for p, environ in _environs() if p in pids and world in environ]

    def _environment(self) -> dict[str, str]:
        """The agent's, with traps where somebody would look for ssh."""
        traps = self.folder / "traps"
        traps.mkdir(exist_ok=True)
        for name in ("ssh", "rsh"):
            (traps / name).write_text(f"#!/bin/sh\ntouch {self.folder}/called-{name}\n")
            (traps / name).chmod(0o755)
        real = shutil.which("srun") or ""
        (traps / "srun").write_text(_SRUN % (self.short.name, real))
        (traps / "srun").chmod(0o755)
        return {
            **self.cluster.environ,
            "TMPDIR": self.short.name,
            "PATH": f"{traps}:{os.environ['PATH']}",
            "SLURM_LAUNCH_NODE_IPADDR": "127.0.0.1",
            **dict.fromkeys(_ROOT, "1"),
        }


def _environs() -> list[tuple[int, list[bytes]]]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with suppress(OSError):
                found.append(
                    (int(entry.name), (entry / "environ").read_bytes().split(b"\0"))
                )
    return found


def take_leases(cluster: Cluster, folder: Path) -> tuple[AssignedLease, ...]:
    """Hold three whole nodes, each by a job of its own."""
    script = folder / "lease.sh"
    script.write_text("#!/bin/sh\nexec sleep 3600\n")
    words = ("--parsable", "--exclusive", "--mem=0", "-N1", "-t60", "-o/dev/null")
    ids = [
        cluster.run("sbatch", "--partition=freetrain", *words, str(script)).strip()
        for _ in range(3)
    ]

    def held() -> tuple[AssignedLease, ...]:
        told = cluster.run("squeue", "-h", "-tR", "-o%A %N", f"-j{','.join(ids)}")
        lines = [line.split() for line in told.splitlines()]
        return tuple(_member(job_id, node) for job_id, node in sorted(lines))

    return wait_for("three leases", lambda: held() if len(held()) == 3 else None) or ()


def _member(job_id: str, node: str) -> AssignedLease:
    return a_lease(LeaseKey(f"uuid-of-{node}", 0), node, int(job_id))
