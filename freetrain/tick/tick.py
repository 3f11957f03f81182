"""One tick: make room, lock, observe, plan, record, act, report; it lasts seconds.

A tick that dies at any instruction leaves nothing that the next does not put right: an
intent is committed before its ``sbatch``, a generation's file is whole or absent, and
what was observed is recorded in one transaction.

Two things cannot wait for cron's next tick, so ``tick_and_follow_up`` runs more. Leases
that were asked for idle until a tick gives them to a trainer: a second tick comes once
their agents answer. And where leases make room for other users' jobs, a tick comes
before each of backfill's cycles, and, where the queue has changed since, another just
before it.
"""

from __future__ import annotations

import math
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from freetrain.broker.lease import LeaseKey, LeaseState, uuid_in
from freetrain.broker.limits import Mode
from freetrain.broker.yielding import (
    APART_S,
    LEAD_S,
    cycles_of,
    digest_of,
    last_lead_s,
)
from freetrain.errors import BadConfigurationError, CannotWriteError, FreeTrainError
from freetrain.state.database import StoreBusyError, StoreError
from freetrain.state.files import (
    StateDir,
    TickSign,
    UnreadableFileError,
    read_tick_sign,
    write_tick_sign,
)
from freetrain.state.tables import (
    TickCounter,
    add_to_counters,
    counters,
    put_loss_forecasts,
)
from freetrain.text import counted, utc
from freetrain.tick.act import carry_out, deliver
from freetrain.tick.environment import (
    append_line,
    connected,
    find_again,
    keep_evidence,
    opened,
    write_whole,
)
from freetrain.tick.leases import silence_s
from freetrain.tick.observe import observe
from freetrain.tick.plan import make_plan
from freetrain.tick.record import record, tidy
from freetrain.tick.room import end_those_that_stay, give_up_where_unsure, make_room
from freetrain.tick.status_page import past_of, render_page
from freetrain.tick.status_report import (
    read_status_report,
    render_metrics,
    render_report,
    report_of,
    summary_line,
)
from milp.answer import PlanStatus
from slurm.errors import SlurmError, UnreadableOutputError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, MutableMapping
    from pathlib import Path

    from freetrain.broker.yielding import Cycles, QueueDigest
    from freetrain.config.site import Site
    from freetrain.tick.act import ActionResults
    from freetrain.tick.environment import TickContext, TickEnvironment
    from freetrain.tick.observe import Observed
    from freetrain.tick.room import Room
    from freetrain.tick.status_report import StatusReport
    from slurm.batch import LeaseRequest


@dataclass(frozen=True, slots=True)
class TickReport:
    """What a tick saw and did.

    Attributes:
        status: The status report, as it was written.
        requests: What sbatch was asked, or in a dry run would be.
        cycles: When backfill runs next, where leases must make room before its cycles
            and there are leases; else None.
        queue: Other users' jobs.
        began_s: When the tick began, by the environment's clock.
        took_s: How long it took.
    """

    status: StatusReport
    requests: tuple[LeaseRequest, ...]
    cycles: Cycles | None
    queue: QueueDigest
    began_s: float
    took_s: float


def tick(
    site: Site,
    environment: TickEnvironment,
    *,
    dry_run: bool = False,
    notified_before: MutableMapping[str, float] | None = None,
) -> TickReport:
    """Run one tick; a dry run plans and reports, and writes nothing at all.

    Room is made for others before anything else, with Slurm alone. A tick that fails
    later sees to leases that stay, where no other will know of them.

    Args:
        site: The site's settings.
        environment: Clocks, random names and Slurm.
        dry_run: Whether nothing may be changed.
        notified_before: When this process sent each lease a notice; ticks of one
            process share it.

    Raises:
        SlurmError: Slurm did not answer, or not in a way that can be read. Where this
            happened before the plan, nothing was changed but the room that was made;
            later, the report tells.
        StoreBusyError: Another tick is at work; only room was made.
        StoreError: The state cannot be used.
        CannotWriteError: A file cannot be written.
        MilpError: No plan can be made.
    """
    notified_before = {} if notified_before is None else notified_before
    with environment.deadline(site.planner.solver_limit_s):
        began_s = environment.clock()
        backend = connected(site, environment)
        try:
            room = make_room(
                site,
                environment,
                backend,
                is_dry=dry_run,
                notified_before=notified_before,
            )
        except (SlurmError, BadConfigurationError) as error:
            with (
                suppress(FreeTrainError),  # Slurm's silence is what the user must know
                opened(site, environment, backend, dry_run=dry_run) as context,
            ):
                _report_failure(context, error)
            raise
        with (
            _seeing_to_leases(room),
            opened(site, environment, backend, dry_run=dry_run) as context,
        ):
            try:
                return _steps(context, room, began_s)
            except (SlurmError, FreeTrainError) as error:
                _report_failure(context, error)
                raise


