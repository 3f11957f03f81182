"""Join a run: the one thing that a training program calls first.

``join`` finds the world of this process, waits until the generation before has
committed, claims its own generation, restores, lets the program train, commits what is
left, and writes how it ended.
"""

from __future__ import annotations

import os
import sys
import traceback
from contextlib import contextmanager, suppress
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from freetrain.elastic.checkpoint import CheckpointStore, read_checkpoint
from freetrain.elastic.contract import (
    SPARE,
    Ending,
    Outcome,
    Stop,
    StopSignals,
    read_launch,
    read_outcome,
    write_outcome,
)
from freetrain.elastic.errors import (
    GenerationTakenError,
    LaunchError,
    NotCommittedError,
)
from freetrain.elastic.files import Clock, RunDir, warn
from freetrain.elastic.fragment import Fragment
from freetrain.elastic.world import find_world

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from freetrain.elastic.checkpoint import Checkpoint
    from freetrain.elastic.contract import Launch
    from freetrain.elastic.world import World

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
    if environment.get(SPARE) and environment is os.environ:
        # A spare goes on only in the ranks that it becomes. Only spares need this.
        from freetrain.elastic.spare import become_a_rank  # noqa: PLC0415

        become_a_rank(os.environ)
    launch = read_launch(environment)
    run = RunDir(Path(launch.run_dir or run_dir).absolute())
    if launch.commit_every_s is not None:
        commit_every_s = launch.commit_every_s
    if launch.progress_every_s is not None:
        progress_every_s = launch.progress_every_s
    ranks, fragment = world, None
    try:
        ranks = find_world(launch, environment, given=world)
        with _stop_signals(launch) as signals:
            stop, why = wait_for_predecessor(launch, run, ranks, signals, clock)
            if stop:
                # Nothing is read and nothing claimed: the generation before may
                # still commit.
                generation, restored, store = launch.generation or 0, None, None
            else:
                generation, restored, store = _claim_and_restore(launch, run, ranks)
            fragment = Fragment(
                world=ranks,
                run=run,
                generation=generation,
                restored=restored,
                store=store,
                signals=signals,
                commit_every_s=commit_every_s,
                progress_every_s=progress_every_s,
                clock=clock,
                stop=stop,
                gave_up=why if ranks.rank == 0 else "",
            )
            try:
                yield fragment
            except SystemExit as leaving:
                if leaving.code:
                    raise
                _end(run, fragment, clock)
                raise
            _end(run, fragment, clock)
    except BaseException as error:
        if not isinstance(error, SystemExit) or error.code:
            failed = fragment.generation if fragment else launch.generation
            write_failure(run, failed, error, clock=clock, fragment=fragment)
            _abort_all(ranks, error)
        raise


@contextmanager
def _stop_signals(launch: Launch) -> Iterator[StopSignals]:
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


# Wait, all ranks connected, until the generation before has committed: so two worlds
# overlap in their start-up only, and a rescale costs what it takes to agree, to
# commit, and to restore.

# The ranks sleep between two rounds, so that a world that waits leaves the cores to
# the one that trains; a rescale waits for half of it on average.
_ROUND_S = 0.02


class _Vote(IntEnum):
    """What a rank is for in one round of waiting; the largest of all ranks' is done."""

    WAIT = 0
    GO = 1
    STOP = 2
    GAVE_UP = 3


def wait_for_predecessor(
    launch: Launch, run: RunDir, world: World, signals: StopSignals, clock: Clock
) -> tuple[Stop, str]:
    """Wait until the generation named by FREETRAIN_AFTER is over; collective.

    Rank 0 writes ``control/G.ready`` when every rank is here, and looks for that
    generation's outcome, or its ``control/A.over``.

    Returns:
        ``Stop.NO`` to train; ``Stop.RESCALE`` where this world was asked to stop
        meanwhile, ``Stop.FOR_GOOD`` and why where the training was given up: then
        nothing may be claimed, as the other one may still commit.
    """
    after, generation = launch.after, launch.generation
    if after is None or generation is None:
        return Stop.NO, ""
    _agree(world, _Vote.WAIT)  # none goes on before all are here
    if world.rank == 0:
        _write_ready(run, generation)
    while True:
        vote = _Vote.WAIT
        if world.rank == 0:
            vote = _vote_by_files(run, after, generation)
        if signals.came:
            vote = max(vote, _Vote.STOP)
        agreed = _agree(world, vote)
        if agreed is _Vote.GO:
            return Stop.NO, ""
        if agreed is _Vote.STOP:
            return Stop.RESCALE, ""
        if agreed is _Vote.GAVE_UP:
            outcome = _outcome_of(run, after)
            reason = (outcome.message if outcome else "") or "no reason given"
            return Stop.FOR_GOOD, f"generation {after} gave up: {reason}"
        clock.sleep(_ROUND_S)


def _agree(world: World, vote: _Vote) -> _Vote:
    return _Vote(int(world.maxima(np.array([vote], dtype=np.int64))[0]))


def _write_ready(run: RunDir, generation: int) -> None:
    try:
        run.create()
        run.ready(generation).touch()
    except OSError as error:
        warn(
            f"{run.ready(generation)} could not be written: {error}. The launcher does "
            f"not learn that this world is ready, and the rescale takes longer."
        )


