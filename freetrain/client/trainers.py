"""Submitted trainers as commands find them, and cancel, pause and resume.

A trainer's state in the database is its user's wish; the next tick obeys. So that
nothing waits for a tick, ``change`` stops its world too, by a generation without
leases. ``left_over`` finds what an earlier training left in a trainer's folders.
"""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from freetrain.config.document import ROOT
from freetrain.config.job import parse_job
from freetrain.elastic.files import RunDir
from freetrain.errors import BadConfigurationError, TryLaterError, UsageError
from freetrain.pack.pack import member_folders
from freetrain.state.database import check_exists, open_store, transaction
from freetrain.state.files import (
    BROKER,
    GO_ON,
    USER,
    AssignmentFile,
    create_assigned,
    generations,
    newest_assigned,
    read_assigned,
    read_ending,
)
from freetrain.state.tables import TrainerState, put_trainers, trainers
from freetrain.text import closest, shown
from freetrain.tick.trainers import read_trainer

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence
    from pathlib import Path

    from freetrain.broker.lease import LeaseKey
    from freetrain.config.job import TrainerJob
    from freetrain.elastic.files import Committed
    from freetrain.state.files import StateDir, TrainerDir
    from freetrain.state.tables import TrainerRow


LIVE = frozenset({TrainerState.WANTED, TrainerState.PAUSED})
"""States of trainers that have not ended."""


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


def job_of(row: TrainerRow) -> TrainerJob | None:
    """Return the job of a stored trainer; None where this version cannot read it."""
    try:
        return parse_job(row.job.encode(), path=row.name, places=ROOT)
    except BadConfigurationError:
        return None


def author_text(author: str) -> str:
    """Return the author of a generation as people read it."""
    return author if author in {BROKER, USER} else "its agents"


class Verb(StrEnum):
    """A change of a trainer's state that its user asks for."""

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
        row: The trainer as the database has it now.
        before: Its state before.
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

    A trainer whose program has finished stays finished, though no tick has noted it.

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
        changed = [_changed(_as_finished(state, row), verb, now_s) for row in rows]
        put_trainers(
            connection, [trainer.row for trainer in changed if trainer.is_change]
        )
    return tuple(_carry_out(state, trainer, verb, now_s) for trainer in changed)


def as_ended(state: StateDir, row: TrainerRow) -> TrainerRow:
    """Return *row*, ended where the trainer's files say so and no tick has noted it.

    A damaged file is the tick's to report, and says nothing here.
    """
    final = read_trainer(state, row).final if row.state in LIVE else None
    if final is None:
        return row
    return replace(row, state=final.state, message=final.message)


def _as_finished(state: StateDir, row: TrainerRow) -> TrainerRow:
    ended = as_ended(state, row)
    return ended if ended.state is TrainerState.FINISHED else row


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


def leave(folder: TrainerDir, *, reason: str, now_s: float) -> AssignmentFile | None:
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
        f"the next tick will. Its new state is written down."
    )


def _begin_again(folder: TrainerDir, *, now_s: float) -> None:
    """Make an empty generation of the user's, so that old endings no longer count."""
    newest = newest_assigned(folder)
    if newest is not None and not newest.members:
        again = _empty_after(newest, reason=GO_ON, now_s=now_s)
        create_assigned(folder, again)  # if another was first, it began again as well


def _empty_after(
    newest: AssignmentFile, *, reason: str, now_s: float
) -> AssignmentFile:
    """Return the generation after *newest*, in which nothing runs."""
    return AssignmentFile(
        trainer=newest.trainer,
        generation=newest.generation + 1,
        members=(),
        created_s=now_s,
        author=USER,
        reason=reason,
    )


def next_generation(folder: TrainerDir) -> int:
    """Return the first generation that has no file yet."""
    found = generations(folder.assignments)
    return found[-1] + 1 if found else 1


def is_over(folder: TrainerDir, held: Collection[LeaseKey]) -> bool:
    """Return whether no world of a trainer can be running any more.

    Worlds need leases, and *held* are those that may still hold nodes.

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


@dataclass(frozen=True, slots=True)
class LeftOver:
    """The remains of an earlier training in the folders of a new one.

    Attributes:
        step: Steps that its newest checkpoint has, for a pack summed over its members;
            None where there is none.
        generation: The highest generation that any file names; 0 for none.
        has_logs: Whether its worlds printed anything.
    """

    step: int | None = None
    generation: int = 0
    has_logs: bool = False


_LOG = re.compile(r"([0-9]{10})\.log", re.ASCII)


def left_over(run_dir: Path, logs: Path) -> LeftOver:
    """Return the remains in *run_dir* and *logs*.

    Raises:
        OSError: A folder is there and cannot be listed.
    """
    run = RunDir(run_dir)
    committed = _committed(run)
    printed = _matching(logs, _LOG)
    inner = (_committed(RunDir(folder / "run")) for folder in member_folders(run))
    steps = [found[-1].step for found in (committed, *inner) if found]
    return LeftOver(
        step=sum(steps) if steps else None,
        generation=max([run.last_used(), *(int(match[1]) for match in printed)]),
        has_logs=bool(printed),
    )


def _committed(run: RunDir) -> tuple[Committed, ...]:
    # A program that is not elastic may have a file of that name; status must not fail.
    with suppress(NotADirectoryError):
        return run.committed()
    return ()


def _matching(folder: Path, pattern: re.Pattern[str]) -> list[re.Match[str]]:
    try:
        names = [entry.name for entry in folder.iterdir()]
    except (FileNotFoundError, NotADirectoryError):
        return []
    return [found for name in names if (found := pattern.fullmatch(name))]
