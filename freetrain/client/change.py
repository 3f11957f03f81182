"""Generations that users make: the next one, in which nothing runs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from freetrain.errors import TryLaterError, UsageError
from freetrain.state.database import check_exists, open_store, transaction
from freetrain.state.files import (
    GO_ON,
    USER,
    Assigned,
    create_assigned,
    generations,
    newest_assigned,
    read_assigned,
    read_ending,
)
from freetrain.state.tables import TrainerState, put_trainers, trainers
from freetrain.text import closest, shown

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Collection, Iterable, Sequence

    from freetrain.broker.lease import LeaseKey
    from freetrain.state.files import StateDir, TrainerDir
    from freetrain.state.tables import TrainerRow


# ----------------------------------------------------------------------
# Generations that users make: the next one, in which nothing runs.

_ATTEMPTS = 50


def next_generation(folder: TrainerDir) -> int:
    """Return the first generation that has no file yet."""
    found = generations(folder.assignments)
    return found[-1] + 1 if found else 1


def is_over(folder: TrainerDir, held: Collection[LeaseKey]) -> bool:
    """Tell whether no world in *folder* can be running any more.

    Args:
        folder: A trainer's.
        held: Leases that may still hold nodes.

    Raises:
        UnreadableFileError: A file of it is damaged.
        OSError: A file of it cannot be read.
    """
    found = generations(folder.assignments)
    for generation in reversed(found):
        assigned = read_assigned(folder, generation)
        if assigned.members:
            has_ended = read_ending(folder, generation) is not None
            return has_ended or assigned.keys.isdisjoint(held)
    return True


def leave(folder: TrainerDir, *, reason: str, now_s: float) -> Assigned | None:
    """Make the next generation of a trainer an empty one, so that its world stops.

    Whoever else makes a generation at the same moment may be first; then the one
    after that is made.

    Returns:
        The last generation in which something ran; None where nothing runs.

    Raises:
        TryLaterError: Others were first, again and again.
        UnreadableFileError: The newest generation's file is damaged.
        OSError: It could not be written.
    """
    for _ in range(_ATTEMPTS):
        newest = newest_assigned(folder)
        if newest is None or not newest.members:
            return None
        if create_assigned(folder, empty_after(newest, reason=reason, now_s=now_s)):
            return newest
    raise TryLaterError(
        f"the generations of {folder.path.name} change too quickly to stop it now; "
        f"the next tick will. What is to become of it is written down."
    )


def empty_after(newest: Assigned, *, reason: str, now_s: float) -> Assigned:
    """Return the generation after *newest*, in which nothing runs."""
    return Assigned(
        trainer=newest.trainer,
        generation=newest.generation + 1,
        members=(),
        created_s=now_s,
        author=USER,
        reason=reason,
    )


# ----------------------------------------------------------------------
# Cancel, pause and resume: written down first, then carried out at once.


class Verb(StrEnum):
    """What a user may want of a trainer."""

    CANCEL = "cancel"
    PAUSE = "pause"
    RESUME = "resume"


WANTED_STATE = {
    Verb.CANCEL: TrainerState.CANCELLED,
    Verb.PAUSE: TrainerState.PAUSED,
    Verb.RESUME: TrainerState.WANTED,
}
_FROM = {
    Verb.CANCEL: {TrainerState.WANTED, TrainerState.PAUSED},
    Verb.PAUSE: {TrainerState.WANTED},
    Verb.RESUME: {TrainerState.PAUSED, TrainerState.CANCELLED, TrainerState.FAILED},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Changed:
    """What became of one trainer.

    Attributes:
        row: The trainer as it is kept now.
        before: The state it was in.
        is_possible: Whether what was asked for makes sense for it.
        stopping_nodes: Nodes on which its world is being stopped; 0 for none.
    """

    row: TrainerRow
    before: TrainerState
    is_possible: bool = True
    stopping_nodes: int = 0

    @property
    def is_change(self) -> bool:
        """Whether its state is another one now."""
        return self.row.state is not self.before


def change(
    state: StateDir, verb: Verb, names: Sequence[str], *, now_s: float, uid: int
) -> tuple[Changed, ...]:
    """Do *verb* to the trainers *names*; done twice it is done once.

    Raises:
        UsageError: There is no trainer of such a name; nothing was changed.
        StoreMissingError: There is no state; none was made.
        StoreError: The state cannot be used; nothing was changed.
        TryLaterError: It is written down, but their worlds could not be told yet.
        OSError: Likewise.
    """
    check_exists(state.path)  # opening it to write would make one
    with open_store(state.path, uid=uid) as connection, transaction(connection):
        rows = [_named(connection, name) for name in dict.fromkeys(names)]
        changed = [_changed(row, verb, now_s) for row in rows]
        put_trainers(connection, [one.row for one in changed if one.is_change])
    return tuple(_tell(state, one, verb, now_s) for one in changed)


def _named(connection: sqlite3.Connection, name: str) -> TrainerRow:
    return find_trainer(trainers(connection), name)


def find_trainer(rows: Iterable[TrainerRow], name: str) -> TrainerRow:
    """Return the trainer *name* of *rows*.

    Raises:
        UsageError: There is none; the message has the nearest name.
    """
    known = {row.name: row for row in rows}
    if name in known:
        return known[name]
    hint = closest(name, known) or " `freetrain status` lists those there are."
    raise UsageError(f"there is no trainer {shown(name)}. Nothing was done.{hint}")


def _changed(row: TrainerRow, verb: Verb, now_s: float) -> Changed:
    state = WANTED_STATE[verb]
    if row.state is state or row.state not in _FROM[verb]:
        return Changed(row=row, before=row.state, is_possible=row.state is state)
    new = replace(row, state=state, changed_s=now_s, message="")
    return Changed(row=new, before=row.state)


def _tell(state: StateDir, one: Changed, verb: Verb, now_s: float) -> Changed:
    folder = state.trainer(one.row.name)
    if verb is Verb.RESUME:
        if one.is_change:
            _begin_again(folder, now_s=now_s)
        return one
    # Also where the state was so before: a crash may have come in between.
    if not one.is_possible:
        return one
    reason = f"{one.row.state} by its user"
    last = leave(folder, reason=reason, now_s=now_s)
    return one if last is None else replace(one, stopping_nodes=len(last.members))


def _begin_again(folder: TrainerDir, *, now_s: float) -> None:
    """Make a generation of the user's own, so that old endings count no more."""
    newest = newest_assigned(folder)
    if newest is not None and not newest.members:
        again = empty_after(newest, reason=GO_ON, now_s=now_s)
        create_assigned(folder, again)  # whoever else was first began again as well
