"""Following a program's progress as its files grow, shrink and are replaced."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from freetrain.config.job import (
    NodeSettings,
    ProgressFormat,
    ProgressSettings,
    TrainerJob,
    WorkSettings,
)
from freetrain.progress.formats import work_is_done
from freetrain.progress.reader import Reader, latest_progress

if TYPE_CHECKING:
    from pathlib import Path

    from freetrain.progress.formats import Progress as Latest

PRINTED = ProgressSettings(
    form=ProgressFormat.PATTERN, pattern=r"step (?P<step>\S+) loss (?P<loss>\S+)"
)


@dataclass(frozen=True)
class Stage:
    """A trainer's folders, and what follows it."""

    job: TrainerJob
    folder: Path

    @property
    def told(self) -> Path:
        return self.folder / "progress.jsonl"

    @property
    def logs(self) -> Path:
        return self.folder / "logs"

    def reader(self, **options: object) -> Reader:
        return Reader(self.job, self.folder, self.logs, **options)  # type: ignore[arg-type]

    def latest(self, tail_bytes: int = 1 << 18) -> Latest | None:
        return latest_progress(self.job, self.folder, self.logs, tail_bytes=tail_bytes)

    def tell(self, *lines: str) -> None:
        with self.told.open("a") as file:
            file.write("".join(f"{line}\n" for line in lines))

    def print(self, generation: int, text: str, name: str = ".log") -> None:
        self.logs.mkdir(exist_ok=True)
        with (self.logs / f"{generation:010d}{name}").open("a") as file:
            file.write(text)


def trainer(folder: Path, progress: ProgressSettings | None = None) -> TrainerJob:
    return TrainerJob(
        name="t",
        command=("x",),
        directory=folder,
        nodes=NodeSettings(max_nodes=2),
        elastic=progress is None,
        progress=progress,
    )


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(trainer(tmp_path), tmp_path)


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


def steps(reader: Reader) -> list[int | None]:
    return [record.step for record in reader.read()]


def test_each_record_comes_once(stage: Stage) -> None:
    reader = stage.reader()
    assert (steps(reader), reader.latest()) == ([], None)

    stage.tell(line(1), line(2))
    assert steps(reader) == [1, 2]
    stage.tell(line(3))

    assert steps(reader) == [3]
    assert steps(reader) == []


def test_latest_tells_where_the_trainer_is_and_how_quick(stage: Stage) -> None:
    stage.tell(line(1, t=50.0), line(2, t=100.0, generation=2))
    stage.tell(line(12, t=110.0, generation=2, loss=0.25))
    reader = stage.reader()
    reader.read()

    found = reader.latest()

    assert found
    assert (found.step, found.samples, found.epoch, found.t) == (12, 120, 0, 110.0)
    assert (found.generation, found.world_size, found.loss) == (2, 2, 0.25)
    assert found.samples_per_s == 10.0
    assert stage.latest() == found


def test_a_restart_that_rewinds_is_where_it_went_back_to(stage: Stage) -> None:
    stage.tell(line(9, t=9.0), line(3, t=10.0, generation=2))
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
    stage.told.write_text(content[:cut])
    before = steps(reader)

    with stage.told.open("a") as file:
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
    stage.told.unlink(missing_ok=True)
    reader = stage.reader()
    found: list[int | None] = []

    for cut in [*sorted(cuts), len(content)]:
        with stage.told.open("ab") as file:
            file.write(content[file.tell() : cut])
        reader.is_behind = True
        while reader.is_behind:
            found += [r.step for r in reader.read(most_bytes=most_bytes)]

    assert found == [1, 2, 3]
    assert reader.bad_lines == 2


def test_a_file_that_shrank_is_read_from_its_start(stage: Stage) -> None:
    stage.tell(line(1), line(2))
    reader = stage.reader()
    with stage.told.open("a") as file:
        file.write(line(3)[:20])
    reader.read()

    stage.told.write_text(line(7) + "\n")

    assert steps(reader) == [7]
    assert reader.bad_lines == 0


def test_a_file_that_was_replaced_is_read_from_its_start(stage: Stage) -> None:
    stage.tell(line(1))
    reader = stage.reader()
    reader.read()

    other = stage.folder / "other"
    other.write_text(line(7) + "\n" + line(8) + "\n" + line(9) + "\n")
    other.rename(stage.told)

    assert steps(reader) == [7, 8, 9]


def test_what_cannot_be_read_has_nothing_new(stage: Stage) -> None:
    reader = stage.reader()

    stage.told.symlink_to("/dev/zero")
    assert steps(reader) == []
    assert not reader.is_behind
    assert stage.latest() is None
    stage.told.unlink()

    os.mkfifo(stage.told)

    assert steps(reader) == []
    assert stage.latest() is None
    stage.told.unlink()
    stage.told.mkdir()
    assert steps(reader) == []
    assert stage.latest() is None


def test_bad_lines_are_counted_and_the_others_read(stage: Stage) -> None:
    stage.tell(line(1), "{", "x" * 300_000, '{"step": -1}', line(2))
    reader = stage.reader()

    assert steps(reader) == [1, 2]
    assert reader.bad_lines == 3


