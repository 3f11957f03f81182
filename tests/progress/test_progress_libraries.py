"""Files that libraries write: what they hold is read, once, as it is written."""

from __future__ import annotations

import json
import math
import os
import shutil
import struct
from dataclasses import asdict
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from freetrain.config.job import (
    NodeSettings,
    ProgressFormat,
    ProgressSettings,
    TrainerJob,
)
from freetrain.formats import LONGEST_LINE_BYTES, EventFrames, ProgressRecord
from freetrain.progress import (
    BEGINNING,
    MOST_BACKLOG_BYTES,
    MOST_BYTES,
    Bookmark,
    ProgressReader,
    bookmark_at_end,
    bookmark_from,
    latest_progress,
    newest_file,
    report_folder,
    survey_of,
)
from tests.progress.written import WRITERS

if TYPE_CHECKING:
    from collections.abc import Iterable

RECORDED = Path(__file__).parents[1] / "data" / "progress"
FORMATS = {
    "tensorboardx": ("tensorboard", ""),
    "torch": ("tensorboard", ""),
    "tensorflow": ("tensorboard", ""),
    "lightning": ("lightning", "lightning_logs"),
    "huggingface": ("huggingface", ""),
    "keras": ("keras", "log.csv"),
}
pytestmark = pytest.mark.filterwarnings("default")  # of the libraries themselves
NO_FIXTURE_RESET = settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None
)


def trainer(form: str, file: Path, **fields: str) -> TrainerJob:
    return TrainerJob(
        name="t",
        directory=file.parent,
        nodes=NodeSettings(max_nodes=1),
        elastic=False,
        progress=ProgressSettings(
            form=ProgressFormat(form), file=file, fields=tuple(fields.items())
        ),
    )


def reader(
    job: TrainerJob, since: Bookmark = BEGINNING, now_s: float | None = None
) -> ProgressReader:
    kept = bookmark_from(json.loads(json.dumps(asdict(since))))
    clock = None if now_s is None else lambda: now_s
    return ProgressReader(job, job.directory, job.directory, since=kept, unix_s=clock)


def read(job: TrainerJob) -> list[ProgressRecord]:
    found = reader(job)
    records = list(found.read())
    assert (found.bad_lines, found.bad_metrics) == (0, {})
    return records


def points(records: Iterable[ProgressRecord], metric: str) -> list[tuple[int, float]]:
    """Return step and value of *metric*, rounded as recordings differ."""
    return [
        (r.step or round(r.epoch or 0), round(r.metrics[metric], 4))
        for r in records
        if metric in r.metrics
    ]


@pytest.fixture(params=["recorded", "written now"])
def written(
    request: pytest.FixtureRequest, tmp_path: Path, library: str
) -> tuple[str, Path]:
    form, place = FORMATS[library]
    if request.param == "recorded":
        return form, RECORDED / library / place
    write, packages = WRITERS[library]
    missing = [name for name in packages if find_spec(name) is None]
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)}")
    write(tmp_path)
    return form, tmp_path / place


# ----------------------------------------------------------------------
# What real files hold


@pytest.mark.parametrize("library", ["tensorboardx"])
def test_scalars_of_tensorboardx_are_read(written: tuple[str, Path]) -> None:
    records = read(trainer(*written))

    losses = points(records, "train/loss")
    assert losses[:-1] == [(n, round(1 / n, 4)) for n in range(1, 6)]
    assert losses[-1][0] == 6
    assert math.isnan(losses[-1][1])
    assert [r.epoch for r in records if r.epoch is not None] == [0, 1, 1, 2, 2]
    assert [r.t for r in records][:2] == [1_767_225_601, 1_767_225_601]
    assert {name for r in records for name in r.metrics} == {"train/loss"}


@pytest.mark.parametrize("library", ["torch"])
def test_scalars_of_pytorch_are_read(written: tuple[str, Path]) -> None:
    records = read(trainer(*written))

    assert points(records, "loss") == [(1, 1.0), (2, 0.5), (3, 0.3333)]
    assert points(records, "acc") == [(3, 0.5)]


