"""Figures of quality as people read them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from freetrain.report.losers import against
from freetrain.report.quality import quality_of
from freetrain.report.rows import FEW, UNKNOWN, percent
from freetrain.toml.wording import per_cent

if TYPE_CHECKING:
    from freetrain.replay.result import ReplayResult
    from freetrain.report.losers import Waits
    from freetrain.report.quality import Wait

HEADINGS = (
    "quality",
    "mean",
    "worst",
    "of all",
    "to 90%",
    "to 95%",
    "tier 1",
    "finish",
    "last",
    "all in",
)
AGAINST_HEADINGS = (
    "against",
    "quality",
    "to 90%",
    "tier 1",
    "luckiest",
    "finish",
    "all in",
    "slower",
    "worst",
)


def quality_row(result: ReplayResult, name: str) -> tuple[str, ...]:
    """Return *result*, called *name*, as cells under ``HEADINGS``.

    Times are means from arrival, in minutes or hours; ``last`` is the longest from
    arrival to finish, ``all in`` the makespan.
    """
    found = quality_of(result)
    waits = [found.time_to[what] for what in ("90%", "95%", "deliver", "finish")]
    return (
        name,
        percent(found.under_way),
        percent(found.worst),
        percent(found.submitted),
        *(_time(_of(wait, "mean_s")) for wait in waits),
        _time(_of(waits[-1], "worst_s")),
        _time(found.makespan_s),
    )


def against_row(
    result: ReplayResult, baseline: ReplayResult, name: str
) -> tuple[str, ...]:
    """Return *result* against *baseline* as cells under ``AGAINST_HEADINGS``.

    Changes of means, but ``luckiest`` (the trainer whose first tier came soonest) and
    the losers: the share of trainers that finished later, and the worst of them.
    """
    found = against(result, baseline)
    good, tier, finish = (found.time_to[w] for w in ("90%", "deliver", "finish"))
    return (
        name,
        change(found.under_way),
        change(_of(good, "mean")),
        change(_of(tier, "mean")),
        change(_of(tier, "best")),
        change(_of(finish, "mean")),
        change(found.makespan),
        percent(_of(finish, "slower")),
        change(_of(finish, "worst")),
    )


def change(share: float | None) -> str:
    """Return a share of the baseline as a change: 0.6 as ``-40.0 %``."""
    return UNKNOWN if share is None else per_cent(share - 1, "+.1f")


def _of(found: Wait | Waits | None, what: str) -> float | None:
    return None if found is None else float(getattr(found, what))


def _time(seconds: float | None) -> str:
    """Return a time in few characters: ten of them stand in a row."""
    if seconds is None:
        return UNKNOWN
    minutes = seconds / 60
    return f"{minutes:.1f}m" if minutes < FEW else f"{minutes / 60:.1f}h"
