"""From a job file to a trainer that is kept: read, check, keep."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from freetrain.desk.checks import check_program, past_deadline, remarks
from freetrain.desk.environment import kept_environment
from freetrain.desk.packed import member_remarks, members_of
from freetrain.desk.submission import Submission, Wish
from freetrain.desk.submit import Submitted, preview, submit
from freetrain.errors import UsageError
from freetrain.exchange.layout import StateDir
from freetrain.jobfile.file import read_job
from freetrain.launch.places import logs_of, run_dir_of
from freetrain.store.file_system import read_mounts
from freetrain.toml.wording import one_line

if TYPE_CHECKING:
    from collections.abc import Mapping

    from freetrain.site.settings import Site


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a user asks for.

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
class HandedIn:
    """What became of it.

    Attributes:
        site: The site it was handed in at.
        submission: What was handed in.
        submitted: What became of it, or would.
        remarks: What may be a mistake; one line each.
        is_dry_run: Whether nothing was kept.
    """

    site: Site
    submission: Submission
    submitted: Submitted
    remarks: tuple[str, ...]
    is_dry_run: bool


def hand_in(  # noqa: PLR0913 - the outside, piece by piece
    asked: Asked,
    site: Site,
    *,
    environ: Mapping[str, str],
    home: Path | None,
    uid: int,
    now_s: float,
) -> HandedIn:
    """Submit the trainer that *asked* names, or find out what that would do.

    Raises:
        FreeTrainError: Nothing was submitted; the message says why.
        OSError: A file could not be written. Nothing was submitted.
    """
    wish = _wish(asked)
    job = read_job(asked.path, named=asked.named, home=home)
    kept = kept_environment(environ)
    theirs = kept | dict(job.environment)
    members = members_of(job, home=home) if asked.is_checked else ()
    if asked.is_checked:
        for one in (job, *members):
            check_program(one, theirs | dict(one.environment))
    state = StateDir(site.state_directory)
    folder = state.trainer(job.name)
    submission = Submission(
        job=job,
        environment=kept,
        run_dir=run_dir_of(job, folder).path,
        logs=logs_of(job, folder),
        now_s=now_s,
        wish=wish,
    )
    keep = preview if asked.is_dry_run else submit
    submitted = keep(state, submission, uid=uid)
    folders = [one.directory for one in (job, *members)]
    shared = (state.path, *folders, submission.run_dir, submission.logs)
    beside = Path(sys.executable).parent
    said = (
        *remarks(job, theirs, shared, beside=beside, mounts=read_mounts()),
        *past_deadline(job, now_s=now_s),
    )
    return HandedIn(
        site=site,
        submission=submission,
        submitted=submitted,
        remarks=tuple(map(one_line, (*said, *member_remarks(job, members)))),
        is_dry_run=asked.is_dry_run,
    )


def _wish(asked: Asked) -> Wish | None:
    if asked.go_on and asked.anew:
        raise UsageError(
            "--go-on and --anew exclude each other. Nothing was submitted. Give one."
        )
    if asked.go_on:
        return Wish.GO_ON
    return Wish.ANEW if asked.anew else None
