"""The report: one HTML page that needs no network, the same bytes every time."""

from __future__ import annotations

import json
from html import escape
from pathlib import PurePath
from typing import TYPE_CHECKING

from freetrain.report import figures
from freetrain.report import forecast as forecast_page
from freetrain.report.comparison import (
    GAPS,
    HEADINGS,
    csv_text,
    gap_lines,
    headline,
    steady_record,
    table_row,
)
from freetrain.report.figures import bin_edges_s
from freetrain.report.forecast import (
    FORECAST_PAGE,
    Origin,
    affinity_table,
    forecast_records,
    render_forecasts,
)
from freetrain.report.html import drawing, drawn_document, how_made, in_cards
from freetrain.report.quality import quality_figure, quality_records, quality_tables
from freetrain.text import render_duration

if TYPE_CHECKING:
    from collections.abc import Sequence

    from freetrain.lookahead.reliability import ForecastRecord
    from freetrain.replay.result import ReplayResult
    from freetrain.report.comparison import Comparison


# ----------------------------------------------------------------------
# The report: one HTML page that needs no network, the same bytes every time.


def render_page(comparison: Comparison) -> str:
    """Return the report on *comparison* as one HTML document."""
    body = "\n".join(
        (
            _head(comparison),
            _cards(comparison),
            _compared(comparison),
            quality_tables(comparison),
            _quality_drawn(comparison),
            _over_time(comparison),
            _distributions(comparison),
            _how(comparison),
        )
    )
    return drawn_document(f"FreeTrain on {comparison.log}", body)


def _head(comparison: Comparison) -> str:
    told = (*comparison.left_out, *comparison.cautions)
    left_out = "".join(f" {escape(line)}" for line in told)
    return (
        f"<h1>What training in idle nodes would have done on "
        f"{escape(PurePath(comparison.log).name)}</h1>\n"
        f'<p class="soft">{escape(comparison.read_as)}{left_out}</p>'
    )


def _cards(comparison: Comparison) -> str:
    result = (comparison.on_holes or comparison.results)[0]
    return (
        f"{in_cards(headline(comparison, result))}\n"
        f'<p class="soft">These are the figures of the policy '
        f"<b>{escape(comparison.name(result))}</b>.{_forecast_link(comparison)}</p>"
    )


def _forecast_link(comparison: Comparison) -> str:
    if all(one.forecasts is None for one in comparison.results):
        return ""
    words = f"{forecast_page.TITLE}."
    return f' Beside this page: <a href="{FORECAST_PAGE}">{words}</a>'


def _compared(comparison: Comparison) -> str:
    heads = "".join(f"<th>{escape(name)}</th>" for name in HEADINGS)
    rows = "".join(_row(comparison, result) for result in comparison.results)
    return (
        "<h2>Policies compared</h2>\n"
        '<p class="soft">Efficiency is against dedicated nodes: as many of its own as '
        "were idle on average. Coverage is the share of idle node-time that went into "
        "training that lasted.</p>\n"
        f'<div class="scroll"><table><thead><tr>{heads}</tr></thead>\n'
        f"<tbody>{rows}</tbody></table></div>\n"
        f"{_gaps(comparison)}"
        '<div class="pair">\n'
        + drawing(figures.samples_figure(comparison), "samples", "")
        + drawing(
            figures.losses_figure(comparison),
            "losses",
            "What changing nodes cost, as a share of what would have been trained.",
        )
        + "</div>"
    )


def _gaps(comparison: Comparison) -> str:
    """Return how far plans were from the best; nothing where nobody planned so."""
    named = [(comparison.name(one), one.gap) for one in comparison.results]
    lines = list(gap_lines(named))
    if not lines:
        return ""
    return f'<p class="soft">{"<br>".join(map(escape, (GAPS, *lines)))}</p>\n'


def _row(comparison: Comparison, result: ReplayResult) -> str:
    name, *cells = table_row(result, comparison.name(result))
    colour = figures.colour(comparison, result)
    return (
        f'<tr><td><span class="dot" style="background:{colour}"></span>'
        f"{escape(name)}</td>"
        + "".join(f"<td>{escape(cell)}</td>" for cell in cells)
        + "</tr>\n"
    )


def _quality_drawn(comparison: Comparison) -> str:
    if not any(result.learning for result in comparison.results):
        return ""
    return drawing(
        quality_figure(comparison),
        "quality",
        "Quality of the trainers under way: their mean, and dotted the worst of them.",
    )


def _over_time(comparison: Comparison) -> str:
    first = comparison.name((comparison.on_holes or comparison.results)[0])
    pool = drawing(
        figures.pool_figure(comparison),
        "pool",
        f"Idle nodes, and those of them that each policy used. Each point is a mean "
        f"over {_bin_words(comparison, figures.POOL_BINS)}.",
    )
    sizes = drawing(
        figures.bands_figure(comparison),
        "sizes",
        f"Nodes of the trainers that ran under {first}, one band for each that "
        f"may run at a time; a trainer keeps its band until it finishes. Means over "
        f"{_bin_words(comparison, figures.BAND_BINS)}; more than "
        f"{figures.MOST_BANDS} at a time share bands.",
    )
    return (
        f"<h2>Pool against use</h2>\n{pool}\n"
        f"<h2>Sizes of the trainers under {escape(first)}</h2>\n{sizes}"
    )


def _bin_words(comparison: Comparison, most_bins: int) -> str:
    edges_s = bin_edges_s(comparison.shown_s, most_bins=most_bins)
    return render_duration(float(edges_s[1] - edges_s[0]))


def _distributions(comparison: Comparison) -> str:
    holes = drawing(
        figures.holes_figure(comparison),
        "holes",
        f"Holes by length: shares of their number "
        f"({len(comparison.hole_lengths_s):,}) and of the idle node-time.",
    )
    if not any(result.finished for result in comparison.results):
        return (
            f"<h2>How long the holes were</h2>\n{holes}\n"
            f'<h2>How soon trainers finished</h2>\n<p class="soft">None did.</p>'
        )
    times = drawing(figures.completions_figure(comparison), "completions", "")
    slow = drawing(
        figures.slowdowns_figure(comparison),
        "slowdowns",
        "Slowdown: arrival to finish, over the time alone on the best size.",
    )
    return (
        f"<h2>How long the holes were</h2>\n{holes}\n"
        f"<h2>How soon trainers finished</h2>\n"
        f'<div class="pair">\n{times}{slow}</div>'
    )


def _priorities(comparison: Comparison) -> list[str]:
    return list(dict.fromkeys(result.priority for result in comparison.results))


def _how(comparison: Comparison) -> str:
    facts = (
        ("Log", f"{escape(comparison.log)}: {escape(comparison.read_as)}"),
        ("Trainers", escape(comparison.trainers)),
        ("Priority", escape(", ".join(_priorities(comparison)))),
        ("Accounting", escape(comparison.results[0].accounting)),
        ("Definitions", "docs/replay.md defines every figure with its formula."),
    )
    return how_made(comparison.command, comparison.version, facts)


# ----------------------------------------------------------------------
# The files of ``--out``; the same replay always gives the same bytes.

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
