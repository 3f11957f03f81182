"""What a schedule leaves idle, node by node."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np

from logs.schedule.unitset import UnitSet, mask
from logs.trace import IdleTrace

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from logs.schedule.layout import Layout
    from logs.schedule.result import Schedule


def holes(schedule: Schedule) -> IdleTrace:
    """Return when each node is idle, from t = 0 to the end of the last job.

    A node is idle while all its units are. Intervals that touch are one; a node
    that passes from one job to the next at once is not idle in between.
    """
    layout = schedule.layout
    intervals = list(_sweep(schedule))
    node = np.concatenate([nodes for nodes, _, _ in intervals])
    start_s = np.concatenate([starts_s for _, starts_s, _ in intervals])
    end_s = np.repeat(
        [ends_s for _, _, ends_s in intervals],
        [len(nodes) for nodes, _, _ in intervals],
    )
    keep = end_s > start_s
    node, start_s, end_s = node[keep], start_s[keep], end_s[keep]
    order = np.lexsort((node, start_s))
    return IdleTrace(
        source=schedule.trace.source,
        node_names=layout.names,
        node=node[order].astype(np.int32),
        start_s=start_s[order],
        end_s=end_s[order],
        unix_start_s=schedule.trace.unix_start_s,
        comments=schedule.trace.comments,
        skipped_lines=schedule.trace.skipped_lines,
    )


_Closed = tuple["NDArray[np.intp]", "NDArray[np.float64]", float]
"""Nodes, since when each was idle, and when all of them were taken."""


def _sweep(schedule: Schedule) -> Iterator[_Closed]:
    layout = schedule.layout
    idle = np.ones(len(layout.names), np.bool_)
    since_s = np.zeros(len(layout.names))
    for time_s, free in _free_units(schedule):
        now_idle = idle_nodes(free, layout)
        taken = np.flatnonzero(idle & ~now_idle)
        yield taken, since_s[taken], time_s
        since_s[now_idle & ~idle] = max(time_s, 0.0)
        idle = now_idle
    left = np.flatnonzero(idle)
    yield left, since_s[left], schedule.end_s


def _free_units(schedule: Schedule) -> Iterator[tuple[float, UnitSet]]:
    """Yield the free units after everything that happens at each time."""
    changes = [
        change
        for job in schedule.placed
        for change in ((job.start_s, job.units), (job.end_s, job.units))
    ]
    changes.sort(key=lambda change: change[0])
    free = (1 << schedule.layout.units) - 1
    for time_s, together in groupby(changes, key=lambda change: change[0]):
        for _, units in together:
            # Taken or given back: which one does not matter, nor the order, since
            # every unit ends up as often changed as it changed hands.
            free ^= units
        yield time_s, free


def idle_nodes(free: UnitSet, layout: Layout) -> NDArray[np.bool_]:
    """Return, per node, whether all of its units are in *free*."""
    nodes = len(layout.names)
    units = mask(free, layout.units)
    if layout.per_node == 1:
        return units
    # Units that the last node lacks never keep it busy.
    padded = np.ones((nodes, layout.per_node), np.bool_)
    padded.flat[: layout.units] = units
    return np.all(padded, axis=1, out=np.empty(nodes, np.bool_))
