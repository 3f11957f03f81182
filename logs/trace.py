"""A scheduler log as read: jobs, or idle intervals, typed.

Times are seconds since the log's own start (its t = 0), floats; ``unix_start_s``
says where that lies in Unix time, if the log says so.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import numpy as np
    from numpy.typing import NDArray


NO_VALUE = -1
"""Written for an unknown value in the Standard Workload Format and in CSV logs."""


@dataclass(frozen=True, slots=True)
class Job:
    """One job of a scheduler log.

    Attributes:
        job_id: The log's own name of the job, unique in the trace.
        submit_s: When it was submitted.
        start_s: When it started, or None where it never did (or the log does
            not say).
        run_s: How long it ran, 0 or more.
        units: Its size in the log's allocation units: whole nodes, or processors or
            GPUs where the log counts those (``JobTrace.units_per_node``).
        requested_s: The time limit it asked for, or None for no limit or none
            known.
        user: Empty where the log does not say.
        partition: Partition or queue, empty where the log does not say.
        state: The final state in the log's own words, empty where unknown.
        priority: Slurm's priority, or None where the log does not say.
        nodes: Names of the nodes it ran on, each once; empty where the log does not
            say. Several jobs may be on one node at once.
        node_count: How many nodes its GPUs are on, as evenly as can be; 0 where the log
            does not say, or counts no GPUs.
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
    node_count: int = 0
    swf: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True, slots=True)
class JobTrace:
    """A log of jobs on one machine.

    Attributes:
        source: The file, as the user named it.
        log_format: Name of its format, as in ``logs.read``.
        jobs: By submission, then in the log's own order.
        units: The machine's size in allocation units: the nodes that jobs name, else
            the header's, else the most that the jobs ever held at once.
        units_per_node: Units that make up one node; 1 where the log counts nodes.
        counts_gpus: Whether the units are GPUs: jobs are then packed on nodes as Slurm
            packs them, and share nodes.
        unix_start_s: Unix time of t = 0, or None where the log does not say.
        comments: Header comments, in order, without their comment mark.
        skipped_lines: Bad lines that were tolerated.
        cautions: What of the log was not used or may mislead, a sentence each; but for
            bad lines, which are counted above.

    Raises:
        ValueError: Jobs name nodes, and one that started does not name as many as it
            holds, or the machine has others. Either the names of a log count for all
            of its jobs, or for none: else a job without names would be given nodes
            that another is on, or nodes that do not exist.
    """

    source: str
    log_format: str
    jobs: tuple[Job, ...]
    units: int
    units_per_node: int = 1
    unix_start_s: float | None = None
    comments: tuple[str, ...] = ()
    skipped_lines: int = 0
    cautions: tuple[str, ...] = ()
    counts_gpus: bool = False

    def __post_init__(self) -> None:
        """Check that nodes are named for all jobs or for none."""
        named = named_nodes(self.jobs)
        if not named:
            return
        for job in self.jobs:
            names = len(job.nodes)
            holds = job.node_count if self.counts_gpus else job.units
            if job.start_s is not None and job.units and names != holds:
                why = f"names {names} nodes and holds {holds} units"
                raise ValueError(f"job {job.job_id!r} {why}, where jobs name nodes")
        per_node = self.units_per_node if self.counts_gpus else 1
        whole = (len(named) * per_node, per_node)
        if (self.units, self.units_per_node) != whole:
            raise ValueError(f"{len(named)} named nodes make {self.units} units")

    @property
    def names_nodes(self) -> bool:
        """Whether the log says on which nodes its jobs ran."""
        return any(job.nodes for job in self.jobs)


def named_nodes(jobs: Iterable[Job]) -> tuple[str, ...]:
    """Return the nodes that *jobs* name, each once, in natural order."""
    names = {name for nodes in {job.nodes for job in jobs} for name in nodes}
    return tuple(sorted(names, key=natural_key))


@dataclass(frozen=True, slots=True, eq=False)
class IdleTrace:
    """A log of idle intervals, each of a node, or of nodes that are idle together.

    The arrays have one entry an interval, ordered by start, then node. No node is idle
    twice at once; intervals of a node may touch.

    Attributes:
        source: The file, as the user named it.
        node_names: The machine's nodes in the log's order: by number where all
            names are numbers, in natural order otherwise.
        node: Index into ``node_names``, int32; the first of several nodes.
        start_s: First idle second, float64.
        end_s: First second the node is taken again, float64, above ``start_s``.
        nodes: How many nodes, consecutive in ``node_names``, int32; None for one each.
        log_end_s: When the log ends; None for with the last interval. All nodes may
            be taken for a long time before.
        unix_start_s: Unix time of t = 0, or None where the log does not say.
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
    log_end_s: float | None = None
    nodes: NDArray[np.int32] | None = None

    @property
    def span_s(self) -> float:
        """How long the log is, from t = 0 to its end: what every mean is taken over."""
        return max(self.log_end_s or 0.0, float(self.end_s.max(initial=0.0)))

    @property
    def widths(self) -> NDArray[np.int32]:
        """How many nodes each interval is of."""
        return self.node * 0 + 1 if self.nodes is None else self.nodes

    @property
    def holes(self) -> int:
        """How many idle intervals of single nodes there are."""
        return len(self.node) if self.nodes is None else int(self.nodes.sum())

    def rows(self) -> Iterator[tuple[int, float, float]]:
        """Yield each interval of each node by itself: node, start and end.

        By start, then node.
        """
        intervals = zip(
            self.node.tolist(),
            self.widths.tolist(),
            self.start_s.tolist(),
            self.end_s.tolist(),
            strict=True,
        )
        for first, nodes, start_s, end_s in intervals:
            for node in range(first, first + nodes):
                yield node, start_s, end_s


Trace = JobTrace | IdleTrace
"""One scheduler log, typed: what every reader of this package returns."""


class LogError(Exception):
    """A scheduler log cannot be used as asked."""


class UnreadableLogError(LogError):
    """A log, or a line of it, cannot be read.

    Attributes:
        path: The file, as the user named it.
        line_number: Line from 1, or None where the whole file is meant.
        field: The field's name, or None where the whole line is meant.
        why: What was found, and what was expected.
        can_skip: Whether only this one line is bad, so that a reader that
            tolerates one more bad line would go on.
    """

    def __init__(
        self,
        path: str,
        line_number: int | None,
        field: str | None,
        why: str,
        *,
        can_skip: bool = False,
    ) -> None:
        self.path = path
        self.line_number = line_number
        self.field = field
        self.why = why
        self.can_skip = can_skip
        line = f", line {line_number}" if line_number is not None else ""
        named = f", field {field!r}" if field is not None else ""
        super().__init__(f"{path}{line}{named}: {why}")


class UnusableLogError(LogError):
    """A readable log does not fit what was asked of it."""


_RUNS_OF_DIGITS = re.compile(r"(\d+)", re.ASCII)

NaturalKey = tuple[list[tuple[int, str]], str]
"""Sorts names of nodes as Slurm orders them."""


def natural_key(name: str) -> NaturalKey:
    """Return a key that sorts n2 before n10: runs of digits count by their value."""
    parts = _RUNS_OF_DIGITS.split(name)
    for place in range(1, len(parts), 2):
        parts[place] = parts[place].lstrip("0")
    return [(len(part) * (i % 2), part) for i, part in enumerate(parts)], name
