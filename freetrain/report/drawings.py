"""Pages and drawings of reports: HTML from templates, drawings by Plotly.

``render`` makes a page that asks for nothing: its style, and where it has drawings
Plotly's script, are in it. Values are escaped wherever a template shows them, and the
same values give the same bytes. docs/adr/0015-report.md says why Plotly.

Colours are those of Okabe and Ito, which colour-blind readers can tell apart.
"""

from __future__ import annotations

import heapq
import math
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import plotly.graph_objects as go
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from plotly.colors import sample_colorscale
from plotly.offline import get_plotlyjs

from freetrain.page.drawing import COLOURS, FOLDER
from freetrain.report.quality import quality_over_time
from freetrain.report.summary import (
    DEDICATED,
    LOSSES,
    WORDS,
    completion_times_s,
    lost_per_sample,
)
from freetrain.text import DAY_S, HOUR_S

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from freetrain.replay.engine import Step
    from freetrain.replay.run import ReplayResult
    from freetrain.report.summary import Comparison


_CONFIG = {
    "displaylogo": False,
    "responsive": True,
    "modeBarButtons": [["toImage", "resetScale2d"]],
}


def render(template: str, **values: object) -> str:
    """Return the page that *template* makes of *values*."""
    return _ENVIRONMENT.get_template(template).render(values)


def _plotly(figure: go.Figure, name: object) -> Markup:
    """Return *figure* as Plotly writes it, which escapes its own text.

    The *name* is unique in the page.
    """
    drawn = figure.to_html(
        full_html=False, include_plotlyjs=False, div_id=f"draw-{name}", config=_CONFIG
    )
    return Markup(drawn)  # noqa: S704 - see above


def _plotly_script() -> Markup:
    return Markup(get_plotlyjs())  # noqa: S704 - a file of Plotly's


_ENVIRONMENT = Environment(
    loader=FileSystemLoader([Path(__file__).with_name("templates"), FOLDER]),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
)

_ENVIRONMENT.filters["plotly"] = _plotly
_ENVIRONMENT.globals["plotly_script"] = _plotly_script


# ----------------------------------------------------------------------
# The style of all drawings

NEUTRAL = "#8a8f98"
POOL_FILL = "rgba(138,143,152,0.28)"