@pytest.mark.parametrize("library", ["tensorflow"])
def test_scalars_of_tensorflow_2_are_read(written: tuple[str, Path]) -> None:
    records = read(trainer(*written))

    assert [r.step for r in records] == [0, 1, 2, 3, 4, 9]
    assert [v for _, v in points(records, "epoch_loss")] == [1, 0.5, 0.3333, 0.25, 0.2]
    assert points(records, "double") == [(9, 2.5)]
    assert not points(records, "table")


@pytest.mark.parametrize("library", ["lightning"])
def test_the_newest_version_of_lightning_is_read(written: tuple[str, Path]) -> None:
    form, folder = written
    os.utime(folder / "version_1" / "metrics.csv")

    records = read(trainer(form, folder))

    assert [step for step, _ in points(records, "train_loss")] == [2, 5, 8, 11, 14, 17]
    assert [step for step, _ in points(records, "val_loss")] == [9, 19]
    assert [r.epoch for r in records] == [0, 0, 0, 0, 1, 1, 1, 1]
    named = read(trainer(form, folder, loss="val_loss"))
    assert [dict(r.metrics) for r in named if r.metrics] == [
        {"loss": r.metrics["val_loss"]} for r in records if "val_loss" in r.metrics
    ]


@pytest.mark.parametrize("library", ["huggingface"])
def test_the_newest_checkpoint_of_huggingface_is_read(
    written: tuple[str, Path],
) -> None:
    form, folder = written
    os.utime(folder / "checkpoint-24" / "trainer_state.json")

    records = read(trainer(form, folder))

    assert [step for step, _ in points(records, "loss")] == list(range(2, 25, 2))
    assert [step for step, _ in points(records, "eval_loss")] == [8, 16, 24]
    assert records[-1].epoch == 3


@pytest.mark.parametrize("library", ["keras"])
def test_a_csv_logger_of_keras_is_read(written: tuple[str, Path]) -> None:
    records = read(trainer(*written))

    assert [r.epoch for r in records] == [1, 2, 3]  # each row ends an epoch
    assert all(r.metrics.keys() == {"loss", "val_loss"} for r in records)


@pytest.mark.parametrize("library", FORMATS)
def test_the_end_of_a_file_tells_what_the_whole_file_tells(library: str) -> None:
    form, place = FORMATS[library]
    job = trainer(form, RECORDED / library / place)
    whole = reader(job)
    whole.read()

    assert repr(latest_progress(job, job.directory, job.directory)) == repr(
        whole.latest()
    )
    part = latest_progress(job, job.directory, job.directory, tail_bytes=150)
    assert part is None or part.step == getattr(whole.latest(), "step", None)


# ----------------------------------------------------------------------
# Files that are written again, and files that follow each other


