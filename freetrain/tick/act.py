"""Carry out what was decided: generations, leases, and the delivery of models.

Each action is an effect between two records: what is recorded before it lets the next
ticks find it, whatever happens to this one; what is recorded after it tells its result.
"""

from __future__ import annotations

import os
from collections import Counter as Count
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from freetrain.broker.job_limits import is_refused_for_limit
from freetrain.broker.lease import (
    Assignment,
    IntentState,
    parse_comment,
    submitted_leases,
    uuid_in,
)
from freetrain.broker.reasons import FOR_OTHERS, EndReason
from freetrain.broker.reconcile import EndLeases, Submit, intent_of, marked_ending
from freetrain.broker.sharing import recent_use
from freetrain.elastic.checkpoint import copy_checked
from freetrain.elastic.contract import CheckpointError
from freetrain.elastic.files import RunDir, replaced
from freetrain.opening import NotPlainError, open_plain
from freetrain.state.files import (
    BROKER,
    AgentState,
    AssignedLease,
    AssignmentFile,
    UnreadableFileError,
    create_assigned,
    generations,
    lease_name,
    read_environment,
    read_heartbeat,
)
from freetrain.state.tables import (
    Delivery,
    DeliveryStage,
    Event,
    EventKind,
    TrainerState,
    add_events,
    deliveries,
    limit_memory,
    put_delivery,
    put_intents,
    put_leases,
    put_limit_memory,
)
from freetrain.state.tables import leases as known_leases
from freetrain.tick.environment import HookCall
from freetrain.tick.leases import (
    NOTICE,
    grace_s,
    lease_comment,
    lease_script,
    request_for,
    write_lease_script,
)
from freetrain.tick.plan import nodes_to_exclude, with_bounded_wait
from freetrain.tick.room import (
    end_soon,
    ends_refused,
    is_late,
    running_leases,
    set_sooner_ends,
)
from slurm.errors import RequestsSpentError, SlurmError, SlurmRefusedError
from slurm.records import JobKey

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from freetrain.broker.lease import Intent, Lease, LeaseKey
    from freetrain.config.job import TargetSettings, TrainerJob
    from freetrain.state.files import TrainerDir
    from freetrain.state.tables import TrainerRow
    from freetrain.tick.environment import TickContext
    from freetrain.tick.observe import Observed
    from freetrain.tick.plan import TickPlan
    from freetrain.tick.trainers import TickTrainer
    from slurm.batch import LeaseRequest
    from slurm.records import JobRecord


@dataclass(slots=True)
class ActionResults:
    """The results of the actions that were carried out so far.

    Attributes:
        assigned: Generations created.
        ended: Jobs ended, or sent the notice to leave.
        asked: Leases asked for.
        requests: What sbatch was asked, or in a dry run would be.
        problems: What went wrong, for people. Hostile text.
        error: Why no further command is run; None where Slurm answers.
        held_back: Leases of trainers whose next generation could not be written.
        is_room_made: Whether the notice was sent to all leases that others wait for.
    """

    assigned: int = 0
    ended: int = 0
    asked: int = 0
    requests: list[LeaseRequest] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    error: SlurmError | None = None
    held_back: set[LeaseKey] = field(default_factory=set)
    is_room_made: bool = True


def carry_out(
    context: TickContext, observed: Observed, plan: TickPlan
) -> ActionResults:
    """Carry out the actions in order, as far as Slurm answers.

    A refusal concerns one action; no answer concerns all that come after. Where an
    agent made a generation first, no other is made until the next tick: it may count
    on leases that this one would have given up. Where one cannot be written, those wait
    that count on leases of its trainer.

    Raises:
        StoreError: The state cannot be written; what was done is found again.
    """
    room = observed.room
    done = ActionResults(
        ended=len(room.notified) + len(room.cancelled),
        problems=[*room.problems, *filter(None, [room.refused_ends])],
        error=room.error,
        is_room_made=room.is_made,
    )
    _set_more_ends(context, observed, plan, done)
    may_assign = True
    for action in plan.decision.actions:
        if isinstance(action, Assignment):
            if may_assign and not action.leases & done.held_back:
                may_assign = _assign(context, observed, action, done)
        elif done.error is None:
            _call_slurm(context, observed, plan, action, done)
        elif isinstance(action, EndLeases):
            done.is_room_made &= action.why not in FOR_OTHERS
    if done.error is None and not context.is_dry:
        problem = _announce(context, observed, want=plan.want)
        done.problems += filter(None, [problem])
    return done


