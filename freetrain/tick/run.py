"""One tick's state, its Slurm, and the only way to write what it learns."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from freetrain.store.database import transaction
from freetrain.store.turn import writing

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

    from freetrain.exchange.layout import StateDir
    from freetrain.site.settings import Site
    from freetrain.store.turn import Turn
    from freetrain.tick.outside import Outside
    from slurm.backend import SlurmBackend


@contextmanager
def effect(outside: Outside, what: str) -> Iterator[None]:
    """Surround something that the world can see, so that tests can stop there."""
    outside.reached(f"before {what}")
    yield
    outside.reached(f"after {what}")


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Run:
    """What the steps of one tick share.

    Attributes:
        site: The site's settings.
        outside: Clocks and numbers.
        folder: The state directory.
        state: The store; in a dry run a copy in memory.
        backend: Slurm.
        turn: Our turn; None in a dry run, which writes nothing that lasts.
    """

    site: Site
    outside: Outside
    folder: StateDir
    state: sqlite3.Connection
    backend: SlurmBackend
    turn: Turn | None

    @property
    def is_dry(self) -> bool:
        """Whether nothing may be carried out."""
        return self.turn is None

    def effect(self, what: str) -> AbstractContextManager[None]:
        """Surround something that the world can see, so that tests can stop there."""
        return effect(self.outside, what)

    @contextmanager
    def writing(self, what: str) -> Iterator[sqlite3.Connection]:
        """Make everything inside happen at once, if it still is our turn.

        Raises:
            StoreBusyError: Somebody has taken over; stop at once.
            StoreError: It could not be written.
        """
        kept = (
            transaction(self.state)
            if self.turn is None
            else writing(self.state, self.turn)
        )
        with self.effect(f"writing {what}"), kept:
            yield self.state
