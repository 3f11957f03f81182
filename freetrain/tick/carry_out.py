"""Carrying out what was decided, in order, each effect between two records of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from freetrain.broker.actions import Assign, Cancel, Submit, intent_of
from freetrain.tick.assigning import assign
from freetrain.tick.cancelling import cancel
from freetrain.tick.requests import lease_request
from freetrain.tick.script import lease_script, write_lease_script
from freetrain.tick.steering import kept_off, sooner
from freetrain.tick.submitting import submit
from slurm.errors import SlurmError, SlurmRefusedError

if TYPE_CHECKING:
    from freetrain.broker.actions import Action
    from freetrain.tick.decision import Decided
    from freetrain.tick.observe import Observed
    from freetrain.tick.run import Run
    from slurm.batch import LeaseRequest


@dataclass(slots=True)
class Done:
    """What was carried out so far.

    Attributes:
        assigned: Generations created.
        ended: Jobs ended, or told to leave.
        asked: Leases asked for.
        requests: What sbatch was asked, or in a dry run would be.
        problems: What went wrong, for people. Hostile text.
        error: What stopped all further commands, None for nothing.
    """

    assigned: int = 0
    ended: int = 0
    asked: int = 0
    requests: list[LeaseRequest] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    error: SlurmError | None = None


def carry_out(run: Run, observed: Observed, decided: Decided) -> Done:
    """Do what was decided, as far as Slurm lets us.

    A refusal concerns one action; no answer concerns all that come after. Where
    somebody else made a generation first, no other is made until the next tick:
    they may count on what that one gives up.

    Raises:
        StoreError: The state cannot be written; what was done is found again.
        OSError: A file cannot be written.
    """
    done = Done()
    may_assign = True
    for action in decided.decision.actions:
        if isinstance(action, Assign):
            may_assign = may_assign and _assign(run, observed, action, done)
        elif done.error is None:
            _call(run, observed, decided, action, done)
    return done


def _assign(run: Run, observed: Observed, action: Assign, done: Done) -> bool:
    if run.is_dry or assign(run, observed, action.assignment):
        done.assigned += 1
        return True
    name = action.assignment.trainer
    done.problems.append(f"somebody else gave {name} a new generation first")
    return False


def _call(
    run: Run, observed: Observed, decided: Decided, action: Action, done: Done
) -> None:
    try:
        if isinstance(action, Cancel):
            done.ended += _end(run, observed, action)
        elif isinstance(action, Submit):
            _submit(run, observed, decided, action, done)
    except (SlurmRefusedError, ValueError) as error:
        done.problems.append(str(error))
    except SlurmError as error:
        done.error = error


def _end(run: Run, observed: Observed, action: Cancel) -> int:
    return len(action.display_ids) if run.is_dry else cancel(run, observed, action)


def _submit(
    run: Run, observed: Observed, decided: Decided, action: Submit, done: Done
) -> None:
    excluded = kept_off(decided, action)
    intent = intent_of(action, run.outside.new_uuid(), observed.now_s)
    if excluded:
        intent = sooner(intent)
    requirement = decided.shapes[action.shape]
    request = lease_request(run, observed, intent, requirement, excluded=excluded)
    if not run.is_dry:
        _prepare(run)
        done.problems += filter(None, [submit(run, intent, request)])
    done.requests.append(request)
    done.asked += intent.tasks


def _prepare(run: Run) -> None:
    """Have all ready that a lease needs the moment it starts."""
    for folder in (run.folder.leases, run.folder.outputs):
        folder.mkdir(mode=0o700, exist_ok=True)
    text = lease_script(run.outside, run.site)
    with run.effect("writing lease.sh"):
        write_lease_script(run.folder.lease_script, text)
