"""The page on forecasts: what was foretold of idle nodes, and what came.

One HTML page that needs no network, the same bytes every time.
"""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from pathlib import PurePath
from typing import TYPE_CHECKING

from freetrain.report import forecast_figures as figures
from freetrain.report import forecast_rows as rows
from freetrain.report import promises
from freetrain.report.document import how_made, in_cards, table
from freetrain.report.drawing import drawing, drawn_document
from freetrain.toml.duration import render_duration

if TYPE_CHECKING:
    from collections.abc import Sequence

    from freetrain.forecast.affinity_map import AffinityMap
    from freetrain.forecast.reliability import ForecastRecord

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
        f"{in_cards(rows.headline(record))}"
    )


def _elsewhere(others: Sequence[str]) -> str:
    if not others:
        return ""
    return f" What {escape(' and '.join(others))} said is in summary.json."


def _reliability(record: ForecastRecord) -> str:
    heading = "<h2>Reliability</h2>\n"
    if not rows.is_telling(record):
        return f'{heading}<p class="soft">{rows.too_few_words(record)}</p>'
    drawn = drawing(
        figures.reliability_figure(record),
        "reliability",
        "Each point is a tenth of the answers, of like probability. On the dashed line "
        "nodes stayed as often as was said; above it more often, below it less. "
        f"{_open_points()}",
    )
    found = table(
        rows.RELIABILITY_HEADINGS, map(rows.reliability_row, record.reliability.deciles)
    )
    return (
        f'{heading}<div class="pair">\n{drawn}<div>{found}'
        '<p class="soft">Off by: points of a hundred. A departure is an event that '
        "takes nodes of one cluster; nodes of a cluster fare alike, so that departures "
        "say more of the certainty than answers do.</p></div></div>"
    )


def _survival(record: ForecastRecord) -> str:
    if not rows.is_telling(record):
        return ""
    drawn = drawing(
        figures.survival_figure(record),
        "survival",
        f"Share of nodes that stayed {render_duration(record.horizon_s)} more, by how "
        "long their cluster had been idle and how many nodes it had left. Solid: what "
        f"came. Dotted, same colour: what was said, by what was known then. "
        f"{_open_points()}",
    )
    found = table(rows.AGE_HEADINGS, map(rows.age_row, record.reliability.by_age))
    return f"<h2>Survival by age</h2>\n{drawn}{_folded(found)}"


def _promises(record: ForecastRecord) -> str:
    """Return what came of planned starts; nothing where nobody knew of any."""
    kinds = record.promises
    if not kinds:
        return ""
    drawn = drawing(
        promises.promises_figure(kinds),
        "promises",
        "How much later idle nodes were taken than a job was planned to take them, by "
        "how long ahead that was told first. The line holds eight of ten nodes, the "
        "point is the middle one.",
    )
    found = table(promises.HEADINGS, promises.promise_rows(kinds))
    return (
        f"<h2>Promised and came</h2>\n{drawn}{found}"
        '<p class="soft">Early and late: by more than a minute. Four hours stand for '
        "four hours and more.</p>"
    )


def _affinity(shown: AffinityMap | None) -> str:
    heading = "<h2>Who leaves together</h2>\n"
    if shown is None:
        return f'{heading}<p class="soft">Fewer than two nodes ever left.</p>'
    if rows.are_strangers(shown):
        return f'{heading}<p class="soft">{rows.STRANGERS}</p>'
    drawn = drawing(
        figures.affinity_figure(shown),
        "affinity",
        f"{rows.shown_words(shown)} The lighter, the likelier a departure of the one "
        "takes the other along; strangers have 0.3. Bright squares on the diagonal "
        "are blocks of nodes that leave together.",
    )
    found = table(rows.BLOCK_HEADINGS, rows.block_rows(shown.blocks))
    return (
        f'{heading}<div class="pair">\n{drawn}<div>{found}<p class="soft">'
        f"{_blocks_words(len(shown.blocks))} Affinity is a mean over pairs.</p>"
        "</div></div>"
    )


def _blocks_words(blocks: int) -> str:
    if blocks <= rows.MOST_BLOCKS:
        return "All blocks."
    return f"The largest {rows.MOST_BLOCKS} of {blocks:,} blocks."


def _open_points() -> str:
    return f"Open points rest on fewer than {rows.FEW_DEPARTURES} departures."


def _folded(found: str) -> str:
    return f"<details><summary>The same as a table</summary>\n{found}</details>"


def _how(origin: Origin) -> str:
    defined = "docs/lookahead.md defines affinity, hazard and survival."
    return how_made(origin.command, origin.version, (("Definitions", defined),))
