"""What came of a broker in the loop: harm to others' jobs, and the use of holes."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from freetrain.replay.result import ReplayResult

LONG_S = 600.0
"""Holes of ten minutes and more are counted apart."""


@dataclass(frozen=True, slots=True)
class LoopResult:
    """What came of one policy in the loop.

    Attributes:
        replay: Its figures as a replay of the holes that it met.
    """

    replay: ReplayResult
    holes: HoleFigures
    harm: Harm


@dataclass(frozen=True, slots=True)
class Harm:
    """Start times with us, less start times without us, over the jobs compared.

    Attributes:
        jobs: Jobs compared.
        later: Jobs that started later.
        sooner: Jobs that started sooner: what delays one lets another in.
        mean_s: Mean difference; that of a job that started sooner is negative.
        most_s: Largest difference.
        met: Jobs that were placed on nodes we held.
        waited_mean_s: How long these waited for our leases to go, mean.
        waited_longer: How many waited longer than the notice, or one tick.
        met_later_mean_s: Mean difference of the jobs that met leases.
    """

    jobs: int
    later: int
    sooner: int
    mean_s: float
    median_s: float
    most_s: float
    met: int
    waited_mean_s: float
    waited_median_s: float
    waited_most_s: float
    waited_longer: int
    met_later_mean_s: float
    met_later_most_s: float


def harm_of(
    with_us_s: Mapping[int, float],
    without_us_s: Mapping[int, float],
    waited_s: Mapping[int, float],
    *,
    bound_s: float,
) -> Harm:
    """Compare two runs of the same jobs, with and without FreeTrain.

    Args:
        with_us_s: When each job started, by job.
        without_us_s: The same without FreeTrain; the same jobs.
        waited_s: How long each job that met a lease waited for it to go.
        bound_s: How long a job should wait at most.
    """
    later_s = {job: with_us_s[job] - s for job, s in without_us_s.items()}
    differences = sorted(later_s.values())
    waits_s = list(waited_s.values())
    met_s = [later_s[job] for job in waited_s if job in later_s]
    return Harm(
        jobs=len(differences),
        later=sum(s > 0 for s in differences),
        sooner=sum(s < 0 for s in differences),
        mean_s=_mean(differences),
        median_s=_median(differences),
        most_s=max(differences, default=0.0),
        met=len(waited_s),
        waited_mean_s=_mean(waits_s),
        waited_median_s=_median(waits_s),
        waited_most_s=max(waits_s, default=0.0),
        waited_longer=sum(s > bound_s for s in waits_s),
        met_later_mean_s=_mean(met_s),
        met_later_most_s=max(met_s, default=0.0),
    )


def _mean(values: list[float]) -> float:
    return math.fsum(values) / len(values) if values else 0.0


def _median(values: list[float]) -> float:
    return statistics.median(values) if values else 0.0


@dataclass(frozen=True, slots=True)
class HoleFigures:
    """Holes and their use; docs/notes/replay.md defines each.

    Attributes:
        holes: How many there were.
        node_s: Their node-seconds.
        long_holes: Holes of 600 s and more.
        long_used_node_s: Node-seconds of long holes that a trainer held.
    """

    holes: int
    node_s: float
    long_holes: int
    long_node_s: float
    long_used_node_s: float

    @property
    def long_use(self) -> float | None:
        """The share of long holes that was used; None where there were none."""
        return self.long_used_node_s / self.long_node_s if self.long_node_s else None


class HoleUse:
    """Counts, node by node, how long it is idle and how long a trainer holds it."""

    def __init__(self, nodes: int) -> None:
        self._since_s = np.zeros(nodes)
        self._used_s = np.zeros(nodes)
        self._idle = np.zeros(nodes, np.bool_)
        self._used = np.zeros(nodes, np.bool_)
        self._at_s = 0.0
        self._holes = 0
        self._long_holes = 0
        self._node_s = 0.0
        self._long_node_s = 0.0
        self._long_used_node_s = 0.0

    def until(self, now_s: float) -> None:
        """Count the time until *now_s*."""
        if now_s > self._at_s:
            self._used_s[self._used] += now_s - self._at_s
            self._at_s = now_s

    def moved(self, joined: Sequence[int], left: Sequence[int]) -> None:
        """Close the holes of *left* and open those of *joined*, now."""
        if left:
            self._close(np.asarray(left))
        if joined:
            opened = np.asarray(joined)
            self._since_s[opened] = self._at_s
            self._used_s[opened] = 0.0
            self._idle[opened] = True

    def free(self, nodes: Sequence[int]) -> None:
        """Let all idle nodes but *nodes* be used from now on."""
        self._used = self._idle.copy()
        self._used[np.asarray(nodes, np.intp)] = False

    def held(self, nodes: Sequence[int]) -> None:
        """Let *nodes* be used from now on."""
        self._used[np.asarray(nodes, np.intp)] = True

    def given_up(self, nodes: Sequence[int]) -> None:
        """Let *nodes* be idle and unused from now on."""
        self._used[np.asarray(nodes, np.intp)] = False

    def figures(self, end_s: float) -> HoleFigures:
        """Close every hole at *end_s* and return the sums."""
        self.until(end_s)
        self._close(np.flatnonzero(self._idle))
        return HoleFigures(
            self._holes,
            self._node_s,
            self._long_holes,
            self._long_node_s,
            self._long_used_node_s,
        )

    def _close(self, nodes: NDArray[np.intp]) -> None:
        length_s = self._at_s - self._since_s[nodes]
        is_long = length_s >= LONG_S
        self._holes += int((length_s > 0).sum())
        self._node_s += float(length_s.sum())
        self._long_holes += int(is_long.sum())
        self._long_node_s += float(length_s[is_long].sum())
        self._long_used_node_s += float(self._used_s[nodes][is_long].sum())
        self._idle[nodes] = False
        self._used[nodes] = False
