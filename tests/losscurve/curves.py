"""Whole curves, to be shown in part: the real ones of ../shared, and others."""

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from freetrain.losscurve import recorded
from freetrain.losscurve.forecast import MetricDirection, MetricPoint

FEWEST_EVALUATIONS = 15
"""A fifth of fewer is no forecast: all of BERT's curves have two."""

FALLING = frozenset({"yolov3"})
"""Networks whose metric falls, from 24 to 12: a loss, whatever the folder calls it."""


@dataclass(frozen=True, slots=True, eq=False)
class WholeCurve:
    """A training from its beginning to its end.

    Attributes:
        name: For messages.
        group: What figures are also given for.
        samples: Work done, ascending, shape (n,).
        values: The metric, shape (n,).
        better: Which values are good.
    """

    name: str
    group: str
    samples: NDArray[np.float64]
    values: NDArray[np.float64]
    better: MetricDirection

    def points(self, count: int) -> tuple[MetricPoint, ...]:
        """Return the first *count* points, reported each second."""
        seen = zip(self.samples[:count], self.values[:count], strict=True)
        return tuple(
            MetricPoint(float(i), float(s), float(v)) for i, (s, v) in enumerate(seen)
        )


def real_curves(shared: Path) -> Iterator[WholeCurve]:
    """Yield the validation curves of ``shared/curves`` that are long enough."""
    for path in sorted((shared / "curves").glob("*/validation-*.csv")):
        with path.open() as file:
            rows = [
                (float(r["progress"]), float(r["metric"])) for r in csv.DictReader(file)
            ]
        if len(rows) < FEWEST_EVALUATIONS:
            continue
        group = path.parent.name
        samples, values = np.array(rows).T
        better = MetricDirection.LOWER if group in FALLING else MetricDirection.HIGHER
        yield WholeCurve(f"{group}/{path.stem}", group, samples, values, better)


def recorded_curves() -> Iterator[WholeCurve]:
    """Yield the recorded losses and validations that stay finite.

    Two of the constants were chosen by looking at them (docs/notes/loss-curves.md).
    """
    for name, curve in sorted(recorded.load().items()):
        for group, series in (("loss", curve.loss), ("validation", curve.validation)):
            few = series.values.size < FEWEST_EVALUATIONS
            if few or not np.isfinite(series.values).all():
                continue
            yield WholeCurve(
                f"{name} {group}",
                f"recorded {group}",
                series.samples,
                series.values,
                series.better,
            )
