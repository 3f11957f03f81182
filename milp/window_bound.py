"""How much any plan of a window can gain at most (docs/lookahead.md, W3)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from milp.problem import Curve
    from milp.window import Holder, Window

    Vector = NDArray[np.float64]

_STEPS = 60
"""Twice as many lower the bound of a window of Summit by less than a thousandth."""


@dataclass(frozen=True, slots=True)
class _Pool:
    """Classes as arrays.

    Attributes:
        nodes: By class.
        life_s: By class.
        least_hits: A node, at least: h is concave, so that h(x) >= x p / m.
        most_hits: A node, at most.
    """

    nodes: Vector
    life_s: Vector
    least_hits: Vector
    most_hits: Vector


def bound(window: Window) -> float:
    """Return a gain that no plan of *window* exceeds.

    Nodes of class k cost λ_k each, for everybody, and nobody minds what others take
    or what it holds now. For any λ >= 0 that is a relaxation; the λ that make it
    tight are approached by subgradients, and the best value on the way is returned.
    """
    if not window.stays:
        return 0.0
    stays = list(window.stays.values())
    hit = np.array([stay.hit for stay in stays])
    nodes = np.array([float(stay.nodes) for stay in stays])
    lives_s = np.array([stay.life_s for stay in stays])
    pool = _Pool(nodes, lives_s, hit / nodes, hit)
    prices = np.zeros(len(stays))
    best, least = np.inf, np.zeros(len(stays))
    for step in range(_STEPS):
        value, used = _relaxed(window, pool, prices)
        value += float(prices @ nodes)
        best = min(best, value)
        over = used - nodes
        length = float(over @ over)
        if not length:
            break
        # Polyak's step for a target somewhat below what was reached.
        scale = abs(value) * 0.1 * 0.9**step / length
        prices = np.maximum(least, prices + scale * over)
    return best


def _relaxed(window: Window, pool: _Pool, prices: Vector) -> tuple[float, Vector]:
    """Return what trainers gain at *prices*, less what they pay, and what they use."""
    known: dict[tuple[Curve, float, float], tuple[Vector, Vector]] = {}
    total, used = 0.0, np.zeros_like(prices)
    for trainer in window.trainers:
        held = sum(trainer.held.values())
        start_s = 0.0 if held else window.change_weight * trainer.start_s
        key = trainer.curve, trainer.loss_s, start_s
        if key not in known:
            loss_s = window.hit_weight * trainer.loss_s
            known[key] = _by_size(trainer.curve, pool, prices, (loss_s, start_s))
        values, takes = known[key]
        sizes = np.array((0, *trainer.curve.sizes))
        net = values - _costs(trainer, held, sizes, window.change_weight)
        place = int(net.argmax())
        total += float(net[place])
        used = used + takes[place]
    return total, used


def _costs(trainer: Holder, held: int, sizes: Vector, weight: float) -> Vector:
    change_s = np.where(
        sizes > held, trainer.up_s, np.where(sizes < held, trainer.down_s, 0.0)
    )
    costs: Vector = weight * trainer.curve.value_per_s.item(held) * change_s
    return costs


def _by_size(
    curve: Curve, pool: _Pool, prices: Vector, seconds: Sequence[float]
) -> tuple[Vector, Vector]:
    """Return the most that each size gains at *prices*, 0 first, and what it takes.

    Shapes (sizes + 1,) and (sizes + 1, classes); -inf where nodes do not suffice.
    """
    loss_s, start_s = seconds
    sizes = np.array(curve.sizes, dtype=np.float64)[:, None]
    worth = curve.value_per_s[list(curve.sizes)][:, None]
    hits = np.where(worth >= 0.0, pool.least_hits, pool.most_hits)
    each = worth * (pool.life_s / sizes - loss_s * hits) - prices
    order = np.argsort(-each, axis=1, kind="stable")
    before = np.cumsum(pool.nodes[order], axis=1) - pool.nodes[order]
    taken = np.clip(sizes - before, 0.0, pool.nodes[order])
    value = (taken * np.take_along_axis(each, order, axis=1)).sum(axis=1)
    value = value - worth[:, 0] * start_s
    value[taken.sum(axis=1) < sizes[:, 0]] = -np.inf
    takes = np.zeros_like(each)
    np.put_along_axis(takes, order, taken, axis=1)
    nothing = np.zeros((1, len(prices)))
    return np.concatenate(([0.0], value)), np.concatenate((nothing, takes))
