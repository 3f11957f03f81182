"""The report of a replay: its pages, a summary as JSON, and series as CSV.

``report_files`` returns all of them; the same replay always gives the same bytes. The
page about forecasts of idle nodes has a file of its own.
"""

from __future__ import annotations

import json
import math
from itertools import groupby, pairwise
from pathlib import PurePath
from typing import TYPE_CHECKING

import plotly.graph_objects as go

from freetrain.lookahead.promises import LEADS_S
from freetrain.lookahead.reliability import NODES_LEFT, ScorePart
from freetrain.page.drawing import COLOURS
from freetrain.report import drawings
from freetrain.report.drawings import NEUTRAL, POOL_FILL, drawn, render
from freetrain.report.quality import (
    AGAINST_HEADINGS,
    QUALITY_HEADINGS,
    against_row,
    quality_records,
    quality_row,
)
from freetrain.report.summary import (
    BOUND,
    DEDICATED,
    FORECAST_PAGE,
    GAP_HEADING,
    HEADINGS,
    Origin,
    affinity_table,
    csv_text,
    forecast_records,
    gap_lines,
    headline,
    listed,
    percent,
    steady_record,
    table_row,
)
from freetrain.text import MINUTE_S, UNKNOWN, counted, render_duration

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from freetrain.lookahead.promises import DelayInterval
    from freetrain.lookahead.reliability import (
        AffinityBlock,
        AffinityMap,
        AgePart,
        ForecastRecord,
    )
    from freetrain.replay.run import ReplayResult
    from freetrain.report.summary import Comparison


STEP_COLUMNS = (
    "policy",
    "time_s",
    "idle_nodes",
    "used_nodes",
    "resized",
    "finished",
)

COMPLETION_COLUMNS = (
    "policy",
    "trainer",
    "arrival_s",
    "admitted_s",
    "finished_s",
    "samples",
    "slowdown",
)


def report_files(comparison: Comparison) -> dict[str, bytes]:
    """Return the content of each file of the report on *comparison*, by name."""
    texts = {
        "summary.json": summary(comparison),
        "steps.csv": csv_text(STEP_COLUMNS, step_rows(comparison)),
        "completions.csv": csv_text(COMPLETION_COLUMNS, completion_rows(comparison)),
        "report.html": render_page(comparison),
    }
    texts |= forecast_texts(_origin(comparison), comparison.results)
    return {name: text.encode("utf-8") for name, text in texts.items()}


def _origin(comparison: Comparison) -> Origin:
    return Origin(
        log=comparison.log,
        read_as=comparison.read_as,
        command=comparison.command,
        version=comparison.version,
        report="report.html",
    )


def summary(comparison: Comparison) -> str:
    """Return the figures that every run of the same replay gives, and its inputs."""
    content = {
        "command": comparison.command,
        "version": comparison.version,
        "log": comparison.log,
        "read": comparison.read_as,
        "left_out": list(comparison.log_cautions),
        "cautions": list(comparison.figure_cautions),
        "trainers": comparison.trainers,
        "nodes": comparison.nodes,
        "span_s": comparison.span_s,
        "holes": comparison.hole_lengths.holes,
        "policies": [
            steady_record(result)
            | quality_records(comparison, result)
            | forecast_records(result)
            for result in comparison.results
        ],
    }
    return json.dumps(content, indent=2, allow_nan=False) + "\n"


def step_rows(comparison: Comparison) -> Iterator[tuple[object, ...]]:
    """Yield every step of every policy, with a value for each of ``STEP_COLUMNS``.

    ``resized`` holds ``trainer=nodes`` pairs and ``finished`` trainers, both
    separated by spaces, which trainers' names do not have.
    """
    for result in comparison.results:
        name = comparison.name(result)
        for step in result.steps:
            yield (
                name,
                step.time_s,
                step.idle_nodes,
                step.used_nodes,
                " ".join(f"{trainer}={nodes}" for trainer, nodes in step.resized),
                " ".join(step.finished),
            )


