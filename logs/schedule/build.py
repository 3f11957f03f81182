"""From a log of jobs to a schedule."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from logs.schedule.easy import EasyPlacer
from logs.schedule.layout import lay_out
from logs.schedule.plans import PlanWatcher
from logs.schedule.recorded import RecordedPlacer, find_over_commitment
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


@dataclass(frozen=True, slots=True, eq=False)
class Prepared:
    """A simulation that has not begun.

    Attributes:
        simulation: Steps through it.
        layout: The machine.
        admitted: The jobs that take part, by index.
        refused: The jobs that do not.
    """

    simulation: Simulation
    layout: Layout
    admitted: tuple[int, ...]
    refused: tuple[Refused, ...]


def prepare(
    trace: JobTrace,
    method: Method,
    *,
    units: int | None = None,
    slurm: SlurmParameters | None = None,
) -> Prepared:
    """Set a simulation up; `schedule` says what the arguments mean."""
    layout = lay_out(trace, units=units, by_name=method == Method.RECORDED)
    reasons = {n: _reason(job, method, layout) for n, job in enumerate(trace.jobs)}
    admitted = tuple(job for job, reason in reasons.items() if reason is None)
    refused = tuple(
        Refused(job, reason) for job, reason in reasons.items() if reason is not None
    )
    placer = _placer(method, layout, slurm or SlurmParameters())
    simulation = Simulation(
        trace.jobs, Units(layout.units), placer=placer, admitted=admitted
    )
    return Prepared(simulation, layout, admitted, refused)


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
        on_progress: Called now and then with the share of jobs that ended, 0..1.

    Raises:
        UnusableLogError: The machine does not fit the log.
    """
    prepared = prepare(trace, method, units=units, slurm=slurm)
    placed, watcher = _run(prepared, on_progress=on_progress)
    return Schedule(
        trace=trace,
        method=method,
        layout=prepared.layout,
        placed=placed,
        refused=prepared.refused,
        over_commitment=find_over_commitment(trace, placed),
        planned=watcher.seen(prepared.layout),
    )


def _run(
    prepared: Prepared, *, on_progress: Callable[[float], None] | None
) -> tuple[tuple[Running, ...], PlanWatcher]:
    watcher = PlanWatcher()
    placed: list[Running] = []
    ended = 0
    for count, moment in enumerate(prepared.simulation, 1):
        placed += moment.started
        ended += len(moment.ended)
        watcher.watch(moment)
        if on_progress is not None and count % _MOMENTS_BETWEEN_REPORTS == 0:
            on_progress(ended / len(prepared.admitted))
    return tuple(placed), watcher


def _placer(method: Method, layout: Layout, slurm: SlurmParameters) -> Placer:
    match method:
        case Method.RECORDED:
            return RecordedPlacer(layout)
        case Method.EASY:
            return EasyPlacer()
        case Method.SLURM:
            return SlurmPlacer(slurm)


def _reason(job: Job, method: Method, layout: Layout) -> Reason | None:
    if job.units < 1:
        return Reason.NO_UNITS
    if job.start_s is None and job.run_s == 0:
        return Reason.NEVER_RAN
    if method == Method.RECORDED:
        return Reason.NO_START if job.start_s is None else None
    return Reason.TOO_WIDE if job.units > layout.units else None
