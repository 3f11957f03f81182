"""Assignment files: from the broker's leases to members that can be reached."""

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
    Member,
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
    forget_intents,
    forget_leases,
    forget_pasts,
    has_old_intents,
    has_old_pasts,
    old_leases,
    put_intents,
    put_leases,
)
from freetrain.tick.lease_job import (
    lease_request,
    lease_script,
    output_of,
    write_lease_script,
)
from slurm.batch import MAX_VALUE_BYTES, LeaseRequest
from slurm.errors import (
    RequestsSpentError,
    SlurmError,
    SlurmRefusedError,
)
from slurm.hostlist import collapse
from slurm.records import JobKey

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from freetrain.broker.actions import Action
    from freetrain.broker.belief import DuplicateJob
    from freetrain.broker.decide import Look
    from freetrain.broker.lease import Assignment, Intent, Lease, LeaseKey
    from freetrain.broker.pool import Pool
    from freetrain.state.files import TrainerDir
    from freetrain.state.tables import OldLease
    from freetrain.tick.context import TickContext
    from freetrain.tick.observe import Observed
    from freetrain.tick.plan import Decided
    from freetrain.tick.trainers import ObservedTrainer


# ----------------------------------------------------------------------
# Assignment files: from the broker's leases to members that can be reached.


def assign(context: TickContext, observed: Observed, assignment: Assignment) -> bool:
    """Create the file of *assignment*; tell whether it is ours.

    Raises:
        OSError: It could not be written.
    """
    trainer = next(o for o in observed.trainers if o.row.name == assignment.trainer)
    leases = {lease.key: lease for lease in observed.belief.leases}
    assigned = assigned_of(assignment, trainer, leases)
    folder = context.folder.trainer(assignment.trainer)
    folder.create()
    with context.effect(f"assigning {assignment.generation} of {assignment.trainer}"):
        return create_assigned(folder, assigned)


def assigned_of(
    assignment: Assignment, trainer: ObservedTrainer, leases: Mapping[LeaseKey, Lease]
) -> Assigned:
    """Return the file of *assignment*.

    The head stays where it is, so that whoever watches a world goes on watching;
    else it is the lease that lasts longest, since a head that goes costs most.
    """
    before = () if trainer.newest is None else trainer.newest.members
    stay = [m.key for m in before if m.key in assignment.leases]
    new = sorted(
        assignment.leases - set(stay), key=lambda key: (-_end_s(leases[key]), key)
    )
    if not before or not stay or before[0].key != stay[0]:
        order = sorted([*stay, *new], key=lambda key: (-_end_s(leases[key]), key))
    else:
        order = [*stay, *new]
    return Assigned(
        trainer=assignment.trainer,
        generation=assignment.generation,
        members=tuple(_member(leases[key]) for key in order),
        created_s=assignment.created_s,
        author=BROKER,
        reason=_reason(trainer, len(before), len(order)),
    )


def _member(lease: Lease) -> Member:
    if lease.job_id is None:  # Slurm told its node, and its number with it
        raise ValueError(f"lease {lease.key} runs without a number")
    return Member(
        key=lease.key,
        job_id=lease.job_id,
        display_id=lease.display_id,
        node=lease.node,
        end_s=lease.end_s,
    )


def _end_s(lease: Lease) -> float:
    return lease.end_s or 0.0


def _reason(trainer: ObservedTrainer, before: int, after: int) -> str:
    if after == 0:
        ended = trainer.outcome
        state = trainer.row.state if ended is None else ended.state
        return (
            "its nodes are gone" if state is TrainerState.WANTED else f"it is {state}"
        )
    nodes = f"{after} node{'' if after == 1 else 's'}"
    if before == 0:
        return f"starts on {nodes}"
    if before == after:
        return f"moves, on {nodes}"
    return f"{'grows' if after > before else 'shrinks'} from {before} to {nodes}"


# ----------------------------------------------------------------------
# Ending leases, or telling them to leave: only what a look of this tick showed.

NOTICE = "TERM"
"""What tells an agent to commit and leave; it is what Slurm itself sends."""


