"""The rules' actions, the verdict on a trainer, and the endings that are written."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from freetrain.agent.agent import (
    OUT_OF_MEMORY,
    complete_ending,
    draft_ending,
    killed_how,
    with_unsaved,
)
from freetrain.agent.observation import (
    LEFT_OUT_S,
    MAY_RUN,
    Observation,
    ObservedGeneration,
    ObservedTrainer,
    ObservedWorld,
    Verdict,
    judge,
    sizes_left_out,
    sizes_to_avoid,
    with_size,
)
from freetrain.agent.rules import (
    Action,
    AskToStop,
    GiveBackLease,
    Kill,
    KillRanks,
    LaunchWorld,
    WriteEnding,
    choose_actions,
)
from freetrain.broker.lease import LeaseKey
from freetrain.config.job import CheckpointSettings, RestartSettings, TrainerJob
from freetrain.state.files import (
    GAVE_UP,
    KILLED_OUTSIDE,
    EndingKind,
    GenerationEnding,
    all_sizes,
)
from freetrain.text import DAY_S
from tests.agent.model_cluster import a_job
from tests.state.endings import a_lease, an_assignment, an_ending

ME, OTHER = LeaseKey("me", 0), LeaseKey("other", 0)


def generation(number: int, *keys: LeaseKey, **changes: Any) -> ObservedGeneration:  # noqa: ANN401 -- fields of many types
    assigned = an_assignment(number, *map(a_lease, keys))
    return ObservedGeneration(assigned=assigned, **changes)


def chosen(trainer: ObservedTrainer, **changes: Any) -> tuple[Action, ...]:  # noqa: ANN401 -- the same
    observed = Observation(me=ME, trainers=(trainer,), peers={}, **changes)
    return choose_actions(observed, ages_s={})


@pytest.mark.parametrize(
    ("earlier", "elastic", "after"),
    [
        ([], True, [None]),
        ([8], True, [8]),
        ([7, 8], True, []),
        ([], False, [None]),
        ([8], False, []),
    ],
)
def test_an_elastic_world_is_launched_ahead_of_one_other_and_never_of_two(
    earlier: list[int], after: list[int | None], *, elastic: bool
) -> None:
    trainer = ObservedTrainer(
        job=structs.replace(a_job("t"), elastic=elastic),
        newest=generation(9, ME),
        earlier=tuple(generation(number, OTHER) for number in earlier),
    )

    launches = [a.after for a in chosen(trainer) if isinstance(a, LaunchWorld)]

    assert launches == after


def test_a_lease_that_is_still_a_member_does_not_leave_before_its_time_is_up() -> None:
    member = generation(9, OTHER, ME, is_over=True)
    trainer = ObservedTrainer(job=a_job("t"), newest=member, is_being_left=True)

    actions = chosen(trainer, leaving_s=1.0, bound_s=5.0)

    assert not [action for action in actions if isinstance(action, GiveBackLease)]


def test_a_lease_does_not_leave_while_it_is_unknown_whether_it_is_needed() -> None:
    observed = Observation(me=ME, peers={}, leaving_s=1.0, unknown=frozenset({"t"}))

    assert choose_actions(observed, ages_s={}) == ()
    known = replace(observed, unknown=frozenset())
    assert choose_actions(known, ages_s={}) == (GiveBackLease("it was asked to leave"),)


RUNNING = ObservedWorld(age_s=9.0)
DONE: dict[str, Any] = {"outcome": "rescaled"}


def kinds(earlier: ObservedGeneration, *, leaving_s: float | None) -> set[type]:
    """The kinds of actions on generation 8, where 9 has only the other lease."""
    trainer = ObservedTrainer(
        job=a_job("t"),
        newest=generation(9, OTHER),
        earlier=(earlier,),
        is_being_left=leaving_s is not None,
    )
    actions = chosen(trainer, leaving_s=leaving_s, bound_s=10.0)
    return {type(a) for a in actions} & {AskToStop, GiveBackLease, Kill, KillRanks}


@pytest.mark.parametrize(
    ("outcome", "age_s", "goes"),
    [
        ("", 0.0, False),
        ("rescaled", 0.6, False),
        ("rescaled", 1.0, True),
        ("failed", 1.0, False),  # it is not known which step is safe
    ],
)
def test_a_lease_does_not_wait_for_what_programs_do_once_they_have_committed(
    outcome: str, age_s: float, *, goes: bool
) -> None:
    lingering = generation(
        8, OTHER, ME, outcome=outcome, outcome_age_s=age_s, processes=2
    )

    assert (GiveBackLease in kinds(lingering, leaving_s=1.0)) == goes


@pytest.mark.parametrize(
    ("age_s", "leavers", "are_killed"),
    [(0.4, {OTHER}, True), (0.2, {OTHER}, False), (0.4, set(), False)],
)
def test_ranks_that_linger_are_killed_on_every_node_while_a_job_waits_for_one(
    age_s: float, leavers: set[LeaseKey], *, are_killed: bool
) -> None:
    changes = DONE | {"notices": frozenset(leavers), "processes": 2}
    lingering = generation(8, OTHER, ME, **changes, outcome_age_s=age_s)

    assert (KillRanks in kinds(lingering, leaving_s=None)) == are_killed


@pytest.mark.parametrize(
    ("age_s", "leaving_s", "is_killed"),
    [(1.0, 2.0, False), (1.6, 2.0, True), (1.6, None, False)],
)
def test_a_head_that_leaves_kills_what_lingers_after_the_others_have_gone(
    age_s: float, leaving_s: float | None, *, is_killed: bool
) -> None:
    world = replace(RUNNING, asked_s=1.0)
    lingering = generation(
        8, ME, OTHER, **DONE, outcome_age_s=age_s, has_begun=True, world=world
    )

    assert (Kill in kinds(lingering, leaving_s=leaving_s)) == is_killed


def test_a_world_that_has_not_begun_is_killed_when_a_lease_of_it_leaves() -> None:
    """Asked to stop it would import and connect first."""
    starting = generation(8, ME, OTHER, world=RUNNING)

    assert kinds(starting, leaving_s=0.1) == {Kill}
    assert kinds(replace(starting, has_begun=True), leaving_s=0.1) == {AskToStop}


@pytest.mark.parametrize("is_told", [True, False])
def test_a_request_to_stop_that_could_not_be_delivered_is_made_again(
    *, is_told: bool
) -> None:
    world = replace(RUNNING, asked_s=1.0, is_told=is_told)
    asked = generation(8, ME, OTHER, has_begun=True, world=world)

    assert kinds(asked, leaving_s=1.0) == (set() if is_told else {AskToStop})


@pytest.mark.parametrize(
    ("exit_s", "lingers", "is_killed"),
    [(0.4, True, False), (1.0, True, True), (0.1, False, True)],
)
def test_clients_of_steps_may_hear_of_their_ends_before_they_are_killed(
    exit_s: float, *, lingers: bool, is_killed: bool
) -> None:
    """Slurm ends a step, and the lease it is in, two seconds later without."""
    world = replace(RUNNING, exit_s=exit_s, exit_code=0, lingers=lingers)
    over = generation(8, ME, OTHER, **DONE, has_begun=True, world=world)

    assert kinds(over, leaving_s=1.0) == ({Kill} if is_killed else set())


JOB = structs.replace(a_job(), restart=RestartSettings(attempts=3, wait_s=10.0))
LONG = structs.replace(JOB, elastic=False, checkpoint=CheckpointSettings(every_s=60.0))
CRASH = an_ending(1, EndingKind.KILLED, exit_code=1, author="")
ERROR = replace(CRASH, ended=EndingKind.FAILED, message="KeyError: 'x'")
RESCALE = replace(CRASH, ended=EndingKind.RESCALED, was_asked=True)
COMMIT = replace(CRASH, committed_step=5)


@pytest.mark.parametrize(
    ("endings", "wait_s"),
    [
        pytest.param([], 0, id="none"),
        pytest.param([RESCALE, RESCALE], 0, id="no failure"),
        pytest.param([CRASH], 10, id="a failure"),
        pytest.param([CRASH, ERROR], 20, id="each failure in a row doubles it"),
        pytest.param([CRASH, RESCALE], 0, id="a failure, and then none"),
        pytest.param([CRASH, CRASH, COMMIT], 10, id="a commit forgives the earlier"),
        pytest.param([replace(CRASH, lost_lease=True)] * 9, 0, id="lost leases"),
        pytest.param([replace(ERROR, lost_lease=True)] * 9, 0, id="errors by these"),
        pytest.param([replace(CRASH, was_asked=True)] * 9, 0, id="asked to stop"),
        pytest.param(
            [replace(CRASH, ended=EndingKind.NOT_LAUNCHED)] * 9, 0, id="none ran"
        ),
        pytest.param(
            [CRASH, replace(CRASH, ended=EndingKind.NOT_LAUNCHED)],
            10,
            id="a failure, and then one that did not run",
        ),
    ],
)
def test_a_trainer_waits_longer_after_each_failure_of_its_program(
    endings: list[GenerationEnding], wait_s: float
) -> None:
    verdict = judge(endings, JOB)

    assert (verdict.is_final, verdict.wait_s) == (False, wait_s)
    assert (verdict.times > 0) == (wait_s > 0)


def test_a_trainer_that_is_killed_from_outside_waits_longer_and_not_for_ever() -> None:
    kill = replace(CRASH, lost_lease=True, message=f"{KILLED_OUTSIDE} by signal 9")

    assert [judge([kill] * n, JOB).wait_s for n in (1, 2, 3)] == [0, 10, 20]
    assert not judge([kill] * 9, JOB).is_final
    assert judge([kill] * 10, JOB).is_final
    assert not judge([*[kill] * 9, replace(kill, committed_step=5)], JOB).is_final
    assert not judge([CRASH, CRASH, kill], JOB).is_final


@pytest.mark.parametrize(
    "endings",
    [
        pytest.param([CRASH, RESCALE, CRASH, ERROR], id="the last of its attempts"),
        pytest.param([CRASH, COMMIT, COMMIT, COMMIT], id="no further commit"),
        pytest.param([replace(RESCALE, was_asked=False)] * 3, id="it stops unasked"),
        pytest.param(
            [replace(RESCALE, ended=EndingKind.FINISHED), RESCALE], id="finished"
        ),
        pytest.param(
            [replace(RESCALE, ended=EndingKind.DO_NOT_RESTART), RESCALE],
            id="its own wish",
        ),
    ],
)
def test_a_trainer_is_not_started_for_ever(endings: list[GenerationEnding]) -> None:
    assert judge(endings, JOB).is_final


def test_the_last_failure_says_why_and_without_attempts_the_first_is_the_last() -> None:
    verdict = judge([CRASH, CRASH, ERROR], JOB)
    once = structs.replace(JOB, restart=RestartSettings(attempts=0))

    assert verdict.reason.startswith(GAVE_UP)
    assert "KeyError" in verdict.reason
    assert judge([CRASH], once).is_final


def test_a_program_that_tells_of_no_commit_had_made_some_when_it_ran_for_long() -> None:
    long_run = replace(ERROR, ended_s=121.0)

    assert judge([long_run] * 9, LONG).wait_s == 10.0
    assert judge([replace(long_run, ended_s=119.0)] * 3, LONG).is_final


def history(*worlds: tuple[int, GenerationEnding, bool]) -> list[GenerationEnding]:
    """The endings of worlds, each of a size, that made a step or none."""
    endings: list[GenerationEnding] = []
    for leases, ending, is_trained in worlds:
        before = endings[-1].tried if endings else ()
        endings.append(with_size(ending, before, leases=leases, has_trained=is_trained))
    return endings


def left_out(
    *worlds: tuple[int, GenerationEnding, bool], job: TrainerJob = JOB
) -> list[int]:
    endings = history(*worlds)
    if not endings:
        return []
    return sorted(sizes_left_out(endings[-1].tried, job, now_s=endings[-1].ended_s))


RAN = (2, RESCALE, True)
NEVER = replace(CRASH, ended=EndingKind.NOT_LAUNCHED)


@pytest.mark.parametrize(
    ("worlds", "sizes"),
    [
        pytest.param([RAN, (3, ERROR, False)], [], id="once"),
        pytest.param([RAN, (3, ERROR, False), (3, ERROR, False)], [3], id="twice"),
        pytest.param(
            [RAN, (3, ERROR, False), (3, NEVER, False), RAN, (3, CRASH, False)],
            [3],
            id="with others between",
        ),
        pytest.param([(3, ERROR, False)] * 2 + [RAN], [3], id="others train later"),
        pytest.param([(3, ERROR, False)] * 5, [], id="it never trained"),
        pytest.param(
            [(3, ERROR, False)] * 2 + [(2, ERROR, False)] * 2, [], id="on no size"
        ),
        pytest.param([RAN, *[(2, ERROR, False)] * 5], [], id="it trained there"),
        pytest.param([RAN, *[(3, ERROR, True)] * 5], [], id="it makes steps there"),
        pytest.param(
            [RAN, *[(3, replace(ERROR, lost_lease=True), False)] * 5], [], id="lost"
        ),
        pytest.param(
            [RAN, *[(3, replace(ERROR, was_asked=True), False)] * 5], [], id="asked"
        ),
        pytest.param([RAN, *[(3, NEVER, False)] * 5], [], id="not launched"),
        pytest.param(
            [RAN, *[(n, ERROR, False) for n in (3, 5, 3, 5)]], [3, 5], id="two sizes"
        ),
    ],
)
def test_a_size_on_which_nothing_ever_began_is_left_out_where_others_train(
    worlds: list[tuple[int, GenerationEnding, bool]], sizes: list[int]
) -> None:
    assert left_out(*worlds) == sizes


def test_a_world_that_ends_before_its_predecessor_hides_no_size_that_trained() -> None:
    # The second world fails while the first is still on its way out.
    (early,) = history((3, ERROR, False))
    (first,) = history(RAN)
    (again,) = history((3, ERROR, False))
    again = with_size(
        again, all_sizes((*early.tried, *first.tried)), leases=3, has_trained=False
    )

    assert (
        judge([first, early], structs.replace(JOB, restart=RestartSettings(attempts=1)))
        == MAY_RUN
    )
    assert judge([first, early, again], JOB) == MAY_RUN
    every = all_sizes((*again.tried, *early.tried, *first.tried))
    assert set(sizes_left_out(every, JOB, now_s=again.ended_s)) == {3}


def test_a_launch_that_failed_says_nothing_of_the_size() -> None:
    unmade = replace(ERROR, started_s=None)

    assert left_out(RAN, *[(3, unmade, False)] * 5) == []


def test_a_slow_start_of_a_size_that_never_trained_is_no_work_done() -> None:
    late = replace(ERROR, ended_s=150.0)
    worlds = history(RAN, (3, late, False), *[(5, late, False)] * 3)

    assert judge(worlds, LONG).is_final


def test_failures_of_a_size_alone_do_not_count_against_the_program() -> None:
    of_three = (3, ERROR, False)

    assert judge(history(RAN, of_three), JOB) == Verdict(wait_s=10.0, times=1)
    assert judge(history(RAN, of_three, of_three), JOB) == MAY_RUN
    others = history(RAN, of_three, of_three, *[(2, ERROR, False)] * 2)
    assert judge(others, JOB) == Verdict(wait_s=20.0, times=2)
    assert judge(history(*[of_three] * 3), JOB).is_final
    last = others[-1]
    assert ERROR.message in sizes_left_out(last.tried, JOB, now_s=last.ended_s)[3]


def test_a_size_that_was_left_out_is_tried_once_more_after_hours() -> None:
    worlds = [RAN, (3, ERROR, False), (3, ERROR, False)]
    *_, last = history(*worlds)
    again_s = last.ended_s + LEFT_OUT_S

    assert set(sizes_left_out(last.tried, JOB, now_s=again_s - 1.0)) == {3}
    assert not sizes_left_out(last.tried, JOB, now_s=again_s)
    late = replace(ERROR, started_s=again_s, ended_s=again_s + 5.0)
    endings = history(*worlds, RAN, (3, late, False))
    assert set(sizes_left_out(endings[-1].tried, JOB, now_s=again_s + 9.0)) == {3}
    assert judge(endings, JOB) == MAY_RUN


def test_a_size_stays_left_out_by_an_earlier_release_and_for_no_wrong_clock() -> None:
    *_, last = history(RAN, (3, ERROR, False), (3, ERROR, False))
    earlier = tuple(replace(size, failed_s=0.0) for size in last.tried)
    now_s = last.ended_s + 2 * LEFT_OUT_S

    assert set(sizes_left_out(earlier, JOB, now_s=now_s)) == {3}
    ahead = tuple(replace(size, failed_s=now_s + DAY_S) for size in last.tried)
    assert not sizes_left_out(ahead, JOB, now_s=now_s)


def test_a_trainer_without_a_second_attempt_leaves_a_size_out_at_once() -> None:
    once = structs.replace(JOB, restart=RestartSettings(attempts=1))

    assert left_out(RAN, (3, ERROR, False), job=once) == [3]
    assert judge(history(RAN, (3, ERROR, False)), once) == MAY_RUN


WORLDS = st.lists(
    st.tuples(
        st.integers(1, 4),
        st.sampled_from(
            [CRASH, ERROR, RESCALE, NEVER, replace(CRASH, lost_lease=True)]
        ),
        st.booleans(),
    ),
    max_size=12,
)


@given(WORLDS, st.integers(0, 4))
def test_a_size_that_trained_stays_and_those_left_out_end_no_trainer(
    worlds: list[tuple[int, GenerationEnding, bool]], attempts: int
) -> None:
    restart = RestartSettings(attempts=attempts)
    job = structs.replace(JOB, restart=restart)
    endings = history(*worlds)
    trained = {
        n for n, ending, is_trained in worlds if is_trained and ending is not NEVER
    }
    out = set(left_out(*worlds, job=job))

    assert not out & trained
    assert trained or not out
    kept = job.without_sizes(out).nodes.sizes
    assert set(kept) == set(job.nodes.sizes) - out
    assert trained <= set(kept)
    if trained and endings[-1].ended is EndingKind.RESCALED:
        one_more = judge(history(*worlds, *[(5, ERROR, False)] * 2), job)
        assert one_more.is_final == judge(endings, job).is_final


def test_a_program_that_fails_on_all_sizes_is_not_tried_on_each() -> None:
    fails = {n: (n, ERROR, False) for n in range(1, 9)}

    assert judge(history(RAN, fails[3], fails[3], *[fails[2]] * 3), JOB).is_final
    untried = [fails[n] for n in (8, 8, 7, 6, 5)]
    assert judge(history(RAN, *untried), JOB).is_final
    with_training_between = [fails[8], fails[8], RAN, fails[7], fails[7], RAN]
    assert judge(history(RAN, *with_training_between), JOB) == MAY_RUN


def test_after_a_size_that_is_left_out_the_next_is_one_that_trained() -> None:
    once, twice = (history(RAN, *[(6, ERROR, False)] * n)[-1] for n in (1, 2))

    assert avoided_after(once) == set()
    assert avoided_after(twice) == set(JOB.nodes.sizes) - {2}
    well = history(RAN, *[(6, ERROR, False)] * 2, RAN)[-1]
    assert avoided_after(well) == {6}


def avoided_after(ending: GenerationEnding) -> frozenset[int]:
    return sizes_to_avoid(ending.tried, JOB, after=ending.leases, now_s=ending.ended_s)


def ended(action: WriteEnding, *, elastic: bool = True) -> GenerationEnding:
    draft = draft_ending(action, author="a-lease-0", unix_s=100.0)
    return complete_ending(draft, action, elastic=elastic)


@pytest.mark.parametrize(
    ("exit_code", "elastic", "how", "message"),
    [
        (3, True, EndingKind.KILLED, "exit code 3"),
        (1, False, EndingKind.FAILED, "exit code 1"),
        (-9, True, EndingKind.KILLED, "its launcher was ended by signal 9"),
        (0, False, EndingKind.FINISHED, ""),
        (0, True, EndingKind.KILLED, "exit code 0, and no outcome; a program without"),
    ],
)
def test_a_world_that_left_no_outcome_ends_as_its_exit_code_says(
    exit_code: int, how: EndingKind, message: str, *, elastic: bool
) -> None:
    ending = ended(WriteEnding("digits", 1, exit_code=exit_code), elastic=elastic)

    assert ending.ended is how
    assert ending.message.startswith(message)
    assert bool(ending.message) == bool(message)
    assert ("elastic = false" in ending.message) == (elastic and exit_code == 0)


PEER_LOST = b"An MPI communication peer process has unexpectedly disconnected."


@pytest.mark.parametrize(
    ("exit_code", "output", "elastic", "how"),
    [
        (137, b"", False, f"{KILLED_OUTSIDE} by signal 9"),
        (-15, b"", True, f"{KILLED_OUTSIDE} by signal 15"),
        (1, b"", True, ""),
        (139, b"", True, ""),
        (None, b"", True, ""),
        (14, PEER_LOST, True, KILLED_OUTSIDE),
        (14, PEER_LOST, False, ""),
        (14, PEER_LOST + b" *** Process received signal ***", True, ""),
        (137, b"task 1: Exited with exit code 1", False, ""),
        (137, b"Detected 1 oom_kill event in StepId=3.0", False, OUT_OF_MEMORY),
    ],
)
def test_who_killed_a_world_follows_from_its_launchers_status_and_output(
    exit_code: int | None, output: bytes, how: str, *, elastic: bool
) -> None:
    assert killed_how(exit_code, output, elastic=elastic) == how


def test_an_exit_code_that_we_caused_is_not_shown_and_a_known_reason_stands() -> None:
    action = WriteEnding("digits", 1, exit_code=1)

    caused = (
        replace(action, was_asked=True),
        replace(action, was_killed=True),
        replace(action, lost_lease=True),
    )

    assert not any(ended(one).message for one in caused)
    assert (
        ended(replace(action, why="its head was lost")).message == "its head was lost"
    )


@pytest.mark.parametrize(
    ("saved_s", "said"),
    [
        (None, ""),
        (99.5, ""),
        (60.0, "it last saved 40 s before its end, and what it did since is lost"),
        (5.0, "it saved nothing since it began 90 s before its end"),
    ],
    ids=["unknown", "as it ended", "before", "never"],
)
def test_an_ending_says_what_a_program_that_saves_by_itself_has_lost(
    saved_s: float | None, said: str
) -> None:
    action = WriteEnding("digits", 1, exit_code=143, was_asked=True, age_s=90.0)

    ending = with_unsaved(ended(action, elastic=False), saved_s)

    assert ending.ended is EndingKind.RESCALED
    assert ending.message.startswith(said)
    assert bool(ending.message) == bool(said)