@contextmanager
def _seeing_to_leases(room: Room) -> Iterator[None]:
    """Where the tick fails, say that room was made, and end the leases that stay.

    A tick that found another at work leaves the limits to that one, which knows whose
    they are.
    """
    try:
        yield
    except Exception as error:
        if room.is_dry or room.is_recorded:
            raise
        if not isinstance(error, StoreBusyError):
            give_up_where_unsure(room)
        error.add_note(room.words)
        try:
            stayed = end_those_that_stay(room)
        except SlurmError as silent:
            error.add_note(f"It is unknown which of them left: {silent}")
        else:
            if stayed:
                error.add_note(f"{counted(stayed, 'lease')} stayed and was cancelled.")
        raise


def _steps(context: TickContext, room: Room, began_s: float) -> TickReport:
    """Take the steps of a tick, each in a module of its own."""
    clock = context.environment.clock
    found = find_again(context)
    observed = observe(context, room)
    _check_cluster(context, observed)
    planning_s = clock()
    plan = make_plan(context, observed)
    planner_s = clock() - planning_s
    record(context, observed, plan)
    done = carry_out(context, observed, plan)
    done.problems += filter(None, [found])
    if not context.is_dry:
        done.problems += filter(None, [tidy(context, observed)])
    status = report_of(
        context,
        observed,
        plan,
        done,
        took_s=clock() - began_s,
        planner_s=planner_s,
    )
    if not context.is_dry:
        _finish(context, observed, status, has_sign=done.is_room_made)
    if done.error is not None:
        raise done.error
    return TickReport(
        status,
        tuple(done.requests),
        _cycles(observed, status, done),
        digest_of(observed.snapshot.jobs, now_s=observed.now_s),
        began_s,
        clock() - began_s,
    )


def _cycles(
    observed: Observed, status: StatusReport, done: ActionResults
) -> Cycles | None:
    has_leases = status.leases or done.requests
    if observed.limits.mode is not Mode.YIELD or not has_leases:
        return None
    return cycles_of(observed.snapshot.after, observed.config)


def _leave_sign(context: TickContext, observed: Observed) -> None:
    """Change the sign by which leases see that ticks see to others."""
    path = context.folder.tick_sign
    last = None
    with suppress(OSError, UnreadableFileError):
        last = read_tick_sign(path)
    sign = TickSign(
        tick=1 if last is None else last.tick + 1,
        silence_s=silence_s(context.site, observed.limits.mode),
    )
    write_tick_sign(path, sign)


def _check_cluster(context: TickContext, observed: Observed) -> None:
    """Refuse to go on with the state of another cluster, while that has leases.

    Clusters may share a home. Each would take the other's leases for lost, and stop
    the trainers on them, tick by tick. A cluster that was merely renamed still shows
    its leases.

    Raises:
        BadConfigurationError: It is another cluster's.
    """
    cluster, report = observed.config.cluster, context.folder.status_report
    live = [
        lease
        for lease in observed.previous_leases
        if lease.is_live and lease.deadline_s > observed.now_s
    ]
    shown = {lease.key for lease in observed.belief.leases if lease.missed == 0}
    if not live or any(lease.key in shown for lease in live):
        return
    try:
        last = read_status_report(report)
    except (OSError, UnreadableFileError):
        return
    if last is None or last.cluster in {"", cluster}:
        return
    until_s = math.ceil(max(lease.deadline_s for lease in live))
    raise BadConfigurationError(
        f"the state in {report.parent} is of cluster {last.cluster!r}, which has "
        f"leases, and this is {cluster!r}; nothing was planned. Give each cluster a "
        f"directory of its own by state_directory in freetrain.toml. If it was "
        f"renamed, ticks go on at {utc(until_s)}, when its leases must have ended."
    )


