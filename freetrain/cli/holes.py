"""``freetrain holes``: the nodes that Slurm leaves idle now, and until when."""

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from freetrain.api.holes import PartitionHoles, end_s, hole_record, holes_now
from freetrain.cli.context import (
    CliContext,
    age_text,
    clock_text,
    json_text,
    nodes_named,
    nodes_text,
    print_out,
    write_out,
)
from freetrain.text import counted, one_line, render_duration
from slurm.holes import Hole, HoleEnd
from slurm.pieces import Lack


def show_holes(  # noqa: PLR0913 -- one parameter an option
    context: CliContext,
    config: Path | None,
    *,
    partition: str,
    job: Path | None,
    each: bool,
    as_json: bool,
) -> None:
    """Show the holes for leases in *partition*; a row for each node if *each*.

    Those for the trainer of the file *job*, and why other nodes have none, if given.
    """
    found = holes_now(context, config, partition=partition, job=job)
    if as_json:
        write_out(context, json_text(_record(found)))
    else:
        print_out(context, screen(found, each=each))


def groups(idle: PartitionHoles) -> tuple[tuple[Hole, ...], ...]:
    """Return the holes that end together and for one reason, the longest first."""
    together: dict[tuple[object, ...], list[Hole]] = defaultdict(list)
    for hole in idle.holes:
        together[hole.end_s, hole.ends_by, hole.blocker].append(hole)
    found = map(tuple, together.values())
    return tuple(sorted(found, key=lambda holes: (-end_s(holes[0]), holes[0].node)))


LENGTHS_S = (120.0, 600.0, 1_800.0, 3_600.0, 14_400.0, 43_200.0, 86_400.0)
"""Lengths of time for which idle nodes are counted."""


def idle_nodes_by_length(idle: PartitionHoles) -> tuple[tuple[float, int], ...]:
    """Return pairs of a length in seconds and the number of nodes idle for so long.

    The lengths ascend; of those with equally many nodes only the longest is returned.
    A hole whose end is not known counts for no length.
    """
    return _by_length(idle, [1] * len(idle.holes))


def _by_length(
    idle: PartitionHoles, amounts: Sequence[int]
) -> tuple[tuple[float, int], ...]:
    """Return by length in seconds how much lasts for so long, of each hole's amount."""
    lives = [end_s(hole) - idle.now_s for hole in idle.holes]
    counts = [
        sum(n for n, life in zip(amounts, lives, strict=True) if life >= length_s)
        for length_s in LENGTHS_S
    ]
    pairs = zip(LENGTHS_S, counts, [*counts[1:], 0], strict=True)
    return tuple((length_s, now) for length_s, now, longer in pairs if now > longer)


def why_it_ends(hole: Hole) -> str:
    """Return why *hole* ends when it does, for people."""
    match hole.ends_by:
        case HoleEnd.PLANNED_JOB:
            return f"job {hole.blocker} is planned there"
        case HoleEnd.RESERVATION:
            return f"reservation {hole.blocker}"
        case HoleEnd.PARTITION_LIMIT:
            return "the partition's time limit"
        case HoleEnd.BACKFILL_WINDOW:
            return "backfill plans no further"
        case HoleEnd.UNKNOWN_PLANNER:
            return "a job that is hidden from you"
        case HoleEnd.OPEN:
            return "no job waits for it"


CAVEAT = (
    "Seen, not promised: when a job ends early, arrives or is cancelled, Slurm plans "
    "anew, and a hole may be gone a second from now."
)
"""LSF says the like about its own slots for backfill, and is right."""

TORN = (
    "Slurm was making its plan anew during every look, so that some of these holes "
    "may be planned for already."
)


def screen(idle: PartitionHoles, *, each: bool) -> RenderableType:
    """Return the holes of *idle*; a row for each node if *each*."""
    if not idle.holes:
        lack = "has a hole for this trainer" if idle.why_not else "is idle"
        none = Text(f"No node of partition {one_line(idle.partition)} {lack} now.")
        return Group(none, *map(Text, _why_not(idle)))
    shown: list[RenderableType] = [Text(_headline(idle)), _table(idle, each=each)]
    margin = render_duration(idle.margin_s)
    lines = [*_lengths(idle), "", f"Ends are {margin} before whatever ends them."]
    lines += [*_why_not(idle), CAVEAT, *([TORN] if idle.is_torn else [])]
    return Group(*shown, "", *(Text(line) for line in lines))


