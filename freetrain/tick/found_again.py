"""What files know and the database may not: trainers, and worlds of an earlier state.

Where the database was put back from a copy, or begun anew beside folders of trainers,
``find_again`` takes up what users asked for since: trainers that were submitted,
paused, cancelled or resumed. Leases are found by their names (``broker.belief``).

``older_world`` finds a world that trains where a new one is about to be started and
that no file of the trainer accounts for, so that its end is waited for; and
``free_generation`` numbers generations by all files there are, so that no number is
used twice whatever was lost.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from freetrain.elastic.files import RunDir
from freetrain.errors import BadConfigurationError
from freetrain.state.database import FIND_AGAIN
from freetrain.state.files import (
    GO_ON,
    USER,
    AgentState,
    UnreadableFileError,
    generations,
    newest_assigned,
    read_heartbeat,
)
from freetrain.state.tables import (
    TrainerRow,
    TrainerState,
    put_trainers,
    remove_trainer,
    trainers,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from freetrain.state.files import AssignmentFile, TrainerDir
    from freetrain.tick.environment import TickContext
    from freetrain.tick.trainers import TickTrainer

QUIET_S = 120.0
"""A world that changes none of its files for so long is over: it commits once a minute
and reports each second, unless its user chose otherwise."""

_SILENT_S = 30.0
"""A heartbeat that is so old is of an agent that has ended; it beats each second."""


def find_again(context: TickContext) -> str:
    """Take up the trainers that files know; return which, for people.

    Raises:
        StoreError: The state could not be written; the next tick tries again.
        OSError: The folder of trainers could not be read.
    """
    marker = context.folder.path / FIND_AGAIN
    if context.is_dry or not marker.exists():
        return ""
    with context.writing("trainers found again") as state:
        known = {row.name: row for row in trainers(state)}
        found = sorted(_found(context, known), key=lambda row: row.submitted_s)
        for row in found:
            if row.name in known and row.submitted_s != known[row.name].submitted_s:
                remove_trainer(state, row.name)  # it comes last, as it was submitted
        put_trainers(state, found)
    marker.unlink(missing_ok=True)
    if not found:
        return ""
    return f"found again by their files: {', '.join(row.name for row in found)}"


def _found(
    context: TickContext, known: Mapping[str, TrainerRow]
) -> Iterator[TrainerRow]:
    """Yield the rows of trainers whose files say more than the database."""
    try:
        names = sorted(entry.name for entry in context.folder.trainers.iterdir())
    except FileNotFoundError:
        return
    for name in names:
        folder = context.folder.trainer(name)
        # One trainer's files are no reason to give up the others.
        with suppress(OSError, UnreadableFileError, BadConfigurationError, ValueError):
            row, newest = known.get(name), newest_assigned(folder)
            text = folder.job.read_text(encoding="utf-8")
            if row is None or row.job != text:
                row = _row_of(folder, text)
                yield replace(row, state=_asked_for(row, newest) or row.state)
            elif (state := _asked_for(row, newest)) not in {None, row.state}:
                assert newest is not None and state is not None  # noqa: S101, PT018
                yield replace(row, state=state, changed_s=newest.created_s, message="")


def _row_of(folder: TrainerDir, text: str) -> TrainerRow:
    """Return the row of a trainer of which only its files are left.

    Raises:
        BadConfigurationError: Its job file cannot be read.
        OSError: Likewise.
    """
    # Imported here: most ticks find nothing again, and must stay cheap.
    from freetrain.config.document import BaseFolders  # noqa: PLC0415
    from freetrain.config.job import parse_job  # noqa: PLC0415
    from freetrain.launch.base import run_dir_of  # noqa: PLC0415

    name = folder.path.name
    job = parse_job(text.encode(), path=name, places=BaseFolders(Path("/")))
    if job.name != name:
        raise ValueError(f"{folder.job} is of {job.name}")
    submitted_s = folder.job.stat().st_mtime
    return TrainerRow(
        name=name,
        job=text,
        run_dir=str(run_dir_of(job, folder).path),
        state=TrainerState.WANTED,
        submitted_s=submitted_s,
        changed_s=submitted_s,
        reported_generation=max(generations(folder.assignments), default=0),
    )


def _asked_for(row: TrainerRow, newest: AssignmentFile | None) -> TrainerState | None:
    """Return the state that its user asked for since *row*, by the newest generation.

    Pausing, cancelling and resuming leave an empty generation of the user's, but for a
    trainer that never ran.
    """
    if newest is None or newest.members or newest.author != USER:
        return None
    if newest.created_s <= row.changed_s and row.state is not TrainerState.WANTED:
        return None
    if newest.reason == GO_ON:
        return TrainerState.WANTED
    for state in (TrainerState.PAUSED, TrainerState.CANCELLED):
        if newest.reason.startswith(str(state)):
            return state
    return None


# Worlds of an earlier state


def free_generation(folder: TrainerDir, trainer: TickTrainer, *, wanted: int) -> int:
    """Return *wanted*, or the first number above all that any file names.

    Raises:
        OSError: The files cannot be read, so that it is unknown.
    """
    ended = generations(folder.endings)
    used = RunDir(Path(trainer.row.run_dir)).last_used()
    return max(wanted, used + 1, ended[-1] + 1 if ended else 1)


def older_world(context: TickContext, trainer: TickTrainer) -> str:
    """Return which world trains though no assignment accounts for it; empty for none.

    The tick's turn tells the time by the file server's clock.

    Raises:
        OSError: The files cannot be read, so that it is unknown.
    """
    if context.turn is None:
        return ""
    now_s = context.turn.path.stat().st_mtime
    known = 0 if trainer.newest is None else trainer.newest.generation
    run_dir = RunDir(Path(trainer.row.run_dir))
    claimed = run_dir.newest_generation()
    if claimed > known and not _is_over(run_dir, claimed):
        signs = (run_dir.claim(claimed), run_dir.progress, run_dir.checkpoints)
        if any(_is_fresh(path, now_s, QUIET_S) for path in signs):
            return f"generation {claimed} in {run_dir.path} still trains"
    return "" if known else _training_lease(context, trainer.row.name, now_s)


def _is_over(run_dir: RunDir, generation: int) -> bool:
    return run_dir.outcome(generation).exists() or run_dir.over(generation).exists()


def _training_lease(context: TickContext, name: str, now_s: float) -> str:
    """Return the lease whose agent still trains *name*, of which nothing is known."""
    try:
        places = sorted(context.folder.leases.iterdir())
    except FileNotFoundError:
        return ""
    for place in places:
        path = place / "heartbeat.json"
        with suppress(OSError, UnreadableFileError):
            beat = read_heartbeat(path)
            trains = beat is not None and beat.state is AgentState.TRAINING
            if beat is None or not trains or beat.trainer != name:
                continue
            if beat.generation and _is_fresh(path, now_s, _SILENT_S):
                return f"generation {beat.generation} still trains on {beat.node}"
    return ""


def _is_fresh(path: Path, now_s: float, within_s: float) -> bool:
    with suppress(FileNotFoundError, NotADirectoryError):
        return now_s - path.stat().st_mtime < within_s
    return False
