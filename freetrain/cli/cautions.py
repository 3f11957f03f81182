"""What a reader should know before believing a replay's figures."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from freetrain.planning.settings import HORIZON_S, RATED_POLICIES
from freetrain.priority.base import Basis
from freetrain.priority.registry import priority_named
from freetrain.replay.run import with_costs
from freetrain.report.comparison import name_among, percent
from freetrain.text import counted, render_duration

if TYPE_CHECKING:
    from collections.abc import Sequence

    from freetrain.replay.result import ReplayResult
    from freetrain.replay.settings import ReplaySettings
    from freetrain.replay.timeline import PoolTimeline
    from freetrain.replay.trainers import TrainerSpec

HALF = 0.5
"""With this share of the nodes idle, something keeps the machine from working."""

WORTH_TELLING = 0.05
"""Share of the idle node-time, or of the span, from which on it is told."""


def cautions(timeline: PoolTimeline) -> tuple[str, ...]:
    """Return what in the holes of *timeline* inflates figures, one sentence each."""
    change = np.diff(timeline.joined.first) - np.diff(timeline.left.first)
    idle = np.cumsum(change)[: len(timeline.times_s)]
    until_s = np.append(timeline.times_s, timeline.horizon_s)
    lasts_s = np.diff(until_s.clip(max=timeline.horizon_s))
    low = idle >= HALF * len(timeline.node_names)
    low_s = float(lasts_s[low].sum())
    node_s = idle * lasts_s
    every_s = float(node_s.sum())
    in_low = float(node_s[low].sum()) / every_s if every_s else 0.0
    said = [_without_a_log(timeline)]
    if in_low >= WORTH_TELLING:
        said.append(
            f"Half of the nodes or more were idle for "
            f"{percent(low_s / timeline.horizon_s)} of the time, which holds "
            f"{percent(in_low)} of the idle node-time, as in outages, drains and at "
            f"a log's edges."
        )
    return tuple(filter(None, said))


def ran_out(results: Sequence[ReplayResult], trainers: int, span_s: float) -> str:
    """Return which of *results* finished all *trainers* before the span was over."""
    early = [
        f"{name_among(result, results)} {render_duration(result.end_s)}"
        for result in results
        if result.finished == trainers and result.end_s < span_s
    ]
    if not early:
        return ""
    return (
        f"All trainers were done before the end, after: {', '.join(early)}. "
        f"--requeue keeps them coming."
    )


def nothing_to_go_by(
    results: Sequence[ReplayResult], trainers: Sequence[TrainerSpec]
) -> tuple[str, ...]:
    """Return which priorities among *results* look at what no trainer has."""
    asked = {one.priority for one in results if one.policy in RATED_POLICIES}
    by_losses = {n for n in asked if priority_named(n).basis is Basis.LOSSES}
    said = []
    if by_losses and all(one.quality is None for one in trainers):
        names = ", ".join(sorted(by_losses))
        said.append(f"No trainer tells a loss, which is what {names} would go by.")
    if "deadline" in asked and all(one.deadline_s is None for one in trainers):
        said.append("No trainer has a deadline, which is what deadline would go by.")
    return tuple(said)


def too_dear_to_start(
    results: Sequence[ReplayResult],
    trainers: Sequence[TrainerSpec],
    settings: ReplaySettings,
) -> tuple[str, ...]:
    """Return which policies among *results* never start some of *trainers*.

    Starting is weighed against what is gained within the look-ahead.
    """
    starts_s = [with_costs(one, settings).costs.start_s for one in trainers]
    reach_s = {
        "freetrain": (settings.t_fwd_s, "--t-fwd"),
        "lookahead": (HORIZON_S, "its horizon"),
    }
    said = []
    for name in dict.fromkeys(one.policy for one in results if one.policy in reach_s):
        t_fwd_s, called = reach_s[name]
        dear = sum(start_s >= t_fwd_s for start_s in starts_s)
        if dear:
            said.append(
                f"Starting takes {dear:,} of {counted(len(trainers), 'trainer')} "
                f"{render_duration(t_fwd_s)} ({called}) or longer, in which {name} "
                f"counts gains: it never starts these."
            )
    return tuple(said)


def _without_a_log(timeline: PoolTimeline) -> str:
    """Return how much of the span lies before the first hole or behind the last."""
    span_s, last_s = timeline.horizon_s, float(timeline.times_s[-1])
    if span_s - last_s >= WORTH_TELLING * span_s:
        behind = render_duration(span_s - last_s)
        return f"The log ends {behind} before the replay: nothing is idle from there."
    starts_idle = timeline.joined.first[1] > 0
    first_s = 0.0 if starts_idle else float(timeline.times_s[1])
    if first_s >= WORTH_TELLING * span_s:
        return (
            f"Nothing is idle in the first {render_duration(first_s)}: "
            f"--start can leave {first_s:.15g} s out."
        )
    return ""
