"""What a scheduler had planned for the idle units, as seen at any time."""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from logs.schedule.unitset import UnitSet, mask

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from logs.schedule.layout import Layout
    from logs.schedule.machine import PlannedJob
    from logs.schedule.simulation import Moment

Promises = tuple[tuple[float, UnitSet], ...]
"""Planned starts, ascending, each with the idle units that await it first."""


@dataclass(frozen=True, slots=True, eq=False)
class PlannedStarts:
    """When the idle nodes were planned to be taken, as it was seen.

    Only changes are kept, and only for units that were idle: a year of Theta
    under ``slurm`` takes tens of megabytes.

    Attributes:
        layout: The machine.
        times_s: When what was seen changed, strictly ascending.
        promises: What was seen from then on, one entry a time.
    """

    layout: Layout
    times_s: tuple[float, ...]
    promises: tuple[Promises, ...]

    def seen_at(self, time_s: float) -> NDArray[np.float64]:
        """Return, per node, the next planned start as seen at *time_s*.

        Everything that happened by *time_s*, it included, has been seen.

        Returns:
            Float64, one entry a node: when the first of its units is to be
            taken; ``inf`` where no plan is known or the node is not idle. A
            start before *time_s* is overdue: any moment now.
        """
        per_node = self.layout.per_node
        nodes = len(self.layout.names)
        starts_s = np.full(nodes * per_node, math.inf)
        at = bisect_right(self.times_s, time_s) - 1
        for start_s, units in self.promises[at] if at >= 0 else ():
            starts_s[: self.layout.units][mask(units, self.layout.units)] = start_s
        by_node: NDArray[np.float64] = starts_s.reshape(nodes, per_node).min(axis=1)
        return by_node


class PlanWatcher:
    """Collects, moment by moment, what an onlooker sees planned."""

    def __init__(self) -> None:
        self._times_s: list[float] = []
        self._promises: list[Promises] = []
        self._plan: tuple[PlannedJob, ...] = ()
        self._free: UnitSet = 0

    def watch(self, moment: Moment) -> None:
        """Take in *moment*."""
        if moment.plan is self._plan and moment.free == self._free:
            return
        self._plan, self._free = moment.plan, moment.free
        promises = _promises(moment)
        if self._promises and promises == self._promises[-1]:
            return
        if self._times_s and self._times_s[-1] == moment.time_s:
            self._promises[-1] = promises
        elif promises or self._promises:
            self._times_s.append(moment.time_s)
            self._promises.append(promises)

    def seen(self, layout: Layout) -> PlannedStarts:
        """Return everything seen so far, on *layout*."""
        return PlannedStarts(layout, tuple(self._times_s), tuple(self._promises))


def _promises(moment: Moment) -> Promises:
    unpromised = moment.free
    promises = []
    for planned in sorted(moment.plan, key=lambda job: job.start_s):
        units = planned.units & unpromised
        if units:
            promises.append((planned.start_s, units))
            unpromised ^= units
        if not unpromised:
            break
    return tuple(promises)
