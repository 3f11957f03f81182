"""``--topology``: the leaf switch that each node of a log is below, from a file."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from freetrain.cli.missing import missing
from freetrain.errors import BadDataError
from freetrain.text import one_line
from slurm.config import leaf_by_node, parse_topology
from slurm.errors import UnreadableOutputError

TopologyFile = Annotated[
    Path | None,
    typer.Option(
        "--topology",
        metavar="FILE",
        readable=False,  # whoever opens it finds out, and exits with 66
        help="lookahead: which nodes are below one leaf switch, as scontrol show "
        "topology tells it.",
    ),
]


def read_leaves(path: Path, nodes: Sequence[str], *, named: str) -> tuple[str, ...]:
    """Return the leaf of each of *nodes*; empty for those that *path* does not name.

    Args:
        path: What ``scontrol show topology`` printed, or a file written like that.
        nodes: The nodes that take part.
        named: How the user named it.

    Raises:
        MissingInputError: It cannot be read.
        BadDataError: It is nothing of the kind, or names none of *nodes*.
    """
    try:
        text = path.read_text("utf-8", "surrogateescape")
    except OSError as error:
        raise missing(named, error, undone="replayed") from error
    lines = (line.partition("#")[0].strip() for line in text.splitlines())
    try:
        told = parse_topology("".join(f"{line}\n" for line in lines if line))
        leaf_of = leaf_by_node(told)
    except UnreadableOutputError as error:
        raise BadDataError(
            f"{named} is no topology: {error.why}: {one_line(error.line)[:80]!r}. "
            f"Nothing was replayed. Name what `scontrol show topology` prints."
        ) from error
    if leaf_of.keys().isdisjoint(nodes):
        raise BadDataError(
            f"{named} names no node of the log, whose first is {one_line(nodes[0])!r}. "
            f"Nothing was replayed. Name the topology of that machine."
        )
    return tuple(leaf_of.get(node, "") for node in nodes)
