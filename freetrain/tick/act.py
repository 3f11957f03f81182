"""Carry out what was decided: assign generations, end leases, submit leases, tidy up.

Each action is an effect between two records: what is recorded before it lets the next
ticks find it, whatever happens to this one; what is recorded after it tells its result.
"""

from __future__ import annotations

import math
import shutil
from collections import Counter as Count
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import chain, pairwise
from typing import TYPE_CHECKING

from freetrain.broker.actions import (
    Assign,
    EndLeases,
    EndReason,
    Submit,
    intent_of,
    marked_ending,
)
from freetrain.broker.lease import IntentOutcome, submitted_leases
from freetrain.broker.pool import Refusal
from freetrain.state.files import (
    BROKER,
    Assigned,
    AssignedLease,
    create_assigned,
    generation_name,
    generations,
    lease_name,
)
from freetrain.state.tables import (
    Event,
    EventKind,
    TrainerState,
    add_events,
    forget_histories,
    forget_intents,
    forget_leases,
    has_old_histories,
    has_old_intents,
    old_leases,
    put_intents,
    put_leases,
)
from freetrain.tick.lease_job import (
    lease_script,
    output_of,
    request_for,
    write_lease_script,
)
from freetrain.tick.observe import grace_s
from slurm.batch import MAX_VALUE_BYTES, LeaseRequest
from slurm.errors import (
    RequestsSpentError,
    SlurmError,
    SlurmRefusedError,
)
from slurm.records import JobKey, collapse

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from freetrain.broker.actions import Action
    from freetrain.broker.belief import DuplicateJob
    from freetrain.broker.decide import Look
    from freetrain.broker.lease import Assignment, Intent, Lease, LeaseKey
    from freetrain.state.files import TrainerDir
    from freetrain.tick.context import TickContext
    from freetrain.tick.observe import Observed
    from freetrain.tick.plan import Decided
    from freetrain.tick.trainers import TickTrainer


@dataclass(slots=True)
class ActionResults:
    """What was carried out so far.

    Attributes:
        assigned: Generations created.
        ended: Jobs ended, or told to leave.
        asked: Leases asked for.
        requests: What sbatch was asked, or in a dry run would be.
        problems: What went wrong, for people. Hostile text.
        error: Why no further command is run; None where Slurm answers.
    """

    assigned: int = 0
    ended: int = 0
    asked: int = 0
    requests: list[LeaseRequest] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    error: SlurmError | None = None


def carry_out(
    context: TickContext, observed: Observed, decided: Decided
) -> ActionResults:
    """Carry out the actions in order, as far as Slurm answers.

    A refusal concerns one action; no answer concerns all that come after. Where an
    agent made a generation first, no other is made until the next tick: it may count
    on leases that this one would have given up.

    Raises:
        StoreError: The state cannot be written; what was done is found again.
        OSError: A file cannot be written.
    """
    done = ActionResults()
    may_assign = True
    for action in decided.decision.actions:
        if isinstance(action, Assign):
            may_assign = may_assign and _assign(
                context, observed, action.assignment, done
            )
        elif done.error is None:
            _call_slurm(context, observed, decided, action, done)
    return done


def _call_slurm(
    context: TickContext,
    observed: Observed,
    decided: Decided,
    action: Action,
    done: ActionResults,
) -> None:
    try:
        if isinstance(action, EndLeases):
            done.ended += (
                len(action.display_ids)
                if context.is_dry
                else end_leases(context, observed, action)
            )
        elif isinstance(action, Submit):
            _submit(context, observed, decided, action, done)
    except (SlurmRefusedError, ValueError) as error:
        done.problems.append(str(error))
    except SlurmError as error:
        done.error = error


# Assigning leases to a trainer: an immutable file for each generation.


