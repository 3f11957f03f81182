"""Following a program's progress as its files grow, shrink and are replaced."""

import json
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from freetrain.config.job import (
    NodeSettings,
    ProgressFormat,
    ProgressSettings,
    TrainerJob,
    WorkSettings,
)
from freetrain.formats import LONGEST_LINE_BYTES, Lines, ProgressRecord
from freetrain.progress import (
    BEGINNING,
    MOST_BACKLOG_BYTES,
    MOST_BYTES,
    Bookmark,
    ProgressReader,
    bookmark_from,
    latest_progress,
    work_is_done,
)
from freetrain.progress import Progress as Latest

BYTES = st.lists(
    st.sampled_from([b"\n", b"\r", b"\r\n", b"\0", b"\xff", b"a", b"{}", "é".encode()])
).map(b"".join)


def fed(pieces: list[bytes]) -> tuple[str, ...]:
    lines = Lines()
    return tuple(line for piece in pieces for line in lines.feed(piece))


@given(BYTES, st.data())
def test_any_chunking_gives_the_same_lines(content: bytes, data: st.DataObject) -> None:
    cuts = st.lists(st.integers(0, len(content)), max_size=6)
    places = [0, *sorted(data.draw(cuts)), len(content)]
    pieces = [content[a:b] for a, b in pairwise(places)]

    assert fed(pieces) == fed([content])


@given(BYTES)
@example(b"one\ntwo\n")
def test_a_file_torn_at_any_byte_gives_a_prefix_of_its_lines(content: bytes) -> None:
    whole = fed([content])

    for length in range(len(content)):
        told = fed([content[:length]])
        assert whole[: len(told)] == told


def test_the_last_line_waits_for_its_end() -> None:
    lines = Lines()

    assert lines.feed(b"loss 0.1") == ()
    assert lines.feed(b"23\nnext") == ("loss 0.123",)


@pytest.mark.parametrize("piece_bytes", [1 << 12, 1 << 20, 1 << 22])
def test_a_line_of_a_megabyte_is_left_out_and_counted(piece_bytes: int) -> None:
    content = b"before\n" + b"x" * (1 << 20) + b"\nafter\n"
    lines = Lines()

    pieces = [content[i : i + piece_bytes] for i in range(0, len(content), piece_bytes)]
    found = [line for piece in pieces for line in lines.feed(piece)]

    assert found == ["before", "after"]
    assert lines.too_long == 1


def test_a_line_that_never_ends_takes_no_more_memory_than_the_longest() -> None:
    lines = Lines()

    for _ in range(8):
        lines.feed(b"x" * LONGEST_LINE_BYTES)
        assert len(lines._rest) <= LONGEST_LINE_BYTES  # noqa: SLF001  # what it keeps


def test_what_spreadsheets_put_before_a_table_is_no_part_of_it() -> None:
    assert Lines().feed(b"\xef\xbb\xbfstep,loss\n1,2\n") == ("step,loss", "1,2")


def test_nul_bytes_around_a_line_and_foreign_bytes_in_it_do_no_harm() -> None:
    assert fed([b"\0\0\0step 1\0\n", b"\xff\xfe step 2\n"]) == ("step 1", "�� step 2")


PRINTED = ProgressSettings(
    form=ProgressFormat.PATTERN, pattern=r"step (?P<step>\S+) loss (?P<loss>\S+)"
)


@dataclass(frozen=True)
class Stage:
    """A trainer's folders, and what follows it."""

    job: TrainerJob
    folder: Path

    @property
    def path(self) -> Path:
        return self.folder / "progress.jsonl"

    @property
    def logs(self) -> Path:
        return self.folder / "logs"

    def reader(self, **options: object) -> ProgressReader:
        return ProgressReader(self.job, self.folder, self.logs, **options)  # type: ignore[arg-type]

    def latest(self, tail_bytes: int = 1 << 18) -> Latest | None:
        return latest_progress(self.job, self.folder, self.logs, tail_bytes=tail_bytes)

    def report(self, *lines: str) -> None:
        with self.path.open("a") as file:
            file.write("".join(f"{line}\n" for line in lines))

    def print(self, generation: int, text: str, name: str = ".log") -> None:
        self.logs.mkdir(exist_ok=True)
        with (self.logs / f"{generation:010d}{name}").open("a") as file:
            file.write(text)


