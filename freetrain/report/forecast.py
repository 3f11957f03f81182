"""Forecasts and what came of them: plain values for JSON and CSV, rows and words."""

from __future__ import annotations

from dataclasses import asdict
from itertools import pairwise
from typing import TYPE_CHECKING

from freetrain.lookahead.promises import LEADS_S
from freetrain.report.summary import MINUTE_S, csv_text, percent
from freetrain.text import UNKNOWN, counted, render_duration
from slurm.records import collapse

if TYPE_CHECKING:
    from collections.abc import Sequence

    from freetrain.lookahead.affinity_map import AffinityBlock, AffinityMap
    from freetrain.lookahead.promises import DelayInterval
    from freetrain.lookahead.reliability import AgePart, ForecastRecord, ScorePart
    from freetrain.replay.result import ReplayResult

RELIABILITY_HEADINGS = ("said", "came", "off by", "answers", "departures")
AGE_HEADINGS = ("nodes left", "idle for", *RELIABILITY_HEADINGS)
PROMISE_HEADINGS = (
    "known ahead",
    "nodes",
    "early",
    "late",
    "1 of 10 until",
    "half until",
    "9 of 10 until",
)
BLOCK_HEADINGS = ("nodes", "affinity within", "to the others", "which")
FEW_DEPARTURES = 10
"""Below it, what came may well be chance."""

TENTHS = 10
"""Fewer answers are less than one a tenth."""

STRANGERS = "The forecaster says the same of any two nodes: it knows no pairs."

MOST_BLOCKS = 12
MOST_LETTERS = 24


# As plain values.


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
    return {
        "horizon_s": record.horizon_s,
        "every_s": record.every_s,
        "worst_difference": record.reliability.worst,
        "reliability": [_part(tenth) for tenth in record.reliability.deciles],
        "by_age": [_age_part(part) for part in record.reliability.by_age],
        "affinity": None if record.affinity is None else _map(record.affinity),
        "promises": [asdict(kind) for kind in record.promises],
    }


def _part(part: ScorePart) -> dict[str, object]:
    return {
        "said": part.said,
        "came": part.came,
        "answers": round(part.count),
        "departures": round(part.departures),
    }


def _age_part(part: AgePart) -> dict[str, object]:
    where: dict[str, object] = {
        "from_s": part.from_s,
        "to_s": part.to_s,
        "from_nodes": part.from_nodes,
        "to_nodes": part.to_nodes,
    }
    return where | _part(part.part)


def _map(shown: AffinityMap) -> dict[str, object]:
    return {
        "nodes_left": shown.nodes_left,
        "nodes_shown": sum(map(len, shown.cells)),
        "blocks": [_block(block) for block in shown.blocks],
    }


def _block(block: AffinityBlock) -> dict[str, object]:
    return {
        "count": len(block.nodes),
        "nodes": listed(block.nodes),
        "within": block.within,
        "outside": block.outside,
    }


# As people read them.


def reliability_row(part: ScorePart) -> tuple[str, ...]:
    """Return *part* as cells under ``RELIABILITY_HEADINGS``."""
    return (
        percent(part.said),
        percent(part.came),
        f"{round(100 * (part.came - part.said), 1) + 0.0:+.1f}",
        f"{part.count:,.0f}",
        f"{part.departures:,.0f}",
    )


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


def headline(record: ForecastRecord) -> tuple[tuple[str, str], ...]:
    """Return the figures that matter most: what is shown, and what it means."""
    tenths = record.reliability.deciles
    off = record.reliability.worst if is_telling(record) else None
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
    answers = sum(tenth.count for tenth in tenths)
    # Tenths are split in proportion, so that sums of whole numbers are off by a hair.
    return round(answers, 6), round(sum(tenth.departures for tenth in tenths), 6)


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
    known = {round(a, 3) for row in shown.affinity for a in row if a is not None}
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
    """Return how long ahead promises of *kind* were told."""
    end_s = dict(pairwise(LEADS_S)).get(kind.lead_s)
    from_min = f"{kind.lead_s / MINUTE_S:g}"
    return (
        f"> {from_min} min" if end_s is None else f"{from_min}-{end_s / MINUTE_S:g} min"
    )
