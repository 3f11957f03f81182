"""The priority ``slaq-min``: SLAQ's other objective, the worst trainer first."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from freetrain.priority.claims import Answer, Claim
from freetrain.priority.slaq import Slaq, final_quality, qualities
from freetrain.priority.standing import Standing, standing
from freetrain.toml.wording import per_cent

if TYPE_CHECKING:
    from collections.abc import Sequence

    from freetrain.priority.interface import Contender, Look

SHARPNESS = 10.0
"""Three tenths further from its end, a trainer's gain counts e^3 = 20 times as much."""


class SlaqMin(Slaq):
    """O_j(n) = (u(p_j(n)) - u(p_j(0))) / H, with u(p) = -exp(-10 p).

    p is the share of the way to the expected end that the trainer will have gone
    after H on n nodes: quality over quality at ``total_samples``, or after twice the
    work done where nobody knows those. Summed up, u is a soft minimum of p.

    Args:
        horizon_s: [H] How far ahead, seconds; 0 for the planner's look-ahead.

    Raises:
        UsageError: *horizon_s* is below 0, or not finite.
    """

    name = "slaq-min"

    def _horizons_s(self, look: Look) -> Sequence[float]:
        return (self._horizon_s or look.t_fwd_s,) * len(look.contenders)

    def _answer(self, contender: Contender, horizon_s: float) -> Answer:
        stands, outlook = standing(contender), contender.outlook
        if stands is not Standing.LEARNING or outlook is None:
            return stands
        end = final_quality(contender, outlook)
        if end <= 0:
            return Standing.DOUBTFUL
        way = np.clip(qualities(contender, outlook, horizon_s) / end, 0, 1)
        useful = np.maximum(np.exp(-SHARPNESS * way[0]) - np.exp(-SHARPNESS * way), 0)
        if not useful.any():
            return Standing.DOUBTFUL
        reason = f"{per_cent(way[0])} of the way to its expected end"
        return Claim(useful / horizon_s, reason)
