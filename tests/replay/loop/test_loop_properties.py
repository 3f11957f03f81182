"""What holds whatever the jobs, the trainers and the broker's habits."""

from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from freetrain.broker.limits import Mode
from freetrain.replay.loop import LoopResult
from freetrain.replay.settings import Accounting, LoopSettings
from freetrain.replay.trainers import TrainerSpec
from logs.simulation import Method
from tests.replay.loop.worlds_loop import J, crowds, play, stage_of
from tests.replay.worlds import teams

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

    def play(self) -> LoopResult:
        stage = stage_of(self.jobs, self.nodes, until_s=600.0, method=self.method)
        return play(
            stage, self.team, self.loop, policy=self.policy, accounting=self.accounting
        )


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
    jobs, nodes = draw(crowds())
    return Case(
        jobs=jobs,
        nodes=nodes,
        team=draw(teams()),
        loop=draw(loops(notices_s, draw(st.sampled_from(modes)))),
        policy=draw(st.sampled_from(["freetrain", "lookahead", "equal"])),
        accounting=draw(st.sampled_from(Accounting)),
        method=draw(st.sampled_from([Method.EASY, Method.SLURM])),
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
