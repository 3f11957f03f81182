"""What can go wrong with the state directory, by what to do next.

Each is also the FreeTrainError that gives its exit code.

StoreError
├── StoreBusyError      75  ask again: another tick or command is at work
├── StoreUnwritableError 73  make room, or make the place writable
├── StoreMissingError   66  there is no state yet
├── StoreUnsafeError    78  the place is not ours alone; choose or mend it
└── StoreDamagedError   65  keep it as it is: it is not a state, or a newer one's
"""

from __future__ import annotations

from freetrain.errors import (
    BadConfigurationError,
    BadDataError,
    CannotWriteError,
    FreeTrainError,
    MissingInputError,
    TryLaterError,
)


class StoreError(FreeTrainError):
    """The state could not be used; whatever was being changed is as before."""


class StoreBusyError(StoreError, TryLaterError):
    """Another process has the state, or has taken over our turn."""

    exit_code = TryLaterError.exit_code


class StoreMissingError(StoreError, MissingInputError):
    """There is no state to look at."""

    exit_code = MissingInputError.exit_code


class StoreUnwritableError(StoreError, CannotWriteError):
    """The disk is full, the place is read-only, or the device fails."""

    exit_code = CannotWriteError.exit_code


class StoreUnsafeError(StoreError, BadConfigurationError):
    """The place belongs to somebody else, or others can reach into it."""

    exit_code = BadConfigurationError.exit_code


class StoreDamagedError(StoreError, BadDataError):
    """The file is not a state that this version can read."""

    exit_code = BadDataError.exit_code
