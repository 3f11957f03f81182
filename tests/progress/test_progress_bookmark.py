"""Reading on in another process: nothing twice, nothing left out."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from freetrain.config.job import (
    NodeSettings,
    ProgressFormat,
    ProgressSettings,
    TrainerJob,
)
from freetrain.progress.reader import BEGINNING, Bookmark, Reader, bookmark_from

if TYPE_CHECKING:
    from pathlib import Path

    from freetrain.progress.formats import ProgressRecord

TABLE = """\
step,loss,accuracy
1,0.5,0.1
junk
2,nan,-1e-3
# accuracy,step,loss
0.3,3,inf

0.4,2,1e-1
"""


def table(folder: Path) -> TrainerJob:
    """A program whose table changes its columns' order at its second start."""
    return trainer(
        folder,
        ProgressSettings(
            form=ProgressFormat.CSV,
            file=folder / "told.csv",
            fields=(("accuracy", "accuracy"), ("loss", "loss"), ("step", "step")),
        ),
    )


def printing(folder: Path) -> TrainerJob:
    pattern = r"step (?P<step>\S+) loss (?P<loss>\S+)"
    return trainer(
        folder, ProgressSettings(form=ProgressFormat.PATTERN, pattern=pattern)
    )


def trainer(folder: Path, progress: ProgressSettings) -> TrainerJob:
    return TrainerJob(
        name="t",
        command=("x",),
        directory=folder,
        nodes=NodeSettings(max_nodes=2),
        elastic=False,
        progress=progress,
    )


def read_on(
    job: TrainerJob, since: Bookmark, *, most_bytes: int = 1 << 20, now_s: float = 0.0
) -> tuple[list[ProgressRecord], Bookmark]:
    """Read as a process of its own does, with a bookmark that went through JSON."""
    folder = job.directory
    reader = Reader(
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
    job = table(tmp_path)
    path = tmp_path / "told.csv"
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


def test_each_generation_is_read_once_by_whoever_reads(tmp_path: Path) -> None:
    job = printing(tmp_path)
    logs = tmp_path / "logs"
    logs.mkdir()
    (logs / "0000000001.log").write_text("step 1 loss 9\nstep 2 lo")
    first, bookmark = read_on(job, BEGINNING, now_s=5.0)
    (logs / "0000000001.log").write_text("step 1 loss 9\nstep 2 loss 8\n")
    (logs / "0000000002.log").write_text("step 2 loss 7\n")

    second, bookmark = read_on(job, bookmark, now_s=6.0)
    third, _ = read_on(job, bookmark)

    told = [(r.generation, r.step, r.t) for r in (*first, *second)]
    assert told == [(1, 1, None), (1, 2, 6.0), (2, 2, 6.0)]
    assert third == []


def test_a_file_that_the_bound_kept_from_being_read_is_read_on_later(
    tmp_path: Path,
) -> None:
    job = printing(tmp_path)
    logs = tmp_path / "logs"
    logs.mkdir()
    ranks = [logs / f"0000000001.{rank}.log" for rank in range(2)]
    for step, rank in enumerate(ranks):
        rank.write_text(f"step {step} loss 1\n")
    _, bookmark = read_on(job, BEGINNING)
    for rank in ranks:
        with rank.open("a") as file:
            file.write("step 7 loss 1\n")
    found = []

    for _ in range(3):
        records, bookmark = read_on(job, bookmark, most_bytes=14)
        found += records

    assert [record.step for record in found] == [7, 7]


def test_a_line_that_is_too_long_is_one_however_many_read_it(tmp_path: Path) -> None:
    job = printing(tmp_path)
    logs = tmp_path / "logs"
    logs.mkdir()
    log = logs / "0000000001.log"
    bookmark, found = BEGINNING, []
    for piece in ("x" * 400_000, "step 3 loss 1", "\nstep 4 loss 1\n"):
        with log.open("a") as file:
            file.write(piece)
        records, bookmark = read_on(job, bookmark)
        found += records

    assert [record.step for record in found] == [4]
    assert bookmark.bad_lines == 1


def test_a_file_that_was_replaced_meanwhile_is_read_from_its_start(
    tmp_path: Path,
) -> None:
    job = table(tmp_path)
    path = tmp_path / "told.csv"
    path.write_text("step,loss,accuracy\n1,0,0\n")
    _, bookmark = read_on(job, BEGINNING)
    other = tmp_path / "other"
    other.write_text("loss,step,accuracy\n0,7,0\n0,8,0\n")
    other.rename(path)

    found, _ = read_on(job, bookmark)

    assert [record.step for record in found] == [7, 8]


def test_what_is_no_bookmark_is_refused() -> None:
    with pytest.raises(KeyError):
        bookmark_from({"generation": 1})
    with pytest.raises(TypeError):
        bookmark_from({"generation": 1, "marks": [{"name": "x", "colour": 3}]})
