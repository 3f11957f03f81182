"""One tick: lock, observe, plan, record, act, report. It lasts seconds and exits.

A tick that dies at any instruction leaves nothing that the next does not put right: an
intent is committed before its ``sbatch``, a generation's file is whole or absent, and
what was observed is recorded in one transaction.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from freetrain.broker.lease import LeaseState
from freetrain.broker.limits import Mode
from freetrain.broker.polling import EMPTY_DIGEST, cycles_of, digest_of
from freetrain.errors import FreeTrainError
from freetrain.state.database import StoreError
from freetrain.state.tables import Counter, add_to_counters, counters
from freetrain.tick.act import carry_out, tidy
from freetrain.tick.context import TURN_S, opened
from freetrain.tick.deliver import deliver
from freetrain.tick.environment import append_line, keep_evidence, write_whole
from freetrain.tick.observe import observe
from freetrain.tick.plan import decide_on
from freetrain.tick.record import record, report_of
from freetrain.tick.status_report import (
    render_metrics,
    render_report,
    summary_line,
    utc,
)
from milp.answer import PlanStatus
from slurm.errors import SlurmError, UnreadableOutputError

if TYPE_CHECKING:
    from freetrain.broker.polling import Cycles, QueueDigest
    from freetrain.config.site import Site
    from freetrain.tick.act import ActionResults
    from freetrain.tick.context import TickContext
    from freetrain.tick.environment import TickEnvironment
    from freetrain.tick.observe import Observed
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
    """

    status: StatusReport
    requests: tuple[LeaseRequest, ...]
    cycles: Cycles | None = None
    queue: QueueDigest = EMPTY_DIGEST


def tick(
    site: Site, environment: TickEnvironment, *, dry_run: bool = False
) -> TickReport:
    """Run one tick; a dry run plans and reports, and writes nothing at all.

    Raises:
        SlurmError: Slurm did not answer, or not in a way that can be read. Where this
            happened before the plan, nothing was changed; later, the report tells.
        StoreBusyError: Another tick is at work; nothing was done.
        StoreError: The state cannot be used.
        CannotWriteError: A file cannot be written.
        MilpError: No plan can be made.
    """
    began_s = environment.clock()
    with opened(site, environment, dry_run=dry_run) as context:
        try:
            return _steps(context, began_s)
        except (SlurmError, FreeTrainError) as error:
            _report_failure(context, error)
            raise


def _steps(context: TickContext, began_s: float) -> TickReport:
    """Take the steps of a tick, each in a module of its own."""
    clock = context.environment.clock
    observed = observe(context)
    planning_s = clock()
    decided = decide_on(context, observed)
    planner_s = clock() - planning_s
    record(context, observed, decided)
    done = carry_out(context, observed, decided)
    if not context.is_dry:
        done.problems += filter(None, [tidy(context, observed)])
    status = report_of(
        context,
        observed,
        decided,
        done,
        took_s=clock() - began_s,
        planner_s=planner_s,
    )
    if not context.is_dry:
        _write_report(context, status)
        deliver(context, observed)
    if done.error is not None:
        raise done.error
    return TickReport(
        status,
        tuple(done.requests),
        _cycles(observed, status, done),
        digest_of(observed.snapshot.jobs, now_s=observed.now_s),
    )


def _cycles(
    observed: Observed, status: StatusReport, done: ActionResults
) -> Cycles | None:
    has_leases = status.leases or done.requests
    if observed.limits.mode is not Mode.YIELD or not has_leases:
        return None
    return cycles_of(observed.snapshot.after, observed.config)


def _write_report(context: TickContext, status: StatusReport) -> None:
    """Write the status report, the metrics file and a line of the log."""
    with context.writing("sums") as state:
        add_to_counters(state, _increments(status, counters(state)[Counter.LOOKED_S]))
    with context.effect("telling"):
        write_whole(context.folder.page, render_report(status))
        write_whole(
            context.folder.metrics, render_metrics(status, counters(context.state))
        )
        append_line(context.folder.log, f"{utc(status.at_s)} {summary_line(status)}")


def _increments(status: StatusReport, last_s: float) -> dict[Counter, float]:
    """Return what this tick adds to the counters; node time as seen at its end.

    Args:
        status: The report of this tick.
        last_s: When the last tick took its snapshot, Unix time; 0 for never.
    """
    passed_s = status.at_s - last_s
    counted_s = passed_s if 0.0 < passed_s <= TURN_S else 0.0
    leased = sum(lease.state == LeaseState.RUNNING for lease in status.leases)
    training = sum(trainer.nodes for trainer in status.trainers)
    return {
        Counter.TICKS: 1.0,
        Counter.REQUESTS: float(status.requests),
        Counter.LEASES_ASKED: float(status.done["leases asked for"]),
        Counter.KEPT_PLANS: float(status.planner == PlanStatus.KEPT),
        Counter.IDLE_NODE_S: counted_s * len(status.holes),
        Counter.LEASED_NODE_S: counted_s * leased,
        Counter.TRAINING_NODE_S: counted_s * training,
        Counter.LOOKED_S: passed_s,
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
        add_to_counters(state, {Counter.FAILED_TICKS: 1.0, Counter.REQUESTS: requests})


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
    with opened(site, environment, dry_run=False) as context:
        try:
            jobs = context.backend.jobs()
        except SlurmError as error:
            _report_failure(context, error)
            raise
        with context.writing("a glance") as state:
            requests = float(context.backend.requests)
            add_to_counters(state, {Counter.REQUESTS: requests})
    return digest_of(jobs, now_s=now_s)