def _headline(idle: PartitionHoles) -> str:
    held = sum(bool(hole.held_by) for hole in idle.holes)
    ours = f", {held} of them held by FreeTrain's leases" if held else ""
    free = counted(sum(hole.room for hole in idle.holes), "more lease")
    room = f", with room for {free}" if idle.of_pieces else ""
    return (
        f"{len(idle.holes)} of {idle.nodes} nodes are holes for partition "
        f"{one_line(idle.partition)}{ours}{room}, at {clock_text(idle.now_s)}."
    )


def _table(idle: PartitionHoles, *, each: bool) -> Table:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 2, 0, 0))
    table.add_column("nodes", justify="right", no_wrap=True)
    table.add_column("idle for", justify="right", no_wrap=True)
    table.add_column("until", no_wrap=True)
    table.add_column("because", overflow="fold")
    table.add_column("which", overflow="fold")
    for group in groups(idle):
        for together in [[hole] for hole in group] if each else [group]:
            table.add_row(*map(Text, _row(together, idle.now_s)))
    return table


def _row(together: Sequence[Hole], now_s: float) -> tuple[str, ...]:
    first, held = together[0], sum(bool(hole.held_by) for hole in together)
    which = nodes_named(hole.node for hole in together)
    ours = f" ({held} held)" if held else ""
    if first.end_s is None:
        life, until = "unknown", "-"
    elif math.isinf(first.end_s):
        life, until = "open", "-"
    else:
        life, until = age_text(first.end_s - now_s), clock_text(first.end_s)
    why = one_line(why_it_ends(first))
    return (str(len(together)), life, until, why, f"{which}{ours}")


def _lengths(idle: PartitionHoles) -> Iterator[str]:
    if idle.of_pieces:
        for length_s, room in _by_length(idle, [hole.room for hole in idle.holes]):
            fits = f"{counted(room, 'more lease')} fit{'s' if room == 1 else ''}"
            yield f"{fits} for {render_duration(length_s)} or more."
        return
    for length_s, count in idle_nodes_by_length(idle):
        stay = "stay" if count > 1 else "stays"
        hours = f"{count * length_s / 3_600.0:,.1f} node-hours"
        length = render_duration(length_s)
        yield f"{nodes_text(count)} {stay} idle for {length} or more: {hours}."


def _why_not(idle: PartitionHoles) -> Iterator[str]:
    """Yield a line for each reason why nodes have no hole, that of most nodes first."""
    reasons: dict[str, list[str]] = defaultdict(list)
    for node, why in idle.why_not.items():
        reasons[_reason(why)].append(node)
    for reason, nodes in sorted(reasons.items(), key=lambda found: -len(found[1])):
        yield f"No hole on {nodes_named(nodes)}: {one_line(reason)}."


def _reason(why: Lack | str) -> str:
    if isinstance(why, str):
        return why
    unit = " MiB" if why.resource == "memory_mib" else ""
    name = why.resource.removesuffix("_mib")
    if why.present < why.wanted:
        return f"it has {why.present}{unit} {name}, and {why.wanted}{unit} are wanted"
    return (
        f"{why.free}{unit} of {why.present}{unit} {name} are free, and {why.wanted}"
        f"{unit} are wanted"
    )


def _record(idle: PartitionHoles) -> dict[str, Any]:
    """Return the record of ``--json``; an end is null where it is open or unknown."""
    return {
        "now_s": idle.now_s,
        "partition": idle.partition,
        "margin_s": idle.margin_s,
        "nodes": idle.nodes,
        "is_torn": idle.is_torn,
        "holes": [hole_record(hole) for hole in idle.holes],
        "why_not": [
            {"node": node, "reason": _reason(why)}
            | (asdict(why) if isinstance(why, Lack) else {})
            for node, why in idle.why_not.items()
        ],
        "idle_nodes": [
            {"length_s": length_s, "nodes": count}
            for length_s, count in idle_nodes_by_length(idle)
        ],
    }
