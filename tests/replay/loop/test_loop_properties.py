"""What holds whatever the jobs, the trainers and the broker's habits."""

from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from freetrain.broker.limits import Mode
from freetrain.replay.loop import LoopParts, LoopResult, Stage
from freetrain.replay.settings import Accounting, LoopSettings, ReplaySettings
from freetrain.replay.trainers import TrainerSpec
from logs.schedule import schedule
from logs.simulation import Method
from tests.replay.loop.worlds_loop import (
    GPUS,
    J,
    crowds,
    gpu_crowds,
    gpu_stage_of,
    play,
    stage_of,
    trace_of,
)
from tests.replay.worlds import no_clock, teams

# A loop takes some ten times as long as a replay of as many events.
FEW = settings(max_examples=20, deadline=None)


@dataclass(frozen=True)
class Case:
    jobs: list[J]
    nodes: int
    team: tuple[TrainerSpec, ...]
    loop: LoopSettings
    policy: str
    accounting: Accounting
    method: Method
    has_gpus: bool
    lease_gpus: int | None

    @property
    def stage(self) -> Stage:
        jobs, nodes, until_s, method = self.jobs, self.nodes, 600.0, self.method
        if not self.has_gpus:
            return stage_of(jobs, nodes, until_s=until_s, method=method)
        leased = self.lease_gpus
        return gpu_stage_of(jobs, nodes, leased, until_s=until_s, method=method)

    @property
    def choices(self) -> dict[str, Any]:
        return {"policy": self.policy, "accounting": self.accounting}

    def play(self) -> LoopResult:
        return play(self.stage, self.team, self.loop, **self.choices)


@st.composite
def loops(draw: st.DrawFn, notices_s: tuple[float, ...], mode: Mode) -> LoopSettings:
    return LoopSettings(
        mode=mode,
        knows_plans=draw(st.booleans()),
        tick_s=draw(st.sampled_from([17.0, 60.0])),
        lead_s=draw(st.sampled_from([None, 0.0, 5.0])),
        last_s=draw(st.sampled_from([None, 0.0, 3.0])),
        notice_s=draw(st.sampled_from(notices_s)),
        margin_s=draw(st.sampled_from([None, 0.0, 20.0])),
        shortest_s=draw(st.sampled_from([0.0, 60.0])),
        longest_s=draw(st.sampled_from([45.0, 14_400.0])),
    )


@st.composite
def cases(
    draw: st.DrawFn,
    notices_s: tuple[float, ...] = (0.0, 3.0, 30.0),
    modes: tuple[Mode, ...] = (Mode.PREEMPT,),
) -> Case:
    has_gpus = draw(st.booleans())
    jobs, nodes = draw(gpu_crowds() if has_gpus else crowds())
    return Case(
        jobs=jobs,
        nodes=nodes,
        team=draw(teams()),
        loop=draw(loops(notices_s, draw(st.sampled_from(modes)))),
        policy=draw(st.sampled_from(["freetrain", "lookahead", "equal"])),
        accounting=draw(st.sampled_from(Accounting)),
        method=draw(st.sampled_from([Method.EASY, Method.SLURM])),
        has_gpus=has_gpus,
        lease_gpus=draw(st.sampled_from([None, 1, 2])) if has_gpus else None,
    )


@FEW
@given(case=cases(notices_s=(0.0,)))
def test_without_notice_no_job_starts_at_another_time(case: Case) -> None:
    harm = case.play().harm
    assert harm.later == harm.sooner == 0
    assert harm.waited_most_s == 0.0


@FEW
@given(case=cases())
def test_every_job_starts_and_waits_no_longer_than_the_notice(case: Case) -> None:
    harm = case.play().harm
    begun = sum(job.submit_s == 0.0 for job in case.jobs)
    assert len(case.jobs) - begun <= harm.jobs <= len(case.jobs)
    assert harm.waited_most_s <= case.loop.used_notice_s


@FEW
@given(case=cases(modes=(Mode.YIELD,)))
def test_every_job_starts_where_leases_are_jobs(case: Case) -> None:
    harm = case.play().harm
    begun = sum(job.submit_s == 0.0 for job in case.jobs)
    assert len(case.jobs) - begun <= harm.jobs <= len(case.jobs)


@FEW
@given(case=cases(modes=tuple(Mode)))
def test_samples_and_node_time_add_up(case: Case) -> None:
    made = case.play()
    done = sum(one.samples for one in made.replay.completions)
    assert made.replay.samples == pytest.approx(done, abs=1e-6)
    assert made.holes.node_s == pytest.approx(made.replay.pool_node_s)
    assert made.holes.long_used_node_s <= made.replay.used_node_s + 1e-6
    assert made.holes.long_used_node_s <= made.holes.long_node_s + 1e-6


@FEW
@given(case=cases(modes=tuple(Mode)))
def test_the_same_loop_twice_gives_the_same_result(case: Case) -> None:
    one, other = case.play(), case.play()
    assert one.replay.steps == other.replay.steps
    assert (one.harm, one.holes) == (other.harm, other.holes)


@FEW
@given(case=cases(modes=tuple(Mode)))
def test_a_broker_without_trainers_leaves_the_schedule_as_it_is(case: Case) -> None:
    late = tuple(replace(trainer, arrival_s=1e6) for trainer in case.team)
    stage = case.stage

    made = play(stage, late, case.loop, **case.choices)

    assert (made.replay.used_node_s, made.harm.later, made.harm.sooner) == (0, 0, 0)
    per_node = GPUS if case.has_gpus else 1
    trace = trace_of(
        case.jobs, case.nodes * per_node, per_node, counts_gpus=case.has_gpus
    )
    placed = schedule(trace, case.method).placed
    planned = {job.job: job.start_s for job in placed}
    assert {**planned, **stage.alone_s} == planned


@settings(max_examples=100, deadline=None)
@given(case=cases(modes=tuple(Mode)))
def test_no_unit_is_in_two_hands(case: Case) -> None:
    stage = case.stage
    parts = LoopParts.of(
        stage, case.team, ReplaySettings(**case.choices), case.loop, clock=no_clock
    )
    slots, machine = stage.slots, parts.simulation.machine
    for event in parts.source.events():
        goes_on = parts.engine.advance(event)
        leased = parts.lease_view.units
        jobs = [job.units for number, job in machine.running.items() if number >= 0]
        by_jobs = sum(jobs)  # of sets that have nothing in common
        assert by_jobs.bit_count() == sum(units.bit_count() for units in jobs)
        assert not by_jobs & (leased | machine.free)
        held = [slot for run in parts.engine.running for slot in run.held]
        assert len(held) == len(set(held))
        per_node = slots.layout.per_node
        for node, count in Counter(k // slots.per_node for k in held).items():
            own = (1 << per_node) - 1 << node * per_node
            assert count * slots.width <= (own & ~by_jobs).bit_count()
        if not goes_on:
            break
