"""The files of ``--out``; the same replay always gives the same bytes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from freetrain.report.csv_text import csv_text
from freetrain.report.forecast_page import Origin, render_forecasts
from freetrain.report.forecast_record import (
    FORECAST_PAGE,
    affinity_table,
    forecast_records,
)
from freetrain.report.losers import quality_records
from freetrain.report.page import render_page
from freetrain.report.record import steady_record

if TYPE_CHECKING:
    from collections.abc import Sequence

    from freetrain.forecast.reliability import ForecastRecord
    from freetrain.replay.result import ReplayResult
    from freetrain.report.comparison import Comparison

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
        "steps.csv": steps_table(comparison),
        "completions.csv": completions_table(comparison),
        "report.html": render_page(comparison),
    }
    texts |= forecast_texts(_origin(comparison), comparison.results)
    return {name: text.encode("utf-8") for name, text in texts.items()}


def forecast_texts(origin: Origin, results: Sequence[ReplayResult]) -> dict[str, str]:
    """Return the files on the first of *results* that asked a forecaster, if any did.

    Where no broker is in the loop, those that asked the same one were told the same.
    """
    records: dict[str, ForecastRecord] = {}
    for one in results:
        if one.forecasts is not None:
            records.setdefault(one.forecaster or "", one.forecasts)
    if not records:
        return {}
    forecaster, *others = records
    record = records[forecaster]
    page = render_forecasts(origin, record, forecaster, others=others)
    texts = {FORECAST_PAGE: page}
    if record.affinity is not None:
        texts["affinity.csv"] = affinity_table(record.affinity)
    return texts


def _origin(comparison: Comparison) -> Origin:
    return Origin(
        log=comparison.log,
        read_as=comparison.read_as,
        command=comparison.command,
        version=comparison.version,
        report="report.html",
    )


def summary(comparison: Comparison) -> str:
    """Return the figures that every run gives, and what they were made from."""
    content = {
        "command": comparison.command,
        "version": comparison.version,
        "log": comparison.log,
        "read": comparison.read_as,
        "left_out": list(comparison.left_out),
        "cautions": list(comparison.cautions),
        "trainers": comparison.trainers,
        "nodes": comparison.nodes,
        "span_s": comparison.span_s,
        "holes": len(comparison.hole_lengths_s),
        "policies": [
            steady_record(result)
            | quality_records(comparison, result)
            | forecast_records(result)
            for result in comparison.results
        ],
    }
    return json.dumps(content, indent=2, allow_nan=False) + "\n"


def steps_table(comparison: Comparison) -> str:
    """Return every step of every policy as CSV.

    ``resized`` holds ``trainer=nodes`` pairs and ``finished`` trainers, both
    separated by spaces, which trainers' names do not have.
    """
    return csv_text(
        STEP_COLUMNS,
        (
            (
                comparison.name(result),
                step.time_s,
                step.idle_nodes,
                step.used_nodes,
                " ".join(f"{name}={nodes}" for name, nodes in step.resized),
                " ".join(step.finished),
            )
            for result in comparison.results
            for step in result.steps
        ),
    )


def completions_table(comparison: Comparison) -> str:
    """Return every trainer's way under every policy as CSV; empty means never."""
    return csv_text(
        COMPLETION_COLUMNS,
        (
            (
                comparison.name(result),
                done.trainer,
                done.arrival_s,
                done.admitted_s,
                done.finished_s,
                done.samples,
                done.slowdown,
            )
            for result in comparison.results
            for done in result.completions
        ),
    )