def trainer(
    folder: Path, progress: ProgressSettings | None = None, *, elastic: bool = False
) -> TrainerJob:
    return TrainerJob(
        name="t",
        command=("x",),
        directory=folder,
        nodes=NodeSettings(max_nodes=2),
        elastic=elastic,
        progress=progress,
    )


def stage_of(folder: Path, form: ProgressFormat, **fields: str) -> Stage:
    """Return the stage of a program that names its columns or keys."""
    file = folder / "progress.jsonl"
    pairs = tuple(sorted(fields.items()))
    return Stage(
        trainer(folder, ProgressSettings(form=form, file=file, fields=pairs)), folder
    )


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(trainer(tmp_path, elastic=True), tmp_path)


@pytest.fixture
def printing(tmp_path: Path) -> Stage:
    return Stage(trainer(tmp_path, PRINTED), tmp_path)


def line(step: int, *, t: float = 0.0, generation: int = 1, loss: float = 0.5) -> str:
    return json.dumps(
        {
            "t": t,
            "step": step,
            "samples": step * 10,
            "epoch": 0,
            "generation": generation,
            "world_size": 2,
            "loss": loss,
        }
    )


def steps(reader: ProgressReader) -> list[int | None]:
    return [record.step for record in reader.read()]


def test_each_record_comes_once(stage: Stage) -> None:
    reader = stage.reader()
    assert (steps(reader), reader.latest()) == ([], None)

    stage.report(line(1), line(2))
    assert steps(reader) == [1, 2]
    stage.report(line(3))

    assert steps(reader) == [3]
    assert steps(reader) == []


def test_latest_has_the_last_values_and_the_speed(stage: Stage) -> None:
    stage.report(line(1, t=50.0), line(2, t=100.0, generation=2))
    stage.report(line(12, t=110.0, generation=2, loss=0.25))
    reader = stage.reader()
    reader.read()

    found = reader.latest()

    assert found
    assert (found.step, found.samples, found.epoch, found.t) == (12, 120, 0, 110.0)
    assert (found.generation, found.world_size, found.loss) == (2, 2, 0.25)
    assert found.samples_per_s == 10.0
    assert stage.latest() == found


def test_a_restart_that_rewinds_is_where_it_went_back_to(stage: Stage) -> None:
    stage.report(line(9, t=9.0), line(3, t=10.0, generation=2))
    reader = stage.reader()
    reader.read()

    found = reader.latest()

    assert found
    assert (found.step, found.samples_per_s) == (3, None)


@pytest.mark.parametrize("cut", range(0, len(line(12)) + 2, 3))
def test_a_line_torn_at_any_byte_waits_and_is_then_whole(
    stage: Stage, cut: int
) -> None:
    content = line(11) + "\n" + line(12) + "\n"
    cut += len(line(11))
    reader = stage.reader()
    stage.path.write_text(content[:cut])
    before = steps(reader)

    with stage.path.open("a") as file:
        file.write(content[cut:])

    assert before + steps(reader) == [11, 12]
    assert reader.bad_lines == 0


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    cuts=st.lists(st.integers(0, 400), max_size=5),
    most_bytes=st.integers(1, 300),
)
def test_any_growth_of_the_file_gives_the_same_records(
    stage: Stage, cuts: list[int], most_bytes: int
) -> None:
    junk = "\0\0" + line(2) + "\n{torn\n\n" + "é\n"
    content = (line(1) + "\n" + junk + line(3) + "\n").encode()
    stage.path.unlink(missing_ok=True)
    reader = stage.reader()
    found: list[int | None] = []

    for cut in [*sorted(cuts), len(content)]:
        with stage.path.open("ab") as file:
            file.write(content[file.tell() : cut])
        reader.is_behind = True
        while reader.is_behind:
            found += [r.step for r in reader.read(most_bytes=most_bytes)]

    assert found == [1, 2, 3]
    assert reader.bad_lines == 2


