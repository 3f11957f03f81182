"""Forecasts and what came of them as plain values: JSON, and the map as CSV."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from html import escape
from itertools import groupby, pairwise
from pathlib import PurePath
from typing import TYPE_CHECKING

import plotly.graph_objects as go

from freetrain.lookahead.promises import LEADS_S
from freetrain.lookahead.reliability import NODES_LEFT, Part
from freetrain.report.comparison import MINUTE_S, UNKNOWN, csv_text, percent
from freetrain.report.figures import NEUTRAL, POLICY_COLOURS, POOL_FILL, drawn
from freetrain.report.html import drawing, drawn_document, how_made, in_cards, table
from freetrain.text import counted, render_duration
from slurm.hostlist import collapse

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from freetrain.lookahead.affinity_map import AffinityMap, Block
    from freetrain.lookahead.promises import DelayInterval
    from freetrain.lookahead.reliability import AgePart, ForecastRecord
    from freetrain.replay.result import ReplayResult


# ----------------------------------------------------------------------
# Forecasts and what came of them as plain values: JSON, and the map as CSV.

FORECAST_PAGE = "forecast.html"
"""The page's file, beside that of the report."""


def forecast_records(result: ReplayResult) -> dict[str, object]:
    """Return what JSON says of *result*'s forecasts; {} where none were recorded."""
    record = result.forecasts
    return {} if record is None else {"forecasts": _forecasts(record)}


def affinity_table(shown: AffinityMap) -> str:
    """Return the map as CSV: a row a cell, a column a cell, nodes as Slurm lists."""
    names = [listed(cell) for cell in shown.cells]
    rows = zip(names, shown.affinity, strict=True)
    return csv_text(("nodes", *names), ((name, *row) for name, row in rows))


def listed(nodes: Sequence[str]) -> str:
    """Return *nodes* as Slurm lists them, or one by one: logs may have any names."""
    try:
        return collapse(nodes)
    except ValueError:
        return " ".join(nodes)


def _forecasts(record: ForecastRecord) -> dict[str, object]:
    told = record.reliability
    return {
        "horizon_s": record.horizon_s,
        "every_s": record.every_s,
        "worst_difference": told.worst,
        "reliability": [_part(one) for one in told.deciles],
        "by_age": [_age_part(one) for one in told.by_age],
        "affinity": None if record.affinity is None else _map(record.affinity),
        "promises": [asdict(kind) for kind in record.promises],
    }


def _part(one: Part) -> dict[str, object]:
    return {
        "said": one.said,
        "came": one.came,
        "answers": round(one.count),
        "departures": round(one.departures),
    }


def _age_part(one: AgePart) -> dict[str, object]:
    where: dict[str, object] = {
        "from_s": one.from_s,
        "to_s": one.to_s,
        "from_nodes": one.from_nodes,
        "to_nodes": one.to_nodes,
    }
    return where | _part(one.part)


def _map(shown: AffinityMap) -> dict[str, object]:
    return {
        "nodes_left": shown.nodes_left,
        "nodes_shown": sum(map(len, shown.cells)),
        "blocks": [_block(one) for one in shown.blocks],
    }


def _block(one: Block) -> dict[str, object]:
    return {
        "count": len(one.nodes),
        "nodes": listed(one.nodes),
        "within": one.within,
        "outside": one.outside,
    }


# ----------------------------------------------------------------------
# Forecasts and what came of them, as people read it: tables and sentences.

RELIABILITY_HEADINGS = ("said", "came", "off by", "answers", "departures")
AGE_HEADINGS = ("nodes left", "idle for", *RELIABILITY_HEADINGS)
BLOCK_HEADINGS = ("nodes", "affinity within", "to the others", "which")
FEW_DEPARTURES = 10
"""Below it, what came may well be chance."""

TENTHS = 10
"""Fewer answers are less than one a tenth."""

STRANGERS = "The same is said of any two nodes: all are strangers to each other."

MOST_BLOCKS = 12
MOST_LETTERS = 24


def reliability_row(one: Part) -> tuple[str, ...]:
    """Return *one* as cells under ``RELIABILITY_HEADINGS``."""
    return (
        percent(one.said),
        percent(one.came),
        f"{round(100 * (one.came - one.said), 1) + 0.0:+.1f}",
        f"{one.count:,.0f}",
        f"{one.departures:,.0f}",
    )


def age_row(one: AgePart) -> tuple[str, ...]:
    """Return *one* as cells under ``AGE_HEADINGS``."""
    return size_words(one), age_words(one), *reliability_row(one.part)


def size_words(one: AgePart) -> str:
    """Return how many nodes clusters of *one* have left."""
    if one.to_nodes is None:
        return f"{one.from_nodes} or more"
    if one.to_nodes == one.from_nodes:
        return f"{one.from_nodes}"
    return f"{one.from_nodes}-{one.to_nodes}"


