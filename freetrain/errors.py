"""Errors by what the user should do next; each with its exit code.

The codes are those of sysexits.h, so that scripts can tell them apart.

FreeTrainError
├── UsageError           64  call it again, corrected
├── BadDataError         65  the input is not what it claims to be
├── MissingInputError    66  the file named is not there or cannot be read
├── CannotWriteError     73  the place named cannot be written
├── TryLaterError        75  nothing is wrong; ask again
└── BadConfigurationError 78 a configuration or trainer file is wrong
"""

from typing import ClassVar


class FreeTrainError(Exception):
    """Something the user can act on; shown as one line, never as a traceback."""

    exit_code: ClassVar[int] = 70


class UsageError(FreeTrainError):
    """The call does not make sense."""

    exit_code = 64


class BadDataError(FreeTrainError):
    """An input file is not what it claims to be."""

    exit_code = 65


class MissingInputError(FreeTrainError):
    """An input file is not there or cannot be read."""

    exit_code = 66


class CannotWriteError(FreeTrainError):
    """An output place cannot be written."""

    exit_code = 73


class TryLaterError(FreeTrainError):
    """Nothing is wrong; the same call may work later."""

    exit_code = 75


class BadConfigurationError(FreeTrainError):
    """A configuration or trainer file contradicts itself or FreeTrain."""

    exit_code = 78
