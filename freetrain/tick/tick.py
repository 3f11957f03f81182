"""One tick: lock, observe, decide, carry out, tell. Seconds long, and then gone.

Dying anywhere leaves nothing that the next tick does not put right: an intent is
written down before its sbatch, a generation's file is whole or not there, and all
that a look tells is written in one transaction.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from freetrain.broker.crowd import NOBODY, crowd_of
from freetrain.broker.cycles import cycles_of
from freetrain.broker.lease import LeaseState
from freetrain.broker.limits import Mode
from freetrain.errors import FreeTrainError
from freetrain.exchange.layout import StateDir
from freetrain.store.counters import Counter, add_to_counters, counters
from freetrain.store.directory import DATABASE, LOCK, prepare_directory
from freetrain.store.errors import StoreError
from freetrain.store.local_lock import local_lock
from freetrain.store.migrations import migrate
from freetrain.store.open_store import open_store, read_store
from freetrain.store.turn import end_turn, take_turn
from freetrain.tick.carry_out import carry_out
from freetrain.tick.decision import decide_on
from freetrain.tick.delivering import deliver
from freetrain.tick.files import append_line, clearly, keep_evidence, write_whole
from freetrain.tick.happened import record
from freetrain.tick.line import line_of, utc
from freetrain.tick.metrics import metrics
from freetrain.tick.observe import observe
from freetrain.tick.page import rendered
from freetrain.tick.report import page_of
from freetrain.tick.run import Run, effect
from freetrain.tick.tidying import tidy
from milp.planner import Outcome
from slurm.errors import SlurmError, UnreadableOutputError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from freetrain.broker.crowd import Crowd
    from freetrain.broker.cycles import Cycles
    from freetrain.site.settings import Site
    from freetrain.store.turn import Turn
    from freetrain.tick.carry_out import Done
    from freetrain.tick.observe import Observed
    from freetrain.tick.outside import Outside
    from freetrain.tick.page import Page
    from slurm.batch import LeaseRequest

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
    crowd: Crowd = NOBODY


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
        crowd_of(observed.snapshot.jobs, now_s=observed.now_s),
    )


def glance(site: Site, outside: Outside, *, now_s: float) -> Crowd:
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
    return crowd_of(jobs, now_s=now_s)


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
