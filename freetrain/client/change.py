"""Cancel, pause and resume: written down first, then carried out at once.

A trainer's state in the database says what its user wants; the next tick obeys. So that
nothing waits for a tick, its world is stopped here too, by a generation without leases.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from freetrain.client.trainers import find_trainer
from freetrain.errors import TryLaterError
from freetrain.state.database import check_exists, open_store, transaction
from freetrain.state.files import (
    GO_ON,
    USER,
    Assigned,
    create_assigned,
    newest_assigned,
)
from freetrain.state.tables import TrainerState, put_trainers, trainers

if TYPE_CHECKING:
    from collections.abc import Sequence

    from freetrain.state.files import StateDir, TrainerDir
    from freetrain.state.tables import TrainerRow


class Verb(StrEnum):
    """What a user asks for."""

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
    """One trainer after a verb.

    Attributes:
        row: The trainer as it is kept now.
        before: The state it was in.
        is_possible: Whether the verb makes sense in that state.
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
        TryLaterError: It is written down, but their worlds could not be stopped yet.
        OSError: Likewise.
    """
    check_exists(state.path)  # opening it to write would make one
    with open_store(state.path, uid=uid) as connection, transaction(connection):
        every = trainers(connection)
        rows = [find_trainer(every, name) for name in dict.fromkeys(names)]
        changed = [_changed(row, verb, now_s) for row in rows]
        put_trainers(
            connection, [trainer.row for trainer in changed if trainer.is_change]
        )
    return tuple(_carry_out(state, trainer, verb, now_s) for trainer in changed)


def _changed(row: TrainerRow, verb: Verb, now_s: float) -> Changed:
    state = WANTED_STATE[verb]
    if row.state is state or row.state not in _FROM[verb]:
        return Changed(row=row, before=row.state, is_possible=row.state is state)
    new = replace(row, state=state, changed_s=now_s, message="")
    return Changed(row=new, before=row.state)


def _carry_out(state: StateDir, changed: Changed, verb: Verb, now_s: float) -> Changed:
    folder = state.trainer(changed.row.name)
    if verb is Verb.RESUME:
        if changed.is_change:
            _begin_again(folder, now_s=now_s)
        return changed
    # Also where the state was so before: a crash may have come in between.
    if not changed.is_possible:
        return changed
    reason = f"{changed.row.state} by its user"
    last = leave(folder, reason=reason, now_s=now_s)
    if last is None:
        return changed
    return replace(changed, stopping_nodes=len(last.members))


_ATTEMPTS = 50


def leave(folder: TrainerDir, *, reason: str, now_s: float) -> Assigned | None:
    """Make the next generation of a trainer an empty one, so that its world stops.

    A tick or an agent that makes a generation at the same moment may be first; then
    the generation after that is made.

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
        if create_assigned(folder, _empty_after(newest, reason=reason, now_s=now_s)):
            return newest
    raise TryLaterError(
        f"the generations of {folder.path.name} change too quickly to stop it now; "
        f"the next tick will. What is to become of it is written down."
    )


def _begin_again(folder: TrainerDir, *, now_s: float) -> None:
    """Make an empty generation of the user's, so that old endings no longer count."""
    newest = newest_assigned(folder)
    if newest is not None and not newest.members:
        again = _empty_after(newest, reason=GO_ON, now_s=now_s)
        create_assigned(folder, again)  # if another was first, it began again as well


def _empty_after(newest: Assigned, *, reason: str, now_s: float) -> Assigned:
    """Return the generation after *newest*, in which nothing runs."""
    return Assigned(
        trainer=newest.trainer,
        generation=newest.generation + 1,
        members=(),
        created_s=now_s,
        author=USER,
        reason=reason,
    )
