"""Shapes that loss curves take, and how one of them is fitted to a curve.

A family's curves are ``floor + gain * basis(work; shape)``. Floor and gain are linear:
given a shape, they follow by least squares (variable projection, Golub and Pereyra
1973). So a grid of shapes is solved at once (``fit_family``), and SciPy finds the last
digits from the best of them (``polished``).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from freetrain.losscurve.history import find_spikes, weighted_quantile

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from freetrain.losscurve.history import Frame, NormalizedCurve

Basis: TypeAlias = (
    "Callable[[NDArray[np.float64], NDArray[np.float64]], NDArray[np.float64]]"
)


@dataclass(frozen=True, slots=True, eq=False)
class Family:
    """Curves ``floor + gain * basis(work; shape)`` with a gain of 0 or more.

    The basis falls towards 0 as work grows, so a curve only ever gets better and has
    an end.

    Attributes:
        name: For people.
        parameters: Free parameters of a fit, floor and gain included.
        shapes: Where the search starts: shapes to try, shape (g, parameters - 2),
            read-only, its rows ordered as a grid; its columns' extremes are the
            bounds.
        basis: From work above 0, shape (n,), and shapes, shape (g, parameters - 2),
            to the basis of each, shape (g, n), finite, 0 or more.
    """

    name: str
    parameters: int
    shapes: NDArray[np.float64]
    basis: Basis


def grid(*axes: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return every combination of the *axes*' entries, one a row, read-only."""
    columns = [axis.ravel() for axis in np.meshgrid(*axes, indexing="ij")]
    shapes = np.stack(columns, axis=1)
    shapes.flags.writeable = False
    return shapes


def _basis_exponential(
    work: NDArray[np.float64], shapes: NDArray[np.float64]
) -> NDArray[np.float64]:
    (tau,) = shapes.T[:, :, None]
    return np.asarray(np.exp(-work / tau))


EXPONENTIAL = Family(
    "exponential", 3, grid(np.geomspace(0.02, 5, 32)), _basis_exponential
)
"""``c + a * exp(-k / tau)``; the same curves as SLAQ's ``mu ** (k - b) + c``."""

_SHAPES = np.zeros((1, 0))

_SHAPES.flags.writeable = False


def _basis_flat(
    work: NDArray[np.float64], shapes: NDArray[np.float64]
) -> NDArray[np.float64]:
    return np.zeros((len(shapes), work.size))


FLAT = Family("no further gain", 1, _SHAPES, _basis_flat)
"""``c``, which follows the last values; what every other family has to beat."""


def _basis_inverse_linear(
    work: NDArray[np.float64], shapes: NDArray[np.float64]
) -> NDArray[np.float64]:
    (late,) = shapes.T[:, :, None]
    return np.asarray(late / (work + late))


INVERSE_LINEAR = Family(
    "inverse linear", 3, grid(np.geomspace(0.003, 5, 32)), _basis_inverse_linear
)
"""``c + gain * s / (k + s)``: ``1 / (a * k + b) + c`` of Optimus (EuroSys 2018)."""


def _basis_inverse_quadratic(
    work: NDArray[np.float64], shapes: NDArray[np.float64]
) -> NDArray[np.float64]:
    late, bend = shapes.T[:, :, None]
    return np.asarray(late / (late + (1 - bend) * work + bend * work**2))


INVERSE_QUADRATIC = Family(
    "inverse quadratic",
    4,
    grid(np.geomspace(0.003, 5, 16), np.linspace(0, 1, 5)),
    _basis_inverse_quadratic,
)
"""``1 / (a * k ** 2 + b * k + c) + d`` of SLAQ (SoCC 2017), all 0 or more."""


def _basis_power(
    work: NDArray[np.float64], shapes: NDArray[np.float64]
) -> NDArray[np.float64]:
    (alpha,) = shapes.T[:, :, None]
    return np.asarray(work**-alpha)


POWER = Family("power law", 3, grid(np.geomspace(0.05, 4, 32)), _basis_power)
"""``c + a * k ** -alpha``, as learning curves of many kinds are found to go."""


def _basis_shifted_power(
    work: NDArray[np.float64], shapes: NDArray[np.float64]
) -> NDArray[np.float64]:
    alpha, late = shapes.T[:, :, None]
    return np.asarray((work + late) ** -alpha)


SHIFTED_POWER = Family(
    "shifted power law",
    4,
    grid(np.geomspace(0.05, 6, 16), np.geomspace(0.01, 1, 6)),
    _basis_shifted_power,
)
"""``c + a * (k + s) ** -alpha``; Optimus is its alpha of 1."""

