"""Loss curves as a page: measured values, the fit, and what is expected, by Plotly.

One HTML page that needs no network, the same bytes every time.
"""

from __future__ import annotations

import math
from html import escape
from typing import TYPE_CHECKING

import plotly.graph_objects as go

from freetrain.report.comparison import scaled
from freetrain.report.figures import NEUTRAL, POLICY_COLOURS, drawn
from freetrain.report.html import drawing, drawn_document, table
from freetrain.text import render_duration

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from freetrain.client.curves import Aim, ForecastLine, TrainerCurves


# ----------------------------------------------------------------------
# Loss curves as a page: measured values, the fit, and what is expected, by Plotly.

_TOLD, _FIT, _FORECAST = POLICY_COLOURS[0], NEUTRAL, POLICY_COLOURS[1]
_AIM = POLICY_COLOURS[2]
_BAND = "rgba(230,159,0,0.18)"


def render_page(found: Sequence[TrainerCurves]) -> str:
    """Return the curves of trainers as one HTML document."""
    parts = [_part(k, one) for k, one in enumerate(found)]
    body = "\n".join(parts) or '<p class="soft">No trainer is there.</p>'
    heading = "<h1>What losses say of what is to come</h1>"
    return drawn_document("FreeTrain: curves", f"{heading}\n{body}")


def _part(number: int, one: TrainerCurves) -> str:
    said = " ".join(_sentences(one))
    title = f"<h2>{escape(one.name)}: {escape(one.metric)}</h2>"
    if not one.told:
        return f'{title}\n<p class="soft">{escape(said)}</p>'
    return f"{title}\n{drawing(curves_figure(one), str(number), said)}{_aims(one)}"


def _sentences(one: TrainerCurves) -> Iterator[str]:
    yield f"{str(one.better).capitalize()} is better."
    if not one.told:
        yield "No value was read by a tick so far."
    elif one.loss_forecast is None:
        yield "The values say nothing of what is to come."
    else:
        yield (
            f"Family {one.loss_forecast.family}; the band holds nine of ten outcomes. "
            f"The fit begins where the present phase of training did."
        )
    if one.is_diverging:
        yield "It is diverging: its last values are no numbers, or far worse."


def _aims(one: TrainerCurves) -> str:
    if not one.aims:
        return ""
    heads = ("target", one.metric, one.units, "training until then")
    return table(heads, map(_aim, one.aims))


def _aim(aim: Aim) -> tuple[str, str, str, str]:
    if math.isinf(aim.work):
        return aim.tier, f"{aim.value:g}", "-", "not expected"
    left = "-" if aim.in_s is None else render_duration(aim.in_s)
    when = "reached" if aim.in_s == 0 else left
    return aim.tier, f"{aim.value:g}", scaled(aim.work), when


def curves_figure(one: TrainerCurves) -> go.Figure:
    """Draw what *one* told, the fit through it, and what is expected."""
    traces = [_told(one)]
    forecast = one.forecast
    if forecast is not None:
        traces += _forecast(forecast)
    figure = drawn(traces, height=380)
    for aim in one.aims:
        figure.add_hline(
            y=aim.value,
            line={"color": _AIM, "dash": "dash", "width": 1},
            annotation_text=aim.tier,
            annotation_position="top right",
        )
    figure.update_xaxes(title=one.units)
    return figure.update_yaxes(title=one.metric)


def _told(one: TrainerCurves) -> go.Scatter:
    points = [point for point in one.told if math.isfinite(point.value)]
    return go.Scatter(
        x=[point.samples for point in points],
        y=[point.value for point in points],
        name="told",
        mode="markers",
        marker={"color": _TOLD, "size": 5},
        hovertemplate="%{x:,}: %{y:.5g}<extra></extra>",
    )


def _forecast(line: ForecastLine) -> Iterator[go.Scatter]:
    done = next(k for k, low in enumerate(line.low) if math.isfinite(low))
    yield go.Scatter(
        x=[*line.work[done:], *line.work[: done - 1 : -1]],
        y=[*line.high[done:], *line.low[: done - 1 : -1]],
        name="nine of ten outcomes",
        fill="toself",
        fillcolor=_BAND,
        line={"width": 0},
        hoverinfo="skip",
    )
    yield go.Scatter(
        x=line.work[:done],
        y=line.values[:done],
        name="fit",
        mode="lines",
        line={"color": _FIT, "width": 2},
        hovertemplate="%{y:.5g}<extra>fit</extra>",
    )
    yield go.Scatter(
        x=line.work[done:],
        y=line.values[done:],
        name="expected",
        mode="lines",
        line={"color": _FORECAST, "width": 2, "dash": "dot"},
        hovertemplate="%{x:,}: %{y:.5g}<extra>expected</extra>",
    )
