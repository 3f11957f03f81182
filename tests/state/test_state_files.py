"""Files that broker and agents share are whole, created once, and read as written."""

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from freetrain.broker.lease import LeaseKey
from freetrain.state.files import (
    AssignedLease,
    AssignmentFile,
    EndingKind,
    Heartbeat,
    StateDir,
    TickSign,
    TrainerDir,
    UnreadableFileError,
    create_assigned,
    create_ending,
    generations,
    newest_assigned,
    read_assigned,
    read_ending,
    read_heartbeat,
    read_tick_sign,
    write_heartbeat,
    write_tick_sign,
)
from tests.state.endings import an_ending

_TEXT = st.text(max_size=40)


def _assigned(
    generation: int,
    *,
    author: str = "broker",
    reason: str = "grow",
    end_s: float | None = None,
) -> AssignmentFile:
    lease = AssignedLease(
        key=LeaseKey("u", 1), job_id=7, display_id="6_1", node="n1", end_s=end_s
    )
    return AssignmentFile(
        trainer="digits",
        generation=generation,
        members=(lease,),
        created_s=1.5,
        author=author,
        reason=reason,
    )


def _folder(path: Path) -> TrainerDir:
    folder = StateDir(path).trainer("digits")
    folder.create()
    return folder


@given(reason=_TEXT, end_s=st.none() | st.floats(allow_nan=False, allow_infinity=False))
def test_what_an_assignment_says_is_read_again(
    tmp_path_factory: pytest.TempPathFactory, reason: str, end_s: float | None
) -> None:
    folder = _folder(tmp_path_factory.mktemp("state"))
    said = _assigned(3, reason=reason, end_s=end_s)

    assert create_assigned(folder, said)

    assert read_assigned(folder, 3) == said
    assert newest_assigned(folder) == said


def test_of_many_who_create_one_generation_exactly_one_wins(tmp_path: Path) -> None:
    folder = _folder(tmp_path)
    said = [_assigned(1, author=f"lease {i}") for i in range(8)]

    # `create_once` names its temporary file after the process, so one by one here;
    # between processes the kernel's link decides.
    won = [create_assigned(folder, assigned) for assigned in said]

    assert won == [True] + [False] * 7
    assert newest_assigned(folder) == said[0]


def test_the_newest_generation_is_the_highest_number(tmp_path: Path) -> None:
    folder = _folder(tmp_path)
    for generation in (2, 10, 9, *range(30, 20, -1)):
        create_assigned(folder, _assigned(generation))
    (folder.assignments / "junk.json").write_text("{}")

    assert generations(folder.assignments) == (2, 9, 10, *range(21, 31))
    assert newest_assigned(folder) == _assigned(30)
    assert newest_assigned(StateDir(tmp_path).trainer("none")) is None


@pytest.mark.parametrize("junk", [b"", b"{", b"[]", b"7", b'{"members": 3}', b"\xff"])
def test_a_damaged_file_is_named_and_never_guessed_at(
    tmp_path: Path, junk: bytes
) -> None:
    folder = _folder(tmp_path)
    folder.assignment(1).write_bytes(junk)
    folder.ending(1).write_bytes(junk)
    lease = StateDir(tmp_path).lease(LeaseKey("u", 0))
    lease.create()
    lease.heartbeat.write_bytes(junk)

    with pytest.raises(UnreadableFileError, match=r"0000000001\.json"):
        newest_assigned(folder)
    with pytest.raises(UnreadableFileError, match=r"0000000001\.json"):
        read_ending(folder, 1)
    with pytest.raises(UnreadableFileError, match=r"heartbeat\.json"):
        read_heartbeat(lease.heartbeat)


def test_an_ending_is_said_once(tmp_path: Path) -> None:
    folder = _folder(tmp_path)
    done = {"was_asked": True, "step": 10, "committed_step": 10, "author": "u-0"}
    first = an_ending(1, EndingKind.RESCALED, started_s=1.0, ended_s=2.0, **done)

    assert read_ending(folder, 1) is None
    assert create_ending(folder, first)
    assert not create_ending(folder, first)
    assert read_ending(folder, 1) == first


def test_agents_of_the_version_before_can_read_a_heartbeat(tmp_path: Path) -> None:
    path = tmp_path / "heartbeat.json"
    beat = Heartbeat(beat=1, t=0.0, node="n", host="h", pid=1)

    write_heartbeat(path, beat)
    assert "is_stalled" not in json.loads(path.read_bytes())
    write_heartbeat(path, replace(beat, is_stalled=True))
    assert read_heartbeat(path) == replace(beat, is_stalled=True)


def test_a_heartbeat_is_always_whole_while_it_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "heartbeat.json"
    beats = [
        Heartbeat(beat=i, t=0.0, node="n" * i, host="h", pid=1) for i in range(300)
    ]

    def write() -> None:
        for beat in beats:
            write_heartbeat(path, beat)

    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(write)
        while not writing.done():
            read = read_heartbeat(path)
            assert read is None or read == beats[read.beat]
        writing.result()

    assert read_heartbeat(path) == beats[-1]
    assert [entry.name for entry in tmp_path.iterdir()] == ["heartbeat.json"]


def test_folders_are_closed_to_others(tmp_path: Path) -> None:
    folder = _folder(tmp_path / "state")

    assert folder.path.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("silence_s", [None, 180.0])
def test_the_sign_of_a_tick_is_read_as_it_was_written(
    tmp_path: Path, silence_s: float | None
) -> None:
    path = StateDir(tmp_path).tick_sign
    assert read_tick_sign(path) is None

    for tick in (1, 2):
        sign = TickSign(tick=tick, silence_s=silence_s)
        write_tick_sign(path, sign)
        assert read_tick_sign(path) == sign

    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    "content",
    [
        "",
        "7",
        "[]",
        "{}",
        '{"tick": 1}',
        '{"tick": "1", "silence_s": null}',
        '{"tick": 1, "silence_s": 0}',
        '{"tick": 1, "silence_s": NaN}',
        "[" * 100_000,
    ],
)
def test_what_is_no_sign_is_refused(tmp_path: Path, content: str) -> None:
    path = StateDir(tmp_path).tick_sign
    path.write_text(content)

    with pytest.raises(UnreadableFileError, match="tick-sign cannot be read"):
        read_tick_sign(path)
