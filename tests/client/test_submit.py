"""A submission is kept whole or not at all, once, and takes no other folders."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from freetrain.client.submit import Begin, OnLeftOver, preview, remarks
from freetrain.client.trainers import left_over
from freetrain.config.job import (
    CheckpointSettings,
    LaunchSettings,
    NodeSettings,
    read_job,
)
from freetrain.errors import BadConfigurationError, TryLaterError, UsageError
from freetrain.state.database import open_store
from freetrain.state.files import (
    GO_ON,
    USER,
    Ended,
    UnreadableFileError,
    newest_assigned,
    read_environment,
)
from freetrain.state.tables import TrainerState, remove_trainer
from tests.client.client_states import (
    UID,
    a_job,
    a_state,
    a_submission,
    assign,
    end,
    hold_leases,
    leave_checkpoint,
    put_state,
    rows,
    submitted,
)

ENDED = (TrainerState.CANCELLED, TrainerState.FINISHED, TrainerState.FAILED)


def test_what_is_submitted_is_kept_and_closed_to_others(tmp_path: Path) -> None:
    state, job = a_state(tmp_path), a_job(tmp_path)

    told = submitted(state, job, environment={"PATH": "/bin", "ODD": "a\udc80\n\x1b"})

    folder = state.trainer("digits")
    assert told.begin is Begin.NEW
    assert read_job(folder.job) == job
    assert read_environment(folder) == {"PATH": "/bin", "ODD": "a\udc80\n\x1b"}
    for file in (folder.job, folder.environment):
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(state.path.stat().st_mode) == 0o700
    assert rows(state)["digits"].state is TrainerState.WANTED


def test_submitted_twice_it_is_one(tmp_path: Path) -> None:
    state, job = a_state(tmp_path), a_job(tmp_path)
    submitted(state, job)
    before = rows(state)

    again = submitted(state, job, environment={"PATH": "/other"})

    assert again.begin is Begin.SAME
    assert rows(state) == before
    assert read_environment(state.trainer("digits"))["PATH"] != "/other"


def test_a_name_that_is_taken_is_refused_with_what_differs(tmp_path: Path) -> None:
    state, job = a_state(tmp_path), a_job(tmp_path)
    submitted(state, job)
    other = structs.replace(job, nodes=NodeSettings(max_nodes=4), weight=2.0)

    with pytest.raises(UsageError, match=r"differs .* in weight, \[nodes\] max\. "):
        submitted(state, other)

    assert read_job(state.trainer("digits").job) == job


def test_after_a_crash_before_the_row_a_second_submit_mends_it(tmp_path: Path) -> None:
    state, job = a_state(tmp_path), a_job(tmp_path)
    submitted(state, structs.replace(job, weight=3.0))
    with open_store(state.path, uid=UID) as connection:
        remove_trainer(connection, "digits")

    told = submitted(state, job)

    assert told.begin is Begin.NEW
    assert read_job(state.trainer("digits").job) == job


def test_after_a_crash_while_a_folder_was_put_away_the_next_submit_mends_it(
    tmp_path: Path,
) -> None:
    state, job = a_state(tmp_path), a_job(tmp_path)
    submitted(state, job)
    put_state(state, "digits", TrainerState.FINISHED)
    folder = state.trainer("digits")
    state.past.mkdir()
    folder.path.rename(state.past / "digits.1")
    folder.path.mkdir()
    (folder.path / ".job.toml.new").write_text("half a fi")

    told = submitted(state, structs.replace(job, weight=2.0))

    assert told.begin is Begin.ANEW
    assert read_job(folder.job).weight == 2.0
    assert rows(state)["digits"].state is TrainerState.WANTED
    assert (state.past / "digits.1/job.toml").exists()


def test_files_that_went_missing_are_written_again(tmp_path: Path) -> None:
    state, job = a_state(tmp_path), a_job(tmp_path)
    submitted(state, job)
    state.trainer("digits").environment.unlink()

    told = submitted(state, job)

    assert (told.begin, told.was_mended) == (Begin.SAME, True)
    assert read_environment(state.trainer("digits"))


def test_a_submission_that_fails_leaves_no_trainer(tmp_path: Path) -> None:
    state, job = a_state(tmp_path), a_job(tmp_path)
    submitted(state, structs.replace(job, name="other"))
    (state.trainers / "digits").write_text("in the way")

    with pytest.raises(OSError, match=r"exists|directory"):
        submitted(state, job)

    assert set(rows(state)) == {"other"}


@pytest.mark.parametrize("ended", ENDED)
def test_an_ended_trainer_is_not_begun_again_by_the_same_call(
    tmp_path: Path, ended: TrainerState
) -> None:
    state, job = a_state(tmp_path), a_job(tmp_path)
    submitted(state, job)
    put_state(state, "digits", ended)

    assert submitted(state, job).begin is Begin.SAME
    assert rows(state)["digits"].state is ended


@pytest.mark.parametrize("ended", ENDED)
def test_another_job_may_have_an_ended_ones_name_and_not_its_checkpoints(
    tmp_path: Path, ended: TrainerState
) -> None:
    state, job = a_state(tmp_path), a_job(tmp_path)
    submitted(state, job)
    folder = state.trainer("digits")
    leave_checkpoint(folder.run.path, generation=1, step=70)
    assign(state, "digits", 1, nodes=2)
    end(state, "digits", 1, Ended.FINISHED)
    put_state(state, "digits", ended)

    told = submitted(state, structs.replace(job, weight=2.0))

    assert told.begin is Begin.ANEW
    assert told.put_away is not None
    assert (told.put_away / "run/checkpoints").exists()
    assert not folder.run.path.exists()
    assert newest_assigned(folder) is None
    assert rows(state)["digits"].state is TrainerState.WANTED


def test_a_name_is_not_used_again_while_its_processes_may_run(tmp_path: Path) -> None:
    state, job = a_state(tmp_path), a_job(tmp_path)
    submitted(state, job)
    assign(state, "digits", 1, nodes=2)
    hold_leases(state, 2)
    put_state(state, "digits", TrainerState.CANCELLED)

    with pytest.raises(TryLaterError, match="have not ended yet"):
        submitted(state, job, on_left_over=OnLeftOver.ANEW)

    end(state, "digits", 1, Ended.RESCALED)
    assert submitted(state, job, on_left_over=OnLeftOver.ANEW).begin is Begin.ANEW


def test_going_on_keeps_the_checkpoints_and_begins_above_all_generations(
    tmp_path: Path,
) -> None:
    state, job = a_state(tmp_path), a_job(tmp_path)
    submitted(state, job)
    folder = state.trainer("digits")
    leave_checkpoint(folder.run.path, generation=3, step=70)
    assign(state, "digits", 3, nodes=1)
    end(state, "digits", 3, Ended.FINISHED)
    put_state(state, "digits", TrainerState.FINISHED)

    told = submitted(
        state, structs.replace(job, weight=2.0), on_left_over=OnLeftOver.GO_ON
    )

    newest = newest_assigned(folder)
    assert (told.begin, told.left.step) == (Begin.GO_ON, 70)
    assert newest is not None
    assert (newest.generation, newest.members) == (4, ())
    assert (newest.author, newest.reason) == (USER, GO_ON)


def test_a_folder_with_another_trainings_checkpoints_is_refused(tmp_path: Path) -> None:
    state = a_state(tmp_path)
    run_dir = tmp_path / "old run"
    leave_checkpoint(run_dir, generation=41, step=1200)
    job = a_job(tmp_path, checkpoint=CheckpointSettings(path=run_dir))

    with pytest.raises(UsageError, match=r"of 1200 steps.*--go-on"):
        submitted(state, job)
    with pytest.raises(UsageError, match="of 1200 steps"):
        submitted(state, job, on_left_over=OnLeftOver.ANEW)
    told = submitted(state, job, on_left_over=OnLeftOver.GO_ON)

    newest = newest_assigned(state.trainer("digits"))
    assert told.begin is Begin.GO_ON
    assert newest is not None
    assert newest.generation == 41


def test_an_ended_trainers_own_folder_is_not_begun_in_by_accident(
    tmp_path: Path,
) -> None:
    state, run_dir = a_state(tmp_path), tmp_path / "run"
    job = a_job(tmp_path, checkpoint=CheckpointSettings(path=run_dir))
    submitted(state, job)
    leave_checkpoint(run_dir, generation=1, step=70)
    put_state(state, "digits", TrainerState.FINISHED)

    with pytest.raises(UsageError, match=r"of 70 steps.*--go-on"):
        submitted(state, structs.replace(job, weight=2.0))

    assert rows(state)["digits"].state is TrainerState.FINISHED


def test_files_of_a_users_own_are_no_checkpoints(tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    leave_checkpoint(run_dir / "members/a/run", generation=1, step=70)
    (run_dir / "checkpoints").write_text("mine, of epoch 12")
    (run_dir / "members/notes").write_text("mine")

    assert left_over(run_dir, tmp_path / "logs").step == 70


def test_old_logs_are_not_taken_for_a_new_trainings(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    (logs / "0000000007.log").write_text("epoch 90")
    job = a_job(tmp_path, logs=logs)

    with pytest.raises(UsageError, match="holds what an earlier training printed"):
        submitted(a_state(tmp_path), job)


@pytest.mark.parametrize("theirs", ["runs/a", "runs", "runs/a/b"])
def test_two_trainers_never_share_a_folder(tmp_path: Path, theirs: str) -> None:
    state = a_state(tmp_path)
    one = a_job(tmp_path, checkpoint=CheckpointSettings(path=tmp_path / "runs/a"))
    other = a_job(
        tmp_path,
        name="b",
        checkpoint=CheckpointSettings(path=tmp_path / theirs),
        elastic=False,
    )
    submitted(state, one)

    with pytest.raises(BadConfigurationError, match="of the trainer digits"):
        submitted(state, other)

    assert set(rows(state)) == {"digits"}


def test_a_link_does_not_hide_a_shared_folder(tmp_path: Path) -> None:
    state = a_state(tmp_path)
    (tmp_path / "runs").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "runs")
    submitted(state, a_job(tmp_path, logs=tmp_path / "runs"))

    with pytest.raises(BadConfigurationError, match="lie in each other"):
        submitted(state, a_job(tmp_path, name="b", logs=tmp_path / "link/b"))


@pytest.mark.parametrize("place", ["state/trainers/digits/run", ".", "state"])
def test_no_folder_of_a_trainer_is_the_states(tmp_path: Path, place: str) -> None:
    job = a_job(tmp_path, checkpoint=CheckpointSettings(path=tmp_path / place))

    with pytest.raises(BadConfigurationError, match="the state directory"):
        submitted(a_state(tmp_path), job)


@pytest.mark.parametrize("content", ["", "[]", '{"A": 1}', '"A=1"'])
def test_a_damaged_environment_is_refused(tmp_path: Path, content: str) -> None:
    state, job = a_state(tmp_path), a_job(tmp_path)
    submitted(state, job)
    folder = state.trainer("digits")
    folder.environment.write_text(content)

    with pytest.raises(UnreadableFileError, match=r"environment\.json"):
        read_environment(folder)


@pytest.mark.parametrize(
    ("launch", "program"),
    [
        ({"launcher": "mpirun"}, "mpirun"),
        ({"launcher": "mpirun", "executable": "mpiexec.hydra"}, "mpiexec.hydra"),
        ({"launcher": "torchrun"}, "torchrun"),
        ({"launcher": "custom", "command": ("mpiexec", "-f", "{hostfile}")}, "mpiexec"),
    ],
)
def test_a_launchers_program_that_is_missing_is_remarked_by_its_own_name(
    tmp_path: Path, launch: dict[str, Any], program: str
) -> None:
    job = a_job(tmp_path, launch=LaunchSettings(**launch))
    path = tmp_path / "bin"

    missing = remarks(job, {"PATH": str(path)}, [], beside=path, mounts="")
    path.mkdir()
    (path / program).touch(mode=0o755)
    there = remarks(job, {"PATH": str(path)}, [], beside=tmp_path, mounts="")

    said = f'the launcher "{program}" is not on your PATH here'
    assert [remark.startswith(said) for remark in missing] == [True]
    assert there == ()


def test_a_pack_needs_no_launchers_program(tmp_path: Path) -> None:
    launch = LaunchSettings(launcher="pack", pack=Path("/p.toml"))
    job = a_job(tmp_path, command=(), nodes=NodeSettings(max_nodes=1), launch=launch)

    assert remarks(job, {"PATH": ""}, [], beside=tmp_path, mounts="") == ()


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
