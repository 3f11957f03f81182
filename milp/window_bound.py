"""How much any plan of a window can gain at most (docs/model.md, W3)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from milp.deadline import NEVER

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from milp.deadline import Deadline
    from milp.window import Window
    from milp.window_options import Options

    Vector = NDArray[np.float64]
    Places = NDArray[np.intp]

_STEPS = 120
"""Twice as many lower the bound of 100 trainers on 1,000 nodes by 0.2 % at most."""

_FIRST_STEPS = 12
"""On the way to prices that are in proportion to lives."""

_PATIENCE = 5
"""Steps without progress after which they become shorter."""

_SHORTER = 0.6

_PROGRESS = 1e-4


class Dual(NamedTuple):
    """A bound, and where it was found.

    Attributes:
        value: No plan gains more.
        prices: [λ_k] Of a node by class.
    """

    value: float
    prices: Vector


class Asked(NamedTuple):
    """What trainers would do at prices.

    Attributes:
        value: What no plan exceeds.
        chosen: By trainer: the row of the options that it likes best.
        losses: By row: what choosing it would lose to its trainer.
        takes: By row: nodes by class.
    """

    value: float
    chosen: Places
    losses: Vector
    takes: Places

    def over(self, nodes: Places) -> Vector:
        """Return by how much all together want more of each class than there is."""
        wanted = self.takes[self.chosen].sum(axis=0)
        over: Vector = (wanted - nodes).astype(np.float64)
        return over


def loose_bound(window: Window) -> float:
    """Return what all trainers gain if nodes abound, live longest and are never hit.

    Where a worth is below 0, losses are a gain: then as if every class was hit. And
    where the present worth is, so is a change.
    """
    lives_s = max([stay.life_s for stay in window.stays.values()], default=0.0)
    hits = sum([stay.hit for stay in window.stays.values()])
    total = 0.0
    for one in window.trainers:
        worth = one.curve.value_per_s[list(one.curve.sizes)]
        start_s = 0.0 if one.held else window.change_weight * one.start_s
        lost_s = window.hit_weight * one.loss_s * hits
        best = np.maximum(worth * (lives_s - start_s), -worth * (lost_s + start_s))
        present = window.change_weight * one.curve.value_per_s[sum(one.held.values())]
        change = max(0.0, -float(present) * max(one.up_s, one.down_s))
        total += max(0.0, float(best.max())) + change
    return total


def ask(options: Options, prices: Vector) -> Asked:
    """Return what trainers choose at *prices*, and what that says of all plans.

    Nodes of class k cost λ_k each, for everybody, and nobody minds what others take.
    That is a relaxation for any λ >= 0, so that nothing rests on how λ was found.
    """
    values, takes = options.best(prices)
    ends = options.ends
    best = np.maximum.reduceat(values, options.first)
    losses = np.repeat(best, ends - options.first) - values
    chosen = [
        first + int(losses[first:end].argmin())
        for first, end in zip(options.first, ends, strict=True)
    ]
    value = float(best[options.kind].sum() + prices @ options.pool.nodes)
    return Asked(value, np.array(chosen, dtype=np.intp)[options.kind], losses, takes)


def first(options: Options, deadline: Deadline = NEVER) -> Dual:
    """Return a bound to begin from: the best prices in proportion to lives."""
    pool = options.pool
    best = Dual(np.inf, np.zeros(len(pool.nodes)))
    least, most = 0.0, np.inf
    scale = 0.0
    for _ in range(_FIRST_STEPS):
        prices = scale * pool.life_s
        asked = ask(options, prices)
        if asked.value < best.value:
            best = Dual(asked.value, prices)
        if deadline.passed():
            break
        if asked.over(pool.nodes) @ pool.life_s > 0.0:
            least = scale
        else:
            most = scale
        if not most:
            break
        if np.isfinite(most):
            scale = (least + most) / 2.0
        else:
            scale = 2.0 * scale or abs(asked.value) / float(pool.nodes @ pool.life_s)
    return best


def tighten(
    options: Options,
    start: Dual,
    *,
    reached: float,
    steps: int = _STEPS,
    deadline: Deadline = NEVER,
) -> Dual:
    """Lower the bound by subgradients, with Polyak's steps towards what is reached.

    Args:
        options: Sizes of all trainers.
        start: Where to go on from.
        reached: A gain that is known to be possible, or a guess of it; the bound
            holds for any.
        steps: How many to make at most.
        deadline: When to stop; one step is always made.
    """
    pool, best, pace, stalled = options.pool, start, 1.0, 0
    prices, over_best = start.prices, np.zeros(len(options.pool.nodes))
    for _ in range(steps):
        asked = ask(options, prices)
        stalled = 0 if asked.value < best.value * (1.0 - _PROGRESS) else stalled + 1
        if asked.value <= best.value:
            best, over_best = Dual(asked.value, prices), asked.over(pool.nodes)
        over, distance = asked.over(pool.nodes), asked.value - reached
        if stalled >= _PATIENCE:
            pace, stalled = pace * _SHORTER, 0
            prices, over, distance = best.prices, over_best, best.value - reached
        over[(prices <= 0.0) & (over < 0.0)] = 0.0
        length = float(over @ over)
        if not length or distance <= 0.0 or deadline.passed():
            break
        prices = np.maximum(0.0, prices + pace * distance / length * over)
    return best
