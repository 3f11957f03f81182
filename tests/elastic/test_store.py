"""Commits on disk: whole or not at all, two kept, stale worlds fenced."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import numpy as np
import pytest

from freetrain.elastic import (
    Checkpoint,
    GenerationTakenError,
    LaunchError,
    Position,
    StateError,
)
from freetrain.elastic.checkpoint import CheckpointStore
from freetrain.elastic.files import RunDir

if TYPE_CHECKING:
    from pathlib import Path


def checkpoint(generation: int, step: int, value: object = 0.5) -> Checkpoint:
    return Checkpoint(generation, Position(step=step), {}, {"weights": value})


def store(folder: Path, generation: int) -> CheckpointStore:
    made = CheckpointStore(RunDir(folder), generation=generation)
    made.claim()
    return made


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "checkpoints").iterdir())


def newest(folder: Path) -> tuple[int, int]:
    found = CheckpointStore(RunDir(folder), generation=99).newest()
    assert found is not None
    return found[1].generation, found[1].position.step


def test_a_run_without_commits_has_no_newest(tmp_path: Path) -> None:
    assert CheckpointStore(RunDir(tmp_path / "new"), generation=1).newest() is None


def test_the_two_newest_are_kept(tmp_path: Path) -> None:
    mine = store(tmp_path, 1)

    for step in (5, 9, 10, 11):
        assert mine.commit(checkpoint(1, step))

    assert names(tmp_path) == [
        "0000000001-000000000000010.npz",
        "0000000001-000000000000011.npz",
    ]


def test_a_later_generation_s_commit_is_newer_whatever_its_step(tmp_path: Path) -> None:
    store(tmp_path, 1).commit(checkpoint(1, 100))
    store(tmp_path, 2).commit(checkpoint(2, 50))

    assert newest(tmp_path) == (2, 50)


@pytest.mark.parametrize("damage", [b"", b"half of it", None])
def test_a_torn_checkpoint_is_passed_over_and_reported(
    tmp_path: Path, damage: bytes | None, caplog: pytest.LogCaptureFixture
) -> None:
    mine = store(tmp_path, 1)
    mine.commit(checkpoint(1, 5))
    mine.commit(checkpoint(1, 6))
    path = tmp_path / "checkpoints" / names(tmp_path)[-1]
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2] if damage is None else damage)

    assert newest(tmp_path) == (1, 5)
    assert path.name in caplog.text
    assert "it is torn" in caplog.text


def test_a_torn_checkpoint_never_pushes_out_the_good_one(tmp_path: Path) -> None:
    first = store(tmp_path, 1)
    first.commit(checkpoint(1, 5))
    (tmp_path / "checkpoints" / "0000000001-000000000000009.npz").write_bytes(b"torn")
    second = store(tmp_path, 2)
    second.newest()

    second.commit(checkpoint(2, 6))

    assert "0000000001-000000000000005.npz" in names(tmp_path)


def test_a_run_with_only_torn_checkpoints_does_not_begin_from_the_start(
    tmp_path: Path,
) -> None:
    mine = store(tmp_path, 1)
    (tmp_path / "checkpoints" / "0000000001-000000000000009.npz").write_bytes(b"torn")

    with pytest.raises(LaunchError, match="none of the 1 checkpoints"):
        mine.newest()


def test_a_stale_generation_commits_nothing(tmp_path: Path) -> None:
    stale = store(tmp_path, 1)
    stale.commit(checkpoint(1, 5))
    store(tmp_path, 2)

    assert not stale.commit(checkpoint(1, 6))
    assert newest(tmp_path) == (1, 5)


def test_a_generation_that_was_only_assigned_fences_the_one_before(
    tmp_path: Path,
) -> None:
    stale = store(tmp_path, 1)
    (tmp_path / "generations" / "0000000002.assignment.json").touch()

    assert not stale.commit(checkpoint(1, 6))


def test_a_stale_commit_that_slips_through_replaces_nothing_newer(
    tmp_path: Path,
) -> None:
    stale = store(tmp_path, 1)
    stale.commit(checkpoint(1, 5))
    store(tmp_path, 2).commit(checkpoint(2, 6))
    # As if a file system had not shown the stale world its successor yet.
    for path in (tmp_path / "generations").glob("0000000002*"):
        path.unlink()

    stale.commit(checkpoint(1, 9))

    assert newest(tmp_path) == (2, 6)


def test_a_generation_starts_once(tmp_path: Path) -> None:
    store(tmp_path, 3)

    with pytest.raises(GenerationTakenError, match=r"generation 3.*was started before"):
        store(tmp_path, 3)
    with pytest.raises(GenerationTakenError, match=r"generation 2.*later generation"):
        store(tmp_path, 2)


def test_what_a_killed_generation_was_writing_is_removed(tmp_path: Path) -> None:
    store(tmp_path, 1)
    (tmp_path / "checkpoints" / ".0000000001-000000000000007.npz.partial").touch()

    store(tmp_path, 2)

    assert names(tmp_path) == []


def test_claims_do_not_pile_up_and_still_keep_old_generations_out(
    tmp_path: Path,
) -> None:
    for generation in range(1, 5):
        store(tmp_path, generation)

    assert [path.name for path in (tmp_path / "generations").iterdir()] == [
        "0000000004.started"
    ]
    with pytest.raises(GenerationTakenError, match="later generation"):
        store(tmp_path, 2)


def test_a_state_that_cannot_be_kept_leaves_no_half_file(tmp_path: Path) -> None:
    mine = store(tmp_path, 1)
    mine.commit(checkpoint(1, 5))

    with pytest.raises(StateError, match="weights"):
        mine.commit(checkpoint(1, 6, object()))

    assert names(tmp_path) == ["0000000001-000000000000005.npz"]


def test_files_of_others_are_left_alone(tmp_path: Path) -> None:
    mine = store(tmp_path, 1)
    for name in ("notes.txt", "1-2.npz", "zzz.npz"):
        (tmp_path / "checkpoints" / name).touch()

    for step in range(4):
        mine.commit(checkpoint(1, step, np.ones(3)))

    assert {"notes.txt", "1-2.npz", "zzz.npz"} < set(names(tmp_path))


def test_new_folders_are_open_to_their_owner_only(tmp_path: Path) -> None:
    store(tmp_path / "run", 1)

    assert (tmp_path / "run").stat().st_mode & 0o777 == 0o700


@pytest.fixture(autouse=True)
def _hear_warnings(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
