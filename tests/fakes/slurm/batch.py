"""The fake sbatch and scancel, as strange as those of 22.05."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from tests.fakes.slurm.state import FakeJob

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.fakes.slurm.state import FakeState

PARTITIONS = ("main", "freetrain")
USER = "alice"


class ComplaintError(Exception):
    """What a program says on its standard error before it exits with 1."""


def sbatch(state: FakeState, argv: Sequence[str]) -> str:
    """Submit, start what fits on idle nodes, and answer with the number."""
    options = _options(argv)
    if options["partition"] not in PARTITIONS:
        raise ComplaintError(
            "sbatch: error: Batch job submission failed: "
            "Invalid partition name specified"
        )
    tasks = int(options.get("array", "0-0").partition("-")[2]) + 1
    array_id = state.next_id if tasks > 1 else 0
    first = state.next_id
    state.next_id += 1
    columns = _columns(state, options)
    jobs = [
        FakeJob(first, array_id, task if array_id else -1, dict(columns))
        for task in range(tasks)
    ]
    state.jobs += jobs
    if "begin" not in options:
        _start(state, jobs)
    return f"{first}\n"


def scancel(state: FakeState, argv: Sequence[str]) -> str:
    """End or signal jobs."""
    options = _options(argv)
    words = [word for word in argv if not word.startswith("--")]
    if not words:
        for job in state.jobs:
            if _matches(job, options):
                _end(job)
        return ""
    complaints = [word for word in words if not _hit(state, word, options)]
    if complaints:
        raise ComplaintError(
            "\n".join(
                f"scancel: error: Kill job error on job id {word}: "
                f"Invalid job id specified"
                for word in complaints
            )
        )
    return ""


def _options(argv: Sequence[str]) -> dict[str, str]:
    pairs = (word[2:].partition("=") for word in argv if word.startswith("--"))
    return {name: value for name, _, value in pairs}


def _columns(state: FakeState, options: dict[str, str]) -> dict[str, str]:
    return {
        "Name": options["job-name"],
        "Comment": options.get("comment", "(null)") or "(null)",
        "UserName": USER,
        "Partition": options["partition"],
        "State": "PENDING",
        "Nice": options.get("nice", "0"),
        "TimeLimit": f"{options['time']}:00",
        "SubmitTime": iso(state.now_s),
        "EligibleTime": iso(state.now_s),
        "Reason": "Priority",
        "NodeList": "",
    }


def _start(state: FakeState, jobs: Sequence[FakeJob]) -> None:
    """Start *jobs* on idle nodes; the last task of an array keeps its number."""
    for job, node in zip(jobs, state.idle_nodes, strict=False):
        if job is not jobs[-1]:
            job.job_id = state.next_id
            state.next_id += 1
        job.columns |= {
            "State": "RUNNING",
            "NodeList": node,
            "StartTime": iso(state.now_s),
            "Reason": "None",
        }


def _matches(job: FakeJob, options: dict[str, str]) -> bool:
    columns = {"name": "Name", "user": "UserName", "state": "State"}
    return all(
        job.columns[column] == options[option]
        for option, column in columns.items()
        if option in options
    )


def _hit(state: FakeState, word: str, options: dict[str, str]) -> bool:
    """Do it to the jobs that scancel takes *word* for; False where it is none."""
    alive = [job for job in state.jobs if job.state in {"PENDING", "RUNNING"}]
    meant = [job for job in alive if job.display_id == word]
    if not meant and word.isdecimal():
        if any(job.array_id and job.job_id == int(word) for job in alive):
            # the whole array; any other raw number of a task: silence
            meant = [job for job in alive if job.array_id == int(word)]
        elif word in {str(job.job_id) for job in alive}:
            return True
    if options.keys() & {"name", "user"}:  # 22.05 widens a waiting task to all
        waiting = {job.array_id for job in meant if job.state == "PENDING"} - {0}
        meant += [j for j in alive if j.array_id in waiting and j.state == "PENDING"]
    act: Callable[[FakeJob], None] = _end
    if "signal" in options:
        act = lambda job: job.signals.append(options["signal"])  # noqa: E731
    for job in meant:
        act(job)
    return bool(meant)


def _end(job: FakeJob) -> None:
    if job.state in {"PENDING", "RUNNING"}:
        job.columns |= {"State": "CANCELLED", "Reason": "None"}


def iso(time_s: float) -> str:
    """Write a time as Slurm does with TZ=UTC."""
    return datetime.fromtimestamp(time_s, tz=UTC).strftime("%Y-%m-%dT%H:%M:%S")
