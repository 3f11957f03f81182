"""Launch real worlds of a training program, and end every process of theirs."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from freetrain import elastic
from freetrain.elastic.files import RunDir
from freetrain.processes import process_ids, status_of

REPOSITORY = Path(__file__).resolve().parents[2]
PATIENCE_S = 90.0
PROGRAM = ("-m", "tests.elastic.program")


def find_mpirun() -> tuple[str, ...]:
    """The command that comes before ``-n`` ranks; empty where there is no MPI.

    The mpirun beside this Python, or else the one on the PATH.
    """
    path = f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}"
    found = shutil.which("mpirun", path=path)
    if not found:
        return ()
    ask = [found, "--version"]
    told = subprocess.run(ask, capture_output=True, check=False)  # noqa: S603
    open_mpi = ("--map-by", ":OVERSUBSCRIBE", "--bind-to", "none")
    return (found, *(open_mpi if b"Open MPI" in told.stdout else ()))


def clean_environment() -> dict[str, str]:
    """This process' variables without what a launcher would have set."""
    ours = ("FREETRAIN_", "TEST_", "OMPI_", "PMI", "PRTE_", "SLURM_")
    kept = {k: v for k, v in os.environ.items() if not k.startswith(ours)}
    threads = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"), "1")
    root = ("OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM")
    # Ranks share cores here: one that waits must not keep another from working.
    yielding = {"OMPI_MCA_mpi_yield_when_idle": "1"}
    return {**kept, **threads, **yielding, **dict.fromkeys(root, "1")}


def spawn(
    argv: tuple[str, ...], log: Path, environment: dict[str, str], *, given: str = ""
) -> subprocess.Popen[bytes]:
    """Start *argv* in a session of its own; *log* gets its output."""
    with log.open("wb") as output, tempfile.TemporaryFile() as input_:
        input_.write(given.encode())
        input_.seek(0)
        return subprocess.Popen(  # noqa: S603  # our own argv
            argv,
            cwd=REPOSITORY,
            env=environment,
            stdin=input_ if given else subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )


@dataclass(frozen=True)
class Launched:
    process: subprocess.Popen[bytes]
    size: int
    generation: int
    log: Path

    def wait(self) -> int:
        """Wait for the end; a world that hangs is killed, and fails the test."""
        try:
            return self.process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.kill_all()
            raise AssertionError(
                f"generation {self.generation} hung:\n{self.log.read_text()}"
            ) from None

    def kill_all(self) -> None:
        self.signal_all(signal.SIGKILL)
        self.process.wait()

    def signal_all(self, number: signal.Signals) -> None:
        """Send a signal to all of the session, whichever group they are in."""
        for pid in session_members(self.process.pid):
            with suppress(ProcessLookupError):
                os.kill(pid, number)


@dataclass(frozen=True)
class Stand:
    folder: Path
    mpirun: tuple[str, ...] = ()
    launched: list[Launched] = field(default_factory=list)
    # Its name is short, as those of sockets are limited.
    short: tempfile.TemporaryDirectory[str] = field(
        default_factory=lambda: tempfile.TemporaryDirectory(prefix="ft")
    )

    @property
    def run_dir(self) -> Path:
        return self.folder / "run"

    def launch(
        self, size: int, generation: int, *program: str, **extra: str
    ) -> Launched:
        """Start *program*, or the test program; one rank needs no mpirun."""
        prefix = () if size == 1 else (*self.mpirun, "-n", str(size))
        argv = (*prefix, sys.executable, *(program or PROGRAM))
        return self.start(argv, size, generation, **extra)

    def start(
        self, argv: tuple[str, ...], size: int, generation: int, **extra: str
    ) -> Launched:
        (self.folder / "pids").mkdir(parents=True, exist_ok=True)
        log = self.folder / f"{len(self.launched):03d}.log"
        process = spawn(argv, log, self._environment(size, generation) | extra)
        self.launched.append(Launched(process, size, generation, log))
        return self.launched[-1]

    def run(self, size: int, generation: int, **extra: str) -> int:
        return self.launch(size, generation, **extra).wait()

    def close(self) -> None:
        for world in self.launched:
            world.kill_all()
        self.short.cleanup()

    def outcome(self, generation: int) -> dict[str, Any]:
        """The outcome of *generation*; empty where there is none."""
        path = RunDir(self.run_dir).outcome(generation)
        return dict(json.loads(path.read_text())) if path.exists() else {}

    def lines(self) -> list[dict[str, Any]]:
        path = self.run_dir / "progress.jsonl"
        text = path.read_text() if path.exists() else ""
        return [json.loads(line) for line in text.splitlines() if line]

    def checkpoints(self) -> list[Path]:
        """The checkpoint files, the newest last."""
        return [found.path for found in RunDir(self.run_dir).committed()]

    def committed(self) -> elastic.Checkpoint:
        return elastic.read_checkpoint(self.checkpoints()[-1].read_bytes())

    def ask_to_stop(self, generation: int) -> None:
        path = RunDir(self.run_dir).stop_request(generation)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()

    def pid(self, generation: int, rank: int) -> int:
        """The process of a rank, once it has joined."""
        path = self.folder / "pids" / f"{generation}-{rank}"
        wait_until(path.exists)
        return int(path.read_text())

    def _environment(self, size: int, generation: int) -> dict[str, str]:
        return clean_environment() | {
            "FREETRAIN_RUN_DIR": str(self.run_dir),
            "FREETRAIN_GENERATION": str(generation),
            "FREETRAIN_WORLD_SIZE": str(size),
            "FREETRAIN_COMMIT_EVERY_S": "0.1",
            "FREETRAIN_PROGRESS_EVERY_S": "0",
            "TEST_PIDS": str(self.folder / "pids"),
            "TMPDIR": self.short.name,
        }


def wait_until(condition: Any) -> None:  # noqa: ANN401  # any callable of no arguments
    end_s = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end_s, f"in vain: {condition}"
        time.sleep(0.005)


def session_members(session: int) -> list[int]:
    statuses = ((pid, status_of(pid)) for pid in process_ids())
    return [pid for pid, status in statuses if status and status.session == session]
