"""What becomes of trainers and their generations in ticks, against the fake Slurm."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from msgspec import structs

from freetrain.state.database import read_store
from freetrain.state.files import (
    AgentState,
    Assigned,
    Ended,
    create_assigned,
    create_ending,
)
from freetrain.state.tables import EventKind, TrainerState
from tests.state.endings import an_ending
from tests.state.events import events_of
from tests.tick.tick_worlds import UID, TickWorld, running, tick_world

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def world(quick_folder: Path) -> TickWorld:
    return tick_world(quick_folder)


def ended(world: TickWorld, name: str, how: Ended, message: str = "") -> None:
    newest = world.newest(name)
    assert newest is not None
    ending = an_ending(newest.generation, how, exit_code=None, message=message)
    create_ending(world.folder.trainer(name), ending)


def empty_by_agent(world: TickWorld, name: str) -> None:
    newest = world.newest(name)
    assert newest is not None
    create_assigned(
        world.folder.trainer(name),
        replace(
            newest,
            generation=newest.generation + 1,
            members=(),
            author="x-0",
            reason="as agents do",
        ),
    )


@pytest.mark.parametrize(
    ("how", "state", "message"),
    [
        (Ended.FINISHED, TrainerState.FINISHED, "all samples done"),
        (Ended.DO_NOT_RESTART, TrainerState.FAILED, "diverged\n$(reboot)"),
    ],
)
def test_a_trainer_whose_program_said_so_is_over(
    world: TickWorld, how: Ended, state: TrainerState, message: str
) -> None:
    running(world)
    ended(world, "a", how, message)

    world.tick()

    row = world.row("a")
    assert (row.state, row.message) == (state, message)
    newest = world.newest("a")
    assert newest is not None
    assert newest.members == ()
    with read_store(world.folder.path, uid=UID) as store:
        kinds = [event.kind for event in events_of(store, "a")]
    assert kinds == [EventKind.ASSIGNED, EventKind.TRAINER_ENDED]


@pytest.mark.parametrize("is_told_by_agent", [True, False])
def test_a_world_that_was_started_ahead_of_the_last_one_takes_nothing_back(
    world: TickWorld, *, is_told_by_agent: bool
) -> None:
    first = running(world)
    ended(world, "a", Ended.FINISHED, "all done")
    ahead = replace(first, generation=first.generation + 1)
    create_assigned(world.folder.trainer("a"), ahead)
    ended(world, "a", Ended.KILLED)
    if is_told_by_agent:
        empty_by_agent(world, "a")

    world.tick()

    row = world.row("a")
    assert (row.state, row.message) == (TrainerState.FINISHED, "all done")


def test_of_a_trainer_that_is_over_no_endings_are_read_any_more(
    world: TickWorld,
) -> None:
    running(world)
    ended(world, "a", Ended.FINISHED, "all done")
    world.tick()
    world.folder.trainer("a").ending(1).write_text("no ending")

    page = world.tick().status

    assert page.problems == ()
    assert [(x.state, x.message) for x in page.trainers] == [("finished", "all done")]


def test_a_trainer_that_failed_too_often_is_marked_and_gets_no_nodes(
    world: TickWorld,
) -> None:
    world.submit("b", "[restart]\nattempts = 2\n")
    world.tick()
    world.beat()
    world.tick()
    ended(world, "b", Ended.FAILED, "no such file")
    first = world.newest("b")
    assert first is not None
    again = replace(first, generation=2, author="x-0")
    create_assigned(world.folder.trainer("b"), again)
    ended(world, "b", Ended.FAILED, "no such file")
    empty_by_agent(world, "b")

    world.tick()

    row = world.row("b")
    assert row.state is TrainerState.FAILED
    assert "no such file" in row.message


def test_an_empty_generation_alone_fails_nobody(world: TickWorld) -> None:
    running(world)
    ended(world, "a", Ended.KILLED)
    empty_by_agent(world, "a")

    world.tick()

    assert world.row("a").state is TrainerState.WANTED
    newest = world.newest("a")
    assert newest is not None
    assert (newest.generation, len(newest.members)) == (3, 2)


def test_a_paused_trainer_is_taken_off_and_its_leases_are_told_to_leave(
    world: TickWorld,
) -> None:
    running(world)
    world.set_state("a", TrainerState.PAUSED)

    world.tick()

    newest = world.newest("a")
    assert newest is not None
    assert (newest.members, newest.reason) == ((), "it is paused")
    assert [job.signals for job in world.live()] == [["TERM"], ["TERM"]]


def test_the_head_stays_where_it_is_when_its_trainer_grows(world: TickWorld) -> None:
    first = running(world)
    world.put(
        replace(world.row("a"), job=world.row("a").job.replace("max = 2", "max = 4"))
    )

    world.tick()
    world.beat()
    world.tick()

    newest = world.newest("a")
    assert newest is not None
    assert len(newest.members) == 4
    assert newest.members[:2] == first.members
    assert newest.reason == "grows from 2 to 4 nodes"


@pytest.mark.parametrize("state", [AgentState.LEAVING, AgentState.ENDED])
def test_a_lease_that_is_leaving_joins_nobody(
    world: TickWorld, state: AgentState
) -> None:
    world.submit("a", most=2)
    world.tick()
    going, staying = world.running()
    world.beat(going, state=state)
    world.beat(staying)

    world.tick()

    newest = world.newest("a")
    assert newest is not None
    assert newest.keys == {staying}


def test_an_agent_that_tells_the_same_number_for_long_is_given_up(
    world: TickWorld,
) -> None:
    first = running(world)
    frozen = first.members[1].key
    world.now_s += 30.0
    world.beat(first.members[0].key)

    world.tick()

    newest = world.newest("a")
    assert newest is not None
    assert newest.keys == {first.members[0].key}
    assert frozen not in newest.keys


def test_who_was_first_with_a_generation_wins(world: TickWorld) -> None:
    world.submit("a", most=1)
    world.submit("b", most=1)
    world.tick()
    world.beat()
    theirs = Assigned(
        trainer="a",
        generation=1,
        members=(),
        created_s=1.0,
        author="x-0",
        reason="first",
    )

    def first(point: str) -> None:
        if point == "before assigning 1 of a":
            create_assigned(world.folder.trainer("a"), theirs)

    world.reached = first
    page = world.tick().status

    assert world.newest("a") == theirs
    assert world.newest("b") is None, "it may count on what the other gives up"
    assert page.problems == ("somebody else gave a a new generation first",)


def test_who_takes_longer_to_start_than_gains_are_counted_over_is_told(
    world: TickWorld,
) -> None:
    world.submit("a", '[costs]\nstart = "3min"')
    page = world.tick().status

    assert page.done["leases asked for"] == 0
    (said,) = page.problems
    assert said.startswith("a: starting takes 180 s")
    assert "counted over 120 s" in said

    patient = structs.replace(world.site.planner, t_fwd_s=600.0)
    longer = (
        replace(world, site=structs.replace(world.site, planner=patient)).tick().status
    )

    assert longer.done["leases asked for"] > 0
    assert longer.problems == ()


def test_who_trains_is_not_said_never_to_start(world: TickWorld) -> None:
    running(world, "a", 2)
    hasty = structs.replace(world.site.planner, t_fwd_s=1.0)

    page = replace(world, site=structs.replace(world.site, planner=hasty)).tick().status

    assert not [said for said in page.problems if "never started" in said]


def test_in_its_first_hour_looking_ahead_starts_whom_the_published_planner_starts(
    world: TickWorld,
) -> None:
    world.submit("a", '[costs]\nstart = "3min"')
    ahead = structs.replace(world.site.planner, policy="lookahead")
    patient = structs.replace(ahead, t_fwd_s=600.0)

    page = replace(world, site=structs.replace(world.site, planner=ahead)).tick().status
    longer = (
        replace(world, site=structs.replace(world.site, planner=patient)).tick().status
    )

    assert page.done["leases asked for"] == 0
    (said,) = page.problems
    assert "counted over 120 s until an hour has been watched" in said
    assert longer.done["leases asked for"] > 0
    assert longer.problems == ()


def test_looking_ahead_tells_of_a_start_beyond_its_horizon(world: TickWorld) -> None:
    world.submit("a", '[costs]\nstart = "10min"')
    ahead = structs.replace(world.site.planner, policy="lookahead")

    page = replace(world, site=structs.replace(world.site, planner=ahead)).tick().status

    (said,) = page.problems
    assert "counted over 500 s" in said
