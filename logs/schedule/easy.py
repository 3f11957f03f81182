"""First come, first served, with EASY (aggressive) backfill.

Sources: D. Lifka, "The ANL/IBM SP scheduling system", JSSPP 1995; A. Mu'alem and
D. Feitelson, "Utilization, predictability, workloads, and user runtime
estimates in scheduling the IBM SP2 with backfilling", IEEE TPDS 12(6), 2001.
Every boundary is argued in docs/schedule.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from itertools import accumulate
from typing import TYPE_CHECKING

from logs.schedule.machine import PlannedJob

if TYPE_CHECKING:
    from logs.schedule.machine import Machine
    from logs.schedule.unitset import UnitSet
    from logs.trace import Job


@dataclass(frozen=True, slots=True)
class Reservation:
    """What the head of the queue is promised.

    Attributes:
        shadow_s: The earliest time at which enough units are free for it, if
            every running job ends when its request does.
        extra_units: Units free at that time beyond those it needs.
    """

    shadow_s: float
    extra_units: int


def reserve(machine: Machine) -> Reservation:
    """Compute the reservation of the queue's head, which does not fit now.

    A running job past its request is expected to end at any moment, that is, now.
    Jobs expected to end at the shadow time itself count as ended there.
    """
    needed = machine.size[machine.waiting[0]]
    free = machine.free.bit_count()
    ends = sorted(
        (max(job.expected_end_s, machine.now_s), job.units.bit_count())
        for job in machine.running.values()
    )
    freed = accumulate((units for _, units in ends), initial=free)
    enough = next(at for at, units in enumerate(freed) if units >= needed)
    shadow_s = ends[enough - 1][0]
    at_shadow = free + sum(units for end_s, units in ends if end_s <= shadow_s)
    return Reservation(shadow_s, at_shadow - needed)


def _backfill(machine: Machine, reservation: Reservation) -> None:
    free = machine.free.bit_count()
    extra = reservation.extra_units
    for job in machine.waiting[1:]:
        if not free:
            return
        size = machine.size[job]
        if size > free:
            continue
        if machine.now_s + machine.request_s[job] > reservation.shadow_s:
            if size > extra:
                continue
            extra -= size
        free -= size
        machine.start(job, machine.units.lowest(machine.free, size))


def _free_at(machine: Machine, time_s: float) -> UnitSet:
    free = machine.free
    for job in machine.running.values():
        if job.expected_end_s <= time_s:
            free |= job.units
    return free


@dataclass(slots=True)
class EasyPlacer:
    """Places jobs by FCFS and EASY backfill; plans the queue's head only."""

    plan: tuple[PlannedJob, ...] = field(default=())
    wakes_s: float = field(default=math.inf, init=False)

    def arrives_s(self, job: Job) -> float:
        """Jobs queue when they are submitted."""
        return job.submit_s

    def rank(self, job: Job) -> float:
        """First come, first served: nobody ranks before another."""
        del job
        return 0.0

    def place(self, machine: Machine, *, ended: bool, arrived: bool) -> None:
        """Make one pass: start in order, reserve for the head, backfill."""
        del ended, arrived
        machine.start_in_order()
        self.plan = ()
        if machine.waiting:
            reservation = reserve(machine)
            _backfill(machine, reservation)
            self.plan = (_planned_head(machine, reservation),)

    def anew(self, wakes_s: float) -> EasyPlacer:
        """Return one that has planned nothing; each pass plans anew."""
        del wakes_s
        return EasyPlacer()


def _planned_head(machine: Machine, reservation: Reservation) -> PlannedJob:
    head = machine.waiting[0]
    free = _free_at(machine, reservation.shadow_s)
    units = machine.units.lowest(free, machine.size[head])
    return PlannedJob(head, reservation.shadow_s, units)
