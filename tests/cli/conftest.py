"""A user's folder with a job file, before and after `freetrain submit`."""

from pathlib import Path

import pytest

from freetrain.state.files import StateDir
from tests.cli.commands import at_home, run


@pytest.fixture(autouse=True)
def _work_in_a_folder_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def state() -> StateDir:
    """Where the state will be: there is a configuration and a job, not submitted."""
    return at_home()


@pytest.fixture
def digits(state: StateDir) -> StateDir:
    """Return the state that has the trainer ``digits``, submitted."""
    assert run("submit", "job.toml").code == 0
    return state
