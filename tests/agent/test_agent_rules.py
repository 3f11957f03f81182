"""What the rules decide, and what endings say of a trainer."""

from __future__ import annotations

from dataclasses import replace

import pytest
from msgspec import structs

from freetrain.agent.agent import complete_ending, draft_ending
from freetrain.agent.observation import (
    MAY_RUN,
    Observation,
    ObservedGeneration,
    ObservedTrainer,
    ObservedWorld,
    judge,
)
from freetrain.agent.rules import (
    AskToStop,
    EndOwnJob,
    Kill,
    KillRanks,
    LaunchWorld,
    WriteEnding,
    choose_actions,
)
from freetrain.broker.lease import LeaseKey
from freetrain.config.job import CheckpointSettings, RestartSettings
from freetrain.state.files import (
    GAVE_UP,
    Assigned,
    AssignedLease,
    Ended,
    GenerationEnding,
)
from tests.agent.model_cluster import TRAINER, a_job, training_on
from tests.state.endings import an_ending

ME, OTHER = LeaseKey("me", 0), LeaseKey("other", 0)


def generation(number: int, *keys: LeaseKey) -> ObservedGeneration:
    members = tuple(
        AssignedLease(key=k, job_id=1, display_id="1", node="n") for k in keys
    )
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
    actions = choose_actions(seen, ages_s={})
    return [action.after for action in actions if isinstance(action, LaunchWorld)]


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

    actions = choose_actions(seen, ages_s={})

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
    actions = choose_actions(seen, ages_s={})
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


JOB = structs.replace(a_job(), restart=RestartSettings(attempts=3, wait_s=10.0))
CRASH = an_ending(1, Ended.KILLED, exit_code=1, author="")
ERROR = replace(CRASH, ended=Ended.FAILED, message="KeyError: 'x'")
RESCALE = replace(CRASH, ended=Ended.RESCALED, was_asked=True)


def test_a_trainer_without_failures_goes_on_at_once() -> None:
    assert judge([], JOB) == MAY_RUN
    assert judge([RESCALE, RESCALE], JOB) == MAY_RUN


def test_each_failure_in_a_row_doubles_the_wait() -> None:
    assert judge([CRASH], JOB).wait_s == 10.0
    assert judge([CRASH, ERROR], JOB).wait_s == 20.0
    assert judge([CRASH, RESCALE], JOB).wait_s == 0.0


def test_the_last_of_its_attempts_ends_it_and_says_why() -> None:
    verdict = judge([CRASH, RESCALE, CRASH, ERROR], JOB)

    assert verdict.is_final
    assert verdict.reason.startswith(GAVE_UP)
    assert "KeyError" in verdict.reason


def test_no_attempts_means_that_the_first_failure_is_the_last() -> None:
    job = structs.replace(JOB, restart=RestartSettings(attempts=0))

    assert judge([CRASH], job).is_final


def test_a_commit_between_failures_forgives_the_earlier_ones() -> None:
    later = replace(CRASH, committed_step=5)

    assert judge([CRASH, CRASH, later], JOB).wait_s == 10.0
    assert judge([CRASH, later, later, later], JOB).is_final


@pytest.mark.parametrize(
    "ending",
    [
        replace(CRASH, lost_lease=True),
        replace(ERROR, lost_lease=True),
        replace(CRASH, was_asked=True),
        replace(CRASH, ended=Ended.NOT_LAUNCHED),
    ],
)
def test_what_is_not_the_programs_fault_is_not_counted(
    ending: GenerationEnding,
) -> None:
    assert judge([ending] * 9, JOB) == MAY_RUN


def test_a_program_that_stops_unasked_is_not_started_for_ever() -> None:
    unasked = replace(RESCALE, was_asked=False)

    assert judge([unasked] * 3, JOB).is_final


@pytest.mark.parametrize("ended", [Ended.FINISHED, Ended.DO_NOT_RESTART])
def test_what_is_over_stays_over(ended: Ended) -> None:
    assert judge([replace(RESCALE, ended=ended), RESCALE], JOB).is_final


def test_a_program_that_tells_of_no_commit_had_made_some_when_it_ran_for_long() -> None:
    job = structs.replace(
        JOB, elastic=False, checkpoint=CheckpointSettings(every_s=60.0)
    )
    long_run = replace(ERROR, ended_s=121.0)

    assert judge([long_run] * 9, job).wait_s == 10.0
    assert judge([replace(long_run, ended_s=119.0)] * 3, job).is_final


@pytest.mark.parametrize(
    ("exit_code", "elastic", "ended", "message"),
    [
        (3, True, Ended.KILLED, "exit code 3"),
        (1, False, Ended.FAILED, "exit code 1"),
        (-9, True, Ended.KILLED, "its launcher was ended by signal 9"),
        (0, False, Ended.FINISHED, ""),
        (0, True, Ended.KILLED, "exit code 0, and no outcome; a program without"),
    ],
)
def test_a_world_that_left_no_outcome_ends_as_its_exit_code_says(
    exit_code: int, ended: Ended, message: str, *, elastic: bool
) -> None:
    ending = _ended(WriteEnding("digits", 1, exit_code=exit_code), elastic=elastic)

    assert ending.ended is ended
    assert ending.message.startswith(message)
    assert bool(ending.message) == bool(message)
    assert ("elastic = false" in ending.message) == (elastic and exit_code == 0)


@pytest.mark.parametrize(
    "action",
    [
        WriteEnding("digits", 1, exit_code=1, was_asked=True),
        WriteEnding("digits", 1, exit_code=1, was_killed=True),
        WriteEnding("digits", 1, exit_code=1, lost_lease=True),
    ],
)
def test_an_exit_code_that_we_caused_is_not_told(action: WriteEnding) -> None:
    assert _ended(action, elastic=True).message == ""


def test_what_is_known_already_stands() -> None:
    action = WriteEnding("digits", 1, exit_code=1, why="its head was lost")
    assert _ended(action, elastic=True).message == "its head was lost"


def _ended(action: WriteEnding, *, elastic: bool) -> GenerationEnding:
    draft = draft_ending(action, author="a-lease-0", unix_s=100.0)
    return complete_ending(draft, action, elastic=elastic)
