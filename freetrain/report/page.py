"""The report of a replay: one HTML page, a summary as JSON, and series as CSV.

The same replay always gives the same bytes.
"""

from __future__ import annotations

import json
from pathlib import PurePath
from typing import TYPE_CHECKING

from freetrain.report import figures
from freetrain.report.forecast import forecast_records
from freetrain.report.forecast_page import FORECAST_PAGE, TITLE, Origin, forecast_texts
from freetrain.report.html import render
from freetrain.report.quality import (
    AGAINST_HEADINGS,
    QUALITY_HEADINGS,
    against_row,
    quality_records,
    quality_row,
)
from freetrain.report.summary import (
    GAP_HEADING,
    HEADINGS,
    csv_text,
    gap_lines,
    headline,
    steady_record,
    table_row,
)
from freetrain.text import render_duration

if TYPE_CHECKING:
    from collections.abc import Mapping

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
    """Return each trainer's arrival, start and finish as CSV; empty means never."""
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
        about=(comparison.read_as, *comparison.left_out, *comparison.cautions),
        headline=headline(comparison, first),
        first=comparison.name(first),
        forecast_page=FORECAST_PAGE if has_forecasts else "",
        forecast_title=TITLE,
        headings=HEADINGS,
        policies=[
            (
                figures.colour(comparison, result),
                table_row(result, comparison.name(result)),
            )
            for result in results
        ],
        gaps=(GAP_HEADING, *gaps) if gaps else (),
        samples_figure=figures.samples_figure(comparison),
        losses_figure=figures.losses_figure(comparison),
        quality=_quality(comparison),
        pool_figure=figures.pool_figure(comparison),
        pool_bin=_bin_words(comparison, figures.POOL_BINS),
        bands_figure=figures.bands_figure(comparison),
        band_bin=_bin_words(comparison, figures.BAND_BINS),
        most_bands=figures.MOST_BANDS,
        holes_figure=figures.holes_figure(comparison),
        holes=f"{len(comparison.hole_lengths_s):,}",
        completions_figure=(
            figures.completions_figure(comparison) if some_finished else None
        ),
        slowdowns_figure=(
            figures.slowdowns_figure(comparison) if some_finished else None
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
        "figure": figures.quality_figure(comparison),
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
    edges_s = figures.bin_edges_s(comparison.shown_s, most_bins=most_bins)
    return render_duration(float(edges_s[1] - edges_s[0]))
