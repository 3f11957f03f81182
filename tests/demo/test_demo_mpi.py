"""The demo finds an MPI that works, or says what to install."""

import os
from pathlib import Path

import pytest

from freetrain.demo.live import INSTALL, NoMpiError, find_mpirun, judge, variables


@pytest.mark.parametrize(
    ("status", "said", "complained", "why"),
    [
        (0, "size 2\nsize 2\n", "a warning", ""),
        (0, "size 1\nsize 1\n", "", "another MPI"),
        (1, "", "ModuleNotFoundError: No module named 'mpi4py'", "not installed"),
        (1, "", "RuntimeError: cannot load MPI library\n", "cannot load MPI library"),
        (213, "", "", "exit status 213"),
    ],
)
def test_a_world_of_two_must_say_twice_that_it_is_two(
    status: int, said: str, complained: str, why: str
) -> None:
    found = judge(status, said, complained)

    assert why in found
    assert bool(found) == bool(why)


def fake_mpirun(folder: Path, name: str, line: str) -> Path:
    (folder / name).mkdir()
    path = folder / name / "mpirun"
    path.write_text(f"#!/bin/sh\n{line}\n")
    path.chmod(0o755)
    return path


def test_an_mpirun_that_mpi4py_does_not_go_with_is_passed_over(
    tmp_path: Path,
) -> None:
    wrong = fake_mpirun(tmp_path, "wrong", "echo size 1; echo size 1")
    right = fake_mpirun(tmp_path, "right", "echo size 2; echo size 2")
    path = os.pathsep.join(str(one.parent) for one in (wrong, right))
    nowhere = tmp_path / "python"

    assert find_mpirun({"PATH": path}, uid=1, python=nowhere) == right


def test_without_any_the_very_command_that_installs_one_is_told(
    tmp_path: Path,
) -> None:
    wrong = fake_mpirun(tmp_path, "wrong", "echo size 1; echo size 1")

    with pytest.raises(NoMpiError) as caught:
        find_mpirun({"PATH": str(wrong.parent)}, uid=1, python=tmp_path / "python")
    assert INSTALL in str(caught.value)
    assert "another MPI" in str(caught.value)

    with pytest.raises(NoMpiError, match="no mpirun is on the PATH"):
        find_mpirun({"PATH": str(tmp_path)}, uid=1, python=tmp_path / "python")


def test_root_is_allowed_what_others_need_no_leave_for() -> None:
    assert "OMPI_ALLOW_RUN_AS_ROOT" in variables(0)
    assert "OMPI_ALLOW_RUN_AS_ROOT" not in variables(1000)
