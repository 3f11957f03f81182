"""How much of what the others left idle was used for training."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.e2e.record import busy

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tests.e2e.record import JobSeen, Run, Span


@dataclass(frozen=True, slots=True)
class Coverage:
    """Node-seconds in holes of a certain length and more.

    Attributes:
        idle_s: Node-seconds that no job of others held.
        trained_s: Those of them in which a world trained there.
    """

    idle_s: float
    trained_s: float

    @property
    def share(self) -> float:
        """The share that trained; 0 where nothing was idle."""
        return self.trained_s / self.idle_s if self.idle_s else 0.0


def coverage(
    run: Run,
    trained: Mapping[str, Sequence[Span]],
    *,
    nodes: Iterable[str],
    shortest_s: float,
) -> Coverage:
    """Return what of *run*'s idle node-time did training.

    Args:
        run: What the others did.
        trained: By node, when worlds trained there.
        nodes: All nodes of the cluster.
        shortest_s: Shorter holes do not count. A hole is as long as it turned out,
            cut off where the run begins and ends.
    """
    idle_s = trained_s = 0.0
    for node in nodes:
        for hole in holes(run.others, node, within=(run.origin_s, run.end_s)):
            if hole[1] - hole[0] >= shortest_s:
                idle_s += hole[1] - hole[0]
                trained_s += _within(trained.get(node, ()), hole)
    return Coverage(idle_s, trained_s)


def holes(others: Iterable[JobSeen], node: str, *, within: Span) -> list[Span]:
    """Return when nobody of *others* held *node*."""
    first_s, last_s = within
    found = []
    at_s = first_s
    for start_s, end_s in busy(others, node, until_s=last_s):
        if start_s > at_s:
            found.append((at_s, min(start_s, last_s)))
        at_s = max(at_s, end_s)
    if at_s < last_s:
        found.append((at_s, last_s))
    return found


def _within(spans: Iterable[Span], hole: Span) -> float:
    """Return how much of *hole* is in *spans*, none of it counted twice."""
    total_s, at_s = 0.0, hole[0]
    for start_s, end_s in sorted(spans):
        begins_s = max(start_s, at_s)
        ends_s = min(end_s, hole[1])
        if ends_s > begins_s:
            total_s += ends_s - begins_s
            at_s = ends_s
    return total_s