def test_one_call_reads_no_more_than_its_bound(stage: Stage) -> None:
    stage.tell(*(line(step) for step in range(100)))
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
    printing.print(1, "step 7 loss 0.1\n")
    assert reader.read() == ()


def test_several_files_of_a_generation_are_all_followed(printing: Stage) -> None:
    reader = printing.reader()
    printing.print(1, "step 1 loss 1\n", ".0.log")
    printing.print(1, "step 2 loss 1\n", ".1.log")
    assert steps(reader) == [1, 2]

    printing.print(1, "step 3 loss 1\n", ".0.log")

    assert steps(reader) == [3]


def test_lines_without_a_time_get_that_of_reading_once_caught_up(
    printing: Stage,
) -> None:
    printing.print(1, "step 1 loss 1\n")
    reader = printing.reader(unix_s=lambda: 77.0)
    old = reader.read()

    printing.print(1, "step 2 loss 1\n")

    assert [r.t for r in (*old, *reader.read())] == [None, 77.0]


def test_a_metric_told_alone_does_not_hide_the_step(tmp_path: Path) -> None:
    told = ProgressSettings(
        form=ProgressFormat.JSON_LINES,
        file=tmp_path / "progress.jsonl",
        fields=(("step", "step"), ("loss", "loss"), ("accuracy", "accuracy")),
    )
    stage = Stage(trainer(tmp_path, told), tmp_path)
    stage.tell('{"step": 3, "loss": 0.5}', '{"accuracy": 0.9}')

    found = stage.latest()

    assert found
    assert (found.step, dict(found.metrics)) == (3, {"loss": 0.5, "accuracy": 0.9})


def test_the_end_of_a_long_table_is_read_with_the_columns_of_its_beginning(
    tmp_path: Path,
) -> None:
    told = ProgressSettings(
        form=ProgressFormat.CSV,
        file=tmp_path / "progress.jsonl",
        fields=(("step", "iteration"), ("loss", "loss")),
    )
    stage = Stage(trainer(tmp_path, told), tmp_path)
    stage.tell("loss,iteration", *(f"0.5,{step}" for step in range(20_000)))

    found = stage.latest(tail_bytes=100)

    assert found
    assert found.step == 19_999


@pytest.mark.parametrize("tail_bytes", range(150, 400, 7))
def test_the_end_of_a_file_tells_the_same_wherever_it_is_cut(
    stage: Stage, tail_bytes: int
) -> None:
    stage.tell(*(line(step) for step in range(9)))

    found = stage.latest(tail_bytes)

    assert found
    assert (found.step, found.samples) == (8, 80)


def test_half_a_row_is_no_row(tmp_path: Path) -> None:
    told = ProgressSettings(
        form=ProgressFormat.CSV,
        file=tmp_path / "progress.jsonl",
        fields=(("step", "step"),),
    )
    stage = Stage(trainer(tmp_path, told), tmp_path)
    stage.tell("step", "1234")

    assert stage.latest(tail_bytes=3) is None


def test_a_program_that_starts_over_unannounced_is_timed_anew(tmp_path: Path) -> None:
    told = ProgressSettings(
        form=ProgressFormat.JSON_LINES,
        file=tmp_path / "progress.jsonl",
        fields=(("samples", "samples"), ("t", "t")),
    )
    stage = Stage(trainer(tmp_path, told), tmp_path)
    stage.tell(*(f'{{"samples": {n}, "t": {t}}}' for n, t in ((0, 0), (900, 1))))
    stage.tell(*(f'{{"samples": {n}, "t": {t}}}' for n, t in ((500, 70), (600, 80))))

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


def test_a_program_that_tells_nothing_has_no_progress(tmp_path: Path) -> None:
    job = TrainerJob(
        name="t",
        command=("x",),
        directory=tmp_path,
        nodes=NodeSettings(max_nodes=2),
        elastic=False,
    )
    stage = Stage(job, tmp_path)

    assert stage.reader().read() == ()
    assert stage.latest() is None


@pytest.mark.parametrize(
    ("work", "is_done"),
    [
        (WorkSettings(), False),
        (WorkSettings(samples=120), True),
        (WorkSettings(samples=121), False),
        (WorkSettings(epochs=1), False),
        (WorkSettings(time_limit_s=1.0), False),
    ],
)
def test_work_is_done_when_its_samples_are(
    stage: Stage, work: WorkSettings, *, is_done: bool
) -> None:
    stage.tell(line(12))

    assert work_is_done(work, stage.latest()) is is_done


def test_epochs_are_done_once_their_number_is_told(printing: Stage) -> None:
    told = ProgressSettings(
        form=ProgressFormat.PATTERN, pattern=r"epoch (?P<epoch>\d+)"
    )
    stage = Stage(trainer(printing.folder, told), printing.folder)
    stage.print(1, "epoch 89\n")
    assert not work_is_done(WorkSettings(epochs=90), stage.latest())

    stage.print(1, "epoch 90\n")

    assert work_is_done(WorkSettings(epochs=90), stage.latest())


def test_no_work_is_done_before_anything_was_told() -> None:
    assert not work_is_done(WorkSettings(samples=1), None)
