"""One tick: lock, observe, decide, carry out, tell. Seconds long, and then gone.

Dying anywhere leaves nothing that the next tick does not put right: an intent is
written down before its sbatch, a generation's file is whole or not there, and all
that a look tells is written in one transaction.
"""

from __future__ import annotations

import math
import sqlite3
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from freetrain.broker.lease import LeaseKey, LeaseState, uuid_in
from freetrain.broker.limits import Mode
from freetrain.broker.polling import (
    APART_S,
    EMPTY_DIGEST,
    LEAD_S,
    cycles_of,
    digest_of,
    last_lead_s,
)
from freetrain.errors import FreeTrainError
from freetrain.state.database import (
    DATABASE,
    LOCK,
    StoreBusyError,
    StoreError,
    end_turn,
    local_lock,
    migrate,
    open_store,
    prepare_directory,
    read_store,
    take_turn,
)
from freetrain.state.files import StateDir
from freetrain.state.tables import Counter, add_to_counters, counters
from freetrain.tick.act import carry_out, tidy
from freetrain.tick.context import (
    Run,
    append_line,
    clearly,
    effect,
    keep_evidence,
    write_whole,
)
from freetrain.tick.deliver import deliver
from freetrain.tick.observe import observe
from freetrain.tick.page import line_of, metrics, rendered, utc
from freetrain.tick.plan import decide_on
from freetrain.tick.record import page_of, record
from milp.planner import Outcome
from slurm.errors import (
    SlurmError,
    UnreadableOutputError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from freetrain.broker.polling import Cycles, QueueDigest
    from freetrain.config.site import Site
    from freetrain.state.database import Turn
    from freetrain.tick.act import Done
    from freetrain.tick.context import Outside
    from freetrain.tick.observe import Observed
    from freetrain.tick.page import Page
    from slurm.batch import LeaseRequest


# ----------------------------------------------------------------------
# One tick: lock, observe, decide, carry out, tell. Seconds long, and then gone.

LONGEST_S = 600.0
"""A turn lasts so long; a tick that takes longer has lost it."""

READING_REQUESTS = 9
"""Commands of a tick that has nothing to do: the look, the settings, our jobs, and
once an hour, where it looks ahead, the switches that nodes are below."""


@dataclass(frozen=True, slots=True)
class TickReport:
    """What a tick saw and did.

    Attributes:
        page: All of it.
        requests: What sbatch was asked, or in a dry run would be.
        cycles: When backfill is due, where somebody could be overtaken because of
            leases: each tick makes room, and there are some.
        crowd: Who else was there.
    """

    page: Page
    requests: tuple[LeaseRequest, ...]
    cycles: Cycles | None = None
    crowd: QueueDigest = EMPTY_DIGEST


def tick(site: Site, outside: Outside, *, dry_run: bool = False) -> TickReport:
    """Run one tick.

    Args:
        site: The site's settings.
        outside: Clocks, numbers and Slurm.
        dry_run: Do everything but carry it out; nothing is written at all.

    Raises:
        SlurmError: Slurm did not answer, or not in a way that can be read. Before
            anything was decided nothing was changed; after, the page tells.
        StoreBusyError: Another tick is at work; nothing was done.
        StoreError: The state cannot be used.
        CannotWriteError: A file cannot be written.
        MilpError: Nothing can be planned.
    """
    began_s = outside.clock()
    with clearly(site.state_directory), _prepared(site, outside, dry_run) as run:
        try:
            return _tick(run, began_s)
        except (SlurmError, FreeTrainError) as error:
            _tell_failure(run, error)
            raise


def _tick(run: Run, began_s: float) -> TickReport:
    observed = observe(run)
    decided_s = run.outside.clock()
    decided = decide_on(run, observed)
    planner_s = run.outside.clock() - decided_s
    record(run, observed, decided.deserts, decided.outlook)
    done = carry_out(run, observed, decided)
    if not run.is_dry:
        done.problems += filter(None, [tidy(run, observed)])
    page = page_of(
        run,
        observed,
        decided,
        done,
        took_s=run.outside.clock() - began_s,
        planner_s=planner_s,
    )
    if not run.is_dry:
        _tell(run, page)
        deliver(run, observed)
    if done.error is not None:
        raise done.error
    return TickReport(
        page,
        tuple(done.requests),
        _cycles(observed, page, done),
        digest_of(observed.snapshot.jobs, now_s=observed.now_s),
    )


def glance(site: Site, outside: Outside, *, now_s: float) -> QueueDigest:
    """Ask who else is there: one command, which is counted like those of ticks.

    Args:
        site: The site's settings.
        outside: Clocks, numbers and Slurm.
        now_s: What slurmctld's clock says, Unix time.

    Raises:
        SlurmError: Slurm did not answer, or not in a way that can be read.
        StoreBusyError: A tick is at work; nothing was asked.
        StoreError: The state cannot be used.
        CannotWriteError: A file cannot be written.
    """
    with clearly(site.state_directory), _prepared(site, outside, dry_run=False) as run:
        try:
            jobs = run.backend.jobs()
        except SlurmError as error:
            _tell_failure(run, error)
            raise
        with run.writing("a glance") as state:
            add_to_counters(state, {Counter.REQUESTS: float(run.backend.requests)})
    return digest_of(jobs, now_s=now_s)


def _cycles(observed: Observed, page: Page, done: Done) -> Cycles | None:
    has_leases = page.leases or done.requests
    if observed.limits.mode is not Mode.YIELD or not has_leases:
        return None
    return cycles_of(observed.snapshot.after, observed.config)


def _tell(run: Run, page: Page) -> None:
    """Write the page, the metrics and a line of the log."""
    with run.writing("sums") as state:
        add_to_counters(state, _more(page, counters(state)[Counter.LOOKED_S]))
    with run.effect("telling"):
        write_whole(run.folder.page, rendered(page))
        write_whole(run.folder.metrics, metrics(page, counters(run.state)))
        append_line(run.folder.log, f"{utc(page.at_s)} {line_of(page)}")


def _more(page: Page, last_s: float) -> dict[Counter, float]:
    """Return what this tick adds to the sums; node times as seen at its end."""
    passed_s = page.at_s - last_s
    told_s = passed_s if 0.0 < passed_s <= LONGEST_S else 0.0
    leased = sum(lease.state == LeaseState.RUNNING for lease in page.leases)
    training = sum(trainer.nodes for trainer in page.trainers)
    return {
        Counter.TICKS: 1.0,
        Counter.REQUESTS: float(page.requests),
        Counter.LEASES_ASKED: float(page.done["leases asked for"]),
        Counter.KEPT_PLANS: float(page.planner == Outcome.KEPT),
        Counter.IDLE_NODE_S: told_s * len(page.holes),
        Counter.LEASED_NODE_S: told_s * leased,
        Counter.TRAINING_NODE_S: told_s * training,
        Counter.LOOKED_S: passed_s,
    }


def _tell_failure(run: Run, error: Exception) -> None:
    """Leave a line of what went wrong, as far as that can be written at all."""
    if run.is_dry:
        return
    now_s = run.outside.now_s()
    with suppress(OSError):
        if isinstance(error, UnreadableOutputError):
            keep_evidence(run.folder.evidence, error, now_s=now_s)
        append_line(run.folder.log, f"{utc(now_s)} failed: {error}")
    with suppress(StoreError), run.writing("failure") as state:
        requests = float(run.backend.requests)
        add_to_counters(state, {Counter.FAILED_TICKS: 1.0, Counter.REQUESTS: requests})


@contextmanager
def _prepared(site: Site, outside: Outside, dry_run: bool) -> Iterator[Run]:  # noqa: FBT001
    """Take lock and turn and open the state; in a dry run, copy it."""
    folder = StateDir(site.state_directory)
    backend = outside.connect(READING_REQUESTS + site.caps.rpcs_per_tick)
    opened = _copied(folder, outside.uid) if dry_run else _held(folder, outside)
    with opened as (state, turn):
        yield Run(
            site=site,
            outside=outside,
            folder=folder,
            state=state,
            backend=backend,
            turn=turn,
        )


@contextmanager
def _held(
    folder: StateDir, outside: Outside
) -> Iterator[tuple[sqlite3.Connection, Turn]]:
    """Open the state while nobody else ticks."""
    prepare_directory(folder.path, uid=outside.uid)
    with (
        local_lock(folder.path / LOCK),
        open_store(folder.path, uid=outside.uid) as state,
    ):
        with effect(outside, "taking the turn"):
            turn = take_turn(
                state,
                outside.ticker,
                now_s=outside.now_s(),
                for_s=LONGEST_S,
                is_alive=outside.is_alive,
            )
        try:
            yield state, turn
        finally:
            with suppress(StoreError):  # it ends by itself
                end_turn(state, turn)


@contextmanager
def _copied(folder: StateDir, uid: int) -> Iterator[tuple[sqlite3.Connection, None]]:
    """Open a copy of the state in memory; an empty one where there is none."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as copy:
        if (folder.path / DATABASE).exists():
            with read_store(folder.path, uid=uid) as state:
                state.backup(copy)
        migrate(copy)
        yield copy, None


# ----------------------------------------------------------------------
# A tick, and those that follow it up before somebody else starts the next.

_LOOK_EVERY_S = 0.25

_PATIENCE_S = 20.0
"""Agents that have not begun by then wait for the next tick."""

_REST_S = 3.0
"""Who has begun does not wait longer than this for the next that begins."""

_AT_ONCE_S = 2.0
"""A cycle so soon after a look that it would be too late."""


def tick_and_follow_up(
    site: Site, outside: Outside, *, within_s: float, wait: Callable[[float], None]
) -> Iterator[TickReport]:
    """Run a tick, and more that follow it up.

    Where it asked for leases, wait for their agents and run another: without it, new
    leases idle until cron starts the next. Where leases make room for others, run
    another before each of backfill's cycles, and one more where others' jobs have
    changed until just before it. Nothing is held meanwhile: somebody else may tick, and
    a kill loses nothing.

    Args:
        site: The site's settings.
        outside: Clocks, numbers and Slurm.
        within_s: None begins later than so long after the first, seconds.
        wait: Waits so many seconds.

    Yields:
        The report of each, as soon as it is over.

    Raises:
        FreeTrainError, SlurmError: As ``tick`` does. Where Slurm does not answer a
            look before a cycle, or somebody else ticks, the next is tried all the
            same; raised is what stopped the last.
    """
    end_s = outside.clock() + within_s
    looked = _look(site, outside)
    yield looked.report
    folder = StateDir(site.state_directory)
    if _heard(looked.report, folder, outside, end_s, wait):
        looked = _look(site, outside)
        yield looked.report
    yield from _before_cycles(site, outside, looked, end_s=end_s, wait=wait)


@dataclass(frozen=True, slots=True)
class _Looked:
    """The last tick.

    Attributes:
        report: Of it.
        began_s: When it began, by the clock.
        took_s: How long it took.
    """

    report: TickReport
    began_s: float
    took_s: float

    def again_s(self, from_s: float, lead_s: float | None) -> float:
        """Return when to look so long before a cycle, *from_s* at the soonest."""
        cycles = self.report.cycles
        if cycles is None or lead_s is None:
            return math.inf
        rest_s = from_s - self.began_s
        return self.began_s + cycles.next_poll_s(rest_s=rest_s, lead_s=lead_s)


def _look(site: Site, outside: Outside) -> _Looked:
    began_s = outside.clock()
    report = tick(site, outside)
    return _Looked(report, began_s, outside.clock() - began_s)


def _before_cycles(
    site: Site,
    outside: Outside,
    looked: _Looked,
    *,
    end_s: float,
    wait: Callable[[float], None],
) -> Iterator[TickReport]:
    """Tick before each of backfill's cycles for as long as there are leases."""
    rested_s, glanced_s, failed = outside.clock() + _AT_ONCE_S, -math.inf, None
    while looked.report.cycles is not None:
        look_s = looked.again_s(rested_s, LEAD_S)
        last_from_s = max(outside.clock(), glanced_s + APART_S)
        last_s = looked.again_s(last_from_s, last_lead_s(looked.took_s))
        if min(look_s, last_s) > end_s:
            break
        wait(max(0.0, min(look_s, last_s) - outside.clock()))
        try:
            if last_s < look_s:
                glanced_s = outside.clock()
                if not _is_stirred(site, outside, looked):
                    failed = None
                    continue
            looked, failed = _look(site, outside), None
        except (SlurmError, StoreBusyError) as error:
            failed = error
        rested_s = outside.clock() + APART_S
        if failed is None:
            yield looked.report
    if failed is not None:
        raise failed


def _is_stirred(site: Site, outside: Outside, looked: _Looked) -> bool:
    """Ask who else is there; tell whether another tick may make room for somebody."""
    cycles = looked.report.cycles
    since_s = outside.clock() - looked.began_s
    now_s = since_s + (0.0 if cycles is None else cycles.seen_s)
    return glance(site, outside, now_s=now_s).needs_tick_after(looked.report.crowd)


def _heard(
    report: TickReport,
    folder: StateDir,
    outside: Outside,
    end_s: float,
    wait: Callable[[float], None],
) -> bool:
    """Wait for the agents of the leases that were asked for; tell whether one came."""
    beats = [folder.lease(key).heartbeat for key in _asked(report.requests)]
    until_s = end_s = min(end_s, outside.clock() + _PATIENCE_S)
    heard = 0
    while heard < len(beats) and outside.clock() < until_s:
        wait(_LOOK_EVERY_S)
        before, heard = heard, sum(beat.exists() for beat in beats)
        if heard > before:
            until_s = min(end_s, outside.clock() + _REST_S)
    return heard > 0


def _asked(requests: Sequence[LeaseRequest]) -> Iterator[LeaseKey]:
    for request in requests:
        uuid = uuid_in(request.name)
        if uuid is not None:
            yield from (LeaseKey(uuid, task) for task in range(request.tasks))
