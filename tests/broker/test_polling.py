"""When the queue is polled again before backfill's cycles, and what needs a tick."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from freetrain.broker.yielding import (
    EMPTY_DIGEST,
    LEAD_S,
    LEAST_LEAD_S,
    Cycles,
    QueueDigest,
    cycles_of,
    digest_of,
    last_lead_s,
)
from slurm.records import JobRecord, JobState
from tests.broker.broker_records import NOW_S
from tests.broker.broker_records import job as lease
from tests.slurm_library.clusters import statistics
from tests.tick.test_limits_and_jobs import CONFIG


@given(
    due_s=st.integers(-10_000, 600),
    interval_s=st.integers(1, 600),
    rest_s=st.integers(0, 100),
    lead_s=st.sampled_from([LEAD_S, 3.0, LEAST_LEAD_S]),
)
def test_a_poll_comes_after_its_rest_just_before_a_cycle_and_misses_none(
    due_s: int, interval_s: int, rest_s: int, lead_s: float
) -> None:
    cycles = Cycles(NOW_S, NOW_S + due_s, float(interval_s))
    poll_s = cycles.next_poll_s(rest_s=float(rest_s), lead_s=lead_s)
    is_due_s = float(due_s) if due_s > 0 else float(interval_s)
    assert poll_s >= rest_s
    assert (poll_s + lead_s - is_due_s) % interval_s == 0
    assert poll_s - interval_s < rest_s


@pytest.mark.parametrize(
    ("took_s", "lead_s"), [(0.0, 2.0), (0.5, 2.5), (2.9, 4.9), (3.0, None), (8.0, None)]
)
def test_a_last_poll_is_as_close_as_polls_are_quick_and_there_is_none_where_slow(
    took_s: float, lead_s: float | None
) -> None:
    assert last_lead_s(took_s) == lead_s


def test_a_cycle_is_due_its_interval_after_the_last_has_ended() -> None:
    told = replace(statistics(last_s=NOW_S - 10), taken_s=NOW_S, bf_last_took_s=4.0)
    cycles = cycles_of(
        told, replace(CONFIG, scheduler_parameters={"bf_interval": "60"})
    )
    assert cycles == Cycles(NOW_S, NOW_S - 10 + 4 + 60, 60.0)


@pytest.mark.parametrize(
    ("changes", "scheduler"),
    [({}, "sched/builtin"), ({"bf_last_cycle_s": None}, "sched/backfill")],
)
def test_without_backfill_or_before_its_first_cycle_none_is_due(
    changes: dict[str, None], scheduler: str
) -> None:
    told = replace(statistics(), **changes)  # type: ignore[arg-type]
    assert cycles_of(told, replace(CONFIG, scheduler_type=scheduler)) is None


WAITS = JobRecord(
    job_id=1, display_id="1", states=frozenset({JobState.PENDING}), priority=10
)
RUNS = JobRecord(
    job_id=2, display_id="2", states=frozenset({JobState.RUNNING}), nodes="n1"
)


def test_leases_and_jobs_that_are_held_back_are_not_in_the_digest() -> None:
    held = replace(WAITS, job_id=3, display_id="3", priority=0)
    later = replace(WAITS, job_id=4, display_id="4", eligible_s=NOW_S + 60.0)
    digest = digest_of([WAITS, RUNS, held, later, lease(0), lease(1)], now_s=NOW_S)
    assert digest == QueueDigest(waiting=frozenset({"1"}), holding=frozenset({"2"}))


def test_a_job_that_becomes_eligible_needs_a_tick() -> None:
    later = replace(WAITS, eligible_s=NOW_S + 60.0)
    before = digest_of([later], now_s=NOW_S)
    assert not digest_of([later], now_s=NOW_S + 1.0).needs_tick_after(before)
    assert digest_of([later], now_s=NOW_S + 60.0).needs_tick_after(before)


@pytest.mark.parametrize(
    ("before", "now", "needs_tick"),
    [
        (EMPTY_DIGEST, [WAITS], True),  # came
        ([WAITS, RUNS], [WAITS], True),  # ended
        ([WAITS, replace(WAITS, display_id="0")], [WAITS], True),  # gave up
        ([WAITS, RUNS], [WAITS, RUNS], False),
        ([RUNS], EMPTY_DIGEST, False),  # and nobody waits for its nodes
    ],
)
def test_a_change_needs_a_tick_where_a_job_waits(
    before: list[JobRecord] | QueueDigest,
    now: list[JobRecord] | QueueDigest,
    *,
    needs_tick: bool,
) -> None:
    assert _digest(now).needs_tick_after(_digest(before)) is needs_tick


def _digest(jobs: list[JobRecord] | QueueDigest) -> QueueDigest:
    return jobs if isinstance(jobs, QueueDigest) else digest_of(jobs, now_s=NOW_S)
