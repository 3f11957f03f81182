"""Quality over time, drawn."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import plotly.graph_objects as go

from freetrain.report.figures import POOL_BINS, colour, drawn, middles, time_unit
from freetrain.report.quality_series import quality_over_time
from freetrain.report.series import bin_edges_s

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from freetrain.report.comparison import Comparison


def quality_figure(comparison: Comparison) -> go.Figure:
    """Draw the mean and the worst quality of the trainers under way over time."""
    edges_s = bin_edges_s(comparison.shown_s, most_bins=POOL_BINS)
    times_s = (edges_s[:-1] + edges_s[1:]) / 2
    lines: list[go.Scatter] = []
    for result in comparison.results:
        if not result.learning:
            continue
        seen = quality_over_time(result, times_s)
        for values, dash in ((seen.under_way, "solid"), (seen.worst, "dot")):
            name = comparison.name(result)
            line = _share_line(edges_s, values, name=name, is_worst=dash == "dot")
            line.update(line={"color": colour(comparison, result), "dash": dash})
            lines.append(line)
    figure = drawn(lines, height=400, hovermode="x unified")
    figure.update_xaxes(title=time_unit(edges_s)[1])
    return figure.update_yaxes(title="% of the best", range=[0, 101])


def _share_line(
    edges_s: NDArray[np.float64],
    values: NDArray[np.float64],
    *,
    name: str,
    is_worst: bool,
) -> go.Scatter:
    # A gap where nobody is under way: JSON has no nan, and Plotly draws None as one.
    shares = [None if np.isnan(v) else round(100 * v, 2) for v in values.tolist()]
    return go.Scatter(
        x=middles(edges_s),
        y=shares,
        name=f"{name}, worst" if is_worst else name,
        legendgroup=name,
        showlegend=not is_worst,
        mode="lines",
        hovertemplate="%{y:.1f} %",
    )
