"""Job files: what they mean, what they render as."""

from pathlib import Path

import pytest
from hypothesis import given

from freetrain.config import job as jobs
from freetrain.config.document import Places
from freetrain.config.job import TrainerJob, parse_job, read_job, render_job
from freetrain.errors import BadConfigurationError, MissingInputError
from freetrain.losscurve.forecast import Better
from slurm.records import Gres
from tests.config.job_files import (
    LEAST,
    PLACES,
    WHOLE,
    pack_file,
    parse,
    trainer_jobs,
    with_line,
)

ELSEWHERE = Places(Path("/elsewhere"))
EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def test_a_job_file_says_everything_about_a_trainer() -> None:
    job = parse(WHOLE)

    assert job.name == "digits"
    assert job.command == ("python", "train.py", "--note", "two words; $(rm -rf /)")
    assert job.directory == Path("/home/ada/work/src")
    assert job.environment == (("EMPTY", ""), ("OMP_PROC_BIND", "close"))
    assert job.logs == Path("/home/ada/logs")
    assert (job.weight, job.order, job.elastic) == (
        2.0,
        jobs.ServiceOrder.BACKGROUND,
        False,
    )
    assert job.scaling == ((1, 100.0), (4, 350.0))
    assert job.nodes.sizes == (2, 4, 8)
    assert job.nodes.gres == (Gres("gpu", "a100", 2), Gres("nvme", "", 1))
    assert (job.nodes.memory_mib, job.nodes.cpus) == (65_536, 16)
    assert (job.nodes.partition, job.nodes.features) == ("gpu", ("a100", "ib"))


def test_a_pack_names_its_file_and_no_program() -> None:
    job = parse(pack_file(top="weight = 2"))

    assert job.launch.launcher == "pack"
    assert job.launch.pack == PLACES.folder / "pack.toml"
    assert (job.command, job.nodes.sizes, job.weight) == ((), (1,), 2.0)


def test_a_job_file_says_how_a_trainer_runs() -> None:
    job = parse(WHOLE)

    assert job.launch.launcher == "srun"
    assert (job.launch.processes_per_node, job.launch.threads) == (2, 8)
    assert (job.launch.ahead, job.launch.spare) == (False, False)
    assert (job.work.epochs, job.work.time_limit_s) == (20, 172_800.0)
    assert job.checkpoint == jobs.CheckpointSettings(
        path=Path("/scratch/ada/digits"), every_s=30.0
    )
    assert job.stop == jobs.StopSettings(signal=jobs.StopSignal.TERM, kill_after_s=10.0)
    assert job.restart == jobs.RestartSettings(attempts=5, wait_s=60.0)
    assert job.progress is not None
    assert job.progress.file == Path("/home/ada/work/train.log")
    assert job.costs == jobs.RescaleCosts(grow_s=18.0, shrink_s=12.0, start_s=20.0)


def test_a_job_file_says_what_is_wanted_of_a_trainer() -> None:
    job = parse(WHOLE)

    assert job.deadline is not None
    assert job.deadline.time_s(0.0) == 1_798_131_600.0
    assert job.quality == jobs.QualitySettings(metric="loss", better=Better.HIGHER)
    assert job.target == jobs.TargetSettings(
        deliver=-1.0, final=0.25, hook=("notify", "--of", "two words"), hook_limit_s=5.0
    )


def test_a_deadline_may_be_a_duration_and_counts_from_the_submission() -> None:
    job = parse(with_line('deadline = "2h"'))

    assert job.deadline is not None
    assert job.deadline.time_s(1_000.0) == 8_200.0


def test_without_a_word_a_lower_loss_is_better_and_nothing_is_written_about_it() -> (
    None
):
    job = parse(LEAST)

    assert job.measure == jobs.QualitySettings(metric="loss", better=Better.LOWER)
    assert job.measure.is_reached(0.5, 0.5)
    assert not job.measure.is_reached(0.5, float("nan"))
    assert "[quality]" not in render_job(job)
    assert "[target]" not in render_job(job)


def test_name_command_and_most_nodes_are_enough() -> None:
    job = parse(LEAST)

    assert job == TrainerJob(
        name="digits",
        command=("python", "train.py"),
        directory=PLACES.folder,
        nodes=jobs.NodeSettings(max_nodes=4),
    )
    assert job.nodes.sizes == (1, 2, 3, 4)


@given(trainer_jobs())
def test_what_is_rendered_reads_back_as_the_same_from_anywhere(job: TrainerJob) -> None:
    text = render_job(job)

    again = parse_job(text.encode(), path="job.toml", places=ELSEWHERE)

    assert again == job
    assert render_job(again) == text


def test_a_rendered_job_says_the_defaults_too() -> None:
    text = render_job(parse(LEAST))

    assert 'directory = "/home/ada/work"' in text
    assert '[checkpoint]\nevery = "1min"' in text


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*/job*.toml")), ids=str)
def test_every_example_is_a_job_file(path: Path) -> None:
    job = read_job(path)

    assert job.directory == path.parent
    assert job.elastic == (path.parent.name != "legacy")


def test_a_missing_file_is_missing_input(tmp_path: Path) -> None:
    with pytest.raises(MissingInputError, match=r"cannot read job file gone\.toml: No"):
        read_job(tmp_path / "gone.toml", named="gone.toml")


def test_a_name_with_nul_is_missing_input(tmp_path: Path) -> None:
    with pytest.raises(MissingInputError, match="Nothing was submitted"):
        read_job(tmp_path / "a\0b")


def test_an_endless_file_is_refused_before_it_is_read_whole() -> None:
    with pytest.raises(BadConfigurationError, match="larger than 1 MiB"):
        read_job(Path("/dev/zero"))
