"""Jobs, from ``squeue --Format``.

Everything that a user can type (names, comments, features, …) may hold spaces,
quotes, separators and line breaks. Those columns therefore come first, at a fixed
width in *bytes* (Slurm pads and cuts with printf, and we run it with LC_ALL=C);
what follows is Slurm's own, as long as it needs to be, each value with a ``|``
behind it, up to the end of the line. SchedNodes would be cut at 20 bytes by
default; a width of 0, which a bare suffix means, never cuts (_print_str in
src/squeue/print.c, 21.08 to 26.05). The header line is asked for: an empty queue
still answers something, and a field that a release does not know is noticed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from slurm.errors import UnreadableOutputError
from slurm.fields import check_whole
from slurm.records import JobRecord
from slurm.states import job_states
from slurm.values import (
    count,
    duration_s,
    text_or_empty,
    unix_time,
    whole_number,
    words,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

TYPED_WIDTHS: Mapping[str, int] = {
    "Name": 100,
    "Comment": 200,
    "Feature": 100,
    "Reason": 60,
    "Dependency": 60,
    "QOS": 40,
    "tres-per-node": 80,
    "tres-per-job": 80,
}
"""Columns that users can fill, and their widths in bytes."""

TOLD = (
    "JobID",
    "JobArrayID",
    "ArrayJobID",
    "ArrayTaskID",
    "UserID",
    "UserName",
    "Partition",
    "State",
    "PriorityLong",
    "Nice",
    "SubmitTime",
    "EligibleTime",
    "StartTime",
    "EndTime",
    "TimeLimit",
    "NumNodes",
    "NumCPUs",
    "Reservation",
    "ReqNodes",
    "SchedNodes",
    "NodeList",
)
"""Columns that Slurm fills, as wide as they need to be."""

_COLUMNS = (*TYPED_WIDTHS, *TOLD)
_MARK = b"|"


def squeue_argv(*, names: Sequence[str] = (), all_states: bool = False) -> list[str]:
    """Return the command that shows the queue.

    Args:
        names: Only jobs of these names, each array task on a line of its own;
            by default all jobs, waiting tasks of an array on one line.
        all_states: Jobs that have ended too, as long as Slurm remembers them.

    Raises:
        ValueError: A name that squeue would read as several, or as none.
    """
    for name in names:
        if not name or "," in name or "\0" in name:
            raise ValueError(f"squeue cannot look for a job named {name!r}")
    fixed = [f"{field}:{width}|" for field, width in TYPED_WIDTHS.items()]
    told = [f"{field}:|" for field in TOLD]
    argv = ["squeue", "--all", "--local", f"--Format={','.join(fixed + told)}"]
    if names:
        argv += ["--array", f"--name={','.join(names)}"]
    if all_states:
        argv.append("--states=all")
    return argv


def parse_squeue(text: str) -> tuple[JobRecord, ...]:
    """Return the jobs that ``squeue`` told, in its order.

    Raises:
        UnreadableOutputError: Not such an answer, empty, or cut short.
    """
    check_whole(text, "squeue")
    rows = _rows(text.encode("utf-8", "surrogateescape"))
    next(rows)
    return tuple(_job(line_number, row) for line_number, row in rows)


def table(text: str) -> tuple[dict[str, str], ...]:
    """Return the header and then each row, as text by column, unread.

    Raises:
        UnreadableOutputError: Not such an answer, empty, or cut short.
    """
    check_whole(text, "squeue")
    rows = _rows(text.encode("utf-8", "surrogateescape"))
    return tuple(dict(zip(_COLUMNS, row, strict=True)) for _, row in rows)


def _rows(output: bytes) -> Iterator[tuple[int, list[str]]]:
    """Yield the values of each row, the header's first, with its line number."""
    at, line_number = 0, 1
    while at < len(output):
        values, tail_at = _fixed_columns(output, at, line_number)
        end = output.find(b"\n", tail_at)
        told = output[tail_at:end].split(_MARK)
        if end < 0 or len(told) != len(TOLD) + 1 or told[-1]:
            raise _unreadable(output, at, line_number, f"{len(TOLD)} values expected")
        values += [_text(value) for value in told[:-1]]
        yield line_number, values
        line_number += output.count(b"\n", at, end + 1)
        at = end + 1


def _fixed_columns(output: bytes, at: int, line_number: int) -> tuple[list[str], int]:
    """Return the values of the fixed columns from *at*, and where they end."""
    values = []
    start = at
    for field, width in TYPED_WIDTHS.items():
        end = start + width
        if output[end : end + 1] != _MARK:
            raise _unreadable(output, at, line_number, f"{field} is not {width} wide")
        values.append(_text(output[start:end].rstrip(b" ")))
        start = end + 1
    return values, start


def _text(value: bytes) -> str:
    return value.decode("utf-8", "replace")


def _job(line_number: int, row: list[str]) -> JobRecord:
    try:
        return _read_job(dict(zip(_COLUMNS, row, strict=True)))
    except ValueError as error:
        shown = "|".join(row)
        raise UnreadableOutputError("squeue", line_number, shown, str(error)) from error


def _read_job(row: dict[str, str]) -> JobRecord:
    known, unknown = job_states([row["State"]])
    task = text_or_empty(row["ArrayTaskID"])
    one_task = task.isdecimal()
    return JobRecord(
        job_id=int(row["JobID"]),
        display_id=row["JobArrayID"],
        states=known,
        unknown_states=unknown,
        array_job_id=int(row["ArrayJobID"]) if task else None,
        array_task_id=int(task) if one_task else None,
        array_tasks="" if one_task else task,
        user=row["UserName"],
        uid=whole_number(row["UserID"]),
        name=row["Name"],
        comment=text_or_empty(row["Comment"]),
        partitions=words(row["Partition"]),
        reason=text_or_empty(row["Reason"]),
        priority=whole_number(row["PriorityLong"]),
        nice=whole_number(row["Nice"]) or 0,
        submit_s=unix_time(row["SubmitTime"]),
        eligible_s=unix_time(row["EligibleTime"]),
        start_s=unix_time(row["StartTime"]),
        end_s=unix_time(row["EndTime"]),
        limit_s=duration_s(row["TimeLimit"]),
        planned_nodes=text_or_empty(row["SchedNodes"]),
        nodes=text_or_empty(row["NodeList"]),
        requested_nodes=text_or_empty(row["ReqNodes"]),
        node_count=count(row["NumNodes"]),
        cpu_count=count(row["NumCPUs"]),
        features=text_or_empty(row["Feature"]),
        gres_per_node=text_or_empty(row["tres-per-node"]),
        gres_per_job=text_or_empty(row["tres-per-job"]),
        dependency=text_or_empty(row["Dependency"]),
        reservation=text_or_empty(row["Reservation"]),
        qos=text_or_empty(row["QOS"]),
    )


def _unreadable(output: bytes, at: int, number: int, why: str) -> UnreadableOutputError:
    end = output.find(b"\n", at)
    line = output[at : end if end >= 0 else len(output)]
    return UnreadableOutputError("squeue", number, _text(line), why)
