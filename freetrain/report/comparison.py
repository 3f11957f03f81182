"""One log replayed under several policies: what every report is made from."""

from __future__ import annotations

import csv
import dataclasses
import io
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from freetrain.lookahead.registry import DEFAULT_FORECASTER
from freetrain.planning.settings import RATED_POLICIES
from freetrain.text import LEAST_GAP, gap_percent, per_cent

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from freetrain.replay.result import Gap, ReplayResult
    from freetrain.replay.timeline import PoolTimeline
    from logs.trace import IdleTrace


# ----------------------------------------------------------------------
# One log replayed under several policies: what every report is made from.

DEDICATED = "static"
"""The policy whose nodes are not the log's idle ones but as many of its own."""


@dataclass(frozen=True, slots=True, eq=False)
class Comparison:
    """Several policies' replays of the same holes and trainers.

    Attributes:
        command: The command line that shows the same again.
        version: FreeTrain's version.
        log: The log, as the user named it.
        read_as: What was read, in words: kind, size, span.
        left_out: What was not used of it, one sentence each.
        cautions: What inflates the figures, one sentence each.
        nodes: Nodes that take part.
        span_s: Seconds replayed.
        hole_lengths_s: Length of each hole in the span, float64, as far as it
            lies in the span.
        trainers: Which trainers, in words.
        trainer_count: How many there are.
        parallel: How many may run at a time.
        results: One a policy or priority, in the order asked for, at least one.
        against: Which of them the others are held against: a policy, or a priority
            that one of the policies goes by, of several the first; None for none.
    """

    command: str
    version: str
    log: str
    read_as: str
    left_out: tuple[str, ...]
    cautions: tuple[str, ...]
    nodes: int
    span_s: float
    hole_lengths_s: NDArray[np.float64]
    trainers: str
    trainer_count: int
    parallel: int
    results: tuple[ReplayResult, ...]
    against: str | None = None

    def name(self, result: ReplayResult) -> str:
        """Return what to call *result*."""
        return name_among(result, self.results)

    @property
    def baseline(self) -> ReplayResult | None:
        """The result that the others are held against, if any."""
        named = (
            one
            for one in self.results
            if self.against == one.policy
            or (one.policy in RATED_POLICIES and self.against == one.priority)
        )
        return next(named, None)

    @property
    def on_holes(self) -> tuple[ReplayResult, ...]:
        """The results of policies that trained in the log's holes."""
        return tuple(r for r in self.results if r.policy != DEDICATED)

    @property
    def longest(self) -> ReplayResult:
        """The result that follows the log furthest: others ran out of trainers."""
        return max(self.on_holes or self.results, key=lambda r: r.end_s)

    @property
    def shown_s(self) -> float:
        """Seconds from the start that drawings over time can show, above 0."""
        return min(self.span_s, self.longest.end_s) or self.span_s


def name_among(result: ReplayResult, results: Sequence[ReplayResult]) -> str:
    """Return what to call *result*: its policy, its priority, or both.

    The policy where no other result has it; else the priority, with the policy before
    it where several policies go by that. Behind the policy its forecaster, unless that
    is the usual one: the same policy by another forecaster counts as another one.
    """
    policy = _policy(result)
    if sum(_policy(one) == policy for one in results) == 1:
        return policy
    policies = {_policy(one) for one in results if one.policy in RATED_POLICIES}
    both = f"{policy} {result.priority}"
    return both if len(policies) > 1 else result.priority


def _policy(result: ReplayResult) -> str:
    unusual = result.forecaster not in {None, DEFAULT_FORECASTER}
    return f"{result.policy} {result.forecaster}" if unusual else result.policy


def hole_lengths_s(timeline: PoolTimeline) -> NDArray[np.float64]:
    """Return the length of each hole up to the horizon, in seconds, unordered.

    Holes of a node that touch count as one, as they do for a trainer.
    """
    opens_s = _times_by_node(timeline, leaving=False)
    closes_s = _times_by_node(timeline, leaving=True)
    lengths_s = closes_s - opens_s
    return lengths_s[lengths_s > 0]


