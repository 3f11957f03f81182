"""Assignment files: from the broker's leases to members that can be reached."""

from __future__ import annotations

import math
import shlex
import shutil
from collections import Counter as Count
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import chain, pairwise
from typing import TYPE_CHECKING

from freetrain.agent.seen import VARIABLE as PATIENCE
from freetrain.broker.actions import (
    Assign,
    EndLeases,
    EndReason,
    Submit,
    intent_of,
    marked_ending,
)
from freetrain.broker.lease import IntentOutcome, job_name, submitted_leases
from freetrain.broker.pool import Refusal
from freetrain.elastic.files import replaced
from freetrain.errors import BadConfigurationError
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
from freetrain.tick.observe import grace_s
from freetrain.tick.plan import written
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
    from freetrain.config.site import Site
    from freetrain.state.files import StateDir, TrainerDir
    from freetrain.state.tables import OldLease
    from freetrain.tick.context import Outside, Run
    from freetrain.tick.observe import Observed
    from freetrain.tick.plan import Decided
    from freetrain.tick.trainers import Standing
    from slurm.records import Requirement


# ----------------------------------------------------------------------
# Assignment files: from the broker's leases to members that can be reached.


def assign(run: Run, observed: Observed, assignment: Assignment) -> bool:
    """Create the file of *assignment*; tell whether it is ours.

    Raises:
        OSError: It could not be written.
    """
    standing = next(o for o in observed.trainers if o.row.name == assignment.trainer)
    leases = {lease.key: lease for lease in observed.belief.leases}
    assigned = assigned_of(assignment, standing, leases)
    folder = run.folder.trainer(assignment.trainer)
    folder.create()
    with run.effect(f"assigning {assignment.generation} of {assignment.trainer}"):
        return create_assigned(folder, assigned)


def assigned_of(
    assignment: Assignment, standing: Standing, leases: Mapping[LeaseKey, Lease]
) -> Assigned:
    """Return the file of *assignment*.

    The head stays where it is, so that whoever watches a world goes on watching;
    else it is the lease that lasts longest, since a head that goes costs most.
    """
    before = () if standing.newest is None else standing.newest.members
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
        reason=_reason(standing, len(before), len(order)),
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


def _reason(standing: Standing, before: int, after: int) -> str:
    if after == 0:
        ended = standing.outcome
        state = standing.row.state if ended is None else ended.state
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


def cancel(run: Run, observed: Observed, what: EndLeases) -> int:
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
    with run.effect(f"ending {what.why.name} {len(keys)}"):
        if what.by_notice:
            run.backend.signal(keys, NOTICE)
        else:
            run.backend.cancel(keys)
    now_s = observed.now_s
    with run.writing("what was ended") as state:
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
        is_absent = lease.key in observed.hearing.absent and lease.cancel_s is None
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

OUTPUT = "lease-%j.out"
"""Name of what batch scripts print, with sbatch's pattern of the job's number."""


def lease_request(
    run: Run,
    observed: Observed,
    intent: Intent,
    requirement: Requirement,
    *,
    excluded: str = "",
) -> LeaseRequest:
    """Return the request that carries out *intent*, kept off the nodes *excluded*."""
    grace = grace_s(observed.config, observed.partition, observed.limits.mode)
    made = request_for(run.site, run.folder, intent, requirement, grace_s=grace)
    return replace(made, excluded=excluded)


def request_for(
    site: Site,
    folder: StateDir,
    intent: Intent,
    requirement: Requirement,
    *,
    grace_s: float,
) -> LeaseRequest:
    """Return what sbatch is asked for *intent* at *site*, whoever decided it.

    Args:
        site: How leases are submitted there.
        folder: The state directory.
        intent: How many, how long, until when.
        requirement: What they ask of their nodes.
        grace_s: How long a lease that must go has, from the first signal it hears.
    """
    lease = site.lease
    return LeaseRequest(
        name=job_name(intent.uuid),
        comment=f"freetrain {intent.uuid}",
        partition=requirement.partition,
        limit_min=intent.limit_min,
        nice=lease.nice,
        script=str(folder.lease_script),
        arguments=(intent.uuid, str(intent.limit_min), str(math.ceil(grace_s))),
        tasks=intent.tasks,
        deadline_s=intent.deadline_s,
        output=_output(str(folder.outputs)),
        exclusive=lease.exclusive,
        memory_mib=requirement.memory_mib,
        cpus=requirement.cpus,
        qos=lease.qos,
        account=lease.account,
        features="&".join(sorted(requirement.features)),
        gres=",".join(written(one) for one in requirement.gres),
    )


