"""The priority ``slaq-min``: SLAQ's other objective, the worst trainer first."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from freetrain.priority.claims import Answer, Claim
from freetrain.priority.slaq import Slaq, qualities
from freetrain.priority.standing import Standing, done_samples, quality_after

if TYPE_CHECKING:
    from freetrain.priority.interface import Contender
    from freetrain.quality.outlook import Outlook

SHARPNESS = 10.0
"""Three tenths further from its end, a trainer's gain counts e^3 = 20 times as much."""


class SlaqMin(Slaq):
    """O_j(n) = (u(p_j(n)) - u(p_j(0))) / H, with u(p) = -exp(-10 p).

    p is the share of the way to the expected end that the trainer will have gone
    after H on n nodes: quality over quality at ``total_samples``, or after twice the
    work done where nobody knows those. Summed up, u is a soft minimum of p.
    """

    name = "slaq-min"

    def _learning(
        self, contender: Contender, outlook: Outlook, horizon_s: float
    ) -> Answer:
        end = final_quality(contender, outlook)
        if end <= 0:
            return Standing.DOUBTFUL
        way = np.clip(qualities(contender, outlook, horizon_s) / end, 0, 1)
        useful = np.maximum(np.exp(-SHARPNESS * way[0]) - np.exp(-SHARPNESS * way), 0)
        if not useful.any():
            return Standing.DOUBTFUL
        reason = f"{100 * way[0]:.0f} % of the way to its expected end"
        return Claim(useful / horizon_s, reason)


def final_quality(contender: Contender, outlook: Outlook) -> float:
    """Return the quality expected at the end of the training."""
    done = done_samples(contender, outlook)
    end = 2 * done if contender.total_samples is None else contender.total_samples
    return quality_after(outlook, max(end, done))
