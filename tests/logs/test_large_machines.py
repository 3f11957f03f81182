"""Machines of a hundred thousand units: consecutive ones that go together are one."""

import io
import tracemalloc
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from freetrain.replay.pool import PoolTimeline
from freetrain.report.summary import hole_lengths
from logs.csv_tables import MOST_SINGLE_LINES, Fragments
from logs.format import Content
from logs.schedule import edges, holes, schedule
from logs.simulation import Method
from logs.timeline import UnitRanges, unit_set
from logs.trace import IdleTrace, Job, JobTrace, UnreadableLogError

UNITS = 93_312
NODES = 12

steps = st.lists(
    st.tuples(st.booleans(), st.integers(0, 20), st.integers(1, 8), st.integers(0, 1))
)


@given(steps)
def test_ranges_hold_the_units_that_were_added_and_not_removed(
    drawn: list[tuple[bool, int, int, int]],
) -> None:
    ranges = UnitRanges()
    marks: dict[int, int] = {}
    for is_added, first, width, mark in drawn:
        own = range(first, first + width)
        there = [unit for unit in own if unit in marks]
        if not is_added:
            removed = ranges.remove(own.start, own.stop)
            found = [(u, m) for start, end, m in removed for u in range(start, end)]
            assert found == [(unit, marks.pop(unit)) for unit in there]
        elif there:
            with pytest.raises(ValueError, match="there already"):
                ranges.add(own.start, own.stop, mark)
        else:
            ranges.add(own.start, own.stop, mark)
            marks |= dict.fromkeys(own, mark)
        assert list(ranges) == sorted(marks)
        assert len(ranges) == len(marks)
        assert ranges.highest(3) == sorted(marks)[-3:]
        assert list(UnitRanges.of(sorted(marks))) == sorted(marks)


@given(st.sets(st.integers(0, 200)))
def test_edges_bound_the_ranges_of_a_set(units: set[int]) -> None:
    found = edges(unit_set(units))

    ranges = zip(found[::2], found[1::2], strict=True)
    assert [unit for first, end in ranges for unit in range(first, end)] == sorted(
        units
    )
    assert found == sorted(set(found))


def jobs_of_a_large_machine(count: int) -> JobTrace:
    """Return jobs of about a thousand units; every second one is short."""
    jobs = (
        Job(str(k), 10.0 * k, 10.0 * k, 50.0 if k % 2 else 900.0, 900 + k % 200, 1e3)
        for k in range(count)
    )
    return JobTrace("made", "made", tuple(jobs), UNITS)


def kept_of(method: Method, jobs: int) -> tuple[IdleTrace, int]:
    """Return the holes that so many jobs leave, and bytes kept of them and a schedule.

    The log is made before, and is not counted.
    """
    trace = jobs_of_a_large_machine(jobs)
    tracemalloc.start()
    try:
        made = schedule(trace, method)
        idle = holes(made)
        return idle, tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("method", [Method.RECORDED, Method.EASY])
def test_a_schedule_keeps_little_for_each_job_and_hole_of_a_large_machine(
    method: Method,
) -> None:
    _, few_bytes = kept_of(method, 4)
    idle, many_bytes = kept_of(method, 400)

    assert idle.holes > 250_000
    assert len(idle.node) < 4_000
    assert many_bytes - few_bytes < 1_000 * 400


def test_a_log_of_many_holes_has_a_line_for_nodes_that_are_idle_together() -> None:
    nodes, lines = 1_000_000, 1 + MOST_SINGLE_LINES // 1_000_000
    trace = IdleTrace(
        source="made",
        node_names=tuple(map(str, range(nodes))),
        node=np.zeros(lines, np.int32),
        start_s=np.arange(lines, dtype=np.float64) * 10.0,
        end_s=np.arange(lines, dtype=np.float64) * 10.0 + 5.5,
        nodes=np.full(lines, nodes, np.int32),
    )
    written = io.StringIO(newline="")

    Fragments().write(trace, written)
    read = Fragments().read(Content("made", written.getvalue().encode()))

    assert written.getvalue().splitlines()[1:3] == [
        "node,idle_start_s,idle_end_s,nodes",
        "0,0,5.5,1000000",
    ]
    assert read.node_names == trace.node_names
    assert (read.node == 0).all()
    assert (read.widths == nodes).all()
    assert (read.end_s == trace.end_s).all()


