"""From what a trainer showed to the speeds and costs that the planner goes by."""

from __future__ import annotations

from typing import TYPE_CHECKING

from freetrain.scaling import (
    ASSUMED_RESCALE_S,
    ASSUMED_START_S,
    Rescale,
    Stake,
    cautious,
    curve_values,
    estimate,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from freetrain.scaling import LearnedScaling, Prior, Profiling

RescaleCostsS = tuple[float, float, float]
"""Seconds without training at growing, at shrinking and at starting."""

ASSUMED_COSTS_S: RescaleCostsS = (ASSUMED_RESCALE_S, ASSUMED_RESCALE_S, ASSUMED_START_S)

_KINDS = (Rescale.GROW, Rescale.SHRINK, Rescale.START)


def learned_costs_s(
    known: LearnedScaling, assumed_s: RescaleCostsS = ASSUMED_COSTS_S
) -> RescaleCostsS:
    """Return what rescales cost, by those seen and by *assumed_s*."""
    grow_s, shrink_s, start_s = (
        known.cost_s(kind, assumed_s=cost_s)
        for kind, cost_s in zip(_KINDS, assumed_s, strict=True)
    )
    return grow_s, shrink_s, start_s


def learned_speeds(  # noqa: PLR0913 - one fact each
    known: LearnedScaling,
    sizes: Sequence[int],
    *,
    held: int,
    now_s: float,
    prior: Prior,
    deviations: float,
    profiling: Profiling | None = None,
    remaining_samples: float,
    costs_s: RescaleCostsS,
    node_per_s: float = 0.0,
    stated: Mapping[int, float] | None = None,
) -> NDArray[np.float64]:
    """Return samples/s at 0 .. the largest of *sizes*, as the planner is to see them.

    The estimate from what was seen; lower, where the trainer waits, as far as it is
    not sure; higher where the trainer is to try a size.

    Args:
        known: What the trainer showed.
        sizes: Node counts that it can use, ascending.
        held: Nodes that it holds now.
        now_s: On the clock of what it showed.
        prior: What is expected of trainers here.
        deviations: By how many standard deviations speeds of a trainer that waits are
            lowered.
        profiling: How eager trainers are to try sizes; None for not at all.
        remaining_samples: Work until it is finished; inf where that is not known.
        costs_s: What rescales cost it.
        node_per_s: Samples a second that a node brings elsewhere.
        stated: Samples a second by node count, as its user says.

    Returns:
        Shape (largest size + 1,), float64, read-only; entry 0 is 0.
    """
    curve = estimate(known, sizes[-1], now_s=now_s, prior=prior, user=stated)
    curve = cautious(curve, held=held, deviations=deviations)
    grow_s, shrink_s, _ = costs_s
    stake = Stake(
        remaining_samples=remaining_samples,
        # The trainer that gives nodes up for a trial and takes them back pays, too.
        rescale_s=2.0 * (grow_s + shrink_s),
        held=held,
        smallest=sizes[0],
        node_per_s=node_per_s,
    )
    return curve_values(curve, profiling=profiling, stake=stake)