def completion_rows(comparison: Comparison) -> Iterator[tuple[object, ...]]:
    """Yield each trainer's arrival, start and finish under each policy.

    There is a value for each of ``COMPLETION_COLUMNS``; None means never.
    """
    for result in comparison.results:
        name = comparison.name(result)
        for done in result.completions:
            yield (
                name,
                done.trainer,
                done.arrival_s,
                done.admitted_s,
                done.finished_s,
                done.samples,
                done.slowdown,
            )


def render_page(comparison: Comparison) -> str:
    """Return the report on *comparison* as one HTML document."""
    results = comparison.results
    first = (comparison.on_holes or results)[0]
    gaps = gap_lines((comparison.name(result), result.gap) for result in results)
    has_forecasts = any(result.forecasts is not None for result in results)
    some_finished = any(result.finished for result in results)
    return render(
        "report.html",
        log=comparison.log,
        log_name=PurePath(comparison.log).name,
        read_as=comparison.read_as,
        about=(
            comparison.read_as,
            *comparison.log_cautions,
            *comparison.figure_cautions,
        ),
        headline=headline(comparison, first),
        first=comparison.name(first),
        forecast_page=FORECAST_PAGE if has_forecasts else "",
        forecast_title=TITLE,
        headings=HEADINGS,
        policies=[
            (
                drawings.colour(comparison, result),
                table_row(result, comparison.name(result)),
            )
            for result in results
        ],
        bound=BOUND if any(r.policy == DEDICATED for r in results) else "",
        gaps=(GAP_HEADING, *gaps) if gaps else (),
        samples_figure=drawings.samples_figure(comparison),
        losses_figure=drawings.losses_figure(comparison),
        quality=_quality(comparison),
        pool_figure=drawings.pool_figure(comparison),
        pool_bin=_bin_words(comparison, drawings.POOL_BINS),
        bands_figure=drawings.bands_figure(comparison),
        band_bin=_bin_words(comparison, drawings.BAND_BINS),
        most_bands=drawings.MOST_BANDS,
        holes_figure=drawings.holes_figure(comparison),
        holes=f"{comparison.hole_lengths.holes:,}",
        completions_figure=(
            drawings.completions_figure(comparison) if some_finished else None
        ),
        slowdowns_figure=(
            drawings.slowdowns_figure(comparison) if some_finished else None
        ),
        command=comparison.command,
        version=comparison.version,
        trainers=comparison.trainers,
        priorities=list(dict.fromkeys(result.priority for result in results)),
        accounting=results[0].accounting,
    )


def _quality(comparison: Comparison) -> Mapping[str, object] | None:
    """Return the page's part on quality; None where no trainer has a curve."""
    learning = [result for result in comparison.results if result.learning]
    if not learning:
        return None
    part: dict[str, object] = {
        "headings": QUALITY_HEADINGS,
        "rows": [quality_row(result, comparison.name(result)) for result in learning],
        "figure": drawings.quality_figure(comparison),
        "baseline": "",
    }
    baseline = comparison.baseline
    if baseline is not None:
        part |= {
            "baseline": comparison.name(baseline),
            "against_headings": AGAINST_HEADINGS,
            "against_rows": [
                against_row(result, baseline, comparison.name(result))
                for result in learning
                if result is not baseline
            ],
        }
    return part


def _bin_words(comparison: Comparison, most_bins: int) -> str:
    edges_s = drawings.bin_edges_s(comparison.shown_s, most_bins=most_bins)
    return render_duration(float(edges_s[1] - edges_s[0]))


# ----------------------------------------------------------------------
# The page about forecasts of idle nodes and their outcomes

TITLE = "Forecasts of idle nodes, and what came"


