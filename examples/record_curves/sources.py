"""The data sets that more than one training uses."""

from __future__ import annotations

from functools import partial

from examples.record_curves import splits

diabetes = partial(splits.numbers, "diabetes", 352)
cancer = partial(splits.classes, "breast_cancer", 448)
digits = partial(splits.digits, 1408)
friedman = partial(splits.generated, "friedman1", 1024, n_samples=1280, noise=1.0)
moons = partial(splits.generated, "moons", 1024, n_samples=1280, noise=0.25)
blobs = partial(
    splits.generated, "blobs", 2048, n_samples=2560, centers=12, cluster_std=1.5
)
mixture = partial(
    splits.generated,
    "classification",
    2048,
    n_samples=2560,
    n_informative=12,
    n_classes=4,
    flip_y=0.1,
)
