"""The priority ``tradl``: quickly to a model that can be used, then at leisure."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from freetrain.priority.base import (
    Answer,
    Basis,
    Claim,
    Curves,
    Rated,
    Rating,
    Standing,
    done_samples,
    ratings,
    standing,
)

if TYPE_CHECKING:
    from freetrain.losscurve.outlook import Outlook
    from freetrain.priority.base import Contender, Look, Memory, Target

FARTHEST = 10.0
"""Times the work done: no prediction is believed to reach further."""


class Tradl:
    """O_j(n) = speed(n) / R_j: deliveries a second, R_j samples being left to one.

    Who is near its first tier is worth much, as the shortest remaining time first
    has it, and who gains most by a node gets it. A trainer without a target delivers
    at its end. After its delivery a trainer is in the background, and beyond its
    final tier it is worth nothing.
    """

    name = "tradl"
    basis = Basis.LOSSES

    def __init__(self) -> None:
        self._curves = Curves()

    def rate(self, look: Look, _memory: Memory, /) -> Rated:
        """Rate contenders by how near they are to delivering."""
        answers = [self._answer(one, look) for one in look.contenders]
        return Rated(ratings(look.contenders, answers, self._curves), {})

    def _answer(self, contender: Contender, look: Look) -> Answer:
        target, outlook = contender.target, contender.outlook
        if target is not None and _is_finished(target, outlook):
            return self._finished(contender)
        if target is not None and _is_delivered(target, outlook):
            return self._delivered(contender)
        stands = standing(contender)
        if stands is Standing.DIVERGING:
            return stands
        if target is None:
            return _towards_end(contender, look)
        if outlook is None or stands is Standing.NO_LOSS:
            return Standing.NO_LOSS
        return _towards_delivery(contender, target, outlook, look)

    def _delivered(self, contender: Contender) -> Rating:
        return Rating(
            curve=self._curves.speed_up(contender),
            is_background=True,
            reason="delivered; it goes on with what others leave",
        )

    def _finished(self, contender: Contender) -> Rating:
        nothing = np.zeros(contender.sizes[-1] + 1)
        return Rating(
            curve=self._curves.custom(nothing, contender.sizes),
            is_background=True,
            reason="its final target is reached; nothing is left to do",
        )


def is_reached(value: float, outlook: Outlook | None) -> bool:
    """Tell whether a value told so far is as good as *value*."""
    if outlook is None:
        return False
    wanted = outlook.quality(value)
    return any(outlook.quality(point.value) >= wanted for point in outlook.points)


def _is_finished(target: Target, outlook: Outlook | None) -> bool:
    return target.final is not None and is_reached(target.final, outlook)


def _is_delivered(target: Target, outlook: Outlook | None) -> bool:
    return target.is_delivered or is_reached(target.deliver, outlook)


def _towards_end(contender: Contender, look: Look) -> Answer:
    if contender.total_samples is None:
        return Standing.NO_AIM
    left = contender.total_samples - contender.done_samples
    return _claim(contender, left, look, "no target: its end counts as delivery")


def _towards_delivery(
    contender: Contender, target: Target, outlook: Outlook, look: Look
) -> Claim:
    done = done_samples(contender, outlook)
    predicted = outlook.samples_to(target.deliver) - done
    left = min(predicted, FARTHEST * done)
    if contender.total_samples is not None:
        left = min(left, contender.total_samples - done)
    return _claim(contender, left, look, f"predicted by {outlook.family}")


def _claim(contender: Contender, left: float, look: Look, how: str) -> Claim:
    """Return the claim of who has so many samples left, a look-ahead's at least."""
    slowest = contender.samples_per_s.item(contender.sizes[0])
    worth = contender.samples_per_s / max(left, slowest * look.t_fwd_s)
    reason = f"delivers after {max(left, 0.0):.3g} more samples ({how})"
    return Claim(worth, reason)
