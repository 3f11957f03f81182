"""One fragment: a stretch of training on a fixed set of ranks, from join to outcome.

``join`` finds the world of this process, waits until the generation before has
committed, claims its own generation and restores. The program then goes through batches
and ends each step (``Fragment``). After some steps the ranks agree, by one small
allreduce, to commit or to stop; rank 0 commits and writes progress lines. At the end
``join`` commits the last steps and writes how the fragment ended. The log format
``fragments`` (``logs.csv_tables``) means something else: idle intervals of nodes.
"""

from __future__ import annotations

import json
import math
import os
import sys
import traceback
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import asdict
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from freetrain.elastic.batches import Sampler, sum_exactly, sum_quickly
from freetrain.elastic.checkpoint import (
    Checkpoint,
    CheckpointStore,
    Position,
    flatten,
    read_checkpoint,
)
from freetrain.elastic.contract import (
    SPARE,
    ChangedTrainingError,
    CheckpointMissingError,
    GenerationTakenError,
    LaunchError,
    NotCommittedError,
    Outcome,
    OutcomeKind,
    ProgramError,
    Stop,
    StopFile,
    StopSignals,
    read_launch,
    read_outcome,
    write_outcome,
)
from freetrain.elastic.files import Clock, RunDir, warn
from freetrain.elastic.world import find_world
from freetrain.opening import open_plain

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from numpy.typing import NDArray

    from freetrain.elastic.batches import Batch, Chunk
    from freetrain.elastic.checkpoint import State
    from freetrain.elastic.contract import Launch
    from freetrain.elastic.world import World

    SavedState = Mapping[str, Any] | Future[Any]
    GivenState = Mapping[str, Any] | Callable[[], SavedState]

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

    A clean end of the block commits the last steps and writes the outcome; an
    exception writes the outcome "failed" and ends every rank. Call it on the main
    thread, where Python lets signals be handled. The launcher's variables override
    the first three arguments.

    Args:
        run_dir: Folder of checkpoints and progress.
        commit_every_s: Time between two commits, the most work that a crash
            costs. 0 commits every step.
        progress_every_s: Least time between two progress lines.
        world: The ranks, where they are not connected by MPI.
        environment: The process' variables.
        clock: The clocks to go by.

    Raises:
        LaunchError: The launch is wrong; nothing was trained.
        NotCommittedError: The training is over, but its end could not be kept.
    """
    if environment.get(SPARE) and environment is os.environ:
        # A spare goes on only in the ranks that it becomes. No other process needs it.
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
                generation, restored, store = _claim_and_restore(
                    launch, run, ranks, clock
                )
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


# Waiting for the generation before. The new world starts up and connects while the old
# one still trains, so a rescale takes no longer than to agree, commit and restore.

# The ranks sleep between two rounds, so that the waiting world leaves the cores to the
# training one; a rescale waits for half of this time on average.
_ROUND_S = 0.02


class _Vote(IntEnum):
    """One rank's wish in a round of waiting; the ranks do the largest of all."""

    WAIT = 0
    GO = 1
    STOP = 2
    GAVE_UP = 3


def wait_for_predecessor(
    launch: Launch, run: RunDir, world: World, signals: StopSignals, clock: Clock
) -> tuple[Stop, str]:
    """Wait until the generation named by FREETRAIN_AFTER is over; collective.

    Rank 0 writes ``control/G.ready`` when every rank is connected, and looks for the
    earlier generation's outcome, or its ``control/A.over``.

    Returns:
        ``Stop.NO`` to train. Else nothing may be claimed, as the earlier generation may
        still commit: ``Stop.RESCALE`` where this world was asked to stop meanwhile,
        ``Stop.FOR_GOOD`` and the reason where the training was given up.
    """
    after, generation = launch.after, launch.generation
    if after is None or generation is None:
        return Stop.NO, ""
    _agree(world, _Vote.WAIT)  # returns when every rank is connected
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
        gave_up = outcome is not None and outcome.kind is OutcomeKind.DO_NOT_RESTART
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


# Claiming the generation and restoring.

_GENERATION_BYTES = 8


