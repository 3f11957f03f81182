"""Training speed by node count, from measured points."""

from __future__ import annotations

import csv
from importlib import resources
from typing import TYPE_CHECKING

import numpy as np

from freetrain.trainers.spec import Scaling

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

TABLE = "summit_dnn_scaling.csv"


def interpolate(
    model: str,
    points: Mapping[int, float],
    *,
    sizes: Iterable[int] | None = None,
) -> Scaling:
    """Return the scaling through *points*, linear between them.

    Args:
        model: The network's name.
        points: Speed in samples/s by node count above 0; 0 nodes train nothing.
        sizes: Node counts it can run on, each above 0 and at most the largest
            one measured; None for every count from 1 on.
    """
    measured = sorted(points.items())
    most = measured[-1][0]
    speeds = np.interp(
        np.arange(most + 1),
        [0, *(nodes for nodes, _ in measured)],
        [0.0, *(speed for _, speed in measured)],
    )
    speeds.setflags(write=False)
    chosen = range(1, most + 1) if sizes is None else sorted(set(sizes))
    return Scaling(model=model, samples_per_s=speeds, sizes=tuple(chosen))


def measured_points() -> dict[str, dict[int, float]]:
    """Return images/s by model and node count, as measured on Summit.

    Source: published with BFTrainer (arXiv 2106.12091); ships as a table.
    """
    text = resources.files("freetrain.trainers").joinpath(TABLE).read_text("utf-8")
    rows = csv.DictReader(line for line in text.splitlines() if line[0] != "#")
    points: dict[str, dict[int, float]] = {}
    for row in rows:
        by_nodes = points.setdefault(row["model"], {})
        by_nodes[int(row["nodes"])] = float(row["images_per_s"])
    return points
