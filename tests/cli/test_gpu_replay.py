"""Logs of GPUs on the command line: what is idle of them, and replays in pieces."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.commands import run, run_json

# 1,000 s of two nodes of 4 GPUs. One GPU of n1 is idle all the time; n2 from 500 on.
LOG = """\
# gpus_per_node=4
job_id,gpu_num,node_num,submit_time,start_time,end_time,node_list
a,3,1,0,0,1000,n1
b,4,1,0,0,500,n2
"""
SACCT = """\
JobIDRaw|Submit|Start|End|NNodes|NodeList|AllocTRES
a|0|0|1000|1|n1|cpu=3,gres/gpu=3
b|0|0|500|1|n2|cpu=4,gres/gpu=4
""".replace("\na|", "\n1|").replace("\nb|", "\n2|")
TRAINERS = """\
[[trainer]]
name = "t"
samples = 1e9
scaling = { 1 = 10.0, 8 = 80.0 }
grow = "0s"
shrink = "0s"
checkpoint_every = "0s"
"""
FEW = ("--trainers", "t.toml", "--policy", "freetrain")


@pytest.fixture(autouse=True)
def files() -> None:
    Path("gpus.csv").write_text(LOG)
    Path("gpus.sacct").write_text(SACCT)
    Path("t.toml").write_text(TRAINERS)


@pytest.mark.parametrize("log", [("gpus.csv",), ("gpus.sacct", "--gpus-per-node", "4")])
def test_info_says_what_pieces_of_each_size_are_idle(log: tuple[str, ...]) -> None:
    info = run_json("trace", "info", *log)

    assert info["used_gpu_s"] == 3 * 1000 + 4 * 500
    shown = [
        (piece["gpus"], piece["idle_gpu_s"], piece["in_use_gpu_s"], piece["pieces"])
        for piece in info["pieces"]
    ]
    assert shown == [(1, 3000, 1000, 5), (2, 2000, 0, 2), (4, 2000, 0, 1)]
    text = run("trace", "info", *log).stdout
    assert "GPU time idle, in pieces of 1          1 GPU-h, 0 GPU-h of it on" in text
    assert "5 pieces, 100.0 % of 5 min and more, with 100.0 % of the time" in text


def test_pieces_that_end_within_five_minutes_do_not_last() -> None:
    Path("short.csv").write_text(LOG.replace("500,n2", "701,n2"))

    one, _, whole = run_json("trace", "info", "short.csv")["pieces"]

    # The GPU of n1 lasts, and the four of n2 are there for 299 s.
    assert one["lasting_share"] == 1 / 5
    assert one["lasting_gpu_share"] == 1000 / (1000 + 4 * 299)
    assert whole["lasting_share"] == whole["lasting_gpu_share"] == 0


def test_holes_are_of_whole_nodes_or_of_leases() -> None:
    whole = run_json("trace", "holes", "gpus.csv")
    leases = run_json("trace", "holes", "gpus.csv", "--gpus-per-lease", "1")

    assert [hole["node"] for hole in whole] == ["n2"]
    assert [hole["node"] for hole in leases] == [
        "n1/0", "n2/0", "n2/1", "n2/2", "n2/3",
    ]  # fmt: skip


def test_pieces_are_held_against_whole_nodes_with_the_same_trainers() -> None:
    sizes = ("--gpus-per-lease", "1", "--gpus-per-lease", "2")

    found = run_json("replay", "gpus.csv", *FEW, *sizes)

    shown = [
        (r["gpus_per_lease"], r["samples"], r["gain"], r["pool_gpu_s"], r["used_gpu_s"])
        for r in found
    ]
    # Ten samples a GPU-second, whatever the lease.
    assert shown == [
        (1, 30_000, 0.5, 3000, 3000),
        (2, 20_000, 0.0, 2000, 2000),
        (4, 20_000, 0.0, 2000, 2000),
    ]
    text = run("replay", "gpus.csv", *FEW, *sizes).stdout
    assert "Trainers, in GPUs: t.toml" in text
    row = next(line for line in text.splitlines() if line.startswith(" 1 "))
    assert row.split()[1:6] == ["30.00", "k", "50.0", "%", "1"]


def test_rows_of_leases_name_policies_where_there_are_several() -> None:
    both = ("--trainers", "t.toml", "--policy", "freetrain", "--policy", "equal")

    one = run("replay", "gpus.csv", *FEW, "--gpus-per-lease", "1").stdout
    two = run("replay", "gpus.csv", *both, "--gpus-per-lease", "1").stdout

    names = ("freetrain", "equal")
    assert [one.count(f"\n {name}") for name in names] == [0, 0]
    assert [two.count(f"\n {name}") for name in names] == [2, 2]


def test_a_replay_of_a_log_of_gpus_leases_whole_nodes() -> None:
    ran = run("replay", "gpus.csv", *FEW)
    (record,) = run_json("replay", "gpus.csv", *FEW)

    assert "Leases are of 4 GPUs; counts of trainers are GPUs." in ran.stdout
    assert (record["samples"], record["pool_node_s"]) == (20_000, 500)
    assert "gain" not in record


@pytest.mark.parametrize(("lease", "node_s"), [((), 500), (("1",), 3000)])
def test_in_the_loop_leases_are_of_whole_nodes_or_of_gpus(
    lease: tuple[str, ...], node_s: float
) -> None:
    loop = (*FEW, "--schedule", "slurm", "--in-the-loop", "preempt", "--days", "0.1")
    gpus = [word for size in lease for word in ("--gpus-per-lease", size)]
    end_s = 0.1 * 86_400

    (record,) = run_json("replay", "gpus.csv", *loop, *gpus)
    text = run("replay", "gpus.csv", *loop, *gpus).stdout

    # From 1000 s on all is idle.
    later_s = 2 * (4 if lease else 1) * (end_s - 1000)
    assert record["pool_node_s"] == pytest.approx(node_s + later_s)
    assert record["harm"]["total_s"] == 0
    assert f"Leases are of {'1 GPU' if lease else '4 GPUs'};" in " ".join(text.split())


def test_in_the_loop_leases_of_two_sizes_are_refused() -> None:
    sizes = ("--gpus-per-lease", "1", "--gpus-per-lease", "2")

    ran = run(
        "replay", "gpus.csv", *sizes, "--schedule", "easy", "--in-the-loop", "yield"
    )

    assert ran.code == 64
    assert "leases there are of one" in " ".join(ran.stderr.split())


def test_the_first_nodes_are_as_many_leases() -> None:
    found = run_json(
        "replay", "gpus.csv", *FEW, "--gpus-per-lease", "1", "--nodes", "2"
    )
    assert [record["samples"] for record in found] == [30_000, 20_000]
    Path("gpus.csv").write_text(LOG.replace("n1", "n3"))  # behind n2

    found = run_json(
        "replay", "gpus.csv", *FEW, "--gpus-per-lease", "1", "--nodes", "1"
    )

    assert [record["samples"] for record in found] == [20_000, 20_000]


def test_a_log_of_gpus_is_written_so_and_its_jobs_are_counted_in_nodes_elsewhere() -> (
    None
):
    ran = run(
        "trace", "convert", "gpus.sacct", "--gpus-per-node", "4", "--to", "gpu-csv"
    )
    Path("again.csv").write_text(ran.stdout)

    assert ran.stdout.startswith("# 2 nodes")
    info = run_json("trace", "info", "again.csv")
    assert info["pieces"] == run_json("trace", "info", "gpus.csv")["pieces"]
    rows = run("trace", "convert", "gpus.csv", "--to", "jobs-csv").stdout.splitlines()
    assert rows[-2:] == ["a,0,0,1000,1,-1,-1", "b,0,0,500,1,-1,-1"]


REFUSED = """
trace info gpus.sacct --gpus-per-node 2 | 3 GPUs on 1 node; expected 2 a node
trace info holes.csv --gpus-per-node 4 | fragments, which says nothing of GPUs
trace holes gpus.csv --gpus-per-lease 3 | nodes of 4 GPUs, and leases of 3
trace holes gpus.sacct --gpus-per-lease 1 | there are no GPUs in it
trace holes holes.csv --gpus-per-lease 1 | so it says nothing of GPUs
trace convert gpus.sacct --to gpu-csv | counts no GPUs
replay gpus.csv --gpus-per-lease 1 --out o | does not go with --out
replay --pool 2 --gpus-per-lease 1 | does not go with --pool
replay --pool 2 --gpus-per-node 4 | --gpus-per-node is for replays of a log
replay gpus.csv --gpus-per-lease 1 --seeds 2 | does not go with --seeds
replay gpus.csv --gpus-per-lease 1 --trainers small.toml | runs on up to 2 GPUs
""".strip().splitlines()


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_counted_in_gpus_is_refused(case: str) -> None:
    Path("holes.csv").write_text("node,idle_start_s,idle_end_s\nn1,0,10\n")
    small = TRAINERS.replace("8 = 80.0", "2 = 20.0")
    Path("small.toml").write_text(small)
    words, _, why = case.partition(" | ")

    ran = run(*words.split())

    assert ran.code in {64, 65}
    assert why in " ".join(ran.stderr.split())


def test_a_command_line_that_is_shown_asks_for_the_same_again() -> None:
    words = ("replay", "gpus.sacct", "--gpus-per-node", "4", *FEW, "--out", "o")

    assert run(*words).code == 0

    summary: Any = json.loads(Path("o/summary.json").read_text())
    assert "--gpus-per-node 4" in json.dumps(summary)