def test_a_file_that_shrank_or_was_replaced_is_read_from_its_start(
    stage: Stage,
) -> None:
    stage.report(line(1), line(2))
    reader = stage.reader()
    with stage.path.open("a") as file:
        file.write(line(3)[:20])
    reader.read()

    stage.path.write_text(line(7) + "\n")
    assert steps(reader) == [7]
    other = stage.folder / "other"
    other.write_text(line(7) + "\n" + line(8) + "\n" + line(9) + "\n")
    other.rename(stage.path)

    assert steps(reader) == [7, 8, 9]
    assert reader.bad_lines == 0


@pytest.mark.parametrize(
    "make",
    [lambda path: path.symlink_to("/dev/zero"), os.mkfifo, lambda path: path.mkdir()],
    ids=["a device", "a pipe", "a folder"],
)
def test_what_is_no_plain_file_has_nothing_new(
    stage: Stage, make: Callable[[Path], None]
) -> None:
    reader = stage.reader()
    make(stage.path)

    assert steps(reader) == []
    assert not reader.is_behind
    assert stage.latest() is None


@pytest.mark.skipif(os.geteuid() != 0, reason="needs files of another user")
@pytest.mark.parametrize(("owner", "read"), [(0, [7]), (4_711, [])])
def test_progress_is_read_over_own_links_and_not_over_those_of_others(
    stage: Stage, owner: int, read: list[int]
) -> None:
    reader = stage.reader()
    scratch = stage.folder / "scratch" / "log"
    scratch.parent.mkdir()
    scratch.write_text('{"step": 7, "samples": 1}\n')
    stage.path.symlink_to(scratch)
    os.chown(stage.path, owner, -1, follow_symlinks=False)
    stage.folder.chmod(0o1777)

    assert steps(reader) == read
    assert (stage.latest() is None) is (read == [])


def test_bad_lines_are_counted_and_the_others_read(stage: Stage) -> None:
    stage.report(line(1), "{", "x" * 300_000, '{"step": -1}', line(2))
    reader = stage.reader()

    assert steps(reader) == [1, 2]
    assert reader.bad_lines == 3


def test_one_call_reads_no_more_than_its_bound(stage: Stage) -> None:
    stage.report(*(line(step) for step in range(100)))
    reader = stage.reader()

    first = reader.read(most_bytes=1000)

    assert 0 < len(first) <= 10
    assert reader.is_behind
    assert len(first) + len(reader.read()) == 100
    assert not reader.is_behind


def test_what_worlds_print_is_read_generation_by_generation(printing: Stage) -> None:
    reader = printing.reader()
    printing.print(2, "step 5 loss 0.25\nbye\n")
    printing.print(1, "hello\nstep 4 loss 0.5\nstep 4.5 loss")
    for name in ("notes.txt", "00000000012.log"):
        (printing.folder / "logs" / name).write_text("step 99 loss 9\n")

    found = reader.read()

    assert [(r.generation, r.step) for r in found] == [(1, 4), (2, 5)]
    printing.print(2, "step 6 loss 0.2\n")
    printing.print(3, "step 6 loss nan\n")
    assert [(r.generation, r.step) for r in reader.read()] == [(2, 6), (3, 6)]
    printing.print(3, "step 7 loss 1\n", ".1.log")
    printing.print(3, "step 8 loss 1\n")
    assert [(r.generation, r.step) for r in reader.read()] == [(3, 7), (3, 8)]
    printing.print(1, "step 7 loss 0.1\n")
    assert reader.read() == ()


def test_lines_without_a_time_get_that_of_reading_once_caught_up(
    printing: Stage,
) -> None:
    printing.print(1, "step 1 loss 1\n")
    reader = printing.reader(unix_s=lambda: 77.0)
    old = reader.read()

    printing.print(1, "step 2 loss 1\n")

    assert [r.t for r in (*old, *reader.read())] == [None, 77.0]


def test_a_metric_reported_alone_does_not_hide_the_step(tmp_path: Path) -> None:
    fields = {name: name for name in ("step", "loss", "accuracy")}
    stage = stage_of(tmp_path, ProgressFormat.JSON_LINES, **fields)
    stage.report('{"step": 3, "loss": 0.5}', '{"accuracy": 0.9}')

    found = stage.latest()

    assert found
    assert (found.step, dict(found.metrics)) == (3, {"loss": 0.5, "accuracy": 0.9})


