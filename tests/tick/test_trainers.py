"""What becomes of trainers and their generations, and what is remembered of them."""

from __future__ import annotations

import json
import math
import os
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from freetrain.agent.observation import LEFT_OUT_S
from freetrain.client.trainers import Verb, change
from freetrain.state.files import (
    AgentState,
    AssignmentFile,
    EndingKind,
    TriedSize,
    create_assigned,
    create_ending,
)
from freetrain.state.tables import EventKind, TrainerState, history_of
from freetrain.tick.trainers import (
    MOST_POINTS,
    Downsampler,
    TrainerHistory,
    history_from,
    total_of,
    unit_of,
)
from tests.state.endings import an_ending
from tests.tick.tick_worlds import NOW_S, TickWorld, printed, printing, running, tell

if TYPE_CHECKING:
    from pathlib import Path


def end(world: TickWorld, how: EndingKind, message: str = "") -> None:
    """Let the newest generation end."""
    ending = an_ending(world.generation(), how, exit_code=None, message=message)
    create_ending(world.folder.trainer("a"), ending)


def agent_assigns(world: TickWorld, *, is_empty: bool) -> None:
    """Let an agent make the next generation."""
    newest = world.newest()
    made = replace(
        newest,
        generation=newest.generation + 1,
        members=() if is_empty else newest.members,
        author="x-0",
        reason="as agents do",
    )
    create_assigned(world.folder.trainer("a"), made)


@pytest.mark.parametrize(
    ("how", "state", "message"),
    [
        (EndingKind.FINISHED, TrainerState.FINISHED, "all samples done"),
        (EndingKind.DO_NOT_RESTART, TrainerState.FAILED, "diverged\n$(reboot)"),
    ],
)
def test_a_trainer_whose_program_said_so_is_over(
    world: TickWorld, how: EndingKind, state: TrainerState, message: str
) -> None:
    running(world)
    end(world, how, message)
    world.tick()
    ended, kinds = world.row(), [event.kind for event in world.events("a")]
    world.folder.trainer("a").ending(1).write_text("no ending, and not read any more")

    status = world.status()

    assert (ended.state, ended.message) == (state, message)
    assert world.newest().members == ()
    assert kinds == [EventKind.ASSIGNED, EventKind.TRAINER_ENDED]
    assert [(t.state, t.message) for t in status.trainers] == [(state, message)]
    assert status.problems == ()


@pytest.mark.parametrize("has_empty_generation", [True, False])
def test_a_world_started_ahead_takes_nothing_back(
    world: TickWorld, *, has_empty_generation: bool
) -> None:
    running(world)
    end(world, EndingKind.FINISHED, "all done")
    agent_assigns(world, is_empty=False)
    end(world, EndingKind.KILLED)
    if has_empty_generation:
        agent_assigns(world, is_empty=True)

    world.tick()

    row = world.row()
    assert (row.state, row.message) == (TrainerState.FINISHED, "all done")


def test_a_trainer_that_finishes_while_its_user_pauses_it_has_finished(
    world: TickWorld,
) -> None:
    running(world)
    change(world.folder, Verb.PAUSE, ["a"], now_s=NOW_S, uid=os.getuid())
    create_ending(
        world.folder.trainer("a"), an_ending(1, EndingKind.FINISHED, message="all done")
    )

    world.tick()

    row = world.row()
    assert (row.state, row.message) == (TrainerState.FINISHED, "all done")


def test_a_trainer_that_failed_too_often_gets_no_nodes(world: TickWorld) -> None:
    running(world, text="[restart]\nattempts = 2\n")
    end(world, EndingKind.FAILED, "no such file")
    agent_assigns(world, is_empty=False)
    end(world, EndingKind.FAILED, "no such file")
    agent_assigns(world, is_empty=True)
    world.tick()
    assert world.row().state is TrainerState.FAILED
    assert "no such file" in world.row().message


def test_a_size_that_was_left_out_is_planned_for_no_more_until_its_user_resumes(
    world: TickWorld,
) -> None:
    running(world)
    end_at_two(world, failures=2)
    world.go_on(3)

    assert len(world.newest().members) == 1
    assert [line.sizes for line in world.status().trainers] == [(1,)]

    for verb in (Verb.PAUSE, Verb.RESUME):
        change(world.folder, verb, ["a"], now_s=NOW_S, uid=os.getuid())
    world.go_on(3)
    assert len(world.newest().members) == 2
    assert [line.sizes for line in world.status().trainers] == [(1, 2)]


