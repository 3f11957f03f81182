"""How well curves are forecast: ``python -m tests.losscurve.extrapolation [chance]``.

Every curve is cut, its first part fitted, and a later value compared with the forecast.
Errors are absolute, as a share of the whole curve's range; medians over curves. The
families are fitted to the same points as the choice: all before the cut. ``chance``
prints the part of chance in the coverage by group.
"""

import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from time import process_time
from typing import NamedTuple

import numpy as np

from freetrain.losscurve.curve import KNOWN, fit_family, normalized, polished
from freetrain.losscurve.fit import NORMAL, NORMAL_90, fit_forecast, present_start
from tests.lookahead.reliability_table import shared_folder
from tests.losscurve.curves import WholeCurve, real_curves, recorded_curves


class Cut(NamedTuple):
    """The part of a curve that is seen, and the later value that is forecast.

    Attributes:
        seen: Share of the evaluations.
        ahead: Evaluations from the last seen to the forecast one; None for the last
            of the curve.
    """

    seen: float
    ahead: int | None = None

    def __str__(self) -> str:
        asked = "final" if self.ahead is None else f"+{self.ahead}"
        return f"{self.seen:.0%} → {asked}"


CUTS = (Cut(0.2), Cut(0.4), Cut(0.6), Cut(0.4, 10))

LEAST, MOST = 0.80, 0.97
"""Limits of the coverage of an interval of 90 %."""

DRAWS = 20_000

Errors = Mapping[tuple[str, Cut], list[float]]


def errors_of(curves: Iterable[WholeCurve], cuts: Iterable[Cut] = CUTS) -> Errors:
    """Return the errors of every way to forecast, by way and cut, curve by curve."""
    errors: dict[tuple[str, Cut], list[float]] = defaultdict(list)
    cuts = tuple(cuts)
    for curve in curves:
        for cut in cuts:
            count, asked = _places(curve, cut)
            span = float(np.ptp(curve.values))
            for way, value in forecasts(curve, count, asked):
                errors[way, cut].append(abs(value - curve.values[asked]) / span)
    return errors


def forecasts(curve: WholeCurve, count: int, asked: int) -> Iterator[tuple[str, float]]:
    """Yield each way's forecast of point *asked* from the first *count*."""
    samples, values = curve.samples[:count], curve.values[:count]
    yield "last value", float(values[-1])
    start = present_start(samples, values, curve.better)
    seen, frame = normalized(samples[start:], values[start:], curve.better)
    work = np.array([frame.work(float(curve.samples[asked]))])
    for family in KNOWN:
        fit = polished(fit_family(family, seen), seen)
        yield family.name, frame.value(float(fit.forecast(work)[0]))
    forecast = fit_forecast(curve.points(count), curve.better)
    assert forecast is not None
    yield "**the choice**", forecast.expected(float(curve.samples[asked])).value


def coverage_of(curves: Iterable[WholeCurve], cut: Cut) -> tuple[float, float]:
    """Return the shares of all later values inside the 80 % and 90 % intervals.

    Every curve weighs the same. The interval of 80 % is that of 90 %, narrowed as
    a normal distribution's would be.
    """
    inside = [_inside(curve, cut) for curve in curves]
    tight, wide = np.mean(inside, axis=0)
    return float(tight), float(wide)


def _inside(curve: WholeCurve, cut: Cut) -> tuple[float, float]:
    count, _ = _places(curve, cut)
    forecast = fit_forecast(curve.points(count), curve.better)
    assert forecast is not None
    stop = len(curve.values) if cut.ahead is None else count + cut.ahead
    reported = zip(curve.samples[count:stop], curve.values[count:stop], strict=True)
    shares = []
    for samples, value in reported:
        expected = forecast.expected(float(samples))
        half = max((expected.high - expected.low) / 2, 1e-300)
        shares.append(abs(value - expected.value) / half)
    off = np.array(shares)
    return float(np.mean(off <= NORMAL / NORMAL_90)), float(np.mean(off <= 1))