def cancel(context: TickContext, observed: Observed, what: EndLeases) -> int:
    """Carry out *what* and write it down; return how many leases it was about.

    A kill in between repeats it at the next tick, which is harmless.

    Raises:
        SlurmError: It may not have happened; nothing was written down.
        StoreError: It happened, and could not be written down.
    """
    seen = {one.key: one for one in observed.belief.leases if one.missed == 0}
    leases = [seen[key] for key in what.leases if key in seen]
    display_ids = {one.display_id for one in leases}
    extras = [
        one for one in observed.belief.extras if one.display_id in what.display_ids
    ]
    known = display_ids | {one.display_id for one in extras}
    keys = [
        JobKey(_number(name, leases), name)
        for name in what.display_ids
        if name in known
    ]
    if not keys:
        return 0
    with context.effect(f"ending {what.why.name} {len(keys)}"):
        if what.by_notice:
            context.backend.signal(keys, NOTICE)
        else:
            context.backend.cancel(keys)
    now_s = observed.now_s
    with context.writing("what was ended") as state:
        put_leases(state, [marked_ending(lease, what, now_s) for lease in leases])
        add_events(state, _events(observed, what, leases, extras))
    return len(keys)


def _events(
    observed: Observed,
    what: EndLeases,
    leases: Iterable[Lease],
    extras: Iterable[DuplicateJob],
) -> Iterator[Event]:
    """Yield what is to be remembered: of each submission how many, and who failed.

    A lease whose agent never came has failed to start; that it is ended again
    because it stays says nothing new.
    """
    kind = EventKind.GAVE_UP if what.why is EndReason.SURPLUS else EventKind.YIELDED
    uuids = Count(one.key.uuid for one in leases) + Count(one.uuid for one in extras)
    for uuid, count in uuids.items():
        yield Event(observed.now_s, kind, uuid, count, str(what.why))
    for lease in leases:
        is_absent = (
            lease.key in observed.heartbeats.never_heard and lease.cancel_s is None
        )
        if what.why is EndReason.UNHEARD and is_absent:
            failed = EventKind.FAILED_START
            name = lease_name(lease.key)
            yield Event(observed.now_s, failed, name, 1, str(what.why))


def _number(display_id: str, leases: list[Lease]) -> int:
    """Return the raw number; the array's where Slurm has given the task none."""
    for lease in leases:
        if lease.display_id == display_id and lease.job_id is not None:
            return lease.job_id
    return int(display_id.partition("_")[0])


# ----------------------------------------------------------------------
# From a decision to submit, to what sbatch is asked.


# ----------------------------------------------------------------------
# The batch script of leases: it runs the agent, and sweeps after it.


# ----------------------------------------------------------------------
# Which idle nodes leases are kept off, so that they start where they are wanted.

PATIENCE_S = 180.0
"""A few cycles of backfill, which is 30 s and more by default."""


def nodes_to_exclude(decided: Decided, action: Submit) -> str:
    """Return the holes that the leases of *action* are not meant for, as a hostlist.

    Slurm chooses the node of a lease. It must not choose one that the lease would
    hold for longer than we know, and Slurm does not, that it may; nor one that is left
    to somebody, who may come after leases in Slurm's order, or not wait for it yet;
    nor, where holes are told apart by what is expected of them, one that the plan left
    alone: the next tick would give the lease up and ask for another. Nodes that come
    free later are not kept from.

    Returns:
        Empty where any hole will do. Of a list that is too long for Slurm as many as
        it takes, in this order, and the first in Slurm's, which it would give first.
    """
    look, shape = decided.look, action.shape
    places = {hole.node: place for place, hole in enumerate(look.holes[shape])}

    def in_order(nodes: Iterable[str]) -> list[str]:
        return sorted(nodes, key=lambda name: (places.get(name, math.inf), name))

    left = {**look.claims.idle, **look.claims.kept_free.nodes}
    groups = _booked(look, action), left, _left_alone(decided, action)
    return _listed(list(dict.fromkeys(chain.from_iterable(map(in_order, groups)))))


def _listed(nodes: list[str]) -> str:
    """Return the first of *nodes* as Slurm takes them; empty where it takes none."""
    try:
        every = collapse(nodes)
        if _is_short(every):
            return every
        few, many = 0, len(nodes)  # the first few are a short list
        while many - few > 1:
            half = (few + many) // 2
            is_short = _is_short(collapse(nodes[:half]))
            few, many = (half, many) if is_short else (few, half)
        return collapse(nodes[:few])
    except ValueError:
        return ""


def _is_short(text: str) -> bool:
    return len(text) <= MAX_VALUE_BYTES


