"""What a training program holds while it trains: the context of its fragment."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from freetrain.elastic.checkpoint import Checkpoint, Position
from freetrain.elastic.errors import ChangedTrainingError, ProgramError
from freetrain.elastic.reduction import sum_exactly, sum_quickly
from freetrain.elastic.sampler import Plan, Sampler
from freetrain.elastic.state import flatten
from freetrain.elastic.stop import Stop

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    from freetrain.elastic.agreement import Agreement
    from freetrain.elastic.committer import Committer
    from freetrain.elastic.progress import ProgressLog
    from freetrain.elastic.sampler import Batch, Chunk
    from freetrain.elastic.state import State
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
        generation: int,
        run_dir: Path,
        restored: Checkpoint | None,
        agreement: Agreement,
        committer: Committer,
        progress: ProgressLog | None,
        stop_wanted: Callable[[], bool],
        stop: Stop = Stop.NO,
        gave_up: str = "",
    ) -> None:
        self.world = world
        self.generation = generation
        self.run_dir = run_dir
        self.position = restored.position if restored else Position()
        self.gave_up = gave_up
        self.stop = stop
        self._restored = restored
        self._state_given = False
        self._agreement = agreement
        self._committer = committer
        self._progress = progress
        self._stop_wanted = stop_wanted
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
        """Give up: stop soon, and let nobody launch this training again.

        One rank is enough. It takes effect when the ranks next agree, within 64
        steps; what was done until then is committed.

        Args:
            reason: For people; goes into the outcome.
        """
        self.gave_up = reason or "no reason given"

    def _agree(self) -> None:
        wanted = Stop.RESCALE if self._stop_wanted() else Stop.NO
        if self.gave_up:
            wanted = Stop.FOR_GOOD
        if self._committer.superseded:
            wanted = Stop.SUPERSEDED
        agreed = self._agreement.agree(wanted, commit=self._committer.is_due())
        self.stop = agreed.stop
        if agreed.commit or agreed.stop:
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
