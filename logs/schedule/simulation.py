"""The simulator: one loop over time, whatever places the jobs."""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from logs.schedule.guests import NoGuests
from logs.schedule.machine import Machine, PlannedJob, Running

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from logs.schedule.guests import Guests
    from logs.schedule.machine import Placer
    from logs.schedule.unitset import Units, UnitSet
    from logs.trace import Job


@dataclass(frozen=True, slots=True)
class Moment:
    """What happened at one time, and what an onlooker sees afterwards.

    Attributes:
        time_s: The time. Two moments may share it: a job of zero run time ends
            at a second one.
        ended: Jobs that ended, by index.
        arrived: Jobs that entered the queue, by index.
        started: Jobs that started, in the order they did.
        waiting: Length of the queue afterwards.
        free: Units that no job holds afterwards.
        plan: The scheduler's plan for the waiting jobs afterwards.
        put_off: Jobs that did not start, and would have, were nothing leased then.
    """

    time_s: float
    ended: tuple[int, ...]
    arrived: tuple[int, ...]
    started: tuple[Running, ...]
    waiting: int
    free: UnitSet
    plan: tuple[PlannedJob, ...]
    put_off: tuple[int, ...] = ()


class Simulation:
    """Steps through time, one moment a step, until nothing is left to happen.

    At each moment, in this order: every job whose time has come ends, every job
    due by then enters the queue, and the placer makes one pass.
    """

    def __init__(
        self,
        jobs: Sequence[Job],
        units: Units,
        *,
        placer: Placer,
        admitted: Sequence[int],
    ) -> None:
        """Set the machine up, empty.

        Args:
            jobs: Every job of the trace, by index.
            units: The machine.
            placer: What places the jobs; it serves this simulation only.
            admitted: Indices of the jobs that take part.
        """
        self._machine = Machine(jobs, units)
        self._placer = placer
        due = [(placer.arrives_s(jobs[index]), index) for index in admitted]
        self._arrivals = sorted(due, reverse=True)

    def __iter__(self) -> Iterator[Moment]:
        """Step until the end."""
        while (moment := self.step()) is not None:
            yield moment

    def branch(self, guests: Guests | None = None) -> Simulation:
        """Return one that goes its own way from here, with *guests* on the machine."""
        shared = {id(self._machine.jobs): self._machine.jobs}
        other = copy.deepcopy(self, shared)
        other._machine.guests = guests or NoGuests()  # noqa: SLF001 - one of us
        return other

    def step(self) -> Moment | None:
        """Go to the next moment, or return None where there is none."""
        machine = self._machine
        now_s = self.next_s
        if math.isinf(now_s):
            return None
        machine.now_s = now_s
        ended = machine.end_due()
        arrived = self._admit_due()
        return self._pass(ended, arrived, changed=bool(ended))

    def lease(self, units: UnitSet, *, until_s: float, now_s: float) -> Moment:
        """Let somebody hold *units*, all free, as a job that asked for so long.

        Not before the last moment, and not after the next. They are held until
        `release`, whatever was asked for. The placer makes a pass.
        """
        self._machine.now_s = now_s
        self._machine.lease(units, until_s)
        return self._pass((), (), changed=True)

    def release(self, units: UnitSet, *, now_s: float) -> Moment:
        """Give leased *units* back now; the placer makes a pass."""
        self._machine.now_s = now_s
        self._machine.release(units)
        return self._pass((), (), changed=True)

    def _pass(
        self, ended: tuple[int, ...], arrived: tuple[int, ...], *, changed: bool
    ) -> Moment:
        machine = self._machine
        would_start = self._unhindered(changed=changed, arrived=bool(arrived))
        self._placer.place(machine, ended=changed, arrived=bool(arrived))
        moment = _seen(machine, self._placer, ended, arrived)
        put_off = would_start.difference(job.job for job in moment.started)
        return replace(moment, put_off=tuple(sorted(put_off))) if put_off else moment

    def _unhindered(self, *, changed: bool, arrived: bool) -> frozenset[int]:
        """Return the jobs that the pass which is due would start without leases."""
        if not (self._machine.waiting and self._machine.leased):
            return frozenset()
        machine = self._machine.without_leases()
        placer = self._placer.anew(self._placer.wakes_s)
        placer.place(machine, ended=changed, arrived=arrived)
        return frozenset(job.job for job in machine.take_started())

    @property
    def machine(self) -> Machine:
        """The machine as it is now, to look at."""
        return self._machine

    @property
    def plan(self) -> tuple[PlannedJob, ...]:
        """What the scheduler has planned for the jobs that wait."""
        return self._placer.plan

    @property
    def next_s(self) -> float:
        """When the next moment is, ``inf`` where there is none."""
        arrival_s = self._arrivals[-1][0] if self._arrivals else math.inf
        return min(arrival_s, self._machine.next_end_s, self._placer.wakes_s)

    def _admit_due(self) -> tuple[int, ...]:
        arrived = []
        while self._arrivals and self._arrivals[-1][0] <= self._machine.now_s:
            job = self._arrivals.pop()[1]
            self._machine.enqueue(job, self._placer)
            arrived.append(job)
        return tuple(arrived)


def _seen(
    machine: Machine, placer: Placer, ended: tuple[int, ...], arrived: tuple[int, ...]
) -> Moment:
    return Moment(
        time_s=machine.now_s,
        ended=ended,
        arrived=arrived,
        started=machine.take_started(),
        waiting=len(machine.waiting),
        free=machine.free,
        plan=placer.plan,
    )