def _vote_by_files(run: RunDir, after: int, generation: int) -> _Vote:
    control = _names_in(run.control)
    if run.stop_request(generation).name in control:
        return _Vote.STOP
    if run.outcome(after).name in _names_in(run.outcomes):
        outcome = _outcome_of(run, after)
        gave_up = outcome is not None and outcome.ending is Ending.DO_NOT_RESTART
        return _Vote.GAVE_UP if gave_up else _Vote.GO
    return _Vote.GO if run.over(after).name in control else _Vote.WAIT


def _names_in(folder: Path) -> set[str]:
    """List *folder*: NFS remembers that a file was not there, but not in a listing."""
    try:
        return {entry.name for entry in folder.iterdir()}
    except OSError:
        return set()


def _outcome_of(run: RunDir, generation: int) -> Outcome | None:
    with suppress(OSError):
        return read_outcome(run, generation)
    return None


# Claim the generation and restore.

_GENERATION_BYTES = 8


def _claim_and_restore(
    launch: Launch, run: RunDir, world: World
) -> tuple[int, Checkpoint | None, CheckpointStore | None]:
    """Claim this generation and read the newest checkpoint; collective.

    Rank 0 alone reads the run directory and sends the others what it found, so
    that all begin from the same state even where a file system shows them others.

    Returns:
        The generation; the checkpoint, None for none; the store, on rank 0 alone.

    Raises:
        GenerationTakenError: Another world runs, or has followed, this one.
        LaunchError: The run directory cannot be read, or none of its checkpoints.
    """
    if world.rank > 0:
        received = world.broadcast(b"")
        content = received[_GENERATION_BYTES:]
        restored = read_checkpoint(content) if content else None
        return int.from_bytes(received[:_GENERATION_BYTES]), restored, None
    try:
        generation = launch.generation or run.newest_generation() + 1
        store = CheckpointStore(run, generation=generation)
        _claim(run, store)
        newest = store.newest()
    except OSError as error:
        raise LaunchError(
            f"the run directory {run.path} cannot be read: {error}. Nothing "
            f"was trained, since what was committed there would be passed over."
        ) from error
    content, restored = newest or (b"", None)
    world.broadcast(generation.to_bytes(_GENERATION_BYTES) + content)
    return generation, restored, store


def _claim(run: RunDir, store: CheckpointStore) -> None:
    try:
        store.claim()
    except OSError as error:
        warn(
            f"{run.path} cannot be written: {error}. Training begins all the "
            f"same, but nothing of it is kept until the directory can be written."
        )


# The end: the last commit and the outcome, or failing as one.

_LONGEST_MESSAGE = 2000


def _end(run: RunDir, fragment: Fragment, clock: Clock) -> None:
    """Commit what is not committed, agree on how it ended, write it; collective.

    Raises:
        NotCommittedError: The training is over, but its end could not be kept.
    """
    committed_step, is_superseded = fragment.commit_last()
    if is_superseded:
        ending = Ending.SUPERSEDED
    elif fragment.stop is Stop.FOR_GOOD:
        ending = Ending.DO_NOT_RESTART
    elif fragment.stop is Stop.RESCALE and not fragment.finished:
        ending = Ending.RESCALED
    else:
        ending = Ending.FINISHED
    lost = fragment.position.step - committed_step
    if ending is Ending.FINISHED and lost:
        raise NotCommittedError(
            f"the training is over, but its last {lost} steps could not be kept. "
            f"{run.path} has the checkpoint of step {committed_step}. Make "
            f"room there, and run the program again: it goes on from that step."
        )
    message = f"the last {lost} steps were not committed" if lost else ""
    # Every rank that gave up writes why, and the first one counts.
    if fragment.gave_up or (fragment.rank == 0 and ending is not Ending.DO_NOT_RESTART):
        _write(
            run,
            Outcome(
                ending=ending,
                generation=fragment.generation,
                step=fragment.position.step,
                committed_step=committed_step,
                message=fragment.gave_up or message,
                t=clock.unix_s(),
            ),
        )


def write_failure(
    run: RunDir,
    generation: int | None,
    error: BaseException,
    *,
    clock: Clock,
    fragment: Fragment | None = None,
) -> None:
    """Write the outcome "failed", unless the generation is another world's.

    Args:
        run: The run.
        generation: The generation that failed; None where it has no number yet.
        error: Why.
        clock: The clocks to go by.
        fragment: How far it came; None where it had not begun.
    """
    if not generation or isinstance(error, GenerationTakenError):
        return
    _write(
        run,
        Outcome(
            ending=Ending.FAILED,
            generation=generation,
            step=fragment.position.step if fragment else 0,
            committed_step=fragment.committed_step if fragment else 0,
            message=f"{type(error).__name__}: {error}"[:_LONGEST_MESSAGE],
            t=clock.unix_s(),
        ),
    )


def _abort_all(world: World | None, error: BaseException) -> None:
    """End all ranks of a world of more than one, after the traceback.

    That does not return: the others may wait for this rank for ever.
    """
    if world is not None and world.size > 1:
        traceback.print_exception(error)
        sys.stdout.flush()
        sys.stderr.flush()
        world.abort(1)


def _write(run: RunDir, outcome: Outcome) -> None:
    try:
        write_outcome(run, outcome)
    except OSError as error:
        warn(
            f"the outcome {outcome.ending!s} of generation {outcome.generation} could "
            f"not be written: {error}. The launcher has only the exit code to go by."
        )