def grown(path: Path, content: bytes) -> None:
    """Write *path* again in place, as libraries do."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("r+b" if path.exists() else "wb") as file:
        file.write(content)
        file.truncate()


def test_lightning_writes_a_row_of_new_columns_and_no_row_is_lost_or_comes_twice(
    tmp_path: Path,
) -> None:
    job, bookmark = trainer("lightning", tmp_path), BEGINNING
    path = tmp_path / "version_0" / "metrics.csv"
    found: list[ProgressRecord] = []
    before = "".join(f"0,{step},0.{step}\n" for step in range(1, 40))
    after = before.replace("\n", ",\n")
    table = [
        f"epoch,step,train_loss\n{before}",
        f"epoch,step,train_loss,val_loss\n{after}0,39,,0.5\n",
        f"epoch,step,train_loss,val_loss\n{after}0,39,,0.5\n1,40,0.25,\n",
        f"epoch,lr,step,train_loss\n{before.replace('0,', '0,1,')}1,1,41,0.5\n",
    ]
    for content in table:
        grown(path, content.encode())
        process = reader(job, bookmark)
        found += process.read()
        bookmark = process.bookmark

    losses = points(found, "train_loss")
    assert [step for step, _ in losses if step != 39] == [*range(1, 39), 40, 41]
    assert points(found, "val_loss") == [(39, 0.5)]
    assert bookmark.bad_lines == 0


def state_of(steps: range) -> bytes:
    """Return a ``trainer_state.json`` as the Trainer of Hugging Face writes it."""
    history = [
        {"epoch": n / 8, "loss": 1 / n, "step": n} for n in steps if n % 2 == 0
    ] + [{"eval_loss": 2 / n, "step": n} for n in steps if n % 8 == 0]
    history.sort(key=lambda entry: entry["step"])
    state = {
        "best_metric": None,
        "epoch": steps.stop / 8,
        "global_step": steps.stop,
        "log_history": history,
        "stateful_callbacks": {"TrainerControl": {"args": {"a": True}, "step": {}}},
    }
    return json.dumps(state, indent=2, sort_keys=True).encode()


@pytest.mark.parametrize("name", ["checkpoint-{}/trainer_state.json", "state.json"])
def test_each_checkpoint_repeats_the_history_and_each_entry_is_read_once(
    tmp_path: Path, name: str
) -> None:
    is_one = "{}" not in name
    job = trainer("huggingface", tmp_path)
    if is_one:
        name = "checkpoint-1/trainer_state.json"
    bookmark = BEGINNING
    found: list[ProgressRecord] = []
    for now_s, last in enumerate(range(8, 81, 8)):
        grown(tmp_path / name.format(last), state_of(range(1, last + 1)))
        process = reader(job, bookmark, now_s=now_s)
        records = process.read()
        found += records
        bookmark = process.bookmark
        if now_s:  # the first reading finds what was there before
            assert [r.t for r in records] == [None] * (len(records) - 1) + [now_s]

    assert [step for step, _ in points(found, "loss")] == list(range(2, 81, 2))
    assert [step for step, _ in points(found, "eval_loss")] == list(range(8, 81, 8))
    assert bookmark.bad_lines == 0


@NO_FIXTURE_RESET
@given(
    most_bytes=st.integers(200, 900), cuts=st.lists(st.integers(0, 3000), max_size=3)
)
def test_a_history_in_any_pieces_by_any_processes_is_the_whole_history(
    tmp_path: Path, most_bytes: int, cuts: list[int]
) -> None:
    content = state_of(range(1, 25))
    path = tmp_path / "checkpoint-24" / "trainer_state.json"
    shutil.rmtree(path.parent, ignore_errors=True)
    job, bookmark = trainer("huggingface", tmp_path), BEGINNING
    found: list[ProgressRecord] = []
    for cut in (*sorted(cuts), len(content)):
        grown(path, content[:cut])
        is_behind = True
        while is_behind:
            process = reader(job, bookmark)
            found += process.read(most_bytes=most_bytes)
            bookmark, is_behind = process.bookmark, process.is_behind

    steps = [step for step, _ in points(found, "loss")]
    assert steps == sorted(set(steps))
    if len(content) - max([0, *cuts]) > 512:  # a head that changed begins anew
        assert set(steps) <= set(range(2, 25, 2))
    assert steps[-1:] == [24]


def test_a_run_that_follows_another_is_read_once_that_one_is_read_to_its_end(
    tmp_path: Path,
) -> None:
    job = trainer("lightning", tmp_path)
    first, second = (tmp_path / f"version_{n}" / "metrics.csv" for n in (9, 10))
    grown(first, b"epoch,step,loss\n0,1,0.9\n")
    os.utime(first, ns=(10**9, 10**9))
    follows = reader(job)
    assert points(follows.read(), "loss") == [(1, 0.9)]
    bookmark = follows.bookmark

    grown(first, b"epoch,step,loss\n0,1,0.9\n0,2,0.8\n")
    os.utime(first, ns=(2 * 10**9, 2 * 10**9))
    grown(second, b"epoch,step,loss\n0,1,0.7\n")

    expected = [(2, 0.8), (1, 0.7)]
    assert points(follows.read(), "loss") == expected
    assert points(reader(job, bookmark).read(), "loss") == expected
    assert follows.read() == ()
    assert reader(job, follows.bookmark).read() == ()


def test_two_files_that_grow_in_turns_are_read_without_reading_twice(
    tmp_path: Path,
) -> None:
    files = [tmp_path / f"version_{n}" / "metrics.csv" for n in range(2)]
    job, bookmark = trainer("lightning", tmp_path), BEGINNING
    rows = ["epoch,step,loss\n"] * 2
    found: list[ProgressRecord] = []
    for step in range(1, 20):
        rows[step % 2] += f"0,{step},0.5\n"
        grown(files[step % 2], rows[step % 2].encode())
        os.utime(files[step % 2], ns=(step * 10**9, step * 10**9))
        process = reader(job, bookmark)
        found += process.read()
        bookmark = process.bookmark

    assert [record.step for record in found] == list(range(1, 20))
    assert len(bookmark.marks) == 2


def test_a_thousand_checkpoints_leave_a_short_bookmark(tmp_path: Path) -> None:
    job = trainer("huggingface", tmp_path)
    follows = reader(job)
    for n in range(1, 100):
        path = tmp_path / f"checkpoint-{n}" / "trainer_state.json"
        grown(path, state_of(range(1, 2 * n + 1)))
        os.utime(path, ns=(n * 10**9, n * 10**9))
        assert [record.step for record in follows.read()] == [
            2 * n,
            *([2 * n] if n % 4 == 0 else []),
        ]

    assert len(follows.bookmark.marks) <= 17


# ----------------------------------------------------------------------
# Which file


def test_the_file_changed_last_counts_whatever_its_number(tmp_path: Path) -> None:
    pattern = tmp_path / "run_?" / "version_*" / "metrics.csv"
    assert newest_file(pattern) == pattern
    places = ["run_1/version_2", "run_1/version_10", "run_2/version_1", "run_22/x"]
    for n, place in enumerate(places):
        path = tmp_path / place / "metrics.csv"
        grown(path, b"")
        os.utime(path, ns=(n * 10**9 + 1, n * 10**9 + 1))

    assert newest_file(pattern) == tmp_path / "run_2/version_1/metrics.csv"


def test_no_link_pipe_or_folder_is_taken_for_the_newest_file(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("step,loss\n1,2\n")
    logs = tmp_path / "logs"
    grown(logs / "a.csv", b"")
    os.utime(logs / "a.csv", ns=(1, 1))
    (logs / "b.csv").symlink_to(secret)
    (logs / "c.csv").mkdir()
    os.mkfifo(logs / "d.csv")
    (tmp_path / "logs_2").symlink_to(tmp_path)
    (logs / "[e].csv").write_text("")
    os.utime(logs / "[e].csv", ns=(2, 2))

    assert newest_file(logs / "*.csv") == logs / "[e].csv"
    assert newest_file(logs / "[a].*") == logs / "[a].*"
    assert newest_file(tmp_path / "logs_*" / "secret") == tmp_path / "logs_*" / "secret"


def test_a_file_of_just_that_name_counts_before_all_others(tmp_path: Path) -> None:
    (tmp_path / "a*.csv").write_text("")
    (tmp_path / "ab.csv").write_text("")

    assert newest_file(tmp_path / "a*.csv") == tmp_path / "a*.csv"


def test_of_a_folder_of_any_size_ten_thousand_names_are_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("freetrain.progress._MOST_LISTED", 5)
    for n in range(20):
        (tmp_path / f"{n}.csv").write_text("")

    assert newest_file(tmp_path / "*.csv").name in {f"{n}.csv" for n in range(20)}
    assert newest_file(tmp_path / "*" / "*" / "*") == tmp_path / "*" / "*" / "*"


@pytest.mark.parametrize(
    ("form", "named", "meant"),
    [
        ("lightning", "logs", "logs/version_*/metrics.csv"),
        ("lightning", "logs/version_7", "logs/version_7/metrics.csv"),
        ("lightning", "logs/version_*/metrics.csv", "logs/version_*/metrics.csv"),
        ("lightning", "metrics.csv", "metrics.csv"),
        ("tensorboard", "runs/*", "runs/*/events.out.tfevents.*"),
        ("tensorboard", "runs/*tfevents*", "runs/*tfevents*"),
        ("tensorboard", "runs/events.out.tfevents.1.n1", None),
        ("huggingface", "out", "out/checkpoint-*/trainer_state.json"),
        ("huggingface", "out/trainer_state.json", None),
        ("huggingface", "out/last.json", None),
        ("keras", "log.csv", None),
        ("csv", "logs/*.csv", None),
    ],
)
def test_a_librarys_folder_or_its_file_may_be_named(
    form: str, named: str, meant: str | None
) -> None:
    progress = trainer(form, Path("/w") / named).progress

    assert progress is not None
    assert progress.files == Path("/w") / (meant or named)


def test_a_program_can_report_where_its_librarys_folder_will_be(tmp_path: Path) -> None:
    job = trainer("lightning", tmp_path / "logs")
    assert report_folder(job, tmp_path) == tmp_path

    grown(tmp_path / "logs" / "version_0" / "metrics.csv", b"")
    assert report_folder(job, tmp_path) == tmp_path / "logs" / "version_0"


def test_a_bookmark_at_the_end_of_a_file_is_behind_all_that_it_has(
    tmp_path: Path,
) -> None:
    job = trainer("lightning", tmp_path)
    path = tmp_path / "version_0" / "metrics.csv"
    assert bookmark_at_end(job, tmp_path, 3) == Bookmark(generation=3)
    table = b"epoch,step,loss\n0,1,0.9\n"
    grown(path, table)
    behind = reader(job, bookmark_at_end(job, tmp_path, 3))

    assert behind.read() == ()
    grown(path, table + b"0,2,0.8\n")
    assert points(behind.read(), "loss") == [(2, 0.8)]
    assert behind.bad_lines == 0


# ----------------------------------------------------------------------
# TensorBoard's frames: in any pieces, damaged, and long


def crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def frame(event: bytes) -> bytes:
    def masked(data: bytes) -> bytes:
        crc = crc32c(data)
        return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)

    head = struct.pack("<Q", len(event))
    return head + masked(head) + event + masked(event)


def field_of(number: int, content: bytes) -> bytes:
    assert len(content) < 128
    return bytes([number << 3 | 2, len(content)]) + content


def scalar_event(step: int, value: float, tag: bytes = b"loss") -> bytes:
    scalar = field_of(1, tag) + b"\x15" + struct.pack("<f", value)
    summary = field_of(5, field_of(1, scalar))
    return b"\x09" + struct.pack("<d", 1e9 + step) + bytes([0x10, step]) + summary


EVENTS = [scalar_event(step, step / 4) for step in range(1, 60)]
STREAM = b"".join(map(frame, EVENTS))


def events_in(content: bytes, cuts: Iterable[int] = ()) -> list[bytes]:
    frames = EventFrames()
    found: list[str] = []
    edges = sorted({0, len(content), *(cut % (len(content) + 1) for cut in cuts)})
    for begin, end in pairwise(edges):
        found += frames.feed(content[begin:end])
    return [event.encode("latin-1") for event in found]


@given(st.lists(st.integers(0, 1 << 16), max_size=20))
def test_an_event_file_in_any_pieces_has_the_same_events(cuts: list[int]) -> None:
    assert events_in(STREAM, cuts) == EVENTS


@settings(deadline=None)
@given(
    at=st.integers(0, len(STREAM) - 1),
    gone=st.integers(0, 300),
    instead=st.binary(max_size=100) | st.just(b"\0" * 100),
    cuts=st.lists(st.integers(0, 1 << 16), max_size=5),
)
def test_damage_costs_the_events_that_it_hits_and_invents_none(
    at: int, gone: int, instead: bytes, cuts: list[int]
) -> None:
    damaged = STREAM[:at] + instead + STREAM[at + gone :]

    found = events_in(damaged, cuts)

    size = len(frame(EVENTS[0]))
    assert set(found) <= set(EVENTS)
    assert found[: at // size] == EVENTS[: at // size]
    assert EVENTS[(at + gone) // size + 2 :] == [
        event for event in found if event in EVENTS[(at + gone) // size + 2 :]
    ]


@given(st.binary(max_size=300))
def test_any_bytes_as_an_event_are_a_record_or_an_unreadable_line(
    content: bytes,
) -> None:
    folder = Path("/dev/shm") / f"event-{os.getpid()}"  # noqa: S108
    folder.mkdir(exist_ok=True)
    try:
        file = folder / "events.out.tfevents.1.n1"
        file.write_bytes(frame(content) + frame(EVENTS[0]))
        process = reader(trainer("tensorboard", folder))
        records = process.read()
        assert records[-1].metrics == {"loss": 0.25}
        assert len(records) + process.bad_lines <= 2
    finally:
        shutil.rmtree(folder)


def test_an_event_too_long_to_keep_is_left_out_and_the_next_one_found(
    tmp_path: Path,
) -> None:
    image = np.random.default_rng(1).bytes(3 * LONGEST_LINE_BYTES)
    file = tmp_path / "events.out.tfevents.1.n1"
    file.write_bytes(frame(EVENTS[0]) + frame(image) + frame(EVENTS[1]))
    job, bookmark = trainer("tensorboard", tmp_path), BEGINNING
    found: list[ProgressRecord] = []
    for _ in range(60):
        process = reader(job, bookmark)
        found += process.read(most_bytes=LONGEST_LINE_BYTES // 10)
        bookmark = process.bookmark

    assert [record.step for record in found] == [1, 2]
    assert bookmark.bad_lines == 0


def test_of_ever_new_tags_two_hundred_are_kept(tmp_path: Path) -> None:
    tags = [f"t{n}".encode() for n in range(1_000)]
    file = tmp_path / "events.out.tfevents.1.n1"
    file.write_bytes(b"".join(frame(scalar_event(1, 0.5, tag)) for tag in tags))
    job = trainer("tensorboard", tmp_path)
    process = reader(job)

    assert len(process.read()) == 1_000
    latest = process.latest()
    assert latest is not None
    assert len(latest.metrics) == 200
    assert len(survey_of(job, tmp_path, tmp_path).values) == 200


def test_a_long_event_file_is_caught_up_with_by_skipping_ahead(tmp_path: Path) -> None:
    copies = 3 * MOST_BACKLOG_BYTES // (2 * len(STREAM))
    file = tmp_path / "events.out.tfevents.1.n1"
    file.write_bytes(STREAM * copies)

    process = reader(trainer("tensorboard", tmp_path))
    records = process.read()

    assert process.read_bytes <= MOST_BYTES
    assert not process.is_behind
    assert process.bad_lines == 0
    assert records[-1].step == 59
    assert len(records) > 0.9 * MOST_BYTES / len(frame(EVENTS[0]))


def test_a_long_history_is_caught_up_with_and_no_two_entries_are_mixed(
    tmp_path: Path,
) -> None:
    history = [{"epoch": n / 8, "loss": n, "step": n} for n in range(1, 90_000)]
    content = json.dumps({"log_history": history}, indent=2).encode()
    assert len(content) > MOST_BYTES + MOST_BACKLOG_BYTES
    grown(tmp_path / "checkpoint-9" / "trainer_state.json", content)

    records = read(trainer("huggingface", tmp_path))

    assert records[-1].step == 89_999
    assert {(r.epoch, r.metrics.get("loss")) for r in records} == {
        ((r.step or 0) / 8, r.step) for r in records
    }


@pytest.mark.parametrize(
    "hostile",
    [
        b"\0" * MOST_BYTES,
        b"\1\0\0\0\0\0\0\0" * (MOST_BYTES // 8),
        b"\xff" * MOST_BYTES,
        struct.pack("<Q", 1 << 62) * (MOST_BYTES // 8),
    ],
    ids=["zeros", "lengths", "ones", "endless"],
)
def test_no_file_makes_the_search_for_frames_slow(hostile: bytes) -> None:
    frames = EventFrames()

    before = os.times().user
    for begin in range(0, len(hostile), 1 << 18):
        frames.feed(hostile[begin : begin + (1 << 18)])
    spent_s = os.times().user - before

    assert spent_s < 2.0
    assert frames.pending_bytes <= LONGEST_LINE_BYTES
    assert [*frames.feed(b"\x07" * 20 + frame(EVENTS[0]) * 2)]
