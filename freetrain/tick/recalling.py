"""What was learned of nodes, taken up again; where that fails it is dropped, and told.

A text that was kept may hold anything. Forecasts are worth an hour of learning and not
one failed tick, so whatever goes wrong with what was kept, be it as it is read or as it
is first used, is taken for its fault: all begins anew. What fails with
nothing kept is a defect, for which one tick does not look ahead (``tick.ahead``).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, TypeVar

from freetrain.store.forecasts import forecast_state
from freetrain.tick.ahead import FAULTS, said_of

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable

Kept = dict[str, Any]
Begun = TypeVar("Begun")


class Recalled(NamedTuple):
    """What came of what was kept.

    Attributes:
        kept: What it says; None for nothing, or nothing of use.
        problem: Why it is of no use, for people; empty where it is, or there is none.
    """

    kept: Kept | None
    problem: str = ""


def recalled(state: sqlite3.Connection, cluster: str) -> Recalled:
    """Return what was kept of *cluster*.

    Raises:
        StoreError: The state cannot be read.
    """
    text = forecast_state(state)
    if text is None:
        return Recalled(None)
    try:
        kept: Kept = json.loads(text, parse_constant=_no_number)
        if kept["cluster"] != cluster:
            raise ValueError(f"it is of cluster {kept['cluster']!r}")
    except FAULTS as error:
        return Recalled(None, _dropped(error))
    return Recalled(kept)


def taken_up(
    last: Recalled, begin: Callable[[Kept | None], Begun]
) -> tuple[Begun, str]:
    """Return what *begin* makes of what was kept, or else of nothing; and why of that.

    Args:
        last: What was kept.
        begin: Goes on from that, and tries what it made; None to begin anew.
    """
    if last.kept is not None:
        try:
            return begin(last.kept), last.problem
        except FAULTS as error:
            last = Recalled(None, _dropped(error))
    return begin(None), last.problem


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"{text} is no number")


def _dropped(error: Exception) -> str:
    """Return the line of the report."""
    return (
        f"what was learned of nodes cannot be used ({said_of(error)}); it is learned "
        f"anew, and until then plans go by speed alone"
    )
