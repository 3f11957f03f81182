"""A fragment: one stretch of training on a fixed set of ranks.

The program restores, goes through batches, adds up over the ranks and ends each step.
At the end of some steps the ranks agree, by one small allreduce, to commit or to stop;
rank 0 commits and writes progress lines.
"""

from __future__ import annotations

import json
import math
import os
from contextlib import suppress
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np

from freetrain.elastic.checkpoint import Checkpoint, Position, flatten
from freetrain.elastic.contract import Stop, StopFile
from freetrain.elastic.errors import (
    ChangedTrainingError,
    GenerationTakenError,
    ProgramError,
)
from freetrain.elastic.files import warn
from freetrain.elastic.sampler import Plan, Sampler
from freetrain.elastic.sums import sum_exactly, sum_quickly

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    from freetrain.elastic.checkpoint import CheckpointStore, State
    from freetrain.elastic.contract import StopSignals
    from freetrain.elastic.files import Clock, RunDir
    from freetrain.elastic.sampler import Batch, Chunk
    from freetrain.elastic.world import World


class Fragment:
    """One stretch of training on one fixed set of ranks; made by :func:`join`.

    Methods marked *collective* must be called by all ranks, in the same order.

    Attributes:
        world: The ranks; ``world.communicator`` is mpi4py's, where there is one.
        generation: The fragment's number, from 1 on.
        run_dir: The run's directory; the program may keep files of its own in it.
        position: How far the training is.
        gave_up: What this rank gave to :meth:`stop_for_good`; empty if it did not.
        stop: What the ranks agreed on; ``Stop.NO`` while training goes on.
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
            )
            self._progress.start(self.position)
        self._plan: Plan | None = None
        self._batch: Batch | None = None
        self._state: Mapping[str, Any] | Callable[[], Mapping[str, Any]] | None = None

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
        return self._plan is not None and self.position.epoch >= self._plan.epochs

    def restore(self, initial: Mapping[str, Any]) -> State:
        """Return the last committed state, or *initial* where there is none.

        Args:
            initial: The state to begin with: NumPy arrays and scalars, numbers,
                strings, random generators, and dicts, lists, tuples of these.

        Returns:
            A new dict; arrays of a restored one belong to the caller.

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
        plan = Plan(samples, global_batch, epochs, seed, chunks)
        self._check_unchanged(plan)
        self._plan = plan
        sampler = Sampler(plan, rank=self.rank, size=self.size)
        while not self.stop:
            self._batch = sampler.batch_at(self.position)
            if self._batch is None:
                self._commit()
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
            batch: From :meth:`batches`.
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
        state: Mapping[str, Any] | Callable[[], Mapping[str, Any]],
        **metrics: float,
    ) -> None:
        """End the step: report it, and commit or stop where that is due; collective.

        Args:
            state: All that the next step depends on, the same on every rank; rank
                0's is kept. A function is called, on every rank, only when
                something is to be committed: it may gather what is spread.
            **metrics: The loss and whatever else is to be reported.

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

    def stop_for_good(self, reason: str) -> None:
        """Give up: stop soon, and have this training never launched again.

        One rank is enough. It takes effect when the ranks next agree, within 64
        steps; what was done until then is committed.

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
        self.stop, commits = self._agreement.agree(
            wanted, commit=self._committer.is_due()
        )
        if commits or self.stop:
            self._commit()

    def _commit(self) -> None:
        # Forgotten at once, on every rank: a step is committed once, and a function
        # may gather, so that all ranks must call it or none.
        given, self._state = self._state, None
        if given is None:
            return
        state = given() if callable(given) else given
        plan = self._plan
        self._committer.commit(
            Checkpoint(
                generation=self.generation,
                position=self.position,
                training=plan.unchanging() if plan else {},
                state=dict(state),
            )
        )

    @property
    def committed_step(self) -> int:
        """Steps in the newest checkpoint that this rank knows of."""
        return self._committer.committed_step

    def commit_last(self) -> tuple[int, bool]:
        """Commit what is not committed yet; for :func:`join` at its end; collective.

        Returns:
            The steps committed, and whether a later generation exists.
        """
        self._commit()
        facts = [self._committer.committed_step, self._committer.superseded]
        committed, superseded = self.world.maxima(np.array(facts, dtype=np.int64))
        return int(committed), bool(superseded)

    def _check_unchanged(self, plan: Plan) -> None:
        if not self._state_given:
            raise ProgramError(
                "batches() came before restore(). Nothing was trained: a committed "
                "state would have been passed over. Call restore(initial) first."
            )
        now = plan.unchanging()
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


# A stop waits at most this long for the next agreement, as long as steps take what
# they took.
_WITHIN_S = 0.05
# Bounds the wait where steps suddenly take longer than they took.
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
            stop: What this rank wants; the largest of all ranks' is done.
            commit: Whether this rank wants a commit; one is enough.

        Returns:
            Whether all stop, and why; whether all commit.
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
    """Commits where that is due: rank 0's; that of other ranks has no store.

    A commit that fails is reported, and training goes on.

    Attributes:
        committed_step: Steps in the newest checkpoint, restored or committed.
        superseded: Whether a later generation was met.
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

    def commit(self, checkpoint: Checkpoint) -> None:
        """Commit, unless a successor exists.

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
            self._take_note(checkpoint.position.step)
        self._since_s = self._clock.elapsed_s()

    def _take_note(self, step: int) -> None:
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
_RESERVED = frozenset(
    (
        *("t", "step", "samples", "epoch", "generation", "world_size"),
        *("event", "nonfinite", "rewound_from_step"),
    )
)


class _ProgressLog:
    """Appends progress lines, one JSON object each, to ``progress.jsonl``.

    A line is one ``write`` to a file opened for appending, so that lines of two
    writers never mix on one machine. A disk that is full costs lines, never the
    training.
    """

    def __init__(
        self,
        path: Path,
        *,
        generation: int,
        world_size: int,
        every_s: float,
        clock: Clock,
    ) -> None:
        self._path = path
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
        """Write where training is, unless the last line is too young.

        The last step of an epoch is always written: that is where programs
        measure what they report once an epoch.

        Raises:
            ProgramError: A metric has the name of one of the line's own fields.
        """
        if taken := _RESERVED & metrics.keys():
            raise ProgramError(
                f"the metrics {sorted(taken)} have names that progress lines use "
                f"themselves. The step was not recorded. Give them other names."
            )
        now_s = self._clock.elapsed_s()
        if batch.last_of_epoch or now_s >= self._due_s:
            self._due_s = now_s + self._every_s
            self._append({**_finite(metrics), "epoch": batch.epoch}, batch.after)

    def _append(self, fields: Mapping[str, Any], position: Position) -> None:
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
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        descriptor = os.open(self._path, flags, 0o600)
        try:
            if _is_torn(descriptor):
                line = b"\n" + line
            os.write(descriptor, line)
        finally:
            os.close(descriptor)

    def _last_line(self) -> dict[str, Any]:
        """The last whole line; empty where there is none."""
        with suppress(OSError), self._path.open("rb") as file:
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
