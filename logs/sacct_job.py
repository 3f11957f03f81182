"""One line of a ``sacct`` dump as a job."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from logs.content import snippet
from logs.fields import write_number
from logs.lines import BadLineError
from logs.record import Ran
from logs.sacct_values import is_nothing, read_count, read_duration, read_time
from logs.trace import Job

if TYPE_CHECKING:
    from collections.abc import Mapping

_MINUTE_S = 60.0
_PRIORITY = re.compile(r"\d{1,18}", re.ASCII)


class SacctRecord(NamedTuple):
    """One line of a dump.

    Attributes:
        job: The job, its times in Unix time.
        running: Whether it still runs, and nothing tells for how long; then its
            ``run_s`` is 0.
        seen_s: The latest time that the line mentions.
    """

    job: Job
    running: bool
    seen_s: float


class _Times(NamedTuple):
    submit_s: float
    start_s: float | None
    end_s: float | None
    elapsed_s: float | None


def read_record(
    job_id: str, fields: Mapping[str, str], nodes: tuple[str, ...]
) -> SacctRecord:
    """Return what the line with *fields*, by column in lower case, says.

    Raises:
        BadLineError: A field cannot be read, or the job starts before its
            submission or ends before its start.
    """
    state = fields.get("state", "")
    times = _times(fields)
    if _never_started(fields, state, times):
        times = times._replace(start_s=None)
    running = times.start_s is not None and times.end_s is times.elapsed_s is None
    ran = Ran.of(
        start_s=times.start_s,
        run_s=0.0 if running else _run_s(times),
        units=_units(fields, nodes),
    )
    job = Job(
        job_id=job_id,
        submit_s=times.submit_s,
        start_s=ran.start_s,
        run_s=ran.run_s,
        units=ran.units,
        requested_s=_limit_s(fields),
        user=fields.get("user") or fields.get("uid", ""),
        partition=fields.get("partition", ""),
        state=state,
        priority=_priority(fields.get("priority", "")),
        nodes=nodes,
    )
    known_s = [time_s for time_s in times[:3] if time_s is not None]
    return SacctRecord(job, running, max(known_s))


def _times(fields: Mapping[str, str]) -> _Times:
    submit_s = read_time(fields["submit"], "Submit")
    if submit_s is None:
        why = f"found {snippet(fields['submit'])}; expected the time of submission"
        raise BadLineError("Submit", why)
    start_s = read_time(fields["start"], "Start")
    end_s = read_time(fields.get("end", ""), "End")
    if start_s is not None:
        _check_order("Start", fields["start"], start_s - submit_s, "Submit")
        if end_s is not None:
            _check_order("End", fields["end"], end_s - start_s, "Start")
    return _Times(submit_s, start_s, end_s, _elapsed_s(fields))


def _check_order(field: str, text: str, after_s: float, other: str) -> None:
    if after_s < 0:
        early = write_number(-after_s)
        why = f"found {snippet(text)}, {early} s before {other}; expected {other} first"
        raise BadLineError(field, why)


def _never_started(fields: Mapping[str, str], state: str, times: _Times) -> bool:
    """Tell whether Start is missing or no start at all.

    Slurm gives a job that was cancelled while it waited the time of the cancel
    as Start and End, and "None assigned" as its nodes; a pending job can carry
    the start that is planned.
    """
    if times.start_s is None or state.startswith("PENDING"):
        return True
    ran_no_time = times.start_s == times.end_s
    without_nodes = "nodelist" in fields and is_nothing(fields["nodelist"])
    return ran_no_time and (without_nodes or state.startswith("CANCELLED"))


def _run_s(times: _Times) -> float | None:
    """Return how long the job held its nodes; Elapsed leaves suspensions out."""
    if times.start_s is None:
        return None
    if times.end_s is None:
        return times.elapsed_s
    return times.end_s - times.start_s


def _elapsed_s(fields: Mapping[str, str]) -> float | None:
    if "elapsedraw" in fields:
        return read_duration(fields["elapsedraw"], "ElapsedRaw", bare_unit_s=1.0)
    return read_duration(fields.get("elapsed", ""), "Elapsed", bare_unit_s=1.0)


def _limit_s(fields: Mapping[str, str]) -> float | None:
    if "timelimit" in fields:
        return read_duration(fields["timelimit"], "Timelimit", bare_unit_s=_MINUTE_S)
    raw = fields.get("timelimitraw", "")
    return read_duration(raw, "TimelimitRaw", bare_unit_s=_MINUTE_S)


def _units(fields: Mapping[str, str], nodes: tuple[str, ...]) -> int:
    return (
        read_count(fields.get("nnodes", ""), "NNodes")
        or read_count(fields.get("allocnodes", ""), "AllocNodes")
        or len(nodes)
    )


def _priority(text: str) -> int | None:
    if is_nothing(text):
        return None
    if not _PRIORITY.fullmatch(text):
        raise BadLineError("Priority", f"found {snippet(text)}; expected a number")
    return int(text)
