"""A scheduler log as read: jobs, or idle intervals, typed.

Times are seconds since the log's own start (its t = 0), floats; ``unix_start_s``
says where that lies in Unix time, where the log tells.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

NO_VALUE = -1
"""What the Standard Workload Format writes where it knows nothing."""


@dataclass(frozen=True, slots=True)
class Job:
    """One job of a scheduler log.

    Attributes:
        job_id: The log's own name of the job, unique in the trace.
        submit_s: When it was submitted.
        start_s: When it started, or None where it never did (or the log does
            not tell).
        run_s: How long it ran, 0 or more.
        units: What it was given, in the log's allocation units: whole nodes, or
            processors where the log counts those (``JobTrace.units_per_node``).
        requested_s: The time limit it asked for, or None for no limit or none
            known.
        user: Who submitted it, empty where the log does not tell.
        partition: Partition or queue, empty where the log does not tell.
        state: The final state in the log's own words, empty where unknown.
        priority: Slurm's priority, or None where the log does not tell.
        nodes: Names of the nodes it ran on, empty where the log does not tell.
        swf: Standard Workload Format fields that no other attribute carries,
            by field name; absent fields are ``NO_VALUE``.
    """

    job_id: str
    submit_s: float
    start_s: float | None
    run_s: float
    units: int
    requested_s: float | None
    user: str = ""
    partition: str = ""
    state: str = ""
    priority: int | None = None
    nodes: tuple[str, ...] = ()
    swf: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True, slots=True)
class JobTrace:
    """A log of jobs on one machine.

    Attributes:
        source: The file, as the user named it.
        log_format: What it was recognised as: ``swf``, ``sacct``, ``jobs-csv``.
        jobs: By submission, then in the log's own order.
        units: The machine's size in allocation units: the header's, else the
            largest that the jobs ever held at once.
        units_per_node: Units that make up one node; 1 where the log counts nodes.
        unix_start_s: Unix time of t = 0, or None where the log does not tell.
        comments: Header comments, in order, without their comment mark.
        skipped_lines: Bad lines that were tolerated.
    """

    source: str
    log_format: str
    jobs: tuple[Job, ...]
    units: int
    units_per_node: int = 1
    unix_start_s: float | None = None
    comments: tuple[str, ...] = ()
    skipped_lines: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class IdleTrace:
    """A log of idle intervals: node × from when until when.

    The three arrays have one entry an interval, ordered by start, then node.
    No node is idle twice at once; intervals of a node may touch.

    Attributes:
        source: The file, as the user named it.
        node_names: The machine's nodes in the log's order: by number where all
            names are numbers, in natural order otherwise.
        node: Index into ``node_names``, int32.
        start_s: First idle second, float64.
        end_s: First second the node is taken again, float64, above ``start_s``.
        unix_start_s: Unix time of t = 0, or None where the log does not tell.
        comments: Header comments, in order, without their comment mark.
        skipped_lines: Bad lines that were tolerated.
    """

    source: str
    node_names: tuple[str, ...]
    node: NDArray[np.int32]
    start_s: NDArray[np.float64]
    end_s: NDArray[np.float64]
    unix_start_s: float | None = None
    comments: tuple[str, ...] = ()
    skipped_lines: int = field(default=0)


Trace = JobTrace | IdleTrace
"""One scheduler log, typed: what every reader of this package returns."""
