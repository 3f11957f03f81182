"""What was seen of a cluster: whose jobs held which nodes, from when until when."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from slurm.records import expand

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from slurm.records import JobRecord

OTHERS = "other-"
"""Names of jobs of the workload begin so; their number follows."""

LEASES = "freetrain-"
"""Names of leases begin so."""


@dataclass(frozen=True, slots=True)
class JobSeen:
    """One job, as far as it was seen; times are Unix times.

    Attributes:
        name: Its name.
        nodes: NodeNames that it held.
        submitted_s: When it was submitted.
        started_s: When it began; None where it had not when the record ended.
        ended_s: When it ended; None likewise.
    """

    name: str
    nodes: frozenset[str]
    submitted_s: float
    started_s: float | None = None
    ended_s: float | None = None


@dataclass(frozen=True, slots=True)
class Run:
    """One workload, lived through.

    Attributes:
        origin_s: When it began, Unix time.
        end_s: When looking ended.
        others: The workload's jobs.
        leases: Jobs of FreeTrain's; none where it was not there.
    """

    origin_s: float
    end_s: float
    others: tuple[JobSeen, ...]
    leases: tuple[JobSeen, ...] = ()


def seen(job: JobRecord) -> JobSeen:
    """Return what *job* tells of itself; a planned start is none."""
    has_begun = bool(job.nodes) and not job.is_pending
    return JobSeen(
        name=job.name,
        nodes=frozenset(expand(job.nodes)) if job.nodes else frozenset(),
        submitted_s=job.submit_s or 0.0,
        started_s=job.start_s if has_begun else None,
        ended_s=job.end_s if job.has_ended else None,
    )


def make_run(
    jobs: Iterable[JobRecord],
    began: Mapping[int, float | None],
    *,
    origin_s: float,
    end_s: float,
) -> Run:
    """Sort *jobs* into others' and leases; a run before this one had some, too.

    Args:
        jobs: The last that was seen of each.
        began: Others' jobs by id, and when the script of each began, since Slurm's
            times are whole seconds; None where it did not say.
        origin_s: When the workload began.
        end_s: When looking ended.
    """
    others, leases = [], []
    for job in jobs:
        one = seen(job)
        if job.job_id in began:
            exact_s = began[job.job_id]
            others.append(replace(one, started_s=exact_s or one.started_s))
        elif job.name.startswith(LEASES) and (one.ended_s or end_s) >= origin_s:
            leases.append(one)
    return Run(origin_s, end_s, tuple(others), tuple(leases))


def busy(jobs: Iterable[JobSeen], node: str, *, until_s: float) -> list[Span]:
    """Return when *node* was held by any of *jobs*, in order, without overlaps."""
    spans = sorted(
        (job.started_s, job.ended_s or until_s)
        for job in jobs
        if node in job.nodes and job.started_s is not None
    )
    joined: list[Span] = []
    for start_s, end_s in spans:
        if joined and start_s <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end_s, joined[-1][1]))
        else:
            joined.append((start_s, end_s))
    return joined


Span = tuple[float, float]
"""From when until when, Unix time."""
