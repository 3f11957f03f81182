"""From a log of jobs to a schedule."""

from __future__ import annotations

from typing import TYPE_CHECKING

from logs.schedule.easy import EasyPlacer
from logs.schedule.layout import lay_out
from logs.schedule.plans import PlanWatcher
from logs.schedule.recorded import RecordedPlacer
from logs.schedule.result import Method, Reason, Refused, Schedule
from logs.schedule.simulation import Simulation
from logs.schedule.slurm import SlurmParameters, SlurmPlacer
from logs.schedule.unitset import Units

if TYPE_CHECKING:
    from collections.abc import Callable

    from logs.schedule.layout import Layout
    from logs.schedule.machine import Placer, Running
    from logs.trace import Job, JobTrace

_MOMENTS_BETWEEN_REPORTS = 256


def schedule(
    trace: JobTrace,
    method: Method,
    *,
    units: int | None = None,
    slurm: SlurmParameters | None = None,
    on_progress: Callable[[float], None] | None = None,
) -> Schedule:
    """Place *trace*'s jobs on a machine.

    Args:
        trace: The log.
        method: How; docs/schedule.md has every rule.
        units: The machine's size in the log's allocation units; None takes the
            trace's.
        slurm: Parameters of the ``slurm`` method; None takes Slurm's defaults.
        on_progress: Called now and then with the share of jobs that ended.

    Raises:
        UnusableLogError: The machine does not fit the log.
    """
    method = Method(method)
    layout = lay_out(trace, units=units, by_name=method is Method.RECORDED)
    refused = _refuse(trace, method, layout)
    left_out = {job.job for job in refused}
    admitted = [job for job in range(len(trace.jobs)) if job not in left_out]
    recorded = RecordedPlacer(layout)
    simulation = Simulation(
        trace.jobs,
        Units(layout.units),
        placer=_placer(method, recorded, slurm or SlurmParameters()),
        admitted=admitted,
    )
    placed, planned = _run(simulation, len(admitted), on_progress=on_progress)
    return Schedule(
        trace=trace,
        method=method,
        layout=layout,
        placed=placed,
        refused=refused,
        over_commitment=recorded.over_commitment,
        planned=planned.seen(layout),
    )


def _run(
    simulation: Simulation,
    jobs: int,
    *,
    on_progress: Callable[[float], None] | None,
) -> tuple[tuple[Running, ...], PlanWatcher]:
    watcher = PlanWatcher()
    placed: list[Running] = []
    ended = 0
    for count, moment in enumerate(simulation, 1):
        placed += moment.started
        ended += len(moment.ended)
        watcher.watch(moment)
        if on_progress is not None and count % _MOMENTS_BETWEEN_REPORTS == 0:
            on_progress(ended / jobs)
    return tuple(placed), watcher


def _placer(method: Method, recorded: RecordedPlacer, slurm: SlurmParameters) -> Placer:
    match method:
        case Method.RECORDED:
            return recorded
        case Method.EASY:
            return EasyPlacer()
        case Method.SLURM:
            return SlurmPlacer(slurm)


def _refuse(trace: JobTrace, method: Method, layout: Layout) -> tuple[Refused, ...]:
    reasons = ((n, _reason(job, method, layout)) for n, job in enumerate(trace.jobs))
    return tuple(Refused(n, reason) for n, reason in reasons if reason is not None)


def _reason(job: Job, method: Method, layout: Layout) -> Reason | None:
    if job.units < 1:
        return Reason.NO_UNITS
    if job.start_s is None and job.run_s == 0:
        return Reason.NEVER_RAN
    if method is Method.RECORDED:
        return Reason.NO_START if job.start_s is None else None
    return Reason.TOO_WIDE if job.units > layout.units else None
