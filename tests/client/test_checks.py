"""Submission checks the program that a launcher runs, not the launcher's name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from freetrain.client.submit import remarks
from freetrain.config.job import LaunchSettings, NodeSettings
from tests.client.client_states import a_job


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
