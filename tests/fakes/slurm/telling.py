"""The fake squeue, scontrol, sdiag and sinfo: recordings, with our jobs in them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tests.slurm_library.clusters import recorded
from tests.slurm_library.rendering import squeue_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.fakes.slurm.state import FakeJob, FakeState

_PLAN = {"SchedNodes": "(null)", "StartTime": "N/A"}
_IN_BACKFILL = (
    "Backfilling stats (WARNING: data obtained in the middle of backfilling execution.)"
)


def squeue(state: FakeState, argv: Sequence[str], *, mid_backfill: bool) -> str:
    """Tell the jobs asked for."""
    shows_all = "--states=all" in argv
    names = [word[7:].split(",") for word in argv if word.startswith("--name=")]
    jobs = [
        job
        for job in state.jobs
        if (shows_all or job.state in {"PENDING", "RUNNING"})
        and (not names or job.columns["Name"] in names[0])
    ]
    rows = [_row(job) for job in jobs]
    if "--array" not in argv:
        rows = _with_waiting_tasks_together(rows)
    if mid_backfill:
        rows = [row | _PLAN if row["State"] == "PENDING" else row for row in rows]
    return squeue_text(rows)


def scontrol(state: FakeState, argv: Sequence[str]) -> str:
    """Tell nodes, reservations, partitions or the configuration."""
    asked = argv[-1]
    if asked != "nodes":
        return recorded("quiet", f"{asked}.txt")
    idle = set(state.idle_nodes)
    lines = recorded("quiet", "nodes.txt").splitlines(keepends=True)
    return "".join(line if _name(line) in idle else _allocated(line) for line in lines)


def sdiag(state: FakeState, *, mid_backfill: bool) -> str:
    """Tell the statistics, taken now."""
    text = recorded("quiet", "sdiag-before.txt")
    text = re.sub(r"(sdiag output at .*)\(\d+\)", rf"\1({state.now_s})", text, count=1)
    return text.replace("Backfilling stats", _IN_BACKFILL) if mid_backfill else text


def sinfo() -> str:
    """Tell the release."""
    return recorded("quiet", "version.txt")


def _row(job: FakeJob) -> dict[str, str]:
    ids = {"JobID": str(job.job_id), "JobArrayID": job.display_id}
    if job.array_id:
        ids |= {"ArrayJobID": str(job.array_id), "ArrayTaskID": str(job.task)}
    return job.columns | ids


def _with_waiting_tasks_together(rows: list[dict[str, str]]) -> list[dict[str, str]]:
    together: dict[str, list[dict[str, str]]] = {}
    for row in rows:
        waits = row["State"] == "PENDING" and "ArrayJobID" in row
        key = row["ArrayJobID"] if waits else row["JobArrayID"]
        together.setdefault(key, []).append(row)
    return [
        _merged(group) if len(group) > 1 else group[0] for group in together.values()
    ]


def _merged(rows: list[dict[str, str]]) -> dict[str, str]:
    tasks = ",".join(row["ArrayTaskID"] for row in rows)
    array = rows[0]["ArrayJobID"]
    return rows[0] | {
        "JobID": array,
        "JobArrayID": f"{array}_[{tasks}]",
        "ArrayTaskID": tasks,
    }


def _name(line: str) -> str:
    return line.split(" ", 1)[0].removeprefix("NodeName=")


def _allocated(line: str) -> str:
    return line.replace("State=IDLE", "State=ALLOCATED").replace(
        "CPUAlloc=0", "CPUAlloc=2"
    )
