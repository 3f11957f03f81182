"""How much of the machine the jobs of a log held, by its own start times."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from logs.trace import Job


def levels(jobs: Iterable[Job]) -> Iterator[tuple[float, int]]:
    """Yield (second, units held from then on), in the order of time.

    A job that ends when another starts makes room for it. Jobs without a start,
    and those that ran for no time, hold nothing.
    """
    changes: dict[float, int] = {}
    for job in jobs:
        if job.start_s is not None and job.run_s > 0:
            end_s = job.start_s + job.run_s
            changes[job.start_s] = changes.get(job.start_s, 0) + job.units
            changes[end_s] = changes.get(end_s, 0) - job.units
    held = 0
    for time_s in sorted(changes):
        held += changes[time_s]
        yield time_s, held


def peak_units(jobs: Iterable[Job]) -> int:
    """Return the most units that *jobs* ever held at once, 0 for none."""
    return max((held for _, held in levels(jobs)), default=0)


def machine_units(stated: int | None, jobs: tuple[Job, ...]) -> int:
    """Return the machine's size: as *stated*, else the most ever held at once.

    Where no job has a start, the largest job is all there is to go by.
    """
    if stated:
        return stated
    return peak_units(jobs) or max((job.units for job in jobs), default=0)
