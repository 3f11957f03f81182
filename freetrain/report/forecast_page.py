"""The page on forecasts of idle nodes, and what came."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import groupby
from pathlib import PurePath
from typing import TYPE_CHECKING

import plotly.graph_objects as go

from freetrain.lookahead.reliability import NODES_LEFT, ScorePart
from freetrain.report.figures import NEUTRAL, POLICY_COLOURS, POOL_FILL, drawn
from freetrain.report.forecast import (
    AGE_HEADINGS,
    BLOCK_HEADINGS,
    FEW_DEPARTURES,
    PROMISE_HEADINGS,
    RELIABILITY_HEADINGS,
    STRANGERS,
    affinity_table,
    age_row,
    age_words,
    are_strangers,
    block_rows,
    cell_name,
    headline,
    is_telling,
    lead_words,
    promise_rows,
    reliability_row,
    shown_words,
    size_words,
    too_few_words,
)
from freetrain.report.html import render
from freetrain.report.summary import MINUTE_S
from freetrain.text import render_duration

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from freetrain.lookahead.affinity_map import AffinityMap
    from freetrain.lookahead.promises import DelayInterval
    from freetrain.lookahead.reliability import AgePart, ForecastRecord
    from freetrain.replay.result import ReplayResult

FORECAST_PAGE = "forecast.html"
"""The page's file, beside that of the report."""

TITLE = "Forecasts of idle nodes, and what came"


@dataclass(frozen=True, slots=True)
class Origin:
    """What the forecasts are of.

    Attributes:
        log: As the user named it.
        read_as: What was read of it, in words.
        command: The command line that shows the same again.
        version: FreeTrain's version.
        report: The file of the report beside the page, if there is one.
    """

    log: str
    read_as: str
    command: str
    version: str
    report: str | None = None


def forecast_texts(origin: Origin, results: Sequence[ReplayResult]) -> dict[str, str]:
    """Return the files on the first of *results* that asked a forecaster, if any did.

    Without a broker in the loop, all that asked the same forecaster got its answers.
    """
    records: dict[str, ForecastRecord] = {}
    for result in results:
        if result.forecasts is not None:
            records.setdefault(result.forecaster or "", result.forecasts)
    if not records:
        return {}
    forecaster, *others = records
    record = records[forecaster]
    page = render_forecasts(origin, record, forecaster, others=others)
    texts = {FORECAST_PAGE: page}
    if record.affinity is not None:
        texts["affinity.csv"] = affinity_table(record.affinity)
    return texts


def render_forecasts(
    origin: Origin,
    record: ForecastRecord,
    forecaster: str,
    *,
    others: Sequence[str] = (),
) -> str:
    """Return the page on *record* as one HTML document.

    Args:
        origin: The log and command that the forecasts come from.
        record: What was said, and what came.
        forecaster: Which one said it.
        others: Forecasters whose forecasts are recorded elsewhere.
    """
    found = record.reliability
    drawings: dict[str, object] = {}
    if is_telling(record):
        drawings["reliability"] = {
            "figure": reliability_figure(record),
            "headings": RELIABILITY_HEADINGS,
            "rows": [reliability_row(tenth) for tenth in found.deciles],
        }
        drawings["survival"] = {
            "figure": survival_figure(record),
            "headings": AGE_HEADINGS,
            "rows": [age_row(part) for part in found.by_age],
        }
    return render(
        "forecast.html",
        title=TITLE,
        origin=origin,
        log_name=PurePath(origin.log).name,
        every=render_duration(record.every_s),
        horizon=render_duration(record.horizon_s),
        forecaster=forecaster,
        others=others,
        headline=headline(record),
        few_departures=FEW_DEPARTURES,
        too_few="" if drawings else too_few_words(record),
        promises=_promises(record.promises),
        affinity=_affinity(record.affinity),
        **drawings,
    )


def _promises(kinds: Sequence[DelayInterval]) -> Mapping[str, object] | None:
    """Return what came of planned starts; None where no start was planned."""
    if not kinds:
        return None
    return {
        "figure": promises_figure(kinds),
        "headings": PROMISE_HEADINGS,
        "rows": promise_rows(kinds),
    }


