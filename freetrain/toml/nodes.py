"""Kinds of values about node counts: which ones are allowed, and how fast each is."""

from __future__ import annotations

import re

from freetrain.toml.kind import Kind, MismatchError, positive
from freetrain.toml.wording import shown

POWERS_OF_TWO = "powers-of-two"
MOST_NODES = 100_000

_COUNT = re.compile(r"[1-9][0-9]{0,5}", re.ASCII)


def sizes(allowed: range) -> Kind[tuple[int, ...]]:
    """Return the kind of lists of node counts within *allowed*, ascending."""
    powers = tuple(2**k for k in range(allowed.stop.bit_length()) if 2**k in allowed)

    def read(value: object) -> tuple[int, ...]:
        found = list(powers) if value == POWERS_OF_TWO else value
        if not isinstance(found, list) or not found:
            raise MismatchError
        if any(type(size) is not int or size not in allowed for size in found):
            raise MismatchError
        return tuple(sorted(set(found)))

    return Kind(
        f'"{POWERS_OF_TWO}" or a list of node counts '
        f"from {allowed.start} to {allowed.stop - 1}",
        read,
        lambda found: POWERS_OF_TWO if found == powers else list(found),
    )


def curve(what: str) -> Kind[tuple[tuple[int, float], ...]]:
    """Return the kind of tables of *what*, a number above 0, by node count."""
    expected = f'{what} by node count, such as {{ "1" = 100.0, "2" = 190.0 }}'
    number = positive()

    def read(value: object) -> tuple[tuple[int, float], ...]:
        if not isinstance(value, dict) or not value:
            raise MismatchError
        points = ((_count(w), _value(w, value[w])) for w in value)
        return tuple(sorted(points))

    def _count(written: str) -> int:
        nodes = int(written) if _COUNT.fullmatch(written) else 0
        if not 1 <= nodes <= MOST_NODES:
            raise MismatchError(
                f"{expected}; {shown(written)} is no node count from 1 to {MOST_NODES}"
            )
        return nodes

    def _value(written: str, value: object) -> float:
        try:
            return number.read(value)
        except MismatchError:
            raise MismatchError(
                f"{expected}; for {written} nodes it has {shown(value)}"
            ) from None

    return Kind(
        expected,
        read,
        lambda points: {str(nodes): value for nodes, value in points},
    )
