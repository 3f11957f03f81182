"""All that is asked of a forecast, asked once: what was kept may be spoilt anywhere."""

from __future__ import annotations

import math
from dataclasses import astuple
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from freetrain.forecast.interface import Expected, Prospect
    from freetrain.forecast.live import LiveForecast


def check_answers(
    forecast: LiveForecast, nodes: Iterable[str], *, horizon_s: float
) -> None:
    """Ask what plans and people will, once a look was told.

    Of a group one node is asked: the others have the same answers. Whatever an answer
    raises goes through.

    Args:
        forecast: Who is asked.
        nodes: The nodes that were idle at the look.
        horizon_s: How far its prospects reach.

    Raises:
        ValueError: An answer cannot be, such as a probability above 1.
    """
    for node in {forecast.group(node): node for node in nodes}.values():
        _check_prospect(forecast.prospect(node, math.inf), horizon_s)
        _check_expected(node, forecast.expected(node))
    weights = forecast.hit_weight, forecast.change_weight
    told = [n for one in forecast.intervals() for n in astuple(one)]
    if not all(map(math.isfinite, (*weights, *told))):
        raise ValueError(f"losses and changes count {weights}; promises came {told}")


def _check_prospect(told: Prospect, horizon_s: float) -> None:
    life_s, hit, share = told
    if not (0.0 <= life_s <= horizon_s and 0.0 <= hit <= 1.0 and 0.0 < share <= 1.0):
        raise ValueError(f"a prospect that cannot be: {told}")


def _check_expected(node: str, told: Expected | None) -> None:
    if told is None:
        raise ValueError(f"nothing is expected of {node}, which is idle")
    if not (0.0 <= told.leaves <= 1.0 and 0.0 < told.times_in_line < math.inf):
        raise ValueError(f"of {node} is expected what cannot be: {told}")