def test_the_end_of_a_long_table_is_read_with_the_columns_of_its_beginning(
    tmp_path: Path,
) -> None:
    stage = stage_of(tmp_path, ProgressFormat.CSV, step="iteration", loss="loss")
    stage.report("loss,iteration", *(f"0.5,{step}" for step in range(20_000)))

    found = stage.latest(tail_bytes=100)

    assert found
    assert found.step == 19_999


@pytest.mark.parametrize("tail_bytes", range(150, 400, 7))
def test_the_end_of_a_file_gives_the_same_progress_wherever_it_is_cut(
    stage: Stage, tail_bytes: int
) -> None:
    stage.report(*(line(step) for step in range(9)))

    found = stage.latest(tail_bytes)

    assert found
    assert (found.step, found.samples) == (8, 80)


def test_half_a_row_is_no_row(tmp_path: Path) -> None:
    stage = stage_of(tmp_path, ProgressFormat.CSV, step="step")
    stage.report("step", "1234")

    assert stage.latest(tail_bytes=3) is None


def test_a_program_that_starts_over_unannounced_is_timed_anew(tmp_path: Path) -> None:
    stage = stage_of(tmp_path, ProgressFormat.JSON_LINES, samples="samples", t="t")
    done = ((0, 0), (900, 1), (500, 70), (600, 80))
    stage.report(*(f'{{"samples": {n}, "t": {t}}}' for n, t in done))

    found = stage.latest()

    assert found
    assert found.samples_per_s == 10.0


def test_a_generation_that_printed_no_progress_does_not_hide_the_one_before(
    printing: Stage,
) -> None:
    printing.print(1, "step 4 loss 0.5\n")
    printing.print(2, "command not found\n")

    found = printing.latest()

    assert found
    assert (found.generation, found.step) == (1, 4)


def test_a_program_that_reports_nothing_has_no_progress(tmp_path: Path) -> None:
    stage = Stage(trainer(tmp_path), tmp_path)

    assert stage.reader().read() == ()
    assert stage.latest() is None


@pytest.mark.parametrize(
    ("work", "is_done"),
    [
        ({}, False),
        ({"samples": 120}, True),
        ({"samples": 121}, False),
        ({"epochs": 90}, True),
        ({"epochs": 91}, False),
        ({"time_limit_s": 1.0}, False),
    ],
)
def test_work_is_done_when_its_samples_or_epochs_are_reported(
    stage: Stage, work: dict[str, Any], *, is_done: bool
) -> None:
    asked = WorkSettings(**work)
    assert not work_is_done(asked, stage.latest())

    stage.report(json.dumps({"step": 12, "samples": 120, "epoch": 90}))

    assert work_is_done(asked, stage.latest()) is is_done


# Reading on in another process: nothing twice, nothing left out

TABLE = """\
step,loss,accuracy
1,0.5,0.1
junk
2,nan,-1e-3
# accuracy,step,loss
0.3,3,inf

0.4,2,1e-1
"""


def table(folder: Path) -> Stage:
    """A program whose table changes its columns' order at its second start."""
    fields = {name: name for name in ("accuracy", "loss", "step")}
    return stage_of(folder, ProgressFormat.CSV, **fields)


def read_on(
    job: TrainerJob, since: Bookmark, *, most_bytes: int = 1 << 20, now_s: float = 0.0
) -> tuple[list[ProgressRecord], Bookmark]:
    """Read as a process of its own does, with a bookmark that went through JSON."""
    folder = job.directory
    reader = ProgressReader(
        job, folder, folder / "logs", unix_s=lambda: now_s, since=again(since)
    )
    return list(reader.read(most_bytes=most_bytes)), reader.bookmark


