"""Waiting for something to become true, with patience, and saying what did not."""

import time
from collections.abc import Callable
from typing import TypeVar

PATIENCE_S = 90.0
"""Far longer than anything takes: a busy machine is no failure."""

T = TypeVar("T")


def wait_for(
    what: str | Callable[[], str],
    look: Callable[[], T | None],
    *,
    limit_s: float = PATIENCE_S,
    pause_s: float = 0.05,
) -> T:
    """Return what *look* returns as soon as that is truthy.

    Raises:
        TimeoutError: It was not within *limit_s*; *what* and the last answer are told.
    """
    until_s = time.monotonic() + limit_s
    while True:
        found = look()
        if found:
            return found
        if time.monotonic() > until_s:
            told = what if isinstance(what, str) else what()
            raise TimeoutError(f"not within {limit_s:g} s: {told}; last: {found!r}")
        time.sleep(pause_s)
