"""What is long over, removed: a little in each tick, and only what nobody can use.

Files go before the records that lead to them, so that a tick that is killed leaves
nothing that a later one does not find.
"""

from __future__ import annotations

import shutil
from contextlib import suppress
from itertools import pairwise
from typing import TYPE_CHECKING

from freetrain.exchange.assigned import generations
from freetrain.exchange.layout import generation_name
from freetrain.store.old import (
    forget_intents,
    forget_leases,
    forget_pasts,
    has_old_intents,
    has_old_pasts,
    old_leases,
)
from freetrain.tick.requests import output_of

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from freetrain.exchange.layout import TrainerDir
    from freetrain.store.old import OldLease
    from freetrain.tick.observe import Observed
    from freetrain.tick.run import Run
    from freetrain.tick.standing import Standing

KEPT_S = 3 * 86_400.0
"""Leases are kept so long after their deadline; much longer than any can last."""

KEPT_GENERATIONS = 200
"""Generations of each trainer that are kept, however old.

Agents look back fifty at most, ticks a hundred.
"""

_MOST_LEASES = 50
_MOST_GENERATIONS = 50


def tidy(run: Run, observed: Observed) -> str:
    """Remove some of what is long over; return what kept it from being removed.

    Of two clocks the earlier counts: one that is ahead must not make things old.

    Raises:
        StoreError: The state cannot be written.
    """
    before_s = min(observed.now_s, run.outside.now_s()) - KEPT_S
    try:
        _leases(run, before_s)
        _generations(run, observed.trainers, before_s)
    except OSError as error:
        return f"old files stay, since one cannot be removed: {error}"
    return ""


def _leases(run: Run, before_s: float) -> None:
    old = old_leases(run.state, before_s=before_s, most=_MOST_LEASES)
    for lease in old:
        with run.effect("removing a lease's files"):
            _remove_files(run, lease, before_s)
    has_rows = (has_old_intents, has_old_pasts)
    if not old and not any(has(run.state, before_s=before_s) for has in has_rows):
        return
    with run.writing("what is forgotten") as state:
        forget_leases(state, [lease.key for lease in old])
        forget_intents(state, before_s=before_s)
        forget_pasts(state, before_s=before_s)


def _remove_files(run: Run, lease: OldLease, before_s: float) -> None:
    _remove_folder(run.folder.lease(lease.key).path)
    if lease.job_id is None:
        return
    output = output_of(run.folder, lease.job_id)
    with suppress(FileNotFoundError):
        if output.stat().st_mtime < before_s:  # numbers of jobs are used again
            output.unlink()


def _generations(run: Run, trainers: Iterable[Standing], before_s: float) -> None:
    left = _MOST_GENERATIONS
    for standing in trainers:
        newest = standing.newest
        if newest is None or newest.generation <= KEPT_GENERATIONS:
            continue
        folder = run.folder.trainer(standing.row.name)
        old = _old(folder, standing, before_s)[:left]
        left -= len(old)
        for generation in old:
            with run.effect("removing a generation's files"):
                _remove_generation(folder, generation, standing)


def _old(folder: TrainerDir, standing: Standing, before_s: float) -> list[int]:
    """Return the generations of which no lease can be left, the oldest first.

    One was over, or about to be, when the next one was made.
    """
    found = generations(folder.assignments)
    enough = found[: max(0, len(found) - KEPT_GENERATIONS + 1)]
    old: list[int] = []
    for generation, following in pairwise(enough[: _MOST_GENERATIONS + 1]):
        made_s = folder.assignment(following).stat().st_mtime
        if generation > standing.row.told_generation or made_s >= before_s:
            break
        old.append(generation)
    return old


def _remove_generation(folder: TrainerDir, generation: int, standing: Standing) -> None:
    """Remove one generation, the file that it is found by last.

    How long a trainer has run is told by its endings: one with a limit keeps them.
    """
    name = generation_name(generation)
    _remove_folder(folder.world(generation))
    (folder.logs / f"{name}.log").unlink(missing_ok=True)
    for notice in folder.notices.glob(f"{name}.*"):
        notice.unlink(missing_ok=True)
    job = standing.job
    if job is not None and job.work.time_limit_s is None:
        folder.ending(generation).unlink(missing_ok=True)
    folder.assignment(generation).unlink(missing_ok=True)


def _remove_folder(path: Path) -> None:
    with suppress(FileNotFoundError):
        shutil.rmtree(path)
