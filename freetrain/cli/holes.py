"""``freetrain holes``: the nodes that Slurm leaves idle now, and until when."""

import math
from collections.abc import Iterator, Sequence
from typing import Annotated, Any

import typer
from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from freetrain.cli.context import (
    AsJson,
    CliContext,
    Config,
    age_text,
    clock_text,
    json_text,
    nodes_named,
    nodes_text,
    print_out,
    write_out,
)
from freetrain.client.holes import IdleNodes, groups, idle_of, steps, why_it_ends
from freetrain.text import one_line, render_duration
from freetrain.tick.environment import slurm_connector
from slurm.backend import SlurmBackend
from slurm.holes import Hole, Snapshot

EXAMPLES = {
    "holes": """
freetrain holes

freetrain holes --partition gpu --nodes

freetrain holes --json
""",
}
SNAPSHOTS = 3
"""A snapshot that a backfill cycle overlaps is taken again; on a busy site all are."""

MOST_REQUESTS = 1 + 6 * SNAPSHOTS
WAIT_S = 1.0


def holes(
    ctx: typer.Context,
    *,
    partition: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="Another partition than leases are submitted to.",
            show_default=False,
        ),
    ] = "",
    nodes: Annotated[
        bool, typer.Option("--nodes", metavar="", help="A row for each node.")
    ] = False,
    as_json: AsJson = False,
    config: Config = None,
) -> None:
    """Show the node × time holes of this cluster, now. Needs no state."""
    context: CliContext = ctx.obj
    site = context.site(config)
    backend = slurm_connector(context.environ)(MOST_REQUESTS)
    settings = backend.config()
    idle = idle_of(
        _snapshot(backend, context),
        settings,
        site,
        uid=context.uid,
        partition=partition,
    )
    if as_json:
        write_out(context, json_text(_record(idle)))
    else:
        print_out(context, _screen(idle, each=nodes))


def _snapshot(backend: SlurmBackend, context: CliContext) -> Snapshot:
    """Return a snapshot that no backfill cycle overlapped, or the last of a few."""
    snapshot = backend.snapshot()
    for _ in range(SNAPSHOTS - 1):
        if not snapshot.is_torn:
            break
        context.sleep(WAIT_S)
        snapshot = backend.snapshot()
    return snapshot


CAVEAT = (
    "Seen, not promised: when a job ends early, arrives or is cancelled, Slurm plans "
    "anew, and a hole may be gone a second from now."
)
"""LSF says the like about its own slots for backfill, and is right."""
TORN = (
    "Slurm was making its plan anew during every look, so that some of these holes "
    "may be planned for already."
)


def _screen(idle: IdleNodes, *, each: bool) -> RenderableType:
    """Return the holes of *idle*; a row a node, where *each* is asked for."""
    if not idle.holes:
        return Text(f"No node of partition {one_line(idle.partition)} is idle now.")
    shown: list[RenderableType] = [Text(_headline(idle)), _table(idle, each=each)]
    margin = render_duration(idle.margin_s)
    lines = [*_steps(idle), "", f"Ends are {margin} before whatever ends them.", CAVEAT]
    lines += [TORN] if idle.is_torn else []
    return Group(*shown, "", *(Text(line) for line in lines))


def _headline(idle: IdleNodes) -> str:
    held = sum(bool(hole.held_by) for hole in idle.holes)
    ours = f", {held} of them held by FreeTrain's leases" if held else ""
    return (
        f"{len(idle.holes)} of {idle.nodes} nodes are holes for partition "
        f"{one_line(idle.partition)}{ours}, at {clock_text(idle.now_s)}."
    )


def _table(idle: IdleNodes, *, each: bool) -> Table:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 2, 0, 0))
    table.add_column("nodes", justify="right", no_wrap=True)
    table.add_column("idle for", justify="right", no_wrap=True)
    table.add_column("until", no_wrap=True)
    table.add_column("because", overflow="fold")
    table.add_column("which", overflow="fold")
    for group in groups(idle):
        for holes in [[hole] for hole in group] if each else [group]:
            table.add_row(*map(Text, _row(holes, idle)))
    return table


def _row(holes: Sequence[Hole], idle: IdleNodes) -> tuple[str, ...]:
    held = sum(bool(hole.held_by) for hole in holes)
    which = nodes_named(hole.node for hole in holes)
    ours = f" ({held} held)" if held else ""
    first = holes[0]
    why = one_line(why_it_ends(first))
    return (str(len(holes)), _life(first, idle), _until(first), why, f"{which}{ours}")


def _life(hole: Hole, idle: IdleNodes) -> str:
    if hole.end_s is None:
        return "unknown"
    if math.isinf(hole.end_s):
        return "open"
    return age_text(hole.end_s - idle.now_s)


def _until(hole: Hole) -> str:
    is_told = hole.end_s is not None and not math.isinf(hole.end_s)
    return clock_text(hole.end_s or 0.0) if is_told else "-"


def _steps(idle: IdleNodes) -> Iterator[str]:
    for step in steps(idle):
        nodes = nodes_text(step.nodes)
        stay = "stay" if step.nodes > 1 else "stays"
        hours = f"{step.node_s / 3_600.0:,.1f} node-hours"
        length = render_duration(step.length_s)
        yield f"{nodes} {stay} idle for {length} or more: {hours}."


def _record(idle: IdleNodes) -> dict[str, Any]:
    """Return what ``--json`` shows; an end is null where it is open or unknown."""
    return {
        "now_s": idle.now_s,
        "partition": idle.partition,
        "margin_s": idle.margin_s,
        "nodes": idle.nodes,
        "is_torn": idle.is_torn,
        "holes": [_hole(hole) for hole in idle.holes],
        "idle_nodes": [
            {"length_s": step.length_s, "nodes": step.nodes} for step in steps(idle)
        ],
    }


def _hole(hole: Hole) -> dict[str, Any]:
    is_told = hole.end_s is not None and math.isfinite(hole.end_s)
    return {
        "node": hole.node,
        "start_s": hole.start_s,
        "end_s": hole.end_s if is_told else None,
        "ends_by": str(hole.ends_by),
        "blocker": hole.blocker,
        "held_by": list(hole.held_by),
    }
