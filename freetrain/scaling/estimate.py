"""Speed at every node count, from those that were measured; ADR 0041 says why so."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from freetrain.scaling.pooled import pool
from freetrain.scaling.prior import Prior

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from freetrain.scaling.learned import LearnedScaling

_MOST_LOG = 60.0
"""Nothing is quicker than 1e26 samples a second, and no estimate overflows."""

_USER_LOG_SD = 0.2
_USER_EXPONENT_SD = 0.05
"""Users measure on machines like this one, seldom on this one."""


@dataclass(frozen=True, slots=True, eq=False)
class Estimate:
    """Speeds by node count, and how sure they are.

    Attributes:
        samples_per_s: At 0 .. most nodes, float64, read-only; entry 0 is 0, all
            others are finite and above 0. May fall with more nodes.
        log_sd: Standard deviation of their natural logarithms, read-only; entry 0
            is 0.
        measured: Sizes that were seen.
    """

    samples_per_s: NDArray[np.float64]
    log_sd: NDArray[np.float64]
    measured: frozenset[int]


def estimate(
    learned: LearnedScaling,
    most: int,
    *,
    now_s: float,
    prior: Prior | None = None,
    user: Mapping[int, float] | None = None,
) -> Estimate:
    """Return speeds at 0 .. *most* nodes.

    The logarithm of speed is a straight line over that of nodes, as *prior* expects
    it, plus a random walk along it: a Gaussian process. So a size that was measured
    for long has the speed measured, also where it falls; between two, the line
    between them; beyond, the slope that was seen, shrunk to the prior's; and all
    sizes the scale of the one that was.

    Args:
        learned: What the trainer showed.
        most: Its largest size, above 0.
        now_s: On the clock of its fragments; the older they are, the less they say.
        prior: What is expected of trainers here; None for the common assumption.
        user: Samples a second by node count, above 0, as its user says; it takes the
            place of the prior's line, and measurements overrule it.
    """
    expected = _of_user(prior or Prior()) if user else (prior or Prior())
    logs = np.log(np.arange(1, most + 1, dtype=np.float64))
    line = _line(expected, logs, user)
    seen = {n: pool(s, now_s=now_s) for n, s in learned.seen.items() if n <= most}
    walk = expected.log_sd_per_doubling**2 / math.log(2.0)
    covariance = (
        expected.one_node_log_sd**2
        + expected.exponent_sd**2 * np.outer(logs, logs)
        + walk * np.minimum.outer(logs, logs)
    )
    mean, variance = line, covariance.diagonal()
    if seen:
        places = np.array(list(seen)) - 1
        level, log_sd = np.array(list(seen.values())).T
        noisy = covariance[np.ix_(places, places)] + np.diag(log_sd**2)
        gain = np.linalg.solve(noisy, covariance[places]).T
        mean = line + gain @ (level - line[places])
        variance = variance - np.einsum("ij,ij->i", gain, covariance[:, places])
    return _bounded(mean, variance, frozenset(seen))


def _of_user(prior: Prior) -> Prior:
    """Return *prior* as sure as a user is."""
    return Prior(
        one_node_per_s=prior.one_node_per_s,
        one_node_log_sd=_USER_LOG_SD,
        exponent=prior.exponent,
        exponent_sd=_USER_EXPONENT_SD,
        log_sd_per_doubling=prior.log_sd_per_doubling,
    )


def _line(
    prior: Prior, logs: NDArray[np.float64], user: Mapping[int, float] | None
) -> NDArray[np.float64]:
    """Return expected logarithms of speed; beyond a user's points the prior's slope."""
    if not user:
        return math.log(prior.one_node_per_s) + prior.exponent * logs
    at = np.log(np.array(sorted(user), dtype=np.float64))
    levels = np.log([user[n] for n in sorted(user)])
    beyond = np.minimum(logs - at[0], 0.0) + np.maximum(logs - at[-1], 0.0)
    inside: NDArray[np.float64] = np.interp(logs, at, levels)
    line: NDArray[np.float64] = inside + prior.exponent * beyond
    return line


def _bounded(
    mean: NDArray[np.float64], variance: NDArray[np.float64], measured: frozenset[int]
) -> Estimate:
    speeds = np.exp(np.clip(mean, -_MOST_LOG, _MOST_LOG))
    samples_per_s = np.concatenate(([0.0], speeds))
    log_sd = np.concatenate(([0.0], np.sqrt(np.maximum(variance, 0.0))))
    samples_per_s.flags.writeable = log_sd.flags.writeable = False
    return Estimate(samples_per_s, log_sd, measured)
