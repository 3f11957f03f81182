"""Job files made of a command or a script, for ``freetrain run`` and ``init``.

``run_and_follow`` submits what it made, and follows what it prints. ``write_draft``
asks on a terminal what a script does not show.
"""

import math
import re
import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import typer

from freetrain.api.writing import write_file
from freetrain.cli.context import CliContext, write_out
from freetrain.cli.status import EVERY_S
from freetrain.cli.submit import check_submission, submit_and_show
from freetrain.cli.trainer_logs import show_logs
from freetrain.client.draft import (
    OWN_EVERY,
    Draft,
    Wishes,
    check_sharing,
    draft_of,
    job_text,
    parse_sizes,
    without_guessed_place,
)
from freetrain.client.status import (
    Overview,
    TrainerStatus,
    ending_lines,
    news_of,
    overview,
)
from freetrain.client.submit import SubmitRequest
from freetrain.client.trainers import as_ended
from freetrain.config.document import BaseFolders
from freetrain.config.job import TrainerJob, parse_job
from freetrain.errors import BadConfigurationError, CannotWriteError, UsageError
from freetrain.state.files import StateDir
from freetrain.state.tables import TrainerState
from freetrain.text import one_line, shown

EX_FAILED = 1


def wishes_of(
    *, nodes: str, gpus: int | None, name: str, checkpoint: str, every: str
) -> Wishes:
    """Return what the options of both verbs say; *nodes* is ``MIN:MAX`` or "".

    Raises:
        UsageError: *nodes* is neither.
    """
    return Wishes(
        name=name,
        sizes=parse_sizes(nodes, named="--nodes") if nodes else None,
        gpus_per_lease=gpus,
        checkpoint=checkpoint,
        every=every,
    )


def run_and_follow(  # noqa: PLR0913 - one parameter an option
    context: CliContext,
    config: Path | None,
    command: Sequence[str],
    wishes: Wishes,
    *,
    is_dry_run: bool,
    go_on: bool,
    force: bool,
) -> None:
    """Make a job file of *command*, submit it, and follow what it prints.

    Raises:
        typer.Exit: The training has failed.
        FreeTrainError: Nothing was submitted.
    """
    draft = draft_of(command, wishes, folder=context.folder)
    check_sharing(draft)
    origin = shlex.join(["freetrain", "run", *_options(wishes), "--", *command])
    path = Path(f"{draft.name}.job.toml")
    draft, text = _checked(context, draft, origin=one_line(origin), path=path)
    for note in draft.notes:
        context.stderr.write(f"note: {one_line(note)}\n")
    if is_dry_run:
        write_out(context, text)
        return
    place = context.folder / path
    is_there = _is_same_job(context, path, text)
    if place.exists() and not is_there and not force:
        raise CannotWriteError(
            f"{path} exists and differs. Nothing was written or submitted. Give this "
            f"training another name with --name, or replace the file with --force."
        )
    request = SubmitRequest(path=place, named=str(path), go_on=go_on)
    if not is_there:
        promised = replace(request, content=text.encode())
        check_submission(context, config, promised)
        write_file(place, text.encode(), force=force)
    done = "there already" if is_there else "written"
    write_out(context, f"{path}: {done}; `freetrain submit {path}` submits it again\n")
    submit_and_show(context, config, request, as_json=False)
    _follow(context, config, draft.name)


def _options(wishes: Wishes) -> list[str]:
    sizes = ":".join(map(str, wishes.sizes or ()))
    said = {
        "--nodes": sizes,
        "--gpus-per-lease": str(wishes.gpus_per_lease or ""),
        "--name": wishes.name,
        "--checkpoint": wishes.checkpoint,
        "--every": wishes.every,
    }
    return [word for option, value in said.items() if value for word in (option, value)]


def _checked(
    context: CliContext, draft: Draft, *, origin: str, path: Path
) -> tuple[Draft, str]:
    """Return the job file, after the reader of job files has taken it.

    The draft is returned, too: a guess that the reader refuses is taken out.

    Raises:
        BadConfigurationError: It has not; nothing is written yet.
    """
    text = job_text(draft, origin=origin)
    try:
        _parsed(context, text.encode(), path)
    except (BadConfigurationError, UnicodeEncodeError):
        if draft.view.logger is not None:
            draft = replace(draft, view=replace(draft.view, logger=None))
        elif draft.checkpoint and draft.is_place_guessed:
            draft = without_guessed_place(draft)
        else:
            raise
        return _checked(context, draft, origin=origin, path=path)
    return draft, text


def _parsed(context: CliContext, content: bytes, path: Path) -> TrainerJob:
    places = BaseFolders(context.folder, context.home)
    return parse_job(content, path=str(path), places=places)


def _is_same_job(context: CliContext, path: Path, text: str) -> bool:
    """Return whether the file at *path* describes the trainer of *text* already.

    Comments do not count: they say where this FreeTrain is installed.
    """
    place = context.folder / path
    try:
        found = place.read_bytes() if place.is_file() else b""
        return _parsed(context, found, path) == _parsed(context, text.encode(), path)
    except (OSError, BadConfigurationError):
        return False