def _assign(
    context: TickContext,
    observed: Observed,
    assignment: Assignment,
    done: ActionResults,
) -> bool:
    """Create the file of *assignment*; tell whether it is ours."""
    name = assignment.trainer
    if not context.is_dry:
        trainer = next(t for t in observed.trainers if t.row.name == name)
        leases = {lease.key: lease for lease in observed.belief.leases}
        folder = context.folder.trainer(name)
        folder.create()
        with context.effect(f"assigning {assignment.generation} of {name}"):
            is_ours = create_assigned(folder, _assigned(assignment, trainer, leases))
        if not is_ours:
            done.problems.append(f"somebody else gave {name} a new generation first")
            return False
    done.assigned += 1
    return True


def _assigned(
    assignment: Assignment,
    trainer: TickTrainer,
    leases: Mapping[LeaseKey, Lease],
) -> Assigned:
    """Return the content of the file of *assignment*.

    The head stays where it is, so that users who watch its output go on watching; else
    it is the lease that lasts longest, since losing the head costs most.
    """
    before = () if trainer.newest is None else trainer.newest.members
    stay = [member.key for member in before if member.key in assignment.leases]
    new = assignment.leases - set(stay)
    if before and stay and before[0].key == stay[0]:
        order = [*stay, *_longest_first(new, leases)]
    else:
        order = _longest_first({*stay, *new}, leases)
    return Assigned(
        trainer=assignment.trainer,
        generation=assignment.generation,
        members=tuple(_member(leases[key]) for key in order),
        created_s=assignment.created_s,
        author=BROKER,
        reason=_reason(trainer, len(before), len(order)),
    )


def _longest_first(
    keys: Iterable[LeaseKey], leases: Mapping[LeaseKey, Lease]
) -> list[LeaseKey]:
    return sorted(keys, key=lambda key: (-(leases[key].end_s or 0.0), key))


def _member(lease: Lease) -> AssignedLease:
    if lease.job_id is None:  # Slurm reports node and number together
        raise ValueError(f"lease {lease.key} runs without a number")
    return AssignedLease(
        key=lease.key,
        job_id=lease.job_id,
        display_id=lease.display_id,
        node=lease.node,
        end_s=lease.end_s,
    )


def _reason(trainer: TickTrainer, before: int, after: int) -> str:
    if after == 0:
        outcome = trainer.outcome
        state = trainer.row.state if outcome is None else outcome.state
        is_wanted = state is TrainerState.WANTED
        return "its nodes are gone" if is_wanted else f"it is {state}"
    nodes = f"{after} node{'' if after == 1 else 's'}"
    if before == 0:
        return f"starts on {nodes}"
    if before == after:
        return f"moves, on {nodes}"
    return f"{'grows' if after > before else 'shrinks'} from {before} to {nodes}"


# Ending leases, or telling them to leave: only jobs that this tick's snapshot showed.

NOTICE = "TERM"
"""The signal on which an agent commits and leaves; Slurm itself sends it."""


def end_leases(context: TickContext, observed: Observed, end: EndLeases) -> int:
    """Carry out *end* and record it; return the number of jobs.

    A kill in between repeats it at the next tick, which is harmless.

    Raises:
        SlurmError: It may not have happened; nothing was recorded.
        StoreError: It happened, and could not be recorded.
    """
    seen = {lease.key: lease for lease in observed.belief.leases if lease.missed == 0}
    leases = [seen[key] for key in end.leases if key in seen]
    duplicates = [
        duplicate
        for duplicate in observed.belief.extras
        if duplicate.display_id in end.display_ids
    ]
    known = {lease.display_id for lease in leases}
    known |= {duplicate.display_id for duplicate in duplicates}
    jobs = [
        JobKey(_number(display_id, leases), display_id)
        for display_id in end.display_ids
        if display_id in known
    ]
    if not jobs:
        return 0
    with context.effect(f"ending {end.why.name} {len(jobs)}"):
        if end.by_notice:
            context.backend.signal(jobs, NOTICE)
        else:
            context.backend.cancel(jobs)
    with context.writing("what was ended") as state:
        put_leases(
            state, [marked_ending(lease, end, observed.now_s) for lease in leases]
        )
        add_events(state, _end_events(observed, end, leases, duplicates))
    return len(jobs)


