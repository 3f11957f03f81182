"""Where the search starts from: the published planner's counts, asked for once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from freetrain.replay.policies.planning import counts_of
from milp.planner import Outcome
from milp.problem import NodeClass, Problem

if TYPE_CHECKING:
    from collections.abc import Sequence

    from freetrain.replay.policies.lookahead_holders import Seen
    from freetrain.replay.policies.planning import MeasuredPlanner
    from milp.planner import Answer

_MOST_KNOWN = 10_000
"""A few hundred bytes each."""


class Starts:
    """Asks the published planner for counts, unless it proved the same before.

    It counts nodes and does not tell them apart, so that what it answers follows from
    the size of the pool and from who holds how many: on two days of Summit the same
    at one event of eight with 10 trainers at a time, at one of ten with 40. In another
    order it may choose another of several best plans.

    Args:
        published: The published planner.
    """

    def __init__(self, published: MeasuredPlanner) -> None:
        self._published = published
        self._known: dict[tuple[float, ...], Sequence[int]] = {}

    def counts(
        self, seen: Sequence[Seen], idle_nodes: int, t_fwd_s: float
    ) -> Sequence[int]:
        """Return the published planner's counts of *seen*, in their order."""
        asked = (t_fwd_s, idle_nodes, *[one.kind for one in seen])
        known = self._known.get(asked)
        if known is not None:
            return known
        answer = self._ask(seen, idle_nodes, t_fwd_s)
        counts = counts_of(answer)
        # What a solver was stopped at may be better the next time.
        if answer.outcome is Outcome.PROVEN:
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            self._known[asked] = counts
        return counts

    def _ask(self, seen: Sequence[Seen], idle_nodes: int, t_fwd_s: float) -> Answer:
        classes = (NodeClass("idle", idle_nodes),)
        states = tuple([one.state for one in seen])
        return self._published.answer(Problem(classes, states, t_fwd_s))
