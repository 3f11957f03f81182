"""Speeds seen of one size, put together; old ones fade, since machines change."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from freetrain.scaling.median import spread, weighted_median

if TYPE_CHECKING:
    from collections.abc import Sequence

    from freetrain.scaling.fragment import Seen

HALF_LIFE_S = 3 * 86_400.0
"""After three days a speed counts half."""

_LEAST_SD = 0.005
_SHORT_SD = 0.1
_SHORT_S = 5.0
"""Five seconds of training tell a speed to 10 %, four times as long to 5 %."""

_LEAST_KEPT = 1e-9
"""What is very old is still better than nothing."""


class Pooled(NamedTuple):
    """What is known of one size.

    Attributes:
        log_speed: Natural logarithm of samples/s.
        log_sd: Its standard deviation.
    """

    log_speed: float
    log_sd: float


def pool(seen: Sequence[Seen], *, now_s: float) -> Pooled:
    """Return the median of *seen*, at least one, by weight of time and age.

    One that goes astray makes the answer less certain, and moves it little.
    """
    logs = [math.log(one.samples_per_s) for one in seen]
    weights_s = [one.trained_s * _kept(now_s - one.began_s) for one in seen]
    whole_s = sum(weights_s)
    centre = weighted_median(logs, weights_s)
    fuzz = spread(logs, weights_s, centre) / math.sqrt(len(logs))
    short = _SHORT_SD * math.sqrt(_SHORT_S / whole_s)
    return Pooled(centre, math.hypot(_LEAST_SD, short, fuzz))


def _kept(age_s: float) -> float:
    return max(_LEAST_KEPT, math.exp2(-max(0.0, age_s) / HALF_LIFE_S))
