"""``freetrain holes`` on programs that answer as Slurm does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.cli.commands import Ran, run, run_json
from tests.fakes.slurm.installing import FakeSlurm, install
from tests.fakes.slurm.state import Act


@pytest.fixture
def fake(tmp_path: Path) -> FakeSlurm:
    folder = tmp_path / "fake-slurm"
    folder.mkdir()
    return install(folder)


def environ(fake: FakeSlurm, home: Path) -> dict[str, str]:
    return fake.environ | {"HOME": str(home)}


def holes(fake: FakeSlurm, home: Path, *words: str, **changes: Any) -> Ran:  # noqa: ANN401
    return run("holes", *words, cwd=home, environ=environ(fake, home), **changes)


def test_it_is_useful_without_any_state(fake: FakeSlurm, tmp_path: Path) -> None:
    shown = holes(fake, tmp_path)

    assert shown.code == 0, shown.stderr
    assert "Seen, not promised" in shown.stdout
    assert not Path(".freetrain").exists()


def test_all_of_it_is_there_for_programs(fake: FakeSlurm, tmp_path: Path) -> None:
    shown = run_json("holes", environ=environ(fake, tmp_path))

    names = [hole["node"] for hole in shown["holes"]]
    assert names
    assert len(names) == len(set(names)) <= shown["nodes"]
    assert shown["idle_nodes"][0]["nodes"] == len(names)


def test_a_row_for_each_node_where_asked(fake: FakeSlurm, tmp_path: Path) -> None:
    few, many = holes(fake, tmp_path), holes(fake, tmp_path, "--nodes")

    assert len(many.stdout.splitlines()) > len(few.stdout.splitlines())


def test_a_partition_that_is_not_there_exits_with_69(
    fake: FakeSlurm, tmp_path: Path
) -> None:
    shown = holes(fake, tmp_path, "--partition", "$(reboot)\x1b[2J")

    assert shown.code == 69
    assert shown.stderr.count("\n") == 1
    assert "\x1b" not in shown.stderr


def test_without_slurm_it_exits_with_69(tmp_path: Path) -> None:
    environ = {"PATH": str(tmp_path), "HOME": str(tmp_path)}

    shown = run("holes", environ=environ)

    assert shown.code == 69
    assert "Are Slurm's programs on the PATH?" in shown.stderr


@pytest.mark.parametrize(
    ("act", "code"),
    [(Act.EMPTY, 76), (Act.UNREACHABLE, 75), (Act.GARBAGE, 76), (Act.REFUSE, 69)],
)
def test_a_slurm_that_does_not_answer_well_is_told(
    fake: FakeSlurm, tmp_path: Path, act: Act, code: int
) -> None:
    fake.script("squeue", act)

    shown = holes(fake, tmp_path)

    assert shown.code == code
    assert shown.stdout == ""
    assert shown.stderr.count("\n") == 1


def test_a_look_that_backfill_tears_is_taken_again(
    fake: FakeSlurm, tmp_path: Path
) -> None:
    waited: list[float] = []
    fake.script("sdiag", Act.MID_BACKFILL)

    shown = run_json("holes", environ=environ(fake, tmp_path), sleep=waited.append)

    assert not shown["is_torn"]
    assert len(waited) == 1


def test_if_every_look_is_torn_it_says_so(fake: FakeSlurm, tmp_path: Path) -> None:
    fake.script("sdiag", *[Act.MID_BACKFILL] * 6)

    shown = holes(fake, tmp_path)

    assert shown.code == 0
    assert "may be planned for already" in " ".join(shown.stdout.split())
