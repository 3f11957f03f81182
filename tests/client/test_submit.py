"""A submission is kept whole or not at all, once, and takes no other folders."""

import os
import stat
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from freetrain.client.submit import (
    Begin,
    OnLeftOver,
    SubmissionOutcome,
    check_folders,
    check_launch_folder,
    check_pattern,
    check_program,
    preview,
    remarks,
)
from freetrain.client.trainers import left_over
from freetrain.config.job import (
    CheckpointSettings,
    ContainerRuntime,
    ContainerSettings,
    LaunchSettings,
    NodeSettings,
    ProgressFormat,
    ProgressSettings,
    TargetSettings,
    TrainerJob,
    read_job,
)
from freetrain.errors import BadConfigurationError, TryLaterError, UsageError
from freetrain.state.database import open_store
from freetrain.state.files import (
    GO_ON,
    USER,
    EndingKind,
    StateDir,
    UnreadableFileError,
    newest_assigned,
    read_environment,
)
from freetrain.state.tables import TrainerState, remove_trainer
from tests.client.client_states import (
    UID,
    a_job,
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


def test_a_submission_is_kept_and_closed_to_others(
    state: StateDir, job: TrainerJob
) -> None:
    environment = {"PATH": "/bin", "ODD": "a\udc80\n\x1b"}

    first = submitted(state, job, environment=environment)

    folder = state.trainer("digits")
    assert first.begin is Begin.NEW
    assert read_job(folder.job) == job
    assert read_environment(folder) == environment
    modes = {folder.job: 0o600, folder.environment: 0o600, state.path: 0o700}
    assert {path: stat.S_IMODE(path.stat().st_mode) for path in modes} == modes
    assert rows(state)["digits"].state is TrainerState.WANTED


@pytest.mark.parametrize("was", [TrainerState.WANTED, *ENDED])
def test_submitted_twice_it_is_one_whether_it_has_ended_or_not(
    digits: StateDir, job: TrainerJob, was: TrainerState
) -> None:
    put_state(digits, "digits", was)
    before = rows(digits)

    again = submitted(digits, job, environment={"PATH": "/other"})

    assert (again.begin, again.was_mended) == (Begin.SAME, False)
    assert rows(digits) == before
    assert read_environment(digits.trainer("digits"))["PATH"] != "/other"


def test_after_a_crash_before_the_row_a_second_submit_mends_it(
    digits: StateDir, job: TrainerJob
) -> None:
    other = structs.replace(job, weight=3.0)
    with open_store(digits.path, uid=UID) as connection:
        remove_trainer(connection, "digits")

    assert submitted(digits, other).begin is Begin.NEW
    assert read_job(digits.trainer("digits").job) == other


def test_generations_of_a_trainer_that_the_database_lacks_are_put_away(
    digits: StateDir, job: TrainerJob
) -> None:
    """A damaged database was moved away, and the folders are there still."""
    assign(digits, "digits", 1, nodes=1)
    with open_store(digits.path, uid=UID) as connection:
        remove_trainer(connection, "digits")

    assert submitted(digits, job).begin is Begin.ANEW
    assert newest_assigned(digits.trainer("digits")) is None


def test_after_a_crash_while_a_folder_was_put_away_the_next_submit_mends_it(
    digits: StateDir, job: TrainerJob
) -> None:
    put_state(digits, "digits", TrainerState.FINISHED)
    folder = digits.trainer("digits")
    digits.past.mkdir()
    folder.path.rename(digits.past / "digits.1")
    folder.path.mkdir()
    (folder.path / ".job.toml.new").write_text("half a fi")

    assert submitted(digits, structs.replace(job, weight=2.0)).begin is Begin.ANEW
    assert read_job(folder.job).weight == 2.0
    assert rows(digits)["digits"].state is TrainerState.WANTED
    assert (digits.past / "digits.1/job.toml").exists()


def test_files_that_went_missing_are_written_again(
    digits: StateDir, job: TrainerJob
) -> None:
    digits.trainer("digits").environment.unlink()

    again = submitted(digits, job)

    assert (again.begin, again.was_mended) == (Begin.SAME, True)
    assert read_environment(digits.trainer("digits"))


def test_a_submission_that_fails_leaves_no_trainer(
    state: StateDir, job: TrainerJob
) -> None:
    submitted(state, structs.replace(job, name="other"))
    (state.trainers / "digits").write_text("in the way")

    with pytest.raises(OSError, match=r"exists|directory"):
        submitted(state, job)

    assert set(rows(state)) == {"other"}


@pytest.mark.parametrize("ended", ENDED)
def test_another_job_may_have_an_ended_ones_name_and_not_its_checkpoints(
    digits: StateDir, job: TrainerJob, ended: TrainerState
) -> None:
    folder = digits.trainer("digits")
    leave_checkpoint(folder.run.path, generation=1, step=70)
    assign(digits, "digits", 1, nodes=2)
    end(digits, "digits", 1, EndingKind.FINISHED)
    put_state(digits, "digits", ended)

    anew = submitted(digits, structs.replace(job, weight=2.0))

    assert anew.begin is Begin.ANEW
    assert anew.put_away is not None
    assert (anew.put_away / "run/checkpoints").exists()
    assert not folder.run.path.exists()
    assert newest_assigned(folder) is None
    assert rows(digits)["digits"].state is TrainerState.WANTED


def test_a_name_is_not_used_again_while_its_processes_may_run(
    digits: StateDir, job: TrainerJob
) -> None:
    assign(digits, "digits", 1, nodes=2)
    hold_leases(digits, 2)
    put_state(digits, "digits", TrainerState.CANCELLED)

    with pytest.raises(TryLaterError, match="have not ended yet"):
        submitted(digits, job, on_left_over=OnLeftOver.ANEW)

    end(digits, "digits", 1, EndingKind.RESCALED)
    assert submitted(digits, job, on_left_over=OnLeftOver.ANEW).begin is Begin.ANEW


def goes_on(state: StateDir, job: TrainerJob) -> SubmissionOutcome:
    return submitted(state, job, on_left_over=OnLeftOver.GO_ON)


def test_going_on_keeps_the_checkpoints_and_begins_above_all_generations(
    digits: StateDir, job: TrainerJob
) -> None:
    folder = digits.trainer("digits")
    leave_checkpoint(folder.run.path, generation=3, step=70)
    assign(digits, "digits", 3, nodes=1)
    end(digits, "digits", 3, EndingKind.FINISHED)
    put_state(digits, "digits", TrainerState.FINISHED)

    result = goes_on(digits, structs.replace(job, weight=2.0))

    newest = newest_assigned(folder)
    assert (result.begin, result.left.step) == (Begin.GO_ON, 70)
    assert newest is not None
    assert (newest.generation, newest.members) == (4, ())
    assert (newest.author, newest.reason) == (USER, GO_ON)


def with_old_run(tmp_path: Path) -> TrainerJob:
    """Return a job whose run directory holds 1200 steps of another training."""
    leave_checkpoint(tmp_path / "old run", generation=41, step=1200)
    return a_job(tmp_path, checkpoint=CheckpointSettings(path=tmp_path / "old run"))


def test_a_folder_with_another_trainings_checkpoints_is_refused(
    state: StateDir, tmp_path: Path
) -> None:
    job = with_old_run(tmp_path)

    for keep in (submitted, partial(submitted, on_left_over=OnLeftOver.ANEW)):
        with pytest.raises(UsageError, match=r"of 1200 steps.*--go-on"):
            keep(state, job)

    assert goes_on(state, job).begin is Begin.GO_ON
    newest = newest_assigned(state.trainer("digits"))
    assert newest is not None
    assert newest.generation == 41


def test_an_ended_trainers_own_folder_is_not_begun_in_by_accident(
    state: StateDir, tmp_path: Path
) -> None:
    run_dir = tmp_path / "run"
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


def test_old_logs_are_not_taken_for_a_new_trainings(
    state: StateDir, tmp_path: Path
) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    (logs / "0000000007.log").write_text("epoch 90")

    with pytest.raises(UsageError, match="holds what an earlier training printed"):
        submitted(state, a_job(tmp_path, logs=logs))


@pytest.mark.parametrize("theirs", ["runs/a", "runs", "runs/a/b"])
def test_two_trainers_never_share_a_folder(
    state: StateDir, tmp_path: Path, theirs: str
) -> None:
    submitted(
        state, a_job(tmp_path, checkpoint=CheckpointSettings(path=tmp_path / "runs/a"))
    )
    settings = CheckpointSettings(path=tmp_path / theirs)

    with pytest.raises(BadConfigurationError, match="of the trainer digits"):
        submitted(state, a_job(tmp_path, name="b", checkpoint=settings, elastic=False))

    assert set(rows(state)) == {"digits"}


def test_a_link_does_not_hide_a_shared_folder(state: StateDir, tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "runs")
    submitted(state, a_job(tmp_path, logs=tmp_path / "runs"))

    with pytest.raises(BadConfigurationError, match="lie in each other"):
        submitted(state, a_job(tmp_path, name="b", logs=tmp_path / "link/b"))


@pytest.mark.parametrize("place", ["state/trainers/digits/run", ".", "state"])
def test_no_folder_of_a_trainer_is_the_states(
    state: StateDir, tmp_path: Path, place: str
) -> None:
    job = a_job(tmp_path, checkpoint=CheckpointSettings(path=tmp_path / place))

    with pytest.raises(BadConfigurationError, match="the state directory"):
        submitted(state, job)


@pytest.mark.parametrize("content", ["", "[]", '{"A": 1}', '"A=1"'])
def test_a_damaged_environment_is_refused(digits: StateDir, content: str) -> None:
    folder = digits.trainer("digits")
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


@pytest.mark.parametrize(
    ("version", "name", "is_refused"),
    [
        ("mpirun (Open MPI) 5.0.11", "a b", True),
        ("mpirun (Open MPI) 4.1.4", "a:b", True),
        ("mpirun (Open MPI) 5.0.11", "ab", False),
        ("HYDRA build details", "a b", False),
        ("something else", "a b", False),
    ],
)
def test_a_state_directory_whose_path_mpirun_splits_is_refused_at_once(
    tmp_path: Path, version: str, name: str, *, is_refused: bool
) -> None:
    mpirun = tmp_path / "mpirun"
    mpirun.write_text(f"#!/bin/sh\necho '{version}'\n")
    mpirun.chmod(0o755)
    job, environment = a_job(tmp_path), {"PATH": f"{tmp_path}:{os.defpath}"}
    refuses = (
        pytest.raises(BadConfigurationError, match="Name another state_directory")
        if is_refused
        else nullcontext()
    )

    with refuses:
        check_launch_folder(job, tmp_path / name / "trainers" / "digits", environment)


@pytest.mark.parametrize(
    ("missing", "said"),
    [
        ("podman", "needs the program podman, which is not on your PATH"),
        ("image", "there is no image"),
        ("data", "which is not there"),
        ("", ""),
    ],
)
def test_a_container_s_runtime_image_and_folders_must_be_here_and_not_its_program(
    tmp_path: Path, missing: str, said: str
) -> None:
    for name in {"podman", "image", "data"} - {missing}:
        (tmp_path / name).touch(mode=0o755)
    container = ContainerSettings(
        image=f"{tmp_path}/image",
        runtime=ContainerRuntime.PODMAN,
        binds=(f"{tmp_path}/data:/data",),
    )
    job = a_job(tmp_path, command=("only-in-the-image",), container=container)
    refuses = (
        pytest.raises(BadConfigurationError, match=said) if said else nullcontext()
    )

    with refuses:
        check_program(job, {"PATH": str(tmp_path)})


def test_torchrun_of_an_image_is_not_looked_for_and_missing_gpus_are_remarked(
    tmp_path: Path,
) -> None:
    container = ContainerSettings(image="a", runtime=ContainerRuntime.PODMAN)
    nodes = NodeSettings(max_nodes=1, gpus_per_lease=1)
    launch = LaunchSettings(launcher="torchrun")
    job = a_job(tmp_path, container=container, nodes=nodes, launch=launch)

    found = remarks(job, {"PATH": ""}, [], beside=tmp_path, mounts="")

    assert [remark.partition(":")[0] for remark in found] == [
        "[container] gpus is missing"
    ]


def test_a_pack_needs_no_launchers_program(tmp_path: Path) -> None:
    launch = LaunchSettings(launcher="pack", pack=Path("/p.toml"))
    job = a_job(tmp_path, command=(), nodes=NodeSettings(max_nodes=1), launch=launch)

    assert remarks(job, {"PATH": ""}, [], beside=tmp_path, mounts="") == ()


@pytest.mark.parametrize("is_there", [False, True], ids=["none", "made by doctor"])
def test_a_preview_makes_nothing(
    state: StateDir, job: TrainerJob, *, is_there: bool
) -> None:
    if is_there:
        state.path.mkdir(mode=0o700)

    assert preview(state, a_submission(state, job), uid=UID).begin is Begin.NEW
    assert state.path.exists() == is_there
    assert not list(state.path.glob("*"))


def test_a_preview_is_refused_where_the_submission_would_be(
    state: StateDir, job: TrainerJob, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=r"of 1200 steps.*--go-on"):
        preview(state, a_submission(state, with_old_run(tmp_path)), uid=UID)

    state.path.mkdir(mode=0o755)
    with pytest.raises(BadConfigurationError, match="others can reach into"):
        preview(state, a_submission(state, job), uid=UID)


def test_a_pattern_that_backtracks_is_refused(tmp_path: Path) -> None:
    progress = ProgressSettings(form=ProgressFormat.PATTERN, pattern="(?P<step>a+)+b")
    job = structs.replace(a_job(tmp_path), elastic=False, progress=progress)

    with pytest.raises(BadConfigurationError, match="too long on the line 'aaa"):
        check_pattern(job)

    check_pattern(a_job(tmp_path))


@pytest.mark.skipif(os.geteuid() != 0, reason="needs files of another user")
def test_a_progress_file_behind_a_link_of_another_user_is_refused(
    tmp_path: Path,
) -> None:
    link = tmp_path / "log.csv"
    link.symlink_to(tmp_path / "real.csv")
    progress = ProgressSettings(form=ProgressFormat.CSV, file=link)
    job = structs.replace(a_job(tmp_path), elastic=False, progress=progress)
    tmp_path.chmod(0o1777)
    check_folders(job, uid=0)

    os.chown(link, 4_711, -1, follow_symlinks=False)

    with pytest.raises(BadConfigurationError, match="is a link of user 4711"):
        check_folders(job, uid=0)


def test_a_folder_that_others_can_change_is_refused(tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    job = structs.replace(a_job(tmp_path), checkpoint=CheckpointSettings(path=run))
    check_folders(job, uid=os.geteuid())

    run.chmod(0o777)

    with pytest.raises(BadConfigurationError, match=r"run `chmod o-w` on it"):
        check_folders(job, uid=os.geteuid())


def test_no_secret_is_in_a_folder_that_was_put_away(
    state: StateDir, tmp_path: Path
) -> None:
    secret = "hunter2"  # noqa: S105 -- what must not be found
    target = TargetSettings(deliver=1.0, hook=("tell", f"--token={secret}"))
    job = structs.replace(
        a_job(tmp_path),
        command=("python", "train.py", f"--key={secret}"),
        environment=(("API_KEY", secret),),
        target=target,
    )
    submitted(state, job, environment={"TOKEN": secret})
    folder = state.trainer(job.name)
    launch = folder.world(1) / "orders.json"
    launch.parent.mkdir(parents=True)
    launch.write_text(f'["{secret}"]')
    put_state(state, job.name, TrainerState.CANCELLED)

    outcome = submitted(state, job, on_left_over=OnLeftOver.ANEW)

    assert outcome.put_away is not None
    files = [path for path in outcome.put_away.rglob("*") if path.is_file()]
    assert {"job.toml", "environment.json"} <= {path.name for path in files}
    assert not [path for path in files if secret in path.read_text()]
    assert "API_KEY" in (outcome.put_away / "job.toml").read_text()
    assert secret in folder.job.read_text()


def test_folders_of_trainers_are_closed_to_others(
    state: StateDir, tmp_path: Path
) -> None:
    state.trainers.mkdir(parents=True)
    state.path.chmod(0o700)
    state.trainers.chmod(0o755)  # as earlier releases made it

    submitted(state, a_job(tmp_path))

    assert stat.S_IMODE(state.trainers.stat().st_mode) == 0o700