def _booked(look: Look, action: Submit) -> set[str]:
    """Return the holes that are over before the lease, as somebody is booked there."""
    until_s = look.now_s + 60.0 * action.limit_min
    return {
        hole.node
        for hole in look.holes[action.shape]
        if hole.node in look.claims.booked_s
        and hole.end_s is not None
        and hole.end_s < until_s
    }


def _left_alone(decided: Decided, action: Submit) -> set[str]:
    outlook, decision = decided.outlook, decided.decision
    if outlook is None or outlook.forecast.is_learning:
        return set()
    requests = (one for one in decision.wanted.requests if one.shape == action.shape)
    wanted = {node for one in requests for node in one.nodes}
    return _idle(decision.classes.pool) - wanted


def _idle(pool: Pool) -> set[str]:
    """Return the holes that a lease could start on, those beyond the cap as well."""
    capped = (name for name, why in pool.refused.items() if why is Refusal.LEASE_CAP)
    return {node.name for node in pool.nodes if node.lease is None}.union(capped)


def with_short_wait(intent: Intent) -> Intent:
    """Return *intent* with a deadline that does not let its leases wait for long.

    They keep off the nodes that were not wanted when they were asked for, and count
    as what the next plans ask: one that finds its nodes taken would hold up a trainer
    that could have others by then.
    """
    latest_s = intent.created_s + 60.0 * intent.limit_min + PATIENCE_S
    return replace(intent, deadline_s=min(intent.deadline_s, latest_s))


# ----------------------------------------------------------------------
# Submitting leases: the intent first, then sbatch, then what became of it.

_MOST_DETAIL = 500


def submit(context: TickContext, intent: Intent, request: LeaseRequest) -> str:
    """Submit *request* under *intent*; return why Slurm refused, empty where not.

    The intent is written down before, so that whatever happens the jobs are found
    by name. Where no answer comes it stays open, and the next ticks look.

    Raises:
        SlurmError: It may or may not have happened.
        StoreError: It could not be written down; before, nothing was submitted.
    """
    asked = Event(intent.created_s, EventKind.ASKED, intent.uuid, intent.tasks)
    with context.writing("intent") as state:
        put_intents(state, [intent])
        add_events(state, [asked])
    try:
        with context.effect("sbatch"):
            submitted = context.backend.submit(request)
    except SlurmRefusedError as error:
        _refused(context, intent, str(error))
        return str(error)
    except ValueError as error:  # Slurm was not asked
        _refused(context, intent, str(error))
        return str(error)
    except RequestsSpentError:
        _write(context, replace(intent, outcome=IntentOutcome.ABANDONED))
        raise
    taken = replace(intent, outcome=IntentOutcome.SUBMITTED, job_id=submitted.job_id)
    with context.writing("submission") as state:
        put_intents(state, [taken])
        put_leases(state, submitted_leases(taken, submitted.job_id))
    return ""


def _refused(context: TickContext, intent: Intent, why: str) -> None:
    refused = replace(intent, outcome=IntentOutcome.REFUSED, detail=why[:_MOST_DETAIL])
    failed = Event(intent.created_s, EventKind.FAILED_START, intent.uuid, 0, why)
    with context.writing("refusal") as state:
        put_intents(state, [refused])
        add_events(state, [failed])


def _write(context: TickContext, intent: Intent) -> None:
    with context.writing("intent not sent") as state:
        put_intents(state, [intent])


# ----------------------------------------------------------------------
# Carrying out what was decided, in order, each effect between two records of it.


@dataclass(slots=True)
class ActionResults:
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


def carry_out(
    context: TickContext, observed: Observed, decided: Decided
) -> ActionResults:
    """Do what was decided, as far as Slurm lets us.

    A refusal concerns one action; no answer concerns all that come after. Where
    somebody else made a generation first, no other is made until the next tick:
    they may count on what that one gives up.

    Raises:
        StoreError: The state cannot be written; what was done is found again.
        OSError: A file cannot be written.
    """
    done = ActionResults()
    may_assign = True
    for action in decided.decision.actions:
        if isinstance(action, Assign):
            may_assign = may_assign and _assign(context, observed, action, done)
        elif done.error is None:
            _call(context, observed, decided, action, done)
    return done


