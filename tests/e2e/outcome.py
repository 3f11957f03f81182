"""What a trainer left on disk, and what must hold of it whatever happened."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from freetrain import elastic
from freetrain.elastic.files import RunDir
from freetrain.state.files import (
    BROKER,
    AssignmentFile,
    TrainerDir,
    generations,
    read_assigned,
)

RELATIVE = 1e-9


@dataclass(frozen=True, slots=True)
class Rescales:
    """How often a trainer's nodes changed from one world that trained to the next.

    *spanned* is the most Slurm jobs in one world.
    """

    grows: int
    shrinks: int
    by_broker: int
    by_survivors: int
    spanned: int

    @property
    def count(self) -> int:
        return self.grows + self.shrinks


def progress(run: RunDir) -> list[dict[str, Any]]:
    """All progress lines so far; a last one that is still being written left out."""
    if not run.progress.exists():
        return []
    text = run.progress.read_text(encoding="utf-8")
    lines = text[: text.rfind("\n") + 1].splitlines()
    return [json.loads(line) for line in lines if line]


def losses(run: RunDir) -> list[tuple[int, float]]:
    """Every loss ever told, with its step; steps done again come twice."""
    lines = progress(run)
    return [(line["step"], line["loss"]) for line in lines if "loss" in line]


def rescales(trainer: TrainerDir, run: RunDir) -> Rescales:
    """Count the rescales of a trainer between generations that did a step."""
    trained = {line["generation"] for line in progress(run) if "loss" in line}
    every = [read_assigned(trainer, g) for g in generations(trainer.assignments)]
    worlds = [world for world in every if world.generation in trained]
    sizes = [(len(a.members), len(b.members)) for a, b in pairwise(worlds)]
    return Rescales(
        grows=sum(after > before for before, after in sizes),
        shrinks=sum(after < before for before, after in sizes),
        by_broker=sum(world.author == BROKER for world in worlds[1:]),
        by_survivors=sum(world.author != BROKER for world in worlds[1:]),
        spanned=max(map(_jobs, worlds), default=0),
    )


def check_losses(run: RunDir, reference: Mapping[int, float]) -> None:
    """Every loss ever told is the uninterrupted run's; no step was left out."""
    told = losses(run)
    wrong = [
        (step, loss, reference[step])
        for step, loss in told
        if abs(loss - reference[step]) > RELATIVE * abs(reference[step])
    ]
    assert not wrong
    assert {step for step, _ in told} == set(reference)


def check_samples(run: RunDir) -> None:
    """In the committed history every sample of every epoch was used exactly once."""
    used = committed(run).state["used"]
    assert np.array_equal(used, np.ones_like(used))


def check_nothing_committed_was_lost(
    run: RunDir, seen: Mapping[int, tuple[int, ...]]
) -> None:
    """After each kill, worlds went on from the commits by then, or later.

    *seen* has, by generation, the newest commits just before something was killed.
    """
    starts = {
        line["generation"]: line["step"]
        for line in progress(run)
        if line.get("event") == "start"
    }
    for generation, commits in seen.items():
        later = [step for g, step in starts.items() if g > generation]
        assert all(step >= max(commits) for step in later), (generation, commits)


def committed(run: RunDir) -> elastic.Checkpoint:
    """The newest checkpoint."""
    newest = max(run.checkpoints.glob("*.npz"))
    return elastic.read_checkpoint(newest.read_bytes())


def committed_step(run: RunDir) -> int:
    """The step of the newest checkpoint, by its name; 0 before the first."""
    names = sorted(path.stem for path in run.checkpoints.glob("*.npz"))
    return int(names[-1].partition("-")[2]) if names else 0


def _jobs(assigned: AssignmentFile) -> int:
    return len({member.job_id for member in assigned.members})
