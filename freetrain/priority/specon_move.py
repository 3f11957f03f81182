"""What moving a slow grower to its smallest size brings, and what it costs."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from collections.abc import Set as AbstractSet

    from freetrain.priority.interface import Contender, Look


def is_worth_its_cost(
    slow: Contender,
    look: Look,
    growths: Mapping[str, float],
    others_slow: AbstractSet[str],
) -> bool:
    """Tell whether *slow* should give up its nodes above the smallest size.

    The nodes that it frees go to the fast grower that makes the most of them. In
    quality, with G for growth and S for speed-up, over the look-ahead T::

        G_f (T (S_f(n') - S_f(n)) - stops_f)  >  G_s (T (S_s(h) - S_s(m)) + stops_s)

    where stopping costs the seconds of a rescale of what is stopped. Who holds no
    more than its smallest size has nothing to move.

    Args:
        slow: The slow grower.
        look: All trainers.
        growths: Growth by name.
        others_slow: Names of all slow growers, who get none of what is freed.
    """
    least = slow.sizes[0]
    freed = slow.held - least
    if freed <= 0:
        return True
    most = max(
        (
            _gain(one, freed, look.t_fwd_s, growths[one.name])
            for one in look.contenders
            if one.name not in others_slow
        ),
        default=0.0,
    )
    lost_s = look.t_fwd_s * (_speed_up(slow, slow.held) - _speed_up(slow, least))
    stopped_s = slow.shrink_s * _speed_up(slow, slow.held)
    own = max(growths[slow.name], 0.0)
    return most > own * (lost_s + stopped_s)


def would_be_last(slow: Contender, look: Look) -> bool:
    """Tell whether *slow* on its smallest size would finish after all others.

    Those are taken to stay on what they hold, or on their smallest size.
    """
    others = [one for one in look.contenders if one is not slow]
    left_s = _left_s(slow, slow.sizes[0])
    return left_s > max(
        (_left_s(one, max(one.held, one.sizes[0])) for one in others), default=0.0
    )


def _left_s(one: Contender, nodes: int) -> float:
    """Return how long what is left takes on so many nodes; inf for nobody knows."""
    if one.total_samples is None:
        return math.inf
    speeds = one.samples_per_s
    return (one.total_samples - one.done_samples) / speeds.item(
        min(nodes, len(speeds) - 1)
    )


def _gain(one: Contender, freed: int, t_fwd_s: float, growth: float) -> float:
    """Return what *one* gains by growing into *freed* nodes, 0 where it cannot."""
    size = max((n for n in one.sizes if n <= one.held + freed), default=0)
    if size <= one.held:
        return 0.0
    now, then = _speed_up(one, one.held), _speed_up(one, size)
    stopped_s = one.grow_s * now if one.held else one.start_s * then
    return growth * (t_fwd_s * (then - now) - stopped_s)


def _speed_up(contender: Contender, nodes: int) -> float:
    """Return speed over that of a node, as it is on the smallest size."""
    least = contender.sizes[0]
    speeds = contender.samples_per_s
    return speeds.item(min(nodes, len(speeds) - 1)) / speeds.item(least) * least