def _end_events(
    observed: Observed,
    end: EndLeases,
    leases: Iterable[Lease],
    duplicates: Iterable[DuplicateJob],
) -> Iterator[Event]:
    """Yield for each submission how many ended, and the leases that failed to start.

    A lease whose agent never came has failed to start; that it is ended again because
    it stays says nothing new.
    """
    kind = EventKind.GAVE_UP if end.why is EndReason.SURPLUS else EventKind.YIELDED
    uuids = Count(lease.key.uuid for lease in leases)
    uuids += Count(duplicate.uuid for duplicate in duplicates)
    for uuid, count in uuids.items():
        yield Event(observed.now_s, kind, uuid, count, str(end.why))
    if end.why is not EndReason.UNHEARD:
        return
    for lease in leases:
        if lease.key in observed.heartbeats.never_heard and lease.cancel_s is None:
            failed, name = EventKind.FAILED_START, lease_name(lease.key)
            yield Event(observed.now_s, failed, name, 1, str(end.why))


def _number(display_id: str, leases: list[Lease]) -> int:
    """Return the raw number; the array's where Slurm has given the task none."""
    for lease in leases:
        if lease.display_id == display_id and lease.job_id is not None:
            return lease.job_id
    return int(display_id.partition("_")[0])


# Submitting leases: the intent first, then sbatch, then its result.

_MOST_DETAIL = 500

EXCLUDING_WAIT_S = 180.0
"""A few cycles of backfill, which is 30 s and more by default."""


def _submit(
    context: TickContext,
    observed: Observed,
    decided: Decided,
    action: Submit,
    done: ActionResults,
) -> None:
    excluded = nodes_to_exclude(decided, action)
    intent = intent_of(action, context.environment.new_uuid(), observed.now_s)
    if excluded:
        intent = with_short_wait(intent)
    request = request_for(
        context.site,
        context.folder,
        intent,
        decided.shapes[action.shape],
        grace_s=grace_s(observed.config, observed.partition, observed.limits.mode),
    )
    request = replace(request, excluded=excluded)
    if not context.is_dry:
        _prepare(context)
        done.problems += filter(None, [_sbatch(context, intent, request)])
    done.requests.append(request)
    done.asked += intent.tasks


def _prepare(context: TickContext) -> None:
    """Write all that a lease needs at the moment it starts."""
    for folder in (context.folder.leases, context.folder.outputs):
        folder.mkdir(mode=0o700, exist_ok=True)
    text = lease_script(context.environment, context.site)
    with context.effect("writing lease.sh"):
        write_lease_script(context.folder.lease_script, text)


def _sbatch(context: TickContext, intent: Intent, request: LeaseRequest) -> str:
    """Submit *request* under *intent*; return why Slurm refused, or an empty text.

    The intent is recorded before, so that whatever happens the jobs are found by name.
    Where no answer comes it stays open, and the next ticks look the name up.

    Raises:
        SlurmError: It may or may not have happened.
        StoreError: It could not be recorded; before sbatch, nothing was submitted.
    """
    asked = Event(intent.created_s, EventKind.ASKED, intent.uuid, intent.tasks)
    with context.writing("intent") as state:
        put_intents(state, [intent])
        add_events(state, [asked])
    try:
        with context.effect("sbatch"):
            submitted = context.backend.submit(request)
    except (SlurmRefusedError, ValueError) as error:  # the latter: Slurm was not asked
        _record_refusal(context, intent, str(error))
        return str(error)
    except RequestsSpentError:
        with context.writing("intent not sent") as state:
            put_intents(state, [replace(intent, outcome=IntentOutcome.ABANDONED)])
        raise
    taken = replace(intent, outcome=IntentOutcome.SUBMITTED, job_id=submitted.job_id)
    with context.writing("submission") as state:
        put_intents(state, [taken])
        put_leases(state, submitted_leases(taken, submitted.job_id))
    return ""


