from logs.fragments import Fragments
from logs.summary import IdleSummary, JobSummary, Spread, summarise
from logs.trace import Job, JobTrace
from tests.logs.readers.log_content import content


def test_a_log_of_jobs_is_summed_up() -> None:
    jobs = (
        Job("1", 0.0, 10.0, 100.0, 4, 50.0, "ada"),
        Job("2", 5.0, 60.0, 50.0, 8, None, "bob"),
        Job("3", 6.0, None, 30.0, 2, 60.0, "ada"),
        Job("4", 7.0, None, 0.0, 16, 60.0),
    )

    assert summarise(JobTrace("log", "swf", jobs, 8, units_per_node=2)) == JobSummary(
        source="log",
        log_format="swf",
        unix_start_s=None,
        skipped_lines=0,
        jobs=4,
        never_ran_jobs=1,
        without_start_jobs=1,
        without_limit_jobs=1,
        over_limit_jobs=1,
        oversized_jobs=1,
        users=2,
        machine_units=8,
        units_per_node=2,
        machine_nodes=4,
        first_submit_s=0.0,
        first_start_s=10.0,
        span_s=100.0,
        used_node_s=400.0,
        utilisation=1.0,
        low_use_share=0.5,
        mean_idle_nodes=0.0,
        busy_mean_idle_nodes=-2.0,
        peak_units=12,
        overcommitted_s=50.0,
        size_units=Spread(median=6.0, mean=7.5, most=16.0),
        run_s=Spread(median=50.0, mean=60.0, most=100.0),
        wait_s=Spread(median=32.5, mean=32.5, most=55.0),
    )


def test_a_job_that_ends_when_another_starts_makes_room_for_it() -> None:
    jobs = (Job("1", 0.0, 0.0, 10.0, 4, None), Job("2", 0.0, 10.0, 10.0, 4, None))

    summary = summarise(JobTrace("log", "swf", jobs, 4))

    assert isinstance(summary, JobSummary)
    assert (summary.peak_units, summary.overcommitted_s) == (4, 0.0)


def test_a_log_in_which_nothing_started_has_no_use() -> None:
    summary = summarise(JobTrace("log", "swf", (Job("1", 0.0, None, 9.0, 4, None),), 4))

    assert isinstance(summary, JobSummary)
    assert (summary.span_s, summary.utilisation, summary.peak_units) == (0.0, 0.0, 0)
    assert summary.wait_s == Spread(0.0, 0.0, 0.0)


def test_a_log_of_idle_intervals_is_summed_up() -> None:
    log = content("node,idle_start_s,idle_end_s", "0,0,600", "1,100,300", "0,600,1000")

    assert summarise(Fragments().read(log)) == IdleSummary(
        source="log",
        log_format="fragments",
        unix_start_s=None,
        skipped_lines=0,
        machine_nodes=2,
        ever_idle_nodes=2,
        span_s=1000.0,
        holes=3,
        idle_node_s=1200.0,
        idle_share=0.6,
        low_use_share=1.0,
        mean_idle_nodes=1.2,
        busy_mean_idle_nodes=0.0,
        peak_idle_nodes=2,
        hole_s=Spread(median=400.0, mean=400.0, most=600.0),
        short_hole_share=2 / 3,
        long_hole_time_share=0.5,
    )


def test_outages_are_told_apart_from_ordinary_idle_time() -> None:
    jobs = (
        Job("1", 0.0, 0.0, 100.0, 9, None),
        Job("2", 0.0, 100.0, 50.0, 5, None),
        Job("3", 0.0, 150.0, 50.0, 7, None),
    )

    summary = summarise(JobTrace("log", "swf", jobs, 10))

    assert isinstance(summary, JobSummary)
    assert summary.low_use_share == 0.25
    assert summary.mean_idle_nodes == (100 * 1 + 50 * 5 + 50 * 3) / 200
    assert summary.busy_mean_idle_nodes == (100 * 1 + 50 * 3) / 150


def test_outages_show_in_idle_intervals_too() -> None:
    log = content(
        "# 4 nodes",
        "node,idle_start_s,idle_end_s",
        *("0,0,100", "1,60,80", "2,200,400"),
    )

    summary = summarise(Fragments().read(log))

    assert isinstance(summary, IdleSummary)
    assert summary.low_use_share == 20 / 400
    assert summary.busy_mean_idle_nodes == (80 * 1 + 200 * 1) / 380
    assert summary.peak_idle_nodes == 2
