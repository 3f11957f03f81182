"""What the readers of job logs have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from logs.content import snippet
from logs.lines import BadLineError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from logs.trace import Job


class Ran(NamedTuple):
    """Whether, when and on how much a job ran.

    A job that never ran stays in the trace, with no start and no run time: it
    was submitted, and a user waited for it. No schedule gives it nodes. That is
    a job whose run time is unknown, or that held nothing.

    Attributes:
        start_s: When it started, or None where it never did or nobody knows.
        run_s: How long it ran; 0 where it never did.
        units: What it held, or asked for; 0 where nobody knows.
    """

    start_s: float | None
    run_s: float
    units: int

    @classmethod
    def of(
        cls, *, start_s: float | None, run_s: float | None, units: int | None
    ) -> Ran:
        """Return what a log's three fields say, None where they know nothing."""
        if run_s is None or not units:
            return cls(None, 0.0, units or 0)
        return cls(start_s, run_s, units)


class JobIds:
    """The jobs of one log so far, each with its line."""

    def __init__(self) -> None:
        self._lines: dict[str, int] = {}

    def has(self, job_id: str) -> bool:
        """Tell whether the job was seen."""
        return job_id in self._lines

    def add(self, job_id: str, line_number: int, *, field: str) -> None:
        """Remember a job.

        Raises:
            BadLineError: It was there before.
        """
        before = self._lines.setdefault(job_id, line_number)
        if before != line_number:
            why = f"job {snippet(job_id)} is on line {before} already"
            raise BadLineError(field, f"{why}; expected each once")


def by_submission(jobs: Iterable[Job]) -> tuple[Job, ...]:
    """Return *jobs* by submission, then in the order given."""
    return tuple(sorted(jobs, key=lambda job: job.submit_s))