def _claim_and_restore(
    launch: Launch, run: RunDir, world: World, clock: Clock
) -> tuple[int, Checkpoint | None, CheckpointStore | None]:
    """Claim this generation and read the newest checkpoint; collective.

    Rank 0 alone reads the run directory and sends its checkpoint to the others: all
    begin from the same state, even where a file system shows them different files.

    Returns:
        The generation; the checkpoint, if there is one; the store, on rank 0 alone.

    Raises:
        GenerationTakenError: Another world runs, or has followed, this one.
        CheckpointMissingError: A checkpoint that was committed cannot be seen.
        LaunchError: The run directory cannot be read, or none of its checkpoints.
    """
    if world.rank > 0:
        received = world.broadcast(b"")
        content = received[_GENERATION_BYTES:]
        restored = read_checkpoint(content) if content else None
        return int.from_bytes(received[:_GENERATION_BYTES]), restored, None
    try:
        generation = launch.generation or run.last_used() + 1
        store = CheckpointStore(run, generation=generation, clock=clock)
        _claim(run, store)
        newest = store.newest()
    except OSError as error:
        raise LaunchError(
            f"the run directory {run.path} cannot be read: {error}. Nothing "
            f"was trained, since checkpoints there would be passed over."
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


# Training.


class Fragment:
    """One stretch of training on one fixed set of ranks; made by :func:`join`.

    Methods marked *collective* must be called by all ranks, in the same order.

    Attributes:
        world: The ranks; ``world.communicator`` is mpi4py's, where there is one.
        generation: The fragment's number, from 1 on.
        run_dir: The run's directory; the program may keep files of its own in it.
        position: How far the training is.
        gave_up: The reason that this rank gave to :meth:`stop_for_good`, if it did.
        stop: Why the ranks agreed to stop; ``Stop.NO`` while training goes on.
    """

    def __init__(  # noqa: PLR0913  # only join() calls it
        self,
        *,
        world: World,
        run: RunDir,
        generation: int,
        restored: Checkpoint | None,
        store: CheckpointStore | None,
        signals: StopSignals,
        commit_every_s: float,
        progress_every_s: float,
        clock: Clock,
        stop: Stop = Stop.NO,
        gave_up: str = "",
    ) -> None:
        self.world = world
        self.generation = generation
        self.run_dir = run.path
        self.position = restored.position if restored else Position()
        self.gave_up = gave_up
        self.stop = stop
        self._restored = restored
        self._state_given = False
        self._signals = signals
        self._stop_file = StopFile(run.stop_request(generation), clock=clock)
        self._agreement = Agreement(world, clock)
        self._committer = _Committer(
            store, step=self.position.step, every_s=commit_every_s, clock=clock
        )
        self._progress: _ProgressLog | None = None
        if store is not None:  # on rank 0
            self._progress = _ProgressLog(
                run.progress,
                generation=generation,
                world_size=world.size,
                every_s=progress_every_s,
                clock=clock,
                may_write=self._committer.check,
            )
            self._progress.start(self.position)
        self._sampler: Sampler | None = None
        self._batch: Batch | None = None
        self._state: GivenState | None = None
        # A position whose state is still being saved.
        self._saving: tuple[Position, Future[Any]] | None = None

    @property
    def rank(self) -> int:
        """This process' number, from 0."""
        return self.world.rank

    @property
    def size(self) -> int:
        """How many processes train together."""
        return self.world.size

    @property
    def finished(self) -> bool:
        """Whether every epoch is done: evaluate and export only then."""
        sampler = self._sampler
        return sampler is not None and self.position.epoch >= sampler.epochs

    def restore(self, initial: Mapping[str, Any]) -> State:
        """Return the last committed state, or *initial* where there is none.

        Args:
            initial: The state to begin with: NumPy arrays and scalars, numbers,
                strings, random generators, and dicts, lists, tuples of these.

        Returns:
            A new dict; the caller may write to the arrays of a restored state.

        Raises:
            StateError: *initial* holds something that no checkpoint can hold.
        """
        flatten(initial)
        restored = self._restored
        self._state_given = True
        return dict(restored.state if restored else initial)

    def batches(
        self,
        *,
        samples: int,
        global_batch: int,
        epochs: int,
        seed: int = 0,
        chunks: int = 16,
    ) -> Iterator[Batch]:
        """Yield every batch from where the training was; collective.

        Ends when all epochs are done or a stop was agreed; all is committed then.

        Args:
            samples: Samples in the data set.
            global_batch: Samples in a step, over all ranks, whatever their number.
            epochs: Times that every sample is used.
            seed: Of the order of samples.
            chunks: Pieces that a batch is cut into, the most ranks that can share
                it; fixed for the whole training, as sums depend on it.

        Raises:
            ChangedTrainingError: The checkpoint was made with other numbers.
            ProgramError: A number is too small, or a batch was not ended.
        """
        sampler = Sampler(
            samples=samples,
            global_batch=global_batch,
            epochs=epochs,
            seed=seed,
            chunks=chunks,
            rank=self.rank,
            size=self.size,
        )
        self._check_unchanged(sampler.unchanging())
        self._sampler = sampler
        while not self.stop:
            self._batch = sampler.batch_at(self.position)
            if self._batch is None:
                self._commit()
                self._end_saving()
                return
            yield self._batch
            if self._batch is not None:
                raise ProgramError(
                    f"step {self._batch.step} was not ended: nothing of it will be "
                    f"kept. Call end_step(state, loss=...) once for every batch."
                )

    def sum(
        self,
        batch: Batch,
        sums_of: Callable[[Chunk], tuple[Any, ...]],
        *,
        exact: bool = True,
    ) -> tuple[NDArray[Any], ...]:
        """Sum over a batch what *sums_of* returns for its chunks; collective.

        Args:
            batch: A batch of :meth:`batches`.
            sums_of: Returns floats and float arrays, each summed over the chunk's
                samples, of the same shapes for every chunk; has no side effect.
            exact: The same to the last bit in every world; False is one plain
                allreduce, the same within rounding only.

        Returns:
            One float64 array each; divide by ``len(batch)`` for the mean.

        Raises:
            ProgramError: *sums_of* returns other shapes for another chunk.
        """
        add_up = sum_exactly if exact else sum_quickly
        return add_up(self.world, batch, sums_of)

    def end_step(
        self,
        state: GivenState,
        **metrics: float,
    ) -> None:
        """End the step: report it, and commit or stop where that is due; collective.

        Args:
            state: All that the next step depends on, the same on every rank; rank
                0's is kept. A function is called, on every rank, only when a
                commit is due: it may gather a state that is spread over ranks. It may
                return a future of the state, where a thread saves what the state
                names: training goes on, and the commit is made once it is done.
            **metrics: The loss and other values to report.

        Raises:
            ProgramError: There is no batch to end, or a metric's name is taken.
            StateError: The state holds something that no checkpoint can hold.
        """
        batch, self._batch = self._batch, None
        if batch is None:
            raise ProgramError("end_step() ends a batch of batches(), once; none is.")
        if self._progress is not None:
            self._progress.step(batch, metrics)
        self.position = batch.after
        self._state = state
        if self._agreement.is_due():
            self._agree()

    def poll(self) -> Stop:
        """Commit or stop between two steps, where that is due; collective.

        For long work that is no step, such as an evaluation: call it on every rank once
        a batch. The state that the last step ended with is committed, so that nothing
        in it may have changed since.

        Returns:
            Why all ranks stop; ``Stop.NO`` to go on.
        """
        if not self.stop and self._agreement.is_due():
            self._agree()
        return self.stop

    def report(self, **metrics: float) -> None:
        """Report metrics that were measured after the last step had ended.

        Raises:
            ProgramError: A metric's name is taken.
        """
        if self._progress is not None:
            self._progress.measured(self.position, metrics)

    def stop_for_good(self, reason: str) -> None:
        """Give up: stop soon, and have this training never launched again.

        One rank is enough. It takes effect when the ranks next agree, within 64
        steps; all steps until then are committed.

        Args:
            reason: For people; goes into the outcome.
        """
        self.gave_up = reason or "no reason given"

    def _agree(self) -> None:
        wanted = Stop.NO
        if self._signals.came or (self.rank == 0 and self._stop_file.is_there()):
            wanted = Stop.RESCALE
        if self.gave_up:
            wanted = Stop.FOR_GOOD
        if self._committer.superseded:
            wanted = Stop.SUPERSEDED
        if self._saving and self._saving[1].done():
            self._end_saving()
        is_due = self._committer.is_due() and not self._saving
        self.stop, commits = self._agreement.agree(wanted, commit=is_due)
        if commits or self.stop:
            self._commit()
        if self.stop:
            self._end_saving()

    def _commit(self) -> None:
        # Forgotten at once, on every rank: a step is committed once, and a function
        # may gather, so that all ranks must call it or none.
        given, self._state = self._state, None
        if given is None:
            return
        self._end_saving()
        state = given() if callable(given) else given
        if isinstance(state, Future):
            self._saving = (self.position, state)
        else:
            self._keep(self.position, state)

    def _end_saving(self) -> None:
        """Commit the state that is being saved, if one is, once that is done."""
        saving, self._saving = self._saving, None
        if saving is not None:
            self._keep(saving[0], saving[1].result())

    def _keep(self, position: Position, state: Mapping[str, Any]) -> None:
        sampler = self._sampler
        self._committer.commit(
            Checkpoint(
                generation=self.generation,
                position=position,
                training=sampler.unchanging() if sampler else {},
                state=dict(state),
            )
        )

    @property
    def committed_step(self) -> int:
        """Steps in the newest checkpoint that this rank knows of."""
        return self._committer.committed_step

    def commit_last(self) -> tuple[int, bool]:
        """Commit the steps not committed yet, at the end of :func:`join`; collective.

        Returns:
            The number of committed steps, and whether a later generation exists.
        """
        self._commit()
        self._end_saving()
        facts = [self._committer.committed_step, self._committer.superseded]
        committed, superseded = self.world.maxima(np.array(facts, dtype=np.int64))
        return int(committed), bool(superseded)

    def is_replaced(self) -> bool:
        """Whether another world has this very generation: its files are not ours."""
        return self._committer.is_replaced()

    def _check_unchanged(self, now: dict[str, int]) -> None:
        if not self._state_given:
            raise ProgramError(
                "batches() came before restore(). Nothing was trained: a committed "
                "state would have been passed over. Call restore(initial) first."
            )
        before = self._restored.training if self._restored else now
        changed = [
            f"{k} {before.get(k)} → {v}" for k, v in now.items() if v != before.get(k)
        ]
        if changed:
            raise ChangedTrainingError(
                f"the checkpoint in {self.run_dir} was made with other numbers: "
                f"{', '.join(changed)}. Nothing was trained, because samples would be "
                f"repeated or skipped. Put them back, or begin in a new run directory."
            )
        self._restored = None


# The longest wait for the next agreement, while steps take as long as the last ones.
_WITHIN_S = 0.05
# Bounds the wait where steps suddenly take longer.
_MOST_STEPS = 64
_NS = 1e9


class Agreement:
    """Lets the ranks agree every so many steps, the same number on all of them.

    The number follows from the slowest rank's step time, which travels in the same
    allreduce, so that tiny steps do not pay for agreeing.
    """

    def __init__(self, world: World, clock: Clock) -> None:
        self._world = world
        self._clock = clock
        self._interval = 1
        self._left = 1
        self._since_s = clock.elapsed_s()

    def is_due(self) -> bool:
        """Count a step; tell whether the ranks agree after it."""
        self._left -= 1
        return self._left <= 0

    def agree(self, stop: Stop, *, commit: bool) -> tuple[Stop, bool]:
        """Agree with every rank; collective.

        Args:
            stop: This rank's wish; the ranks do the largest of all.
            commit: Whether this rank wants a commit; one rank is enough.

        Returns:
            Why all ranks stop, or ``Stop.NO``; whether all commit.
        """
        now_s = self._clock.elapsed_s()
        step_ns = int((now_s - self._since_s) / self._interval * _NS)
        mine = np.array([stop, commit, step_ns], dtype=np.int64)
        stop_code, commit_code, slowest_ns = map(int, self._world.maxima(mine))
        fitting = int(_WITHIN_S * _NS) // max(slowest_ns, 1)
        self._interval = self._left = min(max(fitting, 1), _MOST_STEPS)
        self._since_s = self._clock.elapsed_s()
        return Stop(stop_code), bool(commit_code)


class _Committer:
    """Commits on rank 0, which has the store; on other ranks it does nothing.

    A commit that fails is reported, and training goes on.

    Attributes:
        committed_step: Steps in the newest checkpoint, restored or committed.
        superseded: Whether a commit found that a later generation exists.
    """

    def __init__(
        self,
        store: CheckpointStore | None,
        *,
        step: int,
        every_s: float,
        clock: Clock,
    ) -> None:
        self.committed_step = step
        self.superseded = False
        self._store = store
        self._every_s = every_s
        self._clock = clock
        self._failed = False
        self._since_s = clock.elapsed_s()

    def is_due(self) -> bool:
        """Tell whether it is time for a commit."""
        elapsed_s = self._clock.elapsed_s() - self._since_s
        return self._store is not None and elapsed_s >= self._every_s

    def check(self) -> bool:
        """Tell whether the run directory is known to be this world's still.

        Where the folder was replaced by another in which another world trains, this
        world must not write there, and stops as if it had a successor.
        """
        if self._store is None:
            return False
        try:
            self.superseded = self.superseded or self._store.is_superseded()
        except OSError:
            return False
        return not self.superseded

    def is_replaced(self) -> bool:
        """Tell whether another world has this very generation."""
        try:
            return self._store is not None and self._store.is_replaced()
        except OSError:
            return False

    def commit(self, checkpoint: Checkpoint) -> None:
        """Commit, unless a later generation exists.

        Raises:
            StateError: The state holds something that no checkpoint can hold.
        """
        if self._store is None:
            return
        try:
            self.superseded = not self._store.commit(checkpoint)
        except GenerationTakenError:
            self.superseded = True
        except OSError as error:
            self._warn_of_failure(error, checkpoint.position.step)
        else:
            self._note_success(checkpoint.position.step)
        self._since_s = self._clock.elapsed_s()

    def _note_success(self, step: int) -> None:
        if self.superseded:
            warn(
                f"a later generation of this run exists, so step {step} was not "
                f"committed and this world stops. Nothing of its successor's was "
                f"touched; the steps since {self.committed_step} are done again there."
            )
            return
        self.committed_step = step
        if self._failed:
            warn(f"commits work again: step {step} is committed.")
        self._failed = False

    def _warn_of_failure(self, error: OSError, step: int) -> None:
        if not self._failed:
            every_s = self._every_s if math.isfinite(self._every_s) else 0
            warn(
                f"step {step} could not be committed: {error}. The checkpoint of step "
                f"{self.committed_step} is untouched, training goes on, and the next "
                f"try is in {every_s:g} s. Free some space or make the run directory "
                f"writable."
            )
        self._failed = True


_TAIL_BYTES = 1 << 16
RESERVED = frozenset(
    (
        *("t", "step", "samples", "epoch", "generation", "world_size"),
        *("event", "nonfinite", "rewound_from_step"),
    )
)
"""Names that progress lines use themselves, and no metric can have."""


class _ProgressLog:
    """Appends progress lines, one JSON object each, to ``progress.jsonl``.

    A line is one ``write`` to a file opened for appending, so that lines of two
    writers never mix on one machine. A disk that is full costs lines, never the
    training.
    """

    def __init__(  # noqa: PLR0913  # only Fragment calls it
        self,
        path: Path,
        *,
        generation: int,
        world_size: int,
        every_s: float,
        clock: Clock,
        may_write: Callable[[], bool],
    ) -> None:
        self._path = path
        self._may_write = may_write
        self._common = {"generation": generation, "world_size": world_size}
        self._every_s = every_s
        self._clock = clock
        self._due_s = -math.inf
        self._last_t = -math.inf
        self._warned = False

    def start(self, position: Position) -> None:
        """Write that a generation begins at *position*, and what it rewinds."""
        last = self._last_line()
        self._last_t = float(last.get("t", -math.inf))
        line: dict[str, Any] = {"event": "start"}
        if last.get("step", 0) > position.step:
            line["rewound_from_step"] = last["step"]
        self._append(line, position)

    def step(self, batch: Batch, metrics: Mapping[str, float]) -> None:
        """Write the position and the metrics, unless the last line is too young.

        The last step of an epoch is always written: programs measure there what they
        report once an epoch.

        Raises:
            ProgramError: A metric has the name of one of the line's own fields.
        """
        _check_names(metrics)
        now_s = self._clock.elapsed_s()
        if batch.last_of_epoch or now_s >= self._due_s:
            self._due_s = now_s + self._every_s
            self._append({**_finite(metrics), "epoch": batch.epoch}, batch.after)

    def measured(self, position: Position, metrics: Mapping[str, float]) -> None:
        """Write *metrics* of the training at *position*, whenever the last line was.

        Raises:
            ProgramError: A metric has the name of one of the line's own fields.
        """
        _check_names(metrics)
        # The epoch of the last step: a position names that of the next one.
        ended = position.offset == 0 and position.step > 0
        epoch = position.epoch - ended
        self._append({**_finite(metrics), "epoch": epoch}, position)

    def _append(self, fields: Mapping[str, Any], position: Position) -> None:
        if not self._may_write():
            return
        # Machines' clocks differ: a line is never older than the one before it.
        self._last_t = max(self._clock.unix_s(), self._last_t)
        where = asdict(position)
        del where["offset"]
        line = {"t": round(self._last_t, 6), **where, **self._common, **fields}
        text = json.dumps(line, allow_nan=False) + "\n"
        try:
            self._write(text.encode("ascii"))
        except OSError as error:
            self._warn_once(error)

    def _write(self, line: bytes) -> None:
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT
        descriptor = open_plain(self._path, flags)
        try:
            if _is_torn(descriptor):
                line = b"\n" + line
            os.write(descriptor, line)
        finally:
            os.close(descriptor)

    def _last_line(self) -> dict[str, Any]:
        """The last whole line; empty where there is none."""
        with suppress(OSError), os.fdopen(open_plain(self._path), "rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL_BYTES))
            for line in reversed(file.read(_TAIL_BYTES).splitlines()):
                found = _parse(line)
                if found:
                    return found
        return {}

    def _warn_once(self, error: OSError) -> None:
        if not self._warned:
            warn(
                f"progress lines cannot be written to {self._path}: {error}. Training "
                f"goes on, and so do the attempts; the lines in between are lost."
            )
        self._warned = True


def _check_names(metrics: Mapping[str, float]) -> None:
    if taken := RESERVED & metrics.keys():
        raise ProgramError(
            f"the metrics {sorted(taken)} have names that progress lines use "
            f"themselves. Nothing of them was recorded. Give them other names."
        )


def _is_torn(descriptor: int) -> bool:
    """Tell whether a writer was cut off, so that its half line must be ended."""
    size = os.fstat(descriptor).st_size
    return size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"


def _parse(line: bytes) -> dict[str, Any]:
    with suppress(ValueError, RecursionError, OverflowError, TypeError, KeyError):
        found: dict[str, Any] = json.loads(line)
        if math.isfinite(found["t"]) and math.isfinite(found["step"]):
            return found
    return {}


def _finite(metrics: Mapping[str, float]) -> dict[str, Any]:
    """The metrics for JSON: what is not finite is null, and in "nonfinite" as text."""
    values = {name: float(value) for name, value in metrics.items()}
    line: dict[str, Any] = {
        name: value if math.isfinite(value) else None for name, value in values.items()
    }
    odd = {name: str(v) for name, v in values.items() if not math.isfinite(v)}
    return {**line, "nonfinite": odd} if odd else line


# The end: the last commit and the outcome, or the failure of all ranks.

_LONGEST_MESSAGE = 2000


def _end(run: RunDir, fragment: Fragment, clock: Clock) -> None:
    """Commit the last steps, agree on the outcome and write it; collective.

    Raises:
        NotCommittedError: The training is over, but its end could not be kept.
    """
    committed_step, is_superseded = fragment.commit_last()
    if is_superseded:
        kind = OutcomeKind.SUPERSEDED
    elif fragment.stop is Stop.FOR_GOOD:
        kind = OutcomeKind.DO_NOT_RESTART
    elif fragment.stop is Stop.RESCALE and not fragment.finished:
        kind = OutcomeKind.RESCALED
    else:
        kind = OutcomeKind.FINISHED
    lost = fragment.position.step - committed_step
    if kind is OutcomeKind.FINISHED and lost:
        raise NotCommittedError(
            f"the training is over, but its last {lost} steps could not be kept. "
            f"{run.path} has the checkpoint of step {committed_step}. Make "
            f"room there, and run the program again: it goes on from that step."
        )
    if is_superseded and fragment.is_replaced():
        return  # the outcome of this number is for the other world to write
    message = f"the last {lost} steps were not committed" if lost else ""
    # Every rank that gave up writes its reason; the first outcome stays.
    if fragment.gave_up or (
        fragment.rank == 0 and kind is not OutcomeKind.DO_NOT_RESTART
    ):
        _write(
            run,
            Outcome(
                kind=kind,
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

    Where the file system did not show the checkpoint, the outcome is "not started".

    Args:
        run: The run.
        generation: The generation that failed; None where it has no number yet.
        error: The reason.
        clock: The clocks to go by.
        fragment: The fragment; None where it had not begun.
    """
    if not generation or isinstance(error, GenerationTakenError):
        return
    is_missing = isinstance(error, CheckpointMissingError)
    _write(
        run,
        Outcome(
            kind=OutcomeKind.NOT_STARTED if is_missing else OutcomeKind.FAILED,
            generation=generation,
            step=fragment.position.step if fragment else 0,
            committed_step=fragment.committed_step if fragment else 0,
            message=f"{type(error).__name__}: {error}"[:_LONGEST_MESSAGE],
            t=clock.unix_s(),
        ),
    )


def _abort_all(world: World | None, error: BaseException) -> None:
    """Print the traceback and end all ranks of a world of more than one.

    It does not return then: the others may wait for this rank for ever.
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
            f"the outcome {outcome.kind!s} of generation {outcome.generation} could "
            f"not be written: {error}. The launcher has only the exit code to go by."
        )
