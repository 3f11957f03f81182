"""How a generation ended, from what its agent knows and what its world said."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from freetrain.exchange.ending import Ended, Ending

if TYPE_CHECKING:
    from freetrain.agent.actions import WriteEnding

_NOT_ELASTIC = "a program without freetrain.elastic needs elastic = false"


def drafted(action: WriteEnding, *, author: str, unix_s: float) -> Ending:
    """Return the ending as the agent alone knows it.

    Args:
        action: What it knows.
        author: Its lease's name.
        unix_s: Now.
    """
    return Ending(
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


def not_started(
    generation: int, error: Exception, *, author: str, unix_s: float
) -> Ending:
    """Return the ending of a world that could not be started."""
    return Ending(
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


def judged(ending: Ending, action: WriteEnding, *, elastic: bool) -> Ending:
    """Return *ending*, which has the world's own word by now, as it is to count.

    Programs that are not elastic leave no word but their exit status: whatever it
    is, one that was asked to stop and did has been rescaled.
    """
    ended = ending.ended
    if ended is Ended.KILLED and not elastic:
        ended = _by_exit_code(action)
    if action.is_done and ended not in {Ended.FAILED, Ended.DO_NOT_RESTART}:
        ended = Ended.FINISHED
    said = ending.message or _by_its_exit(action, ended, elastic=elastic)
    return replace(ending, ended=ended, message=said)


def _by_its_exit(action: WriteEnding, ended: Ended, *, elastic: bool) -> str:
    """Return what tells people why, of a world that left no word and failed."""
    if ended not in {Ended.KILLED, Ended.FAILED} or action.exit_code is None:
        return ""
    if action.was_asked or action.was_killed or action.lost_lease:
        return ""
    if elastic and action.exit_code == 0:
        return f"exit code 0, and no outcome; {_NOT_ELASTIC}"
    if action.exit_code < 0:
        return f"its launcher was ended by signal {-action.exit_code}"
    return f"exit code {action.exit_code}"


def _by_exit_code(action: WriteEnding) -> Ended:
    if action.was_killed or action.exit_code is None:
        return Ended.KILLED
    if action.was_asked:
        return Ended.RESCALED
    if action.exit_code == 0:
        return Ended.FINISHED
    return Ended.KILLED if action.lost_lease else Ended.FAILED
