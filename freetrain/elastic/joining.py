"""Waiting, all ranks connected, until the generation before has committed.

So two worlds overlap in their start-up only, and a rescale costs what it takes to
agree, to commit, and to restore.
"""

from __future__ import annotations

import os
import sys
import traceback
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import IntEnum
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from freetrain.elastic.checkpoint import CheckpointStore, Position, read_checkpoint
from freetrain.elastic.errors import (
    GenerationTakenError,
    LaunchError,
    NotCommittedError,
    WorldMismatchError,
)
from freetrain.elastic.files import Clock, RunDir, warn
from freetrain.elastic.fragment import (
    Agreement,
    Committer,
    Fragment,
    ProgressLog,
    Setting,
)
from freetrain.elastic.launch import SPARE, WORLD_SIZE, read_launch
from freetrain.elastic.outcome import Ending, Outcome, read_outcome, write_outcome
from freetrain.elastic.stop import Stop, StopFile, StopSignals
from freetrain.elastic.world import LoneWorld, MpiWorld

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from freetrain.elastic.checkpoint import Checkpoint
    from freetrain.elastic.launch import Launch
    from freetrain.elastic.world import World


# ----------------------------------------------------------------------
# Waiting, all ranks connected, until the generation before has committed.

# The ranks sleep between two rounds, so that a world that waits leaves the cores to
# the one that trains; a rescale waits for half of it on average.
_ROUND_S = 0.02


class _Word(IntEnum):
    """What a round comes to; ranks agree on the largest."""

    WAIT = 0
    GO = 1
    STOP = 2
    GAVE_UP = 3


def wait_for_predecessor(
    setting: Setting, world: World, signals: StopSignals
) -> tuple[Stop, str]:
    """Wait until the generation named by FREETRAIN_AFTER is over; collective.

    Rank 0 writes ``control/G.ready`` when every rank is here, and looks for that
    generation's outcome, or its ``control/A.over``.

    Returns:
        ``Stop.NO`` to train; ``Stop.RESCALE`` where this world was asked to stop
        meanwhile, ``Stop.FOR_GOOD`` and why where the training was given up: then
        nothing may be claimed, as the other one may still commit.
    """
    after, generation = setting.launch.after, setting.launch.generation
    if after is None or generation is None:
        return Stop.NO, ""
    _agree(world, _Word.WAIT)  # nobody is through before everybody is here
    if world.rank == 0:
        _say_ready(setting.run, generation)
    while True:
        mine = _look(setting.run, after, generation) if world.rank == 0 else _Word.WAIT
        if signals.came:
            mine = max(mine, _Word.STOP)
        word = _agree(world, mine)
        if word is _Word.WAIT:
            setting.clock.sleep(_ROUND_S)
            continue
        why = _why(setting.run, after) if word is _Word.GAVE_UP else ""
        stops = {_Word.STOP: Stop.RESCALE, _Word.GAVE_UP: Stop.FOR_GOOD}
        return stops.get(word, Stop.NO), why


def _agree(world: World, mine: _Word) -> _Word:
    return _Word(int(world.maxima(np.array([mine], dtype=np.int64))[0]))


def _say_ready(run: RunDir, generation: int) -> None:
    try:
        run.create()
        run.ready(generation).touch()
    except OSError as error:
        warn(
            f"{run.ready(generation)} could not be written: {error}. The launcher does "
            f"not learn that this world is ready, and the rescale takes longer."
        )


def _look(run: RunDir, after: int, generation: int) -> _Word:
    control = _names(run.control)
    if run.stop_request(generation).name in control:
        return _Word.STOP
    path = run.outcome(after)
    if path.name in _names(path.parent):
        said = _said(run, after)
        gave_up = said is not None and said.ending is Ending.DO_NOT_RESTART
        return _Word.GAVE_UP if gave_up else _Word.GO
    return _Word.GO if run.over(after).name in control else _Word.WAIT


def _names(folder: Path) -> set[str]:
    """List *folder*: NFS remembers that a file was not there, but not in a listing."""
    try:
        return {entry.name for entry in folder.iterdir()}
    except OSError:
        return set()


def _why(run: RunDir, after: int) -> str:
    said = _said(run, after)
    message = said.message if said else ""
    return f"generation {after} gave up: {message or 'no reason given'}"


