"""Single decisions: launching ahead, and how soon a lease is given back."""

from __future__ import annotations

from dataclasses import replace

import pytest
from msgspec import structs

from freetrain.agent.observation import (
    Observation,
    ObservedGeneration,
    ObservedTrainer,
    ObservedWorld,
)
from freetrain.agent.rules import AskToStop, EndOwnJob, Kill, KillRanks, Launch, decide
from freetrain.broker.lease import LeaseKey
from freetrain.state.files import Assigned, Ended, Member
from tests.agent.model_cluster import TRAINER, a_job, training_on

ME, OTHER = LeaseKey("me", 0), LeaseKey("other", 0)


def generation(number: int, *keys: LeaseKey) -> ObservedGeneration:
    members = tuple(Member(key=k, job_id=1, display_id="1", node="n") for k in keys)
    return ObservedGeneration(
        assigned=Assigned(
            trainer="t",
            generation=number,
            members=members,
            created_s=0.0,
            author="broker",
            reason="",
        )
    )


def launches(*earlier: ObservedGeneration, elastic: bool = True) -> list[int | None]:
    trainer = ObservedTrainer(
        job=structs.replace(a_job("t"), elastic=elastic),
        newest=generation(9, ME),
        earlier=earlier,
    )
    seen = Observation(me=ME, trainers=(trainer,), peers={})
    actions = decide(seen, ages_s={})
    return [action.after for action in actions if isinstance(action, Launch)]


def test_a_world_is_launched_ahead_of_one_other_and_never_of_two() -> None:
    assert launches() == [None]
    assert launches(generation(8, OTHER)) == [8]
    assert launches(generation(7, OTHER), generation(8, OTHER)) == []


def test_a_program_that_is_not_elastic_is_never_launched_ahead() -> None:
    assert launches(elastic=False) == [None]
    assert launches(generation(8, OTHER), elastic=False) == []


def test_a_lease_that_is_still_a_member_does_not_leave_before_its_time_is_up() -> None:
    member = replace(generation(9, OTHER, ME), is_over=True)
    trainer = ObservedTrainer(job=a_job("t"), newest=member, must_leave=True)
    seen = Observation(me=ME, trainers=(trainer,), peers={}, leaving_s=1.0, bound_s=5.0)

    actions = decide(seen, ages_s={})

    assert not [action for action in actions if isinstance(action, EndOwnJob)]


RUNNING = ObservedWorld(age_s=9.0)


def decided(generation_8: ObservedGeneration, *, leaving_s: float | None) -> set[type]:
    """Return the kinds of things done where generation 9 has only the other lease."""
    trainer = ObservedTrainer(
        job=a_job("t"),
        newest=generation(9, OTHER),
        earlier=(generation_8,),
        must_leave=leaving_s is not None,
    )
    seen = Observation(
        me=ME, trainers=(trainer,), peers={}, leaving_s=leaving_s, bound_s=10.0
    )
    actions = decide(seen, ages_s={})
    return {type(one) for one in actions} & {AskToStop, EndOwnJob, Kill, KillRanks}


@pytest.mark.parametrize(
    ("outcome", "said_s", "goes"),
    [
        ("", 0.0, False),
        ("rescaled", 0.6, False),
        ("rescaled", 1.0, True),
        ("failed", 1.0, False),  # nobody knows what is safe
    ],
)
def test_a_lease_does_not_wait_for_what_programs_do_once_they_have_committed(
    outcome: str, said_s: float, *, goes: bool
) -> None:
    lingering = replace(
        generation(8, OTHER, ME), outcome=outcome, outcome_age_s=said_s, processes=2
    )

    assert (EndOwnJob in decided(lingering, leaving_s=1.0)) == goes


def test_ranks_that_linger_are_killed_on_every_node_while_somebody_waits_for_one() -> (
    None
):
    def killed(said_s: float, *, is_told: bool) -> bool:
        lingering = replace(
            generation(8, OTHER, ME),
            outcome="rescaled",
            outcome_age_s=said_s,
            processes=2,
            notices=frozenset({OTHER} if is_told else ()),
        )
        return KillRanks in decided(lingering, leaving_s=None)

    assert killed(0.4, is_told=True)
    assert not killed(0.2, is_told=True)
    assert not killed(0.4, is_told=False)


def test_a_head_that_leaves_kills_what_lingers_after_the_others_have_gone() -> None:
    def done(said_s: float, *, leaving_s: float | None = 2.0) -> set[type]:
        lingering = replace(
            generation(8, ME, OTHER),
            outcome="rescaled",
            outcome_age_s=said_s,
            has_begun=True,
            world=replace(RUNNING, asked_s=1.0),
        )
        return decided(lingering, leaving_s=leaving_s)

    assert Kill not in done(1.0)
    assert Kill in done(1.6)
    assert Kill not in done(1.6, leaving_s=None)  # nobody waits


def test_a_world_that_has_not_begun_is_killed_when_a_lease_of_it_leaves() -> None:
    """Asked to stop it would import and connect first, which nobody needs to see."""
    starting = replace(generation(8, ME, OTHER), world=RUNNING)
    training = replace(starting, has_begun=True)

    assert decided(starting, leaving_s=0.1) == {Kill}
    assert decided(training, leaving_s=0.1) == {AskToStop}


def test_clients_of_steps_may_hear_of_their_ends_before_they_are_killed() -> None:
    """Slurm ends a step, and the lease it is in, two seconds later without."""

    def done(*, lingers: bool, exit_s: float) -> set[type]:
        world = replace(RUNNING, exit_s=exit_s, exit_code=0, lingers=lingers)
        over = replace(
            generation(8, ME, OTHER), outcome="rescaled", has_begun=True, world=world
        )
        return decided(over, leaving_s=1.0)

    assert done(lingers=True, exit_s=0.4) == set()
    assert Kill in done(lingers=True, exit_s=1.0)
    assert Kill in done(lingers=False, exit_s=0.1)


def test_leases_that_get_their_notice_together_are_left_out_together() -> None:
    cluster, keys = training_on(5)
    cluster.run(1)

    cluster.tell(keys[0])
    cluster.run(0.1)
    cluster.tell(keys[1])
    cluster.tell(keys[2])
    cluster.run_until(lambda: cluster.training() == [2], limit_s=3)

    assert cluster.newest(TRAINER).keys == set(keys[3:])
    assert cluster.board.generations(TRAINER) == (1, 2)


def test_a_job_is_ended_by_force_only_where_something_of_it_is_left() -> None:
    """Slurm takes a second to do so, and none where the batch script ends."""
    cluster, (_, two) = training_on(2)

    cluster.tell(two)
    cluster.run_until(lambda: not cluster.leases[two].is_alive)

    assert not cluster.leases[two].is_forced


def test_a_world_that_began_has_begun_though_its_successor_removed_the_sign_of_it() -> (
    None
):
    cluster, (_, two) = training_on(2)
    cluster.run(1)
    cluster.board.begun.clear()
    cluster.board.ready.clear()

    cluster.tell(two)
    cluster.run_until(lambda: cluster.training() == [2])
    cluster.run(2)

    ending = cluster.board.over[TRAINER, 1]
    assert (ending.ended, ending.was_asked) == (Ended.RESCALED, True)
