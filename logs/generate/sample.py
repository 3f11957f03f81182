"""The sample week that ships with FreeTrain, made anew from its model."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from logs.generate.lublin import generate
from logs.generate.model import BATCH, INTERACTIVE, WorkloadModel
from logs.schedule.build import schedule
from logs.schedule.result import Method

if TYPE_CHECKING:
    from logs.trace import JobTrace

SAMPLE_MODEL = WorkloadModel(
    nodes=512,
    days=7,
    load=0.95,
    seed=2,
    classes=(BATCH, INTERACTIVE),
    weekend_weight=0.6,
)
"""A week of a busy machine of 512 nodes.

Of the seeds 1 to 15 this one comes nearest to a machine that was busy before the
log begins: 89 % of the week's node-time is used, no day under 80 %.
"""

SAMPLE_NAME = "week-512.swf"
"""Plain text: it can be read and compared, and no compressor's version is in it."""


def shipped_sample() -> Path:
    """Return where the installed package keeps its sample week."""
    return Path(__file__).parent.parent / "samples" / SAMPLE_NAME


def sample_trace() -> JobTrace:
    """Return the sample week's jobs, started by EASY backfilling."""
    trace = start_by_easy(generate(SAMPLE_MODEL))
    return replace(
        trace,
        comments=(
            *trace.comments,
            "Start times: EASY backfilling in order of submission, simulated",
            "Made by: freetrain trace generate --sample --out logs/samples",
        ),
    )


def start_by_easy(trace: JobTrace) -> JobTrace:
    """Return *trace* with the start times that EASY backfilling gives its jobs."""
    placed = schedule(trace, Method.EASY).placed
    starts_s = {job.job: job.start_s for job in placed}
    jobs = tuple(replace(job, start_s=starts_s[i]) for i, job in enumerate(trace.jobs))
    return replace(trace, jobs=jobs)