def forecast_texts(origin: Origin, results: Sequence[ReplayResult]) -> dict[str, str]:
    """Return the forecast page and map of the first of *results* that has forecasts.

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
        record: The forecasts and their outcomes.
        forecaster: Its name.
        others: Forecasters whose forecasts are recorded elsewhere.
    """
    reliability: dict[str, object] = {}
    if is_telling(record):
        reliability["reliability"] = {
            "figure": reliability_figure(record),
            "headings": RELIABILITY_HEADINGS,
            "rows": [reliability_row(tenth) for tenth in record.deciles],
        }
        reliability["survival"] = {
            "figure": survival_figure(record),
            "headings": AGE_HEADINGS,
            "rows": [age_row(part) for part in record.by_age],
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
        headline=forecast_headline(record),
        few_departures=FEW_DEPARTURES,
        too_few="" if reliability else too_few_words(record),
        promises=_promises(record.promises),
        affinity=_affinity(record.affinity),
        **reliability,
    )


def forecast_headline(record: ForecastRecord) -> tuple[tuple[str, str], ...]:
    """Return the figures that matter most, each with its meaning."""
    tenths = record.deciles
    off = record.worst if is_telling(record) else None
    answers, departures = _behind(record)
    stayed = sum(tenth.came * tenth.count for tenth in tenths) / max(1, answers)
    horizon = render_duration(record.horizon_s)
    return (
        (
            UNKNOWN if off is None else f"{100 * off:.1f} points",
            "between said and came, in the tenth that is furthest off",
        ),
        (percent(stayed if answers else None), f"of nodes stayed {horizon} more"),
        (f"{answers:,.0f}", "answers, one a node and time asked"),
        (f"{departures:,.0f}", "departures behind them"),
    )


def is_telling(record: ForecastRecord) -> bool:
    """Return whether there are enough answers to split them into tenths."""
    answers, departures = _behind(record)
    return answers >= TENTHS and departures >= FEW_DEPARTURES


FEW_DEPARTURES = 10
"""Below it, the outcome may well be chance."""

TENTHS = 10
"""Fewer answers are less than one a tenth."""


def too_few_words(record: ForecastRecord) -> str:
    """Return why there are too few answers to judge how reliable forecasts were."""
    answers, departures = map(round, _behind(record))
    if not answers:
        return "No answer was due before the end."
    return (
        f"{counted(answers, 'answer')} and {counted(departures, 'departure')} are too "
        f"few to tell how far it can be relied on: {TENTHS} answers and "
        f"{FEW_DEPARTURES} departures are the least."
    )


def _behind(record: ForecastRecord) -> tuple[float, float]:
    """Return how many answers and departures there are."""
    tenths = record.deciles
    answers = sum(tenth.count for tenth in tenths)
    # Tenths are split in proportion, so that sums of whole numbers are off by a hair.
    return round(answers, 6), round(sum(tenth.departures for tenth in tenths), 6)


# ----------------------------------------------------------------------
# Reliability: the share of nodes that stayed over the share forecast

RELIABILITY_HEADINGS = ("said", "came", "off by", "answers", "departures")


def reliability_row(part: ScorePart) -> tuple[str, ...]:
    """Return *part* as cells under ``RELIABILITY_HEADINGS``."""
    return (
        percent(part.said),
        percent(part.came),
        f"{round(100 * (part.came - part.said), 1) + 0.0:+.1f}",
        f"{part.count:,.0f}",
        f"{part.departures:,.0f}",
    )


WITHIN = 5.0
"""Percentage points that a good forecast may be off."""

_ROOM = 4.0
_BEHIND = "<br>%{customdata[0]:,} answers, %{customdata[1]:,} departures"
_EDGE = {"width": 0}