def output_of(folder: StateDir, job_id: int) -> Path:
    """Return the file of what the batch script of a job printed."""
    return folder.outputs / OUTPUT.replace("%j", str(job_id))


def _output(folder: str) -> str:
    """Return where batch scripts print; sbatch reads ``%`` and a backslash as signs."""
    if "\\" in folder:
        return "/dev/null"
    return f"{folder.replace('%', '%%')}/{OUTPUT}"


# ----------------------------------------------------------------------
# The batch script of leases: it runs the agent, and sweeps after it.

MODE = 0o700
LAUNCH_AGENT = "FREETRAIN_LAUNCH_AGENT"
"""What tells the agent of the site's own launch agent."""


def lease_script(outside: Outside, site: Site) -> str:
    """Return the text of the batch script; its arguments are uuid, minutes, grace.

    The agent runs under the script, not as a step: at preemption every process of
    every step gets TERM, and its mpirun would end the world before it has committed.
    It starts a step that listens (``freetrain.agent.ear``). The script itself must
    outlive the signals at the end, so it catches TERM: caught signals are as usual
    again in what it starts, ignored ones would not be. What an agent left that did
    not come to its end is swept, and the job did not fail. Python must not take a
    module from the folder in which somebody called the tick (``-P``).

    Args:
        outside: Where programs are.
        site: Where the state is, and the site's launch agent.

    Raises:
        BadConfigurationError: A path that no script can name.
    """
    values = {"PATH": outside.path, "HOME": outside.home or "/"}
    if outside.agent_patience:
        values[PATIENCE] = outside.agent_patience
    if site.launch_agent is not None:
        values[LAUNCH_AGENT] = str(site.launch_agent)
    exports = [f"export {name}={_quoted(value)}" for name, value in values.items()]
    python, state = _quoted(outside.python), _quoted(str(site.state_directory))
    agent = f"{python} -P -m freetrain.agent"
    lease = f'{state} "$1" "$task" "$2" "$3"'
    lines = [
        "#!/bin/sh",
        "# Written by freetrain tick; changes are overwritten.",
        *exports,
        f"cd {state} || exit 0",
        "trap : TERM",
        "task=${SLURM_ARRAY_TASK_ID:-0}",
        f"{agent} {lease} && exit 0",
        f'{agent} sweep {state} "$1" "$task"',
        "exit 0",
    ]
    return "".join(f"{line}\n" for line in lines)


def write_lease_script(path: Path, text: str) -> bool:
    """Write *text* to *path*, whole, if it is not there already; tell whether.

    A script that sbatch was given is copied then, so leases keep the one they had.

    Raises:
        OSError: It could not be written.
    """
    if _content(path) == text:
        return False
    temporary = path.with_name(f".{path.name}.new")
    with replaced(path, temporary=temporary) as file:
        temporary.chmod(MODE)
        file.write(text.encode("utf-8", "surrogateescape"))
    return True


def _content(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="surrogateescape")
    except FileNotFoundError:
        return None


def _quoted(value: str) -> str:
    if "\0" in value or "\n" in value:
        raise BadConfigurationError(
            f"no script can name {value!r}. No lease was asked for; change PATH, HOME "
            f"or the state directory."
        )
    return shlex.quote(value)


# ----------------------------------------------------------------------
# Which idle nodes leases are kept off, so that they start where they are wanted.

PATIENCE_S = 180.0
"""A few cycles of backfill, which is 30 s and more by default."""


def kept_off(decided: Decided, action: Submit) -> str:
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


def sooner(intent: Intent) -> Intent:
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


def submit(run: Run, intent: Intent, request: LeaseRequest) -> str:
    """Submit *request* under *intent*; return why Slurm refused, empty where not.

    The intent is written down before, so that whatever happens the jobs are found
    by name. Where no answer comes it stays open, and the next ticks look.

    Raises:
        SlurmError: It may or may not have happened.
        StoreError: It could not be written down; before, nothing was submitted.
    """
    asked = Event(intent.created_s, EventKind.ASKED, intent.uuid, intent.tasks)
    with run.writing("intent") as state:
        put_intents(state, [intent])
        add_events(state, [asked])
    try:
        with run.effect("sbatch"):
            submitted = run.backend.submit(request)
    except SlurmRefusedError as error:
        _refused(run, intent, str(error))
        return str(error)
    except ValueError as error:  # Slurm was not asked
        _refused(run, intent, str(error))
        return str(error)
    except RequestsSpentError:
        _write(run, replace(intent, outcome=IntentOutcome.ABANDONED))
        raise
    taken = replace(intent, outcome=IntentOutcome.SUBMITTED, job_id=submitted.job_id)
    with run.writing("submission") as state:
        put_intents(state, [taken])
        put_leases(state, submitted_leases(taken, submitted.job_id))
    return ""