def _follow(context: CliContext, config: Path | None, name: str) -> None:
    """Follow what *name* prints until it has ended, or the user interrupts that.

    Raises:
        typer.Exit: It has failed.
    """
    state = StateDir(context.site(config).state_directory)
    _, view = _look(context, state, name)
    if view.report is None or view.is_tick_missing:
        context.stderr.write(
            "note: no tick has come lately, and without ticks nothing starts; "
            "`freetrain cron install` has them come every minute\n"
        )
    context.stderr.write(
        "following what it prints; Ctrl-C ends that, and not the training\n"
    )
    show_logs(
        context,
        config,
        name,
        follow=True,
        generation=None,
        tail=None,
        agent=False,
        as_json=False,
        on_turn=_News(context, state, name).tell,
    )
    trainer, _ = _look(context, state, name)
    if trainer.ended_s is None:
        context.stderr.write(
            f"\n{name} goes on. `freetrain logs -f {name}` follows it again, "
            f"`freetrain status {name}` shows how far it is, and "
            f"`freetrain cancel {name}` stops it.\n"
        )
        return
    for line in ending_lines(trainer):
        context.stderr.write(f"{name}: {one_line(line)}\n")
    if trainer.row.state is TrainerState.FAILED:
        raise typer.Exit(EX_FAILED)


class _News:
    """Tells on stderr what a trainer waits for and on what it runs, as that changes."""

    def __init__(self, context: CliContext, state: StateDir, name: str) -> None:
        """Take whose trainer it is, where, and its name."""
        self._context = context
        self._state = state
        self._name = name
        self._told = ""
        self._due_s = -math.inf

    def tell(self) -> None:
        """Tell what is new; look no more often than ``freetrain status --watch``."""
        now_s = self._context.clock()
        if now_s < self._due_s:
            return
        self._due_s = now_s + EVERY_S
        trainer, view = _look(self._context, self._state, self._name)
        news = news_of(trainer, view)
        if news and news != self._told:
            self._context.stderr.write(f"{self._name}: {one_line(news)}\n")
            self._told = news


def _look(
    context: CliContext, state: StateDir, name: str
) -> tuple[TrainerStatus, Overview]:
    """Return a trainer, ended where its files say so, and what was read with it."""
    view = overview(state, name=name, uid=context.uid, now_s=context.now_s())
    (trainer,) = view.standings
    return replace(trainer, row=as_ended(state, trainer.row)), view


def write_draft(  # noqa: PLR0913 - one parameter an option
    context: CliContext,
    command: Sequence[str],
    wishes: Wishes,
    *,
    out: Path,
    asks: bool,
    force: bool,
) -> None:
    """Write a job file for *command*; ask if *asks*.

    It is a command as ``run_and_follow`` takes it, or a Python script alone or with
    its arguments; without one the only script here.

    Raises:
        FreeTrainError: Nothing was written.
    """
    found = [*command] or [_only_script(context, asks=asks)]
    is_script = found[0].endswith(".py")
    words = ["python", *found] if is_script else found
    draft = draft_of(words, wishes, folder=context.folder, is_typed=not is_script)
    if asks:
        draft = _asked(context, draft)
    check_sharing(draft)
    ends = ["--"] if len(found) > 1 else []
    called = ["freetrain", "init", *_options(wishes), *ends, *found]
    origin = one_line(shlex.join(called))
    draft, text = _checked(context, draft, origin=origin, path=out)
    is_there = _is_same_job(context, out, text)
    if not is_there:
        write_file(context.folder / out, text.encode(), force=force)
    for note in draft.notes:
        context.stderr.write(f"note: {one_line(note)}\n")
    done = "there already" if is_there else "written"
    write_out(
        context,
        f"{out}: {done}. Check it, and the program's arguments in command; "
        f"`freetrain submit {out} --dry-run` shows what it would do.\n",
    )


def _only_script(context: CliContext, *, asks: bool) -> str:
    scripts = sorted(path.name for path in context.folder.glob("*.py"))
    if len(scripts) == 1:
        return scripts[0]
    if not asks:
        raise UsageError(
            f"there are {len(scripts) or 'no'} scripts in this folder. Nothing was "
            f"written. Name the one that trains: freetrain init train.py"
        )
    return _ask(context, "The training script", "train.py")


def _asked(context: CliContext, draft: Draft) -> Draft:
    """Return *draft* with the answers to what is open in it."""
    if draft.sizes is None and not draft.is_one_process:
        answer = _ask(context, "Nodes that it may have, from least to most", "1:1")
        draft = replace(draft, sizes=parse_sizes(answer, named="MIN:MAX"))
    says_ranks = draft.per_lease is not None or draft.gpus_per_lease is not None
    if draft.launcher in {"torchrun", "mpirun"} and not says_ranks:
        draft = replace(draft, per_lease=_ask_ranks(context))
    if not draft.elastic and not draft.checkpoint:
        answer = _ask(context, "The file or folder in which it saves", "none")
        draft = replace(draft, checkpoint="" if answer == "none" else answer)
    if not draft.elastic and not draft.every:
        draft = replace(draft, every=_ask(context, "How often it saves", OWN_EVERY))
    return draft


def _ask_ranks(context: CliContext) -> int:
    answer = _ask(context, "Processes on each node, one for each GPU", "1")
    if not re.fullmatch(r"[1-9][0-9]{0,3}", answer, re.ASCII):
        raise UsageError(f"{shown(answer)} is no number. Nothing was written.")
    return int(answer)


def _ask(context: CliContext, question: str, otherwise: str) -> str:
    context.stderr.write(f"{question} [{otherwise}]: ")
    context.stderr.flush()
    return context.stdin.readline().strip() or otherwise
