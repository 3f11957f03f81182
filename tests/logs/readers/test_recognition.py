import gzip
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logs.fragments import Fragments
from logs.lines import (
    Content,
    read_content,
)
from logs.read import read_trace, recognise
from logs.trace import JobTrace, UnreadableLogError
from tests.logs.readers.log_content import RECORDED, content

SWF_LINE = b"1 0 10 100 4 -1 -1 4 3600 -1 1 3 1 -1 -1 -1 -1 -1\n"
KNOWN = (
    "expected the Standard Workload Format (18 numbers a line), a dump of "
    "`sacct --parsable2` (a first line such as JobIDRaw|Submit|Start|End|NNodes), "
    "idle intervals (first line node,idle_start_s,idle_end_s) or jobs "
    "(first line job,submit_s,start_s,run_s,nodes,req_s,user)"
)


@pytest.mark.parametrize(
    ("lines", "name"),
    [
        (("; Version: 2.2",), "swf"),
        (
            (
                "",
                "  1 0 10 100 4 -1",
            ),
            "swf",
        ),
        (
            (
                "#",
                "JobID|State",
            ),
            "sacct",
        ),
        (("# x", "", "user,job,nodes,run_s"), "jobs-csv"),
        (("idle_start_s,node",), "fragments"),
    ],
)
def test_a_format_is_told_from_the_first_telling_line(
    lines: tuple[str, ...], name: str
) -> None:
    assert recognise(content(*lines)).name == name


@pytest.mark.parametrize(
    "name", ["checkpointed.swf", "requeued.sacct", "named.csv", "jobs.csv"]
)
def test_neither_name_nor_compression_matters(name: str, tmp_path: Path) -> None:
    raw = (RECORDED / name).read_bytes()
    packed, plain = tmp_path / "log.txt", tmp_path / "log.gz"
    packed.write_bytes(gzip.compress(raw[:50]) + gzip.compress(raw[50:]))
    plain.write_bytes(b"\xef\xbb\xbf" + raw.replace(b"\n", b"\r\n"))

    assert read_content(packed).raw == raw
    one, other = read_trace(packed), read_trace(plain)
    assert type(one) is type(other)
    assert one.comments == other.comments
    if isinstance(one, JobTrace) and isinstance(other, JobTrace):
        assert one.jobs == other.jobs


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"", ": the file is empty"),
        (b" \n\n", ": the file is empty"),
        (gzip.compress(b"", mtime=0), ": the file is empty"),
        (b"# x\n", f": there is nothing but comments in it; {KNOWN}"),
        (
            b"hello\n",
            f", line 1: not a scheduler log: found 'hello'; {KNOWN}",
        ),
        (
            b"\n\x7fELF\x00\x01\xff",
            f", line 2: not a scheduler log: found binary data; {KNOWN}",
        ),
        (
            b"x" * 1_000_000,
            (
                f", line 1: not a scheduler log: found '{'x' * 40}'... "
                f"(1000000 characters); {KNOWN}"
            ),
        ),
        (b"1 2 3\n", ", line 1: found 3 fields; expected 18"),
        (
            gzip.compress(SWF_LINE * 100, mtime=0)[:-12],
            ": the gzip file is cut off; copy it again",
        ),
        (
            gzip.compress(SWF_LINE, mtime=0)[:-8] + b"12345678",
            (
                ": the gzip file is damaged (CRC check failed "
                "0x34333231 != 0x18e44106); copy it again"
            ),
        ),
        (
            b"\x1f\x8bnonsense",
            ": the gzip file is damaged (Unknown compression method); copy it again",
        ),
    ],
    ids=range(11),
)
def test_a_file_that_is_no_log_says_what_it_is_instead(
    raw: bytes, message: str, tmp_path: Path
) -> None:
    path = tmp_path / "log"
    path.write_bytes(raw)

    with pytest.raises(UnreadableLogError) as caught:
        read_trace(path)

    assert str(caught.value) == f"{path}{message}"


def test_a_missing_file_or_a_folder_is_the_systems_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_trace(tmp_path / "nowhere")
    with pytest.raises(IsADirectoryError):
        read_trace(tmp_path)