def _record_refusal(context: TickContext, intent: Intent, why: str) -> None:
    refused = replace(intent, outcome=IntentOutcome.REFUSED, detail=why[:_MOST_DETAIL])
    failed = Event(intent.created_s, EventKind.FAILED_START, intent.uuid, 0, why)
    with context.writing("refusal") as state:
        put_intents(state, [refused])
        add_events(state, [failed])


def nodes_to_exclude(decided: Decided, action: Submit) -> str:
    """Return the nodes for ``sbatch --exclude`` of *action*, as a hostlist.

    Slurm chooses the node of a lease. Excluded are, in this order:

    * holes that end before the lease would, as a job is booked there, which Slurm may
      not know;
    * nodes left to waiting jobs, which may come after leases in Slurm's order, or may
      need the node only if another job ended;
    * where forecasts tell holes apart, holes that the plan left idle: the next tick
      would give the lease up and ask for another.

    Nodes that come free later are not excluded.

    Returns:
        Empty where any hole will do. Of a list that is too long for Slurm as many as
        it takes: those it would give first.
    """
    look = decided.look
    places = {hole.node: place for place, hole in enumerate(look.holes[action.shape])}

    def in_slurms_order(nodes: Iterable[str]) -> list[str]:
        return sorted(nodes, key=lambda name: (places.get(name, math.inf), name))

    left = {**look.claims.idle, **look.claims.kept_free.nodes}
    groups = _booked(look, action), left, _left_idle(decided, action)
    nodes = chain.from_iterable(map(in_slurms_order, groups))
    return _longest_hostlist(list(dict.fromkeys(nodes)))


def _booked(look: Look, action: Submit) -> set[str]:
    """Return the holes that end before the lease would, as a job is booked there."""
    until_s = look.now_s + 60.0 * action.limit_min
    return {
        hole.node
        for hole in look.holes[action.shape]
        if hole.node in look.claims.booked_s
        and hole.end_s is not None
        and hole.end_s < until_s
    }


def _left_idle(decided: Decided, action: Submit) -> set[str]:
    """Return the holes, those beyond the cap as well, that the plan left idle."""
    forecasts, decision = decided.forecasts, decided.decision
    if forecasts is None or forecasts.forecast.is_learning:
        return set()
    pool = decision.classes.pool
    idle = {node.name for node in pool.nodes if node.lease is None}
    capped = {name for name, why in pool.refused.items() if why is Refusal.LEASE_CAP}
    wanted = {
        node
        for request in decision.wanted.requests
        if request.shape == action.shape
        for node in request.nodes
    }
    return (idle | capped) - wanted


def _longest_hostlist(nodes: list[str]) -> str:
    """Return as many of the first *nodes* as Slurm takes; empty where it takes none."""

    def is_short(text: str) -> bool:
        return len(text) <= MAX_VALUE_BYTES

    try:
        everything = collapse(nodes)
        if is_short(everything):
            return everything
        fits, too_many = 0, len(nodes)
        while too_many - fits > 1:
            half = (fits + too_many) // 2
            if is_short(collapse(nodes[:half])):
                fits = half
            else:
                too_many = half
        return collapse(nodes[:fits])
    except ValueError:
        return ""


def with_short_wait(intent: Intent) -> Intent:
    """Return *intent* with a deadline that keeps its leases from waiting for long.

    While they wait, the next plans count on them: a lease that finds its nodes taken
    would hold up a trainer that could have had others by then.
    """
    latest_s = intent.created_s + 60.0 * intent.limit_min + EXCLUDING_WAIT_S
    return replace(intent, deadline_s=min(intent.deadline_s, latest_s))


