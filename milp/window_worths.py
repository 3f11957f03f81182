"""What holds from one window to the next: worths, costs, shares of classes."""

from __future__ import annotations

import math
from itertools import zip_longest
from typing import TYPE_CHECKING, TypeAlias

from milp.window import gone

if TYPE_CHECKING:
    from collections.abc import Mapping

    from milp.problem import Curve
    from milp.window import Holder, Stay, Window

_MOST_CURVES = 10_000

Expected: TypeAlias = tuple[float, float, float, list[float]]
"""Of a class: life, hit and, of all its nodes and of 0 .. all, what ``gone`` says.

As few nodes of it are ever asked for, ``Stay.hits`` would take longer.
"""

_Alike: TypeAlias = "tuple[Curve, float, float, frozenset[tuple[int, float]]]"


class Terms:
    """What a trainer's nodes are worth to it, however long they stay.

    Kept while the trainer stays as it is, and weighed anew for every window: what
    losses and changes count for is learned, and never twice the same.

    Attributes:
        held: Nodes it holds now, by class.
        before: How many these are.
        worth: By node count; -inf at what is not a size.
        most: Its largest size.
        up: What growing costs, in objective units.
        down: What shrinking costs.
        start_s: Seconds of its new worth that starting costs; 0 if it holds nodes.
        loss_s: Seconds of its worth that a hit costs.
        fresh: What share of the hits on a class counts, where that is not all.
    """

    __slots__ = (
        "_present",
        "_trainer",
        "before",
        "down",
        "fresh",
        "held",
        "loss_s",
        "most",
        "start_s",
        "up",
        "worth",
    )

    def __init__(self, trainer: Holder, worth: list[float]) -> None:
        self.held, self.before = trainer.held, sum(trainer.held.values())
        self.worth, self.most = worth, len(worth) - 1
        self.fresh = trainer.fresh
        self._trainer = trainer
        # What it holds after a loss may be no size; it trained on it all the same.
        self._present = trainer.curve.value_per_s.item(self.before)
        self.up = self.down = self.start_s = self.loss_s = 0.0

    def weigh(self, hit_weight: float, change_weight: float) -> None:
        """Let losses and changes count for so much from now on."""
        trainer, present = self._trainer, self._present * change_weight
        self.up = present * trainer.up_s
        self.down = present * trainer.down_s
        self.start_s = 0.0 if self.held else change_weight * trainer.start_s
        self.loss_s = hit_weight * trainer.loss_s


class Worths:
    """What is derived from curves, trainers and shares, kept between windows."""

    def __init__(self) -> None:
        self._known: dict[Curve, list[float]] = {}
        self._gone: dict[tuple[float, int], list[float]] = {}
        self._waiting: dict[_Alike, Terms] = {}
        self._trainers: tuple[Holder, ...] = ()
        self._terms: list[Terms] = []

    def terms(self, window: Window) -> list[Terms]:
        """Return the terms of each trainer; they hold until the next window's.

        Few are others than in the last window. Those that hold nothing and are equal
        otherwise have the same.
        """
        known = len(window.trainers)
        self._terms = [
            terms if trainer is before else self._made(trainer)
            for trainer, before, terms in zip_longest(
                window.trainers, self._trainers[:known], self._terms[:known]
            )
        ]
        self._trainers = window.trainers
        for terms in self._terms:
            terms.weigh(window.hit_weight, window.change_weight)
        return self._terms

    def _made(self, trainer: Holder) -> Terms:
        worth = self.of(trainer.curve)
        if trainer.held:
            return Terms(trainer, worth)
        fresh = frozenset(trainer.fresh.items())
        key = trainer.curve, trainer.start_s, trainer.loss_s, fresh
        known = self._waiting.get(key)
        if known is None:
            if len(self._waiting) >= _MOST_CURVES:
                self._waiting.clear()
            known = self._waiting[key] = Terms(trainer, worth)
        return known

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
