from itertools import accumulate

import pytest

from logs.generate import SAMPLE_MODEL, sample_trace, shipped_sample
from logs.read import read_trace
from logs.trace import JobTrace


@pytest.fixture(scope="module")
def sample() -> JobTrace:
    trace = read_trace(shipped_sample())
    assert isinstance(trace, JobTrace)
    return trace


def test_reading_the_sample_gives_the_jobs_that_were_written(sample: JobTrace) -> None:
    assert sample.jobs == sample_trace().jobs
    assert sample.units == SAMPLE_MODEL.nodes
    assert sample.unix_start_s == sample_trace().unix_start_s


def test_the_header_says_what_the_sample_is_and_how_it_is_made(
    sample: JobTrace,
) -> None:
    header = "\n".join(sample.comments)

    for words in (
        "Synthetic",
        "Lublin",
        "Seed: 2",
        "version 1",
        "EASY",
        "freetrain trace generate --sample --out logs/samples",
    ):
        assert words in header


def test_the_sample_is_a_busy_week_that_never_overfills_the_machine(
    sample: JobTrace,
) -> None:
    span_s = SAMPLE_MODEL.span_s
    changes: list[tuple[float, int]] = []
    used_node_s = 0.0
    for job in sample.jobs:
        assert job.start_s is not None
        assert job.start_s >= job.submit_s
        end_s = job.start_s + job.run_s
        changes += [(job.start_s, job.units), (end_s, -job.units)]
        used_node_s += job.units * max(0.0, min(end_s, span_s) - job.start_s)
    # At equal times the negative changes sort first: ends before starts.
    held = accumulate(units for _, units in sorted(changes))

    assert max(held) <= 512
    assert 0.85 < used_node_s / (512 * span_s) < 0.92
