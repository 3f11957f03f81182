"""The two sets of trainers that FreeTrain's published evaluation used.

Speeds, arrivals, amounts of work, grow and shrink times are the published ones.
Not published, and ours: ``START_S`` (the paper starts trainers for free; a start
loads the same checkpoint as growing does, so it costs the same) and
``CHECKPOINT_EVERY_S``. Only the ``real`` accounting reads these two.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from freetrain.errors import UsageError
from freetrain.trainers.scaling import interpolate, measured_points
from freetrain.trainers.spec import Costs, TrainerSpec

if TYPE_CHECKING:
    from freetrain.trainers.spec import Scaling

BUILTIN_NAMES = ("hps", "imagenet")
IMAGENET_MODELS = (
    "AlexNet",
    "vgg16",
    "resnet18",
    "DenseNet",
    "mnasnet1",
    "shufflenet",
    "mobilenet",
)
HPS_COUNT = 1_000
IMAGENET_COUNT = 1_001
SAMPLES = 1.3e8
"""About 100 epochs of ImageNet."""
ARRIVAL_EVERY_S = 36.0
GROW_S = 18.0
SHRINK_S = 12.0
START_S = 18.0
CHECKPOINT_EVERY_S = 60.0
"""Young's rule, sqrt(2 x 1 s to write x 1,192 s between losses) = 49 s, rounded up:
1,192 s is the mean hole of the Summit log; the largest, vgg16, has 138 M weights."""
FIXED_NODES = 8


def builtin_trainers(name: str) -> tuple[TrainerSpec, ...]:
    """Return the built-in set *name*: ``hps`` or ``imagenet``.

    ``hps`` is a hyper-parameter search, 1,000 identical ShuffleNets;
    ``imagenet`` is 1,001 trainers that cycle through seven networks.

    Raises:
        UsageError: There is no such set.

    Source: BFTrainer (arXiv 2106.12091), as its replay scripts set it up.
    """
    if name == "hps":
        return _set(("shufflenet",), count=HPS_COUNT)
    if name == "imagenet":
        return _set(IMAGENET_MODELS, count=IMAGENET_COUNT)
    raise UsageError(
        f"there is no built-in set of trainers {name!r}; nothing was replayed. "
        f"Choose one of {', '.join(BUILTIN_NAMES)}, or name a TOML file."
    )


def _set(models: tuple[str, ...], *, count: int) -> tuple[TrainerSpec, ...]:
    points = measured_points()
    scalings = [interpolate(model, points[model]) for model in models]
    costs = Costs(
        grow_s=GROW_S,
        shrink_s=SHRINK_S,
        start_s=START_S,
        checkpoint_every_s=CHECKPOINT_EVERY_S,
    )
    return tuple(
        _trainer(k, scaling=scalings[k % len(scalings)], costs=costs)
        for k in range(count)
    )


def _trainer(k: int, *, scaling: Scaling, costs: Costs) -> TrainerSpec:
    return TrainerSpec(
        name=f"{scaling.model}-{k + 1:04d}",
        scaling=scaling,
        samples=SAMPLES,
        arrival_s=k * ARRIVAL_EVERY_S,
        costs=costs,
        fixed_nodes=FIXED_NODES,
    )
