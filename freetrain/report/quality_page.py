"""The report's part on quality: drawn over time, and in tables with the losers."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from freetrain.report.document import table
from freetrain.report.quality_rows import (
    AGAINST_HEADINGS,
    HEADINGS,
    against_row,
    quality_row,
)

if TYPE_CHECKING:
    from freetrain.report.comparison import Comparison


def quality_tables(comparison: Comparison) -> str:
    """Return the tables of quality as HTML; nothing where no trainer has a curve."""
    shown = [result for result in comparison.results if result.learning]
    if not shown:
        return ""
    rows = [quality_row(result, comparison.name(result)) for result in shown]
    return (
        "<h2>How soon models became good</h2>\n"
        '<p class="soft">Quality is 0 where a trainer began and 1 at the best it has '
        "by its end; it counts once an evaluation says so. Means over time of those "
        "under way, of the worst of them, and of all that were submitted. Times are "
        "means from arrival, in minutes and hours: to 90 and 95 % of the best, to the "
        "first tier of the target, to the finish; then the longest to finish, and "
        "the makespan.</p>\n" + table(HEADINGS, rows) + _against(comparison)
    )


def _against(comparison: Comparison) -> str:
    baseline = comparison.baseline
    if baseline is None:
        return ""
    rows = [
        against_row(result, baseline, comparison.name(result))
        for result in comparison.results
        if result.learning and result is not baseline
    ]
    return (
        f"<h2>Against {escape(comparison.name(baseline))}: who gains, who loses</h2>\n"
        '<p class="soft">The same trainers, one by one. Changes of means, but the '
        "luckiest: the trainer whose first tier came soonest. Slower is the share of "
        "the trainers that finished more than 1 % later; worst is the one that lost "
        "most.</p>\n" + table(AGAINST_HEADINGS, rows)
    )
