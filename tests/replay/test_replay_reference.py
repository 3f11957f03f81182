"""Holds the engine against the independent replay beside the real logs."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from freetrain.replay.pool import PoolTimeline
from freetrain.replay.run import run_replay
from freetrain.replay.settings import Accounting, ReplaySettings
from freetrain.replay.trainers import builtin_trainers
from logs.read import read_trace
from logs.trace import IdleTrace
from tests.replay.worlds import REFERENCE_KEYS, no_clock

pytestmark = pytest.mark.shared

START_S = 72_743.0


@pytest.fixture(scope="module")
def summit(shared: Path) -> IdleTrace:
    trace = read_trace(shared / "logs" / "summit_2021-02.fragments.csv.gz")
    assert isinstance(trace, IdleTrace)
    return trace


def published(policy: str, **choices: Any) -> ReplaySettings:  # noqa: ANN401
    return ReplaySettings(policy=policy, accounting=Accounting.PUBLISHED, **choices)


def reference(
    shared: Path, jobs: str, settings: ReplaySettings, *, days: float
) -> dict[str, float]:
    """Return what the independent replay says of the same choices."""
    raw = settings.priority == "throughput"
    options = {
        "--jobs": jobs,
        "--objective": "raw" if raw else "speedup",
        "--policy": settings.policy,
        "--parallel": settings.parallel,
        "--cost-factor": settings.cost_factor,
        "--days": days,
    }
    script = shared / "reference" / "freetrain_exact.py"
    argv = [str(part) for option in options.items() for part in option]
    done = subprocess.run(  # noqa: S603  our own interpreter, a script beside us
        [sys.executable, str(script), *argv], check=True, capture_output=True, text=True
    )
    answer: dict[str, float] = json.loads(done.stdout)
    return answer


CHOICES = (
    ("hps", published("freetrain", parallel=10)),
    ("hps", published("equal", parallel=20, cost_factor=10.0)),
    (
        "imagenet",
        published("freetrain", priority="speedup", parallel=10, cost_factor=5.0),
    ),
    ("imagenet", published("freetrain", parallel=40)),
)


@pytest.mark.parametrize(("jobs", "settings"), CHOICES)
def test_published_figures_are_the_references_own(
    shared: Path, summit: IdleTrace, jobs: str, settings: ReplaySettings
) -> None:
    theirs = reference(shared, jobs, settings, days=0.5)

    ours = run_replay(
        PoolTimeline.from_trace(summit, start_s=START_S, nodes=1024, days=0.5),
        builtin_trainers(jobs),
        settings,
        clock=no_clock,
    )

    for key in REFERENCE_KEYS:
        assert getattr(ours, key) == pytest.approx(theirs[key], rel=1e-9), key


def test_with_completions_as_events_the_published_policy_gains_what_was_measured(
    summit: IdleTrace,
) -> None:
    # facts/lookahead.md, "published + C", hps, 10 at a time, x1: 95.1e9.
    ours = run_replay(
        PoolTimeline.from_trace(summit, start_s=START_S, nodes=1024, days=6),
        builtin_trainers("hps"),
        ReplaySettings(accounting=Accounting.PUBLISHED_C, parallel=10),
        clock=no_clock,
    )

    assert ours.samples == pytest.approx(95.1e9, rel=0.005)