def _times_by_node(timeline: PoolTimeline, *, leaving: bool) -> NDArray[np.float64]:
    """Return when holes open or close, by node, then time, up to the horizon.

    A node's n-th opening and its n-th closing stand at the same place: a hole
    that is open at the end closes there.
    """
    events = len(timeline.times_s)
    joined = timeline.joined.node[: timeline.joined.first[events]]
    moves = timeline.left if leaving else timeline.joined
    moved = moves.node[: moves.first[events]]
    times_s = np.repeat(timeline.times_s, np.diff(moves.first[: events + 1]))
    if leaving:
        nodes = len(timeline.node_names)
        still_open = np.bincount(joined, minlength=nodes) - np.bincount(
            moved, minlength=nodes
        )
        open_nodes = np.flatnonzero(still_open)
        moved = np.concatenate([moved, open_nodes])
        times_s = np.append(times_s, np.full(len(open_nodes), timeline.horizon_s))
    # Moves come by event, so ordering by node alone keeps each node's in time;
    # 16-bit keys make that a radix sort, 7 million of them in a tenth of a second.
    small = len(timeline.node_names) <= np.iinfo(np.uint16).max
    keys = moved.astype(np.uint16 if small else np.int64)
    order = np.argsort(keys, kind="stable")
    return times_s[order].clip(max=timeline.horizon_s)


# ----------------------------------------------------------------------
# Tables as CSV.


def csv_text(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return *rows* under their *columns*; None becomes an empty cell."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(rows)
    return text.getvalue()


# ----------------------------------------------------------------------
# How far plans were from the best there can be, in words.

GAPS = "How far plans were below the best there can be, at most, by what they go by:"


def gap_lines(found: Iterable[tuple[str, Gap | None]]) -> Iterator[str]:
    """Yield one sentence for each name that planned by an objective."""
    for name, gap in found:
        if gap is not None:
            yield f"{name}: {gap_words(gap)}"


def gap_words(gap: Gap) -> str:
    """Return *gap* in a few words, and how many plans it is of."""
    some = (
        f"{gap.sampled:,} of {gap.plans:,}"
        if gap.sampled < gap.plans
        else f"all {gap.plans:,}"
    )
    if not gap.most:
        return f"proven the best ({some})"
    return (
        f"mean {gap_percent(gap.mean)}, nine of ten within {_within(gap.high)}, "
        f"worst {gap_percent(gap.most)} ({some})"
    )


def _within(gap: float) -> str:
    """Return *gap* as a bound; of one that only would read as 0 a larger one."""
    return gap_percent(max(gap, LEAST_GAP) if gap else gap)


# ----------------------------------------------------------------------
# A replay's figures as plain values: what ``--json`` and summary.json hold.

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


# ----------------------------------------------------------------------
# Figures as people read them: the comparison's table and its headline.

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
SCALES = ((1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
WORDS = ((1e12, "trillion"), (1e9, "billion"), (1e6, "million"))
UNKNOWN = "-"
MINUTE_S = 60.0
FEW = 100
"""From here on fractions are not shown."""
MANY = 1e6
"""From here on only the first digits are, so that a table keeps its width."""


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
    """Return the figures that matter most: what is shown, and what it means."""
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


def scaled(value: float, *, scales: Sequence[tuple[float, str]] = SCALES) -> str:
    """Return *value* with three or more digits and its scale, as in ``89.58 G``."""
    if abs(value) >= MANY * scales[0][0]:
        return f"{value:.2e}"
    for size, scale in scales:
        if abs(value) >= size:
            return f"{value / size:,.2f} {scale}"
    return f"{value:,.0f}"


def percent(share: float | None) -> str:
    """Return a share as a percentage, or a dash where there is none."""
    return UNKNOWN if share is None else per_cent(share, ".1f")
