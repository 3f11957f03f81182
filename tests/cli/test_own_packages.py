"""Modules of a user's called logs, milp or slurm never stand in for ours."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import logs

NAMES = ("logs", "milp", "slurm")
SAMPLE = Path(logs.__path__[0]) / "samples" / "week-512.swf"
COMMAND = str(Path(sys.executable).parent / "freetrain")
USERS = "raise SystemExit('the module of the user was run')\n"
LOCATIONS = "print(*(sys.modules[name].__file__ for name in ('logs', 'milp', 'slurm')))"


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    """Return a folder with modules of the three names."""
    for name in NAMES:
        (tmp_path / f"{name}.py").write_text(USERS)
    return tmp_path


def run(*words: str, cwd: Path, path: str) -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    return subprocess.run(  # noqa: S603 -- our own programs
        words,
        cwd=cwd,
        env=environment | ({"PYTHONPATH": path} if path else {}),
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("path", ["", ".", "FOLDER"])
@pytest.mark.parametrize(
    "words",
    [
        (COMMAND, "--version"),
        (COMMAND, "trace", "info", str(SAMPLE)),
        (sys.executable, "-m", "freetrain", "trace", "info", str(SAMPLE)),
        (sys.executable, "-m", "freetrain.agent", "--help"),
        (sys.executable, "-m", "freetrain.pack", "--help"),
    ],
    ids=["version", "command", "module", "agent", "pack"],
)
def test_our_programs_run_whatever_modules_a_user_has(
    hostile: Path, words: tuple[str, ...], path: str
) -> None:
    if not Path(COMMAND).exists():
        pytest.skip(f"{COMMAND} is not installed")

    done = run(*words, cwd=hostile, path=path.replace("FOLDER", str(hostile)))

    assert (done.returncode, done.stderr) == (0, "")


def test_a_process_that_a_command_starts_finds_ours_too(hostile: Path) -> None:
    """Spawned workers import the main module again, and do not call it."""
    program = f"import freetrain.__main__, logs, milp, slurm, sys; {LOCATIONS}"

    done = run(sys.executable, "-c", program, cwd=hostile, path=str(hostile))

    assert done.stderr == ""
    beside = Path(logs.__path__[0]).parent
    assert [Path(p).parents[1] for p in done.stdout.split()] == [beside] * 3


@pytest.mark.parametrize("path", ["", "."])
def test_a_training_program_gets_the_modules_of_its_user(
    tmp_path: Path, path: str
) -> None:
    for name in NAMES:
        (tmp_path / f"{name}.py").write_text("")
    program = tmp_path / "train.py"
    program.write_text(
        "import sys\nfrom freetrain import elastic\nelastic.join\n"
        f"import logs, milp, slurm\n{LOCATIONS}\n"
    )

    done = run(sys.executable, str(program), cwd=tmp_path, path=path)

    assert done.stderr == ""
    assert [Path(p).parent for p in done.stdout.split()] == [tmp_path] * 3
