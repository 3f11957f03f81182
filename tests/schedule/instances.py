"""Small job traces, written by hand or drawn at random."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st

from logs.trace import Job, JobTrace


def job(
    submit_s: float,
    units: int,
    run_s: float,
    request_s: float | None = None,
    **fields: object,
) -> Job:
    """A job that asks for *request_s*, or for just what it needs.

    The log says that it started at once, so that one of zero run time is not
    taken for one that never ran.
    """
    return Job(
        job_id="",
        submit_s=submit_s,
        start_s=submit_s,
        run_s=run_s,
        units=units,
        requested_s=run_s if request_s is None else request_s,
        **fields,  # type: ignore[arg-type]  # the test names Job's own fields
    )


def jobs_of(text: str) -> list[Job]:
    """Jobs by submission, units, run time and request, as in "0 3 10 20, 1 4 5"."""
    return [job(*map(int, words.split())) for words in text.split(",") if words]


def trace_of(jobs: list[Job], units: int, *, units_per_node: int = 1) -> JobTrace:
    """A trace of *jobs*, named by their place in it."""
    ordered = sorted(jobs, key=lambda each: each.submit_s)
    return JobTrace("by hand", "swf", tuple(ordered), units, units_per_node)


@st.composite
def traces(
    draw: st.DrawFn,
    *,
    overruns: bool = True,
    priorities: bool = False,
    least_run_s: int = 0,
    most_jobs: int = 12,
) -> JobTrace:
    """Up to *most_jobs* jobs that crowd a machine of up to six units."""
    units = draw(st.integers(1, 6))

    def build(submit_s: int, size: int, run_s: int, slack_s: int, priority: int) -> Job:
        request_s = max(run_s + slack_s, least_run_s)
        rank = priority if priorities else None
        return job(submit_s, size, run_s, request_s, priority=rank)

    jobs = st.builds(
        build,
        st.integers(0, 40),
        st.integers(1, units),
        st.integers(least_run_s, 25),
        st.integers(-5 if overruns else 0, 12),
        st.integers(0, 3),
    )
    return trace_of(draw(st.lists(jobs, min_size=3, max_size=most_jobs)), units)


@st.composite
def gpu_traces(draw: st.DrawFn, most_jobs: int = 12) -> JobTrace:
    """Up to *most_jobs* jobs that crowd up to four nodes of four GPUs."""
    count = draw(st.integers(1, 4))

    def build(
        submit_s: int, size: tuple[int, int], run_s: int, slack_s: int, rank: int
    ) -> Job:
        nodes, gpus = size
        units = max(nodes, min(gpus, 4 * nodes))
        request_s = max(run_s + slack_s, 0)
        made = job(submit_s, units, run_s, request_s, priority=rank)
        return replace(made, node_count=nodes)

    jobs = st.builds(
        build,
        st.integers(0, 40),
        st.tuples(st.integers(1, count), st.integers(1, 4 * count)),
        st.integers(0, 25),
        st.integers(-5, 12),
        st.integers(0, 3),
    )
    trace = trace_of(draw(st.lists(jobs, min_size=3, max_size=most_jobs)), 4 * count)
    return replace(trace, units_per_node=4, counts_gpus=True)
