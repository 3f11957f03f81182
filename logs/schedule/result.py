"""What a log's jobs become on a machine."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from logs.schedule.layout import Layout
    from logs.schedule.machine import Running
    from logs.schedule.plans import PlannedStarts
    from logs.schedule.recorded import OverCommitment
    from logs.trace import JobTrace


class Method(StrEnum):
    """How jobs get their places."""

    RECORDED = "recorded"
    EASY = "easy"
    SLURM = "slurm"


class Reason(StrEnum):
    """Why a job has no place in a schedule."""

    NO_UNITS = "it needs no units"
    NEVER_RAN = "it never ran in the log"
    NO_START = "the log does not tell when it started"
    TOO_WIDE = "it needs more units than the machine has"


@dataclass(frozen=True, slots=True)
class Refused:
    """A job that was left out, which nobody waited for.

    Attributes:
        job: Its index in the trace.
        reason: Why.
    """

    job: int
    reason: Reason


@dataclass(frozen=True, slots=True, eq=False)
class Schedule:
    """A trace's jobs on a machine.

    Attributes:
        trace: The log.
        method: How its jobs were placed.
        layout: The machine.
        placed: Every job that ran, in the order of starting; ``job`` is its
            index in ``trace.jobs``.
        refused: The jobs that did not, by index.
        over_commitment: What the log's jobs held beyond the machine; nothing
            under the simulated schedulers.
        planned: What was known to be planned for idle nodes, and when; nothing
            under ``recorded``.
    """

    trace: JobTrace
    method: Method
    layout: Layout
    placed: tuple[Running, ...]
    refused: tuple[Refused, ...]
    over_commitment: OverCommitment
    planned: PlannedStarts

    @property
    def end_s(self) -> float:
        """When the last job ends, 0 where none ran."""
        return max((job.end_s for job in self.placed), default=0.0)
