"""What a job looks like: its size, its run time, its time limit, its user."""

from __future__ import annotations

import math
from bisect import bisect_right
from itertools import accumulate
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from logs.generate.draws import Draws
    from logs.generate.model import JobClass, WorkloadModel


def draw_nodes(draws: Draws, jobs: JobClass, machine_nodes: int) -> int:
    """Draw a job's size: 1 to *machine_nodes* whole nodes.

    A job is serial, or its log2 size comes from a two-stage uniform distribution;
    most sizes are then rounded to a power of two, the others to a whole node.
    """
    high = math.log2(machine_nodes) - jobs.high_below_machine_log2
    if draws.uniform() < jobs.serial_share or high < jobs.low_log2_nodes:
        return 1
    log2_nodes = draw_two_stage(draws, jobs, high)
    if draws.uniform() < jobs.power_share:
        largest_power = machine_nodes.bit_length() - 1
        return int(math.exp2(min(math.floor(log2_nodes + 0.5), largest_power)))
    return min(math.floor(math.exp2(log2_nodes) + 0.5), machine_nodes)


def draw_two_stage(draws: Draws, jobs: JobClass, high: float) -> float:
    """Draw from two uniform stages that meet at ``two_stage_middle``."""
    middle = two_stage_middle(jobs, high)
    if draws.uniform() < jobs.low_stage_share:
        return jobs.low_log2_nodes + draws.uniform() * (middle - jobs.low_log2_nodes)
    return middle + draws.uniform() * (high - middle)


def two_stage_middle(jobs: JobClass, high: float) -> float:
    """Return the log2 size where the stages meet.

    On a machine so small that it would lie below the smallest parallel job (under
    ten nodes), it is half-way between the smallest and the largest.
    """
    middle = high - jobs.middle_below_high_log2
    if middle >= jobs.low_log2_nodes:
        return middle
    return (jobs.low_log2_nodes + high) / 2


def draw_run_s(
    draws: Draws, jobs: JobClass, nodes: int, *, longest_log_run: float
) -> int:
    """Draw the run time of a job of *nodes* nodes, in whole seconds, 1 or more.

    The natural logarithm is hyper-gamma: short or long, and the larger the job,
    the more likely long. A time beyond the longest is drawn again, both choices.
    """
    share = short_share(jobs, nodes)
    while True:
        if draws.uniform() < share:
            log_s = draws.gamma(jobs.short_shape, jobs.short_scale)
        else:
            log_s = draws.gamma(jobs.long_shape, jobs.long_scale)
        if log_s <= longest_log_run:
            return max(1, math.floor(math.exp(log_s) + 0.5))


def short_share(jobs: JobClass, nodes: int) -> float:
    """Return the share of short jobs among those of *nodes* nodes, 0 to 1."""
    share = jobs.short_share_per_node * nodes + jobs.short_share_at_0
    return min(1.0, max(0.0, share))


def draw_limit_s(draws: Draws, model: WorkloadModel, run_s: int) -> int:
    """Draw the time limit that a job of *run_s* seconds asks for.

    One of the popular limits that are long enough, by popularity and closeness.
    """
    enough = [(limit, weight) for limit, weight in model.limits if limit >= run_s]
    weights = [
        weight * (run_s / limit_s) ** model.closeness for limit_s, weight in enough
    ]
    return enough[draw_index(draws, list(accumulate(weights)))][0]


def user_weights(users: int) -> list[float]:
    """Return the cumulative weights of users, the busiest first."""
    return list(accumulate(1.0 / rank for rank in range(1, users + 1)))


def draw_index(draws: Draws, cumulative: Sequence[float]) -> int:
    """Draw an index with probability by *cumulative* weights."""
    i = bisect_right(cumulative, draws.uniform() * cumulative[-1])
    return min(i, len(cumulative) - 1)
