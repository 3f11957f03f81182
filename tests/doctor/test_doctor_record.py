"""``freetrain doctor --record``: asked once, harmless, written whole."""

from pathlib import Path

import pytest

from slurm.text import parse_nodes, parse_squeue
from tests.cli.worlds import Ran, run
from tests.fakes.slurm.installing import FakeSlurm, install
from tests.fakes.slurm.state import Act


@pytest.fixture
def fake_slurm(tmp_path: Path) -> FakeSlurm:
    folder = tmp_path / "fake-slurm"
    folder.mkdir()
    return install(folder)


def record(fake: FakeSlurm, folder: Path, *words: str) -> Ran:
    environ = fake.environ | {"HOME": str(folder)}
    return run("doctor", "--record", "rec", *words, cwd=folder, environ=environ)


def test_a_recording_reads_and_names_nobody(
    fake_slurm: FakeSlurm, tmp_path: Path
) -> None:
    ran = record(fake_slurm, tmp_path)

    assert (ran.code, ran.stderr) == (0, "")
    folder = tmp_path / "rec"
    assert len(parse_nodes((folder / "nodes.txt").read_text())) == 8
    assert parse_squeue((folder / "jobs.txt").read_text()) == ()
    assert "freetrain" not in (folder / "partitions.txt").read_text()
    assert folder.stat().st_mode & 0o777 == 0o700
    assert "look through them" in ran.stdout


def test_a_folder_that_holds_something_is_left_alone_and_nothing_asked(
    fake_slurm: FakeSlurm, tmp_path: Path
) -> None:
    (tmp_path / "rec").mkdir()
    (tmp_path / "rec" / "mine").touch()

    ran = record(fake_slurm, tmp_path)

    assert (ran.code, "not an empty folder" in ran.stderr) == (73, True)
    assert [path.name for path in (tmp_path / "rec").iterdir()] == ["mine"]
    assert fake_slurm.calls("sdiag") == []


def test_a_spoilt_answer_is_not_recorded(fake_slurm: FakeSlurm, tmp_path: Path) -> None:
    fake_slurm.script("squeue", Act.GARBAGE)

    ran = record(fake_slurm, tmp_path)

    assert ran.code == 76
    assert not (tmp_path / "rec").exists()
