"""Leases and submissions as they are believed to be, by two of Slurm's answers."""

from dataclasses import replace

import pytest

from freetrain.broker.belief import Belief, Sources, believe
from freetrain.broker.lease import IntentState, LeaseEnd, LeaseState
from freetrain.broker.limits import Limits, Pace, failed_to_start, paused_until_s
from slurm.records import JobRecord, JobState
from tests.broker.broker_records import NOW_S, UID, intent, job, key, lease

SUBMITTED = intent(state=IntentState.SUBMITTED, job_id=7)
OPEN = Belief((), (intent(),))
TOGETHER = job(0, JobState.PENDING, array_task_id=None, array_tasks="0-3")
RUNS = (job(0, nodes="n0"),)
LATER_S = NOW_S + 60
Jobs = tuple[JobRecord, ...] | None


def look(
    queue: Jobs,
    lookup: Jobs,
    *,
    before: Belief | None = None,
    at_s: float = NOW_S,
    times: int = 1,
) -> Belief:
    """Return the belief after these answers, *times* in a row."""
    belief = before or Belief((lease(0, "n0"),), (SUBMITTED,))
    for _ in range(times):
        belief = believe(
            belief.leases,
            belief.intents,
            Sources(UID, queue, lookup),
            now_s=at_s,
            limits=Limits(),
        )
    return belief


def first(belief: Belief) -> LeaseState:
    return next(one.state for one in belief.leases if one.key == key(0))


def test_a_lease_is_gone_only_when_two_sources_miss_it_twice_and_for_long() -> None:
    once = look((), ())

    assert first(once) is LeaseState.RUNNING
    assert first(look((), (), before=once, at_s=NOW_S + 59)) is LeaseState.RUNNING
    assert first(look((), (), before=once, at_s=LATER_S)) is LeaseState.GONE


def test_a_source_that_failed_never_counts_as_having_missed_it() -> None:
    belief = look((), None)
    for _ in range(5):
        belief = look((), None, before=belief, at_s=LATER_S)
        belief = look(None, (), before=belief, at_s=LATER_S)

    assert first(belief) is LeaseState.RUNNING


def test_being_seen_again_starts_the_count_anew_and_revives_the_gone() -> None:
    seen = look(RUNS, (), before=look((), ()))
    missed = look((), (), before=seen, at_s=LATER_S)
    gone = look((), (), before=missed, at_s=LATER_S + 60)

    assert first(missed) is LeaseState.RUNNING
    assert first(gone) is LeaseState.GONE
    assert first(look((), RUNS, before=gone)) is LeaseState.RUNNING


def test_what_is_left_of_an_array_that_was_cancelled_is_not_its_first_task() -> None:
    rest = replace(job(0, JobState.CANCELLED, array_task_id=None), array_job_id=None)
    assert rest.job_id == SUBMITTED.job_id

    assert first(look(RUNS, (rest, *RUNS))) is LeaseState.RUNNING
    assert first(look(RUNS, (*RUNS, rest))) is LeaseState.RUNNING
    assert first(look((), (rest,))) is LeaseState.GONE


@pytest.mark.parametrize(
    ("state", "ended"),
    [
        (JobState.PREEMPTED, LeaseEnd.PREEMPTED),
        (JobState.CANCELLED, LeaseEnd.CANCELLED),
        (JobState.TIMEOUT, LeaseEnd.EXPECTED),
        (JobState.DEADLINE, LeaseEnd.UNSTARTED),
        (JobState.NODE_FAIL, LeaseEnd.EXPECTED),
        (JobState.FAILED, LeaseEnd.FAILED),
        (JobState.BOOT_FAIL, LeaseEnd.FAILED),
    ],
)
def test_a_reported_end_is_believed_at_once_and_only_failures_count(
    state: JobState, ended: LeaseEnd
) -> None:
    reported = job(0, state, start_s=NOW_S - 10, end_s=NOW_S)

    (found,) = (x for x in look(None, (reported,)).leases if x.key == key(0))

    assert (found.state, found.ended) == (LeaseState.GONE, ended)
    assert failed_to_start(found, Limits()) == (ended is LeaseEnd.FAILED)
    assert not failed_to_start(replace(found, start_s=NOW_S - 100), Limits())


def test_a_completing_lease_still_has_its_node_but_no_trainer_can_use_it() -> None:
    completing = job(0, JobState.CANCELLED, JobState.COMPLETING, nodes="n0")

    assert first(look((completing,), None)) is LeaseState.ENDING


def test_waiting_tasks_that_stand_together_are_mentioned_one_and_all() -> None:
    before = Belief((lease(0), lease(1)), (SUBMITTED,))

    after = look((TOGETHER,), (), before=before, at_s=LATER_S, times=3)

    assert {one.state for one in after.leases} == {LeaseState.PENDING}


def test_a_submission_without_answer_is_adopted_with_all_its_tasks() -> None:
    found = tuple(job(task, JobState.PENDING) for task in range(4))

    belief = look((), found, before=OPEN)

    assert [one.key for one in belief.leases] == [key(task) for task in range(4)]
    assert belief.intents[0].state is IntentState.SUBMITTED
    assert belief.intents[0].job_id == 7
    assert [one.display_id for one in belief.leases] == ["7_0", "7_1", "7_2", "7_3"]


@pytest.mark.parametrize(
    ("state", "job_id"),
    [
        (IntentState.REFUSED, None),
        (IntentState.ABANDONED, None),
        (IntentState.SUBMITTED, 7),
    ],
)
def test_it_is_adopted_whatever_was_believed_of_it(
    state: IntentState, job_id: int | None
) -> None:
    before = Belief((), (intent(state=state, job_id=job_id),))

    assert len(look((job(0),), (), before=before).leases) == 4


def test_it_is_abandoned_only_after_two_misses_and_a_while() -> None:
    early = look((), (), before=OPEN, at_s=NOW_S + 119, times=3)

    def state(before: Belief, at_s: float, queue: Jobs = ()) -> IntentState:
        return look(queue, (), before=before, at_s=NOW_S + at_s).intents[0].state

    assert early.intents[0].state is IntentState.OPEN
    assert state(OPEN, 500) is IntentState.OPEN
    assert state(early, 121) is IntentState.ABANDONED
    assert state(early, 500, (TOGETHER,)) is IntentState.OPEN, "its tasks wait"


def test_a_second_job_of_the_same_name_is_a_duplicate_and_no_lease() -> None:
    second = job(0, JobState.PENDING, job_id=50, array_job_id=50, display_id="50_0")

    belief = look((), (*RUNS, second))

    assert belief.duplicates == {"50_0": "u"}
    assert first(belief) is LeaseState.RUNNING


@pytest.mark.parametrize(
    "changes", [{"uid": UID + 1}, {"name": "freetrain-other"}, {"name": "u"}]
)
def test_jobs_of_others_and_of_unknown_names_are_not_ours(
    changes: dict[str, object],
) -> None:
    theirs = job(0, JobState.PENDING, job_id=50, array_job_id=50, **changes)

    belief = look((theirs,), (theirs,), before=Belief((), (SUBMITTED,)))

    assert belief.duplicates == {}
    assert all(one.display_id.startswith("7_") for one in belief.leases)


def test_each_further_failure_doubles_the_pause_up_to_the_longest() -> None:
    pauses = [paused_until_s(Pace(0, n, NOW_S), Limits()) for n in (0, 2, 3, 4, 99)]

    assert pauses == [None, None, NOW_S + 300, NOW_S + 600, NOW_S + 3_600]
