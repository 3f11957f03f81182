"""The blocks of docs/guide/own-program.md, as they stand there, train to the end."""

import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from freetrain.elastic.contract import OutcomeKind, read_outcome
from freetrain.elastic.files import RunDir
from tests.elastic.launching import PATIENCE_S, REPOSITORY, clean_environment

GUIDE = REPOSITORY / "docs" / "guide" / "own-program.md"
BLOCK = re.compile(r"```python\n(from freetrain\.integrations\.(\w+).*?)```", re.DOTALL)

BEFORE = """
import torch
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader
from tests.integrations.tiny import *
data, make_model = TinyData(96), TinyModel
"""
BEFORE_EACH = {
    "torch": "",
    "transformers": """
from transformers import Trainer, TrainingArguments as Arguments
from tests.integrations.transformers_program import Words, make_model
def TrainingArguments(*given, **more):
    return Arguments(*given, **more, use_cpu=True, report_to=[])
data = Words(96)
""",
    "lightning": """
from functools import partial
from lightning.pytorch import Trainer
from tests.integrations.lightning_program import PlainModule as make_module
Trainer = partial(Trainer, accelerator="cpu", logger=False)
""",
}


@pytest.mark.parametrize("library", BEFORE_EACH)
def test_the_block_of_the_guide_trains(library: str, tmp_path: Path) -> None:
    if find_spec(library) is None:
        pytest.skip(f"no {library} here")
    (block,) = [
        code for code, name in BLOCK.findall(GUIDE.read_text()) if name == library
    ]
    program = tmp_path / "program.py"
    program.write_text(BEFORE + BEFORE_EACH[library] + block)

    ended = subprocess.run(  # noqa: S603 -- our own program
        [sys.executable, str(program)],
        cwd=tmp_path,
        env=clean_environment() | {"PYTHONPATH": str(REPOSITORY)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )

    outcome = read_outcome(RunDir(tmp_path / "freetrain-run"), 1)
    assert outcome is not None, ended.stdout
    assert outcome.kind is OutcomeKind.FINISHED, ended.stdout
    assert outcome.committed_step == 24