def _places(curve: WholeCurve, cut: Cut) -> tuple[int, int]:
    """Return how many points are seen, and the index of the forecast one."""
    last = len(curve.values) - 1
    count = round(cut.seen * (last + 1))
    asked = last if cut.ahead is None else min(last, count - 1 + cut.ahead)
    return count, asked


def lines(shared: Path) -> Iterator[str]:
    """Yield the tables of docs/notes/loss-curves.md."""
    curves = tuple(real_curves(shared))
    groups = {"../shared/curves": curves}
    for curve in (*curves, *recorded_curves()):
        groups[curve.group] = (*groups.get(curve.group, ()), curve)
    yield from _seconds(curves)
    for name, members in groups.items():
        yield f"{name}: {len(members)} curves"
        yield from _table(members)


def _table(curves: tuple[WholeCurve, ...]) -> Iterator[str]:
    yield "| | " + " | ".join(map(str, CUTS)) + " |"
    yield "|---" * (len(CUTS) + 1) + "|"
    errors = errors_of(curves)
    for way in dict.fromkeys(way for way, _ in errors):
        row = (f"{np.median(errors[way, cut]):.3f}".lstrip("0") for cut in CUTS)
        yield f"| {way} | " + " | ".join(row) + " |"
    covered = [coverage_of(curves, cut) for cut in CUTS]
    yield ("| in one of 80 % | " + " | ".join(f"{c:.0%}" for c, _ in covered) + " |")
    yield (
        "| in the 90 % interval | " + " | ".join(f"{c:.0%}" for _, c in covered) + " |"
    )


def _seconds(curves: tuple[WholeCurve, ...]) -> Iterator[str]:
    forecasts, grids, polishes = [], [], []
    for curve in curves:
        points = curve.points(len(curve.values))
        begin = process_time()
        fit_forecast(points, curve.better)
        forecasts.append(process_time() - begin)
        whole, _ = normalized(curve.samples, curve.values, curve.better)
        for family in KNOWN:
            begin = process_time()
            fit = fit_family(family, whole)
            grids.append(process_time() - begin)
            begin = process_time()
            polished(fit, whole)
            polishes.append(process_time() - begin)
    for what, taken in (
        ("one family on its grid", grids),
        ("its last digits by SciPy", polishes),
        ("a whole forecast, phases and back-tests included", forecasts),
    ):
        middle, worst = np.median(taken) * 1e3, np.max(taken) * 1e3
        yield f"{what}: median {middle:.2f} ms, longest {worst:.2f} ms"


def chance(shared: Path) -> Iterator[str]:
    """Yield how badly columns of as many curves as each group has show the coverage.

    A curve's later values are inside its interval together or outside together; the
    columns are drawn from all curves and cuts alike.
    """
    curves = (*real_curves(shared), *recorded_curves())
    held = np.array([coverage_of([curve], cut)[1] for curve in curves for cut in CUTS])
    yield f"all: mean {held.mean():.1%}, whole {np.mean(held == 1):.0%}"
    draws = np.random.default_rng(0)
    inside = np.zeros(DRAWS)
    for group, count in Counter(curve.group for curve in curves).items():
        means = draws.choice(held, (len(CUTS), DRAWS, count)).mean(axis=2)
        found = (means >= LEAST) & (means <= MOST)
        inside += found.sum(axis=0)
        yield (
            f"{group}: of columns of {count} curves {found.mean():.0%} are inside, "
            f"{np.mean(means > MOST):.0%} above"
        )
    low, middle, high = np.quantile(inside, (0.05, 0.5, 0.95))
    yield f"columns inside: {low:.0f} .. {high:.0f} in nine of ten draws, {middle:.0f}"


if __name__ == "__main__":
    asked = chance if sys.argv[1:] == ["chance"] else lines
    for row in asked(shared_folder()):
        sys.stdout.write(f"{row}\n")
