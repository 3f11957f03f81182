"""Coverage and pauses, on records whose answer is known."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from freetrain.broker.lease import LeaseKey
from freetrain.elastic.files import RunDir
from freetrain.state.files import (
    Assigned,
    AssignedLease,
    Ended,
    TrainerDir,
    create_assigned,
    create_ending,
)
from tests.e2e.record import JobSeen, Run
from tests.soak.coverage import Coverage, coverage, holes
from tests.soak.pauses import Direction, pauses, read_worked, trained
from tests.state.endings import an_ending

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

JOB = JobSeen("other-0", frozenset({"n1"}), 90.0, 100.0, 200.0)


def test_what_nobody_held_is_a_hole_cut_off_at_both_ends() -> None:
    assert holes((JOB,), "n1", within=(50, 500)) == [(50, 100), (200, 500)]
    assert holes((JOB,), "n2", within=(50, 500)) == [(50, 500)]
    assert holes((JOB,), "n1", within=(120, 180)) == []


def test_coverage_counts_training_within_long_holes_only() -> None:
    run = Run(50.0, 500.0, (JOB,))
    spans = {"n1": [(50.0, 120.0), (300.0, 400.0), (390.0, 900.0)], "n2": [(0.0, 60.0)]}

    found = coverage(run, spans, nodes=("n1", "n2"), shortest_s=300)

    assert found == Coverage(idle_s=300.0 + 450.0, trained_s=200.0 + 10.0)
    assert found.share == pytest.approx(210 / 750)


def test_a_cluster_that_is_never_idle_has_nothing_to_cover() -> None:
    assert coverage(Run(120, 180, (JOB,)), {}, nodes=("n1",), shortest_s=1).share == 0


def assign(folder: TrainerDir, generation: int, nodes: Sequence[str]) -> None:
    members = tuple(
        AssignedLease(key=LeaseKey("u", n), job_id=n, display_id=str(n), node=node)
        for n, node in enumerate(nodes)
    )
    create_assigned(
        folder,
        Assigned(
            trainer="a",
            generation=generation,
            members=members,
            created_s=0.0,
            author="broker",
            reason="",
        ),
    )


def end(folder: TrainerDir, generation: int, ended: Ended) -> None:
    asked = {"was_asked": True, "started_s": None, "ended_s": 0.0, "author": "u-0"}
    create_ending(folder, an_ending(generation, ended, **asked))


def tell(run: RunDir, generation: int, at_s: Sequence[float], **more: object) -> None:
    """Write progress lines: the start at the first time, steps at the others."""
    lines: list[Mapping[str, object]] = [
        {"event": "start", "generation": generation, "step": 0, "t": at_s[0]},
        *({"generation": generation, "step": 1, "t": t} for t in at_s[1:]),
    ]
    with run.progress.open("a", encoding="utf-8") as file:
        file.writelines(json.dumps(line) + "\n" for line in lines)
    if more:
        path = run.outcome(generation)
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(more), encoding="utf-8")


def test_pauses_are_told_by_direction_and_in_parts(tmp_path: Path) -> None:
    folder, run = TrainerDir(tmp_path), RunDir(tmp_path / "run")
    folder.create()
    run.path.mkdir()
    for generation, nodes in enumerate((["n1"], ["n1", "n2"], [], ["n2"], ["n3"]), 1):
        assign(folder, generation, nodes)
    tell(run, 1, [10.0, 10.5, 20.0], t=20.25)
    end(folder, 1, Ended.RESCALED)
    tell(run, 2, [21.0, 21.5, 40.0], t=40.5)
    end(folder, 2, Ended.RESCALED)
    tell(run, 4, [70.0, 71.0, 75.0])  # generation 3 had no nodes: that is no pause
    end(folder, 4, Ended.KILLED)
    tell(run, 5, [80.0, 81.0])

    worked = read_worked(folder, run)
    grown, moved = pauses(folder, worked)

    assert (grown.generation, grown.direction) == (2, Direction.GROW)
    assert grown.was_asked
    assert grown.total_s == 1.5
    assert (grown.commit_s, grown.launch_s, grown.step_s) == (0.25, 0.75, 0.5)
    assert (moved.generation, moved.direction) == (5, Direction.MOVE)
    assert not moved.was_asked
    assert (moved.total_s, moved.commit_s, moved.launch_s) == (6.0, None, None)
    assert trained(worked) == {
        "n1": [(10.0, 20.0), (21.0, 40.0)],
        "n2": [(21.0, 40.0), (70.0, 75.0)],
        "n3": [(80.0, 81.0)],
    }