def _assign(
    context: TickContext, observed: Observed, action: Assign, done: ActionResults
) -> bool:
    if context.is_dry or assign(context, observed, action.assignment):
        done.assigned += 1
        return True
    name = action.assignment.trainer
    done.problems.append(f"somebody else gave {name} a new generation first")
    return False


def _call(
    context: TickContext,
    observed: Observed,
    decided: Decided,
    action: Action,
    done: ActionResults,
) -> None:
    try:
        if isinstance(action, EndLeases):
            done.ended += _end(context, observed, action)
        elif isinstance(action, Submit):
            _submit(context, observed, decided, action, done)
    except (SlurmRefusedError, ValueError) as error:
        done.problems.append(str(error))
    except SlurmError as error:
        done.error = error


def _end(context: TickContext, observed: Observed, action: EndLeases) -> int:
    return (
        len(action.display_ids) if context.is_dry else cancel(context, observed, action)
    )


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
    requirement = decided.shapes[action.shape]
    request = lease_request(context, observed, intent, requirement, excluded=excluded)
    if not context.is_dry:
        _prepare(context)
        done.problems += filter(None, [submit(context, intent, request)])
    done.requests.append(request)
    done.asked += intent.tasks


def _prepare(context: TickContext) -> None:
    """Have all ready that a lease needs the moment it starts."""
    for folder in (context.folder.leases, context.folder.outputs):
        folder.mkdir(mode=0o700, exist_ok=True)
    text = lease_script(context.environment, context.site)
    with context.effect("writing lease.sh"):
        write_lease_script(context.folder.lease_script, text)


# ----------------------------------------------------------------------
# What is long over, removed: a little in each tick, and only what nobody can use.

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

    Of two clocks the earlier counts: one that is ahead must not make things old.

    Raises:
        StoreError: The state cannot be written.
    """
    before_s = min(observed.now_s, context.environment.now_s()) - KEPT_S
    try:
        _leases(context, before_s)
        _generations(context, observed.trainers, before_s)
    except OSError as error:
        return f"old files stay, since one cannot be removed: {error}"
    return ""


def _leases(context: TickContext, before_s: float) -> None:
    old = old_leases(context.state, before_s=before_s, most=_MOST_LEASES)
    for lease in old:
        with context.effect("removing a lease's files"):
            _remove_files(context, lease, before_s)
    has_rows = (has_old_intents, has_old_pasts)
    if not old and not any(has(context.state, before_s=before_s) for has in has_rows):
        return
    with context.writing("what is forgotten") as state:
        forget_leases(state, [lease.key for lease in old])
        forget_intents(state, before_s=before_s)
        forget_pasts(state, before_s=before_s)


def _remove_files(context: TickContext, lease: OldLease, before_s: float) -> None:
    _remove_folder(context.folder.lease(lease.key).path)
    if lease.job_id is None:
        return
    output = output_of(context.folder, lease.job_id)
    with suppress(FileNotFoundError):
        if output.stat().st_mtime < before_s:  # numbers of jobs are used again
            output.unlink()


def _generations(
    context: TickContext, trainers: Iterable[ObservedTrainer], before_s: float
) -> None:
    left = _MOST_GENERATIONS
    for trainer in trainers:
        newest = trainer.newest
        if newest is None or newest.generation <= KEPT_GENERATIONS:
            continue
        folder = context.folder.trainer(trainer.row.name)
        old = _old(folder, trainer, before_s)[:left]
        left -= len(old)
        for generation in old:
            with context.effect("removing a generation's files"):
                _remove_generation(folder, generation, trainer)


def _old(folder: TrainerDir, trainer: ObservedTrainer, before_s: float) -> list[int]:
    """Return the generations of which no lease can be left, the oldest first.

    One was over, or about to be, when the next one was made.
    """
    found = generations(folder.assignments)
    enough = found[: max(0, len(found) - KEPT_GENERATIONS + 1)]
    old: list[int] = []
    for generation, following in pairwise(enough[: _MOST_GENERATIONS + 1]):
        made_s = folder.assignment(following).stat().st_mtime
        if generation > trainer.row.told_generation or made_s >= before_s:
            break
        old.append(generation)
    return old


def _remove_generation(
    folder: TrainerDir, generation: int, trainer: ObservedTrainer
) -> None:
    """Remove one generation, the file that it is found by last.

    How long a trainer has run is told by its endings: one with a limit keeps them.
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
