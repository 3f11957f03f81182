"""Train an MLP on scikit-learn's digits with PyTorch DDP, on however many ranks.

Alone, ``python train.py``; ``torchrun --nproc-per-node=2 train.py``; with mpi4py,
``mpirun -n 2 python train.py``; in the holes of a cluster, with ``job.toml``. Start it
again after it was stopped or killed, on another number of ranks, and it goes on: every
sample of every epoch is used exactly once.

The gradients are DDP's, whose sums are rounded differently by other numbers of ranks,
so that losses agree to about six digits at first and to fewer later. ``--exact`` adds
gradients up by ``run.sum`` instead: the same bits on any number of ranks, but slower.
"""

from __future__ import annotations

import argparse
import os
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

from freetrain import elastic
from freetrain.elastic.torch_world import torch_world

if TYPE_CHECKING:
    from collections.abc import Callable

GLOBAL_BATCH = 64
LEARNING_RATE = 0.1
MOMENTUM = 0.9
HIDDEN = 64
SEED = 1
VALIDATION = 360


def main() -> None:
    """Train to the end, or until asked to stop."""
    arguments = argparse.ArgumentParser(description="Train on digits with PyTorch.")
    arguments.add_argument("--exact", action="store_true", help="the same to the bit")
    arguments.add_argument("--epochs", type=int, default=15, help="15 unless given")
    given = arguments.parse_args()

    device = find_device()
    images, labels = (part.to(device) for part in load())
    train_set = images[VALIDATION:], labels[VALIDATION:]
    torch.manual_seed(SEED)
    model = torch.nn.Sequential(
        torch.nn.Linear(64, HIDDEN), torch.nn.ReLU(), torch.nn.Linear(HIDDEN, 10)
    ).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE, momentum=MOMENTUM)

    with torch_world() as world, elastic.join(world=world) as run:
        load_state(model, optimizer, run.restore(state_of(model, optimizer)))
        step = exact_step(run, model) if given.exact else ddp_step(run, model)
        for batch in run.batches(
            samples=len(train_set[0]),
            global_batch=GLOBAL_BATCH,
            epochs=given.epochs,
            seed=SEED,
        ):
            loss = step(batch, *train_set)
            optimizer.step()

            metrics = {"loss": loss}
            if batch.last_of_epoch and run.rank == 0:
                metrics["accuracy"] = accuracy(model, images, labels)
            run.end_step(lambda: state_of(model, optimizer), **metrics)

        if run.finished and run.rank == 0:
            reached = accuracy(model, images, labels)
            sys.stdout.write(f"validation accuracy {reached:.4f}\n")


def ddp_step(run: elastic.Fragment, model: torch.nn.Module) -> Callable[..., float]:
    """Gradients by DDP: this rank's share of the batch, averaged over ranks."""
    shared = DistributedDataParallel(model)

    def step(batch: elastic.Batch, images: torch.Tensor, labels: torch.Tensor) -> float:
        own = torch.from_numpy(batch.mine.indices).to(images.device)
        shared.zero_grad()
        loss = cross_entropy(shared(images[own]), labels[own], reduction="sum")
        # Shares differ in size, and DDP divides by the number of ranks: this makes
        # it the mean over the batch. A rank without samples adds zeros.
        (loss * (run.size / len(batch))).backward()
        (total,) = run.world.total(np.array([loss.item()]))
        return float(total) / len(batch)

    return step


def exact_step(run: elastic.Fragment, model: torch.nn.Module) -> Callable[..., float]:
    """Gradients by ``run.sum``: chunk by chunk, added up in a fixed order."""
    weights = list(model.parameters())

    def step(batch: elastic.Batch, images: torch.Tensor, labels: torch.Tensor) -> float:
        def sums(chunk: elastic.Chunk) -> tuple[Any, ...]:
            own = torch.from_numpy(chunk.indices).to(images.device)
            model.zero_grad()
            loss = cross_entropy(model(images[own]), labels[own], reduction="sum")
            loss.backward()
            return loss.item(), *(weight.grad.cpu().numpy() for weight in weights)

        loss, *gradients = run.sum(batch, sums)
        for weight, gradient in zip(weights, gradients, strict=True):
            weight.grad = torch.from_numpy(gradient / len(batch)).to(weight)
        return float(loss) / len(batch)

    return step


def state_of(
    model: torch.nn.Module, optimizer: torch.optim.Optimizer
) -> dict[str, dict[str, Any]]:
    """All that the next step depends on, as NumPy arrays by name."""
    weights = dict(model.named_parameters())
    speeds = {name: speed_of(optimizer, weights[name]) for name in weights}
    return {
        "weights": {n: w.detach().cpu().numpy() for n, w in weights.items()},
        "speed": {n: speed.cpu().numpy() for n, speed in speeds.items()},
    }


def load_state(
    model: torch.nn.Module, optimizer: torch.optim.Optimizer, state: dict[str, Any]
) -> None:
    """Put what ``state_of`` returned back where it was."""
    for name, weight in model.named_parameters():
        weight.data = torch.from_numpy(state["weights"][name]).to(weight)
        speed = torch.from_numpy(state["speed"][name]).to(weight)
        optimizer.state[weight]["momentum_buffer"] = speed


def speed_of(
    optimizer: torch.optim.Optimizer, weight: torch.nn.Parameter
) -> torch.Tensor:
    """The momentum of *weight*; zero before the first step."""
    speed = optimizer.state[weight].get("momentum_buffer")
    return torch.zeros_like(weight) if speed is None else speed


def find_device() -> torch.device:
    """This rank's GPU, or the CPU where there is none."""
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
        return torch.device("cuda", torch.cuda.current_device())
    return torch.device("cpu")


def load() -> tuple[torch.Tensor, torch.Tensor]:
    """1,797 images of 8 x 8 pixels and their digits, shuffled, always the same."""
    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(images))
    scaled = (images[order] / 16.0).astype(np.float32)
    return torch.from_numpy(scaled), torch.from_numpy(labels[order])


@torch.no_grad()
def accuracy(
    model: torch.nn.Module, images: torch.Tensor, labels: torch.Tensor
) -> float:
    """The share of validation images that are recognised."""
    found = model(images[:VALIDATION]).argmax(dim=1)
    return float((found == labels[:VALIDATION]).double().mean())


if __name__ == "__main__":
    main()
