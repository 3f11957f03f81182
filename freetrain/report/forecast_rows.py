"""Forecasts and what came of them, as people read it: tables and sentences."""

from __future__ import annotations

from typing import TYPE_CHECKING

from freetrain.report.forecast_record import listed
from freetrain.report.rows import MINUTE_S, UNKNOWN, percent
from freetrain.toml.duration import render_duration
from freetrain.toml.wording import counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from freetrain.forecast.affinity_map import AffinityMap, Block
    from freetrain.forecast.answers import AgePart, Part
    from freetrain.forecast.reliability import ForecastRecord

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
