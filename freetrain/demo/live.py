"""The demo itself: a stand-in for Slurm, three trainers, a tick every few seconds."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING

from freetrain.demo.history import History, read_history, read_told
from freetrain.demo.others import as_jobs, stays
from freetrain.demo.trainers import TRAINERS, demo_site
from freetrain.desk.hand_in import Asked, hand_in
from freetrain.errors import FreeTrainError
from freetrain.exchange.layout import StateDir
from freetrain.standin.installing import StandIn, at_work, install
from freetrain.tick.real_outside import real_outside
from freetrain.tick.tick import tick
from slurm.errors import SlurmError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Mapping
    from pathlib import Path

    from freetrain.demo.trainers import DemoTrainer
    from freetrain.site.settings import Site
    from freetrain.standin.records import Cluster

TICK_EVERY_S = 2.0
LOOK_EVERY_S = 0.5
LONGEST_S = 105.0
"""After so long the demo gives up: it must end within two minutes."""

_ALONE_PATIENCE_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Around:
    """What the demo takes from outside.

    Attributes:
        now_s: Unix time.
        pause: Sleeps so many seconds.
        environ: Environment variables.
        home: The user's home; None for none.
        uid: The user's number.
        mpirun: What starts worlds.
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
class Moment:
    """What there is to see now and then.

    Attributes:
        begin_s: When the trainers were submitted, Unix time.
        now_s: Unix time.
        cluster: The stand-in's state.
        histories: Of the trainers.
        problem: What the last tick complained of, empty for nothing.
    """

    begin_s: float
    now_s: float
    cluster: Cluster
    histories: tuple[History, ...]
    problem: str = ""

    @property
    def is_over(self) -> bool:
        """Whether all trainers have finished."""
        return all(history.is_finished for history in self.histories)


def play(
    folder: Path,
    around: Around,
    *,
    seconds: float,
    seed: int,
    longest_s: float = LONGEST_S,
) -> Generator[Moment]:
    """Run the demo in *folder*, and yield what there is to see, the end included.

    However it ends, nothing that it started is left when the iterator is closed.

    Args:
        folder: Empty; gets the stand-in, job files and the state directory.
        around: What is outside.
        seconds: How long others come and go.
        seed: Of their coming and going.
        longest_s: When to give up.

    Raises:
        FreeTrainError: It could not be set up.
        OSError: A file could not be written.
    """
    slurm = folder / "slurm"
    slurm.mkdir(parents=True)
    with at_work(install(slurm, now_s=around.now_s())) as standin:
        site = demo_site(folder / "state")
        begin_s = around.now_s()
        standin.add(as_jobs(stays(seconds=seconds, seed=seed), begin_s=begin_s))
        _submit(folder, site, around)
        for moment in _ticks(standin, site, around, begin_s):
            yield moment
            if moment.is_over or moment.now_s > begin_s + longest_s:
                return


def losses_alone(
    folder: Path, around: Around, trainers: tuple[DemoTrainer, ...] = TRAINERS
) -> dict[str, Mapping[int, float]]:
    """Return the losses by step of runs of the same trainers that nobody disturbs.

    Each runs as one process, without MPI, without a pause, all at the same time.
    """
    runs = {}
    for trainer in trainers:
        told = {"FREETRAIN_RUN_DIR": str(folder / trainer.name)}
        runs[trainer.name] = subprocess.Popen(  # noqa: S603 - our own words
            trainer.command(chunk_s=0.0),
            env={**around.environ, **around.mpi, **told},
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
    return {name: read_told(folder / name / "progress.jsonl").losses for name in runs}


def _submit(folder: Path, site: Site, around: Around) -> None:
    for trainer in TRAINERS:
        path = folder / f"{trainer.name}.toml"
        text = trainer.job_toml(mpirun=around.mpirun, environment=around.mpi)
        path.write_text(text, encoding="utf-8")
        hand_in(
            Asked(path=path, named=path.name),
            site,
            environ=around.environ,
            home=around.home,
            uid=around.uid,
            now_s=around.now_s(),
        )


def _ticks(
    standin: StandIn, site: Site, around: Around, begin_s: float
) -> Iterator[Moment]:
    path = f"{standin.path}:{around.environ.get('PATH', '')}"
    outside = real_outside({**around.environ, "PATH": path})
    state = StateDir(site.state_directory)
    due_s, problem = begin_s, ""
    while True:
        if around.now_s() >= due_s:
            due_s = around.now_s() + TICK_EVERY_S
            try:
                tick(site, outside)
                problem = ""
            except (SlurmError, FreeTrainError) as error:
                problem = str(error)  # the next tick tries again, as cron would
        yield _look(standin, state, begin_s, around.now_s(), problem)
        around.pause(LOOK_EVERY_S)


def _look(
    standin: StandIn, state: StateDir, begin_s: float, now_s: float, problem: str
) -> Moment:
    names = (trainer.name for trainer in TRAINERS)
    return Moment(
        begin_s=begin_s,
        now_s=now_s,
        cluster=standin.look(),
        histories=tuple(read_history(name, state.trainer(name)) for name in names),
        problem=problem,
    )
