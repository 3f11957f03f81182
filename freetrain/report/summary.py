"""One log replayed under several policies: its figures as records and as table cells.

``Comparison`` is what every report is made from. Records go to ``--json``,
``summary.json`` and the CSV files; cells and sentences to the screen and the page.
"""

from __future__ import annotations

import csv
import dataclasses
import io
import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from freetrain.lookahead.base import DEFAULT_FORECASTER
from freetrain.planning.settings import RATED_POLICIES
from freetrain.text import LEAST_GAP, MANY, UNKNOWN, gap_percent, per_cent, scaled
from logs.csv_tables import MOST_SINGLE_LINES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from freetrain.lookahead.reliability import (
        AffinityBlock,
        AffinityMap,
        AgePart,
        ForecastRecord,
        ScorePart,
    )
    from freetrain.replay.policies.registry import Gap
    from freetrain.replay.pool import Moves, PoolTimeline
    from freetrain.replay.run import ReplayResult
    from logs.trace import IdleTrace


DEDICATED = "static"
"""The policy that has nodes of its own instead of the log's idle ones."""


@dataclass(frozen=True, slots=True, eq=False)
class Comparison:
    """Several policies' replays of the same holes and trainers.

    Attributes:
        command: The command line that shows the same again.
        log: As the user named it.
        read_as: Kind, size and span of the log, in words.
        log_cautions: What of the log was not used or may mislead, one sentence each.
        figure_cautions: What the figures depend on or are inflated by, one sentence
            each.
        hole_lengths: Length of the part of each hole that lies in the span.
        trainers: Which trainers, in words.
        parallel: How many trainers may run at a time.
        results: One a policy or priority, in the order asked for, at least one.
        lease_gpus: GPUs of a lease, which is a node of the figures; 1 where the log
            counts no GPUs.
        against: The baseline: a policy, or a priority that one of the policies goes
            by, of several the first; None for none.
    """

    command: str
    version: str
    log: str
    read_as: str
    log_cautions: tuple[str, ...]
    figure_cautions: tuple[str, ...]
    nodes: int
    span_s: float
    hole_lengths: HoleLengths
    trainers: str
    trainer_count: int
    parallel: int
    results: tuple[ReplayResult, ...]
    lease_gpus: int = 1
    against: str | None = None

    def name(self, result: ReplayResult) -> str:
        """Return the name of *result* among these results."""
        return name_among(result, self.results)

    @property
    def baseline(self) -> ReplayResult | None:
        """The result that the others are compared with, if any."""
        named = (
            r
            for r in self.results
            if self.against == r.policy
            or (r.policy in RATED_POLICIES and self.against == r.priority)
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
    """Return the name of *result* among *results*: policy, priority, or both.

    The policy if no other result has it; else the priority, with the policy before it
    if several policies are rated by priorities. A policy with another forecaster than
    the default counts as another policy, and the forecaster's name follows it.
    """
    policy = _policy(result)
    if sum(_policy(r) == policy for r in results) == 1:
        return policy
    policies = {_policy(r) for r in results if r.policy in RATED_POLICIES}
    both = f"{policy} {result.priority}"
    return both if len(policies) > 1 else result.priority


def _policy(result: ReplayResult) -> str:
    unusual = result.forecaster not in {None, DEFAULT_FORECASTER}
    return f"{result.policy} {result.forecaster}" if unusual else result.policy


@dataclass(frozen=True, slots=True)
class Origin:
    """The log and the command that forecasts come from, named as in ``Comparison``.

    Attributes:
        report: The file of the report beside the page, if there is one.
    """

    log: str
    read_as: str
    command: str
    version: str
    report: str | None = None


FORECAST_PAGE = "forecast.html"
"""The page's file, beside that of the report."""


# ----------------------------------------------------------------------
# The length of holes


class HoleLengths(NamedTuple):
    """How long holes are, each of one node.

    Attributes:
        lengths_s: Seconds, ascending, each once.
        counts: Holes of each length.
    """

    lengths_s: NDArray[np.float64]
    counts: NDArray[np.int64]

    @property
    def holes(self) -> int:
        """How many holes there are."""
        return int(self.counts.sum())


_MOST_MOVES = 4_000_000
"""Moves of single nodes that are looked at together, in some 200 MB."""


def hole_lengths(timeline: PoolTimeline) -> HoleLengths:
    """Return the length of each hole up to the horizon.

    Holes of a node that touch count as one, as they do for a trainer.
    """
    nodes = len(timeline.node_names)
    moves = int(timeline.joined.counts.sum() + timeline.left.counts.sum())
    step = max(1, nodes * _MOST_MOVES // max(moves, _MOST_MOVES))
    found = [
        _lengths_of(timeline, first, min(first + step, nodes))
        for first in range(0, nodes, step)
    ]
    lengths_s, place = np.unique(
        np.concatenate([part.lengths_s for part in found]), return_inverse=True
    )
    counts = np.zeros(len(lengths_s), np.int64)
    np.add.at(counts, place, np.concatenate([part.counts for part in found]))
    return HoleLengths(lengths_s, counts)


def _lengths_of(timeline: PoolTimeline, first: int, end: int) -> HoleLengths:
    """Return the lengths of the holes of the nodes *first* .. *end* - 1."""
    opened, opens_s = _moves_of(timeline, timeline.joined, first, end)
    closed, closes_s = _moves_of(timeline, timeline.left, first, end)
    # A node's n-th opening and its n-th closing stand at the same place: a hole that
    # is open at the end closes there.
    still_open = np.bincount(opened, minlength=end - first) - np.bincount(
        closed, minlength=end - first
    )
    open_nodes = np.flatnonzero(still_open)
    closed = np.concatenate([closed, open_nodes])
    closes_s = np.append(closes_s, np.full(len(open_nodes), timeline.horizon_s))
    lengths_s = _by_node(closed, closes_s) - _by_node(opened, opens_s)
    return HoleLengths(*np.unique(lengths_s[lengths_s > 0], return_counts=True))


def _moves_of(
    timeline: PoolTimeline, moves: Moves, first: int, end: int
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return nodes that move, counted from *first*, and when, in order of time."""
    events = len(timeline.times_s)
    kept = slice(0, moves.first[events])
    begins = np.clip(moves.node[kept], first, end)
    widths = np.clip(moves.end[kept], first, end) - begins
    before = np.cumsum(widths) - widths
    node = np.repeat(begins - before - first, widths) + np.arange(widths.sum())
    times_s = np.repeat(timeline.times_s, np.diff(moves.first[: events + 1]))
    return node, np.repeat(times_s.clip(max=timeline.horizon_s), widths)


def _by_node(
    node: NDArray[np.int64], times_s: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return *times_s* by node, each node's in the order given."""
    # 16-bit keys make it a radix sort, 7 million of them in a tenth of a second.
    small = len(node) == 0 or node.max() <= np.iinfo(np.uint16).max
    keys = node.astype(np.uint16) if small else node
    return times_s[np.argsort(keys, kind="stable")]


# ----------------------------------------------------------------------
# Figures as plain values

PERCENTILES = (5, 25, 50, 75, 95)

VOLATILE = ("solver_s", "wall_s", "peak_rss_bytes")
"""Figures that differ from one run to the next."""

SERIES = ("steps", "completions", "learning", "forecasts")
LOSSES = ("rescale_samples", "preempt_samples", "start_samples")


def steady_record(result: ReplayResult) -> dict[str, object]:
    """Return every figure that the same replay always gives, by name.

    The names are those of ``ReplayResult`` (docs/notes/replay.md), with the completion
    distribution as percentiles: of the time from arrival to finish in seconds,
    and of the slowdown, over the trainers that finished; None where none did.
    Settings of the priority are those that were given, by name.
    """
    apart = (*VOLATILE, *SERIES, "priority_settings", "followed_s", "gap")
    plain = {
        field.name: _plain(getattr(result, field.name))
        for field in dataclasses.fields(result)
        if field.name not in apart
    }
    own = {
        "priority_settings": dict(result.priority_settings),
        "followed_s": dict(result.followed_s),
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


def lost_per_sample(
    result: ReplayResult, causes: Sequence[str] = LOSSES
) -> float | None:
    """Return samples lost to *causes* over samples trained; None where none was.

    A policy that does nothing loses nothing, and has no figure.
    """
    lost = sum(float(getattr(result, cause)) for cause in causes)
    return lost / result.samples if result.samples > 0 else None


def _plain(value: float | str | None) -> float | str | None:
    """Return *value*, but None for NaN and infinity, which JSON lacks."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def _percentiles(values: Sequence[float]) -> dict[str, float] | None:
    if not values:
        return None
    found = np.percentile(values, PERCENTILES)
    return {f"p{p}": float(v) for p, v in zip(PERCENTILES, found, strict=True)}


def idle_records(trace: IdleTrace) -> Iterator[dict[str, object]]:
    """Yield each interval of *trace*: node, first and last second.

    Those of nodes that are idle together are one record in a log that is also written
    so: the first node, and how many ``nodes``.
    """
    names = trace.node_names
    if trace.holes <= MOST_SINGLE_LINES:
        for node, start_s, end_s in trace.rows():
            yield {"node": names[node], "start_s": start_s, "end_s": end_s}
        return
    for node, start_s, end_s, nodes in zip(
        trace.node.tolist(),
        trace.start_s.tolist(),
        trace.end_s.tolist(),
        trace.widths.tolist(),
        strict=True,
    ):
        own = {"node": names[node], "start_s": start_s, "end_s": end_s}
        yield own | {"nodes": nodes}


def csv_text(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return *rows* under their *columns*; None becomes an empty cell."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(rows)
    return text.getvalue()


# ----------------------------------------------------------------------
# Forecasts and their outcomes as plain values


def forecast_records(result: ReplayResult) -> dict[str, object]:
    """Return *result*'s forecasts for JSON; {} where none were recorded."""
    record = result.forecasts
    return {} if record is None else {"forecasts": _forecasts(record)}


def _forecasts(record: ForecastRecord) -> dict[str, object]:
    return {
        "horizon_s": record.horizon_s,
        "every_s": record.every_s,
        "worst_difference": record.worst,
        "reliability": [_part(tenth) for tenth in record.deciles],
        "by_age": [_age_part(part) for part in record.by_age],
        "affinity": None if record.affinity is None else _map(record.affinity),
        "promises": [asdict(kind) for kind in record.promises],
    }


def _part(part: ScorePart) -> dict[str, object]:
    return {
        "said": part.said,
        "came": part.came,
        "answers": round(part.count),
        "departures": round(part.departures),
    }


def _age_part(part: AgePart) -> dict[str, object]:
    where: dict[str, object] = {
        "from_s": part.from_s,
        "to_s": part.to_s,
        "from_nodes": part.from_nodes,
        "to_nodes": part.to_nodes,
    }
    return where | _part(part.part)


def _map(shown: AffinityMap) -> dict[str, object]:
    return {
        "nodes_left": shown.nodes_left,
        "nodes_shown": sum(map(len, shown.cells)),
        "blocks": [_block(block) for block in shown.blocks],
    }


def _block(block: AffinityBlock) -> dict[str, object]:
    return {
        "count": len(block.nodes),
        "nodes": listed(block.nodes),
        "within": block.within,
        "outside": block.outside,
    }


def listed(nodes: Sequence[str]) -> str:
    """Return *nodes* as Slurm lists them, or one by one: logs may have any names."""
    from slurm.records import collapse  # noqa: PLC0415 - most of it unused

    try:
        return collapse(nodes)
    except ValueError:
        return " ".join(nodes)


def affinity_table(shown: AffinityMap) -> str:
    """Return the map as CSV: a row a cell, a column a cell, nodes as Slurm lists."""
    names = [listed(cell) for cell in shown.cells]
    rows = zip(names, shown.affinity, strict=True)
    return csv_text(("nodes", *names), ((name, *row) for name, row in rows))


# ----------------------------------------------------------------------
# Figures as people read them: the table, the headline, and the plans' gaps

HEADINGS = (
    "policy",
    "samples",
    "efficiency",
    "coverage",
    "finished",
    "lost",
    "preempt",
    "slowdown / 95 %",
)

BOUND = (
    "static is a bound for policies that run as many trainers at a time, and no policy "
    "that can be run: as many nodes as are idle on average, that never leave, and on "
    "which changes cost nothing."
)

WORDS = ((1e12, "trillion"), (1e9, "billion"), (1e6, "million"))

FEW = 100
"""From here on fractions are not shown."""


def table_row(result: ReplayResult, name: str) -> tuple[str, ...]:
    """Return *result*, called *name*, as cells under ``HEADINGS``.

    The bound is called so, as no policy can be had that keeps its nodes.
    """
    slowdowns = [c.slowdown for c in result.completions if c.slowdown is not None]
    return (
        f"{name} (bound)" if result.policy == DEDICATED else name,
        scaled(result.samples),
        percent(result.efficiency),
        percent(result.coverage),
        f"{result.finished:,}",
        percent(lost_per_sample(result)),
        f"{result.preemptions:,}",
        _spread(slowdowns),
    )


def _spread(factors: Sequence[float]) -> str:
    """Return the median and the 95th percentile of *factors*."""
    if not factors:
        return UNKNOWN
    median, high = (
        _times(float(factor)) for factor in np.percentile(factors, (50, 95))
    )
    return f"{median} / {high}"


def _times(factor: float) -> str:
    if factor >= MANY:
        return f"{factor:.1e}"
    return f"{factor:,.0f}" if factor >= FEW else f"{factor:.1f}"


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
        (
            percent(lost_per_sample(result)),
            "more was lost to rescales, preemptions and starts",
        ),
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
