"""A replay's figures: plain values for JSON and CSV, and words for people."""

from __future__ import annotations

import csv
import dataclasses
import io
import math
from typing import TYPE_CHECKING

import numpy as np

from freetrain.text import LEAST_GAP, MANY, UNKNOWN, gap_percent, per_cent, scaled

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from freetrain.replay.gaps import Gap
    from freetrain.replay.result import ReplayResult
    from freetrain.report.comparison import Comparison
    from logs.trace import IdleTrace

PERCENTILES = (5, 25, 50, 75, 95)
VOLATILE = ("solver_s", "wall_s", "peak_rss_bytes")
"""Figures that differ from one run to the next."""
SERIES = ("steps", "completions", "learning", "forecasts")
LOSSES = ("rescale_samples", "preempt_samples", "start_samples")


# As plain values: what --json, summary.json and the CSV files hold.


def steady_record(result: ReplayResult) -> dict[str, object]:
    """Return every figure that the same replay always gives, by name.

    The names are those of ``ReplayResult`` (docs/notes/replay.md), with the completion
    distribution as percentiles: of the time from arrival to finish in seconds,
    and of the slowdown, over the trainers that finished; None where none did.
    Settings of the priority are those that were given, by name.
    """
    apart = (*VOLATILE, *SERIES, "priority_settings", "gap")
    plain = {
        field.name: _plain(getattr(result, field.name))
        for field in dataclasses.fields(result)
        if field.name not in apart
    }
    own = {
        "priority_settings": dict(result.priority_settings),
        "gap": None if result.gap is None else dataclasses.asdict(result.gap),
    }
    return plain | own | completion_record(result)


def completion_record(result: ReplayResult) -> dict[str, object]:
    """Return the completion distribution of *result* as percentiles."""
    slowdowns = [c.slowdown for c in result.completions if c.slowdown is not None]
    return {
        "completion_s": _percentiles(completion_times_s(result)),
        "slowdown": _percentiles(slowdowns),
        "worst_slowdown": max(slowdowns, default=None),
    }


def completion_times_s(result: ReplayResult) -> list[float]:
    """Return arrival to finish of each trainer that finished, in seconds."""
    return [
        c.finished_s - c.arrival_s
        for c in result.completions
        if c.finished_s is not None
    ]


def full_record(result: ReplayResult, *, load_s: float) -> dict[str, object]:
    """Return every figure of *result*, those that vary from run to run included.

    Args:
        result: One policy's replay.
        load_s: Seconds that reading the log and finding its holes took, once
            for all policies. ``wall_s`` is this and the policy's own
            ``replay_s``: what this policy alone would have taken.
    """
    return steady_record(result) | {
        "solver_s": result.solver_s,
        "load_s": load_s,
        "replay_s": result.wall_s,
        "wall_s": load_s + result.wall_s,
        "peak_rss_bytes": result.peak_rss_bytes,
    }


def lost_share(result: ReplayResult, causes: Sequence[str] = LOSSES) -> float:
    """Return what *causes* lost, over samples trained and lost to any cause."""
    lost = {cause: float(getattr(result, cause)) for cause in LOSSES}
    possible = result.samples + sum(lost.values())
    return sum(lost[cause] for cause in causes) / possible if possible > 0 else 0.0


def _plain(value: float | str | None) -> float | str | None:
    """Return *value* as JSON knows it: it has neither NaN nor infinity."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def _percentiles(values: Sequence[float]) -> dict[str, float] | None:
    if not values:
        return None
    found = np.percentile(values, PERCENTILES)
    return {f"p{p}": float(v) for p, v in zip(PERCENTILES, found, strict=True)}


def idle_records(trace: IdleTrace) -> list[dict[str, object]]:
    """Return each interval of *trace*: node, first and last second."""
    return [
        {"node": trace.node_names[node], "start_s": start_s, "end_s": end_s}
        for node, start_s, end_s in zip(
            trace.node.tolist(),
            trace.start_s.tolist(),
            trace.end_s.tolist(),
            strict=True,
        )
    ]


def csv_text(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return *rows* under their *columns*; None becomes an empty cell."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(rows)
    return text.getvalue()


# As people read them: the comparison's table, its headline, and the plans' gaps.

HEADINGS = (
    "policy",
    "samples",
    "efficiency",
    "coverage",
    "finished",
    "lost",
    "preempt",
    "worst slowdown",
)
WORDS = ((1e12, "trillion"), (1e9, "billion"), (1e6, "million"))
MINUTE_S = 60.0
FEW = 100
"""From here on fractions are not shown."""


def table_row(result: ReplayResult, name: str) -> tuple[str, ...]:
    """Return *result*, called *name*, as cells under ``HEADINGS``."""
    worst = completion_record(result)["worst_slowdown"]
    return (
        name,
        scaled(result.samples),
        percent(result.efficiency),
        percent(result.coverage),
        f"{result.finished:,}",
        percent(lost_share(result)),
        f"{result.preemptions:,}",
        _times(worst) if isinstance(worst, float) else UNKNOWN,
    )


def _times(factor: float) -> str:
    if factor >= MANY:
        return f"{factor:.1e} x"
    return f"{factor:,.0f} x" if factor >= FEW else f"{factor:.1f} x"


def headline(
    comparison: Comparison, result: ReplayResult
) -> tuple[tuple[str, str], ...]:
    """Return the figures that matter most, each with its meaning."""
    samples, _, scale = scaled(result.samples, scales=WORDS).partition(" ")
    idle = result.pool_node_s / result.end_s if result.end_s > 0 else 0.0
    return (
        (samples, f"{scale} samples trained".strip()),
        (percent(result.efficiency), "of what as many dedicated nodes train"),
        (percent(result.coverage), "of idle node-time put to use"),
        (f"{result.finished:,}", _finished_words(comparison, result)),
        (percent(lost_share(result)), "lost to rescales, preemptions and starts"),
        (f"{idle:,.0f}", f"nodes idle on average, of {comparison.nodes:,}"),
    )


def _finished_words(comparison: Comparison, result: ReplayResult) -> str:
    if result.finished > comparison.trainer_count:
        return f"times one of {comparison.trainer_count:,} trainers finished"
    return f"trainers finished, of {comparison.trainer_count:,} submitted"


def percent(share: float | None) -> str:
    """Return a share as a percentage, or a dash where there is none."""
    return UNKNOWN if share is None else per_cent(share, ".1f")


GAP_HEADING = "Optimality gap of the plans (upper bound):"


def gap_lines(gaps: Iterable[tuple[str, Gap | None]]) -> list[str]:
    """Return one line for each named policy that plans by an objective."""
    return [f"{name}: {gap_words(gap)}" for name, gap in gaps if gap is not None]


def gap_words(gap: Gap) -> str:
    """Return *gap* in a few words, and how many plans it was measured on."""
    measured = (
        f"{gap.sampled:,} of {gap.plans:,}"
        if gap.sampled < gap.plans
        else f"all {gap.plans:,}"
    )
    if not gap.most:
        return f"0, {measured} plans proven optimal"
    high = max(gap.high, LEAST_GAP) if gap.high else gap.high  # never reads as 0
    return (
        f"mean {gap_percent(gap.mean)}, nine of ten at most {gap_percent(high)}, "
        f"worst {gap_percent(gap.most)} ({measured} plans)"
    )