def age_words(one: AgePart) -> str:
    """Return how long clusters of *one* have been idle."""
    from_min = f"{round(one.from_s / MINUTE_S, 1):g}"
    if one.to_s is None:
        return f"> {from_min} min"
    to_min = f"{round(one.to_s / MINUTE_S, 1):g} min"
    return f"{from_min}-{to_min}" if one.from_s else f"< {to_min}"


def block_rows(blocks: Sequence[Block]) -> list[tuple[str, ...]]:
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


def headline(record: ForecastRecord) -> tuple[tuple[str, str], ...]:
    """Return the figures that matter most: what is shown, and what it means."""
    tenths = record.reliability.deciles
    off = record.reliability.worst if is_telling(record) else None
    answers, departures = _behind(record)
    stayed = sum(one.came * one.count for one in tenths) / max(1, answers)
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
    """Return whether there are enough answers to split them by what was said."""
    answers, departures = _behind(record)
    return answers >= TENTHS and departures >= FEW_DEPARTURES


def too_few_words(record: ForecastRecord) -> str:
    """Say what is missing to tell how reliable forecasts were."""
    answers, departures = map(round, _behind(record))
    if not answers:
        return "No answer was due before the end."
    return (
        f"{counted(answers, 'answer')} and {counted(departures, 'departure')} are too "
        f"few to tell how far it can be relied on: {TENTHS} answers and "
        f"{FEW_DEPARTURES} departures are the least."
    )


def _behind(record: ForecastRecord) -> tuple[float, float]:
    """Return how many answers there are, and departures."""
    tenths = record.reliability.deciles
    answers = sum(one.count for one in tenths)
    # Tenths are split in proportion, so that sums of whole numbers are off by a hair.
    return round(answers, 6), round(sum(one.departures for one in tenths), 6)


def shown_words(shown: AffinityMap) -> str:
    """Say which nodes *shown* is made of."""
    nodes = sum(map(len, shown.cells))
    which = (
        f"The {nodes:,} nodes that left most often, of {shown.nodes_left:,} that left"
        if nodes < shown.nodes_left
        else f"All {nodes:,} nodes that ever left"
    )
    widest = max(map(len, shown.cells))
    cell = "each row a node" if widest == 1 else f"up to {widest} neighbours a row"
    return f"{which}; {cell}."


def are_strangers(shown: AffinityMap) -> bool:
    """Return whether the same is said of all pairs of *shown*: there is nothing to see.

    That is so of forecasters that know no pairs, and before any two met.
    """
    known = {round(one, 3) for row in shown.affinity for one in row if one is not None}
    return len(known) <= 1 < len(shown.cells) and len(shown.blocks) > 1


def cell_name(nodes: Sequence[str]) -> str:
    """Return what to call a cell of *nodes*; no other cell is called so."""
    others = len(nodes) - 1
    return f"{nodes[0]} and {others} more" if others else nodes[0]


def _share(affinity: float | None) -> str:
    return UNKNOWN if affinity is None else f"{affinity:.2f}"


def _names(nodes: Sequence[str]) -> str:
    names = listed(nodes)
    return names if len(names) <= MOST_LETTERS else f"{names[: MOST_LETTERS - 2]} …"


# ----------------------------------------------------------------------
# Drawings of forecasts and what came of them, by Plotly.

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


# ----------------------------------------------------------------------
# What was promised of idle nodes and what came: a drawing and its table.

HEADINGS = (
    "told ahead",
    "nodes",
    "early",
    "late",
    "1 of 10 until",
    "half until",
    "9 of 10 until",
)


def promise_rows(kinds: Sequence[DelayInterval]) -> list[tuple[str, ...]]:
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


def lead_words(kind: DelayInterval) -> str:
    """Return how long ahead promises of *kind* were told."""
    end_s = dict(pairwise(LEADS_S)).get(kind.lead_s)
    from_min = f"{_min(kind.lead_s):g}"
    return f"> {from_min} min" if end_s is None else f"{from_min}-{_min(end_s):g} min"


def promises_figure(kinds: Sequence[DelayInterval]) -> go.Figure:
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


def _quantiles_s(kind: DelayInterval) -> tuple[float, float, float]:
    return kind.low_s, kind.middle_s, kind.high_s


def _min(time_s: float) -> float:
    return time_s / MINUTE_S


# ----------------------------------------------------------------------
# The page on forecasts: what was foretold of idle nodes, and what came.

TITLE = "What was foretold of idle nodes, and what came"


@dataclass(frozen=True, slots=True)
class Origin:
    """What the forecasts are of.

    Attributes:
        log: As the user named it.
        read_as: What was read of it, in words.
        command: The command line that shows the same again.
        version: FreeTrain's version.
        report: The file of the report beside the page; None for none.
    """

    log: str
    read_as: str
    command: str
    version: str
    report: str | None = None


