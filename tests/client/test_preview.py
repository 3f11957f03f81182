"""A dry run makes nothing, and says what would become of the submission."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from freetrain.client.submit import Begin, preview
from freetrain.config.job import CheckpointSettings
from freetrain.errors import BadConfigurationError, UsageError
from tests.client.client_states import (
    UID,
    a_job,
    a_state,
    a_submission,
    leave_checkpoint,
)

if TYPE_CHECKING:
    from pathlib import Path


def test_a_preview_makes_nothing(tmp_path: Path) -> None:
    state = a_state(tmp_path)

    told = preview(state, a_submission(state, a_job(tmp_path)), uid=UID)

    assert told.begin is Begin.NEW
    assert not state.path.exists()


def test_a_directory_that_the_doctor_made_has_no_trainer_yet(tmp_path: Path) -> None:
    state = a_state(tmp_path)
    state.path.mkdir(mode=0o700)

    told = preview(state, a_submission(state, a_job(tmp_path)), uid=UID)

    assert told.begin is Begin.NEW
    assert not list(state.path.iterdir())


def test_a_preview_is_refused_where_the_submission_would_be(tmp_path: Path) -> None:
    state, run_dir = a_state(tmp_path), tmp_path / "old run"
    leave_checkpoint(run_dir, generation=41, step=1200)
    job = a_job(tmp_path, checkpoint=CheckpointSettings(path=run_dir))

    with pytest.raises(UsageError, match=r"of 1200 steps.*--go-on"):
        preview(state, a_submission(state, job), uid=UID)

    state.path.mkdir(mode=0o755)
    with pytest.raises(BadConfigurationError, match="others can reach into"):
        preview(state, a_submission(state, a_job(tmp_path)), uid=UID)
