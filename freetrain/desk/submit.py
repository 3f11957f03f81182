"""Keeping a submission: its files, then its row, everything or nothing.

A crash in between leaves a folder without a row, which nobody looks at; submitting
again writes both. The look, the decision and the writing are one transaction, so
that two submissions of one name cannot mix.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from freetrain.desk.leaving import is_over, next_generation
from freetrain.desk.places import LeftOver, left_over
from freetrain.desk.submission import Begin, Found, decide
from freetrain.elastic.durable import replaced, sync_folder
from freetrain.exchange.assigned import GO_ON, USER, Assigned, create_assigned
from freetrain.exchange.environment import render_environment
from freetrain.store.database import transaction
from freetrain.store.directory import check_directory, create_private
from freetrain.store.leases import leases
from freetrain.store.open_store import has_state, open_store, read_store
from freetrain.store.trainers import (
    TrainerRow,
    TrainerState,
    put_trainers,
    remove_trainer,
    trainers,
)

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Collection, Mapping
    from pathlib import Path

    from freetrain.broker.lease import LeaseKey
    from freetrain.desk.submission import Submission
    from freetrain.exchange.layout import StateDir, TrainerDir


@dataclass(frozen=True, slots=True, kw_only=True)
class Submitted:
    """What became of a submission.

    Attributes:
        begin: How it begins.
        row: The trainer as it is kept now.
        left: What it goes on from, or would find.
        put_away: Where an earlier trainer's folder of that name was put.
        was_mended: Whether files that were missing were written again.
    """

    begin: Begin
    row: TrainerRow
    left: LeftOver
    put_away: Path | None = None
    was_mended: bool = False


def preview(state: StateDir, submission: Submission, *, uid: int) -> Submitted:
    """Return what ``submit`` would do; nothing is made or changed.

    Raises:
        FreeTrainError: As ``submit``.
    """
    if not has_state(state.path):
        if state.path.exists():
            check_directory(state.path, uid=uid)
        return _judged(submission, _found(state, submission, {}, frozenset()))
    with read_store(state.path, uid=uid) as connection:
        return _judged(submission, look(connection, state, submission))


def submit(state: StateDir, submission: Submission, *, uid: int) -> Submitted:
    """Keep *submission*; done twice it is done once.

    Raises:
        UsageError: Its name or its folders are taken.
        BadConfigurationError: Its folders cannot be used.
        TryLaterError: Its name's earlier training has not ended yet.
        StoreError: The state cannot be used. Nothing was submitted.
        OSError: A file could not be written. Nothing was submitted.
    """
    with open_store(state.path, uid=uid) as connection, transaction(connection):
        judged = _judged(submission, look(connection, state, submission))
        return _keep(connection, state, submission, judged)


def look(
    connection: sqlite3.Connection, state: StateDir, submission: Submission
) -> Found:
    """Return what there is that matters to *submission*.

    Raises:
        StoreError: The state could not be read.
        OSError: A folder could not be read.
    """
    rows = {row.name: row for row in trainers(connection)}
    held = {lease.key for lease in leases(connection, ending_after_s=math.inf)}
    return _found(state, submission, rows, held)


def _found(
    state: StateDir,
    submission: Submission,
    rows: Mapping[str, TrainerRow],
    held: Collection[LeaseKey],
) -> Found:
    """Return the same of all trainers *rows* by name, and of leases *held*."""
    name = submission.job.name
    folder = state.trainer(name)
    newest = next_generation(folder) - 1
    kept = left_over(folder.run.path, folder.logs)
    return Found(
        state=state.path,
        row=rows.get(name),
        others=tuple(row for row in rows.values() if row.name != name),
        is_over=is_over(folder, held),
        left=_named(submission, state),
        kept=LeftOver(kept.step, max(kept.generation, newest), kept.has_logs),
    )


def _named(submission: Submission, state: StateDir) -> LeftOver:
    """Return what is in those of its folders that the job file names itself."""
    own = state.trainer(submission.job.name)
    nowhere = state.path / "nowhere"
    run_dir = nowhere if submission.run_dir == own.run.path else submission.run_dir
    logs = nowhere if submission.logs == own.logs else submission.logs
    return left_over(run_dir, logs)


def _judged(submission: Submission, found: Found) -> Submitted:
    begin = decide(submission, found)
    if begin is Begin.SAME and found.row is not None:
        return Submitted(begin=begin, row=found.row, left=found.left)
    both = (found.left, found.kept) if begin is Begin.GO_ON else ()
    steps = [one.step for one in both if one.step is not None]
    row = TrainerRow(
        name=submission.job.name,
        job=submission.text,
        run_dir=str(submission.run_dir),
        state=TrainerState.WANTED,
        submitted_s=submission.now_s,
        changed_s=submission.now_s,
        told_generation=_told(found) if begin is Begin.GO_ON else 0,
    )
    used = max((one.generation for one in both), default=0)
    left = LeftOver(max(steps, default=None), used)
    return Submitted(begin=begin, row=row, left=left)


def _told(found: Found) -> int:
    return 0 if found.row is None else found.row.told_generation


def _keep(
    connection: sqlite3.Connection,
    state: StateDir,
    submission: Submission,
    judged: Submitted,
) -> Submitted:
    folder = state.trainer(judged.row.name)
    if judged.begin is Begin.SAME:
        mended = not (folder.job.is_file() and folder.environment.is_file())
        if mended:
            _write(folder, submission)
        return Submitted(
            begin=judged.begin, row=judged.row, left=judged.left, was_mended=mended
        )
    put_away = None
    if judged.begin is Begin.ANEW:
        put_away = _put_away(state, folder, submission.now_s)
    _write(folder, submission)
    if judged.left.generation:
        _mark(folder, submission, judged.left.generation)
    remove_trainer(connection, judged.row.name)
    put_trainers(connection, [judged.row])
    return Submitted(
        begin=judged.begin, row=judged.row, left=judged.left, put_away=put_away
    )


def _put_away(state: StateDir, folder: TrainerDir, now_s: float) -> Path | None:
    if not folder.path.exists():
        return None
    state.past.mkdir(mode=0o700, exist_ok=True)
    stamp = int(now_s)
    while (place := state.past / f"{folder.path.name}.{stamp}").exists():
        stamp += 1
    folder.path.rename(place)
    sync_folder(state.past)
    return place


def _write(folder: TrainerDir, submission: Submission) -> None:
    folder.create()
    sync_folder(folder.path.parent)
    _write_private(folder.job, submission.text.encode())
    _write_private(folder.environment, render_environment(submission.environment))


def _write_private(path: Path, content: bytes) -> None:
    temporary = path.with_name(f".{path.name}.new")
    create_private(temporary)
    with replaced(path, temporary=temporary) as file:
        file.write(content)


def _mark(folder: TrainerDir, submission: Submission, used: int) -> None:
    """Take a generation in which nothing runs: the next is above all *used* ones.

    It also tells whoever judges by the last ending that there is a new beginning.
    """
    generation = max(used, next_generation(folder))
    create_assigned(
        folder,
        Assigned(
            trainer=submission.job.name,
            generation=generation,
            members=(),
            created_s=submission.now_s,
            author=USER,
            reason=GO_ON,
        ),
    )