def reliability_figure(record: ForecastRecord) -> go.Figure:
    """Draw the outcome over the forecast, a point for each tenth of the answers."""
    tenths = record.deciles
    shares = [share for tenth in tenths for share in (tenth.said, tenth.came)]
    low = max(0.0, 100 * min(shares) - _ROOM)
    high = min(100.0, 100 * max(shares) + _ROOM)
    points = go.Scatter(
        x=[_in_percent(tenth.said) for tenth in tenths],
        y=[_in_percent(tenth.came) for tenth in tenths],
        name="a tenth of the answers",
        mode="lines+markers",
        line={"color": COLOURS[0], "width": 1.4},
        marker={"size": 9, "symbol": [_symbol(tenth) for tenth in tenths]},
        cliponaxis=False,
        customdata=[(round(tenth.count), round(tenth.departures)) for tenth in tenths],
        hovertemplate="said %{x:.1f} %, came %{y:.1f} %" + _BEHIND + "<extra></extra>",
    )
    figure = drawn([*_agreement(low, high), points], height=440)
    figure.update_xaxes(title="said: % that stay", range=[low, high])
    return figure.update_yaxes(title="came: % that stayed", range=[low, high])


def _agreement(low: float, high: float) -> Iterator[go.Scatter]:
    """Draw where outcome and forecast are equal, and where they nearly are."""
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


def _symbol(part: ScorePart) -> str:
    return "circle-open" if part.departures < FEW_DEPARTURES else "circle"


def _in_percent(share: float) -> float | None:
    # JSON has no nan, and Plotly draws None as a gap.
    return None if math.isnan(share) else round(100 * share, 2)


# ----------------------------------------------------------------------
# Survival by age and by size of the cluster

AGE_HEADINGS = ("nodes left", "idle for", *RELIABILITY_HEADINGS)


def age_row(part: AgePart) -> tuple[str, ...]:
    """Return *part* as cells under ``AGE_HEADINGS``."""
    return size_words(part), age_words(part), *reliability_row(part.part)


def size_words(part: AgePart) -> str:
    """Return how many nodes clusters of *part* have left."""
    if part.to_nodes is None:
        return f"{part.from_nodes} or more"
    if part.to_nodes == part.from_nodes:
        return f"{part.from_nodes}"
    return f"{part.from_nodes}-{part.to_nodes}"


def age_words(part: AgePart) -> str:
    """Return how long clusters of *part* have been idle."""
    from_min = f"{round(part.from_s / MINUTE_S, 1):g}"
    if part.to_s is None:
        return f"> {from_min} min"
    to_min = f"{round(part.to_s / MINUTE_S, 1):g} min"
    return f"{from_min}-{to_min}" if part.from_s else f"< {to_min}"


_NOTHING = ScorePart(said=math.nan, came=math.nan, count=0.0, departures=0.0)


def survival_figure(record: ForecastRecord) -> go.Figure:
    """Draw the share that stayed by age, a line for each size, beside the forecast.

    A line breaks off at ages without answers.
    """
    parts = record.by_age
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
    paint = COLOURS[NODES_LEFT.index(group[0].from_nodes)]
    known = {age_words(part): part.part for part in group}
    parts = [known.get(age, _NOTHING) for age in ages]
    yield go.Scatter(
        x=ages,
        y=[_in_percent(part.came) for part in parts],
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
        y=[_in_percent(part.said) for part in parts],
        legendgroup=nodes,
        showlegend=False,
        mode="lines+markers",
        line={"color": paint, "width": 1.6, "dash": "dot"},
        marker={"size": 8, "symbol": "line-ew-open", "line_width": 2},
        hovertemplate="%{x}: %{y:.1f} % said<extra>" + nodes + "</extra>",
    )


def _dotted() -> go.Scatter:
    """Return an empty line that explains the dotted ones in the legend."""
    return go.Scatter(
        x=[None],
        y=[None],
        name="what was said",
        mode="lines",
        line={"color": NEUTRAL, "width": 1.6, "dash": "dot"},
    )


# ----------------------------------------------------------------------
# Planned starts: how far off they were


def _promises(kinds: Sequence[DelayInterval]) -> Mapping[str, object] | None:
    """Return how planned starts turned out; None where no start was planned."""
    if not kinds:
        return None
    return {
        "figure": promises_figure(kinds),
        "headings": PROMISE_HEADINGS,
        "rows": promise_rows(kinds),
    }


PROMISE_HEADINGS = (
    "known ahead",
    "nodes",
    "early",
    "late",
    "1 of 10 until",
    "half until",
    "9 of 10 until",
)


