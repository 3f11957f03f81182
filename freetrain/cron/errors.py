"""What can go wrong with regular ticks, by what the user can do about it.

FreeTrainError
├── CronUnavailableError 69  the program is not there, or is not allowed to us
├── CronChangedError     75  somebody else was editing; ask again
├── CronUnreadableError  65  our own marks in the table are torn; mend it by hand
└── CronUnfitError       78  a path or an interval that this kind cannot hold
"""

from __future__ import annotations

from freetrain.errors import (
    BadConfigurationError,
    BadDataError,
    FreeTrainError,
    TryLaterError,
)


class CronUnavailableError(FreeTrainError):
    """The program that keeps the table is missing, refuses us, or does not answer."""

    exit_code = 69


class CronChangedError(TryLaterError):
    """The table changed while we were about to write it."""


class CronUnreadableError(BadDataError):
    """The table has our marks in an order that we never wrote."""


class CronUnfitError(BadConfigurationError):
    """A path, or an interval, that cannot be written into such a table."""
