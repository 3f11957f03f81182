"""The end of a fragment: the last commit, the outcome, and failing as one."""

from __future__ import annotations

import sys
import traceback
from typing import TYPE_CHECKING

from freetrain.elastic.errors import GenerationTakenError, NotCommittedError
from freetrain.elastic.notice import warn
from freetrain.elastic.outcome import Ending, Outcome, write_outcome
from freetrain.elastic.stop import Stop

if TYPE_CHECKING:
    from freetrain.elastic.fragment import Fragment
    from freetrain.elastic.setting import Setting
    from freetrain.elastic.world import World

_LONGEST_MESSAGE = 2000


def end(setting: Setting, fragment: Fragment) -> None:
    """Commit what is not committed, agree on how it ended, write it; collective.

    Raises:
        NotCommittedError: The training is over, but its end could not be kept.
    """
    committed_step, is_superseded = fragment.commit_last()
    ending = _ending(fragment, is_superseded=is_superseded)
    lost = fragment.position.step - committed_step
    if ending is Ending.FINISHED and lost:
        raise NotCommittedError(
            f"the training is over, but its last {lost} steps could not be kept. "
            f"{setting.run.path} has the checkpoint of step {committed_step}. Make "
            f"room there, and run the program again: it goes on from that step."
        )
    message = f"the last {lost} steps were not committed" if lost else ""
    # Whoever gave up says why; anybody may write, and the first one counts.
    if fragment.gave_up or (fragment.rank == 0 and ending is not Ending.DO_NOT_RESTART):
        _write(
            setting,
            Outcome(
                ending=ending,
                generation=fragment.generation,
                step=fragment.position.step,
                committed_step=committed_step,
                message=fragment.gave_up or message,
                t=setting.clock.unix_s(),
            ),
        )


def fail(
    setting: Setting,
    world: World | None,
    fragment: Fragment | None,
    error: BaseException,
) -> None:
    """Write the outcome "failed", and end the other ranks.

    In a world of more than one this does not return: the others may wait for this
    rank for ever, so all are ended by ``MPI_Abort``, after the traceback.
    """
    generation = fragment.generation if fragment else setting.launch.generation
    if generation and not isinstance(error, GenerationTakenError):
        step = fragment.position.step if fragment else 0
        outcome = Outcome(
            ending=Ending.FAILED,
            generation=generation,
            step=step,
            committed_step=fragment.committed_step if fragment else 0,
            message=f"{type(error).__name__}: {error}"[:_LONGEST_MESSAGE],
            t=setting.clock.unix_s(),
        )
        _write(setting, outcome)
    if world is not None and world.size > 1:
        traceback.print_exception(error)
        sys.stdout.flush()
        sys.stderr.flush()
        world.abort(1)


def _ending(fragment: Fragment, *, is_superseded: bool) -> Ending:
    if is_superseded:
        return Ending.SUPERSEDED
    if fragment.stop is Stop.FOR_GOOD:
        return Ending.DO_NOT_RESTART
    if fragment.stop is Stop.RESCALE and not fragment.finished:
        return Ending.RESCALED
    return Ending.FINISHED


def _write(setting: Setting, outcome: Outcome) -> None:
    try:
        write_outcome(setting.run, outcome)
    except OSError as error:
        warn(
            f"the outcome {outcome.ending!s} of generation {outcome.generation} could "
            f"not be written: {error}. The launcher has only the exit code to go by."
        )
