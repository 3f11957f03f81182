"""The priority ``deadline``: enough nodes to be in time, earliest deadline first."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from freetrain.errors import UsageError
from freetrain.priority.base import Basis, CurveCache, Rating, RatingResult

if TYPE_CHECKING:
    from freetrain.priority.base import Contender, Memory, RatingInputs


class Deadline:
    """A floor of the fewest nodes that are in time; all nodes by speed-up.

    In time is a size n where what is left takes no longer than there is time::

        (total - done) / speed(n) + stop(n) <= (1 - slack) (deadline - now)

    with stop(n) the seconds that changing to n costs. Floors are given in order of
    deadlines, from the nodes that there are. A trainer that no size brings in time
    has none, and counts by its speed-up like those without a deadline.

    Args:
        slack: Share of the time left that is kept for what goes wrong.

    Raises:
        UsageError: *slack* is not from 0 to below 1.
    """

    name = "deadline"
    basis = Basis.MOMENT

    def __init__(self, *, slack: float = 0.05) -> None:
        if not 0 <= slack < 1:
            raise UsageError(
                f"slack {slack:g} is not from 0 to below 1. Give the share of the time "
                f"left to keep, such as 0.05."
            )
        self._slack = slack
        self._curves = CurveCache()

    def rate(self, inputs: RatingInputs, _memory: Memory, /) -> RatingResult:
        """Rate contenders by what they need to be in time."""
        needs = self._needs(inputs)
        ratings = [self._rating(one, needs.get(one.name)) for one in inputs.contenders]
        return RatingResult(tuple(ratings), {})

    def _needs(self, inputs: RatingInputs) -> dict[str, _Need]:
        """Return the nodes that trainers need and get by name, while there are some."""
        needs, left = {}, inputs.nodes
        for one in sorted(inputs.contenders, key=_earliest_first):
            if one.deadline_s is None or one.total_samples is None:
                continue
            time_s = (1 - self._slack) * (one.deadline_s - inputs.now_s)
            needed = fewest_nodes(one, one.total_samples - one.done_samples, time_s)
            within = [n for n in one.sizes if n <= min(needed, left)]
            needs[one.name] = _Need(needed, max(within, default=0))
            left -= needs[one.name].floor
        return needs

    def _rating(self, one: Contender, need: _Need | None) -> Rating:
        return Rating(
            curve=self._curves.speed_up(one),
            floor=0 if need is None else need.floor,
            reason=_reason(one, need),
        )


@dataclass(frozen=True, slots=True)
class _Need:
    """Nodes that are in time, 0 for none, and how many of them earlier ones left."""

    nodes: int
    floor: int


def fewest_nodes(contender: Contender, samples: float, time_s: float) -> int:
    """Return the smallest size that does *samples* within *time_s*; 0 for none."""
    for n in contender.sizes:
        train_s = time_s - _stop_s(contender, n)
        if samples <= train_s * contender.samples_per_s.item(n):
            return n
    return 0


def _stop_s(contender: Contender, nodes: int) -> float:
    if nodes == contender.held:
        return 0.0
    if contender.held == 0:
        return contender.start_s
    return contender.grow_s if nodes > contender.held else contender.shrink_s


def _earliest_first(contender: Contender) -> tuple[float, str]:
    deadline_s = contender.deadline_s
    return (math.inf if deadline_s is None else deadline_s, contender.name)


def _reason(contender: Contender, need: _Need | None) -> str:
    if contender.deadline_s is None:
        return "no deadline, so it counts by its speed-up"
    if need is None:
        return "nobody knows how much is left to do, so it counts by its speed-up"
    if need.nodes == 0:
        return "its deadline cannot be met, so it counts by its speed-up"
    if need.floor < need.nodes:
        given = need.floor or "none"
        return f"{need.nodes} nodes would meet its deadline; it can have {given} now"
    return f"{need.floor} nodes towards its deadline"