def _set_more_ends(
    context: TickContext, observed: Observed, plan: TickPlan, done: ActionResults
) -> None:
    """Make leases end sooner that the room left to the plan, or give them up.

    The plan knows which brokers do not answer, and what backfill planned before.
    """
    room, claims = observed.room, plan.situation.claims
    if done.error is not None or claims.sooner_ends == room.claims.sooner_ends:
        return
    try:
        set_sooner_ends(room, claims)
    except (SlurmRefusedError, ValueError) as refusal:
        if not room.refused_ends:
            done.problems.append(ends_refused(refusal))
        late = [
            lease
            for lease in observed.belief.leases
            if (sooner := claims.ends_sooner(lease.node, lease.job_id)) is not None
            and is_late(sooner, lease.end_s)
            and lease.is_usable
            and lease.display_id not in room.new_ends_s
        ]
        if late:
            end = EndLeases(
                display_ids=tuple(lease.display_id for lease in late),
                leases=tuple(lease.key for lease in late),
                why=EndReason.CLAIMED,
                by_notice=True,
            )
            _call_slurm(context, observed, plan, end, done)
    except SlurmError as error:
        done.error = error


def _call_slurm(
    context: TickContext,
    observed: Observed,
    plan: TickPlan,
    action: EndLeases | Submit,
    done: ActionResults,
) -> None:
    try:
        if isinstance(action, EndLeases):
            done.ended += (
                len(action.display_ids)
                if context.is_dry
                else end_leases(context, observed, action)
            )
        else:
            _submit(context, observed, plan, action, done)
    except (SlurmRefusedError, ValueError) as error:
        done.problems.append(str(error))
    except OSError as error:
        done.problems.append(f"no lease was asked for: {error}")
    except SlurmError as error:
        done.error = error
    else:
        if isinstance(action, EndLeases):
            _let_end_soon(context, observed, action, done)
        return
    if isinstance(action, EndLeases):
        done.is_room_made &= action.why not in FOR_OTHERS


# Assigning leases to a trainer: an immutable file for each generation.


def _assign(
    context: TickContext,
    observed: Observed,
    assignment: Assignment,
    done: ActionResults,
) -> bool:
    """Create the file of *assignment*; tell whether others may be created, too."""
    name = assignment.trainer
    if not context.is_dry:
        trainer = next(t for t in observed.trainers if t.row.name == name)
        leases = {lease.key: lease for lease in observed.belief.leases}
        folder = context.folder.trainer(name)
        try:
            folder.create()
            if assignment.leases:
                older = older_world(context, trainer)
                if older:
                    done.problems.append(f"{name} is not started yet: {older}")
                    return True
                number = free_generation(folder, trainer, wanted=assignment.generation)
                assignment = replace(assignment, generation=number)
            with context.effect(f"assigning {assignment.generation} of {name}"):
                assigned = _assigned(assignment, trainer, leases)
                is_ours = create_assigned(folder, assigned)
        except OSError as error:
            done.held_back |= trainer.newest.keys if trainer.newest else frozenset()
            done.problems.append(f"{name} was given no new generation: {error}")
            return True
        if not is_ours:  # an agent's, as whenever a lease leaves: no problem
            return False
    done.assigned += 1
    return True


