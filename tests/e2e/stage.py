"""FreeTrain as a user runs it on a cluster: files, variables, and its own commands."""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from freetrain.elastic.files import RunDir
from freetrain.launch.base import LEASE_MARK
from freetrain.state.files import StateDir, TrainerDir
from slurm.records import JobRecord
from slurm.text import parse_squeue, squeue_argv
from tests.cluster.cluster import Cluster
from tests.cluster.processes import describe, mentioning, proc_words
from tests.e2e.others import LEASES
from tests.e2e.outcome import losses

TOP = Path(__file__).resolve().parent.parent.parent
EXAMPLE = TOP / "examples" / "digits"
PROGRAM = TOP / "tests" / "e2e" / "digits_program.py"
_TICKS_AT_ONCE = 2
REMOTE_SHELLS = frozenset({"ssh", "rsh", "slogin", "rlogin", "remsh", "pdsh"})

_SITE = """\
state_directory = "{state}"

[lease]
{lease}

{more}
"""
_JOB = """\
name = "{name}"
{top}
command = ["{python}", "{program}", "{example}"]

[environment]
{environment}

[nodes]
min = 1
max = {most}
{nodes}

[launch]
{launch}

[checkpoint]
every = "{every}"

[restart]
attempts = 100
wait = "1s"
"""
_ENVIRONMENT = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    # All nodes are one host here, which these collectives take for a hint, and crash
    # (Open MPI 5.0.11, mca_coll_han_comm_create).
    "OMPI_MCA_coll": "^han",
    # It looks for a second, in every start, for fabrics that are not there.
    "OMPI_MCA_btl": "self,tcp",
    "OMPI_MCA_mpi_yield_when_idle": "1",  # all ranks share two processors
    "OPENBLAS_NUM_THREADS": "1",
    "PYTHONPATH": str(TOP),
}


@dataclass(frozen=True, slots=True)
class TickRun:
    """One run of the tick: when, how long, and how it ended."""

    at_s: float
    took_s: float
    exit_code: int
    said: str


