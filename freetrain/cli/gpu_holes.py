"""``freetrain holes --gpus``: what jobs leave free of nodes, by kind of GPU."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from freetrain.api.holes import (
    MOST_REQUESTS,
    end_s,
    hole_record,
    snapshot_between_cycles,
)
from freetrain.cli.context import (
    CliContext,
    clock_text,
    json_text,
    nodes_text,
    print_out,
    write_out,
)
from freetrain.cli.holes import CAVEAT, TORN
from freetrain.config.job import NodeSettings
from freetrain.config.site import Site, requirement_on
from freetrain.text import one_line, render_duration
from freetrain.tick.environment import slurm_connector
from freetrain.tick.leases import margin_s
from slurm.holes import (
    Hole,
    Snapshot,
    find_holes,
    is_open_in_part,
    takes_whole_nodes,
)
from slurm.pieces import GPU, gpu_kinds, used_gres
from slurm.records import (
    ClusterConfig,
    Gres,
    Node,
    Requirement,
    choose_partition,
)

LENGTHS_S = (600.0, 3_600.0, 14_400.0)
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
    backend = slurm_connector(context.environ)(MOST_REQUESTS)
    settings = backend.config()
    snapshot = snapshot_between_cycles(backend, context)
    found = gpu_pieces(snapshot, settings, site, partition=partition)
    if as_json:
        write_out(context, json_text(_record(found)))
    else:
        print_out(context, screen(found))


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


def screen(found: PartitionGpus) -> RenderableType:
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
    return Group(Text(title), "", _table(found), "", *below)


def _free_line(kind: str, free: FreeGpus) -> str:
    named = f"{one_line(kind)} GPUs" if kind else "GPUs"
    total = free.on_idle_nodes + free.beside_jobs
    return (
        f"{total} of {free.present} {named} are free: {free.on_idle_nodes} on idle "
        f"nodes, {free.beside_jobs} on nodes that jobs use."
    )


def _table(found: PartitionGpus) -> Table:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 2, 0, 0))
    table.add_column("one piece", overflow="fold")
    titles = ["now", *(f"for {render_duration(length)}" for length in LENGTHS_S)]
    for title in titles:
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("on", no_wrap=True)
    for piece in found.pieces:
        until = [-math.inf, *(found.now_s + length for length in LENGTHS_S)]
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


def _record(found: PartitionGpus) -> dict[str, Any]:
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
