"""Submitting a trainer: read the job file, check it, decide how it begins, keep it.

``submit_file`` is the command. What becomes of a submission is decided (``decide``)
from what is there, before anything changes: a name that is used, folders of another
trainer, checkpoints of an earlier training. Then files and row are written inside one
transaction; submitting twice is the same as submitting once.
"""

from __future__ import annotations

import math
import sys
import tomllib
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from freetrain.client.checks import (
    check_program,
    kept_environment,
    member_remarks,
    members_of,
    past_deadline,
    remarks,
)
from freetrain.client.trainers import (
    LIVE,
    LeftOver,
    is_over,
    job_of,
    left_over,
    next_generation,
)
from freetrain.config.job import read_job, render_job
from freetrain.elastic.files import replaced, sync_folder
from freetrain.errors import BadConfigurationError, TryLaterError, UsageError
from freetrain.launch.request import logs_of, run_dir_of
from freetrain.state.database import (
    check_directory,
    create_private,
    has_state,
    open_store,
    read_mounts,
    read_store,
    transaction,
)
from freetrain.state.files import (
    GO_ON,
    USER,
    Assigned,
    StateDir,
    create_assigned,
    render_environment,
)
from freetrain.state.tables import (
    TrainerRow,
    TrainerState,
    leases,
    put_trainers,
    remove_trainer,
    trainers,
)
from freetrain.text import one_line, shown

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Collection, Iterator, Mapping

    from freetrain.broker.lease import LeaseKey
    from freetrain.config.job import TrainerJob
    from freetrain.config.site import Site
    from freetrain.state.files import TrainerDir

NOTHING_LEFT = LeftOver()


class OnLeftOver(StrEnum):
    """What the user asks for where an earlier training left something."""

    GO_ON = "go on"
    ANEW = "anew"


class Begin(StrEnum):
    """How a submission begins."""

    NEW = "new"  # nothing of that name was there
    SAME = "same"  # it was submitted before; nothing is to be done
    GO_ON = "go on"  # from what an earlier training committed
    ANEW = "anew"  # the earlier trainer's folder is put away


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """A trainer as it is to be kept.

    Attributes:
        environment: The user's variables to keep with it.
        run_dir: Where its run directory is to be.
        logs: Where its worlds are to print.
        on_left_over: What to do about what an earlier training left.
    """

    job: TrainerJob
    environment: Mapping[str, str]
    run_dir: Path
    logs: Path
    now_s: float
    on_left_over: OnLeftOver | None = None

    @property
    def text(self) -> str:
        """The job file that is kept."""
        return render_job(self.job)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExistingState:
    """What is there that matters to a submission.

    Attributes:
        state: The state directory.
        row: The trainer of its name; None where there is none.
        others: All other trainers.
        is_over: Whether no world of that name can be running any more.
        left: What is in the folders that the job file names itself.
        kept: What is in the folder that FreeTrain has for that name.
    """

    state: Path
    row: TrainerRow | None = None
    others: tuple[TrainerRow, ...] = ()
    is_over: bool = True
    left: LeftOver = NOTHING_LEFT
    kept: LeftOver = NOTHING_LEFT


# ----------------------------------------------------------------------
# From a job file to a trainer that is kept


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmitRequest:
    """What a user asks for on the command line.

    Attributes:
        path: The job file, absolute.
        named: How the user named it.
        go_on: Whether to go on from what an earlier training committed.
        anew: Whether to begin from the start under a name that was used.
        is_checked: Whether directory and program must be here.
        is_dry_run: Whether nothing is to be kept.
    """

    path: Path
    named: str
    go_on: bool = False
    anew: bool = False
    is_checked: bool = True
    is_dry_run: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmitResult:
    """What became of a request.

    Attributes:
        submitted: What became of the submission, or would without ``is_dry_run``.
        remarks: What may be a mistake; one line each.
    """

    site: Site
    submission: Submission
    submitted: SubmissionOutcome
    remarks: tuple[str, ...]
    is_dry_run: bool


