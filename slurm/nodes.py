"""Nodes, from ``scontrol show nodes``."""

from __future__ import annotations

from slurm.fields import read_records, remark
from slurm.gres import read_gres
from slurm.records import Node
from slurm.states import node_states
from slurm.values import words


def nodes_argv() -> list[str]:
    """Return the command that shows every node, those of hidden partitions too."""
    return ["scontrol", "--all", "--oneliner", "show", "nodes"]


def parse_nodes(text: str) -> tuple[Node, ...]:
    """Return the nodes that ``scontrol show nodes`` told, in its order.

    Raises:
        UnreadableOutputError: Not such an answer, empty, or cut short.
    """
    return read_records(text, "NodeName", command="scontrol show nodes", read=_node)


def _node(fields: dict[str, str], record: str) -> Node:
    known, unknown = node_states(fields["State"].split("+"))
    return Node(
        name=fields["NodeName"],
        states=known,
        unknown_states=unknown,
        features=frozenset(words(fields["ActiveFeatures"])),
        gres=read_gres(fields["Gres"]),
        cpus=int(fields["CPUTot"]),
        memory_mib=int(fields["RealMemory"]),
        partitions=words(fields.get("Partitions", "")),
        reason=remark(record, "Reason"),
        comment=remark(record, "Comment"),
        allocated_cpus=int(fields["CPUAlloc"]),
    )
