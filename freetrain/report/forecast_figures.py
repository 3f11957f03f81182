"""Drawings of forecasts and what came of them, by Plotly."""

from __future__ import annotations

import math
from itertools import groupby
from typing import TYPE_CHECKING

import plotly.graph_objects as go

from freetrain.forecast.answers import NODES_LEFT, Part
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
    from freetrain.forecast.answers import AgePart
    from freetrain.forecast.reliability import ForecastRecord

WITHIN = 5.0
"""Points of a hundred that a good forecast may be off."""

_ROOM = 4.0
_BEHIND = "<br>%{customdata[0]:,} answers, %{customdata[1]:,} departures"
_EDGE = {"width": 0}
_NOTHING = Part(said=math.nan, came=math.nan, count=0.0, departures=0.0)


def reliability_figure(record: ForecastRecord) -> go.Figure:
    """Draw what came over what was said, a point a tenth of the answers."""
    tenths = record.reliability.deciles
    shares = [share for one in tenths for share in (one.said, one.came)]
    low = max(0.0, 100 * min(shares) - _ROOM)
    high = min(100.0, 100 * max(shares) + _ROOM)
    points = go.Scatter(
        x=[_percent(one.said) for one in tenths],
        y=[_percent(one.came) for one in tenths],
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
    """Draw who stayed by age, a line a class of size, beside what was said.

    A line breaks off at ages of which nothing is known.
    """
    parts = record.reliability.by_age
    words = {one.from_s: age_words(one) for one in parts}
    ages = [words[from_s] for from_s in sorted(words)]
    lines = [
        line
        for _, group in groupby(parts, size_words)
        for line in _survival_lines(list(group), ages)
    ]
    figure = drawn([*lines, _dotted()], height=420)
    figure.update_xaxes(title="idle for", categoryorder="array", categoryarray=ages)
    return figure.update_yaxes(title="% that stayed", range=[0, 101])


def _survival_lines(
    group: Sequence[AgePart], ages: Sequence[str]
) -> Iterator[go.Scatter]:
    nodes = size_words(group[0])
    paint = POLICY_COLOURS[NODES_LEFT.index(group[0].from_nodes)]
    known = {age_words(one): one.part for one in group}
    parts = [known.get(age, _NOTHING) for age in ages]
    yield go.Scatter(
        x=ages,
        y=[_percent(one.came) for one in parts],
        name=f"{nodes} node{'' if nodes == '1' else 's'} left",
        legendgroup=nodes,
        mode="lines+markers",
        line={"color": paint, "width": 2},
        marker={"size": 8, "symbol": [_symbol(one) for one in parts]},
        cliponaxis=False,
        customdata=[(round(one.count), round(one.departures)) for one in parts],
        hovertemplate="%{x}: %{y:.1f} % stayed" + _BEHIND + f"<extra>{nodes}</extra>",
    )
    yield go.Scatter(
        x=ages,
        y=[_percent(one.said) for one in parts],
        legendgroup=nodes,
        showlegend=False,
        mode="lines+markers",
        line={"color": paint, "width": 1.6, "dash": "dot"},
        marker={"size": 8, "symbol": "line-ew-open", "line_width": 2},
        hovertemplate="%{x}: %{y:.1f} % said<extra>" + nodes + "</extra>",
    )


def _dotted() -> go.Scatter:
    """Draw nothing, and name what is dotted in the legend."""
    return go.Scatter(
        x=[None],
        y=[None],
        name="what was said",
        mode="lines",
        line={"color": NEUTRAL, "width": 1.6, "dash": "dot"},
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


def _percent(share: float) -> float | None:
    # JSON has no nan, and Plotly draws None as a gap.
    return None if math.isnan(share) else round(100 * share, 2)
