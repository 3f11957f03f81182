"""CSV of GPU jobs: public columns, times of any form, nodes that are named."""

from dataclasses import replace

import pytest
from hypothesis import given

from logs.gpu_csv import GpuCsv
from logs.read import recognise
from logs.trace import Job, JobTrace, UnreadableLogError, UnusableLogError
from tests.logs.log_content import content, read_again, refusal
from tests.schedule.test_gpus import gpu_traces

HEAD = "job_id,gpu_num,node_num,submit_time,start_time,end_time,node_list"
EIGHT = GpuCsv(gpus_per_node=8)
GOOD = "1,4,1,10,20,100,n1"

# Jobs of a data centre as three sites publish them: date-times, the wait as "queue";
# and only what was submitted, in seconds.
WITH_A_ZONE = """\
job_id,user,node_num,gpu_num,cpu_num,state,submit_time,start_time,end_time,queue
7,u1,2,16,99,BAD,2023-03-01 00:18:22+08:00,2023-03-01 00:18:54+08:00,\
2023-03-01 00:20:51+08:00,32
"""
WITH_A_VIRTUAL_CLUSTER = """\
job_id,user,vc,gpu_num,cpu_num,node_num,submit_time,start_time,end_time,duration
7,u1,v,1,4,1,2020-04-01 00:00:03,2020-04-01 00:00:03,2020-04-01 00:01:03,60
"""
WITHOUT_STARTS = """\
job_id,submission_time,duration,num_gpu
7,16566,3890,12
"""
PUBLIC = {
    WITH_A_ZONE: (
        Job("7", 0.0, 32.0, 117.0, 16, None, user="u1", state="BAD", node_count=2),
        1677601102.0,
    ),
    WITH_A_VIRTUAL_CLUSTER: (
        Job("7", 0.0, 0.0, 60.0, 1, None, user="u1", partition="v", node_count=1),
        1585699203.0,
    ),
    WITHOUT_STARTS: (Job("7", 16566.0, None, 3890.0, 12, None, node_count=2), None),
}


@pytest.mark.parametrize("table", PUBLIC)
def test_a_trace_is_read_as_sites_publish_it(table: str) -> None:
    job, zero_s = PUBLIC[table]
    log = content(*table.splitlines())

    trace = recognise(log).with_gpus_per_node(8, "log").read(log)

    assert trace.jobs == (job,)
    assert (trace.units_per_node, trace.counts_gpus) == (8, True)
    assert trace.unix_start_s == zero_s
    assert trace.units == 8 * job.node_count


def test_a_comment_says_how_large_nodes_and_machine_are() -> None:
    trace = GpuCsv().read(content("# 32 nodes, gpus_per_node=4", HEAD, GOOD))

    assert (trace.units, trace.units_per_node) == (4, 4)  # those that jobs name
    unnamed = GpuCsv().read(
        content("# 32 nodes, gpus_per_node=4", HEAD, "1,4,1,10,20,100,")
    )
    assert unnamed.units == 128
    assert refusal(GpuCsv(), HEAD, GOOD).why.endswith("say --gpus-per-node N")


def test_nodes_are_named_for_all_jobs_that_ran_or_for_none() -> None:
    lines = [GOOD, '2,16,2,10,20,100,"n[2-3]"']

    named = EIGHT.read(content(HEAD, *lines, "3,1,1,10,,,"))
    mixed = EIGHT.read(content(HEAD, *lines, "3,1,1,10,20,30,"))

    assert [job.nodes for job in named.jobs] == [("n1",), ("n2", "n3"), ()]
    assert named.units == 24
    assert not mixed.names_nodes


def test_a_job_without_a_gpu_never_ran_on_the_nodes_that_count() -> None:
    trace = EIGHT.read(content(HEAD, GOOD, "2,0,1,10,20,100,n9"))

    assert (trace.jobs[1].units, trace.jobs[1].start_s) == (0, None)
    assert trace.units == 8


@pytest.mark.parametrize(
    ("line", "field", "why"),
    [
        (",4,1,10,20,100,n1", "job_id", "found nothing"),
        ("1,0.5,1,10,20,100,n1", "gpu_num", "expected a whole number"),
        ("1,9,1,10,20,100,n1", "gpu_num", "9 GPUs on 1 node; expected 8 a node"),
        ("1,4,2,10,20,100,n1", "node_list", "found 1 nodes; expected 2, as node_num"),
        ("1,4,1,10,20,100,n[2", "node_list", "expected a node list"),
        ("1,4,1,,20,100,n1", "submit_time", "found nothing"),
        ("1,4,1,x,20,100,n1", "submit_time", "expected a time"),
        ("1,4,1,2020-01-32 00:00:00,,,", "submit_time", "expected a time such as"),
        ("1,4,1,30,20,100,n1", "start_time", "10 s before the submission"),
        ("1,4,1,10,20,15,n1", "end_time", "5 s before the start"),
        ("1,4,1,10,20,100", None, "found 6 fields"),
    ],
)
def test_a_bad_line_says_what_is_wrong(line: str, field: str | None, why: str) -> None:
    caught = refusal(EIGHT, HEAD, line)

    assert (caught.line_number, caught.field) == (2, field)
    assert why in caught.why


def test_a_job_that_comes_twice_is_refused() -> None:
    assert "already" in refusal(EIGHT, HEAD, GOOD, GOOD).why


def test_node_lists_of_a_small_table_mean_no_more_names_than_it_can_have() -> None:
    lines = [f'{n},9000000,999999,1,1,2,"n[{n}-{999_000 + n}]"' for n in range(30)]

    with pytest.raises(UnreadableLogError, match="more than"):
        EIGHT.read(content(HEAD, *lines))


@given(gpu_traces())
def test_what_is_written_reads_back(trace: JobTrace) -> None:
    again = read_again(GpuCsv(), trace)

    ran = [
        replace(job, start_s=None, run_s=0.0) if not job.units else job
        for job in trace.jobs
    ]
    assert [*again.jobs] == ran
    assert (again.units, again.units_per_node) == (trace.units, trace.units_per_node)


def test_a_log_without_gpus_is_not_written_as_one() -> None:
    plain = JobTrace("log", "swf", (Job("1", 0, 0, 1, 1, None),), 8)

    with pytest.raises(UnusableLogError, match="counts no GPUs"):
        read_again(GpuCsv(), plain)