def _affinity(shown: AffinityMap | None) -> Mapping[str, object]:
    """Return the map of nodes that leave together, or why there is none."""
    if shown is None:
        return {"reason": "Fewer than two nodes ever left."}
    if are_strangers(shown):
        return {"reason": STRANGERS}
    return {
        "reason": "",
        "figure": affinity_figure(shown),
        "shown": shown_words(shown),
        "headings": BLOCK_HEADINGS,
        "rows": block_rows(shown.blocks),
        "blocks": len(shown.blocks),
    }


# The drawings, by Plotly.

WITHIN = 5.0
"""Points of a hundred that a good forecast may be off."""

_ROOM = 4.0
_BEHIND = "<br>%{customdata[0]:,} answers, %{customdata[1]:,} departures"
_EDGE = {"width": 0}
_NOTHING = ScorePart(said=math.nan, came=math.nan, count=0.0, departures=0.0)


def reliability_figure(record: ForecastRecord) -> go.Figure:
    """Draw what came over what was said, a point a tenth of the answers."""
    tenths = record.reliability.deciles
    shares = [share for tenth in tenths for share in (tenth.said, tenth.came)]
    low = max(0.0, 100 * min(shares) - _ROOM)
    high = min(100.0, 100 * max(shares) + _ROOM)
    points = go.Scatter(
        x=[_percent(tenth.said) for tenth in tenths],
        y=[_percent(tenth.came) for tenth in tenths],
        name="a tenth of the answers",
        mode="lines+markers",
        line={"color": POLICY_COLOURS[0], "width": 1.4},
        marker={"size": 9, "symbol": [_symbol(tenth) for tenth in tenths]},
        cliponaxis=False,
        customdata=[(round(tenth.count), round(tenth.departures)) for tenth in tenths],
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
    """Draw the share that stayed by age, a line a class of size, beside what was said.

    A line breaks off at ages of which nothing is known.
    """
    parts = record.reliability.by_age
    words = {part.from_s: age_words(part) for part in parts}
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
    known = {age_words(part): part.part for part in group}
    parts = [known.get(age, _NOTHING) for age in ages]
    yield go.Scatter(
        x=ages,
        y=[_percent(part.came) for part in parts],
        name=f"{nodes} node{'' if nodes == '1' else 's'} left",
        legendgroup=nodes,
        mode="lines+markers",
        line={"color": paint, "width": 2},
        marker={"size": 8, "symbol": [_symbol(part) for part in parts]},
        cliponaxis=False,
        customdata=[(round(part.count), round(part.departures)) for part in parts],
        hovertemplate="%{x}: %{y:.1f} % stayed" + _BEHIND + f"<extra>{nodes}</extra>",
    )
    yield go.Scatter(
        x=ages,
        y=[_percent(part.said) for part in parts],
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


def _symbol(part: ScorePart) -> str:
    return "circle-open" if part.departures < FEW_DEPARTURES else "circle"


def _percent(share: float) -> float | None:
    # JSON has no nan, and Plotly draws None as a gap.
    return None if math.isnan(share) else round(100 * share, 2)


def promises_figure(kinds: Sequence[DelayInterval]) -> go.Figure:
    """Draw how much later than promised nodes were taken, a bar a kind."""
    spans = go.Scatter(
        x=[_minutes(kind.middle_s) for kind in kinds],
        y=[lead_words(kind) for kind in kinds],
        mode="markers",
        marker={"size": 10, "color": POLICY_COLOURS[0]},
        error_x={
            "type": "data",
            "symmetric": False,
            "array": [_minutes(kind.high_s - kind.middle_s) for kind in kinds],
            "arrayminus": [_minutes(kind.middle_s - kind.low_s) for kind in kinds],
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
    return figure.update_yaxes(title="known ahead", type="category")


def _minutes(time_s: float) -> float:
    return round(time_s / MINUTE_S, 2)
