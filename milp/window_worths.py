"""What holds from one window to the next: worths, costs, shares of classes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING, TypeAlias

from milp.window import gone

if TYPE_CHECKING:
    from collections.abc import Mapping

    from milp.problem import Curve
    from milp.window import Holder, Holding, Stay, Window

_MOST_CURVES = 10_000

Expected: TypeAlias = tuple[float, float, float, list[float]]
"""Of a class: life, hit and, of all its nodes and of 0 .. all, what ``gone`` says.

As few nodes of it are ever asked for, ``Stay.hits`` would take longer.
"""


@dataclass(slots=True, eq=False)
class Terms:
    """What a trainer's nodes are worth to it, however long they stay.

    Never changed; it is not frozen as making it would take three times as long.

    Attributes:
        held: Nodes it holds now, by class.
        before: How many these are.
        worth: By node count; -inf at what is not a size.
        most: Its largest size.
        up: What growing costs, in objective units.
        down: What shrinking costs.
        start_s: Seconds of its new worth that starting costs; 0 if it holds nodes.
        loss_s: Seconds of its worth that a hit costs.
    """

    held: Holding
    before: int
    worth: list[float]
    most: int
    up: float
    down: float
    start_s: float
    loss_s: float


class Worths:
    """What is derived from curves, trainers and shares, kept between windows."""

    def __init__(self) -> None:
        self._known: dict[Curve, list[float]] = {}
        self._gone: dict[tuple[float, int], list[float]] = {}
        self._waiting: dict[tuple[Curve, float, float], Terms] = {}
        self._weights = (math.nan, math.nan)
        self._trainers: tuple[Holder, ...] = ()
        self._terms: list[Terms] = []

    def terms(self, window: Window) -> list[Terms]:
        """Return the terms of each trainer.

        Few are others than in the last window. Those that hold nothing and are equal
        otherwise have the same.
        """
        weights = window.hit_weight, window.change_weight
        if weights != self._weights:
            self._weights, self._trainers, self._terms = weights, (), []
            self._waiting.clear()
        self._terms = [
            terms if trainer is before else self._made(trainer, window)
            for trainer, before, terms in zip_longest(
                window.trainers,
                self._trainers[: len(window.trainers)],
                self._terms[: len(window.trainers)],
            )
        ]
        self._trainers = window.trainers
        return self._terms

    def _made(self, trainer: Holder, window: Window) -> Terms:
        if trainer.held:
            return self._anew(trainer, window)
        key = trainer.curve, trainer.start_s, trainer.loss_s
        known = self._waiting.get(key)
        if known is None:
            if len(self._waiting) >= _MOST_CURVES:
                self._waiting.clear()
            known = self._waiting[key] = self._anew(trainer, window)
        return known

    def _anew(self, trainer: Holder, window: Window) -> Terms:
        held, worth = trainer.held, self.of(trainer.curve)
        before = sum(held.values())
        # What it holds after a loss may be no size; it trained on it all the same.
        present = trainer.curve.value_per_s.item(before) * window.change_weight
        return Terms(
            held=held,
            before=before,
            worth=worth,
            most=len(worth) - 1,
            up=present * trainer.up_s,
            down=present * trainer.down_s,
            start_s=window.change_weight * trainer.start_s if not held else 0.0,
            loss_s=window.hit_weight * trainer.loss_s,
        )

    def of(self, curve: Curve) -> list[float]:
        """Return the worth at 0 .. the largest size, -inf at what is not a size."""
        known = self._known.get(curve)
        if known is None:
            if len(self._known) >= _MOST_CURVES:
                self._known.clear()
            values, sizes = curve.value_per_s.tolist(), {0, *curve.sizes}
            known = self._known[curve] = [
                values[n] if n in sizes else -math.inf
                for n in range(curve.sizes[-1] + 1)
            ]
        return known

    def expected(self, stays: Mapping[int, Stay]) -> dict[int, Expected]:
        """Return what is expected of classes; shares change seldom."""
        expected = {}
        for k, (nodes, life_s, hit, share) in stays.items():
            known = self._gone.get((share, nodes))
            if known is None:
                if len(self._gone) >= _MOST_CURVES:
                    self._gone.clear()
                known = self._gone[share, nodes] = gone(share, nodes)
            expected[k] = life_s, hit, known[-1], known
        return expected