CURVES: tuple[Family, ...] = (
    POWER,
    EXPONENTIAL,
    INVERSE_LINEAR,
    INVERSE_QUADRATIC,
    SHIFTED_POWER,
)

KNOWN: tuple[Family, ...] = (FLAT, *CURVES)


# One family fitted to one curve

HALF_LIFE = 0.5
"""Of a point's weight, as a share of the work done. SLAQ forgets exponentially too
[its rate is unverified]; as a share, a long training forgets as a short one does."""

FURTHEST_FLOOR = 1.0
"""No trainer is expected to gain more than this many times its gain so far."""

LEAST_SCATTER = 0.01
"""In heights: families are no closer to the truth than that, however calm it is."""

SCATTER_OF_NOISE = 2.0

CHI_OF_COST = SCATTER_OF_NOISE**2
"""Costs are in squares of the scatter; times this, in squares of the noise."""

RECENT_SHARE = 0.1
"""Of the points: those that tell the present level."""

FEWEST_RECENT = 3

LAG_LENGTH = 0.25
"""Of the work done: over it, a lag falls to 1 / e."""


@dataclass(frozen=True, slots=True, eq=False)
class Fit:
    """A family's curve through a trainer's curve.

    Attributes:
        family: The family.
        shape: Its shape, shape (parameters - 2,).
        gain: 0 or more.
        floor: Where it ends, in heights.
        lag: Heights by which the last points were above the curve.
        end: Work at the last point.
    """

    family: Family
    shape: NDArray[np.float64]
    gain: float
    floor: float
    lag: float = 0.0
    end: float = 1.0

    def curve(self, work: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the family's curve at *work*, shape (n,)."""
        basis = self.family.basis(work, self.shape[None, :])[0]
        return np.asarray(self.floor + self.gain * basis)

    def forecast(self, work: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the heights to expect at *work* from the end on, shape (n,).

        The lag of the last points counts fully near by, and ever less further on.
        """
        ahead = work / self.end - 1
        return self.curve(work) + self.lag * np.exp(-ahead / LAG_LENGTH)


def fit_family(family: Family, curve: NormalizedCurve) -> Fit:
    """Return *family*'s best curve on its grid of shapes, robust and weighted."""
    end = float(curve.work[-1])
    if family.parameters == 1:
        return Fit(family, family.shapes[0], 0.0, recent_level(curve), end=end)
    shapes = family.shapes
    costs, gains, floors = _projected(family, curve)
    best = int(np.argmin(costs))
    fit = Fit(family, shapes[best], float(gains[best]), float(floors[best]), end=end)
    return with_lag(fit, curve)


def costs_of(family: Family, curve: NormalizedCurve) -> NDArray[np.float64]:
    """Return the robust sums of squares of *family*'s shapes, shape (g,)."""
    return _projected(family, curve)[0]


def _projected(
    family: Family, curve: NormalizedCurve
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    return project(
        family.basis(curve.work, family.shapes),
        curve.heights,
        fading_weights(curve),
        lowest=lowest_floor(curve),
        scatter=scatter_of(curve),
    )


def with_lag(fit: Fit, curve: NormalizedCurve) -> Fit:
    """Return *fit* with the lag of *curve*'s last points."""
    return replace(fit, lag=recent_level(curve, above=fit.curve(curve.work)))


def refreshed_lag(
    fit: Fit,
    frame: Frame,
    samples: NDArray[np.float64],
    values: NDArray[np.float64],
) -> Fit:
    """Return *fit* with the lag of a history that has gone on.

    Args:
        fit: Fitted to a part of the history.
        frame: The units of the fit.
        samples: Of all usable points, ascending, shape (n,).
        values: Theirs, shape (n,).
    """
    last = _recent_count(samples.size)
    work = (samples[-last:] - frame.origin_samples) / frame.unit_samples
    heights = (values[-last:] - frame.best) / frame.span
    lag = float(np.median(heights - fit.curve(work)))
    return replace(fit, lag=lag, end=max(float(work[-1]), fit.end))


def recent_level(
    curve: NormalizedCurve, *, above: NDArray[np.float64] | None = None
) -> float:
    """Return where the last points are, in heights, or how far above a curve.

    Their median, so that no spike among them counts.
    """
    last = _recent_count(len(curve))
    heights = curve.heights if above is None else curve.heights - above
    return weighted_quantile(heights[-last:], curve.weights[-last:], 0.5)


def _recent_count(count: int) -> int:
    return max(FEWEST_RECENT, int(RECENT_SHARE * count))


def fading_weights(curve: NormalizedCurve) -> NDArray[np.float64]:
    """Return the weights of *curve*'s points: the older, the less."""
    age = 1 - curve.work / curve.work[-1]
    return np.asarray(curve.weights * 0.5 ** (age / HALF_LIFE))


def lowest_floor(curve: NormalizedCurve) -> float:
    """Return the lowest height that a curve may end at."""
    calm = curve.heights[~find_spikes(curve.heights, curve.weights)]
    return float(calm.min() - FURTHEST_FLOOR * np.ptp(calm))


def scatter_of(curve: NormalizedCurve) -> float:
    """Return by how much a point may miss a curve before it counts as a spike."""
    return max(SCATTER_OF_NOISE * curve.noise, LEAST_SCATTER)


# All shapes of a grid at once

ROUNDS = 4
"""Of reweighting; a further one moves nothing that the noise does not hide."""

TINY = 1e-30


def project(
    basis: NDArray[np.float64],
    heights: NDArray[np.float64],
    weights: NDArray[np.float64],
    *,
    lowest: float,
    scatter: float,
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Return the robust least-squares gain and floor of each row of *basis*.

    The loss is SciPy's ``soft_l1``: squares up to about *scatter*, lines beyond,
    so that a spike pulls no harder than a bad point. Solved by reweighting.

    Args:
        basis: Shape (g, n), falling along each row.
        heights: Shape (n,).
        weights: Above 0, shape (n,).
        lowest: No floor is below this.
        scatter: Residuals beyond it count as lines, above 0.

    Returns:
        Costs, which are robust sums of squares, gains and floors, each of shape (g,).
    """
    top = basis[:, :1]
    scaled = basis / np.maximum(top, TINY)
    trust = np.broadcast_to(weights, scaled.shape)
    roots = np.sqrt(weights) / scatter
    for _ in range(ROUNDS):
        gains, floors = _solve(scaled, heights, trust, lowest)
        misses = roots * (heights - floors[:, None] - gains[:, None] * scaled)
        stretch = np.sqrt(1 + misses**2)
        trust = weights / stretch
    costs = 2 * (stretch - 1).sum(axis=1)
    return costs, gains / np.maximum(top[:, 0], TINY), floors


def _solve(
    basis: NDArray[np.float64],
    heights: NDArray[np.float64],
    trust: NDArray[np.float64],
    lowest: float,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return gains and floors of weighted least squares within their bounds."""
    total = trust.sum(axis=1)
    weighted = trust * basis
    first = weighted.sum(axis=1)
    height = trust @ heights
    cross = weighted @ heights
    square = np.einsum("gn,gn->g", weighted, basis)
    spread = np.maximum(square - first**2 / total, TINY)
    gains = np.maximum((cross - first * height / total) / spread, 0.0)
    floors = (height - gains * first) / total
    at_bound = np.maximum((cross - lowest * first) / np.maximum(square, TINY), 0.0)
    low = floors < lowest
    return np.where(low, at_bound, gains), np.where(low, lowest, floors)


# The last digits, between the shapes of the grid

MOST_EVALUATIONS = 30


def polished(fit: Fit, curve: NormalizedCurve) -> Fit:
    """Return *fit* with all of its parameters at the robust least-squares minimum.

    SciPy's trust-region reflective method, from the grid's best shape and within the
    grid's bounds; ``soft_l1`` as in the grid search.
    """
    if fit.family.parameters == 1 or len(curve) <= fit.family.parameters:
        return fit
    from scipy.optimize import least_squares  # noqa: PLC0415 - half a second to import

    lowest = fit.family.shapes.min(axis=0)
    highest = fit.family.shapes.max(axis=0)
    scale = _scale(fit, curve)
    roots = np.sqrt(fading_weights(curve)) / scatter_of(curve)

    def misses(parameters: NDArray[np.float64]) -> NDArray[np.float64]:
        *shape, gain, floor = parameters
        basis = fit.family.basis(curve.work, np.array([shape]))[0] / scale
        return np.asarray(roots * (floor + gain * basis - curve.heights))

    low = np.array([*lowest, 0.0, lowest_floor(curve)])
    high = np.array([*highest, np.inf, np.inf])
    start = np.array([*fit.shape, fit.gain * scale, fit.floor])
    found = least_squares(
        misses,
        np.clip(start, low, high),
        bounds=(low, high),
        loss="soft_l1",
        x_scale="jac",
        max_nfev=MOST_EVALUATIONS,
    )
    *shape, gain, floor = found.x
    better = replace(
        fit, shape=np.array(shape), gain=float(gain) / scale, floor=float(floor)
    )
    return with_lag(better, curve)


def _scale(fit: Fit, curve: NormalizedCurve) -> float:
    """Return the basis at the first point: divided by it, gains are heights."""
    first = fit.family.basis(curve.work[:1], fit.shape[None, :])[0, 0]
    return max(float(first), 1e-30)
