"""What the documents show runs as it is written, and so do the examples."""

from __future__ import annotations

import re
import textwrap
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from freetrain import elastic
from tests.elastic.launching import REPOSITORY, wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.elastic.launching import Stand

pytestmark = pytest.mark.long

DIGITS = REPOSITORY / "examples" / "digits" / "train.py"
PAGE = REPOSITORY / "docs" / "guide" / "own-program.md"

needs_digits = pytest.mark.skipif(
    find_spec("sklearn") is None or not DIGITS.exists(),
    reason="no scikit-learn here (pip install scikit-learn), or no examples folder",
)


def ten_lines() -> str:
    found = re.search(r"::\n\n(.*?)\n\nThe same", elastic.__doc__ or "", re.DOTALL)
    assert found
    return textwrap.dedent(found[1])


@pytest.mark.skipif(not PAGE.exists(), reason="no docs folder here")
def test_the_ten_lines_are_ten_and_the_page_shows_the_same() -> None:
    assert f"```python\n{ten_lines()}\n```" in PAGE.read_text()
    assert len([line for line in ten_lines().splitlines() if line.strip()]) <= 10


def test_the_ten_lines_train_as_they_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = np.random.default_rng(0).normal(size=(203, 4))
    y = x @ np.array([1.0, 2.0, 3.0, 4.0])

    def loss_and_gradient(
        weights: np.ndarray, indices: np.ndarray
    ) -> tuple[float, np.ndarray]:
        error = x[indices] @ weights - y[indices]
        return float(error @ error), x[indices].T @ error

    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"np": np, "x": x, "loss_and_gradient": loss_and_gradient}

    exec(ten_lines(), names)  # noqa: S102  # our own documentation

    assert names["run"].finished
    np.testing.assert_allclose(names["state"]["weights"], [1, 2, 3, 4], atol=1e-3)


@needs_digits
def test_digits_alone_learns_to_recognise_them(stand: Stand) -> None:
    world = stand.launch(1, 1, str(DIGITS))

    assert world.wait() == 0, world.log.read_text()
    assert stand.lines()[-1]["accuracy"] > 0.95
    assert stand.outcome(1)["outcome"] == "finished"


@needs_digits
def test_digits_begun_by_two_ranks_is_finished_by_one_with_the_same_losses(
    mpi_stand: Stand, stand: Stand
) -> None:
    assert stand.launch(1, 1, str(DIGITS)).wait() == 0
    world = mpi_stand.launch(2, 1, str(DIGITS))
    wait_until(lambda: len(mpi_stand.lines()) > 5)

    mpi_stand.ask_to_stop(1)

    assert world.wait() == 0
    assert mpi_stand.outcome(1)["outcome"] == "rescaled"
    assert mpi_stand.launch(1, 2, str(DIGITS)).wait() == 0
    losses = {line["step"]: line["loss"] for line in stand.lines() if "loss" in line}
    for line in mpi_stand.lines():
        assert "event" in line or line["loss"] == losses[line["step"]]
    assert mpi_stand.committed().position == stand.committed().position
