"""The priority ``slaq``: nodes go where they are expected to raise quality most."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from freetrain.errors import UsageError
from freetrain.priority.claims import Answer, Claim, ratings
from freetrain.priority.curves import Curves
from freetrain.priority.interface import Basis, Rated
from freetrain.priority.standing import (
    Standing,
    done_samples,
    quality_after,
    standing,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from freetrain.priority.interface import Contender, Look, Memory
    from freetrain.quality.outlook import Outlook

MOST_ASKED = 17
"""Amounts of work within a horizon at which an outlook is asked."""


class Slaq:
    """O_j(n) = the quality expected to be gained on n nodes within H, over H.

    Args:
        horizon_s: [H] How far ahead, seconds; 0 for the planner's look-ahead.

    Raises:
        UsageError: *horizon_s* is below 0, or not finite.
    """

    name = "slaq"
    basis = Basis.LOSSES

    def __init__(self, *, horizon_s: float = 0.0) -> None:
        self._horizon_s = checked_horizon_s(horizon_s)
        self._curves = Curves()

    def rate(self, look: Look, _memory: Memory, /) -> Rated:
        """Rate contenders by the quality that they will gain."""
        answers = [self._answer(one, look) for one in look.contenders]
        return Rated(ratings(look.contenders, answers, self._curves), {})

    def _answer(self, contender: Contender, look: Look) -> Answer:
        stands = standing(contender)
        if stands is not Standing.LEARNING or contender.outlook is None:
            return stands
        horizon_s = self._horizon_s or look.t_fwd_s
        return self._learning(contender, contender.outlook, horizon_s)

    def _learning(
        self, contender: Contender, outlook: Outlook, horizon_s: float
    ) -> Answer:
        """Return what a contender that still learns is worth."""
        after = qualities(contender, outlook, horizon_s)
        gains = np.maximum(after - after[0], 0.0)
        if not gains.any():
            return Standing.DOUBTFUL
        best = int(gains.argmax())
        reason = (
            f"{outlook.family} expects {gains[best]:+.3g} of quality in "
            f"{horizon_s:g} s on {best} nodes"
        )
        return Claim(gains / horizon_s, reason)


def qualities(
    contender: Contender, outlook: Outlook, horizon_s: float
) -> NDArray[np.float64]:
    """Return the quality expected after *horizon_s* seconds, by node count.

    Of trainers with many sizes, the outlook is asked at :data:`MOST_ASKED` amounts of
    work, and quality taken to be linear between those: 40 trainers of 64 sizes took
    45 ms, of a look that comes at every event of a replay.

    Returns:
        Shape (largest size + 1,), at 0 .. the largest size.
    """
    done = done_samples(contender, outlook)
    most = math.inf if contender.total_samples is None else contender.total_samples
    then = np.minimum(done + contender.samples_per_s * horizon_s, max(most, done))
    asked = np.unique(then[: contender.sizes[-1] + 1])
    if asked.size > MOST_ASKED:
        # Closer together at first, where curves bend most.
        steps = np.linspace(0.0, 1.0, MOST_ASKED) ** 2
        asked = asked[0] + steps * (asked[-1] - asked[0])
    expected = [quality_after(outlook, samples) for samples in asked.tolist()]
    return np.interp(then[: contender.sizes[-1] + 1], asked, expected)


def checked_horizon_s(horizon_s: float) -> float:
    """Return *horizon_s*, 0 or more.

    Raises:
        UsageError: It is not.
    """
    if not 0 <= horizon_s < math.inf:
        raise UsageError(
            f"horizon_s {horizon_s:g} is not 0 or more. Give the seconds to look "
            f"ahead, or 0 for the planner's look-ahead."
        )
    return horizon_s
