"""``freetrain holes``: grouped by their ends, counted by length, of a fake Slurm."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from freetrain.api.holes import PartitionHoles
from freetrain.cli.holes import (
    groups,
    idle_nodes_by_length,
    why_it_ends,
)
from freetrain.demo.fake_slurm.cluster import FakeJob
from slurm.holes import Hole, HoleEnd
from tests.cli.commands import Ran, run
from tests.fakes.slurm.installing import FakeSlurm, install
from tests.fakes.slurm.state import Act

NOW_S = 1_000.0
ENDS = st.none() | st.just(math.inf) | st.floats(NOW_S + 1.0, NOW_S + 1e6)


@st.composite
def idles(draw: st.DrawFn) -> PartitionHoles:
    ends = draw(st.lists(ENDS, max_size=12))
    kinds = st.sampled_from(HoleEnd)
    holes = tuple(
        Hole(f"n{number}", NOW_S, end_s, draw(kinds))
        for number, end_s in enumerate(ends)
    )
    return PartitionHoles(
        now_s=NOW_S, partition="p", margin_s=5.0, nodes=20, holes=holes, is_torn=False
    )


@given(idles())
def test_every_hole_is_in_one_group(idle: PartitionHoles) -> None:
    grouped = [hole for group in groups(idle) for hole in group]

    assert sorted(hole.node for hole in grouped) == sorted(h.node for h in idle.holes)


@given(idles())
def test_fewer_nodes_stay_idle_for_longer(idle: PartitionHoles) -> None:
    found = idle_nodes_by_length(idle)

    lengths_s, nodes = [s for s, _ in found], [n for _, n in found]
    assert lengths_s == sorted(lengths_s)
    assert nodes == sorted(set(nodes), reverse=True)
    ends_s = [hole.end_s for hole in idle.holes if hole.end_s is not None]
    assert nodes == [sum(end >= NOW_S + s for end in ends_s) for s in lengths_s]


def test_each_way_to_end_has_words() -> None:
    words = {why_it_ends(Hole("n", 0.0, 1.0, end, "7")) for end in HoleEnd}

    assert len(words) == len(HoleEnd)


@pytest.fixture
def fake(tmp_path: Path) -> FakeSlurm:
    folder = tmp_path / "fake-slurm"
    folder.mkdir()
    return install(folder)


def holes(fake: FakeSlurm, *words: str, **changes: Any) -> Ran:  # noqa: ANN401
    environ = fake.environ | {"HOME": str(Path.cwd())}
    return run("holes", *words, environ=environ, **changes)


def test_it_is_useful_without_any_state(fake: FakeSlurm) -> None:
    few, many = holes(fake), holes(fake, "--nodes")

    assert few.code == 0, few.stderr
    assert "Seen, not promised" in few.stdout
    assert len(many.stdout.splitlines()) > len(few.stdout.splitlines())
    assert "\n8 nodes stay idle for 1 d or more: 192.0 node-hours.\n" in few.stdout
    assert not Path(".freetrain").exists()


@pytest.mark.parametrize(
    ("busy", "said"), [(6, "2 nodes stay idle"), (7, "1 node stays idle")]
)
def test_idle_nodes_are_counted_without_those_of_jobs(
    fake: FakeSlurm, busy: int, said: str
) -> None:
    job = FakeJob(
        job_id=0,
        name="theirs",
        user="bob",
        partition="main",
        limit_s=3_600,
        submit_s=0.0,
        due_s=0.0,
        wanted=[f"n{number}" for number in range(1, busy + 1)],
    )
    fake.standin.add([job])

    assert f"\n{said} for 1 d or more" in holes(fake).stdout


def test_all_of_it_is_there_for_programs(fake: FakeSlurm) -> None:
    shown = json.loads(holes(fake, "--json").stdout)

    names = [hole["node"] for hole in shown["holes"]]
    assert names
    assert len(names) == len(set(names)) <= shown["nodes"]
    assert shown["idle_nodes"][0]["nodes"] == len(names)


def test_a_partition_that_is_not_there_exits_with_69(fake: FakeSlurm) -> None:
    shown = holes(fake, "--partition", "$(reboot)\x1b[2J")

    assert shown.code == 69
    assert shown.stderr.count("\n") == 1
    assert "\x1b" not in shown.stderr


def test_without_slurm_it_exits_with_69(tmp_path: Path) -> None:
    shown = run("holes", environ={"PATH": str(tmp_path), "HOME": str(tmp_path)})

    assert shown.code == 69
    assert "Are Slurm's programs on the PATH?" in shown.stderr


@pytest.mark.parametrize(
    ("act", "code"),
    [(Act.EMPTY, 76), (Act.UNREACHABLE, 75), (Act.GARBAGE, 76), (Act.REFUSE, 69)],
)
def test_an_answer_of_slurm_that_cannot_be_used_is_an_error_in_one_line(
    fake: FakeSlurm, act: Act, code: int
) -> None:
    fake.script("squeue", act)

    shown = holes(fake)

    assert (shown.code, shown.stdout) == (code, "")
    assert shown.stderr.count("\n") == 1


def test_a_snapshot_that_backfill_tears_is_taken_again(fake: FakeSlurm) -> None:
    waited: list[float] = []
    fake.script("sdiag", Act.MID_BACKFILL)

    shown = json.loads(holes(fake, "--json", sleep=waited.append).stdout)

    assert not shown["is_torn"]
    assert len(waited) == 1


def test_if_every_snapshot_is_torn_it_says_so(fake: FakeSlurm) -> None:
    fake.script("sdiag", *[Act.MID_BACKFILL] * 6)

    shown = holes(fake)

    assert shown.code == 0
    assert "may be planned for already" in " ".join(shown.stdout.split())


def test_a_partition_without_gpus_says_so(fake: FakeSlurm) -> None:
    shown = holes(fake, "--gpus")

    assert (shown.code, shown.stdout) == (0, "No node of partition main has GPUs.\n")
    assert json.loads(holes(fake, "--gpus", "--json").stdout)["pieces"] == []


def test_why_a_node_has_no_hole_is_shown_for_a_job_file(
    fake: FakeSlurm, tmp_path: Path
) -> None:
    job = tmp_path / "job.toml"
    job.write_text(
        'name = "big"\ncommand = ["true"]\n[nodes]\nmax = 1\ngres = "gpu:2"\n'
    )

    shown = holes(fake, "--for", str(job))
    record = json.loads(holes(fake, "--for", str(job), "--json").stdout)

    assert shown.code == 0, shown.stderr
    assert shown.stdout.splitlines() == [
        "No node of partition main has a hole for this trainer now.",
        "No hole on n[1-8]: it has 0 gpu, and 2 are wanted.",
    ]
    assert record["why_not"][0] == {
        "node": "n1",
        "reason": "it has 0 gpu, and 2 are wanted",
        "resource": "gpu",
        "free": 0,
        "wanted": 2,
        "present": 0,
    }
    assert holes(fake, "--gpus", "--for", str(job)).code == 64
