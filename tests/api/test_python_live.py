"""``ft.holes``, ``ft.status`` and ``ft.submit`` beside the commands."""

import json
from pathlib import Path

import pytest

import freetrain as ft
from freetrain.errors import MissingInputError, UsageError
from freetrain.state.files import StateDir
from tests.cli.commands import at_home, run
from tests.fakes.slurm.installing import FakeSlurm, install


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StateDir:
    """Where the state will be: there is a configuration and a job, not submitted."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    return at_home()


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state: StateDir) -> FakeSlurm:
    del state
    folder = tmp_path / "fake-slurm"
    folder.mkdir()
    fake = install(folder)
    for name, value in fake.environ.items():
        monkeypatch.setenv(name, value)
    return fake


def test_holes_are_those_of_the_command(fake: FakeSlurm, tmp_path: Path) -> None:
    environ = fake.environ | {"HOME": str(tmp_path)}
    shown = json.loads(run("holes", "--json", environ=environ).stdout)

    found = ft.holes()

    assert found["node"].tolist() == [hole["node"] for hole in shown["holes"]]
    assert len(found) == 8
    assert found["ends_by"].tolist() == [hole["ends_by"] for hole in shown["holes"]]
    assert str(found["end_s"].dtype) == "float64"
    assert (found["end_s"] > found["start_s"]).all()
    assert found.attrs["partition"] == shown["partition"]


def test_a_submitted_trainer_is_in_the_status(state: StateDir) -> None:
    with pytest.raises(MissingInputError, match="Submit a trainer first"):
        ft.status()
    tried = ft.submit("job.toml", dry_run=True)
    assert (str(tried.begin), state.path.exists()) == ("new", False)
    begun = ft.submit("job.toml")

    found = ft.status("digits").iloc[0]
    assert (begun.row.name, found["name"], found["state"]) == (
        "digits",
        "digits",
        "wanted",
    )
    assert found["run_dir"] == begun.row.run_dir
    assert ft.status().attrs["is_tick_missing"] is True


def test_errors_are_those_of_the_command(state: StateDir) -> None:
    del state
    ft.submit("job.toml")

    with pytest.raises(UsageError, match="there is no trainer"):
        ft.status("nobody")
    with pytest.raises(UsageError, match="--go-on and --anew exclude each other"):
        ft.submit("job.toml", go_on=True, anew=True)