def submit_file(  # noqa: PLR0913 - the environment, piece by piece
    asked: SubmitRequest,
    site: Site,
    *,
    environ: Mapping[str, str],
    home: Path | None,
    uid: int,
    now_s: float,
) -> SubmitResult:
    """Submit the trainer that *asked* names, or find out what that would do.

    Raises:
        FreeTrainError: Nothing was submitted; the message says why.
        OSError: A file could not be written. Nothing was submitted.
    """
    job = read_job(asked.path, named=asked.named, home=home)
    kept = kept_environment(environ)
    theirs = kept | dict(job.environment)
    members = members_of(job, home=home) if asked.is_checked else ()
    if asked.is_checked:
        for part in (job, *members):
            check_program(part, theirs | dict(part.environment))
    state = StateDir(site.state_directory)
    folder = state.trainer(job.name)
    submission = Submission(
        job=job,
        environment=kept,
        run_dir=run_dir_of(job, folder).path,
        logs=logs_of(job, folder),
        now_s=now_s,
        on_left_over=_on_left_over(asked),
    )
    keep = preview if asked.is_dry_run else submit
    submitted = keep(state, submission, uid=uid)
    folders = [part.directory for part in (job, *members)]
    shared = (state.path, *folders, submission.run_dir, submission.logs)
    beside = Path(sys.executable).parent
    found = (
        *remarks(job, theirs, shared, beside=beside, mounts=read_mounts()),
        *past_deadline(job, now_s=now_s),
    )
    return SubmitResult(
        site=site,
        submission=submission,
        submitted=submitted,
        remarks=tuple(map(one_line, (*found, *member_remarks(job, members)))),
        is_dry_run=asked.is_dry_run,
    )


def _on_left_over(asked: SubmitRequest) -> OnLeftOver | None:
    if asked.go_on and asked.anew:
        raise UsageError(
            "--go-on and --anew exclude each other. Nothing was submitted. Give one."
        )
    if asked.go_on:
        return OnLeftOver.GO_ON
    return OnLeftOver.ANEW if asked.anew else None


# ----------------------------------------------------------------------
# How a submission begins


def decide(submission: Submission, found: ExistingState) -> Begin:
    """Return how *submission* begins.

    Raises:
        UsageError: The name is taken, or the folders hold another training.
        BadConfigurationError: Its folders are another trainer's, or FreeTrain's.
        TryLaterError: The name's earlier training is still being stopped.
    """
    _check_places(submission, found)
    row = found.row
    if row is None:
        return _new(submission, found)
    is_same = job_of(row) == submission.job
    if row.state in LIVE:
        if not is_same:
            raise _taken(submission, row)
        return Begin.SAME
    if is_same and submission.on_left_over is None:
        return Begin.SAME
    if submission.on_left_over is OnLeftOver.GO_ON:
        return Begin.GO_ON
    if not found.is_over:
        raise TryLaterError(
            f"{row.name} is {row.state}, but its last processes have not ended yet. "
            f"Nothing was submitted. Try again in a few seconds, or choose another "
            f"name."
        )
    _check_is_empty(submission, found)
    return Begin.ANEW


def _new(submission: Submission, found: ExistingState) -> Begin:
    if submission.on_left_over is OnLeftOver.GO_ON:
        return Begin.GO_ON
    _check_is_empty(submission, found)
    return Begin.ANEW if found.kept.generation else Begin.NEW


def differences(old: str, new: str) -> tuple[str, ...]:
    """Return the keys in which two job files differ, such as ``[nodes] max``."""
    before, after = dict(_keys(old)), dict(_keys(new))
    return tuple(
        key for key in {**before, **after} if before.get(key) != after.get(key)
    )


def _keys(text: str) -> Iterator[tuple[str, object]]:
    for name, value in tomllib.loads(text).items():
        if isinstance(value, dict):
            yield from ((f"[{name}] {key}", inner) for key, inner in value.items())
        else:
            yield name, value


def _taken(submission: Submission, row: TrainerRow) -> UsageError:
    keys = ", ".join(differences(row.job, submission.text))
    return UsageError(
        f"there is a trainer {row.name} already, and it is {row.state}; this job file "
        f"differs from its own in {keys}. Nothing was submitted. Choose another name, "
        f"or `freetrain cancel {row.name}` first."
    )


