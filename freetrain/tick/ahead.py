"""Whether a tick looks ahead, and with what; cheap where it does not.

A tick makes room for others, whoever foretells what: where forecasts fail, it plans as
if it did not look ahead, and tells so.
"""

from __future__ import annotations

import traceback
from typing import TYPE_CHECKING, TypeVar

from freetrain.site.settings import PolicyName

if TYPE_CHECKING:
    from collections.abc import Callable

    from freetrain.tick.deserts import Deserts
    from freetrain.tick.foreseeing import Outlook
    from freetrain.tick.lookahead import Foresight
    from freetrain.tick.observe import Observed
    from freetrain.tick.run import Run
    from slurm.records import JobRecord

Made = TypeVar("Made")

FAULTS = (
    *(ValueError, TypeError, LookupError, AttributeError, ArithmeticError),
    *(RuntimeError, MemoryError),  # the former is too deep a text as well
)
"""What a program raises that has a defect, or was given what cannot be."""

_MOST_CHARACTERS = 200
"""Of an error: it may name all that it found, which may be everything."""


def look_ahead(
    run: Run,
    observed: Observed,
    deserts: Deserts,
    *,
    is_ours: Callable[[JobRecord], bool],
) -> tuple[Outlook | None, Foresight | None]:
    """Return what is expected of nodes and what plans by that; nothing elsewhere.

    Raises:
        StoreError: The state cannot be read.
        SolverUnavailableError: The solver asked for is not installed.
        UnreadableOutputError: Slurm's lists of nodes cannot be read.
    """
    if run.site.planner.policy is not PolicyName.LOOKAHEAD:
        return None, None
    # Imported here: forecasts need NumPy, and most sites' ticks none of them.
    from freetrain.tick.foreseeing import foresee, foresight  # noqa: PLC0415

    outlook = foresee(run, observed, is_ours=is_ours)
    return outlook, foresight(run, outlook, deserts)


def tried(ahead: Callable[[], Made], instead: Callable[[], Made]) -> tuple[Made, str]:
    """Return what *ahead* makes, or else *instead*; and for people why that."""
    try:
        return ahead(), ""
    except FAULTS as error:
        why = f"looking ahead failed ({said_of(error)}); plans go by speed alone"
    return instead(), why


def said_of(error: Exception) -> str:
    """Return *error* and its place; who reads it may have to mend what is ours."""
    *_, (frame, line) = traceback.walk_tb(error.__traceback__)
    place = f"{frame.f_globals.get('__name__')}, line {line}"
    return f"{error!r:.{_MOST_CHARACTERS}}, in {place}"