def again(bookmark: Bookmark) -> Bookmark:
    return bookmark_from(json.loads(json.dumps(asdict(bookmark))))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    cuts=st.lists(st.integers(0, len(TABLE)), max_size=5),
    most_bytes=st.integers(30, 200),
)
def test_readers_that_take_turns_find_what_a_single_one_does(
    tmp_path: Path, cuts: list[int], most_bytes: int
) -> None:
    job, path = table(tmp_path).job, table(tmp_path).path
    path.write_text("")
    found, bookmark = [], BEGINNING

    for cut in [*sorted(cuts), len(TABLE)]:
        with path.open("a") as file:
            file.write(TABLE[file.tell() : cut])
        for _ in range(len(TABLE) // 10):
            records, bookmark = read_on(job, bookmark, most_bytes=most_bytes)
            found += records

    told = [(r.step, *(str(r.metrics[m]) for m in ("loss", "accuracy"))) for r in found]
    assert told == [
        (1, "0.5", "0.1"),
        (2, "nan", "-0.001"),
        (3, "inf", "0.3"),
        (2, "0.1", "0.4"),
    ]
    assert bookmark.bad_lines == 1


def test_each_generation_is_read_once_by_any_number_of_readers(printing: Stage) -> None:
    printing.print(1, "step 1 loss 9\nstep 2 lo")
    first, bookmark = read_on(printing.job, BEGINNING, now_s=5.0)
    printing.print(1, "ss 8\n")
    printing.print(2, "step 2 loss 7\n")

    second, bookmark = read_on(printing.job, bookmark, now_s=6.0)
    third, _ = read_on(printing.job, bookmark)

    told = [(r.generation, r.step, r.t) for r in (*first, *second)]
    assert told == [(1, 1, None), (1, 2, 6.0), (2, 2, 6.0)]
    assert third == []


def test_a_file_that_the_bound_kept_from_being_read_is_read_on_later(
    printing: Stage,
) -> None:
    ranks = [".0.log", ".1.log"]
    for step, rank in enumerate(ranks):
        printing.print(1, f"step {step} loss 1\n", rank)
    _, bookmark = read_on(printing.job, BEGINNING)
    for rank in ranks:
        printing.print(1, "step 7 loss 1\n", rank)
    found = []

    for _ in range(3):
        records, bookmark = read_on(printing.job, bookmark, most_bytes=14)
        found += records

    assert [record.step for record in found] == [7, 7]


def test_a_line_that_is_too_long_counts_once_for_any_number_of_readers(
    printing: Stage,
) -> None:
    bookmark, found = BEGINNING, []
    for piece in ("x" * 400_000, "step 3 loss 1", "\nstep 4 loss 1\n"):
        printing.print(1, piece)
        records, bookmark = read_on(printing.job, bookmark)
        found += records

    assert [record.step for record in found] == [4]
    assert bookmark.bad_lines == 1


def test_a_file_that_was_replaced_meanwhile_is_read_from_its_start(
    tmp_path: Path,
) -> None:
    stage = table(tmp_path)
    stage.report("step,loss,accuracy", "1,0,0")
    _, bookmark = read_on(stage.job, BEGINNING)
    other = tmp_path / "other"
    other.write_text("loss,step,accuracy\n0,7,0\n0,8,0\n")
    other.rename(stage.path)

    found, _ = read_on(stage.job, bookmark)

    assert [record.step for record in found] == [7, 8]


def test_what_is_no_bookmark_is_refused() -> None:
    with pytest.raises(KeyError):
        bookmark_from({"generation": 1})
    with pytest.raises(TypeError):
        bookmark_from({"generation": 1, "marks": [{"name": "x", "colour": 3}]})


SLOW = ProgressSettings(form=ProgressFormat.PATTERN, pattern="(?P<step>a+)+b")


def test_a_pattern_that_takes_too_long_is_tried_once_and_named(tmp_path: Path) -> None:
    stage = Stage(trainer(tmp_path, SLOW), tmp_path)
    stage.print(1, "a" * 62 + "\n")
    reader = stage.reader()

    assert (reader.read(), reader.is_behind) == ((), False)
    assert "takes too long on the line 'aaa" in reader.problem
    assert reader.pattern_s > 0.1

    later = stage.reader(since=bookmark_from(json.loads(json.dumps(marks_of(reader)))))
    assert (later.read(), later.problem) == ((), reader.problem)
    assert later.pattern_s == 0.0
    assert stage.latest() is None


def marks_of(reader: ProgressReader) -> dict[str, Any]:
    return asdict(reader.bookmark)


def test_with_another_pattern_a_trainer_is_read_again(tmp_path: Path) -> None:
    slow = Stage(trainer(tmp_path, SLOW), tmp_path)
    slow.print(1, "a" * 62 + "\n")
    reader = slow.reader()
    reader.read()
    mended = Stage(trainer(tmp_path, PRINTED), tmp_path)
    mended.print(1, "step 4 loss 0.5\n")

    assert steps(mended.reader(since=reader.bookmark)) == [4]


def test_a_pattern_that_is_merely_slow_is_read_in_parts(tmp_path: Path) -> None:
    # Its time grows with the square of a line's length.
    slowly = ProgressSettings(form=ProgressFormat.PATTERN, pattern=".*y(?P<step>z)")
    stage = Stage(trainer(tmp_path, slowly), tmp_path)
    stage.print(1, ("x" * 999 + "\n") * 2_000)
    reader = stage.reader()

    readings = 0
    while reader.is_behind:
        reader.read()
        readings += 1
        assert reader.pattern_s < 3.0

    assert not reader.problem
    assert readings > 1


# Logs that grow faster than they are read.

A_TICK_BYTES = 1 << 18


def long_log(stage: Stage, steps: range) -> None:
    padding = " " * 900
    stage.print(1, "".join(f"step {n} loss {1 / n}{padding}\n" for n in steps))


def test_a_log_faster_than_it_is_read_is_caught_up_with_by_skipping_ahead(
    printing: Stage,
) -> None:
    bookmark, lag, last = BEGINNING, [], 0
    for tick in range(40):  # 0.46 MB a tick, of which 0.26 MB can be read
        long_log(printing, range(1 + 500 * tick, 501 + 500 * tick))
        records, bookmark = read_on(printing.job, bookmark, most_bytes=A_TICK_BYTES)
        last = max([last, *(record.step or 0 for record in records)])
        lag.append((500 * tick + 500 - last) * 920)

    assert max(lag) <= MOST_BACKLOG_BYTES + 500 * 920
    assert min(lag[20:]) <= 920
    assert bookmark.bad_lines == 0
    assert bookmark.has_caught_up


def test_what_is_read_of_a_long_backlog_lies_at_even_distances(printing: Stage) -> None:
    long_log(printing, range(1, 20_001))
    reader = printing.reader()

    steps_read = np.array([record.step for record in reader.read()])

    assert steps_read[0] == 1
    assert steps_read[-1] == 20_000
    assert np.all(np.diff(steps_read) > 0)
    assert np.diff(steps_read).max() < 20_000 / 10
    assert reader.bad_lines == 0
    assert not reader.is_behind
    assert reader.read_bytes <= MOST_BYTES


def test_a_backlog_that_is_not_long_is_read_whole(printing: Stage) -> None:
    long_log(printing, range(1, 3_001))
    reader = printing.reader()
    found: list[int | None] = []
    while reader.is_behind:
        found += steps(reader)

    assert found == list(range(1, 3_001))


def test_a_line_without_an_end_counts_once_however_long_it_is(stage: Stage) -> None:
    stage.path.write_bytes(b"x" * MOST_BACKLOG_BYTES + b"\n")
    stage.report(line(1))
    bookmark = BEGINNING
    for _ in range(9):
        _, bookmark = read_on(stage.job, bookmark)

    assert bookmark.bad_lines == 1


def test_metrics_without_a_number_are_counted_by_name_from_process_to_process(
    printing: Stage,
) -> None:
    printing.print(1, "step 1 loss 0.5\nstep 2 loss 0.25abc\n")
    _, bookmark = read_on(printing.job, BEGINNING)
    printing.print(2, "step 3 loss none\n")
    _, bookmark = read_on(printing.job, bookmark)

    assert bookmark.bad_metrics == {"loss": 2}
    assert bookmark.bad_lines == 0


def test_a_bookmark_of_an_earlier_release_has_counted_no_metrics() -> None:
    fields = asdict(BEGINNING)
    del fields["bad_metrics"]

    assert bookmark_from(fields) == BEGINNING
