"""What the steps of one tick share: settings, environment, Slurm, and locked state.

``opened`` takes the local lock and the leader lock, so that no two ticks overlap. Every
effect of a tick passes ``TickContext.effect``, and every write to the store
``TickContext.writing``, which stops at once where another tick has taken over.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from freetrain.errors import CannotWriteError
from freetrain.state.database import (
    DATABASE,
    LOCK,
    StoreError,
    local_lock,
    migrate,
    open_store,
    prepare_directory,
    read_store,
    release_leader_lock,
    take_leader_lock,
    transaction,
    writing,
)
from freetrain.state.files import StateDir

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

    from freetrain.config.site import Site
    from freetrain.state.database import LeaderLock
    from freetrain.tick.environment import TickEnvironment
    from slurm.backend import SlurmBackend

TURN_S = 600.0
"""The leader lock lasts so long; a tick that takes longer has lost it."""

_READING_REQUESTS = 9
"""Slurm commands of a tick that has nothing to do: the snapshot, the configuration, our
jobs, and once an hour, where it looks ahead, the topology."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class TickContext:
    """What the steps of one tick share.

    Attributes:
        site: The site's settings.
        environment: Clocks, random names, hooks.
        folder: The state directory.
        state: The store; in a dry run a copy in memory.
        backend: Slurm.
        leader_lock: None in a dry run, which writes nothing that lasts.
    """

    site: Site
    environment: TickEnvironment
    folder: StateDir
    state: sqlite3.Connection
    backend: SlurmBackend
    leader_lock: LeaderLock | None

    @property
    def is_dry(self) -> bool:
        """Whether no action may be carried out."""
        return self.leader_lock is None

    def effect(self, name: str) -> AbstractContextManager[None]:
        """Surround an effect that others can see, so that tests can kill there."""
        return _effect(self.environment, name)

    @contextmanager
    def writing(self, name: str) -> Iterator[sqlite3.Connection]:
        """Do everything inside in one transaction, if we still hold the leader lock.

        Raises:
            StoreBusyError: Another tick has taken over; stop at once.
            StoreError: It could not be written.
        """
        guarded = (
            transaction(self.state)
            if self.leader_lock is None
            else writing(self.state, self.leader_lock)
        )
        with self.effect(f"writing {name}"), guarded:
            yield self.state


@contextmanager
def opened(
    site: Site, environment: TickEnvironment, *, dry_run: bool
) -> Iterator[TickContext]:
    """Take both locks, and open the state; a dry run opens a copy in memory.

    Raises:
        CannotWriteError: The state directory could not be read or written.
        StoreBusyError: Another tick is at work; nothing was done.
        StoreError: The state cannot be used.
    """
    folder = StateDir(site.state_directory)
    with _explaining_os_errors(folder.path):
        backend = environment.connect(_READING_REQUESTS + site.caps.rpcs_per_tick)
        state_and_lock = (
            _copied(folder, environment.uid)
            if dry_run
            else _locked(folder, environment)
        )
        with state_and_lock as (state, leader_lock):
            yield TickContext(
                site=site,
                environment=environment,
                folder=folder,
                state=state,
                backend=backend,
                leader_lock=leader_lock,
            )


@contextmanager
def _locked(
    folder: StateDir, environment: TickEnvironment
) -> Iterator[tuple[sqlite3.Connection, LeaderLock]]:
    """Open the state while no other process ticks, on this host or another."""
    prepare_directory(folder.path, uid=environment.uid)
    with (
        local_lock(folder.path / LOCK),
        open_store(folder.path, uid=environment.uid) as state,
    ):
        with _effect(environment, "taking the turn"):
            leader_lock = take_leader_lock(
                state,
                environment.process,
                now_s=environment.now_s(),
                for_s=TURN_S,
                is_alive=environment.is_alive,
            )
        try:
            yield state, leader_lock
        finally:
            with suppress(StoreError):  # it expires by itself
                release_leader_lock(state, leader_lock)


@contextmanager
def _copied(folder: StateDir, uid: int) -> Iterator[tuple[sqlite3.Connection, None]]:
    """Open a copy of the state in memory; an empty one where there is no state."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as copy:
        if (folder.path / DATABASE).exists():
            with read_store(folder.path, uid=uid) as state:
                state.backup(copy)
        migrate(copy)
        yield copy, None


@contextmanager
def _effect(environment: TickEnvironment, name: str) -> Iterator[None]:
    environment.reached(f"before {name}")
    yield
    environment.reached(f"after {name}")


@contextmanager
def _explaining_os_errors(place: Path) -> Iterator[None]:
    """Turn OSErrors about files of *place* into a CannotWriteError."""
    try:
        yield
    except OSError as error:
        named = error.filename or place
        raise CannotWriteError(
            f"{named}: {error.strerror or error}. The tick stopped there, and "
            f"training goes on; make room, or make the state directory writable. The "
            f"next tick goes on where this one stopped."
        ) from error
