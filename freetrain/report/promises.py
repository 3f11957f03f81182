"""What was promised of idle nodes and what came: a drawing and its table."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import plotly.graph_objects as go

from freetrain.forecast.promises import LEADS_S
from freetrain.report.figures import NEUTRAL, POLICY_COLOURS, drawn
from freetrain.report.rows import MINUTE_S, percent

if TYPE_CHECKING:
    from collections.abc import Sequence

    from freetrain.forecast.delays import Interval

HEADINGS = (
    "told ahead",
    "nodes",
    "early",
    "late",
    "1 of 10 until",
    "half until",
    "9 of 10 until",
)


def promise_rows(kinds: Sequence[Interval]) -> list[tuple[str, ...]]:
    """Return *kinds*, in order of their lead, as rows under ``HEADINGS``."""
    return [
        (
            lead_words(kind),
            f"{kind.nodes:,}",
            percent(kind.early),
            percent(kind.late),
            *(f"{_min(at_s):+.1f} min" for at_s in _quantiles_s(kind)),
        )
        for kind in kinds
    ]


def lead_words(kind: Interval) -> str:
    """Return how long ahead promises of *kind* were told."""
    end_s = dict(pairwise(LEADS_S)).get(kind.lead_s)
    from_min = f"{_min(kind.lead_s):g}"
    return f"> {from_min} min" if end_s is None else f"{from_min}-{_min(end_s):g} min"


def promises_figure(kinds: Sequence[Interval]) -> go.Figure:
    """Draw how much later than promised nodes were taken, a bar a kind."""
    quantiles_s = [_quantiles_s(kind) for kind in kinds]
    spans = go.Scatter(
        x=[round(_min(middle_s), 2) for _, middle_s, _ in quantiles_s],
        y=[lead_words(kind) for kind in kinds],
        mode="markers",
        marker={"size": 10, "color": POLICY_COLOURS[0]},
        error_x={
            "type": "data",
            "symmetric": False,
            "array": [round(_min(high - mid), 2) for _, mid, high in quantiles_s],
            "arrayminus": [round(_min(mid - low), 2) for low, mid, _ in quantiles_s],
            "color": POLICY_COLOURS[0],
            "thickness": 2,
        },
        customdata=[kind.nodes for kind in kinds],
        hovertemplate="%{y}: %{x:+.1f} min<br>%{customdata:,} nodes<extra></extra>",
        showlegend=False,
    )
    figure = drawn([spans], height=130 + 34 * len(kinds))
    figure.add_vline(x=0.0, line={"color": NEUTRAL, "dash": "dash", "width": 1})
    figure.update_xaxes(title="minutes late; below 0 is early")
    return figure.update_yaxes(title="told ahead", type="category")


def _quantiles_s(kind: Interval) -> tuple[float, float, float]:
    return kind.low_s, kind.middle_s, kind.high_s


def _min(time_s: float) -> float:
    return time_s / MINUTE_S
