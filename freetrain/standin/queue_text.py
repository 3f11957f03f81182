"""The table that squeue prints: cells of given widths, cut and padded in bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from freetrain.standin.complaint import ComplaintError
from freetrain.standin.records import JobState
from freetrain.standin.schedule import is_planned
from freetrain.standin.times import clock, iso

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from freetrain.standin.records import Cluster, Job

_HEADINGS = {"JobArrayID": "JOBID", "UserID": "UID", "UserName": "USER"}
_PRIORITY = 4_294_901_760
_NULL = ("Feature", "Dependency", "QOS", "Reservation")
_NONE = ("tres-per-node", "tres-per-job")


def queue_text(
    jobs: Sequence[Job], form: str, cluster: Cluster, now_s: float, *, together: bool
) -> str:
    """Return the table of *jobs*.

    Args:
        jobs: In order.
        form: Of ``--Format``: ``Name:100|,JobID:|,…``; no width never cuts.
        cluster: Where they are.
        now_s: Unix time.
        together: Whether waiting tasks of an array share a line.

    Raises:
        ComplaintError: A column that squeue does not know.
    """
    columns = [_column(word) for word in form.split(",")]
    rows = [_row(group, cluster, now_s) for group in _groups(jobs, together=together)]
    headings = {name: _HEADINGS.get(name, name.upper()) for name, _, _ in columns}
    lines = [b"".join(_cells(columns, row)) for row in (headings, *rows)]
    return b"\n".join([*lines, b""]).decode("utf-8", "surrogateescape")


def _column(word: str) -> tuple[str, int, str]:
    """Split ``Name:100|`` into name, width and what stands behind the value."""
    name, _, size = word.partition(":")
    width = size.rstrip("|")
    return name, int(width) if width.isdecimal() else 0, size[len(width) :]


def _cells(
    columns: Iterable[tuple[str, int, str]], row: dict[str, str]
) -> Iterable[bytes]:
    for name, width, behind in columns:
        if name not in row:
            raise ComplaintError(f"squeue: error: Invalid job format: {name}")
        value = row[name].encode("utf-8", "surrogateescape")
        yield (value[:width].ljust(width) if width else value) + behind.encode()


def _groups(jobs: Sequence[Job], *, together: bool) -> list[list[Job]]:
    groups: dict[str, list[Job]] = {}
    for job in jobs:
        is_together = together and job.is_pending and job.array_id
        key = f"{job.array_id}_[]" if is_together else job.display_id
        groups.setdefault(key, []).append(job)
    return list(groups.values())


def _row(group: list[Job], cluster: Cluster, now_s: float) -> dict[str, str]:
    job = group[0]
    return {
        "Name": job.name,
        "Comment": job.comment or "(null)",
        "Reason": job.reason,
        **dict.fromkeys(_NULL, "(null)"),
        **dict.fromkeys(_NONE, "N/A"),
        **_ids(group),
        "UserID": str(cluster.uid if job.user == cluster.user else cluster.uid + 1),
        "UserName": job.user,
        "Partition": job.partition,
        "State": _state(job),
        "PriorityLong": str(_PRIORITY - job.nice),
        "Nice": str(job.nice),
        **_times(job, now_s),
        **_nodes(job, now_s),
    }


def _ids(group: list[Job]) -> dict[str, str]:
    job = group[0]
    if len(group) > 1:
        tasks = ",".join(str(one.task) for one in group)
        array = str(job.array_id)
        shown = f"{array}_[{tasks}]"
    else:
        tasks = str(job.task) if job.array_id else "N/A"
        array, shown = str(job.array_id or job.job_id), job.display_id
    return {
        "JobID": str(job.job_id),
        "JobArrayID": shown,
        "ArrayJobID": array,
        "ArrayTaskID": tasks,
    }


def _times(job: Job, now_s: float) -> dict[str, str]:
    start_s = job.due_s if is_planned(job, now_s) else job.start_s
    end_s = job.end_s
    if end_s is None and job.start_s is not None:
        end_s = job.start_s + job.limit_s
    return {
        "SubmitTime": iso(job.submit_s),
        "EligibleTime": iso(job.submit_s),
        "StartTime": iso(start_s),
        "EndTime": iso(end_s),
        "TimeLimit": clock(job.limit_s),
    }


def _nodes(job: Job, now_s: float) -> dict[str, str]:
    count = len(job.nodes or job.wanted) or 1
    return {
        "NumNodes": str(count),
        "NumCPUs": str(2 * count),
        "ReqNodes": "",
        "SchedNodes": ",".join(job.wanted) if is_planned(job, now_s) else "(null)",
        "NodeList": ",".join(job.nodes),
    }


def _state(job: Job) -> str:
    """Return the one word that squeue has for a state: the flag, where it is set."""
    is_completing = job.is_completing and job.state is not JobState.RUNNING
    return "COMPLETING" if is_completing else str(job.state)
