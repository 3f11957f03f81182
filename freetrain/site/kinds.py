"""Kinds of values that only ``freetrain.toml`` has."""

from __future__ import annotations

import re

from freetrain.toml.kind import Kind, MismatchError, matching, number

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
        return tuple(
            sorted((_name(key), number().read(one)) for key, one in value.items())
        )

    return Kind(f"numbers by name, such as {{ {example} = 0.1 }}", read, dict)


def _name(key: str) -> str:
    if _NAME.fullmatch(key) is None:
        raise MismatchError
    return key
