"""How far ahead each trainer's gain is looked at."""

from __future__ import annotations

from typing import TYPE_CHECKING

from freetrain.priority.fair import level_nodes

if TYPE_CHECKING:
    from freetrain.priority.interface import Contender, Look

AHEAD = 0.5
"""Share of a trainer's whole work. Over the planner's two minutes, nodes went from
whoever was nearly done to whoever was steep just now, and what that gained went into
rescales (docs/quality.md)."""


def horizons_s(look: Look) -> tuple[float, ...]:
    """Return the horizon of each contender, seconds.

    As long as half of its whole work takes on its equal share of the nodes, or all
    that is left of it where that is less; at least the planner's look-ahead. On
    more nodes than the share a gain is the same sooner and no larger: so nodes go to
    many trainers, each using them well, rather than to the steepest alone.
    """
    level = level_nodes([one.sizes[-1] for one in look.contenders], look.nodes)
    return tuple([_horizon_s(one, level, look.t_fwd_s) for one in look.contenders])


def whole_samples(contender: Contender) -> float:
    """Return the work of the whole training; twice what is done if nobody knows."""
    if contender.total_samples is not None:
        return contender.total_samples
    return 2 * contender.done_samples


def _horizon_s(one: Contender, level: float, t_fwd_s: float) -> float:
    whole = whole_samples(one)
    work = min(AHEAD * whole, max(whole - one.done_samples, 0.0))
    share = max((n for n in one.sizes if n <= level), default=one.sizes[0])
    return max(work / one.samples_per_s.item(share), t_fwd_s)
