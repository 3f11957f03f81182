"""Who else is there, and whether that is worth another tick."""

from __future__ import annotations

from dataclasses import replace

import pytest

from freetrain.broker.yielding import EMPTY_DIGEST, QueueDigest, digest_of
from slurm.records import JobRecord, JobState
from tests.broker.broker_records import NOW_S
from tests.broker.broker_records import job as lease

WAITS = JobRecord(
    job_id=1, display_id="1", states=frozenset({JobState.PENDING}), priority=10
)
RUNS = JobRecord(
    job_id=2, display_id="2", states=frozenset({JobState.RUNNING}), nodes="n1"
)


def test_leases_and_those_who_are_held_back_are_nobody() -> None:
    held = replace(WAITS, job_id=3, display_id="3", priority=0)
    later = replace(WAITS, job_id=4, display_id="4", eligible_s=NOW_S + 60.0)

    crowd = digest_of([WAITS, RUNS, held, later, lease(0), lease(1)], now_s=NOW_S)

    assert crowd == QueueDigest(waiting=frozenset({"1"}), holding=frozenset({"2"}))


def test_who_becomes_eligible_stirs() -> None:
    later = replace(WAITS, eligible_s=NOW_S + 60.0)

    before = digest_of([later], now_s=NOW_S)

    assert not digest_of([later], now_s=NOW_S + 1.0).needs_tick_after(before)
    assert digest_of([later], now_s=NOW_S + 60.0).needs_tick_after(before)


@pytest.mark.parametrize(
    ("before", "now", "is_stirred"),
    [
        (EMPTY_DIGEST, [WAITS], True),  # came
        ([WAITS, RUNS], [WAITS], True),  # ended
        ([WAITS, replace(WAITS, display_id="0")], [WAITS], True),  # gave up
        ([WAITS, RUNS], [WAITS, RUNS], False),
        ([RUNS], EMPTY_DIGEST, False),  # and nobody waits for its nodes
    ],
)
def test_a_change_stirs_where_somebody_waits(
    before: list[JobRecord] | QueueDigest,
    now: list[JobRecord] | QueueDigest,
    *,
    is_stirred: bool,
) -> None:
    assert _crowd(now).needs_tick_after(_crowd(before)) is is_stirred


def _crowd(jobs: list[JobRecord] | QueueDigest) -> QueueDigest:
    return jobs if isinstance(jobs, QueueDigest) else digest_of(jobs, now_s=NOW_S)
