"""Every example can be submitted as it stands."""

from pathlib import Path

import pytest

from freetrain.client.submit import members_of
from freetrain.config.job import read_job
from tests.elastic.launching import REPOSITORY

JOBS = sorted((REPOSITORY / "examples").glob("*/job.toml"))


@pytest.mark.parametrize("path", JOBS, ids=lambda path: path.parent.name)
def test_the_job_file_of_an_example_names_a_program_beside_it(path: Path) -> None:
    job = read_job(path)

    for trainer in members_of(job, home=None) or (job,):
        assert (path.parent / trainer.command[1]).is_file()
        assert trainer.elastic is (trainer.progress is None)
    assert job.name.replace("-", "_") == path.parent.name
    assert job.directory == path.parent
    assert job.elastic == (path.parent.name != "legacy")
