"""The priority ``specon``: slow growers make room for fast ones."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from freetrain.errors import UsageError
from freetrain.priority.claims import plain
from freetrain.priority.curves import Curves
from freetrain.priority.fair import level_nodes, share_curve
from freetrain.priority.interface import Basis, Rated, Rating
from freetrain.priority.specon_move import is_worth_its_cost, would_be_last
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

UNHEARD = "no usable loss, so it has an equal share"
MAKING_ROOM = "growing slowly, so it makes room for others"

AHEAD = 1.1
"""Growth is looked at over the next tenth of the work done."""


class SpeCon:
    """Equal shares of the nodes that slow growers leave: as ``fair``, but for those.

    A trainer is slow after two looks in a row, at least *period_s* apart, at which
    its growth was under *threshold*. It makes room, by a share of its smallest size
    only, while there are fewer nodes than all could use, where moving it costs less
    than the others gain, and where it would not be the last to finish for it. Nodes
    above a share are worth a tenth: with those that nobody wants it comes back.

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
        """Rate contenders by their share of the nodes, slow growers' being small."""
        stood = {one.name: standing(one) for one in look.contenders}
        growths = {
            one.name: self._growth(one, stood[one.name]) for one in look.contenders
        }
        records = self._records(look, from_memory(memory), growths)
        slow = {name for name, own in records.items() if own.strikes >= STRIKES}
        reasons = [
            UNHEARD
            if stood[one.name] is Standing.NO_LOSS
            else _reason(one, look, growths, slow)
            for one in look.contenders
        ]
        most = [
            one.sizes[0] if reason is MAKING_ROOM else one.sizes[-1]
            for one, reason in zip(look.contenders, reasons, strict=True)
        ]
        level = level_nodes(most, look.nodes)
        ratings = [
            plain(one, Standing.DIVERGING, self._curves)
            if stood[one.name] is Standing.DIVERGING
            else self._rating(one, min(level, own), reason)
            for one, own, reason in zip(look.contenders, most, reasons, strict=True)
        ]
        return Rated(tuple(ratings), to_memory(records))

    def _rating(self, one: Contender, share: float, reason: str) -> Rating:
        return Rating(curve=share_curve(one, share, self._curves), reason=reason)

    def _growth(self, one: Contender, stands: Standing) -> float:
        """Return the quality for each e-fold of work; the threshold if unknown."""
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


def _reason(
    one: Contender, look: Look, growths: Mapping[str, float], slow: AbstractSet[str]
) -> str:
    """Return why *one* has an equal share, or ``MAKING_ROOM``."""
    if one.name not in slow:
        return f"growing by {growths[one.name]:.3g} an e-fold of work"
    if sum(other.sizes[-1] for other in look.contenders) <= look.nodes:
        return "growing slowly, with room for all"
    if not is_worth_its_cost(one, look, growths, slow):
        return "growing slowly, but to move it costs more than others gain"
    if would_be_last(one, look):
        return "growing slowly, but on fewer nodes it would be the last to finish"
    return MAKING_ROOM
