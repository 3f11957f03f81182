"""Turns on a few CPUs, and whole CPUs, by share; pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_TINY = 1e-9

Turn = tuple[float, float]
"""From when to when, as parts of a period: 0 to 1."""


def filled(shares: Mapping[str, float], cpus: int) -> dict[str, float]:
    """Return the part of the time that each may run, at most 1.

    Members are taken to use one CPU each. What one of them cannot use of its share
    goes to the others, by theirs; all parts together are *cpus*, or all are 1.
    """
    parts: dict[str, float] = {}
    open_ = dict(shares)
    left = float(cpus)
    while open_:
        whole = sum(open_.values())
        full = {n for n, share in open_.items() if left * share >= whole * (1 - _TINY)}
        if not full:
            return parts | {n: left * share / whole for n, share in open_.items()}
        parts |= dict.fromkeys(full, 1.0)
        left -= len(full)
        open_ = {n: share for n, share in open_.items() if n not in full}
    return parts


def turns(shares: Mapping[str, float], cpus: int) -> dict[str, tuple[Turn, ...]]:
    """Return when each runs in a period, so that no more than *cpus* run at once.

    The parts are laid end to end, and the line is cut into periods, one for each CPU
    (McNaughton 1959): a member has two turns at the most, which never overlap.
    """
    at = 0.0
    found: dict[str, tuple[Turn, ...]] = {}
    for name, part in filled(shares, cpus).items():
        begin, end = at % 1.0, at % 1.0 + part
        at += part
        if end <= 1.0 + _TINY:
            found[name] = ((begin, min(1.0, end)),)
        else:
            found[name] = ((0.0, end - 1.0), (begin, 1.0))
    return found


def whole_cpus(
    shares: Mapping[str, float], cpus: Sequence[int]
) -> dict[str, tuple[int, ...]]:
    """Return the CPUs that each may use: about its share of them, one at least.

    The shares are laid end to end along the CPUs, and rounded; whoever has less than
    a CPU shares it with its neighbours.
    """
    at, found, whole = 0.0, {}, sum(shares.values())
    for name, share in shares.items():
        begin = min(len(cpus) - 1, round(at))
        at += share / whole * len(cpus)
        found[name] = tuple(cpus[begin : max(begin + 1, round(at))])
    return found
