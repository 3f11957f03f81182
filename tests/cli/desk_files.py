"""A user's folder with a configuration and a job, for tests of commands."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from freetrain.state.files import StateDir
from tests.cli.worlds import Ran, run

if TYPE_CHECKING:
    from pathlib import Path

JOB = """\
name = "digits"
command = ["python3", "train.py"]

[nodes]
max = 8
"""


def at_home(folder: Path, job: str = JOB) -> StateDir:
    """Write a configuration and a job file; return where the state will be."""
    (folder / "freetrain.toml").write_text('state_directory = "state"\n')
    (folder / "job.toml").write_text(job)
    return StateDir(folder / "state")


def run_json(*words: str, cwd: Path, **changes: Any) -> Any:  # noqa: ANN401 - JSON
    """Return what a command shows with ``--json``."""
    ran = run(*words, "--json", cwd=cwd, **changes)
    assert ran.code == 0, ran.stderr
    return json.loads(ran.stdout)


def refused(*words: str, cwd: Path, code: int) -> str:
    """Return the one line with which a command refuses."""
    ran: Ran = run(*words, cwd=cwd)
    assert ran.code == code, ran.stderr
    assert ran.stdout == ""
    assert ran.stderr.count("\n") == 1
    return ran.stderr
