"""The page of `freetrain curves`: reported values, their fit, and the forecast."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import plotly.graph_objects as go

from freetrain.client.curves import range_sentence
from freetrain.page.drawing import COLOURS
from freetrain.report.drawings import NEUTRAL, drawn, render
from freetrain.text import render_duration, scaled

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from freetrain.client.curves import Aim, ForecastLine, TrainerCurves


_REPORTED, _FIT, _FORECAST = COLOURS[0], NEUTRAL, COLOURS[1]
_AIM = COLOURS[2]
_BAND = "rgba(230,159,0,0.18)"


def render_page(all_curves: Sequence[TrainerCurves]) -> str:
    """Return the curves of trainers as one HTML document."""
    return render("curves.html", trainers=[_part(curves) for curves in all_curves])


def _part(curves: TrainerCurves) -> Mapping[str, object]:
    return {
        "name": curves.name,
        "metric": curves.metric,
        "units": curves.units,
        "sentences": " ".join(_sentences(curves)),
        "figure": curves_figure(curves) if curves.measured else None,
        "targets": [_target_row(aim) for aim in curves.aims],
    }


def _sentences(curves: TrainerCurves) -> Iterator[str]:
    yield f"{str(curves.better).capitalize()} is better."
    if not curves.measured:
        yield "No value was read by a tick so far."
    elif curves.loss_forecast is None:
        yield "The values do not allow a forecast."
    else:
        yield (
            f"Fitted by a {curves.loss_forecast.family}, from where the present phase "
            f"of training began. {range_sentence(curves.loss_forecast)}"
        )
    if curves.is_diverging:
        yield "It is diverging: its last values are no numbers, or far worse."


def _target_row(aim: Aim) -> tuple[str, str, str, str]:
    if math.isinf(aim.work):
        return aim.tier, f"{aim.value:g}", "-", "not expected"
    left = "-" if aim.in_s is None else render_duration(aim.in_s)
    when = "reached" if aim.in_s == 0 else left
    return aim.tier, f"{aim.value:g}", scaled(aim.work), when


def curves_figure(curves: TrainerCurves) -> go.Figure:
    """Draw the values reported, the fit through them, and the forecast."""
    traces = [_reported(curves)]
    forecast = curves.forecast
    if forecast is not None:
        traces += _forecast(forecast)
    figure = drawn(traces, height=380)
    for aim in curves.aims:
        figure.add_hline(
            y=aim.value,
            line={"color": _AIM, "dash": "dash", "width": 1},
            annotation_text=aim.tier,
            annotation_position="top right",
        )
    figure.update_xaxes(title=curves.units)
    return figure.update_yaxes(title=curves.metric)


def _reported(curves: TrainerCurves) -> go.Scatter:
    points = [point for point in curves.measured if math.isfinite(point.value)]
    return go.Scatter(
        x=[point.samples for point in points],
        y=[point.value for point in points],
        name="reported",
        mode="markers",
        marker={"color": _REPORTED, "size": 5},
        hovertemplate="%{x:,}: %{y:.5g}<extra></extra>",
    )


def _forecast(line: ForecastLine) -> Iterator[go.Scatter]:
    done = next(k for k, low in enumerate(line.low) if math.isfinite(low))
    yield go.Scatter(
        x=[*line.work[done:], *line.work[: done - 1 : -1]],
        y=[*line.high[done:], *line.low[: done - 1 : -1]],
        name="range",
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