HEAD = "node,idle_start_s,idle_end_s,nodes\n"


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        ("0,0,10,4\n3,5,12,2\n", "idle twice at once"),
        ("0,0.5,10,4\n3,5,12,2\n", "idle twice at once"),
        ("0,0,10,0\n", "field 'nodes'"),
        ("n1,0,10,2\n", "field 'nodes'"),
        ("n1,0,10,1\n4,0,10,2\n", "not all nodes are numbers"),
        ("5,0,10,1000000\n", "field 'nodes'"),
    ],
)
def test_lines_of_several_nodes_that_cannot_be_are_refused(
    lines: str, why: str
) -> None:
    with pytest.raises(UnreadableLogError, match=why):
        Fragments().read(Content("made", (HEAD + lines).encode()))


def test_lines_of_several_nodes_may_touch_in_time_and_in_nodes() -> None:
    text = HEAD + "0,0,10,4\n2,10,12,4\n4,0,10,2\n"

    trace = Fragments().read(Content("made", text.encode()))

    assert len(trace.node_names) == 6
    assert trace.holes == 10
    assert sorted(trace.rows())[:3] == [(0, 0.0, 10.0), (1, 0.0, 10.0), (2, 0.0, 10.0)]


grouped = st.lists(
    st.tuples(
        st.integers(0, NODES - 1),
        st.integers(1, NODES),
        st.integers(0, 3),
        st.integers(1, 5),
    ),
    min_size=1,
    max_size=12,
)


def traces_of(
    drawn: list[tuple[int, int, int, int]],
) -> tuple[IdleTrace, IdleTrace]:
    """Return intervals of several nodes, and the same of single ones."""
    free_s = [0.0] * NODES
    rows = []
    for first, width, gap_s, lasts_s in drawn:
        end = min(first + width, NODES)
        start_s = max(free_s[first:end]) + gap_s
        free_s[first:end] = [start_s + lasts_s] * (end - first)
        rows.append((start_s, first, end - first, start_s + lasts_s))
    singles = [(s, n, 1, e) for s, f, width, e in rows for n in range(f, f + width)]
    return made(sorted(rows)), made(sorted(singles))


def made(rows: list[tuple[float, int, int, float]]) -> IdleTrace:
    start_s, node, nodes, end_s = (
        np.array(column) for column in zip(*rows, strict=True)
    )
    return IdleTrace(
        source="made",
        node_names=tuple(map(str, range(NODES))),
        node=node.astype(np.int32),
        start_s=start_s.astype(np.float64),
        end_s=end_s.astype(np.float64),
        nodes=nodes.astype(np.int32),
    )


def played(timeline: PoolTimeline) -> Iterator[tuple[float, list[int], list[int]]]:
    for event in timeline.events():
        yield event.time_s, list(event.joined), list(event.left)


@given(grouped, st.integers(0, 6), st.integers(1, NODES))
def test_a_replay_of_groups_is_that_of_their_nodes(
    drawn: list[tuple[int, int, int, int]], start_s: int, nodes: int
) -> None:
    groups, singles = traces_of(drawn)
    if start_s >= groups.end_s.max():
        return

    grouped, single = (
        PoolTimeline.from_trace(trace, start_s=float(start_s), nodes=nodes)
        for trace in (groups, singles)
    )
    assert list(played(grouped)) == list(played(single))
    ours, theirs = hole_lengths(grouped), hole_lengths(single)
    assert ours.lengths_s.tolist() == theirs.lengths_s.tolist()
    assert ours.counts.tolist() == theirs.counts.tolist()