def _said(run: RunDir, generation: int) -> Outcome | None:
    with suppress(OSError):
        return read_outcome(run, generation)
    return None


# ----------------------------------------------------------------------
# The start of a fragment: claim the generation, restore, tell all ranks.

_GENERATION_BYTES = 8


@dataclass(frozen=True, slots=True)
class _Start:
    """What all ranks of a fragment must know; the store is rank 0's alone."""

    generation: int
    restored: Checkpoint | None
    store: CheckpointStore | None

    @property
    def position(self) -> Position:
        return self.restored.position if self.restored else Position()


def begin(setting: Setting, world: World, signals: StopSignals) -> Fragment:
    """Start a fragment; collective.

    Rank 0 alone reads the run directory and sends the others what it found, so
    that all begin from the same state even where a file system shows them others.

    Raises:
        GenerationTakenError: Another world runs, or has followed, this one.
        LaunchError: The run directory cannot be read, or none of its checkpoints.
    """
    try:
        start = _start_of_all(setting, world)
    except OSError as error:
        raise LaunchError(
            f"the run directory {setting.run.path} cannot be read: {error}. Nothing "
            f"was trained, since what was committed there would be passed over."
        ) from error
    progress = None
    if world.rank == 0:
        progress = ProgressLog(
            setting, generation=start.generation, world_size=world.size
        )
        progress.start(start.position)
    request = setting.run.stop_request(start.generation)
    file = StopFile(request, clock=setting.clock)
    return Fragment(
        world=world,
        generation=start.generation,
        run_dir=setting.run.path,
        restored=start.restored,
        agreement=Agreement(world, setting.clock),
        committer=Committer(
            start.store,
            committed_step=start.position.step,
            every_s=setting.commit_every_s,
            clock=setting.clock,
        ),
        progress=progress,
        stop_wanted=lambda: signals.came or (world.rank == 0 and file.is_there()),
    )


def begin_nothing(setting: Setting, world: World, *, stop: Stop, why: str) -> Fragment:
    """Return a fragment that ends before its first step; it claims nothing.

    Nothing of the run directory is read, and nothing of it fenced: an earlier
    generation may still commit.
    """
    return Fragment(
        world=world,
        generation=setting.launch.generation or 0,
        run_dir=setting.run.path,
        restored=None,
        agreement=Agreement(world, setting.clock),
        committer=Committer(
            None, committed_step=0, every_s=setting.commit_every_s, clock=setting.clock
        ),
        progress=None,
        stop_wanted=lambda: False,
        stop=stop,
        gave_up=why if world.rank == 0 else "",
    )


def _start_of_all(setting: Setting, world: World) -> _Start:
    if world.rank > 0:
        received = world.broadcast(b"")
        content = received[_GENERATION_BYTES:]
        return _Start(
            generation=int.from_bytes(received[:_GENERATION_BYTES]),
            restored=read_checkpoint(content) if content else None,
            store=None,
        )
    generation = setting.launch.generation or setting.run.newest_generation() + 1
    store = CheckpointStore(setting.run, generation=generation)
    _claim(setting, store)
    newest = store.newest()
    content = newest.content if newest else b""
    world.broadcast(generation.to_bytes(_GENERATION_BYTES) + content)
    return _Start(generation, newest.checkpoint if newest else None, store)


def _claim(setting: Setting, store: CheckpointStore) -> None:
    try:
        store.claim()
    except OSError as error:
        warn(
            f"{setting.run.path} cannot be written: {error}. Training begins all the "
            f"same, but nothing of it is kept until the directory can be written."
        )


# ----------------------------------------------------------------------
# The end of a fragment: the last commit, the outcome, and failing as one.

_LONGEST_MESSAGE = 2000


