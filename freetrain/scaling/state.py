"""Learned scaling as JSON, so that one tick can leave it to the next."""

from __future__ import annotations

import math
from types import MappingProxyType
from typing import TYPE_CHECKING

from freetrain.errors import BadDataError
from freetrain.scaling.fragment import Paid, Rescale, Seen
from freetrain.scaling.learned import LearnedScaling

if TYPE_CHECKING:
    from collections.abc import Mapping

_VERSION = 1


def to_state(learned: LearnedScaling) -> dict[str, object]:
    """Return *learned* as JSON has it; a few kB at the most."""
    return {
        "version": _VERSION,
        "seen": {
            str(nodes): [[s.began_s, s.samples_per_s, s.trained_s] for s in speeds]
            for nodes, speeds in sorted(learned.seen.items())
        },
        "paid": {
            kind.value: [[one.began_s, one.seconds] for one in costs]
            for kind, costs in sorted(learned.paid.items())
        },
    }


def from_state(state: Mapping[str, object]) -> LearnedScaling:
    """Return what :func:`to_state` was given.

    Raises:
        BadDataError: It is no such state; nothing of it is believed.
    """
    if state.get("version") != _VERSION:
        raise _refusal(f"version {state.get('version')!r} instead of {_VERSION}")
    seen = {
        _nodes(key): tuple(Seen(*_numbers(row, 3)) for row in rows)
        for key, rows in _table(state, "seen").items()
    }
    paid = {
        _kind(key): tuple(Paid(*_numbers(row, 2)) for row in rows)
        for key, rows in _table(state, "paid").items()
    }
    if any(
        s.samples_per_s <= 0 or s.trained_s <= 0 for row in seen.values() for s in row
    ):
        raise _refusal("a speed that is not above 0")
    if any(one.seconds < 0 for row in paid.values() for one in row):
        raise _refusal("a cost below 0")
    return LearnedScaling(MappingProxyType(seen), MappingProxyType(paid))


def _table(state: Mapping[str, object], name: str) -> dict[str, list[object]]:
    table = state.get(name)
    if not isinstance(table, dict):
        raise _refusal(f"no table {name!r}")
    if not all(isinstance(rows, list) for rows in table.values()):
        raise _refusal(f"something else than lists in {name!r}")
    return table


def _nodes(key: str) -> int:
    if not key.isdecimal() or int(key) < 1:
        raise _refusal(f"the node count {key!r}")
    return int(key)


def _kind(key: str) -> Rescale:
    if key not in set(Rescale):
        raise _refusal(f"the rescale {key!r}")
    return Rescale(key)


def _numbers(row: object, count: int) -> list[float]:
    if not isinstance(row, list) or len(row) != count:
        raise _refusal(f"{row!r} instead of {count} numbers")
    for number in row:
        is_number = isinstance(number, int | float) and not isinstance(number, bool)
        if not is_number or not math.isfinite(number):
            raise _refusal(f"{number!r} instead of a finite number")
    return [float(number) for number in row]


def _refusal(found: str) -> BadDataError:
    return BadDataError(
        f"what was kept of a trainer's scaling has {found}. It was left out; its "
        f"speeds will be learned afresh."
    )
