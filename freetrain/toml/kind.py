"""Kinds of values: how each is read from TOML, checked, and written again."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from freetrain.toml.duration import EXPECTED, exact_duration, parse_duration
from freetrain.toml.wording import closest

if TYPE_CHECKING:
    from collections.abc import Callable
    from enum import StrEnum

T = TypeVar("T")
Name = TypeVar("Name", bound="StrEnum")

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", re.ASCII)


class MismatchError(ValueError):
    """A value is not of its kind; the text, if any, says what is expected."""


@dataclass(frozen=True, slots=True)
class Kind(Generic[T]):
    """A kind of value.

    Attributes:
        expected: What people are told to write.
        read: Turns what tomllib read into the value; raises a MismatchError where
            it is not of this kind.
        write: Turns the value into what TOML can say; ``read`` gives it back.
    """

    expected: str
    read: Callable[[object], T]
    write: Callable[[T], object]


def as_it_is(value: object) -> object:
    """Write a value that TOML knows."""
    return value


def whole(least: int, most: int) -> Kind[int]:
    """Return the kind of whole numbers from *least* to *most*."""

    def read(value: object) -> int:
        if not isinstance(value, int) or isinstance(value, bool):
            raise MismatchError
        if not least <= value <= most:
            raise MismatchError
        return value

    return Kind(f"a whole number from {least} to {most}", read, as_it_is)


def positive() -> Kind[float]:
    """Return the kind of finite numbers above 0."""

    def read(value: object) -> float:
        number = _finite(value)
        if number <= 0:
            raise MismatchError
        return number

    return Kind("a number above 0", read, as_it_is)


def number() -> Kind[float]:
    """Return the kind of finite numbers."""
    return Kind("a number", _finite, as_it_is)


def seconds(least_s: float = 0.0, most_s: float = math.inf) -> Kind[float]:
    """Return the kind of durations, written with their unit, in seconds."""
    limits = "" if least_s == 0 else f", {exact_duration(least_s)} or more"
    limits += "" if math.isinf(most_s) else f", {exact_duration(most_s)} or less"

    def read(value: object) -> float:
        if not isinstance(value, str):
            raise MismatchError
        try:
            found_s = parse_duration(value)
        except ValueError:
            raise MismatchError from None
        if not least_s <= found_s <= most_s:
            raise MismatchError
        return round(found_s, 6)  # what can be written again

    return Kind(EXPECTED + limits, read, exact_duration)


def yes_or_no() -> Kind[bool]:
    """Return the kind of truth values."""

    def read(value: object) -> bool:
        if not isinstance(value, bool):
            raise MismatchError
        return value

    return Kind("true or false", read, as_it_is)


def matching(pattern: re.Pattern[str], expected: str) -> Kind[str]:
    """Return the kind of texts that *pattern* matches from end to end."""

    def read(value: object) -> str:
        if not isinstance(value, str) or pattern.fullmatch(value) is None:
            raise MismatchError
        return value

    return Kind(expected, read, as_it_is)


def trainer_name() -> Kind[str]:
    """Return the kind of names of trainers: safe in paths and in Slurm's tables."""
    return matching(_NAME, "up to 64 letters, digits, '.', '_' and '-'")


def one_of(names: type[Name]) -> Kind[Name]:
    """Return the kind of *names*, each written as its value."""
    known = [name.value for name in names]
    expected = f"one of {', '.join(known)}"

    def read(value: object) -> Name:
        if value not in known:
            raise MismatchError(f"{expected}.{closest(str(value), known)}")
        return names(value)

    return Kind(expected, read, str)


def _finite(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise MismatchError
    try:
        number = float(value)
    except OverflowError:
        raise MismatchError from None
    if not math.isfinite(number):
        raise MismatchError
    return number
