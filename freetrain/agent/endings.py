"""How generations ended, and whether their trainer is launched again.

An agent writes an ending for each generation that it heads, from what it knows itself
and the outcome that the world left. Every agent comes to the same verdict from them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from freetrain.state.files import GAVE_UP, Ended, GenerationEnding

if TYPE_CHECKING:
    from collections.abc import Iterable

    from freetrain.config.job import TrainerJob

_NOT_ELASTIC = "a program without freetrain.elastic needs elastic = false"
_LONGEST_REASON = 300


@dataclass(frozen=True, slots=True)
class WriteEnding:
    """The action of writing that a generation is over, with what the agent knows.

    Attributes:
        trainer: The trainer.
        generation: The generation.
        was_launched: Whether its world was ever started.
        was_asked: Whether the world had been asked to stop.
        was_killed: Whether this agent killed it.
        lost_lease: Whether it lost a lease.
        is_done: Whether the trainer's work is done.
        exit_code: The launcher's; None where no agent saw it.
        age_s: How long ago it was launched; None where it was not, or elsewhere.
        why: The reason that this agent knows, where the world left no word.
    """

    trainer: str
    generation: int
    was_launched: bool = True
    was_asked: bool = False
    was_killed: bool = False
    lost_lease: bool = False
    is_done: bool = False
    exit_code: int | None = None
    age_s: float | None = None
    why: str = ""


def draft_ending(
    action: WriteEnding, *, author: str, unix_s: float
) -> GenerationEnding:
    """Return the ending as the agent alone knows it.

    Args:
        action: What it knows.
        author: Its lease's name.
        unix_s: Now.
    """
    return GenerationEnding(
        generation=action.generation,
        ended=Ended.KILLED if action.was_launched else Ended.NOT_LAUNCHED,
        was_asked=action.was_asked,
        lost_lease=action.lost_lease,
        exit_code=action.exit_code,
        step=0,
        committed_step=0,
        message=action.why,
        started_s=None if action.age_s is None else unix_s - action.age_s,
        ended_s=unix_s,
        author=author,
    )


def failed_launch(
    generation: int, error: Exception, *, author: str, unix_s: float
) -> GenerationEnding:
    """Return the ending of a world that could not be started."""
    return GenerationEnding(
        generation=generation,
        ended=Ended.FAILED,
        was_asked=False,
        lost_lease=False,
        exit_code=None,
        step=0,
        committed_step=0,
        message=str(error),
        started_s=None,
        ended_s=unix_s,
        author=author,
    )


def complete_ending(
    ending: GenerationEnding, action: WriteEnding, *, elastic: bool
) -> GenerationEnding:
    """Return *ending*, which has the world's outcome by now, as it is to count.

    Programs that are not elastic leave nothing but their exit status: whatever it
    is, a program that was asked to stop and did has been rescaled.
    """
    ended = ending.ended
    if ended is Ended.KILLED and not elastic:
        ended = _by_exit_code(action)
    if action.is_done and ended not in {Ended.FAILED, Ended.DO_NOT_RESTART}:
        ended = Ended.FINISHED
    message = ending.message or _exit_message(action, ended, elastic=elastic)
    return replace(ending, ended=ended, message=message)


def _by_exit_code(action: WriteEnding) -> Ended:
    if action.was_killed or action.exit_code is None:
        return Ended.KILLED
    if action.was_asked:
        return Ended.RESCALED
    if action.exit_code == 0:
        return Ended.FINISHED
    return Ended.KILLED if action.lost_lease else Ended.FAILED


def _exit_message(action: WriteEnding, ended: Ended, *, elastic: bool) -> str:
    """Return the reason for people, of a world that left no outcome and failed."""
    if ended not in {Ended.KILLED, Ended.FAILED} or action.exit_code is None:
        return ""
    if action.was_asked or action.was_killed or action.lost_lease:
        return ""
    if elastic and action.exit_code == 0:
        return f"exit code 0, and no outcome; {_NOT_ELASTIC}"
    if action.exit_code < 0:
        return f"its launcher was ended by signal {-action.exit_code}"
    return f"exit code {action.exit_code}"


# ----------------------------------------------------------------------
# Whether a trainer is launched again


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a trainer is launched again.

    Attributes:
        is_final: Whether it is not.
        reason: Why not, for people.
        wait_s: How long after its last end it is launched again: the back-off.
    """

    is_final: bool = False
    reason: str = ""
    wait_s: float = 0.0


MAY_RUN = Verdict()


def judge(endings: Iterable[GenerationEnding], job: TrainerJob) -> Verdict:
    """Return whether the trainer whose generations ended so is launched again.

    Args:
        endings: Since the last generation without leases, in order of generation.
        job: The trainer.
    """
    failures, committed_step, last = 0, 0, None
    for last in endings:
        if last.ended in {Ended.FINISHED, Ended.DO_NOT_RESTART}:
            return Verdict(is_final=True, reason=_reason(str(last.ended), last.message))
        if last.committed_step > committed_step or _must_have_committed(last, job):
            failures, committed_step = 0, last.committed_step
        failures += is_failure(last)
    if last is None or not failures:
        return MAY_RUN
    if job.restart.is_used_up(failures):
        reason = f"{GAVE_UP}, {failures} in a row without a commit"
        return Verdict(is_final=True, reason=_reason(reason, last.message))
    return Verdict(wait_s=job.restart.pause_s(failures) if is_failure(last) else 0.0)


def is_failure(ending: GenerationEnding) -> bool:
    """Tell whether *ending* counts against the program.

    Losing a lease does not, and neither does being killed for not stopping in time.
    A stop that was not asked for does, else a program that stops by itself at once
    would be started for ever.
    """
    if ending.lost_lease or ending.ended is Ended.NOT_LAUNCHED:
        return False
    return ending.ended is Ended.FAILED or not ending.was_asked


def _must_have_committed(ending: GenerationEnding, job: TrainerJob) -> bool:
    if ending.started_s is None:
        return False
    return job.must_have_committed(ending.ended_s - ending.started_s)


def _reason(reason: str, message: str) -> str:
    return f"{reason}: {message}"[:_LONGEST_REASON] if message else reason