@pytest.mark.parametrize("bad_lines", [0, 1, 2])
def test_as_many_bad_lines_as_allowed_are_skipped_and_counted(
    bad_lines: int, tmp_path: Path
) -> None:
    path = tmp_path / "log"
    path.write_bytes(SWF_LINE + b"junk\n" * bad_lines)

    assert read_trace(path, skip_bad=2).skipped_lines == bad_lines


def test_one_bad_line_more_is_an_error_that_says_so(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(SWF_LINE + b"junk\n" * 3)

    with pytest.raises(UnreadableLogError) as caught:
        read_trace(path, skip_bad=2)

    assert str(caught.value) == (
        f"{path}, line 4: found 1 fields; expected 18 "
        "(2 bad lines, all that may be, were skipped)"
    )


def test_of_two_intervals_that_overlap_the_one_further_down_is_skipped() -> None:
    log = content("node,idle_start_s,idle_end_s", "0,10,20", "0,0,11", "0,20,30")

    trace = Fragments().read(log, skip_bad=1)

    assert trace.start_s.tolist() == [10.0, 20.0]
    assert trace.skipped_lines == 1


@pytest.mark.parametrize("name", sorted(path.name for path in RECORDED.iterdir()))
@given(cut=st.data())
def test_a_damaged_log_reads_or_is_refused_and_never_breaks(
    name: str, cut: st.DataObject
) -> None:
    raw = (RECORDED / name).read_bytes()
    place = cut.draw(st.integers(0, len(raw)))
    junk = cut.draw(st.binary(max_size=6) | st.sampled_from((b"\0", b"\r", b"\xff")))
    damaged = Content("log", raw[:place] + junk + raw[place + len(junk) :])

    try:
        recognise(damaged).read(damaged, skip_bad=cut.draw(st.integers(0, 1)))
        message = ""
    except UnreadableLogError as error:
        message = str(error)
    assert "\n" not in message
    assert len(message) < 1000


@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "gzipped"])
def test_no_more_is_read_than_may_be(
    pack: Callable[[bytes], bytes], tmp_path: Path
) -> None:
    path = tmp_path / "log"
    path.write_bytes(pack(SWF_LINE * 9_000))

    assert read_content(path, most_bytes=len(SWF_LINE) * 9_000).raw
    with pytest.raises(UnreadableLogError, match="more than 400,000 bytes in it"):
        read_content(path, most_bytes=400_000)


def test_a_file_without_an_end_is_refused() -> None:
    with pytest.raises(UnreadableLogError, match="more than 5,000,000 bytes in it"):
        read_content(Path("/dev/zero"), most_bytes=5_000_000)


@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "gzipped"])
def test_a_log_may_come_through_a_pipe(
    pack: Callable[[bytes], bytes], tmp_path: Path
) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(
        target=pipe.write_bytes, args=(pack(SWF_LINE),), daemon=True
    )
    writer.start()

    trace = read_trace(pipe)

    writer.join()
    assert isinstance(trace, JobTrace)
    assert len(trace.jobs) == 1


def test_only_a_line_that_could_be_skipped_says_so(tmp_path: Path) -> None:
    bad_line, no_log = tmp_path / "line", tmp_path / "no"
    bad_line.write_bytes(SWF_LINE + b"2 0\n")
    no_log.write_bytes(b"hello\n")

    for path, can_skip in ((bad_line, True), (no_log, False)):
        with pytest.raises(UnreadableLogError) as caught:
            read_trace(path)
        assert caught.value.can_skip is can_skip


@pytest.mark.parametrize(
    "raw",
    [
        b"; MaxProcs: 99999999999999\n" + SWF_LINE,
        b"; MaxNodes: 1000001\n; MaxProcs: 4000004\n" + SWF_LINE,
        b"job,submit_s,start_s,run_s,nodes\na,0,0,10,3000000\n",
    ],
)
def test_a_machine_larger_than_any_is_refused(raw: bytes, tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(raw)

    with pytest.raises(UnreadableLogError, match="larger than any machine"):
        read_trace(path)


def test_the_largest_machines_there_are_can_be_read(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"; MaxNodes: 40960\n; MaxProcs: 10649600\n" + SWF_LINE)

    trace = read_trace(path)

    assert isinstance(trace, JobTrace)
    assert (trace.units, trace.units_per_node) == (10_649_600, 260)