def _finish(
    context: TickContext, observed: Observed, status: StatusReport, *, has_sign: bool
) -> None:
    """Leave the sign where *has_sign*, report, and deliver models.

    A file that cannot be written keeps none of the others from being written.

    Raises:
        OSError: One could not be; all else was done.
    """
    with context.writing("sums") as state:
        last_s = counters(state)[TickCounter.LOOKED_S]
        add_to_counters(state, _increments(status, last_s))
    folder, sums = context.folder, counters(context.state)
    line = f"{utc(status.at_s)} {summary_line(status)}"
    faults: list[OSError] = []
    steps: dict[str, Callable[[], None]] = {
        "reporting": lambda: write_whole(folder.status_report, render_report(status)),
        "measuring": lambda: write_whole(folder.metrics, render_metrics(status, sums)),
        "logging": lambda: append_line(folder.log, line),
        "delivering": lambda: deliver(context, observed),
        "drawing": lambda: _write_page(context, observed, status),  # all else first
    }
    if has_sign:
        steps = {"leaving a sign": lambda: _leave_sign(context, observed), **steps}
    for name, step in steps.items():
        try:
            with context.effect(name):
                step()
        except OSError as error:
            faults.append(error)
    if faults:
        raise faults[0]


def _write_page(context: TickContext, observed: Observed, status: StatusReport) -> None:
    """Write the status page, and keep what was fitted for it.

    Raises:
        OSError: It could not be drawn or written; the old one stays.
    """
    past = past_of(context, observed)
    if past.fresh_fits:
        with context.writing("fits") as state:
            put_loss_forecasts(state, past.fresh_fits)
    try:
        page = render_page(status, past)
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        # Programs report anything; a page is worth no tick that stops.
        raise OSError(f"status.html could not be drawn: {error!r}") from error
    write_whole(context.folder.status_page, page, mode=0o600)


_LONGEST_GAP_S = 600.0
"""Between ticks that are further apart nobody knows how nodes were used."""


def _increments(status: StatusReport, last_s: float) -> dict[TickCounter, float]:
    """Return what this tick adds to the counters; node time as seen at its end.

    Args:
        status: The report of this tick.
        last_s: When the last tick took its snapshot, Unix time; 0 for never.
    """
    passed_s = status.at_s - last_s
    counted_s = passed_s if 0.0 < passed_s <= _LONGEST_GAP_S else 0.0
    leased = sum(lease.state == LeaseState.RUNNING for lease in status.leases)
    training = sum(trainer.nodes for trainer in status.trainers)
    return {
        TickCounter.TICKS: 1.0,
        TickCounter.REQUESTS: float(status.requests),
        TickCounter.LEASES_ASKED: float(status.done["leases asked for"]),
        TickCounter.KEPT_PLANS: float(status.planner == PlanStatus.KEPT),
        TickCounter.GIVEN_UP: float(status.done["leases given up to others"]),
        TickCounter.IDLE_NODE_S: counted_s * len(status.holes),
        TickCounter.LEASED_NODE_S: counted_s * leased,
        TickCounter.TRAINING_NODE_S: counted_s * training,
        TickCounter.LOOKED_S: passed_s,
    }


def _report_failure(context: TickContext, error: Exception) -> None:
    """Log what went wrong and count it, as far as that can be written at all."""
    if context.is_dry:
        return
    now_s = context.environment.now_s()
    with suppress(OSError):
        if isinstance(error, UnreadableOutputError):
            keep_evidence(context.folder.evidence, error, now_s=now_s)
        append_line(context.folder.log, f"{utc(now_s)} failed: {error}")
    with suppress(StoreError), context.writing("failure") as state:
        requests = float(context.backend.requests)
        add_to_counters(
            state, {TickCounter.FAILED_TICKS: 1.0, TickCounter.REQUESTS: requests}
        )


def poll_queue(
    site: Site, environment: TickEnvironment, *, now_s: float
) -> QueueDigest:
    """Return other users' jobs from one ``squeue`` call, counted like a tick's calls.

    Args:
        site: The site's settings.
        environment: Clocks and Slurm.
        now_s: What slurmctld's clock says, Unix time.

    Raises:
        SlurmError: Slurm did not answer, or not in a way that can be read.
        StoreBusyError: A tick is at work; nothing was asked.
        StoreError: The state cannot be used.
        CannotWriteError: A file cannot be written.
    """
    backend = connected(site, environment)
    with (
        environment.deadline(0.0),
        opened(site, environment, backend, dry_run=False) as context,
    ):
        try:
            jobs = context.backend.jobs()
        except SlurmError as error:
            _report_failure(context, error)
            raise
        with context.writing("a glance") as state:
            requests = float(context.backend.requests)
            add_to_counters(state, {TickCounter.REQUESTS: requests})
    return digest_of(jobs, now_s=now_s)


# The ticks that follow before cron starts the next.

_POLL_S = 0.25

_AGENT_START_S = 20.0
"""Agents that have not begun by then wait for the next tick."""

_NEXT_AGENT_S = 3.0
"""Agents that have begun do not wait longer than this for the next that begins."""

