"""How well curves are forecast: ``python -m tests.losscurve.extrapolation``.

Every curve is cut, its first part fitted, and what comes then compared with the
forecast. Errors are of the final value, as a share of the whole curve's range. Siblings
of a real curve are of other batch sizes; those of a recorded training are made anew,
with other seeds and learning rates, which takes two minutes.
"""

import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from time import process_time
from typing import NamedTuple

import numpy as np

from examples.record_curves.catalogue import TRAININGS
from examples.record_curves.writing import recorded
from freetrain.losscurve.fit import (
    USUAL_DRIFT,
    FittedForecast,
    Sibling,
    fit_forecast,
    sibling_of,
)
from freetrain.losscurve.recorded import parse_curve
from tests.lookahead.reliability_table import shared_folder
from tests.losscurve.curves import (
    WholeCurve,
    curves_in,
    real_curves,
    recorded_curves,
)

STAGES = (0.2, 0.4, 0.6)

FEW = (3, 4, 5, 8)
"""Values seen of a training that is evaluated twelve times."""

DRIFTS = (0.1, 0.15, 0.2, 0.3, 0.4)

OUTSIDE = 20.0
"""Cost of a unit outside a range, over that of a unit of width (Gneiting and Raftery,
2007, for a range of 90 %)."""

RATES = ((11, 0.7), (12, 1.4))
"""Seeds of the siblings of a recorded training, and factors of its learning rate."""


class Outcome(NamedTuple):
    """One forecast, against what came.

    Attributes:
        error: Of the final value.
        last: Error of the last value in its place.
        held: Share of later values inside the range.
        score: Mean width of the range, and 20 times what is outside.
    """

    error: float
    last: float
    held: float
    score: float


def outcome(curve: WholeCurve, forecast: FittedForecast, seen: int) -> Outcome:
    """Return how *forecast*, of the first *seen* values, did on the others."""
    expected = [forecast.expected(where) for where in curve.samples[seen:].tolist()]
    low, high = np.array([(own.low, own.high) for own in expected]).T
    later, span = curve.values[seen:], float(np.ptp(curve.values))
    outside = np.maximum(np.maximum(low - later, later - high), 0.0)
    return Outcome(
        error=abs(expected[-1].value - later[-1]) / span,
        last=abs(curve.values[seen - 1] - later[-1]) / span,
        held=float(np.mean(outside == 0)),
        score=float(np.mean(high - low + OUTSIDE * outside)) / span,
    )


def fitted(
    curve: WholeCurve, seen: int, siblings: Iterable[Sibling] = ()
) -> FittedForecast:
    forecast = fit_forecast(curve.points(seen), curve.better, siblings=tuple(siblings))
    assert forecast is not None
    return forecast


def outcomes(
    curves: Iterable[WholeCurve], stage: float, *, guided: bool
) -> list[Outcome]:
    """Return what forecasts at *stage* were worth, with two siblings or without.

    With siblings those curves are left out of which two do not go on from there.
    """
    found = []
    for curve in curves:
        seen = round(stage * len(curve.values))
        forecast = fitted(curve, seen, siblings_of(curve) if guided else ())
        if forecast.is_calibrated or not guided:
            found.append(outcome(curve, forecast, seen))
    return found


# Siblings


@cache
def siblings_of(curve: WholeCurve) -> tuple[Sibling, ...]:
    """Return two siblings of *curve*."""
    others = of_other_batch_sizes().get(curve.name) or made_anew()[curve.name]
    found = (sibling_of(other.points(len(other.values))) for other in others)
    return tuple(sibling for sibling in found if sibling is not None)


@cache
def of_other_batch_sizes() -> dict[str, list[WholeCurve]]:
    """Return the next two curves of the same network, by the name of the curve."""
    curves = tuple(real_curves(shared_folder()))
    found = {}
    for curve in curves:
        alike = [other for other in curves if other.group == curve.group]
        at = alike.index(curve)
        found[curve.name] = [*alike[at + 1 :], *alike[:at]][:2]
    return found


@cache
def made_anew() -> dict[str, list[WholeCurve]]:
    """Return siblings of the recorded trainings, by the name of the curve."""
    found: dict[str, list[WholeCurve]] = {}
    for training in TRAININGS:
        for seed, factor in RATES:
            rate = replace(training.rate, peak=factor * training.rate.peak)
            text = recorded(replace(training, seed=seed, rate=rate))
            for curve in curves_in(parse_curve(text, file=f"{training.name}.csv")):
                found.setdefault(curve.name, []).append(curve)
    return found


# Tables