def drawn(traces: Sequence[object], *, height: int, **layout: object) -> go.Figure:
    """Return *traces* as a drawing in the report's style."""
    figure = go.Figure(traces)
    figure.update_layout(
        template="none",
        height=height,
        margin={"l": 64, "r": 12, "t": 28, "b": 48},
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        font={"family": "system-ui, sans-serif", "size": 13, "color": NEUTRAL},
        legend={"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0}
        | {"traceorder": "normal"},
        modebar={"bgcolor": "rgba(0,0,0,0)", "color": NEUTRAL},
        **layout,
    )
    axis = {
        "gridcolor": "rgba(138,143,152,0.22)",
        "linecolor": "rgba(138,143,152,0.5)",
        "zeroline": False,
        "automargin": True,
    }
    figure.update_xaxes(**axis)
    return figure.update_yaxes(**axis)


def colour(comparison: Comparison, result: ReplayResult) -> str:
    """Return the colour that *result*'s policy has throughout the report."""
    if result.policy == DEDICATED:
        return NEUTRAL
    place = comparison.on_holes.index(result)
    return COLOURS[place % len(COLOURS)]


# ----------------------------------------------------------------------
# Time axes: bins, so that a page stays quick


FEW_DAYS = 2
"""Below it, time is shown in hours."""

POOL_BINS = 700
BAND_BINS = 420


def bin_edges_s(span_s: float, *, most_bins: int) -> NDArray[np.float64]:
    """Return edges of equal bins over *span_s*, one minute wide at least."""
    bins = max(1, min(most_bins, int(span_s // 60)))
    return np.linspace(0.0, span_s, bins + 1)


def binned_mean(
    times_s: Sequence[float], values: Sequence[float], edges_s: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the mean over time, by bin, of a value that holds until the next time.

    Args:
        times_s: When the value changes, ascending.
        values: The value from then on; before the first time it is 0.
        edges_s: Edges of the bins, ascending; one mean for each two neighbours.
    """
    if not times_s:
        return np.zeros(len(edges_s) - 1)
    last_s = max(edges_s[-1], times_s[-1])
    corners_s = np.append(times_s, last_s)
    area = np.concatenate(([0.0], np.cumsum(np.diff(corners_s) * values)))
    by_edge = np.interp(edges_s, corners_s, area)
    return np.diff(by_edge) / np.diff(edges_s)


def middles(edges_s: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the middles of bins in the unit of the time axis."""
    middles: NDArray[np.float64] = (edges_s[:-1] + edges_s[1:]) / 2
    return np.asarray(np.round(middles / time_unit(edges_s)[0], 5))


def time_unit(edges_s: NDArray[np.float64]) -> tuple[float, str]:
    """Return the unit of the time axis: its seconds, and its name."""
    few = edges_s[-1] < FEW_DAYS * DAY_S
    return (HOUR_S, "hours") if few else (DAY_S, "days")


def thinned(values: Sequence[float], *, most: int) -> NDArray[np.float64]:
    """Return *values* ascending, no more than *most*, evenly by rank, ends kept."""
    ordered = np.sort(np.asarray(values, dtype=np.float64))
    if len(ordered) <= most:
        return ordered
    kept = np.linspace(0, len(ordered) - 1, most).round().astype(np.int64)
    return np.asarray(ordered[kept])


# ----------------------------------------------------------------------
# Bars by policy

LOSS_COLOURS = ("#56B4E9", "#D55E00", "#CC79A7")
LOSS_NAMES = ("rescales", "preemptions", "starts")


def samples_figure(comparison: Comparison) -> go.Figure:
    """Draw the samples that each policy trained, as bars."""
    shown = comparison.results[::-1]
    most = max(result.samples for result in shown)
    size, word = next((s for s in WORDS if most >= s[0]), (1.0, ""))
    bars = go.Bar(
        y=[comparison.name(r) for r in shown],
        x=[r.samples / size for r in shown],
        orientation="h",
        marker_color=[colour(comparison, r) for r in shown],
        text=[f"{r.samples / size:.2f}" for r in shown],
        textposition="auto",
        hovertemplate="%{y}: %{x:.3f} " + f"{word} samples<extra></extra>",
    )
    figure = drawn([bars], height=90 + 44 * len(shown))
    return figure.update_xaxes(title=f"{word} samples trained".strip())


def losses_figure(comparison: Comparison) -> go.Figure:
    """Draw what rescales, preemptions and starts cost, per sample trained."""
    shown = comparison.results[::-1]
    bars = [
        go.Bar(
            y=[comparison.name(r) for r in shown],
            x=[100 * (lost_per_sample(r, [cause]) or 0.0) for r in shown],
            name=name,
            orientation="h",
            marker_color=LOSS_COLOURS[k],
            hovertemplate="%{y}: %{x:.2f} % lost to " + name + "<extra></extra>",
        )
        for k, (cause, name) in enumerate(zip(LOSSES, LOSS_NAMES, strict=True))
    ]
    figure = drawn(bars, height=110 + 44 * len(shown), barmode="stack")
    return figure.update_xaxes(title="% of the samples trained")


# ----------------------------------------------------------------------
# Nodes and quality over time


def pool_figure(comparison: Comparison) -> go.Figure:
    """Draw the idle nodes over time, and how many of them each policy used."""
    edges_s = bin_edges_s(comparison.shown_s, most_bins=POOL_BINS)
    shown = comparison.on_holes or comparison.results
    lines = [_over_time(comparison.longest, "idle_nodes", edges_s, name="idle")]
    lines[0].update(fill="tozeroy", fillcolor=POOL_FILL, line_color=NEUTRAL)
    for result in shown:
        line = _over_time(result, "used_nodes", edges_s, name=comparison.name(result))
        on_top = len(shown) - len(lines) + 1
        line.update(line_color=colour(comparison, result), zorder=on_top)
        lines.append(line)
    figure = drawn(lines, height=400, hovermode="x unified")
    figure.update_xaxes(title=time_unit(edges_s)[1])
    return figure.update_yaxes(title="nodes", rangemode="tozero")


def _over_time(
    result: ReplayResult, field: str, edges_s: NDArray[np.float64], *, name: str
) -> go.Scatter:
    means = binned_mean(
        [step.time_s for step in result.steps],
        [getattr(step, field) for step in result.steps],
        edges_s,
    )
    return go.Scatter(
        x=middles(edges_s),
        y=np.round(means, 2),
        name=name,
        mode="lines",
        line_width=1.4,
        hovertemplate="%{y:.1f}",
    )


def quality_figure(comparison: Comparison) -> go.Figure:
    """Draw the mean and the worst quality of the trainers under way over time."""
    edges_s = bin_edges_s(comparison.shown_s, most_bins=POOL_BINS)
    times_s = (edges_s[:-1] + edges_s[1:]) / 2
    lines: list[go.Scatter] = []
    for result in comparison.results:
        if not result.learning:
            continue
        name = comparison.name(result)
        under_way, worst, _ = quality_over_time(result, times_s)
        for values, dash in ((under_way, "solid"), (worst, "dot")):
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
    # No trainer under way is a gap: JSON has no nan, and Plotly draws None as a gap.
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


# ----------------------------------------------------------------------
# The trainers' sizes over time

MOST_BANDS = 40


def bands_figure(comparison: Comparison) -> go.Figure:
    """Draw the sizes of the trainers over time, stacked, for the first policy."""
    result = (comparison.on_holes or comparison.results)[0]
    edges_s = bin_edges_s(comparison.shown_s, most_bins=BAND_BINS)
    bands, slots = trainer_bands(result, edges_s, most_bands=MOST_BANDS)
    ramp = sample_colorscale("Viridis", _spread(len(bands)))
    areas = [
        go.Scatter(
            x=middles(edges_s),
            y=np.round(row, 2),
            name=_band_name(k, slots),
            stackgroup="nodes",
            mode="lines",
            line_width=0,
            fillcolor=ramp[k],
            hovertemplate="%{y:.1f} nodes",
            showlegend=False,
        )
        for k, row in enumerate(bands)
    ]
    figure = drawn(areas, height=420)
    figure.update_xaxes(title=time_unit(edges_s)[1])
    return figure.update_yaxes(title="nodes held", rangemode="tozero")


def _band_name(band: int, slots: int) -> str:
    if slots == 1:
        return f"slot {band + 1}"
    return f"slots {band * slots + 1} to {(band + 1) * slots}"


def _spread(count: int) -> list[float]:
    """Return places on a colour ramp so that neighbours differ and all fit."""
    halves = [*range(0, count, 2), *range(1, count, 2)]
    place = {band: rank for rank, band in enumerate(halves)}
    return [0.08 + 0.84 * place[k] / max(1, count - 1) for k in range(count)]


def trainer_bands(
    result: ReplayResult, edges_s: NDArray[np.float64], *, most_bands: int
) -> tuple[NDArray[np.float64], int]:
    """Return how large the trainers were, one band for each that runs at a time.

    A trainer keeps the lowest free slot from its first node to its finish, so
    that there are as many slots as trainers at a time, however many come and go.

    Returns:
        Mean nodes, (bands, bins), float64; and the slots that share a band.
    """
    changes = _slot_changes(result.steps)
    slots = [binned_mean(times, sizes, edges_s) for times, sizes in changes]
    per_band = max(1, -(-len(slots) // most_bands))
    rows = [
        np.sum(slots[first : first + per_band], axis=0)
        for first in range(0, len(slots), per_band)
    ]
    nodes = np.array(rows) if rows else np.zeros((0, len(edges_s) - 1))
    return nodes, per_band


def _slot_changes(steps: Sequence[Step]) -> list[tuple[list[float], list[float]]]:
    changes: list[tuple[list[float], list[float]]] = []
    slot_of: dict[str, int] = {}
    free: list[int] = []
    for step in steps:
        for name in step.finished:
            if name in slot_of:
                _note(changes, slot_of[name], step.time_s, 0)
                heapq.heappush(free, slot_of.pop(name))
        for name, nodes in step.resized:
            if name not in slot_of and nodes:
                slot_of[name] = heapq.heappop(free) if free else len(changes)
            if name in slot_of:
                _note(changes, slot_of[name], step.time_s, nodes)
    return changes


def _note(
    changes: list[tuple[list[float], list[float]]], slot: int, time_s: float, nodes: int
) -> None:
    if slot == len(changes):
        changes.append(([], []))
    times, sizes = changes[slot]
    times.append(time_s)
    sizes.append(nodes)


# ----------------------------------------------------------------------
# Distributions: holes, completion times and slowdowns

HOLE_EDGES_S = (0, 60, 120, 300, 600, 1800, 3600, 7200, 18000, 36000, 86400, np.inf)

HOLE_NAMES = (
    "< 1 min",
    "1-2 min",
    "2-5 min",
    "5-10 min",
    "10-30 min",
    "30-60 min",
    "1-2 h",
    "2-5 h",
    "5-10 h",
    "10-24 h",
    "> 1 day",
)

MOST_RANKS = 400

HALF = 0.5
"""The axis ends sooner where fewer than this share of the trainers finished."""


def holes_figure(comparison: Comparison) -> go.Figure:
    """Draw how long the holes are: by their number and by their node-time."""
    lengths_s, counts = comparison.hole_lengths
    by_number, _ = np.histogram(lengths_s, HOLE_EDGES_S, weights=counts)
    by_time, _ = np.histogram(lengths_s, HOLE_EDGES_S, weights=lengths_s * counts)
    bars = [
        go.Bar(
            x=HOLE_NAMES,
            y=np.round(100 * counted / max(1e-9, counted.sum()), 2),
            name=name,
            marker_color=paint,
            hovertemplate="%{x}: %{y:.1f} % of " + name + "<extra></extra>",
        )
        for counted, name, paint in (
            (by_number, "holes", NEUTRAL),
            (by_time, "idle node-time", COLOURS[0]),
        )
    ]
    figure = drawn(bars, height=340, barmode="group")
    return figure.update_yaxes(title="%")


def completions_figure(comparison: Comparison) -> go.Figure:
    """Draw the share of trainers that finished within a time, by policy."""
    times = [
        (r, [seconds / HOUR_S for seconds in completion_times_s(r)])
        for r in comparison.results
    ]
    figure = _ranked(comparison, times, unit="h")
    axis = _log_axis([hours for _, found in times for hours in found])
    return figure.update_xaxes(title="hours from arrival to finish", **axis)


def slowdowns_figure(comparison: Comparison) -> go.Figure:
    """Draw the share of trainers that finished within a slowdown, by policy."""
    slowdowns = [
        (r, [c.slowdown for c in r.completions if c.slowdown is not None])
        for r in comparison.results
    ]
    figure = _ranked(comparison, slowdowns, unit="times")
    axis = _log_axis([factor for _, found in slowdowns for factor in found])
    return figure.update_xaxes(title="slowdown against running alone", **axis)


FEW_DECADES = 2.5
"""Up to so many decades, 2 and 5 of each have a tick; else only 1."""


def _log_axis(values: Sequence[float]) -> dict[str, object]:
    """Return a logarithmic axis for *values*, with ticks that read as plain numbers.

    Plotly's own ticks leave the leading digits alone: 2, 5, 10, 2, 5, 100.
    """
    above_zero = [value for value in values if value > 0] or [1.0]
    low, high = math.log10(min(above_zero)), math.log10(max(above_zero))
    leading = (1, 2, 5) if high - low <= FEW_DECADES else (1,)
    ticks = [
        digit * 10.0**decade
        for decade in range(math.floor(low), math.ceil(high) + 1)
        for digit in leading
    ]
    return {
        "type": "log",
        "tickvals": ticks,
        "ticktext": [f"{tick:,.10g}" for tick in ticks],
        "range": [low - 0.05, high + 0.05],
    }


def _ranked(
    comparison: Comparison,
    values: Sequence[tuple[ReplayResult, Sequence[float]]],
    *,
    unit: str,
) -> go.Figure:
    lines: list[go.Scatter] = []
    most = max(len(found) / max(1, len(r.completions)) for r, found in values)
    for result, found in values:
        ordered = thinned(found, most=MOST_RANKS)
        share = len(found) / max(1, len(result.completions))
        heights = 100 * share * np.arange(1, len(ordered) + 1) / max(1, len(ordered))
        lines.append(
            go.Scatter(
                x=np.round(ordered, 3),
                y=np.round(heights, 2),
                name=comparison.name(result),
                mode="lines",
                zorder=len(values) - len(lines),
                line={"color": colour(comparison, result), "width": 2, "shape": "hv"},
                hovertemplate="%{y:.0f} % within %{x:.3g} " + unit,
            )
        )
    figure = drawn(lines, height=340)
    highest = 101 if most > HALF else 110 * most
    return figure.update_yaxes(title="% of trainers", range=[0, highest])


DRAWINGS = {
    "samples": samples_figure,
    "losses": losses_figure,
    "pool": pool_figure,
    "bands": bands_figure,
    "holes": holes_figure,
    "completions": completions_figure,
    "slowdowns": slowdowns_figure,
    "quality": quality_figure,
}
"""By name; the last three are of trainers that finished, or have quality curves."""
