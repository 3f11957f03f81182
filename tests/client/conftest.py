"""A state directory, without and with the trainer ``digits``."""

from pathlib import Path

import pytest

from freetrain.config.job import TrainerJob
from freetrain.state.files import StateDir
from tests.client.client_states import a_job, submitted


@pytest.fixture
def state(tmp_path: Path) -> StateDir:
    return StateDir(tmp_path / "state")


@pytest.fixture
def job(tmp_path: Path) -> TrainerJob:
    return a_job(tmp_path)


@pytest.fixture
def digits(state: StateDir, job: TrainerJob) -> StateDir:
    submitted(state, job)
    return state
