"""How well intervals hold after few values: ``python -m tests.losscurve.few_values``.

Every curve as if it had been evaluated 12, 20 and 30 times in all, and then cut after
few of those: the later values are compared with the interval of 90 %. Curves weigh the
same. Constants were chosen on half of them, and the other half is printed apart.
"""

import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from hashlib import sha256
from typing import NamedTuple

import numpy as np

from freetrain.losscurve.fit import FittedForecast, fit_forecast
from tests.lookahead.reliability_table import shared_folder
from tests.losscurve.curves import WholeCurve, real_curves, recorded_curves

EVALUATIONS = (12, 20, 30)
REPORTED = (3, 4, 5, 6, 7, 8, 10, 12)

MOST_SEEN = 0.7
"""Share of a curve: beyond it too few values are left."""

OUTSIDE = 20.0
"""Cost of a unit outside an interval of 90 %, over that of a unit of width (Gneiting
and Raftery, 2007)."""


class Held(NamedTuple):
    """The share of later values that an interval held, and its score.

    The score is the width, and 20 times the part outside, over the curve's range.
    """

    share: float
    score: float


def is_chosen_on(curve: WholeCurve) -> bool:
    """Tell whether constants were chosen by *curve*.

    Loss and validation of the same training are on the same side.
    """
    training = curve.name.rsplit(" ", 1)[0]
    return int(sha256(training.encode()).hexdigest(), 16) % 2 == 0


def rarely(curve: WholeCurve, evaluations: int) -> WholeCurve:
    """Return *curve* as if it had been evaluated so often in all, evenly."""
    count = len(curve.values)
    kept = np.round(np.arange(1, evaluations + 1) * count / evaluations).astype(int) - 1
    return replace(curve, samples=curve.samples[kept], values=curve.values[kept])


def held(curve: WholeCurve, reported: int) -> Held:
    """Return how the interval after the first *reported* values of *curve* did."""
    forecast = fit_forecast(curve.points(reported), curve.better)
    assert forecast is not None
    low, high = _ends(forecast, curve.samples[reported:].tolist())
    later = curve.values[reported:]
    outside = np.maximum(np.maximum(low - later, later - high), 0.0)
    score = np.mean(high - low + OUTSIDE * outside) / np.ptp(curve.values)
    return Held(float(np.mean(outside == 0)), float(score))


def _ends(
    forecast: FittedForecast, samples: Iterable[float]
) -> tuple[np.ndarray, np.ndarray]:
    expected = [forecast.expected(where) for where in samples]
    return np.array([e.low for e in expected]), np.array([e.high for e in expected])


def lines(curves: tuple[WholeCurve, ...]) -> Iterator[str]:
    """Yield a table: shares held and scores by values reported, for *curves*."""
    yield "| | " + " | ".join(f"{reported} values" for reported in REPORTED) + " |"
    yield "|---" * (len(REPORTED) + 1) + "|"
    columns = [_column(curves, reported) for reported in REPORTED]
    shares = (f"{np.mean([own.share for own in column]):.0%}" for column in columns)
    yield "| in the 90 % interval | " + " | ".join(shares) + " |"
    scores = (f"{np.mean([own.score for own in column]):.2f}" for column in columns)
    yield "| score | " + " | ".join(scores) + " |"


def _column(curves: tuple[WholeCurve, ...], reported: int) -> list[Held]:
    return [
        held(rarely(curve, evaluations), reported)
        for curve in curves
        for evaluations in EVALUATIONS
        if reported < MOST_SEEN * evaluations and evaluations <= len(curve.values)
    ]


def main() -> int:
    curves = (*real_curves(shared_folder()), *recorded_curves())
    for name, chosen in (("chosen on", True), ("left alone", False)):
        half = tuple(curve for curve in curves if is_chosen_on(curve) is chosen)
        sys.stdout.write(f"{name}: {len(half)} curves\n")
        for line in lines(half):
            sys.stdout.write(f"{line}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
