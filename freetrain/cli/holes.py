"""``freetrain holes``: what Slurm leaves idle now, and until when: nodes, or GPUs."""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from freetrain.api.holes import (
    PartitionHoles,
    end_s,
    hole_record,
    holes_now,
    slurm_now,
)
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
from freetrain.config.job import NodeSettings
from freetrain.config.site import Site, requirement_on
from freetrain.text import counted, one_line, render_duration
from freetrain.tick.leases import margin_s
from slurm.holes import (
    Hole,
    HoleEnd,
    Snapshot,
    find_holes,
    is_open_in_part,
    takes_whole_nodes,
)
from slurm.pieces import GPU, Lack, gpu_kinds, used_gres
from slurm.records import (
    ClusterConfig,
    Gres,
    Node,
    Requirement,
    choose_partition,
)


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


# Pieces of nodes: ``freetrain holes --gpus``

PIECES_LAST_S = (600.0, 3_600.0, 14_400.0)
"""Lengths of time for which pieces are counted, beside now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuPieces:
    """The pieces of one size that leases could take now.

    Attributes:
        gpus: What one has: the kind of GPU, empty where the site names none, and how
            many.
        asked: What a lease of one piece asks for, CPUs and memory included.
        holes: The nodes that have room for at least one.
    """

    gpus: Gres
    asked: Requirement
    holes: tuple[Hole, ...]

    def count(self, until_s: float) -> int:
        """Return how many could start now and last until then."""
        return sum(hole.room for hole in self.holes if end_s(hole) >= until_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class FreeGpus:
    """GPUs of one kind that no job has, on nodes that are up.

    Attributes:
        present: How many there are, used or not, on all nodes.
        on_idle_nodes: Free ones on nodes that no job uses.
        beside_jobs: Free ones on nodes that jobs use in part.
    """

    present: int
    on_idle_nodes: int
    beside_jobs: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionGpus:
    """The free GPUs of a partition.

    Attributes:
        now_s: When the snapshot was taken, by slurmctld's clock, Unix time.
        free: By kind of GPU.
        pieces: By kind and size.
        whole_nodes: Whether jobs get whole nodes there, whatever they ask for.
        is_torn: Whether a backfill cycle overlapped the snapshot.
    """

    now_s: float
    partition: str
    free: dict[str, FreeGpus]
    pieces: tuple[GpuPieces, ...]
    whole_nodes: bool
    is_torn: bool


def show_gpus(
    context: CliContext, config: Path | None, *, partition: str, as_json: bool
) -> None:
    """Show the pieces of nodes in *partition*, by kind and number of GPUs."""
    site = context.site(config)
    settings, snapshot = slurm_now(context)
    found = gpu_pieces(snapshot, settings, site, partition=partition)
    if as_json:
        write_out(context, json_text(_gpu_record(found)))
    else:
        print_out(context, gpu_screen(found))


def gpu_pieces(
    snapshot: Snapshot, config: ClusterConfig, site: Site, *, partition: str = ""
) -> PartitionGpus:
    """Return the pieces of 1, 2, 4, ... GPUs that leases could take in a partition.

    A piece has CPUs and memory in proportion, unless freetrain.toml says how many.

    Raises:
        SlurmRefusedError: There is no such partition.
        UnreadableOutputError: The nodes of a planned job cannot be read.
    """
    chosen = choose_partition(
        snapshot.partitions,
        partition or site.lease.partition,
        where="with --partition, or under [lease] in freetrain.toml",
    )
    nodes = [node for node in snapshot.nodes if chosen.name in node.partitions]
    pieces = []
    for gpus in _sizes(nodes):
        asked = requirement_on(
            NodeSettings(
                max_nodes=1,
                partition=chosen.name,
                gpus_per_lease=gpus.count,
                gpu_type=gpus.kind or None,
            ),
            site.lease,
            default_partition=chosen.name,
            nodes=nodes,
            sharing=config.sharing,
        )
        if not asked.cpus:
            continue  # no node with such GPUs has what else leases ask for
        holes = find_holes(
            snapshot,
            asked,
            is_ours=lambda _: False,
            margin_s=margin_s(site, config, chosen),
            window_s=config.bf_window_s,
            sharing=config.sharing,
        )
        pieces.append(GpuPieces(gpus=gpus, asked=asked, holes=holes))
    return PartitionGpus(
        now_s=snapshot.time_s,
        partition=chosen.name,
        free={kind: _free(nodes, kind) for kind in gpu_kinds(nodes)},
        pieces=tuple(pieces),
        whole_nodes=takes_whole_nodes(chosen, config.sharing),
        is_torn=snapshot.is_torn,
    )


def _sizes(nodes: Sequence[Node]) -> Iterator[Gres]:
    """Yield 1, 2, 4, ... GPUs of each kind, as far as a node has so many."""
    present = [gres for node in nodes for gres in node.gres if gres.name == GPU]
    for kind in gpu_kinds(nodes):
        most = max(gres.count for gres in present if gres.kind == kind)
        yield from (Gres(GPU, kind, 2**k) for k in range(most.bit_length()))


def _free(nodes: Iterable[Node], kind: str) -> FreeGpus:
    present = idle = beside = 0
    for node in nodes:
        own = [gres for gres in node.gres if (gres.name, gres.kind) == (GPU, kind)]
        count = sum(gres.count for gres in own)
        present += count
        if not own or not is_open_in_part(node):
            continue
        free = max(0, count - used_gres(node, own[0]))
        if node.allocated_cpus:
            beside += free
        else:
            idle += free
    return FreeGpus(present=present, on_idle_nodes=idle, beside_jobs=beside)


def gpu_screen(found: PartitionGpus) -> RenderableType:
    """Return the table of *found*, with its remarks."""
    where = f"partition {one_line(found.partition)}"
    if not found.free:
        return Text(f"No node of {where} has GPUs.")
    lines = [_free_line(kind, free) for kind, free in found.free.items()]
    title = f"Pieces of nodes in {where}, at {clock_text(found.now_s)}."
    if found.whole_nodes:
        lines.append("Jobs get whole nodes there: pieces are nodes that are idle.")
    lines.append("Trainers with gpus_per_lease in their job file get such pieces.")
    lines += [CAVEAT, *([TORN] if found.is_torn else [])]
    below = [Text(line) for line in lines]
    return Group(Text(title), "", _gpu_table(found), "", *below)


def _free_line(kind: str, free: FreeGpus) -> str:
    named = f"{one_line(kind)} GPUs" if kind else "GPUs"
    total = free.on_idle_nodes + free.beside_jobs
    return (
        f"{total} of {free.present} {named} are free: {free.on_idle_nodes} on idle "
        f"nodes, {free.beside_jobs} on nodes that jobs use."
    )


def _gpu_table(found: PartitionGpus) -> Table:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 2, 0, 0))
    table.add_column("one piece", overflow="fold")
    titles = ["now", *(f"for {render_duration(length)}" for length in PIECES_LAST_S)]
    for title in titles:
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("on", no_wrap=True)
    for piece in found.pieces:
        until = [-math.inf, *(found.now_s + length for length in PIECES_LAST_S)]
        counts = map(piece.count, until)
        nodes = nodes_text(len(piece.holes)) if piece.holes else "-"
        table.add_row(Text(_named(piece)), *map(str, counts), nodes)
    return table


def _named(piece: GpuPieces) -> str:
    kind, count, asked = one_line(piece.gpus.kind), piece.gpus.count, piece.asked
    gpus = f"{count} {kind} GPU".replace("  ", " ") + ("s" if count > 1 else "")
    cpus = "1 CPU" if asked.cpus == 1 else f"{asked.cpus} CPUs"
    memory = f", {asked.memory_mib} MiB" if asked.memory_mib else ""
    return f"{gpus}, {cpus}{memory}"


def _gpu_record(found: PartitionGpus) -> dict[str, Any]:
    """Return the record of ``--json``; an end is null where it is open or unknown."""
    return {
        "now_s": found.now_s,
        "partition": found.partition,
        "whole_nodes": found.whole_nodes,
        "is_torn": found.is_torn,
        "gpus": [{"kind": kind} | asdict(free) for kind, free in found.free.items()],
        "pieces": [
            {
                "kind": piece.gpus.kind,
                "gpus": piece.gpus.count,
                "cpus": piece.asked.cpus,
                "memory_mib": piece.asked.memory_mib,
                "holes": [hole_record(hole) for hole in piece.holes],
            }
            for piece in found.pieces
        ],
    }
