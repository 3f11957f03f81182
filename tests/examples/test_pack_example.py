"""The example of a pack trains, all three of it, as its files stand."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from freetrain.elastic.contract import OutcomeKind, read_outcome
from freetrain.elastic.files import RunDir
from freetrain.pack.pack import read_record
from tests.elastic.launching import REPOSITORY

EXAMPLE = REPOSITORY / "examples" / "pack"

pytestmark = pytest.mark.skipif(
    find_spec("sklearn") is None or not EXAMPLE.exists(),
    reason="no scikit-learn here (pip install scikit-learn), or no examples folder",
)


def test_three_small_trainers_share_a_node_and_finish(tmp_path: Path) -> None:
    folder = tmp_path / "pack"
    shutil.copytree(EXAMPLE, folder)
    for path in folder.glob("*.toml"):
        few = re.sub(r'"--epochs", "\d+"', '"--epochs", "2"', path.read_text())
        path.write_text(few)
    beside = Path(sys.executable).parent
    environ = os.environ | {
        "FREETRAIN_RUN_DIR": str(tmp_path / "run"),
        "PATH": f"{beside}:{os.environ['PATH']}",
        "PYTHONPATH": str(REPOSITORY),
    }

    done = subprocess.run(  # noqa: S603 -- a test's own words
        [sys.executable, "-m", "freetrain.pack", str(folder / "pack.toml")],
        env=environ,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    run = RunDir(tmp_path / "run")
    said = read_outcome(run, 1)
    assert said is not None
    assert said.kind is OutcomeKind.FINISHED
    steps = {name: line.steps for name, line in read_record(run).members.items()}
    assert steps == {"digits": 226, "wine": 24, "cancer": 72}
