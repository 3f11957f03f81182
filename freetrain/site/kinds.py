"""Kinds of values that only ``freetrain.toml`` has."""

from __future__ import annotations

import math
import re

from freetrain.toml.kind import Kind, MismatchError, matching

_NAME = re.compile(r"[a-z][a-z0-9_-]{0,39}", re.ASCII)
_MOST = 100


def named(what: str) -> Kind[str]:
    """Return the kind of names of *what*, such as ``a priority``."""
    return matching(_NAME, f"the name of {what}")


def numbers(example: str) -> Kind[tuple[tuple[str, float], ...]]:
    """Return the kind of tables of finite numbers by name."""

    def read(value: object) -> tuple[tuple[str, float], ...]:
        if not isinstance(value, dict) or len(value) > _MOST:
            raise MismatchError
        return tuple(sorted((_name(key), _number(one)) for key, one in value.items()))

    return Kind(f"numbers by name, such as {{ {example} = 0.1 }}", read, dict)


def _name(key: str) -> str:
    if _NAME.fullmatch(key) is None:
        raise MismatchError
    return key


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise MismatchError
    if not math.isfinite(value) or abs(value) > 1e300:  # noqa: PLR2004 - any float
        raise MismatchError
    return float(value)
