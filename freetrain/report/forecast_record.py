"""Forecasts and what came of them as plain values: JSON, and the map as CSV."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from freetrain.report.csv_text import csv_text
from slurm.hostlist import collapse

if TYPE_CHECKING:
    from collections.abc import Sequence

    from freetrain.forecast.affinity_map import AffinityMap, Block
    from freetrain.forecast.answers import AgePart, Part
    from freetrain.forecast.reliability import ForecastRecord
    from freetrain.replay.result import ReplayResult

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
