"""Submitted trainers as commands find them: by name, with their job and their files."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from freetrain.config.document import ROOT
from freetrain.config.job import parse_job
from freetrain.elastic.files import RunDir
from freetrain.errors import BadConfigurationError, UsageError
from freetrain.pack.pack import member_folders
from freetrain.state.files import (
    BROKER,
    USER,
    generations,
    read_assigned,
    read_ending,
)
from freetrain.state.tables import TrainerState
from freetrain.text import closest, shown

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable
    from pathlib import Path

    from freetrain.broker.lease import LeaseKey
    from freetrain.config.job import TrainerJob
    from freetrain.elastic.files import Committed
    from freetrain.state.files import TrainerDir
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


# ----------------------------------------------------------------------
# Its generations


def next_generation(folder: TrainerDir) -> int:
    """Return the first generation that has no file yet."""
    found = generations(folder.assignments)
    return found[-1] + 1 if found else 1


def is_over(folder: TrainerDir, held: Collection[LeaseKey]) -> bool:
    """Tell whether no world of a trainer can be running any more.

    Args:
        folder: The trainer's.
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


# ----------------------------------------------------------------------
# What an earlier training left in its folders

_LOG = re.compile(r"([0-9]{10})\.log", re.ASCII)
_OUTCOME = re.compile(r"([0-9]{10})\.json", re.ASCII)


@dataclass(frozen=True, slots=True)
class LeftOver:
    """What an earlier training left in the folders that a new one would use.

    Attributes:
        step: Steps that its newest checkpoint has, for a pack summed over its members;
            None where there is none.
        generation: The highest generation that any file names; 0 for none.
        has_logs: Whether its worlds printed anything.
    """

    step: int | None = None
    generation: int = 0
    has_logs: bool = False


def left_over(run_dir: Path, logs: Path) -> LeftOver:
    """Return what is in *run_dir* and *logs*.

    Raises:
        OSError: A folder is there and cannot be listed.
    """
    run = RunDir(run_dir)
    committed = _committed(run)
    printed, outcomes = _matching(logs, _LOG), _matching(run.outcomes, _OUTCOME)
    named = [checkpoint.generation for checkpoint in committed]
    named += [int(match[1]) for match in (*printed, *outcomes)]
    inner = (_committed(RunDir(folder / "run")) for folder in member_folders(run))
    steps = [found[-1].step for found in (committed, *inner) if found]
    return LeftOver(
        step=sum(steps) if steps else None,
        generation=max([run.newest_generation(), *named]),
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
