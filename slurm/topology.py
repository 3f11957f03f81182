"""Which nodes are below one leaf switch, or in one block: ``scontrol show topology``.

Slurm answers nothing at all, with exit status 0, both where there is no topology and
where its controller did not answer in time. So an empty answer is no error here: who
asks knows from the configuration whether there must be one.

Source: ``_print_topo_record`` of topology/tree and topology/block, 22.05 to 26.05.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from slurm.errors import UnreadableOutputError
from slurm.fields import check_whole
from slurm.hostlist import expand

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from slurm.config import ClusterConfig

COMMAND = "scontrol show topology"

_WITH_LEAVES = frozenset({"topology/tree", "topology/block"})
_FIRST_WITH_YAML = (25, 5)
"""From it on topology.yaml counts, and the configuration told says topology/flat all
the same (seen on 26.05.5)."""

_FIELD = re.compile(r"(?:^| )([A-Za-z]+)=(\S*)")


@dataclass(frozen=True, slots=True)
class Leaf:
    """A leaf switch, or a block: the smallest group of nodes that the site names.

    Attributes:
        name: The switch's or the block's.
        nodes: Its nodes, as a hostlist expression.
    """

    name: str
    nodes: str


def topology_argv() -> list[str]:
    """Return the command that shows switches or blocks."""
    return ["scontrol", "--oneliner", "show", "topology"]


def must_have_leaves(config: ClusterConfig) -> bool:
    """Tell whether an answer without leaves is a failed query."""
    return config.topology_plugin in _WITH_LEAVES


def may_have_leaves(config: ClusterConfig) -> bool:
    """Tell whether it is worth asking."""
    return must_have_leaves(config) or config.release.series >= _FIRST_WITH_YAML


def parse_topology(text: str) -> tuple[Leaf, ...]:
    """Return the leaves that ``scontrol show topology`` told, in its order.

    Switches above others and blocks made of blocks are left out, and so are leaves
    without nodes, and whatever else a newer Slurm may know (rings).

    Raises:
        UnreadableOutputError: Not such an answer, or cut short.
    """
    if not text.strip():
        return ()
    check_whole(text, COMMAND)
    return tuple(_leaves(text))


def leaf_by_node(leaves: Iterable[Leaf]) -> dict[str, str]:
    """Return the name of each node's leaf; the first where it is below several.

    Raises:
        UnreadableOutputError: A list of nodes is unreadable.
    """
    found: dict[str, str] = {}
    for leaf in leaves:
        for node in expand(leaf.nodes):
            found.setdefault(node, leaf.name)
    return found


def _leaves(text: str) -> Iterator[Leaf]:
    for number, line in enumerate(text.splitlines(), start=1):
        pairs = _FIELD.findall(line)
        if not pairs or not line.startswith(f"{pairs[0][0]}="):
            why = "expected SwitchName=… or BlockName=…"
            raise UnreadableOutputError(COMMAND, number, line, why)
        (kind, name), fields = pairs[0], dict(reversed(pairs))
        is_leaf = kind in {"SwitchName", "BlockName"} and "Switches" not in fields
        if is_leaf and name and expand(fields.get("Nodes", "")):
            yield Leaf(name, fields["Nodes"])
