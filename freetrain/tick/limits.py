"""From a site's settings, and Slurm's own, to what the broker may do."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from freetrain.broker.limits import Limits, Mode
from freetrain.site.settings import Mode as AskedMode
from slurm.hostlist import expand

if TYPE_CHECKING:
    from collections.abc import Iterable

    from freetrain.site.settings import Site
    from slurm.config import ClusterConfig
    from slurm.records import Partition

_MINUTE_S = 60.0
_HOUR_S = 3_600.0
_TAKEN_AWAY = {"CANCEL", "REQUEUE"}
"""Modes of preemption that free the node. A suspended lease keeps its memory."""


def limits_of(
    site: Site,
    config: ClusterConfig,
    partition: Partition,
    *,
    partitions: Iterable[Partition],
    takes_arrays: bool = True,
) -> Limits:
    """Return what the broker may do.

    Args:
        site: What the site, or its user, has set.
        config: How the cluster is set up.
        partition: Where leases are submitted.
        partitions: All of the cluster's.
        takes_arrays: False once Slurm has refused a job array.
    """
    longest_s = min(site.lease.longest_s, partition.max_time_s)
    most_tasks = max(1, min(site.caps.requests_per_tick, config.max_array_size))
    return Limits(
        mode=mode_of(site, config, partition, partitions=partitions),
        most_leases=site.caps.leases,
        most_new_leases=site.caps.requests_per_tick,
        most_array_tasks=most_tasks if takes_arrays else 1,
        most_calls=site.caps.rpcs_per_tick,
        most_churn=site.caps.churn_per_hour,
        churn_window_s=_HOUR_S,
        least_limit_min=math.ceil(site.lease.shortest_s / _MINUTE_S),
        most_limit_min=max(1, math.floor(longest_s / _MINUTE_S)),
        most_failed_starts=site.starts.pause_after,
        pause_s=site.starts.pause_s,
        most_pause_s=max(_HOUR_S, site.starts.pause_s),
    )


def mode_of(
    site: Site,
    config: ClusterConfig,
    partition: Partition,
    *,
    partitions: Iterable[Partition],
) -> Mode:
    """Return who makes room: Slurm only where it does so for everybody.

    That takes preemption by partition, which frees the nodes, and a lower tier than
    every other partition over the same nodes. What preemption by QOS does cannot be
    seen from here: there the site says so itself.
    """
    if site.lease.mode is not AskedMode.AUTO:
        return Mode(site.lease.mode)
    by_partition = config.preempt_type == "preempt/partition_prio"
    how = partition.preempt_mode or config.preempt_mode
    if not by_partition or not _TAKEN_AWAY & set(how.split(",")):
        return Mode.YIELD
    ours = frozenset(expand(partition.nodes))
    is_last = all(
        other.priority_tier > partition.priority_tier
        for other in partitions
        if other.name != partition.name and not ours.isdisjoint(expand(other.nodes))
    )
    return Mode.PREEMPT if is_last else Mode.YIELD


def margin_s(site: Site, config: ClusterConfig, partition: Partition) -> float:
    """Return how long before its end a hole is left."""
    if site.holes.margin_s is None:
        own_s = config.overrun_s(partition, epilog_s=0.0)
    else:
        own_s = site.holes.margin_s
    return own_s + site.holes.epilog_s


def grace_s(config: ClusterConfig, partition: Partition, mode: Mode) -> float:
    """Return how long a lease that must go has, from the first signal it hears."""
    if mode is Mode.PREEMPT:
        return partition.grace_time_s + config.kill_wait_s
    return config.kill_wait_s