def promise_rows(kinds: Sequence[DelayInterval]) -> list[tuple[str, ...]]:
    """Return *kinds*, in order of their lead, as rows under ``PROMISE_HEADINGS``."""
    return [
        (
            lead_words(kind),
            f"{kind.nodes:,}",
            percent(kind.early),
            percent(kind.late),
            *(
                f"{late_s / MINUTE_S:+.1f} min"
                for late_s in (kind.low_s, kind.middle_s, kind.high_s)
            ),
        )
        for kind in kinds
    ]


def lead_words(kind: DelayInterval) -> str:
    """Return how long ahead promises of *kind* were known."""
    end_s = dict(pairwise(LEADS_S)).get(kind.lead_s)
    from_min = f"{kind.lead_s / MINUTE_S:g}"
    return (
        f"> {from_min} min" if end_s is None else f"{from_min}-{end_s / MINUTE_S:g} min"
    )


def promises_figure(kinds: Sequence[DelayInterval]) -> go.Figure:
    """Draw how much later than promised nodes were taken, a bar for each kind."""
    spans = go.Scatter(
        x=[_minutes(kind.middle_s) for kind in kinds],
        y=[lead_words(kind) for kind in kinds],
        mode="markers",
        marker={"size": 10, "color": COLOURS[0]},
        error_x={
            "type": "data",
            "symmetric": False,
            "array": [_minutes(kind.high_s - kind.middle_s) for kind in kinds],
            "arrayminus": [_minutes(kind.middle_s - kind.low_s) for kind in kinds],
            "color": COLOURS[0],
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


# ----------------------------------------------------------------------
# The map of nodes that leave together


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


STRANGERS = "The forecaster says the same of any two nodes: it knows no pairs."


def are_strangers(shown: AffinityMap) -> bool:
    """Return whether all pairs of *shown* have the same affinity: nothing to draw.

    Forecasters without pairs give such a map; so does any before two nodes met.
    """
    known = {round(a, 3) for row in shown.affinity for a in row if a is not None}
    return len(known) <= 1 < len(shown.cells) and len(shown.blocks) > 1


def shown_words(shown: AffinityMap) -> str:
    """Return which nodes *shown* is made of, one sentence."""
    nodes = sum(map(len, shown.cells))
    which = (
        f"The {nodes:,} nodes that left most often, of {shown.nodes_left:,} that left"
        if nodes < shown.nodes_left
        else f"All {nodes:,} nodes that ever left"
    )
    widest = max(map(len, shown.cells))
    cell = "each row a node" if widest == 1 else f"up to {widest} neighbours a row"
    return f"{which}; {cell}."


BLOCK_HEADINGS = ("nodes", "affinity within", "to the others", "which")
MOST_BLOCKS = 12
MOST_LETTERS = 24


def block_rows(blocks: Sequence[AffinityBlock]) -> list[tuple[str, ...]]:
    """Return the largest of *blocks* as rows under ``BLOCK_HEADINGS``."""
    largest = sorted(blocks, key=lambda block: -len(block.nodes))[:MOST_BLOCKS]
    return [
        (
            f"{len(block.nodes):,}",
            _share(block.within),
            _share(block.outside),
            _names(block.nodes),
        )
        for block in largest
    ]


def _share(affinity: float | None) -> str:
    return UNKNOWN if affinity is None else f"{affinity:.2f}"


def _names(nodes: Sequence[str]) -> str:
    names = listed(nodes)
    return names if len(names) <= MOST_LETTERS else f"{names[: MOST_LETTERS - 2]} …"


def affinity_figure(shown: AffinityMap) -> go.Figure:
    """Draw how likely nodes leave together; nodes that do stand side by side."""
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


def cell_name(nodes: Sequence[str]) -> str:
    """Return a name for a cell of *nodes* that no other cell has."""
    others = len(nodes) - 1
    return f"{nodes[0]} and {others} more" if others else nodes[0]
