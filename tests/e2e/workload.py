"""What the others submit: a seeded list of jobs that opens and closes holes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

HOLE_S = 300.0
"""Holes from this length on are worth a lease, and count for coverage."""

_LANES = (3, 2, 2, 1)  # nodes of the jobs that follow each other; eight together
_BUSY_S = (60.0, 400.0)
_SHORT_GAP_S = (60.0, 280.0)
_LONG_GAP_S = (320.0, 900.0)
_BETWEEN_WHOLE_S = (700.0, 1_500.0)  # between two jobs that want every node
_WHOLE_S = (60.0, 150.0)
_OVERASKED = (1.1, 1.8)  # people ask for more time than they need
_MINUTE_S = 60.0


@dataclass(frozen=True, slots=True, order=True)
class Submission:
    """A job of somebody else, as it will be submitted.

    Attributes:
        at_s: When, in seconds after the workload's beginning.
        nodes: Whole nodes.
        run_s: How long it runs.
        limit_min: The time limit it asks for.
    """

    at_s: float
    nodes: int
    run_s: float
    limit_min: int


def make_workload(
    seed: int, *, span_s: float, time_scale: float = 1.0
) -> tuple[Submission, ...]:
    """Return jobs for eight nodes, in the order of their submission.

    Four lanes of jobs take turns with gaps, half of them longer than ``HOLE_S``, and
    now and then a job wants every node: until it starts there are holes whose end
    Slurm knows.

    Args:
        seed: The same seed gives the same jobs.
        span_s: Nothing is submitted from here on.
        time_scale: What all lengths are multiplied by; tests want less than 1.
    """
    random = Random(seed)  # noqa: S311  jobs of a test, no secret
    span_s /= time_scale
    jobs = [job for nodes in _LANES for job in _lane(random, nodes, span_s=span_s)]
    jobs += _whole(random, span_s=span_s)
    return tuple(sorted(_scaled(job, time_scale, random) for job in jobs))


def _lane(
    random: Random, nodes: int, *, span_s: float
) -> Iterator[tuple[float, int, float]]:
    at_s = random.choice((0.0, random.uniform(*_SHORT_GAP_S)))
    while at_s < span_s:
        run_s = random.uniform(*_BUSY_S)
        yield at_s, nodes, run_s
        gap = random.choice((_SHORT_GAP_S, _LONG_GAP_S))
        at_s += run_s + random.uniform(*gap)


def _whole(random: Random, *, span_s: float) -> Iterator[tuple[float, int, float]]:
    at_s = random.uniform(*_BETWEEN_WHOLE_S)
    while at_s < span_s:
        yield at_s, sum(_LANES), random.uniform(*_WHOLE_S)
        at_s += random.uniform(*_BETWEEN_WHOLE_S)


def _scaled(
    job: tuple[float, int, float], time_scale: float, random: Random
) -> Submission:
    at_s, nodes, run_s = job
    asked_s = run_s * time_scale * random.uniform(*_OVERASKED)
    limit_min = max(1, math.ceil(asked_s / _MINUTE_S))
    return Submission(at_s * time_scale, nodes, run_s * time_scale, limit_min)
