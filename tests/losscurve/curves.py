"""Whole curves, to be shown in part: the real ones of ../shared, and others."""

import csv
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from freetrain.losscurve import recorded
from freetrain.losscurve.forecast import MetricDirection, MetricPoint
from freetrain.losscurve.recorded import RecordedCurve

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
        data_set: What it was trained on.
        samples: Work done, ascending, shape (n,).
        values: The metric, shape (n,).
        better: Which values are good.
    """

    name: str
    group: str
    data_set: str
    samples: NDArray[np.float64]
    values: NDArray[np.float64]
    better: MetricDirection

    def points(self, count: int) -> tuple[MetricPoint, ...]:
        """Return the first *count* points, reported each second."""
        seen = zip(self.samples[:count], self.values[:count], strict=True)
        return tuple(
            MetricPoint(float(i), float(s), float(v)) for i, (s, v) in enumerate(seen)
        )

    def evaluated(self, times: int) -> "WholeCurve":
        """Return this curve as if it had been evaluated so often in all, evenly."""
        count = len(self.values)
        kept = np.round(np.arange(1, times + 1) * count / times).astype(int) - 1
        return replace(self, samples=self.samples[kept], values=self.values[kept])


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
        yield WholeCurve(f"{group}/{path.stem}", group, group, samples, values, better)


def recorded_curves() -> Iterator[WholeCurve]:
    """Yield the recorded losses and validations that stay finite."""
    for curve in recorded.load().values():
        yield from curves_in(curve)


def curves_in(training: RecordedCurve) -> Iterator[WholeCurve]:
    """Yield the loss and the validation of *training* that are long and finite."""
    for group, series in (("loss", training.loss), ("validation", training.validation)):
        few = series.values.size < FEWEST_EVALUATIONS
        if few or not np.isfinite(series.values).all():
            continue
        yield WholeCurve(
            f"{training.name} {group}",
            f"recorded {group}",
            training.data_set.partition(":")[0].partition("(")[0].partition(",")[0],
            series.samples,
            series.values,
            series.better,
        )