def lines(shared: Path) -> Iterator[str]:
    """Yield the tables of docs/notes/loss-curves.md."""
    curves = (*real_curves(shared), *recorded_curves())
    groups = {"all": curves}
    for curve in curves:
        groups[curve.group] = (*groups.get(curve.group, ()), curve)
    yield "| | last value | curve | with 2 siblings | in the range | with 2 siblings |"
    yield "|---" * 6 + "|"
    for name, members in groups.items():
        yield _row(f"{name} ({len(members)})", members)
    yield ""
    yield from _held_out(curves)
    yield ""
    yield from _few(curves)
    yield from _seconds(curves)


def _row(name: str, curves: tuple[WholeCurve, ...]) -> str:
    plain = [outcomes(curves, stage, guided=False) for stage in STAGES]
    guided = [outcomes(curves, stage, guided=True) for stage in STAGES]
    cells = (
        _medians([own.last for own in column] for column in plain),
        _medians([own.error for own in column] for column in plain),
        _medians([own.error for own in column] for column in guided),
        _shares(plain),
        _shares(guided),
    )
    return f"| {name} | " + " | ".join(cells) + " |"


def _medians(columns: Iterable[list[float]]) -> str:
    return " / ".join(
        f"{np.median(errors):.3f}".lstrip("0") if errors else "-" for errors in columns
    )


def _shares(columns: Iterable[list[Outcome]]) -> str:
    means = (np.mean([own.held for own in column]) for column in columns if column)
    return " / ".join(f"{mean:.0%}" for mean in means)


def _held_out(curves: tuple[WholeCurve, ...]) -> Iterator[str]:
    """Yield the drift chosen on all data sets but one, and how it did on that one.

    Chosen by the least score among those that hold 90 % of later values.
    """
    by_set: dict[str, list[WholeCurve]] = {}
    for curve in curves:
        by_set.setdefault(curve.data_set, []).append(curve)
    did = {
        (name, drift): np.mean([_with(drift, own) for own in members], axis=0)
        for name, members in by_set.items()
        for drift in DRIFTS
    }
    yield "| left out | chosen on the others | in the range there | in the range here |"
    yield "|---" * 4 + "|"
    for left_out in by_set:
        there = {
            drift: np.mean([did[o, drift] for o in by_set if o != left_out], axis=0)
            for drift in DRIFTS
        }
        enough = [drift for drift in DRIFTS if there[drift][0] >= 0.9]
        best = min(enough or DRIFTS[-1:], key=lambda drift: float(there[drift][1]))
        held = did[left_out, best][0]
        yield f"| {left_out} | {best} | {there[best][0]:.0%} | {held:.0%} |"


def _with(drift: float, curve: WholeCurve) -> tuple[float, float]:
    """Return the share held and the score of *curve*, as means over stages."""
    found = []
    for stage in STAGES:
        seen = round(stage * len(curve.values))
        plain = fitted(curve, seen)
        wider = plain.spread.drift * drift / USUAL_DRIFT
        spread = replace(plain.spread, drift=wider)
        did = outcome(curve, replace(plain, spread=spread), seen)
        found.append((did.held, did.score))
    held, score = np.mean(found, axis=0)
    return float(held), float(score)


def _few(curves: tuple[WholeCurve, ...]) -> Iterator[str]:
    yield "| of 12 values | " + " | ".join(f"{seen} seen" for seen in FEW) + " |"
    yield "|---" * (len(FEW) + 1) + "|"
    seldom = [curve.evaluated(12) for curve in curves]
    columns = [
        [outcome(curve, fitted(curve, seen), seen) for curve in seldom] for seen in FEW
    ]
    for name, values in (
        ("last value", [[own.last for own in column] for column in columns]),
        ("curve", [[own.error for own in column] for column in columns]),
    ):
        medians = (f"{np.median(errors):.3f}".lstrip("0") for errors in values)
        yield f"| {name} | " + " | ".join(medians) + " |"
    shares = (f"{np.mean([own.held for own in column]):.0%}" for column in columns)
    yield "| in the range | " + " | ".join(shares) + " |"


def _seconds(curves: tuple[WholeCurve, ...]) -> Iterator[str]:
    taken: dict[str, list[float]] = {"of all": [], "of 120 values or more": []}
    for curve in curves:
        for seen in (round(0.4 * len(curve.values)), len(curve.values)):
            points = curve.points(seen)
            begin = process_time()
            fit_forecast(points, curve.better)
            passed = process_time() - begin
            taken["of all"].append(passed)
            if seen >= 120:
                taken["of 120 values or more"].append(passed)
    for name, times in taken.items():
        yield (
            f"a forecast, {name}: median {np.median(times) * 1e3:.1f} ms, "
            f"longest {np.max(times) * 1e3:.1f} ms"
        )


if __name__ == "__main__":
    for row in lines(shared_folder()):
        sys.stdout.write(f"{row}\n")
