"""Pieces by GPU, and holes for a trainer, of a recorded cluster that jobs share."""

import io
from pathlib import Path

import pytest
from rich.console import Console

from freetrain.api.holes import PartitionHoles, holes_for_leases
from freetrain.cli import holes
from freetrain.cli.holes import FreeGpus, PartitionGpus, gpu_pieces, gpu_screen
from freetrain.config.job import NodeSettings
from freetrain.config.site import LeaseSettings, Site
from slurm.holes import HoleEnd
from slurm.pieces import Lack
from slurm.records import ClusterConfig, Gres
from slurm.text import parse_config
from tests.slurm.clusters import recorded, recorded_snapshot

PART = "part1"
PIECES = Site(
    state_directory=Path("/state"), lease=LeaseSettings(partition=PART, exclusive=False)
)


def config() -> ClusterConfig:
    return parse_config(recorded("gpus", "config.txt"))


@pytest.fixture
def found() -> PartitionGpus:
    return gpu_pieces(recorded_snapshot("gpus"), config(), PIECES)


def test_pieces_are_counted_by_kind_and_size(found: PartitionGpus) -> None:
    counts = {
        (piece.gpus.kind, piece.gpus.count): {
            hole.node: hole.room for hole in piece.holes
        }
        for piece in found.pieces
    }
    # ha1: its last GPU is a lease's; ha2: one user's alone; ha3: whole; ha7: no memory.
    assert counts == {
        ("res1", 1): {"ha4": 4},
        ("res1", 2): {"ha4": 2},
        ("res1", 4): {"ha4": 1},
        ("res2", 1): {"ha5": 1, "ha6": 2},
        ("res2", 2): {"ha6": 1},
        ("res3", 1): {},
        ("res3", 2): {},
        ("res3", 4): {},
    }
    assert not found.whole_nodes


def test_a_piece_has_its_part_of_the_cpus_and_the_memory(found: PartitionGpus) -> None:
    parts = {
        (piece.gpus.kind, piece.gpus.count): (piece.asked.cpus, piece.asked.memory_mib)
        for piece in found.pieces
    }
    assert parts["res1", 1] == (2, 2000)
    assert parts["res2", 1] == (4, 4000)
    assert parts["res3", 4] == (8, 8000)


def test_a_piece_ends_where_a_whole_node_would(found: PartitionGpus) -> None:
    piece = found.pieces[0]
    (hole,) = piece.holes
    assert (hole.node, hole.ends_by, hole.blocker) == ("ha4", HoleEnd.PLANNED_JOB, "10")
    assert piece.count(found.now_s + 600.0) == 4
    assert piece.count(found.now_s + 3_600.0) == 0


def test_free_gpus_are_told_apart_by_whether_jobs_use_their_node(
    found: PartitionGpus,
) -> None:
    assert found.free == {
        "res1": FreeGpus(present=16, on_idle_nodes=4, beside_jobs=0),
        "res2": FreeGpus(present=4, on_idle_nodes=2, beside_jobs=1),
        "res3": FreeGpus(present=4, on_idle_nodes=0, beside_jobs=2),
    }


def test_the_table_has_a_row_for_each_size(found: PartitionGpus) -> None:
    console = Console(file=io.StringIO(), width=100)
    console.print(gpu_screen(found))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "1 res2 GPU, 4 CPUs, 4000 MiB" in text
    row = next(line for line in text.splitlines() if "2 res1 GPUs" in line)
    assert row.split()[-6:] == ["2", "2", "0", "0", "1", "node"]
    assert (
        "3 of 4 res2 GPUs are free: 2 on idle nodes, 1 on nodes that jobs use." in text
    )


def holes_for(**asked: object) -> PartitionHoles:
    nodes = NodeSettings(max_nodes=1, **asked)  # type: ignore[arg-type]
    look = recorded_snapshot("gpus")
    return holes_for_leases(look, config(), PIECES, uid=-1, nodes=nodes)


def test_a_trainer_of_gpus_is_shown_the_pieces_beside_jobs() -> None:
    shown = holes_for(gpus_per_lease=1, gpu_type="res2")
    assert {hole.node: hole.room for hole in shown.holes} == {"ha5": 1, "ha6": 2}
    assert "ha5" not in {hole.node for hole in holes_for(gpus_per_lease=2).holes}


def text_of(shown: PartitionHoles) -> str:
    console = Console(file=io.StringIO(), width=200)
    console.print(holes.screen(shown, each=False))
    return console.file.getvalue()  # type: ignore[attr-defined,no-any-return]


def test_a_trainer_of_gpus_is_told_how_many_leases_fit_and_for_how_long() -> None:
    text = text_of(holes_for(gpus_per_lease=1))

    assert "3 of 8 nodes are holes for partition part1, with room for 7 more le" in text
    assert "\n3 more leases fit for 1 d or more.\n" in text
    assert "\n7 more leases fit for 10 min or more.\n" in text
    assert "node-hours" not in text
    assert "more lease" not in text_of(holes_for())


def test_a_trainer_is_told_what_each_node_lacks() -> None:
    shown = holes_for(gres=(Gres("gpu", "", 4),))
    assert [hole.node for hole in shown.holes] == ["ha4"]
    assert shown.why_not == {
        "ha1": "job 5 runs there",
        "ha2": "job 6 runs there",
        "ha3": "job 7 runs there",
        "ha5": Lack("gpu", 1, 4, 2),
        "ha6": Lack("gpu", 2, 4, 2),
        "ha7": "job 9 runs there",
        "ha8": Lack("gpu", 0, 4, 0),
    }
