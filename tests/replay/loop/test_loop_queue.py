"""Whom the broker makes room for, held against the scheduler itself without leases."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from hypothesis import event, given, settings
from hypothesis import strategies as st

from freetrain.broker.booking import Span
from freetrain.replay.loop.nodes import Nodes
from freetrain.replay.loop.queue import Queue
from logs.schedule import Method, SlurmParameters
from logs.schedule.build import prepare
from logs.schedule.slurm import SlurmPlacer
from logs.schedule.unitset import members
from tests.replay.loop.worlds_loop import crowds, trace_of

if TYPE_CHECKING:
    from logs.schedule.machine import Running
    from logs.schedule.simulation import Simulation
    from tests.replay.loop.worlds_loop import J


def unleased(simulation: Simulation) -> tuple[Running, ...]:
    """Return whom backfill would start now, were nothing leased."""
    machine = simulation.machine.without_leases()
    placer = SlurmPlacer(SlurmParameters()).anew(-math.inf)
    placer.place(machine, ended=True, arrived=True)
    return machine.take_started()


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
    prepared = prepare(trace_of(*crowd), Method.SLURM)
    simulation, nodes = prepared.simulation, Nodes(prepared.layout)
    for _ in range(before):
        simulation.step()
    machine = simulation.machine
    leased, since_s = machine.free & wanted, machine.now_s
    simulation.lease(leased, until_s=since_s + lasts_s, now_s=since_s)
    for _ in range(after):
        simulation.step()
    spans = dict.fromkeys(members(leased), Span(since_s, since_s + lasts_s))

    queue = Queue(simulation, nodes, knows_plans=True)
    claimed = queue.claimed(spans, machine.now_s).units

    started = unleased(simulation)
    event(f"{min(len(started), 2)} could start")
    if started:
        assert claimed.bit_count() >= started[0].units.bit_count()
    else:
        assert not claimed & ~leased
