"""A replay's figures as plain values: what ``--json`` and summary.json hold."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from freetrain.replay.result import ReplayResult
    from logs.trace import IdleTrace

PERCENTILES = (5, 25, 50, 75, 95)
VOLATILE = ("solver_s", "wall_s", "peak_rss_bytes")
"""Figures that differ from one run to the next."""
SERIES = ("steps", "completions", "learning", "forecasts")
LOSSES = ("rescale_samples", "preempt_samples", "start_samples")


def steady_record(result: ReplayResult) -> dict[str, object]:
    """Return every figure that the same replay always gives, by name.

    The names are those of ``ReplayResult`` (docs/replay.md), with the completion
    distribution as percentiles: of the time from arrival to finish in seconds,
    and of the slowdown, over the trainers that finished; None where none did.
    Settings of the priority are those that were given, by name.
    """
    plain = {
        name.name: _plain(getattr(result, name.name))
        for name in dataclasses.fields(result)
        if name.name not in (*VOLATILE, *SERIES, "priority_settings", "gap")
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
