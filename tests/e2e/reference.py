"""The losses of a training that nobody disturbs: one process, alone."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

from freetrain.elastic.files import RunDir
from tests.e2e.outcome import losses
from tests.e2e.stage import EXAMPLE, PROGRAM, TOP

if TYPE_CHECKING:
    from pathlib import Path

EPOCHS = 40
"""What all trainers of these tests train for: 920 steps."""


def undisturbed(folder: Path) -> dict[int, float]:
    """Train in *folder* and return the loss of each step."""
    variables = {"DIGITS_EPOCHS": str(EPOCHS), "OPENBLAS_NUM_THREADS": "1"}
    subprocess.run(  # noqa: S603 -- our own interpreter
        [sys.executable, str(PROGRAM), str(EXAMPLE)],
        check=True,
        env={"PATH": os.defpath, "PYTHONPATH": str(TOP)} | variables,
        cwd=folder,
    )
    return dict(losses(RunDir(folder / "freetrain-run")))
