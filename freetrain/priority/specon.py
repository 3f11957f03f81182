"""The priority ``specon``: slow growers make room for fast ones."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from freetrain.errors import UsageError
from freetrain.priority.claims import plain, up_to_smallest
from freetrain.priority.curves import Curves
from freetrain.priority.interface import Basis, Rated, Rating
from freetrain.priority.specon_move import is_worth_its_cost
from freetrain.priority.specon_strikes import Record, from_memory, struck, to_memory
from freetrain.priority.standing import (
    Standing,
    done_samples,
    quality_after,
    standing,
)

if TYPE_CHECKING:
    from collections.abc import Mapping
    from collections.abc import Set as AbstractSet

    from freetrain.priority.interface import Contender, Look, Memory

STRIKES = 2
"""Slow looks in a row after which a trainer makes room."""

BEYOND = 0.1
"""Worth of a node above the smallest size to who makes room, over its usual worth."""

AHEAD = 1.1
"""Growth is looked at over the next tenth of the work done."""


class SpeCon:
    """O_j(n) = speed-up S_j(n), counted fully up to the smallest size m by who is slow.

    There, so that others get the nodes beyond, and it comes back when they are left::

        O_j(n) = S_j(min(n, m)) + 0.1 (S_j(n) - S_j(min(n, m)))

    A trainer is slow after two looks in a row, at least *period_s* apart, at which
    its growth was under *threshold*. It makes room while there are fewer nodes than
    all could use, and where moving it costs less than the others gain.

    Args:
        threshold: Growth below this is slow: quality for each e-fold of work.
        period_s: Looks closer together than this are one, seconds.

    Raises:
        UsageError: *threshold* or *period_s* is below 0, or not finite.
    """

    name = "specon"
    basis = Basis.LOSSES

    def __init__(self, *, threshold: float = 0.1, period_s: float = 10.0) -> None:
        for what, value in (("threshold", threshold), ("period_s", period_s)):
            if not 0 <= value < math.inf:
                raise UsageError(f"{what} {value:g} is not 0 or more.")
        self._threshold = threshold
        self._period_s = period_s
        self._curves = Curves()

    def rate(self, look: Look, memory: Memory, /) -> Rated:
        """Rate contenders by speed-up, slow growers up to their smallest size."""
        growths = {one.name: self._growth(one) for one in look.contenders}
        records = self._records(look, from_memory(memory), growths)
        slow = {name for name, own in records.items() if own.strikes >= STRIKES}
        ratings = [self._rating(one, look, growths, slow) for one in look.contenders]
        return Rated(tuple(ratings), to_memory(records))

    def _growth(self, one: Contender) -> float:
        """Return the quality for each e-fold of work; the threshold if unknown."""
        stands = standing(one)
        if stands is Standing.DIVERGING:
            return 0.0
        if one.outlook is None or stands is Standing.NO_LOSS:
            return self._threshold
        done = done_samples(one, one.outlook)
        after = quality_after(one.outlook, AHEAD * done)
        return (after - quality_after(one.outlook, done)) / math.log(AHEAD)

    def _records(
        self, look: Look, before: Mapping[str, Record], growths: Mapping[str, float]
    ) -> dict[str, Record]:
        return {
            one.name: struck(
                before.get(one.name),
                one,
                now_s=look.now_s,
                period_s=self._period_s,
                is_slow=growths[one.name] < self._threshold,
            )
            for one in look.contenders
        }

    def _rating(
        self,
        one: Contender,
        look: Look,
        growths: Mapping[str, float],
        slow: AbstractSet[str],
    ) -> Rating:
        stands = standing(one)
        if stands in {Standing.NO_LOSS, Standing.DIVERGING}:
            return plain(one, stands, self._curves)
        usual = self._curves.speed_up(one)
        if one.name not in slow:
            reason = f"growing by {growths[one.name]:.3g} an e-fold of work"
            return Rating(curve=usual, reason=reason)
        if sum(other.sizes[-1] for other in look.contenders) <= look.nodes:
            return Rating(curve=usual, reason="growing slowly, with room for all")
        if not is_worth_its_cost(one, look, growths, slow):
            reason = "growing slowly, but to move it costs more than others gain"
            return Rating(curve=usual, reason=reason)
        return self._making_room(one)

    def _making_room(self, one: Contender) -> Rating:
        return Rating(
            curve=up_to_smallest(one, BEYOND, self._curves),
            reason=f"growing slowly, so it makes room down to {one.sizes[0]} nodes",
        )