def end(setting: Setting, fragment: Fragment) -> None:
    """Commit what is not committed, agree on how it ended, write it; collective.

    Raises:
        NotCommittedError: The training is over, but its end could not be kept.
    """
    committed_step, is_superseded = fragment.commit_last()
    ending = _ending(fragment, is_superseded=is_superseded)
    lost = fragment.position.step - committed_step
    if ending is Ending.FINISHED and lost:
        raise NotCommittedError(
            f"the training is over, but its last {lost} steps could not be kept. "
            f"{setting.run.path} has the checkpoint of step {committed_step}. Make "
            f"room there, and run the program again: it goes on from that step."
        )
    message = f"the last {lost} steps were not committed" if lost else ""
    # Whoever gave up says why; anybody may write, and the first one counts.
    if fragment.gave_up or (fragment.rank == 0 and ending is not Ending.DO_NOT_RESTART):
        _write(
            setting,
            Outcome(
                ending=ending,
                generation=fragment.generation,
                step=fragment.position.step,
                committed_step=committed_step,
                message=fragment.gave_up or message,
                t=setting.clock.unix_s(),
            ),
        )


def fail(
    setting: Setting,
    world: World | None,
    fragment: Fragment | None,
    error: BaseException,
) -> None:
    """Write the outcome "failed", and end the other ranks.

    In a world of more than one this does not return: the others may wait for this
    rank for ever, so all are ended by ``MPI_Abort``, after the traceback.
    """
    generation = fragment.generation if fragment else setting.launch.generation
    if generation and not isinstance(error, GenerationTakenError):
        step = fragment.position.step if fragment else 0
        outcome = Outcome(
            ending=Ending.FAILED,
            generation=generation,
            step=step,
            committed_step=fragment.committed_step if fragment else 0,
            message=f"{type(error).__name__}: {error}"[:_LONGEST_MESSAGE],
            t=setting.clock.unix_s(),
        )
        _write(setting, outcome)
    if world is not None and world.size > 1:
        traceback.print_exception(error)
        sys.stdout.flush()
        sys.stderr.flush()
        world.abort(1)


def _ending(fragment: Fragment, *, is_superseded: bool) -> Ending:
    if is_superseded:
        return Ending.SUPERSEDED
    if fragment.stop is Stop.FOR_GOOD:
        return Ending.DO_NOT_RESTART
    if fragment.stop is Stop.RESCALE and not fragment.finished:
        return Ending.RESCALED
    return Ending.FINISHED


def _write(setting: Setting, outcome: Outcome) -> None:
    try:
        write_outcome(setting.run, outcome)
    except OSError as error:
        warn(
            f"the outcome {outcome.ending!s} of generation {outcome.generation} could "
            f"not be written: {error}. The launcher has only the exit code to go by."
        )


# ----------------------------------------------------------------------
# Find the world that this process belongs to, and refuse a wrong one.

# Set by Open MPI 4 and 5; by MPICH, Intel MPI and Slurm's pmi2; by Slurm's pmix.
_MPI_STARTED_US = ("OMPI_COMM_WORLD_SIZE", "PMI_RANK", "PMIX_RANK")
# In this order: inside a Slurm step, mpirun's count is right and the step's is the
# number of launch daemons.
_SIZE_VARIABLES = (
    "OMPI_COMM_WORLD_SIZE",
    "PMI_SIZE",
    "WORLD_SIZE",
    "SLURM_STEP_NUM_TASKS",
)


def find_world(
    launch: Launch, environment: Mapping[str, str], *, given: World | None = None
) -> World:
    """Return the world of this process, checked against what was announced.

    MPI is not even imported unless an MPI launcher started the process: its
    start costs a second, and fails where MPI is half installed.

    Args:
        launch: What FreeTrain's launcher announced.
        environment: The process' environment variables.
        given: The program's own world, for communicators other than MPI.

    Raises:
        WorldMismatchError: The size is not the one announced.
        LaunchError: An MPI launcher started us, and mpi4py cannot be used.
    """
    announced = {WORLD_SIZE: launch.world_size} if launch.world_size else {}
    if given is not None:
        _check_size(given.size, "the one passed to join()", announced)
        return given
    if any(name in environment for name in _MPI_STARTED_US):
        world, library = _mpi_world()
    else:
        world, library = LoneWorld(), "no MPI"
    _check_size(world.size, library, announced | _started(environment))
    return world


