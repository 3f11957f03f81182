"""What the programs of these tests share: data, a record of samples, and accidents."""

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import torch

SAMPLES = 100
WORDS = 8
GLOBAL_BATCH = 8
EPOCHS = int(os.environ.get("TEST_EPOCHS", "2"))
PIECE_S = float(os.environ.get("TEST_PIECE_S", "0"))
STEPS = SAMPLES // GLOBAL_BATCH * EPOCHS
DROPOUT = float(os.environ.get("TEST_DROPOUT", "0"))
# Long enough for a request to be noticed in the middle.
EVALUATION_BATCHES = int(os.environ.get("TEST_EVALUATION", "30"))
EVALUATE_EVERY = 8


class TinyData(torch.utils.data.Dataset):
    """Random words; the first word of a sample is its index."""

    def __init__(self, samples: int = SAMPLES) -> None:
        made = torch.Generator().manual_seed(7)
        self.words = torch.randint(0, SAMPLES, (samples, WORDS), generator=made)
        self.words[:, 0] = torch.arange(samples)

    def __len__(self) -> int:
        return len(self.words)

    def __getitem__(self, index: int) -> Any:
        return self.words[index]


class TinyModel(torch.nn.Module):
    """Guesses the last word of a sample; returns the mean loss."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = torch.nn.Embedding(SAMPLES, 8)
        self.drop = torch.nn.Dropout(DROPOUT)
        self.out = torch.nn.Linear(8, SAMPLES)

    def forward(self, words: Any) -> Any:
        hidden = self.drop(torch.tanh(self.embed(words[:, :-1]))).mean(dim=1)
        return torch.nn.functional.cross_entropy(self.out(hidden), words[:, -1])


class Record:
    """Writes which samples each step of this rank used, and has accidents happen."""

    def __init__(self, fragment: Any) -> None:
        self._fragment = fragment
        self._file = Path(os.environ["TEST_RECORD"]) / (
            f"{fragment.generation}-{fragment.rank}.jsonl"
        )
        self._file.parent.mkdir(exist_ok=True)
        self._used: list[int] = []

    def use(self, words: Any) -> None:
        """Note the samples of a piece."""
        self._used += words[:, 0].tolist()
        time.sleep(PIECE_S)

    @property
    def is_between_steps(self) -> bool:
        return not self._used

    def step(self, step: int) -> None:
        """Note the end of *step*, of the training, from 1 on."""
        self.write(step=step, samples=self._used)
        self._used = []
        if os.environ.get("TEST_KILL") == f"{self._fragment.rank}:{step}":
            os.kill(os.getpid(), signal.SIGKILL)

    def at(self, place: str, step: int) -> None:
        """Ask for a stop here, if the test says so."""
        if os.environ.get("TEST_STOP") == f"{place}:{step}":
            os.kill(os.getpid(), signal.SIGTERM)

    def evaluate(self, place: str, step: int, batch: int) -> None:
        """Note a batch of an evaluation, which draws random numbers, too."""
        torch.rand(3)
        time.sleep(0.02)
        self.write(evaluated=batch, step=step)
        if batch == 1:
            self.at(place, step)

    def evaluate_where_due(self, run: Any, step: int) -> None:
        """Evaluate after every few steps in a loop of the program's own."""
        if step % EVALUATE_EVERY == 0 and not run.leaving:
            for batch in range(EVALUATION_BATCHES):
                self.evaluate("evaluation", step, batch)
                run.poll()
            run.rewind_random()

    def write(self, **fields: Any) -> None:
        with self._file.open("a") as file:
            file.write(json.dumps(fields) + "\n")