@dataclass(frozen=True, slots=True)
class Stage:
    """A user with a folder and a configuration, on a cluster.

    Attributes:
        python: Runs FreeTrain's commands, and agents.
    """

    cluster: Cluster
    folder: Path
    python: Path = Path(sys.executable)

    @property
    def state(self) -> StateDir:
        return StateDir(self.folder / "state")

    @property
    def environ(self) -> dict[str, str]:
        """What cron would give, with no ssh client on the PATH."""
        slurm = self.cluster.environ
        path = f"{Path(sys.executable).parent}:{self.folder / 'bin'}"
        return {
            "PATH": path,
            "HOME": str(self.folder),
            "SLURM_CONF": slurm["SLURM_CONF"],
            "FREETRAIN_CONFIG": str(self.folder / "freetrain.toml"),
            "FREETRAIN_AGENT_PATIENCE": "silent_s=4,stuck_s=4",
            "LC_ALL": "C.UTF-8",
        }

    def set_up(self, *, lease: str, more: str = "") -> None:
        """Write the configuration, and a folder of programs that lacks ssh.

        *lease* are lines of the table ``[lease]``, *more* further tables.
        """
        # Eight nodes on one machine: how speed grows with them says nothing.
        planner = "" if "[planner]" in more else "[planner]\nlearn = false\n"
        site = _SITE.format(state=self.state.path, lease=lease, more=planner + more)
        (self.folder / "freetrain.toml").write_text(site, encoding="utf-8")
        programs = self.folder / "bin"
        programs.mkdir()
        for folder in self.cluster.environ.get("PATH", os.defpath).split(":"):
            _link_all(Path(folder), programs)

    def freetrain(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run one of FreeTrain's commands."""
        return subprocess.run(  # noqa: S603 -- our own interpreter and words
            [str(self.python), "-m", "freetrain", *words],
            check=False,
            capture_output=True,
            text=True,
            env=self.environ,
            cwd=self.folder,
            timeout=600,  # ticks have a deadline of their own
        )

    def submit(  # noqa: PLR0913  # all of them have defaults
        self,
        name: str,
        *,
        most: int = 4,
        top: str = "",
        nodes: str = "",
        launch: str = "",
        program: Path = PROGRAM,
        every: str = "1s",
        **environment: str,
    ) -> None:
        """Submit a trainer, of the digits unless *program* is given.

        *top* are further lines above the tables, *nodes* and *launch* of their tables;
        *every* is how often it commits.
        """
        folder = self.folder / "jobs" / name
        folder.mkdir(parents=True)
        variables = _ENVIRONMENT | environment
        job = _JOB.format(
            name=name,
            python=sys.executable,
            top=top,
            program=program,
            example=EXAMPLE,
            environment="\n".join(f'{k} = "{v}"' for k, v in variables.items()),
            most=most,
            nodes=nodes,
            launch=launch,
            every=every,
        )
        (folder / "job.toml").write_text(job, encoding="utf-8")
        done = self.freetrain("submit", str(folder / "job.toml"))
        assert done.returncode == 0, done.stderr

    @contextmanager
    def ticking(self, every_s: float) -> Iterator[list[TickRun]]:
        """Start the tick at fixed times, as cron does, as long as the block lasts.

        Like cron's it starts though the last still waits to follow itself up; but
        not while two are at work, as all nodes share this machine.
        """
        done = threading.Event()
        ticks: list[TickRun] = []

        def work() -> None:
            ticks.append(self.tick("--follow-up", f"{every_s:g}s"))

        def keep_time() -> None:
            began_s, at_work = time.monotonic(), list[threading.Thread]()
            while not done.wait(every_s - (time.monotonic() - began_s) % every_s):
                at_work = [tick for tick in at_work if tick.is_alive()]
                if len(at_work) < _TICKS_AT_ONCE:
                    at_work.append(threading.Thread(target=work))
                    at_work[-1].start()
            for tick in at_work:
                tick.join()

        cron = threading.Thread(target=keep_time)
        cron.start()
        try:
            yield ticks
        finally:
            done.set()
            cron.join()

    def tick(self, *options: str) -> TickRun:
        """Run the tick once."""
        at_s, clock_s = time.time(), time.monotonic()  # noqa: TID251 -- the real one
        ran = self.freetrain("tick", *options)
        took_s = time.monotonic() - clock_s
        return TickRun(at_s, took_s, ran.returncode, ran.stdout + ran.stderr)

    def status(self) -> dict[str, Mapping[str, Any]]:
        """What ``freetrain status`` says of each trainer."""
        done = self.freetrain("status", "--json", "--all")
        assert done.returncode == 0, done.stderr
        return {each["name"]: each for each in json.loads(done.stdout)["trainers"]}

    def states(self) -> dict[str, str]:
        """The state of each trainer."""
        return {name: str(each["state"]) for name, each in self.status().items()}

    def trainer(self, name: str) -> tuple[TrainerDir, RunDir]:
        """The folders of the trainer *name*."""
        folder = self.state.trainer(name)
        return folder, folder.run

    def leases(self) -> list[JobRecord]:
        """Leases that Slurm has and that have not ended."""
        jobs = parse_squeue(self.cluster.run(*squeue_argv()))
        return [j for j in jobs if j.name.startswith(LEASES) and not j.has_ended]

    def processes(self) -> dict[int, str]:
        """Processes that the state directory's owner would call FreeTrain's."""
        return mentioning(str(self.folder))

    def described_processes(self) -> str:
        """Return each of our processes, and the end of the log of each one's lease."""
        pids = self.processes()
        leases = {
            word.partition("=")[2]
            for pid in pids
            for word in proc_words(pid, "environ")
            if word.startswith(f"{LEASE_MARK}=")
        }
        logs = [self.state.path / "leases" / name / "agent.log" for name in leases]
        ends = [
            f"== {log.parent.name}\n{log.read_text(errors='replace')[-2_000:]}"
            for log in logs
            if log.exists()
        ]
        return "\n".join((describe(pids), *ends))


def _link_all(folder: Path, programs: Path) -> None:
    """Link each program of *folder* into *programs*, but those that go elsewhere."""
    if not folder.is_dir():
        return
    for program in folder.iterdir():
        link = programs / program.name
        if program.name not in REMOTE_SHELLS and not link.is_symlink():
            link.symlink_to(program)


EPOCHS = 40
"""What all trainers of these tests train for: 920 steps."""


def undisturbed(folder: Path, *, epochs: int = EPOCHS) -> dict[int, float]:
    """Train in *folder* and return the loss of each step."""
    variables = {"DIGITS_EPOCHS": str(epochs), "OPENBLAS_NUM_THREADS": "1"}
    subprocess.run(  # noqa: S603 -- our own interpreter
        [sys.executable, str(PROGRAM), str(EXAMPLE)],
        check=True,
        env={"PATH": os.defpath, "PYTHONPATH": str(TOP)} | variables,
        cwd=folder,
    )
    return dict(losses(RunDir(folder / "freetrain-run")))
