"""Slurm's schedulers written a second time, slowly: second by second, unit by unit.

Nothing here shares code or method with ``logs.simulation``: it plans with one set of
units for each slot, from scratch, at every multiple of its interval. Only where GPUs
are packed is asked of ``logs.gpus``, which has tests of its own.
"""

import math
from dataclasses import dataclass, field

from logs.gpus import GpuNodes
from logs.simulation import SlurmParameters
from logs.timeline import members, unit_set
from logs.trace import Job, JobTrace

Place = tuple[float, frozenset[int]]
"""A start, and the units."""


@dataclass
class Shop:
    """A machine in whole seconds."""

    trace: JobTrace
    now_s: int = 0
    places: dict[int, Place] = field(default_factory=dict)

    @property
    def jobs(self) -> tuple[Job, ...]:
        return self.trace.jobs

    def order(self, number: int) -> tuple[int, float, int]:
        job = self.jobs[number]
        return (-(job.priority or 0), job.submit_s, number)

    def queue(self) -> list[int]:
        waiting = [
            number
            for number, job in enumerate(self.jobs)
            if job.submit_s <= self.now_s and number not in self.places
        ]
        return sorted(waiting, key=self.order)

    def holders(self) -> list[int]:
        """Jobs that still hold units in this second's pass."""
        return [
            number
            for number, (start_s, _) in self.places.items()
            if start_s + self.jobs[number].run_s > self.now_s
            or (start_s == self.now_s and number not in self.over)
        ]

    over: set[int] = field(default_factory=set)

    def free(self) -> list[int]:
        held = {unit for number in self.holders() for unit in self.places[number][1]}
        return [unit for unit in range(self.trace.units) if unit not in held]

    def pick(self, number: int, free: list[int]) -> list[int]:
        """Return the units of *free* that a job gets; none where it does not fit."""
        job = self.jobs[number]
        if len(free) < job.units:
            return []
        if not self.trace.counts_gpus:
            return free[: job.units]
        per_node = self.trace.units_per_node
        nodes = GpuNodes(self.trace.units // per_node, per_node)
        return [*members(nodes.place(unit_set(free), job.units, job.node_count))]

    def planned(self, units: list[int]) -> set[int]:
        """Return the units that others may not have where a later start is planned."""
        if not self.trace.counts_gpus:
            return set(units)
        per_node = self.trace.units_per_node
        nodes = {unit // per_node for unit in units}
        return {n * per_node + k for n in nodes for k in range(per_node)}

    def start(self, number: int, units: list[int]) -> None:
        self.places[number] = (self.now_s, frozenset(units))

    def request_s(self, number: int) -> float:
        request_s = self.jobs[number].requested_s
        return self.jobs[number].run_s if request_s is None else request_s

    def expected_end_s(self, number: int) -> float:
        return self.places[number][0] + self.request_s(number)

    def end_zero_runs(self) -> bool:
        """End the jobs of zero run time started this second; tell if any."""
        ended = {
            number
            for number, (start_s, _) in self.places.items()
            if start_s == self.now_s and self.jobs[number].run_s == 0
        } - self.over
        self.over |= ended
        return bool(ended)

    def start_in_order(self, queue: list[int]) -> None:
        for number in queue:
            units = self.pick(number, self.free())
            if not units:
                return
            self.start(number, units)


def slurm(
    trace: JobTrace, parameters: SlurmParameters
) -> tuple[dict[int, Place], dict[int, dict[int, Place]]]:
    """Place every job as Slurm does; return the places, and the plan of each cycle."""
    shop = Shop(trace)
    plans: dict[int, dict[int, Place]] = {}
    while len(shop.places) < len(trace.jobs):
        cycle_due = shop.now_s % parameters.bf_interval_s == 0
        while True:
            if _something_happened(shop):
                shop.start_in_order(shop.queue())
            if cycle_due:
                plans[shop.now_s] = _slurm_cycle(shop, parameters)
            if not shop.end_zero_runs():
                break
            shop.start_in_order(shop.queue())
        shop.now_s += 1
    return shop.places, plans


def _something_happened(shop: Shop) -> bool:
    ends = {
        start_s + shop.jobs[number].run_s
        for number, (start_s, _) in shop.places.items()
    }
    return shop.now_s in ends | {job.submit_s for job in shop.jobs}


def _slurm_cycle(shop: Shop, parameters: SlurmParameters) -> dict[int, Place]:
    slot_s = int(parameters.bf_resolution_s)
    base = shop.now_s // slot_s
    # One job after another, each rounded up, is the longest that a plan can take.
    involved = {*shop.queue(), *shop.holders()}
    lengths = [math.ceil(shop.request_s(number) / slot_s) for number in involved]
    horizon = base + sum(lengths) + 2 * len(lengths) + 2
    free = {slot: set(shop.free()) for slot in range(base, horizon)}
    for slot in range(base + 1, horizon):
        free[slot] = set(range(shop.trace.units))
        for number in shop.holders():
            if shop.expected_end_s(number) > slot * slot_s:
                free[slot] -= shop.places[number][1]
    plan: dict[int, Place] = {}
    for number in shop.queue()[: parameters.bf_max_job_test]:
        slot, slots = _first_gap(shop, number, free, slot_s)
        start_s = shop.now_s if slot == base else slot * slot_s
        if start_s > shop.now_s + parameters.bf_window_min * 60:
            continue
        common = sorted(set.intersection(*(free[each] for each in slots)))
        units = shop.pick(number, common)
        taken = set(units) if slot == base else shop.planned(units)
        for each in slots:
            free[each] -= taken
        if slot == base:
            shop.start(number, units)
        else:
            plan[number] = (start_s, frozenset(units))
    return plan


def _first_gap(
    shop: Shop, number: int, free: dict[int, set[int]], slot_s: int
) -> tuple[int, range]:
    for slot in free:
        start_s = max(shop.now_s, slot * slot_s)
        end = math.ceil((start_s + shop.request_s(number)) / slot_s)
        slots = range(slot, max(end, slot + 1))
        common = sorted(set.intersection(*(free[each] for each in slots)))
        if shop.pick(number, common):
            return slot, slots
    raise AssertionError("the horizon is too near")
