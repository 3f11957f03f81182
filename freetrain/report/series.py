"""A replay over time, thinned so that a page stays quick."""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from freetrain.replay.result import ReplayResult, Step


def bin_edges_s(span_s: float, *, most_bins: int) -> NDArray[np.float64]:
    """Return edges of equal bins over *span_s*, one minute wide at least."""
    bins = max(1, min(most_bins, int(span_s // 60)))
    return np.linspace(0.0, span_s, bins + 1)


def binned_mean(
    times_s: Sequence[float], values: Sequence[float], edges_s: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the mean over time, by bin, of a value that holds until the next time.

    Args:
        times_s: When the value changes, ascending.
        values: The value from then on; before the first time it is 0.
        edges_s: Edges of the bins, ascending; one mean for each two neighbours.
    """
    if not times_s:
        return np.zeros(len(edges_s) - 1)
    last_s = max(edges_s[-1], times_s[-1])
    corners_s = np.append(times_s, last_s)
    area = np.concatenate(([0.0], np.cumsum(np.diff(corners_s) * values)))
    by_edge = np.interp(edges_s, corners_s, area)
    return np.diff(by_edge) / np.diff(edges_s)


@dataclass(frozen=True, slots=True, eq=False)
class Bands:
    """Sizes of the trainers over time, one band for each that runs at a time.

    Attributes:
        nodes: Mean nodes, (bands, bins), float64.
        slots_per_band: Trainers that share a band.
    """

    nodes: NDArray[np.float64]
    slots_per_band: int


def trainer_bands(
    result: ReplayResult, edges_s: NDArray[np.float64], *, most_bands: int
) -> Bands:
    """Return how large the trainers were, by bin.

    A trainer keeps the lowest free slot from its first node to its finish, so
    that there are as many slots as trainers at a time, however many come and go.
    """
    changes = _slot_changes(result.steps)
    slots = [binned_mean(times, sizes, edges_s) for times, sizes in changes]
    per_band = max(1, -(-len(slots) // most_bands))
    rows = [
        np.sum(slots[first : first + per_band], axis=0)
        for first in range(0, len(slots), per_band)
    ]
    nodes = np.array(rows) if rows else np.zeros((0, len(edges_s) - 1))
    return Bands(nodes=nodes, slots_per_band=per_band)


def _slot_changes(steps: Sequence[Step]) -> list[tuple[list[float], list[float]]]:
    changes: list[tuple[list[float], list[float]]] = []
    slot_of: dict[str, int] = {}
    free: list[int] = []
    for step in steps:
        for name in step.finished:
            if name in slot_of:
                _note(changes, slot_of[name], step.time_s, 0)
                heapq.heappush(free, slot_of.pop(name))
        for name, nodes in step.resized:
            if name not in slot_of and nodes:
                slot_of[name] = heapq.heappop(free) if free else len(changes)
            if name in slot_of:
                _note(changes, slot_of[name], step.time_s, nodes)
    return changes


def _note(
    changes: list[tuple[list[float], list[float]]], slot: int, time_s: float, nodes: int
) -> None:
    if slot == len(changes):
        changes.append(([], []))
    times, sizes = changes[slot]
    times.append(time_s)
    sizes.append(nodes)


def thinned(values: Sequence[float], *, most: int) -> NDArray[np.float64]:
    """Return *values* ascending, no more than *most*, evenly by rank, ends kept."""
    ordered = np.sort(np.asarray(values, dtype=np.float64))
    if len(ordered) <= most:
        return ordered
    kept = np.linspace(0, len(ordered) - 1, most).round().astype(np.int64)
    return np.asarray(ordered[kept])
