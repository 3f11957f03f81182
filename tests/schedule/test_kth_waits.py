"""A real machine that ran EASY, against the simulated one."""

from pathlib import Path

import numpy as np
import pytest

from logs.read import read_trace
from logs.schedule import Method, Schedule, schedule
from logs.trace import JobTrace


@pytest.mark.shared
def test_kth_waits_less_under_plain_easy_than_it_did(shared: Path) -> None:
    trace = read_trace(shared / "logs" / "KTH-SP2-1996.swf.gz")
    assert isinstance(trace, JobTrace)
    simulated = schedule(trace, Method.EASY)
    recorded = schedule(trace, Method.RECORDED)
    # The machine had rules that the log does not tell (its first job waited eleven
    # days on an empty machine; jobs were limited by day), so it waited longer, at
    # the mean and at the median; but a simulator that waited less than a quarter
    # of that would have to be cheating: both carry the same 70 % load.
    assert 0.25 < _mean_wait_s(simulated) / _mean_wait_s(recorded) < 1
    assert np.median(_waits_s(simulated)) <= np.median(_waits_s(recorded))
    assert _work_unit_s(simulated) == pytest.approx(_work_unit_s(recorded), rel=1e-3)


def _waits_s(result: Schedule) -> list[float]:
    jobs = result.trace.jobs
    return [each.start_s - jobs[each.job].submit_s for each in result.placed]


def _mean_wait_s(result: Schedule) -> float:
    return float(np.mean(_waits_s(result)))


def _work_unit_s(result: Schedule) -> float:
    return sum(
        each.units.bit_count() * (each.end_s - each.start_s) for each in result.placed
    )
