"""Whether a trainer is to be launched again, by how its generations ended."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from freetrain.exchange.assigned import GAVE_UP
from freetrain.exchange.ending import Ended, Ending

if TYPE_CHECKING:
    from collections.abc import Iterable

    from freetrain.jobfile.job import TrainerJob

_LONGEST_REASON = 300


@dataclass(frozen=True, slots=True)
class Verdict:
    """What becomes of a trainer.

    Attributes:
        is_final: Whether it is not launched any more.
        reason: Why not, for people.
        wait_s: How long after its last end it is launched again.
    """

    is_final: bool = False
    reason: str = ""
    wait_s: float = 0.0


GO_ON = Verdict()


def judge(endings: Iterable[Ending], job: TrainerJob) -> Verdict:
    """Return what becomes of the trainer whose generations ended so.

    Args:
        endings: Since it was last told to run nowhere, in order of generation.
        job: The trainer.
    """
    failures, committed_step, last = 0, 0, None
    for last in endings:
        if last.ended in {Ended.FINISHED, Ended.DO_NOT_RESTART}:
            return Verdict(is_final=True, reason=_said(str(last.ended), last.message))
        if last.committed_step > committed_step or _must_have_committed(last, job):
            failures, committed_step = 0, last.committed_step
        failures += is_failure(last)
    if last is None or not failures:
        return GO_ON
    if job.restart.is_used_up(failures):
        reason = f"{GAVE_UP}, {failures} in a row without a commit"
        return Verdict(is_final=True, reason=_said(reason, last.message))
    return Verdict(wait_s=job.restart.pause_s(failures) if is_failure(last) else 0.0)


def is_failure(ending: Ending) -> bool:
    """Tell whether *ending* counts against the program.

    Losing a lease does not, and neither does being killed for not stopping in time.
    A stop that nobody asked for does, else a program that stops by itself at once
    would be started for ever.
    """
    if ending.lost_lease or ending.ended is Ended.NOT_LAUNCHED:
        return False
    return ending.ended is Ended.FAILED or not ending.was_asked


def _must_have_committed(ending: Ending, job: TrainerJob) -> bool:
    if ending.started_s is None:
        return False
    return job.must_have_committed(ending.ended_s - ending.started_s)


def _said(reason: str, message: str) -> str:
    return f"{reason}: {message}"[:_LONGEST_REASON] if message else reason
