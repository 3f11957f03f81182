"""PyTorch DDP under freetrain.elastic: stopped, killed, rescaled, and the same."""

import os
import signal
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.elastic.launching import REPOSITORY, Launched, Stand, wait_until
from tests.examples.torchrun import TorchStand

PROGRAM = str(REPOSITORY / "examples" / "torch_ddp" / "train.py")
CONTRACT = ("-m", "tests.examples.torch_contract")
# More than any test waits for: a world ends when it is asked to.
ENDLESS = ("--epochs", "100000")
# Measured: 2e-6 after 345 steps on 2 and 4 ranks. A sample more or less makes 1e-2.
TOLERANCE = 1e-4

pytestmark = pytest.mark.skipif(
    find_spec("torch") is None
    or find_spec("sklearn") is None
    or not (REPOSITORY / "examples").exists(),
    reason="no PyTorch here (pip install torch scikit-learn), or no examples folder",
)


@pytest.fixture
def worlds(tmp_path: Path) -> Iterator[TorchStand]:
    made = TorchStand(tmp_path / "worlds")
    yield made
    made.close()


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[Stand]:
    made = Stand(tmp_path / "alone")
    yield made
    made.close()


def train_a_while(
    worlds: TorchStand, size: int, generation: int, *how: str
) -> Launched:
    """Start a generation, and return when it has trained some steps."""
    before = len(worlds.lines())
    world = worlds.torchrun(size, generation, PROGRAM, *ENDLESS, *how)

    def has_trained() -> bool:
        assert world.process.poll() is None, world.log.read_text()
        return len(worlds.lines()) > before + 20

    wait_until(has_trained)
    return world


def finish(worlds: Stand, world: Launched) -> None:
    assert world.wait() == 0, world.log.read_text()
    assert worlds.outcome(world.generation)["outcome"] == "finished"


def losses(stand: Stand) -> list[tuple[int, float]]:
    """Every loss that was told, with its step; steps may come more than once."""
    return [(line["step"], line["loss"]) for line in stand.lines() if "loss" in line]


def undisturbed(alone: Stand, epochs: int, *how: str) -> dict[int, float]:
    """The losses of one process that nobody disturbs."""
    finish(alone, alone.launch(1, 1, PROGRAM, "--epochs", str(epochs), *how))
    return dict(losses(alone))


def samples_per_step(stand: Stand) -> dict[int, int]:
    return {line["step"]: line["samples"] for line in stand.lines()}


def rescale_twice(worlds: TorchStand, *how: str) -> int:
    """Train on 2, 4 and 1 ranks; return how many epochs that came to."""
    for generation, size in enumerate((2, 4), start=1):
        world = train_a_while(worlds, size, generation, *how)
        worlds.ask_to_stop(generation)
        assert world.wait() == 0, world.log.read_text()
        assert worlds.outcome(generation)["outcome"] == "rescaled"
    epochs = worlds.committed().position.epoch + 2
    finish(worlds, worlds.torchrun(1, 3, PROGRAM, "--epochs", str(epochs), *how))
    return epochs


@pytest.mark.parametrize("size", [1, 3])
def test_a_world_of_torchrun_keeps_the_contract(worlds: TorchStand, size: int) -> None:
    world = worlds.torchrun(size, 1, *CONTRACT)

    assert world.wait() == 0, world.log.read_text()


def test_a_torch_world_of_mpi_ranks_keeps_the_contract(
    tmp_path: Path, mpirun: tuple[str, ...]
) -> None:
    stand = Stand(tmp_path, mpirun)
    try:
        world = stand.launch(2, 1, *CONTRACT)

        assert world.wait() == 0, world.log.read_text()
    finally:
        stand.close()


def test_no_end_of_a_group_hangs_while_its_model_lives_on(alone: Stand) -> None:
    world = alone.launch(1, 1, "-m", "tests.examples.torch_endings")

    assert world.wait() == 0, world.log.read_text()


def test_alone_it_learns_to_recognise_digits(alone: Stand) -> None:
    undisturbed(alone, 15)

    assert alone.lines()[-1]["accuracy"] > 0.95


def test_rescaled_by_ddp_it_has_the_losses_of_one_process_within_tolerance(
    worlds: TorchStand, alone: Stand
) -> None:
    epochs = rescale_twice(worlds)

    expected = undisturbed(alone, epochs)

    found = losses(worlds)
    assert [step for step, _ in found] == list(range(1, len(expected) + 1))
    for step, loss in found:
        assert loss == pytest.approx(expected[step], rel=TOLERANCE, abs=TOLERANCE)
    assert samples_per_step(worlds) == samples_per_step(alone)


def test_rescaled_with_exact_sums_it_has_the_losses_of_one_process_to_the_bit(
    worlds: TorchStand, alone: Stand
) -> None:
    epochs = rescale_twice(worlds, "--exact")

    expected = undisturbed(alone, epochs, "--exact")

    assert losses(worlds) == sorted(expected.items())


def test_a_killed_rank_ends_its_world_and_costs_what_was_not_committed(
    worlds: TorchStand, alone: Stand
) -> None:
    world = train_a_while(worlds, 2, 1, "--exact")
    os.kill(worlds.ranks(1)[1], signal.SIGKILL)
    assert world.wait() != 0
    wait_until(lambda: not worlds.ranks(1))
    epochs = worlds.committed().position.epoch + 2

    last = worlds.torchrun(3, 2, PROGRAM, "--exact", "--epochs", str(epochs))

    finish(worlds, last)
    expected = undisturbed(alone, epochs, "--exact")
    assert {step for step, _ in losses(worlds)} >= set(expected)
    for step, loss in losses(worlds):
        assert loss == expected.get(step, loss)


def test_torchrun_passes_term_on_and_the_outcome_counts_not_its_exit_code(
    worlds: TorchStand,
) -> None:
    world = train_a_while(worlds, 2, 1)

    world.process.send_signal(signal.SIGTERM)

    assert world.wait() == 1
    assert worlds.outcome(1)["outcome"] == "rescaled"
    assert worlds.outcome(1)["step"] == worlds.outcome(1)["committed_step"]


def test_without_pytorch_it_says_what_to_install(alone: Stand, tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise ImportError('no such thing')\n")

    world = alone.launch(1, 1, *CONTRACT, PYTHONPATH=str(tmp_path))

    assert world.wait() == 1
    told: Any = world.log.read_text()
    assert "pip install torch" in told
