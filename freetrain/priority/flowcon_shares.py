"""From growth and lists to shares of the resource."""

from __future__ import annotations

from typing import TYPE_CHECKING

from freetrain.priority.flowcon_state import List

if TYPE_CHECKING:
    from collections.abc import Sequence

    from freetrain.priority.flowcon_state import Settings, Track

PATIENCE = 2
"""Intervals on an equal share for which a trainer that has told nothing yet counts as
one that grows."""


def shares(tracks: Sequence[Track], how: Settings) -> list[float]:
    """Return the part of the resource for each of *tracks*; 1 in all.

    Parts are weights, not limits: what one does not use is the others'. With n
    trainers, G the growth of one and the sum over all that grow::

        new         max(G / sum, 1 / (beta n))
        watching    what it had, 1 / (beta n) at least
        completing  max(G / sum, 1 / (beta n)),   beta = 1 + 1/n
        silent      1 / n

    divided by their sum. Where all are completing, all have the same.
    """
    if not tracks:
        return []
    count = len(tracks)
    if all(track.place is List.COMPLETING for track in tracks):
        return [1 / count] * count
    growths = [_growth(track, count, how) for track in tracks]
    # Growth below the threshold is none: alone, it must not look like the whole.
    whole = max(how.alpha, sum(growth or 0.0 for growth in growths))
    parts = [
        _part(track, growth, whole=whole, count=count)
        for track, growth in zip(tracks, growths, strict=True)
    ]
    return [part / sum(parts) for part in parts]


def _part(track: Track, growth: float | None, *, whole: float, count: int) -> float:
    if growth is None:
        return 1 / count
    earned = track.share if track.place is List.WATCHING else growth / whole
    return max(earned, 1 / (count + 1))


def _growth(track: Track, count: int, how: Settings) -> float | None:
    """Return the growth that counts: never below 0; None for who is silent.

    A newcomer's is guessed: a first drop is all that a trainer has shown, so part 1
    in one interval, on an equal share.
    """
    if track.growth is not None:
        return max(0.0, track.growth)
    is_young = track.spent_s < PATIENCE * how.interval_s / count
    return float(count) if is_young else None
