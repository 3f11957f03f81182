"""What a lease asks of a node, and whether a node has it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from slurm.records import Gres, Node


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirement:
    """What a lease asks of its node.

    Attributes:
        partition: Name of the partition that leases are submitted to.
        features: Features that the node must have, all of them.
        gres: Generic resources it must have; an empty ``kind`` takes any.
        memory_mib: Memory it must have at least.
        cpus: CPUs it must have at least.
    """

    partition: str
    features: frozenset[str] = frozenset()
    gres: tuple[Gres, ...] = ()
    memory_mib: int = 0
    cpus: int = 0

    def is_met_by(self, node: Node) -> bool:
        """Tell whether *node*, were it free, could take the lease."""
        return (
            self.partition in node.partitions
            and self.features <= node.features
            and self.memory_mib <= node.memory_mib
            and self.cpus <= node.cpus
            and all(wanted.count <= _count(node, wanted) for wanted in self.gres)
        )


def _count(node: Node, wanted: Gres) -> int:
    return sum(
        gres.count
        for gres in node.gres
        if gres.name == wanted.name and wanted.kind in {"", gres.kind}
    )