def _check_is_empty(submission: Submission, found: ExistingState) -> None:
    """Refuse to begin anew in folders that hold an earlier training."""
    name, left = submission.job.name, found.left
    if left.step is not None:
        raise UsageError(
            f"the run directory {shown(str(submission.run_dir))} holds the checkpoints "
            f"of an earlier training, of {left.step} steps. Nothing was submitted. To "
            f"go on from there add --go-on; to train {name} from the start name "
            f"another checkpoint.path, or move the folder away."
        )
    if left.has_logs:
        raise UsageError(
            f"{shown(str(submission.logs))} holds what an earlier training printed, "
            f"and {name} would be taken for it. Nothing was submitted. Name another "
            f"folder for logs, or move the files away; --go-on goes on from them."
        )


def _check_places(submission: Submission, found: ExistingState) -> None:
    for what, place in _places(submission.job):
        if overlap(place, found.state):
            raise BadConfigurationError(
                f"{what} = {shown(str(place))} and the state directory {found.state} "
                f"lie in each other. Nothing was submitted. Name another folder."
            )
    for other in found.others:
        job = job_of(other)
        if job is not None:
            _check_apart(submission.job, job, other)


def _check_apart(job: TrainerJob, other: TrainerJob, row: TrainerRow) -> None:
    for what, mine in _places(job):
        for _, theirs in _places(other):
            # Of an ended trainer the same folder is asked about, not refused.
            is_same = is_within(mine, theirs) and is_within(theirs, mine)
            if overlap(mine, theirs) and (row.state in LIVE or not is_same):
                raise BadConfigurationError(
                    f"{what} = {shown(str(mine))} and {shown(str(theirs))} of the "
                    f"trainer {row.name}, which is {row.state}, lie in each other. "
                    f"Nothing was submitted. Name another folder."
                )


def _places(job: TrainerJob) -> Iterator[tuple[str, Path]]:
    if job.checkpoint.path is not None:
        yield "checkpoint.path", job.checkpoint.path
    if job.logs is not None:
        yield "logs", job.logs


def is_within(inner: Path, outer: Path) -> bool:
    """Tell whether *inner* is *outer* or lies in it, links followed."""
    return inner.resolve().is_relative_to(outer.resolve())


def overlap(one: Path, other: Path) -> bool:
    """Tell whether one of two folders lies in the other."""
    return is_within(one, other) or is_within(other, one)


# ----------------------------------------------------------------------
# Keeping a submission: its files, then its row, everything or nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmissionOutcome:
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


def preview(state: StateDir, submission: Submission, *, uid: int) -> SubmissionOutcome:
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


def submit(state: StateDir, submission: Submission, *, uid: int) -> SubmissionOutcome:
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
) -> ExistingState:
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
) -> ExistingState:
    """Return the same, given the trainers by name and the leases that are held."""
    name = submission.job.name
    folder = state.trainer(name)
    newest = next_generation(folder) - 1
    kept = left_over(folder.run.path, folder.logs)
    return ExistingState(
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


def _judged(submission: Submission, found: ExistingState) -> SubmissionOutcome:
    begin = decide(submission, found)
    if begin is Begin.SAME and found.row is not None:
        return SubmissionOutcome(begin=begin, row=found.row, left=found.left)
    both = (found.left, found.kept) if begin is Begin.GO_ON else ()
    steps = [left.step for left in both if left.step is not None]
    row = TrainerRow(
        name=submission.job.name,
        job=submission.text,
        run_dir=str(submission.run_dir),
        state=TrainerState.WANTED,
        submitted_s=submission.now_s,
        changed_s=submission.now_s,
        reported_generation=_reported(found) if begin is Begin.GO_ON else 0,
    )
    used = max((left.generation for left in both), default=0)
    left = LeftOver(max(steps, default=None), used)
    return SubmissionOutcome(begin=begin, row=row, left=left)


def _reported(found: ExistingState) -> int:
    return 0 if found.row is None else found.row.reported_generation


def _keep(
    connection: sqlite3.Connection,
    state: StateDir,
    submission: Submission,
    judged: SubmissionOutcome,
) -> SubmissionOutcome:
    folder = state.trainer(judged.row.name)
    if judged.begin is Begin.SAME:
        mended = not (folder.job.is_file() and folder.environment.is_file())
        if mended:
            _write(folder, submission)
        return SubmissionOutcome(
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
    return SubmissionOutcome(
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

    Where the last ending is judged, it also says that there is a new beginning.
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
