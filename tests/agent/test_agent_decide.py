"""Single decisions that histories hardly ever come to."""

from __future__ import annotations

from dataclasses import replace

from msgspec import structs

from freetrain.agent.observation import (
    Observation,
    ObservedGeneration,
    ObservedTrainer,
)
from freetrain.agent.rules import EndOwnJob, Launch, decide
from freetrain.broker.lease import LeaseKey
from freetrain.state.files import Assigned, Member
from tests.agent.model_cluster import a_job

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
