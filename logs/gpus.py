"""GPUs on nodes: where Slurm packs jobs, and how many of a node's GPUs are free.

A set of GPUs is a set of units (``logs.timeline``), of which each node has as many, one
behind the other; a set of nodes is the set of their first GPUs. Which of a node's GPUs
a job has makes no difference to others, only how many: so no log needs to say it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from logs.timeline import HolderCounts, members

if TYPE_CHECKING:
    from logs.timeline import UnitSet


class GpuNodes:
    """Nodes with equally many GPUs.

    Args:
        nodes: How many nodes.
        per_node: GPUs of each.
    """

    def __init__(self, nodes: int, per_node: int) -> None:
        self._per_node = per_node
        self._whole_node = (1 << per_node) - 1
        self._firsts = ((1 << nodes * per_node) - 1) // self._whole_node

    def stacked(self, free: UnitSet) -> UnitSet:
        """Return as many GPUs of each node as *free* has of it, the lowest ones.

        As fewer become free, the highest leave: of leases on a node, the last one.
        """
        stacked = 0
        for place, nodes in enumerate(self._by_free(free).held_by):
            stacked |= nodes << place
        return stacked

    def nodes_of(self, gpus: int, nodes: int) -> int:
        """Return *nodes*, or the fewest that hold *gpus* where that is 0."""
        return nodes or -(-gpus // self._per_node)

    def nodes_with(self, gpus: UnitSet) -> UnitSet:
        """Return all GPUs of the nodes that have any of *gpus*."""
        return self._by_free(gpus).at_least(1) * self._whole_node

    def has_room(self, free: UnitSet, gpus: int, nodes: int) -> bool:
        """Tell whether ``place`` finds *gpus* of *free* on *nodes* nodes, 1 or more."""
        return self._rooms(free, gpus, nodes).bit_count() >= nodes

    def place(self, free: UnitSet, gpus: int, nodes: int) -> UnitSet:
        """Return the GPUs of *free* that Slurm gives a job; 0 where it does not fit.

        Of the runs of consecutive nodes that have room for the job's part, the shortest
        that is long enough, and its first nodes; where none is long enough, the longest
        and then the same for the rest. Measured on Slurm 22.05, select/cons_tres
        (docs/reference/schedule.md).

        Args:
            free: GPUs that no job holds.
            gpus: How many the job has, spread evenly over its nodes.
            nodes: How many nodes it has; 0 for as few as can hold it.
        """
        nodes = self.nodes_of(gpus, nodes)
        rooms = self._rooms(free, gpus, nodes)
        taken = 0
        for done, node in enumerate(self._pick(rooms, nodes)):
            share = -(-gpus // (nodes - done))
            gpus -= share
            own = free >> node & self._whole_node
            for _ in range(share):
                lowest = own & -own
                taken |= lowest << node
                own ^= lowest
        return taken

    def _rooms(self, free: UnitSet, gpus: int, nodes: int) -> UnitSet:
        """Return the nodes on which a job finds its largest part."""
        return self._by_free(free).at_least(-(-gpus // nodes))

    def _by_free(self, free: UnitSet) -> HolderCounts:
        """Return which nodes have one GPU or more in *free*, two or more, and so on."""
        counts = HolderCounts()
        for place in range(self._per_node):
            counts.take(free >> place & self._firsts)
        return counts

    def _pick(self, rooms: UnitSet, count: int) -> list[int]:
        """Return *count* nodes of *rooms*, or none if there are fewer."""
        if rooms.bit_count() < count:
            return []
        width = self._per_node
        runs = [
            range(first, last + 1, width)
            for first, last in zip(
                members(rooms & ~(rooms << width)),
                members(rooms & ~(rooms >> width)),
                strict=True,
            )
        ]
        picked: list[int] = []
        while missing := count - len(picked):
            enough = [run for run in runs if len(run) >= missing]
            run = min(enough, key=len) if enough else max(runs, key=len)
            runs.remove(run)
            picked += run[:missing]
        return sorted(picked)