def _assigned(
    assignment: Assignment,
    trainer: TickTrainer,
    leases: Mapping[LeaseKey, Lease],
) -> AssignmentFile:
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
    return AssignmentFile(
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
        final = trainer.final
        state = trainer.row.state if final is None else final.state
        is_wanted = state is TrainerState.WANTED
        return "its nodes are gone" if is_wanted else f"it is {state}"
    nodes = f"{after} node{'' if after == 1 else 's'}"
    if before == 0:
        return f"starts on {nodes}"
    if before == after:
        return f"moves, on {nodes}"
    return f"{'grows' if after > before else 'shrinks'} from {before} to {nodes}"


# Where state was lost, files may know of generations that the database does not. A new
# one gets a number that no file uses, and waits while a world of another still trains:
# two would write one folder.

QUIET_S = 120.0
"""A world that changes none of its files for so long is over: it commits once a minute
and reports each second, unless its user chose otherwise."""

_SILENT_S = 30.0
"""A heartbeat that is so old is of an agent that has ended; it beats each second."""


def free_generation(folder: TrainerDir, trainer: TickTrainer, *, wanted: int) -> int:
    """Return *wanted*, or the first number above all that any file names.

    Raises:
        OSError: The files cannot be read, so that it is unknown.
    """
    ended = generations(folder.endings)
    used = RunDir(Path(trainer.row.run_dir)).last_used()
    return max(wanted, used + 1, ended[-1] + 1 if ended else 1)


def older_world(context: TickContext, trainer: TickTrainer) -> str:
    """Return which world trains though no assignment accounts for it; empty for none.

    The tick's turn tells the time by the file server's clock.

    Raises:
        OSError: The files cannot be read, so that it is unknown.
    """
    if context.turn is None:
        return ""
    now_s = context.turn.path.stat().st_mtime
    known = 0 if trainer.newest is None else trainer.newest.generation
    run_dir = RunDir(Path(trainer.row.run_dir))
    claimed = run_dir.newest_generation()
    if claimed > known and not _is_over(run_dir, claimed):
        signs = (run_dir.claim(claimed), run_dir.progress, run_dir.checkpoints)
        if any(_is_fresh(path, now_s, QUIET_S) for path in signs):
            return f"generation {claimed} in {run_dir.path} still trains"
    return "" if known else _training_lease(context, trainer.row.name, now_s)


def _is_over(run_dir: RunDir, generation: int) -> bool:
    return run_dir.outcome(generation).exists() or run_dir.over(generation).exists()


def _training_lease(context: TickContext, name: str, now_s: float) -> str:
    """Return the lease whose agent still trains *name*, of which nothing is known."""
    try:
        places = sorted(context.folder.leases.iterdir())
    except FileNotFoundError:
        return ""
    for place in places:
        path = place / "heartbeat.json"
        with suppress(OSError, UnreadableFileError):
            beat = read_heartbeat(path)
            trains = beat is not None and beat.state is AgentState.TRAINING
            if beat is None or not trains or beat.trainer != name:
                continue
            if beat.generation and _is_fresh(path, now_s, _SILENT_S):
                return f"generation {beat.generation} still trains on {beat.node}"
    return ""


def _is_fresh(path: Path, now_s: float, within_s: float) -> bool:
    with suppress(FileNotFoundError, NotADirectoryError):
        return now_s - path.stat().st_mtime < within_s
    return False


# Ending leases, or sending the notice to leave: only jobs that this snapshot showed.


def end_leases(context: TickContext, observed: Observed, end: EndLeases) -> int:
    """Carry out *end* and record it; return the number of jobs.

    A kill in between repeats it at the next tick, which is harmless.

    Raises:
        SlurmError: It may not have happened; nothing was recorded.
        StoreError: It happened, and could not be recorded.
    """
    seen = {lease.key: lease for lease in observed.belief.leases if lease.missed == 0}
    leases = [seen[key] for key in end.leases if key in seen]
    duplicates = observed.belief.duplicates
    known = {lease.display_id for lease in leases} | duplicates.keys()
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
    uuids = [lease.key.uuid for lease in leases]
    uuids += [duplicates[name] for name in end.display_ids if name in duplicates]
    with context.writing("what was ended") as state:
        put_leases(
            state, [marked_ending(lease, end, observed.now_s) for lease in leases]
        )
        add_events(state, _end_events(observed, end, leases, Count(uuids)))
    return len(jobs)


def _let_end_soon(
    context: TickContext, observed: Observed, end: EndLeases, done: ActionResults
) -> None:
    """Give leases that were sent the notice for others an end that Slurm knows."""
    if not end.by_notice or end.why not in FOR_OTHERS or context.is_dry:
        return
    ends_s = {
        JobKey(_number(lease.display_id, [lease]), lease.display_id): lease.end_s
        for lease in observed.belief.leases
        if lease.missed == 0 and lease.display_id in end.display_ids
    }
    try:
        refused = end_soon(observed.room, ends_s)
    except SlurmError as error:
        done.error = error
        return
    if refused and not observed.room.refused_ends:
        done.problems.append(refused)


def _end_events(
    observed: Observed,
    end: EndLeases,
    leases: Iterable[Lease],
    ended: Mapping[str, int],
) -> Iterator[Event]:
    """Yield for each submission how many *ended*, and the leases that failed to start.

    A lease whose agent never came has failed to start; that it is ended again because
    it stays says nothing new.
    """
    is_choice = end.why in {EndReason.SURPLUS, EndReason.SHARED}
    kind = EventKind.GAVE_UP if is_choice else EventKind.YIELDED
    for uuid, count in ended.items():
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


def _submit(
    context: TickContext,
    observed: Observed,
    plan: TickPlan,
    action: Submit,
    done: ActionResults,
) -> None:
    excluded = nodes_to_exclude(plan, action)
    intent = intent_of(action, context.environment.new_uuid(), observed.now_s)
    if excluded:
        intent = with_bounded_wait(intent)
    requirement = plan.shapes[action.shape]
    partition = observed.partition_of(requirement)
    request = request_for(
        context.site,
        context.folder,
        intent,
        requirement,
        grace_s=grace_s(observed.config, partition, observed.limits.mode),
    )
    comment = _comment_now(context, observed, intent.uuid, want=plan.want)
    request = replace(request, excluded=excluded, comment=comment)
    if not context.is_dry:
        _prepare(context)
        done.problems += filter(None, [_sbatch(context, observed, intent, request)])
    done.requests.append(request)
    done.asked += intent.tasks


def _prepare(context: TickContext) -> None:
    """Write all that a lease needs at the moment it starts."""
    for folder in (context.folder.leases, context.folder.outputs):
        folder.mkdir(mode=0o700, exist_ok=True)
    text = lease_script(context.environment, context.site)
    with context.effect("writing lease.sh"):
        write_lease_script(context.folder.lease_script, text)


def _sbatch(
    context: TickContext, observed: Observed, intent: Intent, request: LeaseRequest
) -> str:
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
        _record_refusal(context, observed, intent, str(error))
        return str(error)
    except RequestsSpentError:
        with context.writing("intent not sent") as state:
            put_intents(state, [replace(intent, state=IntentState.ABANDONED)])
        raise
    taken = replace(intent, state=IntentState.SUBMITTED, job_id=submitted.job_id)
    with context.writing("submission") as state:
        put_intents(state, [taken])
        put_leases(state, submitted_leases(taken, submitted.job_id))
    return ""


def _record_refusal(
    context: TickContext, observed: Observed, intent: Intent, why: str
) -> None:
    """Record that Slurm took nothing of *intent*.

    Where a limit was the reason, the next request is for half as many; that is no
    failed start, as nothing is wrong with the leases.
    """
    refused = replace(intent, state=IntentState.REFUSED, detail=why[:_MOST_DETAIL])
    with context.writing("refusal") as state:
        put_intents(state, [refused])
        if not is_refused_for_limit(why):
            failed = Event(
                intent.created_s, EventKind.FAILED_START, intent.uuid, 0, why
            )
            add_events(state, [failed])
            return
        known = known_leases(state, ending_after_s=0.0)  # those of this tick, too
        live = sum(lease.is_live for lease in known)
        live += sum(
            other.tasks
            for other in observed.belief.intents
            if other.state is IntentState.OPEN
        )
        memory = limit_memory(state)
        learned = memory.refused(live, intent.tasks, now_s=intent.created_s)
        put_limit_memory(state, learned)


# What the brokers of other users must know of this one, in the comment of a lease.


def _announce(context: TickContext, observed: Observed, *, want: int) -> str:
    """Say in a lease's comment what other users' brokers must know of ours.

    Its words are ``state`` (by which lost leases are found again), ``pool`` (that we
    give leases up with all others), ``want`` (how many nodes our trainers could use),
    ``beat`` (when this tick took its snapshot: that we live) and ``held`` (our recent
    use in node-seconds); ``freetrain.broker.lease`` renders and parses it.

    One command writes it to all tasks of one submission: of those that do not say yet
    that they are part of the pool, else of all, the oldest that runs.

    Nothing else fails because of it.

    Returns:
        Why Slurm did not take it, or an empty text.
    """
    uid = context.environment.uid
    known = {intent.uuid for intent in observed.belief.intents}
    running = [
        job
        for job in running_leases(observed.snapshot.jobs, uid)
        if uuid_in(job.name) in known
    ]
    if not running:
        return ""
    job = min(running, key=_first_to_publish)
    uuid = uuid_in(job.name) or ""
    text = _comment_now(context, observed, uuid, want=want)
    try:
        with context.effect("publishing"):
            context.backend.set_comment(job.array_job_id or job.job_id, text)
    except (SlurmError, ValueError) as error:
        return (
            f"Slurm did not take the comment by which other users' FreeTrain knows "
            f"that this one lives and wants {want} nodes; they count it as silent: "
            f"{error}"
        )
    return ""


def _comment_now(
    context: TickContext, observed: Observed, uuid: str, *, want: int
) -> str:
    """Return the comment of a lease of the intent *uuid*, with all of its words."""
    return lease_comment(
        context.folder,
        uuid,
        want=want,
        beat_s=observed.now_s,
        recent_node_s=recent_use(observed.belief.leases, now_s=observed.now_s),
    )


def _first_to_publish(job: JobRecord) -> tuple[bool, float, int]:
    said = parse_comment(job.comment)
    is_pooled = said is not None and said.is_pooled
    return (is_pooled, job.submit_s or 0.0, job.job_id)


# Delivering models: publish the checkpoint of a reached target, then call its hook.

_COMMITS = 2.0

_MORE_S = 120.0
"""Two commits and two minutes after its target was reached, a trainer that stopped
short of a commit is delivered with what it has."""

HOOK_CUT_OFF = (
    "a tick died while it called the hook: how far the hook came is unknown, and it is "
    "not called again"
)


def newly_reached(observed: Observed) -> Iterator[Delivery]:
    """Yield a delivery for each trainer that has just reached its first target."""
    for trainer in observed.trainers:
        name, submitted_s = trainer.row.name, trainer.row.submitted_s
        progress = observed.progress.get(name)
        if progress is None or progress.history.deliver is None:
            continue
        if (name, submitted_s) in observed.deliveries:
            continue
        target = progress.history.deliver
        yield Delivery(
            trainer=name,
            submitted_s=submitted_s,
            stage=DeliveryStage.REACHED,
            reached_s=target.t_s or observed.now_s,
            step=target.step,
            value=target.value,
            changed_s=observed.now_s,
        )


def deliver(context: TickContext, observed: Observed) -> None:
    """Advance all deliveries as far as possible, with one call of a hook at most.

    Raises:
        StoreError: The state cannot be written; the next tick goes on.
    """
    trainers = {(t.row.name, t.row.submitted_s): t for t in observed.trainers}
    for key, delivery in deliveries(context.state).items():
        trainer = trainers.get(key)
        if trainer is None or trainer.job is None or trainer.job.target is None:
            continue
        run = _Delivery(
            context, trainer.row, trainer.job, trainer.job.target, observed.now_s
        )
        if run.advance(delivery):
            break


@dataclass(frozen=True, slots=True)
class _Delivery:
    """One trainer's delivery, in this tick."""

    context: TickContext
    row: TrainerRow
    job: TrainerJob
    target: TargetSettings
    now_s: float

    def advance(self, delivery: Delivery) -> bool:
        """Take *delivery* through its next stages; tell whether a hook was called."""
        if delivery.stage is DeliveryStage.CALLING:
            self._record(delivery, DeliveryStage.DELIVERED, problem=HOOK_CUT_OFF)
            return False
        if delivery.stage is DeliveryStage.REACHED:
            delivery = self._publish(delivery)
        if delivery.stage is not DeliveryStage.PUBLISHED:
            return False
        if not self.target.hook:
            self._record(delivery, DeliveryStage.DELIVERED)
            return False
        delivery = self._record(delivery, DeliveryStage.CALLING)
        with self.context.effect(f"calling the hook of {self.row.name}"):
            problem = self._call_hook(delivery)
        self._record(delivery, DeliveryStage.DELIVERED, problem=problem)
        return True

    def _publish(self, delivery: Delivery) -> Delivery:
        """Publish the checkpoint, if there is one already that has the step."""
        place = self.target.publish
        if place is None:
            return self._record(delivery, DeliveryStage.PUBLISHED)
        patience_s = _COMMITS * self.job.checkpoint.every_s + _MORE_S
        is_overdue = self.now_s - delivery.changed_s > patience_s
        since_step = None if is_overdue else delivery.step
        run_dir = RunDir(Path(self.row.run_dir))
        try:
            with self.context.effect(f"publishing {self.row.name}"):
                name = publish(run_dir, place, since_step=since_step)
        except OSError as error:
            problem = f"cannot publish {place}: {error.strerror or error}"
            return self._record_problem(delivery, problem)
        if not name:
            problem = "no checkpoint has the step yet at which the target was reached"
            return self._record_problem(delivery, problem)
        return self._record(delivery, DeliveryStage.PUBLISHED, checkpoint=name)

    def _call_hook(self, delivery: Delivery) -> str:
        folder = self.context.folder.trainer(self.row.name)
        try:
            variables = read_environment(folder)
        except (OSError, UnreadableFileError) as error:
            return f"the hook was not called, for want of its variables: {error}"
        about_delivery = {
            "FREETRAIN_TRAINER": self.row.name,
            "FREETRAIN_METRIC": self.job.measure.metric,
            "FREETRAIN_VALUE": repr(delivery.value),
            "FREETRAIN_PUBLISHED": str(self.target.publish or ""),
        }
        call = HookCall(
            argv=self.target.hook,
            folder=self.job.directory,
            variables=variables | about_delivery,
            limit_s=self.target.hook_limit_s,
        )
        return self.context.environment.call(call)

    def _record_problem(self, delivery: Delivery, problem: str) -> Delivery:
        """Record why it does not go on, once for each reason."""
        if problem == delivery.problem:
            return delivery
        delivery = replace(delivery, problem=problem)
        with self.context.writing("a delivery") as state:
            put_delivery(state, delivery)
        return delivery

    def _record(
        self,
        delivery: Delivery,
        stage: DeliveryStage,
        *,
        checkpoint: str = "",
        problem: str = "",
    ) -> Delivery:
        """Record that *stage* is reached."""
        new = replace(
            delivery,
            stage=stage,
            changed_s=self.now_s,
            checkpoint=checkpoint or delivery.checkpoint,
            problem=problem,
        )
        with self.context.writing("a delivery") as state:
            put_delivery(state, new)
            if stage is DeliveryStage.DELIVERED:
                name, detail = self.row.name, problem or new.checkpoint
                event = Event(self.now_s, EventKind.DELIVERED, name, 0, detail)
                add_events(state, [event])
        return new


def publish(run_dir: RunDir, place: Path, *, since_step: int | None) -> str:
    """Copy the newest checkpoint that is whole to *place*, whole or not at all.

    It is a copy and no link: its users may change it, and training goes on from the
    original. What was there before is replaced.

    Args:
        run_dir: The trainer's.
        place: The file to make.
        since_step: Steps that the checkpoint must have; None for any.

    Returns:
        The checkpoint's name; empty where there is none yet that will do.

    Raises:
        OSError: It could not be read or written.
    """
    for checkpoint in reversed(run_dir.committed()):
        if checkpoint.step < (since_step or 0):
            continue
        # Torn, no file of ours, or pruned just now.
        with suppress(CheckpointError, NotPlainError, FileNotFoundError):
            _copy(checkpoint.path, place)
            return checkpoint.path.name
    return ""


def _copy(path: Path, place: Path) -> None:
    with os.fdopen(open_plain(path), "rb") as source:
        place.parent.mkdir(parents=True, exist_ok=True)
        temporary = place.with_name(f".{place.name}.new")
        with replaced(place, temporary=temporary) as target:
            copy_checked(source, target)
