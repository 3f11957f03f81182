"""From a machine's allocation units to its nodes, and back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from logs.schedule.holes import idle_nodes
from logs.schedule.unitset import members

if TYPE_CHECKING:
    from collections.abc import Iterable

    import numpy as np
    from numpy.typing import NDArray

    from logs.schedule.layout import Layout
    from logs.schedule.unitset import UnitSet


class Nodes:
    """The nodes of a machine, as sets of units.

    Attributes:
        count: How many there are.
        unit_count: How many allocation units they have together.
    """

    def __init__(self, layout: Layout) -> None:
        self.count = len(layout.names)
        self.unit_count = layout.units
        self._layout = layout
        self._every = (1 << layout.units) - 1

    def idle(self, free: UnitSet) -> NDArray[np.bool_]:
        """Return, per node, whether all of its units are in *free*."""
        return idle_nodes(free, self._layout)

    def touched(self, units: UnitSet) -> tuple[int, ...]:
        """Return the nodes that have any of *units*, ascending."""
        per_node = self._layout.per_node
        if per_node == 1:
            return members(units)
        return tuple(sorted({unit // per_node for unit in members(units)}))

    def units(self, nodes: Iterable[int]) -> UnitSet:
        """Return all units of *nodes*."""
        per_node, made = self._layout.per_node, 0
        whole = (1 << per_node) - 1
        for node in nodes:
            made |= whole << node * per_node
        return made & self._every

    def mask(self, units: UnitSet) -> NDArray[np.bool_]:
        """Return, per node, whether it has any of *units*."""
        return ~self.idle(self._every & ~units)
