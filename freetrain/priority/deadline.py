"""The priority ``deadline``: enough nodes to be in time, earliest deadline first."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from freetrain.errors import UsageError
from freetrain.priority.base import CurveCache, Rating, RatingBasis, RatingResult

if TYPE_CHECKING:
    from freetrain.priority.base import Contender, Memory, RatingInputs


class Deadline:
    """A floor of the fewest nodes that finish in time; the worth of nodes is speed-up.

    A size n finishes in time if::

        (total - done) / speed(n) + stop(n) <= (1 - slack) (deadline - now)

    with stop(n) the seconds that a change to n costs. Floors are given in order of
    deadlines, while there are nodes. A trainer that no size brings in time has no
    floor, and counts by its speed-up like those without a deadline.

    Args:
        slack: Share of the time left that is kept as a reserve.

    Raises:
        UsageError: *slack* is not from 0 to below 1.
    """

    name = "deadline"
    basis = RatingBasis.MOMENT

    def __init__(self, *, slack: float = 0.05) -> None:
        if not 0 <= slack < 1:
            raise UsageError(
                f"slack {slack:g} is not from 0 to below 1. Give the share of the time "
                f"left to keep, such as 0.05."
            )
        self._slack = slack
        self._curves = CurveCache()

    def rate(self, inputs: RatingInputs, _memory: Memory, /) -> RatingResult:
        """Rate contenders by the nodes that they need to finish in time."""
        needs = self._needs(inputs)
        ratings = [
            self._rating(contender, needs.get(contender.name))
            for contender in inputs.contenders
        ]
        return RatingResult(tuple(ratings), {})

    def _needs(self, inputs: RatingInputs) -> dict[str, tuple[int, int]]:
        """Return the nodes that each trainer needs and gets, by name, 0 for none."""
        needs, left = {}, inputs.nodes
        for contender in sorted(inputs.contenders, key=_earliest_first):
            if contender.deadline_s is None or contender.total_samples is None:
                continue
            time_s = (1 - self._slack) * (contender.deadline_s - inputs.now_s)
            needed = fewest_nodes(
                contender, contender.total_samples - contender.done_samples, time_s
            )
            within = [n for n in contender.sizes if n <= min(needed, left)]
            floor = max(within, default=0)
            needs[contender.name] = needed, floor
            left -= floor
        return needs

    def _rating(self, contender: Contender, need: tuple[int, int] | None) -> Rating:
        return Rating(
            curve=self._curves.speed_up(contender),
            floor=0 if need is None else need[1],
            reason=_reason(contender, need),
        )


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


def _reason(contender: Contender, need: tuple[int, int] | None) -> str:
    if contender.deadline_s is None:
        return "no deadline, so it counts by its speed-up"
    if need is None:
        return "it is unknown how much is left to do, so it counts by its speed-up"
    nodes, floor = need
    if nodes == 0:
        return "its deadline cannot be met, so it counts by its speed-up"
    if floor < nodes:
        return (
            f"{nodes} nodes would meet its deadline; it can have {floor or 'none'} now"
        )
    return f"{floor} nodes towards its deadline"
