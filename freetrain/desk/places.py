"""Folders that two trainers must not share, and what earlier ones left in them."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from freetrain.elastic.run_dir import RunDir
from freetrain.pack.record import member_folders

if TYPE_CHECKING:
    from pathlib import Path

    from freetrain.elastic.run_dir import Committed

_LOG = re.compile(r"([0-9]{10})\.log", re.ASCII)
_OUTCOME = re.compile(r"([0-9]{10})\.json", re.ASCII)


@dataclass(frozen=True, slots=True)
class LeftOver:
    """What an earlier training left in the folders that a new one would use.

    Attributes:
        step: Steps that its newest checkpoint has, of a pack those of its members
            together; None where there is none.
        generation: The highest generation that any file names; 0 for none.
        has_logs: Whether there is anything that its worlds printed.
    """

    step: int | None = None
    generation: int = 0
    has_logs: bool = False


def left_over(run_dir: Path, logs: Path) -> LeftOver:
    """Look what is in *run_dir* and *logs*.

    Raises:
        OSError: A folder is there and cannot be listed.
    """
    run = RunDir(run_dir)
    committed = _committed(run)
    printed, outcomes = _matching(logs, _LOG), _matching(run.outcomes, _OUTCOME)
    named = [one.generation for one in committed]
    named += [int(one[1]) for one in (*printed, *outcomes)]
    inner = (_committed(RunDir(one / "run")) for one in member_folders(run))
    steps = [every[-1].step for every in (committed, *inner) if every]
    return LeftOver(
        step=sum(steps) if steps else None,
        generation=max([run.newest_generation(), *named]),
        has_logs=bool(printed),
    )


def _committed(run: RunDir) -> tuple[Committed, ...]:
    # A program of its own kind may keep a file of that name; status is not to fail.
    with suppress(NotADirectoryError):
        return run.committed()
    return ()


def _matching(folder: Path, pattern: re.Pattern[str]) -> list[re.Match[str]]:
    try:
        names = [entry.name for entry in folder.iterdir()]
    except (FileNotFoundError, NotADirectoryError):
        return []
    return [found for name in names if (found := pattern.fullmatch(name))]


def is_within(inner: Path, outer: Path) -> bool:
    """Tell whether *inner* is *outer* or lies in it, links followed."""
    return inner.resolve().is_relative_to(outer.resolve())


def overlap(one: Path, other: Path) -> bool:
    """Tell whether one of two folders lies in the other."""
    return is_within(one, other) or is_within(other, one)
