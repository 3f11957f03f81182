"""What becomes of a submission: decided from what is there, before anything changes."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from freetrain.desk.places import LeftOver, is_within, overlap
from freetrain.errors import BadConfigurationError, TryLaterError, UsageError
from freetrain.jobfile.file import parse_job, render_job
from freetrain.store.trainers import TrainerState
from freetrain.toml.text import Places
from freetrain.toml.wording import shown

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from freetrain.jobfile.job import TrainerJob
    from freetrain.store.trainers import TrainerRow

LIVE = frozenset({TrainerState.WANTED, TrainerState.PAUSED})
NOTHING_LEFT = LeftOver()


class Wish(StrEnum):
    """What the user wants where an earlier training left something."""

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
    """What a user hands in.

    Attributes:
        job: The trainer.
        environment: The variables to keep with it.
        run_dir: Where its run directory is to be.
        logs: Where its worlds are to print.
        wish: What to do about what an earlier training left.
        now_s: When, Unix time.
    """

    job: TrainerJob
    environment: Mapping[str, str]
    run_dir: Path
    logs: Path
    now_s: float
    wish: Wish | None = None

    @property
    def text(self) -> str:
        """The job file that is kept."""
        return render_job(self.job)


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What is there.

    Attributes:
        state: The state directory.
        row: The trainer of that name; None where there is none.
        others: All other trainers.
        is_over: Whether no world of that name can be running any more.
        left: What is in the folders that the job file names itself.
        kept: What is in FreeTrain's own folder of that name.
    """

    state: Path
    row: TrainerRow | None = None
    others: tuple[TrainerRow, ...] = ()
    is_over: bool = True
    left: LeftOver = NOTHING_LEFT
    kept: LeftOver = NOTHING_LEFT


def decide(submission: Submission, found: Found) -> Begin:
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
    if is_same and submission.wish is None:
        return Begin.SAME
    if submission.wish is Wish.GO_ON:
        return Begin.GO_ON
    if not found.is_over:
        raise TryLaterError(
            f"{row.name} is {row.state}, but its last processes have not ended yet. "
            f"Nothing was submitted. Try again in a few seconds, or choose another "
            f"name."
        )
    _check_is_empty(submission, found)
    return Begin.ANEW


def _new(submission: Submission, found: Found) -> Begin:
    if submission.wish is Wish.GO_ON:
        return Begin.GO_ON
    _check_is_empty(submission, found)
    return Begin.ANEW if found.kept.generation else Begin.NEW


def job_of(row: TrainerRow) -> TrainerJob | None:
    """Return the job of a stored trainer; None where this version cannot read it."""
    try:
        places = Places(Path("/"))
        return parse_job(row.job.encode(), path=row.name, places=places)
    except BadConfigurationError:
        return None


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


def _check_is_empty(submission: Submission, found: Found) -> None:
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


def _check_places(submission: Submission, found: Found) -> None:
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
            # What an ended trainer left is asked about, not refused.
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