def render_forecasts(
    origin: Origin,
    record: ForecastRecord,
    forecaster: str,
    *,
    others: Sequence[str] = (),
) -> str:
    """Return the page on *record* as one HTML document.

    Args:
        origin: Of what.
        record: What was said, and what came.
        forecaster: Who said it.
        others: Whose forecasts are recorded elsewhere.
    """
    by = f"the forecaster {escape(forecaster)}"
    body = "\n".join(
        (
            _head(origin, record, by, _elsewhere(others)),
            _reliability(record),
            _survival(record),
            _promises(record),
            _affinity(record.affinity),
            _how(origin),
        )
    )
    return drawn_document(f"FreeTrain's forecasts on {origin.log}", body)


def _head(origin: Origin, record: ForecastRecord, by: str, elsewhere: str) -> str:
    log = escape(PurePath(origin.log).name)
    up = f'<a href="{origin.report}">The report on {log}</a>' if origin.report else log
    every, horizon = map(render_duration, (record.every_s, record.horizon_s))
    return (
        f'<p class="soft">{up}</p>\n'
        f"<h1>{TITLE}</h1>\n"
        f'<p class="soft">{escape(origin.read_as)} Every {every} {by} '
        f"was asked how likely each idle node stays {horizon} more, and held to it. "
        f"It knew the past of the replay only; answers from the beginning on count, "
        f"when it had learned nothing yet.{elsewhere}</p>\n"
        f"{in_cards(headline(record))}"
    )


def _elsewhere(others: Sequence[str]) -> str:
    if not others:
        return ""
    return f" What {escape(' and '.join(others))} said is in summary.json."


def _reliability(record: ForecastRecord) -> str:
    heading = "<h2>Reliability</h2>\n"
    if not is_telling(record):
        return f'{heading}<p class="soft">{too_few_words(record)}</p>'
    drawn = drawing(
        reliability_figure(record),
        "reliability",
        "Each point is a tenth of the answers, of like probability. On the dashed line "
        "nodes stayed as often as was said; above it more often, below it less. "
        f"{_open_points()}",
    )
    found = table(
        RELIABILITY_HEADINGS, map(reliability_row, record.reliability.deciles)
    )
    return (
        f'{heading}<div class="pair">\n{drawn}<div>{found}'
        '<p class="soft">Off by: points of a hundred. A departure is an event that '
        "takes nodes of one cluster; nodes of a cluster fare alike, so that departures "
        "say more of the certainty than answers do.</p></div></div>"
    )


def _survival(record: ForecastRecord) -> str:
    if not is_telling(record):
        return ""
    drawn = drawing(
        survival_figure(record),
        "survival",
        f"Share of nodes that stayed {render_duration(record.horizon_s)} more, by how "
        "long their cluster had been idle and how many nodes it had left. Solid: what "
        f"came. Dotted, same colour: what was said, by what was known then. "
        f"{_open_points()}",
    )
    found = table(AGE_HEADINGS, map(age_row, record.reliability.by_age))
    return f"<h2>Survival by age</h2>\n{drawn}{_folded(found)}"


def _promises(record: ForecastRecord) -> str:
    """Return what came of planned starts; nothing where nobody knew of any."""
    kinds = record.promises
    if not kinds:
        return ""
    drawn = drawing(
        promises_figure(kinds),
        "promises",
        "How much later idle nodes were taken than a job was planned to take them, by "
        "how long ahead that was told first. The line holds eight of ten nodes, the "
        "point is the middle one.",
    )
    found = table(HEADINGS, promise_rows(kinds))
    return (
        f"<h2>Promised and came</h2>\n{drawn}{found}"
        '<p class="soft">Early and late: by more than a minute. Four hours stand for '
        "four hours and more.</p>"
    )


def _affinity(shown: AffinityMap | None) -> str:
    heading = "<h2>Who leaves together</h2>\n"
    if shown is None:
        return f'{heading}<p class="soft">Fewer than two nodes ever left.</p>'
    if are_strangers(shown):
        return f'{heading}<p class="soft">{STRANGERS}</p>'
    drawn = drawing(
        affinity_figure(shown),
        "affinity",
        f"{shown_words(shown)} The lighter, the likelier a departure of the one "
        "takes the other along; strangers have 0.3. Bright squares on the diagonal "
        "are blocks of nodes that leave together.",
    )
    found = table(BLOCK_HEADINGS, block_rows(shown.blocks))
    return (
        f'{heading}<div class="pair">\n{drawn}<div>{found}<p class="soft">'
        f"{_blocks_words(len(shown.blocks))} Affinity is a mean over pairs.</p>"
        "</div></div>"
    )


def _blocks_words(blocks: int) -> str:
    if blocks <= MOST_BLOCKS:
        return "All blocks."
    return f"The largest {MOST_BLOCKS} of {blocks:,} blocks."


def _open_points() -> str:
    return f"Open points rest on fewer than {FEW_DEPARTURES} departures."


def _folded(found: str) -> str:
    return f"<details><summary>The same as a table</summary>\n{found}</details>"


def _how(origin: Origin) -> str:
    defined = "docs/lookahead.md defines affinity, hazard and survival."
    return how_made(origin.command, origin.version, (("Definitions", defined),))
