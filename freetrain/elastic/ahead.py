"""Waiting, all ranks connected, until the generation before has committed.

So two worlds overlap in their start-up only, and a rescale costs what it takes to
agree, to commit, and to restore.
"""

from __future__ import annotations

from contextlib import suppress
from enum import IntEnum
from typing import TYPE_CHECKING

import numpy as np

from freetrain.elastic.notice import warn
from freetrain.elastic.outcome import Ending, read_outcome
from freetrain.elastic.stop import Stop

if TYPE_CHECKING:
    from pathlib import Path

    from freetrain.elastic.outcome import Outcome
    from freetrain.elastic.run_dir import RunDir
    from freetrain.elastic.setting import Setting
    from freetrain.elastic.stop import StopSignals
    from freetrain.elastic.world import World

# The ranks sleep between two rounds, so that a world that waits leaves the cores to
# the one that trains; a rescale waits for half of it on average.
_ROUND_S = 0.02


class _Word(IntEnum):
    """What a round comes to; ranks agree on the largest."""

    WAIT = 0
    GO = 1
    STOP = 2
    GAVE_UP = 3


def wait_for_predecessor(
    setting: Setting, world: World, signals: StopSignals
) -> tuple[Stop, str]:
    """Wait until the generation named by FREETRAIN_AFTER is over; collective.

    Rank 0 writes ``control/G.ready`` when every rank is here, and looks for that
    generation's outcome, or its ``control/A.over``.

    Returns:
        ``Stop.NO`` to train; ``Stop.RESCALE`` where this world was asked to stop
        meanwhile, ``Stop.FOR_GOOD`` and why where the training was given up: then
        nothing may be claimed, as the other one may still commit.
    """
    after, generation = setting.launch.after, setting.launch.generation
    if after is None or generation is None:
        return Stop.NO, ""
    _agree(world, _Word.WAIT)  # nobody is through before everybody is here
    if world.rank == 0:
        _say_ready(setting.run, generation)
    while True:
        mine = _look(setting.run, after, generation) if world.rank == 0 else _Word.WAIT
        if signals.came:
            mine = max(mine, _Word.STOP)
        word = _agree(world, mine)
        if word is _Word.WAIT:
            setting.clock.sleep(_ROUND_S)
            continue
        why = _why(setting.run, after) if word is _Word.GAVE_UP else ""
        stops = {_Word.STOP: Stop.RESCALE, _Word.GAVE_UP: Stop.FOR_GOOD}
        return stops.get(word, Stop.NO), why


def _agree(world: World, mine: _Word) -> _Word:
    return _Word(int(world.maxima(np.array([mine], dtype=np.int64))[0]))


def _say_ready(run: RunDir, generation: int) -> None:
    try:
        run.create()
        run.ready(generation).touch()
    except OSError as error:
        warn(
            f"{run.ready(generation)} could not be written: {error}. The launcher does "
            f"not learn that this world is ready, and the rescale takes longer."
        )


def _look(run: RunDir, after: int, generation: int) -> _Word:
    control = _names(run.control)
    if run.stop_request(generation).name in control:
        return _Word.STOP
    path = run.outcome(after)
    if path.name in _names(path.parent):
        said = _said(run, after)
        gave_up = said is not None and said.ending is Ending.DO_NOT_RESTART
        return _Word.GAVE_UP if gave_up else _Word.GO
    return _Word.GO if run.over(after).name in control else _Word.WAIT


def _names(folder: Path) -> set[str]:
    """List *folder*: NFS remembers that a file was not there, but not in a listing."""
    try:
        return {entry.name for entry in folder.iterdir()}
    except OSError:
        return set()


def _why(run: RunDir, after: int) -> str:
    said = _said(run, after)
    message = said.message if said else ""
    return f"generation {after} gave up: {message or 'no reason given'}"


def _said(run: RunDir, generation: int) -> Outcome | None:
    with suppress(OSError):
        return read_outcome(run, generation)
    return None
