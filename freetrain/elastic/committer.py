"""When to commit, and what a commit that fails means: training goes on."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from freetrain.elastic.errors import GenerationTakenError
from freetrain.elastic.notice import warn

if TYPE_CHECKING:
    from freetrain.elastic.checkpoint import Checkpoint
    from freetrain.elastic.clock import Clock
    from freetrain.elastic.store import CheckpointStore


class Committer:
    """Rank 0's side of committing; the other ranks' never has anything due.

    Attributes:
        committed_step: Steps in the newest checkpoint, restored or committed.
        superseded: Whether a later generation was met.
    """

    def __init__(
        self,
        store: CheckpointStore | None,
        *,
        committed_step: int,
        every_s: float,
        clock: Clock,
    ) -> None:
        self.committed_step = committed_step
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
            self._report(error, checkpoint.position.step)
        else:
            self._note(checkpoint.position.step)
        self._since_s = self._clock.elapsed_s()

    def _note(self, step: int) -> None:
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

    def _report(self, error: OSError, step: int) -> None:
        if not self._failed:
            every_s = self._every_s if math.isfinite(self._every_s) else 0
            warn(
                f"step {step} could not be committed: {error}. The checkpoint of step "
                f"{self.committed_step} is untouched, training goes on, and the next "
                f"try is in {every_s:g} s. Free some space or make the run directory "
                f"writable."
            )
        self._failed = True
