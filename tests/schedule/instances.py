"""Small job traces, written by hand or drawn at random."""

from __future__ import annotations

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


def trace_of(jobs: list[Job], units: int, *, units_per_node: int = 1) -> JobTrace:
    """A trace of *jobs*, named by their place in it."""
    ordered = sorted(jobs, key=lambda each: each.submit_s)
    return JobTrace("by hand", "swf", tuple(ordered), units, units_per_node)


def _jobs(units: int, *, overruns: bool, priorities: bool) -> st.SearchStrategy[Job]:
    def build(submit_s: int, size: int, run_s: int, slack_s: int, priority: int) -> Job:
        request_s = max(run_s + slack_s, 0)
        rank = priority if priorities else None
        return job(submit_s, size, run_s, request_s, priority=rank)

    return st.builds(
        build,
        st.integers(0, 40),
        st.integers(1, units),
        st.integers(0, 25),
        st.integers(-5 if overruns else 0, 12),
        st.integers(0, 3),
    )


@st.composite
def traces(
    draw: st.DrawFn, *, overruns: bool = True, priorities: bool = False
) -> JobTrace:
    """Up to a dozen jobs that crowd a machine of up to six units."""
    units = draw(st.integers(1, 6))
    jobs = st.lists(
        _jobs(units, overruns=overruns, priorities=priorities), min_size=3, max_size=12
    )
    return trace_of(draw(jobs), units)
