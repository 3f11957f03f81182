"""End many process groups while a model that DDP wrapped outlives each of them."""

import os
from importlib import import_module
from typing import Any

import numpy as np

from freetrain.elastic.torch_world import torch_world

ROUNDS = 300
# Imported by name: where PyTorch is not installed, types are checked all the same.
nn: Any = import_module("torch.nn")
torch: Any = import_module("torch")


def train_and_end() -> None:
    """Train a step; the wrapped model goes when this returns, after its group."""
    with torch_world(backend="gloo", environment={}) as world:
        shared = nn.parallel.DistributedDataParallel(nn.Linear(4, 4))
        shared(torch.ones(2, 4)).sum().backward()
        for _ in range(3):
            world.maxima(np.array([1, 2, 3]))


if __name__ == "__main__":
    # On one core gloo's thread is interrupted where it matters.
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    for _ in range(ROUNDS):
        train_and_end()