def _mpi_world() -> tuple[World, str]:
    try:
        mpi = import_module("mpi4py.MPI")
    except (ImportError, RuntimeError) as error:
        raise LaunchError(
            f"an MPI launcher started this process, but mpi4py cannot be used: "
            f"{error}. Nothing was trained. Install it into this Python "
            f"(`pip install mpi4py`), or start the program without mpirun."
        ) from error
    version = mpi.Get_library_version().strip("\x00 \n").split(",")[0].splitlines()[0]
    return MpiWorld(mpi.COMM_WORLD), f"mpi4py with {version}"


def _started(environment: Mapping[str, str]) -> dict[str, int]:
    for name in _SIZE_VARIABLES:
        text = environment.get(name, "")
        if text.isascii() and text.isdigit():
            return {name: int(text)}
    return {}


def _check_size(size: int, library: str, announced: Mapping[str, int]) -> None:
    wrong = [f"{name}={count}" for name, count in announced.items() if count != size]
    if wrong:
        raise WorldMismatchError(
            f"the launcher announced {' and '.join(wrong)}, but this process is in a "
            f"world of {size} ({library}). Nothing was trained. Most often mpi4py is "
            f"bound to another MPI than the mpirun that started it: use that MPI's "
            f"mpirun, or reinstall mpi4py against the MPI of the launcher. A launcher "
            f"that is not MPI needs a world of its own: join(world=...)."
        )


# ----------------------------------------------------------------------
# Join a run: the one thing that a training program calls first.

_DEFAULT_RUN_DIR = "freetrain-run"
_CLOCK = Clock()


@contextmanager
def join(  # noqa: PLR0913  # all of them have defaults
    *,
    run_dir: str | os.PathLike[str] = _DEFAULT_RUN_DIR,
    commit_every_s: float = 60.0,
    progress_every_s: float = 1.0,
    world: World | None = None,
    environment: Mapping[str, str] = os.environ,
    clock: Clock = _CLOCK,
) -> Iterator[Fragment]:
    """Join the run that the launcher set up, or train alone; collective.

    A clean end of the block commits what is not committed and writes the outcome;
    an exception writes the outcome "failed" and ends every rank. Call it on the
    main thread, where Python lets signals be handled.

    Args:
        run_dir: Where checkpoints and progress go; the launcher's word counts more.
        commit_every_s: Time between two commits, the most work that a crash
            costs; likewise. 0 commits every step.
        progress_every_s: Least time between two progress lines; likewise.
        world: The ranks, where it is not MPI that connects them.
        environment: The process' variables.
        clock: The clocks to go by.

    Yields:
        The context of this fragment.

    Raises:
        LaunchError: The launch is wrong; nothing was trained.
        NotCommittedError: The training is over, but its end could not be kept.
    """
    _spare(environment)
    launch = read_launch(environment)
    setting = Setting(
        launch=launch,
        run=RunDir(Path(launch.run_dir or run_dir).absolute()),
        commit_every_s=_first(launch.commit_every_s, commit_every_s),
        progress_every_s=_first(launch.progress_every_s, progress_every_s),
        clock=clock,
    )
    ranks, fragment = world, None
    try:
        ranks = find_world(launch, environment, given=world)
        with _heard(launch) as signals:
            stop, why = wait_for_predecessor(setting, ranks, signals)
            fragment = (
                begin_nothing(setting, ranks, stop=stop, why=why)
                if stop
                else begin(setting, ranks, signals)
            )
            try:
                yield fragment
            except SystemExit as leaving:
                if leaving.code:
                    raise
                end(setting, fragment)
                raise
            end(setting, fragment)
    except BaseException as error:
        if not isinstance(error, SystemExit) or error.code:
            fail(setting, ranks, fragment, error)
        raise


def _spare(environment: Mapping[str, str]) -> None:
    """Where this process is a spare, go on only in the ranks that it becomes."""
    if environment.get(SPARE) and environment is os.environ:
        # Imported here: only spares need it.
        from freetrain.elastic.spare import become_a_rank  # noqa: PLC0415

        become_a_rank(os.environ)


def _first(launcher: float | None, program: float) -> float:
    return program if launcher is None else launcher


@contextmanager
def _heard(launch: Launch) -> Iterator[StopSignals]:
    signals = StopSignals(launch.stop_signals)
    try:
        yield signals
    finally:
        # Under a launcher the process is about to end, and a late signal must not
        # kill it on its way out.
        if launch.generation is None:
            signals.close()
        else:
            signals.ignore()
