"""Drawings of forecasts and what came of them, by Plotly."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

import plotly.graph_objects as go

from freetrain.report.figures import NEUTRAL, POLICY_COLOURS, POOL_FILL, drawn
from freetrain.report.forecast_rows import (
    FEW_DEPARTURES,
    age_words,
    cell_name,
    size_words,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from freetrain.forecast.affinity_map import AffinityMap
    from freetrain.forecast.answers import AgePart, Part
    from freetrain.forecast.reliability import ForecastRecord

WITHIN = 5.0
"""Points of a hundred that a good forecast may be off."""

_ROOM = 4.0
_BEHIND = "<br>%{customdata[0]:,} answers, %{customdata[1]:,} departures"
_EDGE = {"width": 0}


def reliability_figure(record: ForecastRecord) -> go.Figure:
    """Draw what came over what was said, a point a tenth of the answers."""
    tenths = record.reliability.deciles
    said = [100 * one.said for one in tenths]
    came = [100 * one.came for one in tenths]
    low = max(0.0, min([*said, *came], default=0.0) - _ROOM)
    high = min(100.0, max([*said, *came], default=100.0) + _ROOM)
    points = go.Scatter(
        x=_rounded(said),
        y=_rounded(came),
        name="a tenth of the answers",
        mode="lines+markers",
        line={"color": POLICY_COLOURS[0], "width": 1.4},
        marker={"size": 9, "symbol": [_symbol(one) for one in tenths]},
        cliponaxis=False,
        customdata=[(round(one.count), round(one.departures)) for one in tenths],
        hovertemplate="said %{x:.1f} %, came %{y:.1f} %" + _BEHIND + "<extra></extra>",
    )
    figure = drawn([*_agreement(low, high), points], height=440)
    figure.update_xaxes(title="said: % that stay", range=[low, high])
    return figure.update_yaxes(title="came: % that stayed", range=[low, high])


def _agreement(low: float, high: float) -> Iterator[go.Scatter]:
    """Draw where what came is what was said, and where it is nearly."""
    yield go.Scatter(
        x=[low, high, high, low],
        y=[low - WITHIN, high - WITHIN, high + WITHIN, low + WITHIN],
        name=f"within {WITHIN:g} points",
        fill="toself",
        fillcolor=POOL_FILL,
        mode="lines",
        line=_EDGE,
        hoverinfo="skip",
    )
    yield go.Scatter(
        x=[low, high],
        y=[low, high],
        name="as said",
        mode="lines",
        line={"color": NEUTRAL, "width": 1, "dash": "dash"},
        hoverinfo="skip",
    )


def survival_figure(record: ForecastRecord) -> go.Figure:
    """Draw who stayed by age, a line a class of size, beside what was said."""
    ages = {one.from_s: age_words(one) for one in record.reliability.by_age}
    lines = [
        line
        for k, (_, group) in enumerate(groupby(record.reliability.by_age, size_words))
        for line in _survival_lines(list(group), POLICY_COLOURS[k])
    ]
    figure = drawn(lines, height=420)
    figure.update_xaxes(
        title="idle for",
        categoryorder="array",
        categoryarray=[ages[from_s] for from_s in sorted(ages)],
    )
    return figure.update_yaxes(title="% that stayed", range=[0, 101])


def _survival_lines(group: Sequence[AgePart], paint: str) -> Iterator[go.Scatter]:
    nodes, outcomes = size_words(group[0]), [one.part for one in group]
    x = [age_words(one) for one in group]
    yield go.Scatter(
        x=x,
        y=_rounded([100 * one.came for one in outcomes]),
        name=f"{nodes} node{'' if nodes == '1' else 's'} left",
        legendgroup=nodes,
        mode="lines+markers",
        line={"color": paint, "width": 2},
        marker={"size": 8, "symbol": [_symbol(one) for one in outcomes]},
        cliponaxis=False,
        customdata=[(round(one.count), round(one.departures)) for one in outcomes],
        hovertemplate="%{x}: %{y:.1f} % stayed" + _BEHIND + f"<extra>{nodes}</extra>",
    )
    yield go.Scatter(
        x=x,
        y=_rounded([100 * one.said for one in outcomes]),
        legendgroup=nodes,
        showlegend=False,
        mode="lines+markers",
        line={"color": paint, "width": 1.6, "dash": "dot"},
        marker={"size": 8, "symbol": "line-ew-open", "line_width": 2},
        hovertemplate="%{x}: %{y:.1f} % said<extra>" + nodes + "</extra>",
    )


def affinity_figure(shown: AffinityMap) -> go.Figure:
    """Draw how likely nodes leave together, those who do side by side."""
    names = [cell_name(cell) for cell in shown.cells]
    cells = go.Heatmap(
        x=names,
        y=names,
        z=[[None if a is None else round(a, 3) for a in row] for row in shown.affinity],
        zmin=0.0,
        zmax=1.0,
        colorscale="Viridis",
        colorbar={"title": {"text": "affinity"}, "thickness": 12, "outlinewidth": 0},
        hovertemplate="%{y}<br>with %{x}<br>affinity %{z:.2f}<extra></extra>",
    )
    figure = drawn([cells], height=460)
    axis = {"type": "category", "showticklabels": False, "ticks": "", "showgrid": False}
    figure.update_xaxes(title="nodes, in the order of the blocks", **axis)
    return figure.update_yaxes(title="the same nodes", autorange="reversed", **axis)


def _symbol(one: Part) -> str:
    return "circle-open" if one.departures < FEW_DEPARTURES else "circle"


def _rounded(values: Sequence[float]) -> list[float]:
    return [round(value, 2) for value in values]