def test_a_size_that_was_left_out_is_planned_for_again_after_hours(
    world: TickWorld,
) -> None:
    running(world)
    end_at_two(world, failures=2)
    world.go_on(3)
    assert [line.sizes for line in world.status().trainers] == [(1,)]

    world.now_s += LEFT_OUT_S
    world.tick()
    assert [line.sizes for line in world.status().trainers] == [(1, 2)]


def end_at_two(world: TickWorld, *, failures: int) -> None:
    """Let the newest generation end, of a trainer that failed on two nodes alone."""
    tried = (
        TriedSize(leases=1, has_trained=True),
        TriedSize(
            leases=2, failures=failures, failed_s=world.now_s, why="ValueError: 2 ranks"
        ),
    )
    ending = an_ending(
        world.generation(), EndingKind.FAILED, exit_code=1, leases=2, tried=tried
    )
    create_ending(world.folder.trainer("a"), ending)


def test_an_empty_generation_alone_fails_no_trainer(world: TickWorld) -> None:
    running(world)
    end(world, EndingKind.KILLED)
    agent_assigns(world, is_empty=True)
    world.tick()
    assert world.row().state is TrainerState.WANTED
    assert (world.generation(), len(world.nodes())) == (3, 2)


def test_a_paused_trainer_is_taken_off_and_its_leases_leave(world: TickWorld) -> None:
    running(world)
    world.set_state("a", TrainerState.PAUSED)
    world.tick()
    newest = world.newest()
    assert (newest.members, newest.reason) == ((), "it is paused")
    assert [job.signals for job in world.live()] == [["TERM"], ["TERM"]]


def test_the_head_stays_where_it_is_when_its_trainer_grows(world: TickWorld) -> None:
    first = running(world)
    grown = world.row().job.replace("max = 2", "max = 4")
    world.put(replace(world.row(), job=grown))

    world.tick()
    world.beat()
    world.tick()

    newest = world.newest()
    assert (len(newest.members), newest.members[:2]) == (4, first.members)
    assert newest.reason == "grows from 2 to 4 nodes"


@pytest.mark.parametrize("state", [AgentState.LEAVING, AgentState.ENDED])
def test_a_lease_that_is_leaving_joins_no_trainer(
    world: TickWorld, state: AgentState
) -> None:
    world.submit()
    world.tick()
    going, staying = world.running()
    world.beat(going, state=state)
    world.beat(staying)
    world.tick()
    assert world.newest().keys == {staying}


def test_an_agent_whose_counter_stands_still_is_given_up(world: TickWorld) -> None:
    head, _ = running(world).members
    world.now_s += 30.0
    world.beat(head.key)
    world.tick()
    assert world.newest().keys == {head.key}


def test_the_first_to_make_a_generation_wins(world: TickWorld) -> None:
    world.submit("a", most=1)
    world.submit("b", most=1)
    world.tick()
    world.beat()
    by_agent = AssignmentFile(
        trainer="a", generation=1, members=(), created_s=1.0, author="x-0", reason="one"
    )

    def first(point: str) -> None:
        if point == "before assigning 1 of a":
            create_assigned(world.folder.trainer("a"), by_agent)

    world.reached = first
    status = world.status()

    assert world.newest("a") == by_agent
    assert world.generation("b") == 0, "it may count on what the other gives up"
    assert status.problems == (), "so it goes whenever a lease leaves"


# Trainers that take longer to start than a plan reaches.


def test_a_trainer_that_takes_longer_to_start_than_a_plan_reaches_is_started(
    world: TickWorld,
) -> None:
    # Nothing was learned: nodes are expected to serve for 1,000 s.
    world.submit("a", '[costs]\nstart = "600s"')

    status = world.status()

    assert (status.done["leases asked for"] > 0, status.problems) == (True, ())


# What is remembered of their reports.


def remembered(world: TickWorld) -> TrainerHistory:
    """What the last tick remembered of the trainer."""
    with world.reading() as state:
        row = history_of(state, "a", submitted_s=world.row().submitted_s)
    assert row is not None
    return history_from(row.history)


def test_each_tick_adds_what_was_reported_since(world: TickWorld) -> None:
    run_dir = world.submit()
    tell(run_dir, 0.9, float("nan"))
    world.tick()
    first = remembered(world).metric_points()
    tell(run_dir, float("inf"), -0.5, since=2)
    with run_dir.progress.open("a") as file:
        file.write('{"step": 5, "samples"')

    world.tick()
    world.tick()

    again = remembered(world)
    points = again.metric_points()
    assert (first[0].value, len(first)) == (0.9, 2)
    assert [str(point.value) for point in points] == ["0.9", "nan", "inf", "-0.5"]
    assert [point.samples for point in points] == [10, 20, 30, 40]
    assert (again.work, again.step, again.reported_s) == (40, 4, NOW_S + 4)