_AT_ONCE_S = 2.0
"""A cycle so soon after a tick that another would come too late for it."""


def tick_and_follow_up(
    site: Site,
    environment: TickEnvironment,
    *,
    within_s: float,
) -> Iterator[TickReport]:
    """Run a tick, and more that follow it up; yield the report of each at its end.

    No lock is held between them: another process may tick, and a kill loses nothing.

    Args:
        site: The site's settings.
        environment: Clocks, random names and Slurm.
        within_s: No tick begins later than so long after the first, seconds.

    Raises:
        FreeTrainError, SlurmError: As ``tick`` does. Where Slurm does not answer
            before a cycle, a file cannot be written, or another process ticks, the
            next cycle is tried all the same; the error is raised if the last attempt
            failed. The first tick is tried again where a file could not be written:
            without it no cycle is known.
    """
    end_s = environment.clock() + within_s
    notified_before: dict[str, float] = {}

    def again() -> TickReport:
        return tick(site, environment, notified_before=notified_before)

    try:
        report = again()
    except CannotWriteError:
        if environment.clock() + APART_S > end_s:
            raise
        environment.sleep(APART_S)
        report = again()
    yield report
    folder, failed = StateDir(site.state_directory), None
    if _has_agents(report, folder, environment, end_s):
        try:
            report = again()
            yield report
        except CannotWriteError as error:
            failed = error
    yield from _before_cycles(
        site, environment, report, again, end_s=end_s, failed=failed
    )


def _has_agents(
    report: TickReport,
    folder: StateDir,
    environment: TickEnvironment,
    end_s: float,
) -> bool:
    """Wait for the agents of the leases asked for; tell whether any has begun."""
    heartbeats = [
        folder.lease(LeaseKey(uuid, task)).heartbeat
        for request in report.requests
        if (uuid := uuid_in(request.name)) is not None
        for task in range(request.tasks)
    ]
    until_s = end_s = min(end_s, environment.clock() + _AGENT_START_S)
    begun = 0
    while begun < len(heartbeats) and environment.clock() < until_s:
        environment.sleep(_POLL_S)
        before, begun = begun, sum(map(_exists, heartbeats))
        if begun > before:
            until_s = min(end_s, environment.clock() + _NEXT_AGENT_S)
    return begun > 0


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # looked for again in a moment
        return False


def _before_cycles(  # noqa: PLR0913 -- only tick_and_follow_up calls it
    site: Site,
    environment: TickEnvironment,
    report: TickReport,
    again: Callable[[], TickReport],
    *,
    end_s: float,
    failed: Exception | None,
) -> Iterator[TickReport]:
    """Tick before each of backfill's cycles for as long as there are leases.

    Between two such ticks the queue alone is polled just before the cycle; only where
    it has changed does a tick follow. *failed* is why the tick before this one failed;
    it is raised where no later one was good.
    """
    clock = environment.clock
    rested_s, polled_s = clock() + _AT_ONCE_S, -math.inf
    while report.cycles is not None:
        tick_s = _before_cycle_s(report, rested_s, LEAD_S)
        poll_from_s = max(clock(), polled_s + APART_S)
        poll_s = _before_cycle_s(report, poll_from_s, last_lead_s(report.took_s))
        if min(tick_s, poll_s) > end_s:
            break
        environment.sleep(max(0.0, min(tick_s, poll_s) - clock()))
        try:
            if poll_s < tick_s:
                polled_s = clock()
                if not _has_queue_changed(site, environment, report):
                    failed = None
                    continue
            report, failed = again(), None
        except (SlurmError, StoreBusyError, CannotWriteError) as error:
            failed = error
        rested_s = clock() + APART_S
        if failed is None:
            yield report
    if failed is not None:
        raise failed


def _before_cycle_s(report: TickReport, from_s: float, lead_s: float | None) -> float:
    """Return when a cycle is *lead_s* away, *from_s* at the soonest, by the clock."""
    if report.cycles is None or lead_s is None:
        return math.inf
    rest_s = from_s - report.began_s
    return report.began_s + report.cycles.next_poll_s(rest_s=rest_s, lead_s=lead_s)


def _has_queue_changed(
    site: Site, environment: TickEnvironment, report: TickReport
) -> bool:
    """Tell whether other users' jobs changed so that a tick may have to make room."""
    since_s = environment.clock() - report.began_s
    now_s = since_s + (0.0 if report.cycles is None else report.cycles.seen_s)
    queue = poll_queue(site, environment, now_s=now_s)
    return queue.needs_tick_after(report.queue)
