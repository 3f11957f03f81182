"""GPUs of nodes that jobs share: where jobs are packed, and what is left idle."""

import csv
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logs.generate import GPU_JOBS, WorkloadModel, generate, start_by_easy
from logs.gpus import GpuNodes
from logs.schedule import Schedule, holes, schedule, spread_jobs
from logs.simulation import Method
from logs.summary import GpuSummary, summarise
from logs.timeline import members, unit_set
from logs.trace import Job, JobTrace, UnusableLogError

MEASURED = Path(__file__).parents[1] / "data" / "packing" / "slurm-22.05.8.csv"


def free_gpus(counts: list[int], per_node: int) -> int:
    """Return so many free GPUs of each node: the highest ones."""
    return unit_set(
        node * per_node + per_node - 1 - k
        for node, count in enumerate(counts)
        for k in range(count)
    )


def test_jobs_are_packed_where_slurm_packed_them() -> None:
    with MEASURED.open() as file:
        rows = [*csv.DictReader(line for line in file if line[0] != "#")]
    for row in rows:
        free = [*map(int, row["free"])]
        per_node, each, nodes = (
            int(row[name]) for name in ("per_node", "gpus", "nodes")
        )

        placed = GpuNodes(len(free), per_node).place(
            free_gpus(free, per_node), each * nodes, nodes
        )

        found = sorted({gpu // per_node for gpu in members(placed)})
        assert "".join(map(str, found)) == row["chosen"], row
        assert placed.bit_count() == each * nodes

    assert len(rows) > 300


@pytest.mark.parametrize(
    ("free", "gpus", "nodes", "chosen"),
    [
        # Not the node with the fewest free, but the first of the shortest run.
        ([3, 1, 0, 1, 1, 1], 1, 1, {0: 1}),
        ([4, 4, 4, 0, 4, 4], 8, 2, {4: 4, 5: 4}),
        # No run is long enough: the longest first, then what is missing.
        ([4, 0, 4, 4, 0, 4], 12, 3, {0: 4, 2: 4, 3: 4}),
        ([4, 0, 4, 4, 0, 0], 8, 2, {2: 4, 3: 4}),
        ([4, 4, 0, 4, 4, 4], 16, 4, {0: 4, 3: 4, 4: 4, 5: 4}),
        # As even as can be; a node must have room for the largest part.
        ([2, 3, 0, 3, 3, 0], 5, 2, {3: 3, 4: 2}),
        # As few nodes as hold them, where none are said.
        ([4, 4, 4, 0, 2, 0], 6, 0, {0: 3, 1: 3}),
        ([1, 1, 1, 1, 1, 1], 2, 1, {}),
        ([4, 0, 4, 0, 0, 0], 12, 3, {}),
    ],
)
def test_a_job_has_the_first_nodes_of_the_shortest_run_that_holds_it(
    free: list[int], gpus: int, nodes: int, chosen: dict[int, int]
) -> None:
    placed = GpuNodes(6, 4).place(free_gpus(free, 4), gpus, nodes)

    found = [gpu // 4 for gpu in members(placed)]
    assert {node: found.count(node) for node in found} == chosen


def gpu_trace(jobs: list[Job], nodes: int, per_node: int = 4) -> JobTrace:
    return JobTrace(
        "by hand",
        "gpu-csv",
        tuple(jobs),
        nodes * per_node,
        units_per_node=per_node,
        counts_gpus=True,
    )


def ran(start_s: float, run_s: float, gpus: int, *nodes: str) -> Job:
    return Job(
        "",
        0.0,
        start_s,
        run_s,
        gpus,
        None,
        nodes=nodes,
        node_count=len(nodes) or -(-gpus // 4),
    )


def pieces(trace: JobTrace, gpus: int | None) -> list[tuple[str, float, float]]:
    idle = holes(schedule(trace, Method.RECORDED, lease_gpus=gpus))
    return [(idle.node_names[node], a, b) for node, a, b in idle.rows()]


def test_a_piece_is_idle_as_long_as_a_node_has_the_gpus_and_the_last_leaves_first() -> (
    None
):
    # n1: 2 of 4 free from 0, 1 from 10, 3 from 20, all 4 from 30 to 40.
    jobs = [
        ran(0, 20, 2, "n1"),
        ran(10, 20, 1, "n1"),
        ran(0, 40, 4, "n2"),
    ]
    trace = gpu_trace(jobs, 2)

    assert sorted(pieces(trace, 1)) == [
        ("n1/0", 0, 40),
        ("n1/1", 0, 10),
        ("n1/1", 20, 40),
        ("n1/2", 20, 40),
        ("n1/3", 30, 40),
    ]
    assert sorted(pieces(trace, 2)) == [
        ("n1/0", 0, 10),
        ("n1/0", 20, 40),
        ("n1/1", 30, 40),
    ]
    assert pieces(trace, 4) == pieces(trace, None) == [("n1", 30, 40)]


def test_a_job_that_follows_another_at_once_takes_no_piece_away() -> None:
    trace = gpu_trace([ran(0, 10, 3, "n1"), ran(10, 10, 3, "n1")], 1)

    assert pieces(trace, 1) == [("n1/0", 0, 20)]


def test_leases_that_do_not_divide_a_node_are_refused() -> None:
    trace = gpu_trace([ran(0, 10, 3, "n1")], 1)

    with pytest.raises(UnusableLogError, match="nodes of 4 GPUs, and leases of 3"):
        schedule(trace, Method.RECORDED, lease_gpus=3)
    plain = JobTrace("log", "swf", (replace(ran(0, 10, 3), node_count=0),), 8)
    with pytest.raises(UnusableLogError, match="there are no GPUs in it"):
        schedule(plain, Method.RECORDED, lease_gpus=1)


def test_a_job_without_room_on_as_few_nodes_gets_the_gpus_that_are_free() -> None:
    # 0-10: one GPU of each of the nodes is left, and two are wanted on one node.
    trace = gpu_trace([ran(0, 10, 3), ran(0, 10, 3), ran(5, 5, 2)], 2)

    result = schedule(trace, Method.RECORDED)

    assert spread_jobs(result) == 1
    assert result.placed[-1].unit_count == 2
    assert not result.over_commitment.jobs


def test_a_log_that_puts_more_on_a_node_than_it_has_is_told() -> None:
    trace = gpu_trace([ran(0, 10, 3, "n1"), ran(5, 5, 2, "n1"), ran(0, 9, 1, "n2")], 2)

    result = schedule(trace, Method.RECORDED)

    over = result.over_commitment
    assert (over.jobs, over.unit_s, over.worst_units) == (1, 5, 1)


@st.composite
def gpu_traces(draw: st.DrawFn) -> JobTrace:
    """Up to 15 jobs on up to four nodes of 4 GPUs, named all or none."""
    count = draw(st.integers(1, 4))
    names = [f"n{k}" for k in range(count)]
    is_named = draw(st.booleans())
    jobs = []
    for number in range(draw(st.integers(1, 15))):
        nodes = draw(st.integers(1, count))
        gpus = nodes * draw(st.integers(1, 4))
        submit_s, wait_s, run_s = (draw(st.integers(0, 20)) for _ in range(3))
        own = draw(st.permutations(names))[:nodes] if is_named else []
        job = ran(submit_s + wait_s, run_s, gpus, *own)
        limit_s = run_s + draw(st.integers(0, 9))
        jobs.append(
            replace(
                job,
                job_id=str(number),
                submit_s=submit_s,
                node_count=nodes,
                requested_s=limit_s,
            )
        )
    named = {name for job in jobs for name in job.nodes}
    jobs.sort(key=lambda job: job.submit_s)
    return gpu_trace(jobs, len(named) or count)


@given(gpu_traces())
def test_the_gpus_of_a_log_are_used_or_idle_and_small_pieces_hold_what_large_do(
    trace: JobTrace,
) -> None:
    info = summarise(trace)

    assert isinstance(info, GpuSummary)
    one, two, whole = info.pieces
    assert [piece.gpus for piece in info.pieces] == [1, 2, 4]
    assert info.used_gpu_s + one.idle_gpu_s == pytest.approx(trace.units * info.span_s)
    assert one.idle_gpu_s >= two.idle_gpu_s >= whole.idle_gpu_s
    assert whole.idle_gpu_s == pytest.approx(4 * info.idle_node_s)
    assert whole.in_use_gpu_s == pytest.approx(0)
    if trace.names_nodes:
        assert not spread_jobs(schedule(trace, Method.RECORDED))
    if not spread_jobs(schedule(trace, Method.RECORDED)):
        held = sum(job.units * job.run_s for job in trace.jobs)
        lacking = schedule(trace, Method.RECORDED).over_commitment.unit_s
        assert info.used_gpu_s == pytest.approx(held - lacking)


@given(gpu_traces(), st.sampled_from([Method.EASY, Method.SLURM]))
def test_jobs_are_packed_on_their_nodes_and_never_on_gpus_that_others_hold(
    trace: JobTrace, method: Method
) -> None:
    result = schedule(trace, method)

    check_packed(result)
    assert len(result.placed) + len(result.refused) == len(trace.jobs)


def check_packed(result: Schedule) -> None:
    for placed in result.placed:
        job = result.trace.jobs[placed.job]
        nodes = {gpu // 4 for gpu in members(placed.units)}
        assert (len(nodes), placed.unit_count) == (job.node_count, job.units)
        assert placed.start_s >= job.submit_s
    for one in result.placed:
        for other in result.placed:
            overlaps = one.start_s < other.end_s and other.start_s < one.end_s
            assert one is other or not (overlaps and one.units & other.units)


def test_easy_lets_no_small_job_take_the_node_that_the_head_waits_for() -> None:
    # A has 3 GPUs of n1 until 10, B 2 of n2 until 100. C wants a node: n1 at 10. D, one
    # GPU for 50 s, fits into n1 now, but C would wait for it: it goes to n2.
    jobs = [
        replace(ran(0, 10, 3), job_id="A", requested_s=10),
        replace(ran(0, 100, 2), job_id="B", requested_s=100),
        replace(ran(0, 5, 4), job_id="C", submit_s=1, requested_s=5),
        replace(ran(0, 50, 1), job_id="D", submit_s=2, requested_s=50),
    ]

    result = schedule(gpu_trace(jobs, 2), Method.EASY)

    starts = {jobs[each.job].job_id: each.start_s for each in result.placed}
    assert starts == {"A": 0, "B": 0, "C": 10, "D": 2}
    on = {
        jobs[each.job].job_id: {gpu // 4 for gpu in members(each.units)}
        for each in result.placed
    }
    assert on == {"A": {0}, "B": {1}, "C": {0}, "D": {1}}


def test_easy_waits_for_a_node_and_not_for_as_many_gpus() -> None:
    # B and E fill n1, of which 3 GPUs are free from 5 on, and all from 20. A has 3 of
    # n2 until 10. C wants 4 of one node: n2 at 10. D ends at 10, and starts at once.
    jobs = [
        replace(ran(0, 5, 3), job_id="B", requested_s=5),
        replace(ran(0, 20, 1), job_id="E", requested_s=20),
        replace(ran(0, 10, 3), job_id="A", requested_s=10),
        replace(ran(0, 5, 4), job_id="C", submit_s=1, requested_s=5),
        replace(ran(0, 8, 1), job_id="D", submit_s=2, requested_s=8),
    ]

    result = schedule(gpu_trace(jobs, 2), Method.EASY)

    starts = {jobs[each.job].job_id: each.start_s for each in result.placed}
    assert starts == {"A": 0, "B": 0, "E": 0, "C": 10, "D": 2}


def test_slurm_keeps_all_of_a_node_for_a_planned_job_until_it_starts() -> None:
    # Seen on Slurm 22.05. A has 3 of 4 GPUs until 300; B wants 2, and is planned for
    # then. C could have the last GPU beside both, but lasts longer; D is over by then.
    jobs = [
        replace(ran(0, 300, 3), job_id="A", requested_s=300),
        replace(ran(0, 600, 2), job_id="B", submit_s=1, requested_s=600),
        replace(ran(0, 500, 1), job_id="C", submit_s=2, requested_s=500),
        replace(ran(0, 100, 1), job_id="D", submit_s=3, requested_s=100),
    ]

    result = schedule(gpu_trace(jobs, 1), Method.SLURM)

    starts = {jobs[each.job].job_id: each.start_s for each in result.placed}
    assert starts == {"A": 0, "B": 300, "C": 300, "D": 30}


def test_a_job_of_more_nodes_than_there_are_waits_for_none() -> None:
    wide = replace(ran(0, 10, 4), node_count=3)

    result = schedule(gpu_trace([wide, ran(0, 5, 4)], 2), Method.EASY)

    assert {job: why.name for job, why in result.refused.items()} == {0: "TOO_WIDE"}


def test_a_generated_week_of_gpus_is_packed_and_says_where() -> None:
    model = WorkloadModel(nodes=6, gpus_per_node=4, days=1, seed=3, classes=(GPU_JOBS,))

    trace = start_by_easy(generate(model))

    assert (trace.units, trace.units_per_node, trace.counts_gpus) == (24, 4, True)
    assert trace.names_nodes
    assert {job.units for job in trace.jobs} <= {1, 2, 4, 8}
    check_packed(schedule(trace, Method.RECORDED))