# Removing what is long over: a little in each tick, and only what no reader can need.

KEPT_S = 3 * 86_400.0
"""Leases are kept so long after their deadline; much longer than any can last."""

KEPT_GENERATIONS = 200
"""Generations of each trainer that are kept, however old.

Agents look back fifty at most, ticks a hundred.
"""

_MOST_LEASES = 50
_MOST_GENERATIONS = 50


def tidy(context: TickContext, observed: Observed) -> str:
    """Remove some of what is long over; return what kept it from being removed.

    The earlier of two clocks counts: a clock that is ahead must not make things old.

    Raises:
        StoreError: The state cannot be written.
    """
    before_s = min(observed.now_s, context.environment.now_s()) - KEPT_S
    try:
        _remove_leases(context, before_s)
        _remove_generations(context, observed.trainers, before_s)
    except OSError as error:
        return f"old files stay, since one cannot be removed: {error}"
    return ""


def _remove_leases(context: TickContext, before_s: float) -> None:
    old = old_leases(context.state, before_s=before_s, most=_MOST_LEASES)
    for key, job_id in old.items():
        with context.effect("removing a lease's files"):
            _remove_lease_files(context, key, job_id, before_s)
    has_rows = (has_old_intents, has_old_histories)
    if not old and not any(has(context.state, before_s=before_s) for has in has_rows):
        return
    with context.writing("what is forgotten") as state:
        forget_leases(state, old)
        forget_intents(state, before_s=before_s)
        forget_histories(state, before_s=before_s)


def _remove_lease_files(
    context: TickContext, key: LeaseKey, job_id: int | None, before_s: float
) -> None:
    _remove_folder(context.folder.lease(key).path)
    if job_id is None:
        return
    output = output_of(context.folder, job_id)
    with suppress(FileNotFoundError):
        if output.stat().st_mtime < before_s:  # numbers of jobs are used again
            output.unlink()


def _remove_generations(
    context: TickContext, trainers: Iterable[TickTrainer], before_s: float
) -> None:
    left = _MOST_GENERATIONS
    for trainer in trainers:
        newest = trainer.newest
        if newest is None or newest.generation <= KEPT_GENERATIONS:
            continue
        folder = context.folder.trainer(trainer.row.name)
        old = _old_generations(folder, trainer, before_s)[:left]
        left -= len(old)
        for generation in old:
            with context.effect("removing a generation's files"):
                _remove_generation(folder, generation, trainer)


def _old_generations(
    folder: TrainerDir, trainer: TickTrainer, before_s: float
) -> list[int]:
    """Return the generations of which no lease can be left, the oldest first.

    A generation was over, or about to be, when the next one was made.
    """
    found = generations(folder.assignments)
    removable = found[: max(0, len(found) - KEPT_GENERATIONS + 1)]
    old: list[int] = []
    for generation, following in pairwise(removable[: _MOST_GENERATIONS + 1]):
        made_s = folder.assignment(following).stat().st_mtime
        if generation > trainer.row.reported_generation or made_s >= before_s:
            break
        old.append(generation)
    return old


def _remove_generation(
    folder: TrainerDir, generation: int, trainer: TickTrainer
) -> None:
    """Remove a generation's files, last the one by which it is found.

    Endings tell how long a trainer has run: a trainer with a limit keeps them.
    """
    name = generation_name(generation)
    _remove_folder(folder.world(generation))
    (folder.logs / f"{name}.log").unlink(missing_ok=True)
    for notice in folder.notices.glob(f"{name}.*"):
        notice.unlink(missing_ok=True)
    job = trainer.job
    if job is not None and job.work.time_limit_s is None:
        folder.ending(generation).unlink(missing_ok=True)
    folder.assignment(generation).unlink(missing_ok=True)


def _remove_folder(path: Path) -> None:
    with suppress(FileNotFoundError):
        shutil.rmtree(path)