def _refused(run: Run, intent: Intent, why: str) -> None:
    refused = replace(intent, outcome=IntentOutcome.REFUSED, detail=why[:_MOST_DETAIL])
    failed = Event(intent.created_s, EventKind.FAILED_START, intent.uuid, 0, why)
    with run.writing("refusal") as state:
        put_intents(state, [refused])
        add_events(state, [failed])


def _write(run: Run, intent: Intent) -> None:
    with run.writing("intent not sent") as state:
        put_intents(state, [intent])


# ----------------------------------------------------------------------
# Carrying out what was decided, in order, each effect between two records of it.


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
        if isinstance(action, EndLeases):
            done.ended += _end(run, observed, action)
        elif isinstance(action, Submit):
            _submit(run, observed, decided, action, done)
    except (SlurmRefusedError, ValueError) as error:
        done.problems.append(str(error))
    except SlurmError as error:
        done.error = error


def _end(run: Run, observed: Observed, action: EndLeases) -> int:
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


def tidy(run: Run, observed: Observed) -> str:
    """Remove some of what is long over; return what kept it from being removed.

    Of two clocks the earlier counts: one that is ahead must not make things old.

    Raises:
        StoreError: The state cannot be written.
    """
    before_s = min(observed.now_s, run.outside.now_s()) - KEPT_S
    try:
        _leases(run, before_s)
        _generations(run, observed.trainers, before_s)
    except OSError as error:
        return f"old files stay, since one cannot be removed: {error}"
    return ""


def _leases(run: Run, before_s: float) -> None:
    old = old_leases(run.state, before_s=before_s, most=_MOST_LEASES)
    for lease in old:
        with run.effect("removing a lease's files"):
            _remove_files(run, lease, before_s)
    has_rows = (has_old_intents, has_old_pasts)
    if not old and not any(has(run.state, before_s=before_s) for has in has_rows):
        return
    with run.writing("what is forgotten") as state:
        forget_leases(state, [lease.key for lease in old])
        forget_intents(state, before_s=before_s)
        forget_pasts(state, before_s=before_s)


def _remove_files(run: Run, lease: OldLease, before_s: float) -> None:
    _remove_folder(run.folder.lease(lease.key).path)
    if lease.job_id is None:
        return
    output = output_of(run.folder, lease.job_id)
    with suppress(FileNotFoundError):
        if output.stat().st_mtime < before_s:  # numbers of jobs are used again
            output.unlink()


def _generations(run: Run, trainers: Iterable[Standing], before_s: float) -> None:
    left = _MOST_GENERATIONS
    for standing in trainers:
        newest = standing.newest
        if newest is None or newest.generation <= KEPT_GENERATIONS:
            continue
        folder = run.folder.trainer(standing.row.name)
        old = _old(folder, standing, before_s)[:left]
        left -= len(old)
        for generation in old:
            with run.effect("removing a generation's files"):
                _remove_generation(folder, generation, standing)


def _old(folder: TrainerDir, standing: Standing, before_s: float) -> list[int]:
    """Return the generations of which no lease can be left, the oldest first.

    One was over, or about to be, when the next one was made.
    """
    found = generations(folder.assignments)
    enough = found[: max(0, len(found) - KEPT_GENERATIONS + 1)]
    old: list[int] = []
    for generation, following in pairwise(enough[: _MOST_GENERATIONS + 1]):
        made_s = folder.assignment(following).stat().st_mtime
        if generation > standing.row.told_generation or made_s >= before_s:
            break
        old.append(generation)
    return old


def _remove_generation(folder: TrainerDir, generation: int, standing: Standing) -> None:
    """Remove one generation, the file that it is found by last.

    How long a trainer has run is told by its endings: one with a limit keeps them.
    """
    name = generation_name(generation)
    _remove_folder(folder.world(generation))
    (folder.logs / f"{name}.log").unlink(missing_ok=True)
    for notice in folder.notices.glob(f"{name}.*"):
        notice.unlink(missing_ok=True)
    job = standing.job
    if job is not None and job.work.time_limit_s is None:
        folder.ending(generation).unlink(missing_ok=True)
    folder.assignment(generation).unlink(missing_ok=True)


def _remove_folder(path: Path) -> None:
    with suppress(FileNotFoundError):
        shutil.rmtree(path)
