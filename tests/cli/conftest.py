"""A user's folder with a job file, before and after `freetrain submit`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.cli.commands import at_home, run

if TYPE_CHECKING:
    from pathlib import Path

    from freetrain.state.files import StateDir


@pytest.fixture
def state(tmp_path: Path) -> StateDir:
    """Where the state will be: there is a configuration and a job, not submitted."""
    return at_home(tmp_path)


@pytest.fixture
def digits(tmp_path: Path, state: StateDir) -> StateDir:
    """Return the state that has the trainer ``digits``, submitted."""
    assert run("submit", "job.toml", cwd=tmp_path).code == 0
    return state
