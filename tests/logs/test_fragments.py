"""Idle intervals as CSV."""

from __future__ import annotations

import io

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from logs.csv_tables import (
    IDLE_COLUMNS,
    Fragments,
    read_head,
    read_line_by_line,
    read_plain,
)
from logs.format import Content, Tolerance
from logs.read import read_trace
from logs.trace import IdleTrace, UnreadableLogError
from tests.logs.log_content import RECORDED, content

HEADER = ",".join(IDLE_COLUMNS)

# Made of what trips a reader of numbers: signs, zeros in front, blanks, numbers
# too large for 64 bits, other line ends, empty fields.
FIELD = st.one_of(
    st.integers(0, 30).map(str),
    st.sampled_from(
        (
            *("", " 7", "07", "+3", "-1", "2.5", "1e3", "n1", "x", "\u0663", "1 2"),
            *("9" * 14, "9" * 15, "1" + "0" * 19, "9" * 19, "9" * 20),
            *("1000000", "999999"),
        )
    ),
)

PLAIN_LINE = st.tuples(st.integers(0, 5), st.integers(0, 40), st.integers(0, 40)).map(
    lambda line: ",".join(map(str, line))
)
ANY_LINE = st.lists(FIELD, min_size=2, max_size=4).map(",".join)
BODIES = st.one_of(
    st.lists(PLAIN_LINE, min_size=1, max_size=6),
    st.lists(st.one_of(PLAIN_LINE, ANY_LINE, st.just("")), min_size=1, max_size=4),
)


def rows(trace: IdleTrace) -> list[tuple[str, float, float]]:
    return [
        (trace.node_names[node], start_s, end_s)
        for node, start_s, end_s in zip(
            trace.node.tolist(),
            trace.start_s.tolist(),
            trace.end_s.tolist(),
            strict=True,
        )
    ]


def test_named_nodes_stand_in_natural_order_and_holes_in_that_of_time() -> None:
    trace = read_trace(RECORDED / "named.csv")

    assert isinstance(trace, IdleTrace)
    assert trace.node_names == ("gpu2", "gpu10", "login")
    assert rows(trace) == [
        ("login", 0.0, 15.0),
        ("gpu2", 10.0, 30.0),
        ("gpu10", 10.0, 20.5),
        ("gpu10", 20.5, 40.0),
    ]
    assert trace.unix_start_s == 1787198400.0
    assert trace.comments == (
        "partition gpu, t0_unix=1787198400",
        "every node that was idle",
    )


def test_numbered_nodes_stand_for_all_below_them() -> None:
    trace = Fragments().read(content(HEADER, "3,5,9"))

    assert trace.node_names == ("0", "1", "2", "3")
    assert trace.node.tolist() == [3]


@pytest.mark.parametrize(("said", "nodes"), [(6, 6), (2, 4), (9_999_999, 4)])
def test_a_comment_may_say_that_there_are_more_nodes(said: int, nodes: int) -> None:
    trace = Fragments().read(content(f"# Summit, {said} nodes, t=0", HEADER, "3,5,9"))

    assert len(trace.node_names) == nodes


@pytest.mark.parametrize(
    ("line", "field", "why"),
    [
        ("1,5", None, "found 2 fields in '1,5'; expected 3: " + HEADER),
        (",5,9", "node", "found nothing; expected a node name or number"),
        ("1,x,9", "idle_start_s", "found 'x'; expected a number"),
        ("1,-5,9", "idle_start_s", "found -5; expected 0 or more"),
        ("1,5,", "idle_end_s", "found ''; expected a number"),
        ("1,9,5", "idle_end_s", "found 5; expected more than idle_start_s, 9"),
        ("1,9,9", "idle_end_s", "found 9; expected more than idle_start_s, 9"),
        (
            "7,15,30",
            None,
            "node '7' is idle twice at once: 15-30 here, 10-20 on line 3",
        ),
        (
            "1000000,5,9",
            "node",
            "found '1000000'; expected a node number below 1000000, or a name",
        ),
        (
            "9" * 5000 + ",5,9",
            "node",
            (
                f"found '{'9' * 40}'... (5000 characters); "
                "expected a node number below 1000000, or a name"
            ),
        ),
    ],
)
def test_a_bad_line_is_named_with_its_field_and_what_was_expected(
    line: str, field: str | None, why: str
) -> None:
    with pytest.raises(UnreadableLogError) as caught:
        Fragments().read(content("# x", HEADER, "7,10,20", line))

    error = caught.value
    assert (error.line_number, error.field, error.why) == (4, field, why)


def test_intervals_of_a_node_may_touch() -> None:
    trace = Fragments().read(content(HEADER, "0,10,20", "0,20,30", "0,5,10"))

    assert trace.start_s.tolist() == [5.0, 10.0, 20.0]


@given(st.lists(PLAIN_LINE, min_size=1, max_size=8))
def test_the_lines_that_are_skipped_are_those_that_overlap_a_kept_one_above(
    body: list[str],
) -> None:
    kept: list[tuple[str, float, float]] = []
    for line in body:
        node, start, end = line.split(",")
        new = (node, float(start), float(end))
        clash = any(node == n and new[1] < e and s < new[2] for n, s, e in kept)
        if new[1] < new[2] and not clash:
            kept.append(new)
    if kept:
        trace = Fragments().read(content(HEADER, *body), skip_bad=len(body))
        assert sorted(rows(trace)) == sorted(kept)
        assert trace.skipped_lines == len(body) - len(kept)


