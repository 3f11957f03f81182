"""One log replayed under several policies: what every report is made from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from freetrain.lookahead.registry import DEFAULT_FORECASTER
from freetrain.planning.settings import RATED_POLICIES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from freetrain.replay.result import ReplayResult
    from freetrain.replay.timeline import PoolTimeline


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
        hole_lengths_s: Length of the part of each hole that lies in the span.
        trainers: Which trainers, in words.
        parallel: How many trainers may run at a time.
        results: One a policy or priority, in the order asked for, at least one.
        against: The baseline: a policy, or a priority that one of the policies goes
            by, of several the first; None for none.
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
        """Return the name of *result* among these results."""
        return name_among(result, self.results)

    @property
    def baseline(self) -> ReplayResult | None:
        """The result that the others are held against, if any."""
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
    """Return what to call *result*: its policy, its priority, or both.

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
