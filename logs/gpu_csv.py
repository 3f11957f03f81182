"""CSV of GPU jobs, as traces of GPU clusters are published: a line a job.

Written, and read from these columns in any order, beside any others::

    job_id,user,gpu_num,node_num,submit_time,start_time,end_time,time_limit

A comment may say ``gpus_per_node=8``, and how many nodes there are (``32 nodes``).
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from logs.csv_tables import (
    JobTable,
    TableHead,
    known_numbers,
    quote_field,
    read_head,
    write_head,
)
from logs.format import (
    BadLineError,
    GpuLogFormat,
    Tolerance,
    actual_run,
    by_submission,
    machine_gpus,
    not_negative,
    on_gpus,
    read_number,
    whole,
    write_number,
)
from logs.sacct import NodeLists, is_nothing, read_time
from logs.trace import Job, JobTrace, UnreadableLogError, UnusableLogError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import TextIO

    from logs.format import Content

_COLUMNS = {
    "job_id": ("job_id", "job"),
    "gpu_num": ("gpu_num", "num_gpu", "gpus"),
    "submit_time": ("submit_time", "submission_time", "submit_s"),
    "start_time": ("start_time", "start_s"),
    "end_time": ("end_time", "end_s"),
    "duration": ("duration", "run_s"),
    "node_num": ("node_num", "num_node", "node_count"),
    "node_list": ("node_list", "machines"),
    "time_limit": ("time_limit", "req_s"),
    "user": ("user",),
    "partition": ("partition", "vc"),
    "state": ("state", "status"),
}
"""What each value is called here, and in traces that are public."""

_NEEDED = ("job_id", "gpu_num", "submit_time")

_NUMBERS = ("gpu_num", "node_num", "duration", "time_limit")

_GPUS_PER_NODE = re.compile(r"\bgpus_per_node=(\d{1,4})\b", re.ASCII)

_UNIX_S = 1e9
"""From here on a number of seconds is Unix time; a log that counts from its own start
is shorter than the 31 years."""


class GpuCsv(GpuLogFormat):
    """A table of jobs, in GPUs."""

    name = "gpu-csv"
    expected = (
        "jobs of GPUs (first line job_id,gpu_num,submit_time,start_time,end_time)"
    )
    holds = JobTrace

    def begins_with(self, line: str) -> bool:
        """Tell whether *line* names the columns that are needed."""
        columns = {column.strip() for column in line.split(",")}
        return all(not columns.isdisjoint(_COLUMNS[name]) for name in _NEEDED)

    def read(self, content: Content, *, skip_bad: int = 0) -> JobTrace:
        """Read a table of GPU jobs; an empty field, or ``-1``, means unknown.

        Times are date-times, UTC unless they say otherwise, Unix time, or seconds since
        the log's own start; with the first two, t = 0 is the first submission. A job
        has run from its start to its end, else for ``duration``. Where ``node_num`` is
        missing it had as few nodes as hold its GPUs; ``node_list`` names them, as Slurm
        does, and of GPUs on a node no log needs to say which.

        Raises:
            UnreadableLogError: A line cannot be read, there is no job, or nothing says
                how many GPUs a node has.
        """
        head = read_head(content, needed=(), optional=None)
        per_node = self._gpus_per_node or _stated_gpus(head)
        if not per_node:
            why = "nothing says how many GPUs a node has; say --gpus-per-node N"
            raise UnreadableLogError(content.source, None, None, why)
        tolerance = Tolerance(content.source, skip_bad)
        node_lists = NodeLists("node_list", len(content.raw))
        job_of = partial(_job, node_lists=node_lists, per_node=per_node)
        found = JobTable(head, _COLUMNS, job_of).read(content, tolerance)
        first_s = min(job.submit_s for job in found)
        zero_s = first_s if first_s >= _UNIX_S else 0.0
        named = all(job.nodes for job in found if job.start_s is not None)
        jobs = by_submission(_moved(job, zero_s, named=named) for job in found)
        return JobTrace(
            source=content.source,
            log_format=self.name,
            jobs=jobs,
            units=machine_gpus(head.machine_nodes, jobs, per_node),
            units_per_node=per_node,
            counts_gpus=True,
            unix_start_s=zero_s or head.unix_start_s,
            comments=head.comments,
            skipped_lines=tolerance.skipped,
        )

    def write(self, trace: JobTrace, stream: TextIO) -> None:
        """Write *trace*, times in seconds since its start.

        Raises:
            UnusableLogError: It counts no GPUs.
        """
        if not trace.counts_gpus:
            raise UnusableLogError(
                f"{trace.source} counts no GPUs, and cannot be written as {self.name}; "
                f"nothing was written. Say --gpus-per-node N where it can be read so."
            )
        columns = ["job_id", "user", "gpu_num", "node_num", "submit_time"]
        columns += ["start_time", "end_time", "duration", "time_limit"]
        columns += ["node_list"] * trace.names_nodes
        said = f"gpus_per_node={trace.units_per_node}"
        comments = tuple(c for c in trace.comments if not _GPUS_PER_NODE.search(c))
        head = TableHead((said, *comments), tuple(columns), 0)
        nodes = trace.units // trace.units_per_node
        write_head(stream, head, machine_nodes=nodes, unix_start_s=trace.unix_start_s)
        for job in trace.jobs:
            end_s = None if job.start_s is None else job.start_s + job.run_s
            fields = [
                quote_field(job.job_id),
                quote_field(job.user),
                str(job.units),
                str(job.node_count or ""),
                write_number(job.submit_s),
                *(
                    "" if value is None else write_number(value)
                    for value in (job.start_s, end_s, job.run_s, job.requested_s)
                ),
            ]
            fields += [quote_field(",".join(job.nodes))] * trace.names_nodes
            stream.write(",".join(fields) + "\n")


def _stated_gpus(head: TableHead) -> int | None:
    found = (_GPUS_PER_NODE.search(comment) for comment in head.comments)
    return next((int(gpus[1]) for gpus in found if gpus), None)


def _moved(job: Job, zero_s: float, *, named: bool) -> Job:
    start_s = None if job.start_s is None else job.start_s - zero_s
    nodes = job.nodes if named else ()
    return replace(job, submit_s=job.submit_s - zero_s, start_s=start_s, nodes=nodes)


def _job(
    job_id: str, known: Mapping[str, str], node_lists: NodeLists, per_node: int
) -> Job:
    nodes = node_lists.names(known.get("node_list", ""))
    gpu_num, node_num, run_s, requested_s = known_numbers(known, _NUMBERS)
    gpus = whole(gpu_num or 0.0, "gpu_num")
    count = whole(node_num or 0.0, "node_num") or len(nodes) or -(-gpus // per_node)
    if nodes and count != len(nodes):
        why = f"found {len(nodes)} nodes; expected {count}, as node_num says"
        raise BadLineError("node_list", why)
    submit_s = _time(known, "submit_time")
    start_s, end_s = _time(known, "start_time"), _time(known, "end_time")
    if submit_s is None:
        raise BadLineError("submit_time", "found nothing; expected a time")
    if start_s is not None and end_s is not None:
        run_s = end_s - start_s
    _check_order(submit_s, start_s, run_s)
    start_s, run_s, units = actual_run(start_s=start_s, run_s=run_s, units=count)
    job = Job(
        job_id=job_id,
        submit_s=submit_s,
        start_s=start_s,
        run_s=run_s,
        units=units,
        requested_s=requested_s,
        user=known.get("user", ""),
        partition=known.get("partition", ""),
        state=known.get("state", ""),
        nodes=nodes,
    )
    return on_gpus(job, gpus, per_node=per_node, field="gpu_num")


def _check_order(submit_s: float, start_s: float | None, run_s: float | None) -> None:
    if start_s is not None and start_s < submit_s:
        why = f"it is {write_number(submit_s - start_s)} s before the submission"
        raise BadLineError("start_time", why)
    if run_s is not None and run_s < 0:
        why = f"it is {write_number(-run_s)} s before the start"
        raise BadLineError("end_time", why)


def _time(known: Mapping[str, str], name: str) -> float | None:
    """Return a number of seconds, or a date-time with a blank or a T in it."""
    text = known.get(name, "")
    if is_nothing(text):
        return None
    if "-" in text[1:] and ":" in text:
        return read_time(text.replace(" ", "T", 1), name)
    return not_negative(read_number(text, name, "a time"), name)