@pytest.mark.parametrize(
    ("header", "why"),
    [
        (
            "node,idle_start_s",
            "column 'idle_end_s' is missing; expected node,idle_start_s,idle_end_s",
        ),
        (
            HEADER + ",x",
            "found an unknown column 'x'; expected node,idle_start_s,idle_end_s",
        ),
        (HEADER + ",node", "column 'node' is there twice; expected each once"),
    ],
)
def test_wrong_columns_are_named(header: str, why: str) -> None:
    with pytest.raises(UnreadableLogError) as caught:
        Fragments().read(content(header, "1,2,3"))

    assert str(caught.value) == f"log, line 1: {why}"


def test_a_log_without_an_interval_is_refused() -> None:
    with pytest.raises(UnreadableLogError, match=r"^log: no idle interval in it$"):
        Fragments().read(content(HEADER))


TEXTS = st.builds(
    lambda lines, end, last: end.join(lines) + last,
    BODIES,
    st.sampled_from(("\n", "\r\n", "\r")),
    st.sampled_from(("\n", "\r\n", "")),
)


@given(TEXTS)
@example("1,2,3\n4,5,6")
@example("1,,23\n4,5,6\n")
@example(",1,23\n4,5,6\n")
@example("1,2\n3,4,5,6\n")
@example("9223372036854775808,1,2\n")
@example("1,2,9223372036854775808\n")
@example("1,2,03\n")
@example("07,1,2\n")
def test_the_fast_way_gives_what_the_exact_one_gives_or_leaves_it_to_that(
    body: str,
) -> None:
    text = f"{HEADER}\n{body}"
    log = Content("log", text.encode())
    head = read_head(log, needed=IDLE_COLUMNS)

    fast = read_plain(log, head)

    if fast is not None:
        exact = read_line_by_line(log, head, Tolerance("log", 0))
        assert fast.node_names == exact.node_names
        assert fast.node.dtype == exact.node.dtype
        assert fast.start_s.dtype == exact.start_s.dtype == fast.end_s.dtype
        assert fast.node.tolist() == exact.node.tolist()
        assert fast.start_s.tolist() == exact.start_s.tolist()
        assert fast.end_s.tolist() == exact.end_s.tolist()


@given(st.lists(PLAIN_LINE, min_size=1, max_size=6))
def test_the_fast_way_takes_every_plain_log_that_the_exact_one_takes(
    body: list[str],
) -> None:
    log = content(HEADER, *body)
    head = read_head(log, needed=IDLE_COLUMNS)
    tolerance = Tolerance("log", len(body))
    try:
        read_line_by_line(log, head, tolerance)
    except UnreadableLogError:
        tolerance.skipped += 1

    assert (read_plain(log, head) is not None) == (tolerance.skipped == 0)


NAMES = (
    st.one_of(
        st.integers(0, 30).map(str), st.text('an,#"01é- ', min_size=1, max_size=4)
    )
    .map(str.strip)
    .filter(bool)
)
TIMES = st.one_of(st.integers(0, 10**6), st.floats(0, 1e6)).map(float)


@st.composite
def idle_traces(draw: st.DrawFn) -> IdleTrace:
    """Logs as a file may hold them: some intervals of some nodes."""
    names = draw(st.lists(NAMES, min_size=1, max_size=4, unique=True))
    lines = []
    for name in names:
        times = sorted(draw(st.lists(TIMES, min_size=2, max_size=6, unique=True)))
        for start_s, end_s in zip(times[::2], times[1::2], strict=False):
            quoted = '"' + name.replace('"', '""') + '"'
            lines.append(f"{quoted},{start_s!r},{end_s!r}")
    comments = draw(
        st.lists(st.sampled_from(("a", " b", "99 fast nodes", "t0_unix=5.5", "")))
    )
    return Fragments().read(content(*(f"# {c}" for c in comments), HEADER, *lines))


@given(idle_traces())
def test_what_was_written_reads_as_the_same_log(trace: IdleTrace) -> None:
    stream = io.StringIO()
    Fragments().write(trace, stream)

    again = Fragments().read(Content("log", stream.getvalue().encode()))

    assert again.node_names == trace.node_names
    assert rows(again) == rows(trace)
    assert again.unix_start_s == trace.unix_start_s
    stream = io.StringIO()
    Fragments().write(again, stream)
    assert rows(Fragments().read(Content("log", stream.getvalue().encode()))) == rows(
        again
    )


def test_comments_that_say_otherwise_are_left_out() -> None:
    trace = Fragments().read(content("# Summit", "# 9 nodes", HEADER, "1,2,3"))
    part = IdleTrace(
        source="",
        node_names=trace.node_names[:4],
        node=trace.node,
        start_s=trace.start_s,
        end_s=trace.end_s,
        unix_start_s=60.0,
        comments=trace.comments,
    )
    stream = io.StringIO()

    Fragments().write(part, stream)

    assert stream.getvalue() == f"# 4 nodes, t0_unix=60\n# Summit\n{HEADER}\n1,2,3\n"
