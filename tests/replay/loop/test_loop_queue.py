"""Whom the broker makes room for, held against the scheduler itself without leases."""

import copy
import math
from dataclasses import dataclass

from hypothesis import event, example, given, settings
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from freetrain.broker.backfill import LeaseSpan
from freetrain.replay.loop_leases import LeaseSlots, QueueClaims
from logs.simulation import (
    Machine,
    Method,
    Running,
    Simulation,
    SlurmParameters,
    SlurmPlacer,
)
from logs.timeline import members, unit_set
from tests.replay.loop.worlds_loop import J, crowds, trace_of


def started_by(machine: Machine) -> tuple[Running, ...]:
    """Return whom backfill starts now."""
    placer = SlurmPlacer(SlurmParameters()).anew(-math.inf)
    placer.place(machine, ended=True, arrived=True)
    return machine.take_started()


def jobs_started_by(machine: Machine) -> set[int]:
    """Return their numbers."""
    return {running.job for running in started_by(machine)}


@settings(max_examples=200, deadline=None)
@given(
    crowd=crowds(),
    before=st.integers(1, 10),
    after=st.integers(0, 6),
    wanted=st.integers(1, 63),
    lasts_s=st.sampled_from([60.0, 300.0, 14_400.0]),
)
def test_who_could_start_first_without_leases_gets_the_nodes_for_it(
    crowd: tuple[list[J], int], before: int, after: int, wanted: int, lasts_s: float
) -> None:
    simulation = Simulation(trace_of(*crowd), Method.SLURM)
    nodes = LeaseSlots("by hand", simulation.layout)
    for _ in range(before):
        simulation.step()
    machine = simulation.machine
    leased, since_s = machine.free & wanted, machine.now_s
    simulation.lease(leased, until_s=since_s + lasts_s, now_s=since_s)
    for _ in range(after):
        simulation.step()
    spans = dict.fromkeys(members(leased), LeaseSpan(since_s, since_s + lasts_s))

    claims = QueueClaims(simulation, nodes, knows_plans=True)
    claimed = unit_set(claims.find(spans, machine.now_s).slots)

    started = started_by(machine.without_leases())
    event(f"{min(len(started), 2)} could start")
    if started:
        assert claimed.bit_count() >= started[0].units.bit_count()
    else:
        assert not claimed & ~leased


@dataclass(frozen=True)
class Held:
    """Who has which nodes when others come, one second later."""

    nodes: int
    busy: list[J]
    leases_s: list[float | None]
    coming: list[J]


@st.composite
def held(draw: DrawFn) -> Held:
    """Some nodes are others', some leased, some idle; two to four jobs come."""
    asks_s = st.sampled_from([60.0, 120.0, 300.0, 900.0, 3_600.0])
    ends_s = st.sampled_from([None, 120.0, 600.0, 14_400.0])
    busy = [J(0.0, s, draw(st.integers(1, 2)), s) for s in draw(st.lists(asks_s))]
    free = draw(st.lists(ends_s, min_size=1, max_size=5))
    nodes = sum(job.nodes for job in busy) + len(free)
    sizes = draw(st.lists(st.integers(1, nodes), min_size=2, max_size=4))
    coming = [J(1.0, s, size, s) for size, s in ((n, draw(asks_s)) for n in sizes)]
    return Held(nodes, busy, draw(st.permutations(free)), coming)


def begun(world: Held) -> tuple[Simulation, LeaseSlots, dict[int, LeaseSpan]]:
    """Return what is when all have come: the machine, its nodes, and leases by unit."""
    trace = trace_of([*world.busy, *world.coming], world.nodes)
    simulation, spans = Simulation(trace, Method.SLURM), {}
    if world.busy:
        simulation.step()
    machine = simulation.machine
    machine.now_s = 0.0
    for unit, end_s in zip(members(machine.free), world.leases_s, strict=True):
        if end_s is not None:
            machine.lease(1 << unit, end_s)
            spans[unit] = LeaseSpan(0.0, end_s)
    simulation.step()
    return simulation, LeaseSlots("by hand", simulation.layout), spans


SLIPPED_IN = Held(
    8,
    [J(0.0, limit_s, 1, limit_s) for limit_s in (60.0, 60.0, 120.0)],
    [None, None, None, 600.0, None],
    [J(1.0, 60.0, nodes, 60.0) for nodes in (8, 6, 1)],
)
"""The second in line has the leased node before the first does: where its lease ended
for the first only, the third, which could start, waited."""


@settings(max_examples=500, deadline=None)
@given(world=held())
@example(world=SLIPPED_IN)
def test_who_could_start_without_leases_starts_beside_those_that_stay(
    world: Held,
) -> None:
    simulation, nodes, spans = begun(world)
    machine = simulation.machine
    could = jobs_started_by(machine.without_leases())

    claims = QueueClaims(simulation, nodes, knows_plans=True)
    claimed, booked_s, ends_s = claims.find(spans, machine.now_s)
    units = unit_set(claimed)
    machine.release(units & machine.leased)
    for unit, end_s in ends_s.items():
        machine.shorten(1 << unit, end_s)
    for unit in members(machine.free & ~units):  # which is leased anew
        machine.lease(1 << unit, booked_s.get(unit, 14_400.0))

    event(f"{min(len(could), 2)} could start beside {min(len(spans), 2)} leases")
    assert could <= jobs_started_by(machine)


@settings(max_examples=300, deadline=None)
@given(world=held())
def test_with_care_no_single_end_makes_anybody_wait_for_longer_than_a_cycle(
    world: Held,
) -> None:
    simulation, nodes, spans = begun(world)
    machine = simulation.machine
    now_s = machine.now_s

    claims = QueueClaims(simulation, nodes, knows_plans=True, careful_s=14_400.0)
    claimed, booked_s, ends_s = claims.find(spans, now_s)
    units = unit_set(claimed)
    machine.release(units & machine.leased)
    for unit, end_s in ends_s.items():
        machine.shorten(1 << unit, end_s)
    for unit in members(machine.free & ~units):  # which is leased anew
        machine.lease(1 << unit, min(now_s + 14_400.0, booked_s.get(unit, math.inf)))

    careless = QueueClaims(simulation, nodes, knows_plans=True)
    kept = claimed != careless.find(spans, 1.0).slots
    event(f"care keeps leases off: {kept}")
    for number in [number for number in machine.running if number >= 0]:
        beside = copy.deepcopy(machine)
        beside.free |= beside.running.pop(number).units
        alone = beside.without_leases()
        late = jobs_started_by(alone) - jobs_started_by(beside)
        beside.release(beside.leased)
        beside.now_s = now_s + 30.0
        assert late <= jobs_started_by(beside)
