"""Kinds of values that only job files have."""

from __future__ import annotations

import re
import warnings
from datetime import UTC, datetime

from freetrain.jobfile.aims import Deadline
from freetrain.toml.duration import exact_duration
from freetrain.toml.kind import Kind, MismatchError, matching, seconds
from freetrain.toml.wording import shown

MOST_PATTERN_CHARACTERS = 1_000
MOST_VARIABLES = 1_000
MOST_VARIABLE_BYTES = 100_000
MOST_FIELDS = 100
COUNTED = ("step", "samples", "epoch")
"""Fields that tell how far a training is; one of them is needed."""

OURS = ("FREETRAIN_", "SLURM_", "PMI_", "PMIX_")
"""Beginnings of variables that the launch itself sets or takes away."""

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,255}", re.ASCII)
_FIELD = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}", re.ASCII)
_METRIC = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./@-]{0,99}", re.ASCII)
_LATEST = datetime(9000, 1, 1, tzinfo=UTC)
"""What is later is a slip, and could not be written again in another time zone."""
_PAIRS_EXPECTED = (
    "names of columns or keys by field, such as "
    '{ step = "iteration", loss = "train/loss" }, with at least one of '
    f"{', '.join(COUNTED)}"
)


def environment() -> Kind[tuple[tuple[str, str], ...]]:
    """Return the kind of tables of environment variables, by name."""

    def read(value: object) -> tuple[tuple[str, str], ...]:
        if not isinstance(value, dict) or len(value) > MOST_VARIABLES:
            raise MismatchError
        for name, text in value.items():
            _check_variable(name, text)
        return tuple(sorted(value.items()))

    return Kind(
        'variables and their texts, such as { OMP_PROC_BIND = "close" }', read, dict
    )


def _check_variable(name: str, text: object) -> None:
    if _VARIABLE.fullmatch(name) is None:
        raise MismatchError(f"no variable {shown(name)}; names are letters, digits, _")
    if name.startswith(OURS):
        raise MismatchError(f"no variable {name}; FreeTrain and Slurm set it")
    if not isinstance(text, str) or "\0" in text:
        raise MismatchError(f"a text without NUL for {name}")
    if len(text.encode()) > MOST_VARIABLE_BYTES:
        raise MismatchError(f"up to {MOST_VARIABLE_BYTES} bytes for {name}")


def pattern() -> Kind[str]:
    r"""Return the kind of regular expressions that find progress in a line."""

    def read(value: object) -> str:
        if not isinstance(value, str) or not 0 < len(value) <= MOST_PATTERN_CHARACTERS:
            raise MismatchError
        names = _compiled(value).groupindex
        if not any(name in names for name in COUNTED):
            raise MismatchError
        return value

    return Kind(
        r"a regular expression such as 'step (?P<step>\d+) loss (?P<loss>\S+)', of up "
        f"to {MOST_PATTERN_CHARACTERS} characters, with a named group "
        f"{' or '.join(COUNTED)}",
        read,
        str,
    )


def _compiled(text: str) -> re.Pattern[str]:
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # what will mean something else some day
        try:
            return re.compile(text)
        except (re.error, Warning, RecursionError, OverflowError) as error:
            raise MismatchError(f"a regular expression; {error}") from None


def fields() -> Kind[tuple[tuple[str, str], ...]]:
    """Return the kind of tables that name the column or key of each field."""

    def read(value: object) -> tuple[tuple[str, str], ...]:
        if not isinstance(value, dict) or len(value) > MOST_FIELDS:
            raise MismatchError
        if not any(name in value for name in COUNTED):
            raise MismatchError
        for name, column in value.items():
            _check_field(name, column)
        return tuple(sorted(value.items()))

    return Kind(_PAIRS_EXPECTED, read, dict)


def _check_field(name: str, column: object) -> None:
    if _FIELD.fullmatch(name) is None or not isinstance(column, str):
        raise MismatchError
    if not column.isprintable() or not 0 < len(column) <= 256:  # noqa: PLR2004
        raise MismatchError


def metric() -> Kind[str]:
    """Return the kind of names of metrics."""
    return matching(_METRIC, 'a metric\'s name, such as "loss" or "val/accuracy"')


def deadline(longest_s: float) -> Kind[Deadline]:
    """Return the kind of deadlines: a duration up to *longest_s*, or a time."""
    duration = seconds(1.0, longest_s)

    def read(value: object) -> Deadline:
        if isinstance(value, str):
            return Deadline(after_s=duration.read(value))
        if not isinstance(value, datetime) or value.utcoffset() is None:
            raise MismatchError
        if not datetime(1970, 1, 2, tzinfo=UTC) <= value <= _LATEST:
            raise MismatchError
        return Deadline(at=value)

    def write(value: Deadline) -> object:
        return value.at or exact_duration(value.after_s or 0.0)

    return Kind(
        f"{duration.expected}, from the submission on, or a time with its offset, "
        "such as 2026-12-24T18:00:00Z",
        read,
        write,
    )
