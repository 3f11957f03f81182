"""Which units make up which node, and what the nodes are called."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from logs.errors import UnusableLogError
from logs.names import natural_key
from logs.schedule.unitset import UnitSet, unit_set

if TYPE_CHECKING:
    from logs.trace import Job, JobTrace


@dataclass(frozen=True, slots=True, eq=False)
class Layout:
    """A machine of *units* units, of which unit i belongs to node i // per_node.

    Attributes:
        units: Allocation units; the last node has fewer where they do not add up.
        per_node: Units that make up one node.
        names: The nodes' names, by number.
        numbers: The nodes' numbers, by name.
    """

    units: int
    per_node: int
    names: tuple[str, ...]
    numbers: dict[str, int]

    def named(self, job: Job) -> UnitSet:
        """Return the units of the nodes that the log says *job* ran on."""
        return unit_set(
            unit for name in job.nodes for unit in self._units_of(self.numbers[name])
        )

    def _units_of(self, node: int) -> range:
        first = node * self.per_node
        return range(first, min(first + self.per_node, self.units))


def lay_out(trace: JobTrace, *, units: int | None, by_name: bool) -> Layout:
    """Return the machine that *trace* is to be placed on.

    Nodes carry the names that the log's jobs mention, in natural order; nodes
    beyond those carry their number. Where the machine is smaller than the log's,
    all carry their number.

    Args:
        trace: The log.
        units: The machine's size in the log's allocation units, or None for the
            trace's own: its ``units``, or more where the jobs name more nodes.
        by_name: Whether jobs will be placed on the nodes they name.

    Raises:
        UnusableLogError: No unit at all, or *by_name* on a machine with fewer
            nodes than the log names.
    """
    seen = sorted({name for job in trace.jobs for name in job.nodes}, key=natural_key)
    per_node = trace.units_per_node
    count = max(trace.units, len(seen) * per_node) if units is None else units
    if count < 1:
        raise UnusableLogError(
            f"{trace.source}: a machine of {count} units cannot run anything; "
            f"no schedule was made. Say how large the machine is."
        )
    nodes = -(-count // per_node)
    if len(seen) > nodes and by_name:
        raise UnusableLogError(
            f"{trace.source}: its jobs name {len(seen)} nodes, and the machine has "
            f"{nodes}; no schedule was made. Leave the machine's size to the log, "
            f"or simulate a scheduler instead of taking the recorded starts."
        )
    kept = seen if len(seen) <= nodes else []
    names = (*kept, *(str(node) for node in range(len(kept), nodes)))
    numbers = {name: number for number, name in enumerate(names)}
    return Layout(count, per_node, names, numbers)