def test_a_few_hundred_points_of_a_long_training_are_kept(world: TickWorld) -> None:
    run_dir = world.submit()
    for part in range(3):
        tell(run_dir, *(float(n) for n in range(1000)), since=1000 * part)
        world.tick()

    points = remembered(world).metric_points()

    assert MOST_POINTS / 2 <= len(points) <= MOST_POINTS + 1
    assert (points[0].samples, points[-1].samples) == (10, 30_000)
    gaps = {b.samples - a.samples for a, b in pairwise(points)}
    assert len(gaps) <= 2, "evenly, but for the newest"


@given(count=st.integers(0, 300), most=st.integers(2, 20))
def test_rows_are_kept_evenly_and_end_with_the_newest(count: int, most: int) -> None:
    sample = Downsampler(most)
    for n in range(count):
        sample.add([float(n)])
        saved = json.loads(json.dumps(msgspec.to_builtins(sample)))
        sample = msgspec.convert(saved, Downsampler)
        *even, newest = [int(row[0]) for row in sample.rows]
        assert newest == n
        assert even == list(range(0, n, sample.every))
        assert len(sample.kept) <= most


def test_a_history_of_another_release_is_read_anew(world: TickWorld) -> None:
    tell(world.submit(), 0.9, 0.8)
    world.tick()
    with world.writing() as state:
        state.execute("UPDATE pasts SET past = '{}'")
    world.tick()
    assert [point.value for point in remembered(world).metric_points()] == [0.9, 0.8]


def test_work_is_counted_in_the_unit_a_program_reports(world: TickWorld) -> None:
    printing(world, r"step (?P<step>\d+) (?P<loss>\S+)", "[work]\nsamples = 9\n")
    printed(world, "step 1 0.5\nstep 2 0.25\n")
    world.tick()
    history = remembered(world)
    points = [(point.samples, point.value) for point in history.metric_points()]
    assert points == [(1, 0.5), (2, 0.25)]
    assert unit_of(world.job()) == "step"
    assert total_of(world.job(), history) is None, "steps of 9 samples are unknown"


def test_coming_epochs_take_as_many_steps_as_past_ones(world: TickWorld) -> None:
    pattern = r"epoch (?P<epoch>\d+) step (?P<step>\d+)"
    printing(world, pattern, "[work]\nepochs = 10\n")
    printed(world, "epoch 0 step 50\n")
    world.tick()
    early = total_of(world.job(), remembered(world))
    printed(world, "epoch 2 step 200\n")
    world.tick()
    assert (early, total_of(world.job(), remembered(world))) == (None, 1000.0)


def test_a_diverging_trainer_is_marked(world: TickWorld) -> None:
    tell(world.submit("a"), 0.9, 0.5, *[math.nan] * 3)
    tell(world.submit("b"), 0.9, 0.5, 0.4)
    assert [line.is_diverging for line in world.status().trainers] == [True, False]


def test_a_pattern_that_takes_too_long_is_its_trainers_problem_alone(
    world: TickWorld,
) -> None:
    printing(world, "(?P<step>a+)+b")
    world.submit("b", "elastic = false\n")
    printed(world, "a" * 62 + "\n")

    world.go_on(3)

    status = world.status()
    problems = {line.name: line.problem for line in status.trainers}
    assert "takes too long on the line 'aaa" in problems["a"]
    assert problems["b"] == ""
    assert any(problem.startswith("a: the pattern") for problem in status.problems)
    assert world.generation("a") + world.generation("b") > 0


def test_a_librarys_files_are_read_tick_by_tick_and_odd_values_shown(
    world: TickWorld, tmp_path: Path
) -> None:
    form = f'elastic = false\n[progress]\nformat = "lightning"\nfile = "{tmp_path}"\n'
    world.submit("a", f'{form}[quality]\nmetric = "val_loss"\n')
    first, second = (tmp_path / f"version_{n}" / "metrics.csv" for n in range(2))
    for path, rows in (
        (first, "epoch,step,val_loss\n0,1,0.9\n0,2,n/a\n"),
        (second, "epoch,step,val_loss\n1,3,0.5\n"),
    ):
        path.parent.mkdir()
        path.write_text(rows)
        world.tick()

    kept = remembered(world)
    assert [(p.samples, p.value) for p in kept.metric_points()] == [(1, 0.9), (3, 0.5)]
    assert (kept.step, kept.epoch) == (3, 1)
    (line,) = world.status().trainers
    assert line.bad_metrics == {"val_loss": 1}
