"""What Slurm's settings mean for FreeTrain, and for those it must not disturb.

Pure: settings in, findings out. The figures were measured on 22.05 (docs/doctor.md).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from freetrain.broker.limits import Mode
from freetrain.doctor.finding import bad, ok, warn
from freetrain.tick.limits import mode_of
from freetrain.toml.duration import render_duration
from slurm.partitions import named_or_default

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from freetrain.doctor.finding import Finding
    from freetrain.site.settings import Site
    from slurm.config import ClusterConfig
    from slurm.records import Partition

_LONG_GRACE_S = 300.0
_SMALL_ARRAY = 2
_BOUND_BY_USER = ("bf_max_job_user", "bf_max_job_user_part", "bf_max_job_part")
_FEW_TESTED = 100


def partition_of(site: Site, partitions: Sequence[Partition]) -> Partition | None:
    """Return the partition that leases go to, None where there is no such one."""
    return named_or_default(partitions, site.lease.partition)


def look_at_partition(
    site: Site, partition: Partition | None, partitions: Sequence[Partition]
) -> Finding:
    """Find whether leases have somewhere to go."""
    name = "partition"
    known = ", ".join(sorted(p.name for p in partitions))
    if partition is None:
        what = f"no partition {site.lease.partition!r}"
        if not site.lease.partition:
            what = "no default partition, and none is configured"
        return bad(name, f"{what}; there are {known}", "Set [lease] partition.")
    seen = f"{partition.name}: nodes {partition.nodes}, tier {partition.priority_tier}"
    if not partition.is_up:
        return bad(name, f"{seen}, not up", "Ask its administrators, or name another.")
    if partition.max_time_s < site.lease.shortest_s:
        limit = render_duration(partition.max_time_s)
        advice = "Make [lease] shortest smaller, or name another partition."
        return bad(name, f"{seen}, limit {limit}", advice)
    return ok(name, f"{seen}, up, limit {_limit(partition.max_time_s)}")


def look_at_mode(
    site: Site,
    config: ClusterConfig,
    partition: Partition,
    partitions: Sequence[Partition],
) -> Iterator[Finding]:
    """Find who takes leases away, and what that costs those who need the nodes."""
    mode = mode_of(site, config, partition, partitions=partitions)
    kind = f"{config.preempt_type}, {partition.name} {partition.preempt_mode or '-'}"
    asked = f"[lease] mode = {site.lease.mode}"
    if mode is Mode.PREEMPT:
        yield ok("mode", f"preempt: Slurm takes leases away ({kind}; {asked})")
        yield _look_at_grace(config, partition)
        return
    yield warn(
        "mode",
        f"yield: the broker gives leases up, once a tick ({kind}; {asked})",
        "Others wait up to one tick and a commit for nodes that leases hold. A "
        "partition of lower tier with PreemptMode=CANCEL and a GraceTime takes that "
        "away: see docs/operating.md.",
    )


def _look_at_grace(config: ClusterConfig, partition: Partition) -> Finding:
    grace_s, kill_s = partition.grace_time_s, config.kill_wait_s
    seen = f"GraceTime {grace_s:g} s, KillWait {kill_s:g} s"
    if grace_s == 0:
        return warn(
            "grace time",
            f"{seen}: preempted leases are killed at once",
            "Every preemption loses the work since the last commit. Ask for a "
            "GraceTime of about 30 s.",
        )
    if grace_s > _LONG_GRACE_S:
        return warn(
            "grace time",
            f"{seen}: a program that ignores signals holds nodes that long",
            "Leases end themselves when they have committed; those that hang do not.",
        )
    return ok("grace time", f"{seen}; leases end themselves as soon as they can")


def look_at_endings(site: Site, config: ClusterConfig) -> Finding:
    """Find what the end of a lease costs others: CompleteWait and the epilog."""
    wait_s, epilog_s = config.complete_wait_s, site.holes.epilog_s
    epilog = "an epilog runs" if config.has_epilog else "no epilog"
    seen = f"CompleteWait {wait_s:g} s, {epilog}"
    if wait_s > 0 and config.has_epilog:
        return warn(
            "ends of leases",
            f"{seen}: each end of a lease may stop the schedulers for everybody",
            "A job on idle nodes was seen to start 7.6 s later (epilog 8 s, "
            "CompleteWait 20). Keep [caps] churn_per_hour low, or ask for "
            "CompleteWait=0.",
        )
    if config.has_epilog and epilog_s == 0:
        advice = "Set [holes] epilog to how long it takes, so that leases end earlier."
        return warn("ends of leases", f"{seen} of unknown length", advice)
    return ok("ends of leases", seen)


def look_at_backfill(config: ClusterConfig) -> Iterator[Finding]:
    """Find whether Slurm plans at all, and whether it tells of its plans."""
    if config.scheduler_type != "sched/backfill":
        yield warn(
            "backfill",
            f"{config.scheduler_type}: no job has a planned start",
            "Every idle node looks like a hole without an end. Keep [lease] longest "
            "short.",
        )
        return
    seen = (
        f"every {config.bf_interval_s:g} s, grain {config.bf_resolution_s:g} s, "
        f"window {render_duration(config.bf_window_s)}"
    )
    yield ok("backfill", seen)
    hiding = sorted(_hiding(config))
    if hiding:
        yield warn(
            "hidden plans",
            f"{', '.join(hiding)}: not every job that waits gets a plan",
            "Jobs without one can start in what looks like a hole; leases give way to "
            "them, at the cost of a rescale.",
        )
    else:
        yield ok("hidden plans", "no parameter keeps many jobs from having a plan")


def _hiding(config: ClusterConfig) -> Iterator[str]:
    given = config.scheduler_parameters
    for name in ("bf_min_prio_reserve", "bf_min_age_reserve", *_BOUND_BY_USER):
        if given.get(name, "0") not in {"0", ""}:
            yield f"{name}={given[name]}"
    tested = given.get("bf_max_job_test", "")
    if tested.isdecimal() and int(tested) < _FEW_TESTED:
        yield f"bf_max_job_test={tested}"
    yield from (name for name in ("bf_one_resv_per_job", "defer") if name in given)


def look_at_privacy(config: ClusterConfig) -> Finding:
    """Find whether we see whose jobs wait."""
    if "jobs" in config.private_data:
        return warn(
            "PrivateData",
            f"{','.join(config.private_data)}: others' jobs are hidden from us",
            "Nodes planned for them are holes of unknown length, and in yield mode "
            "nobody hidden can be given way to. Ask for a reader's right, or use "
            "preempt mode.",
        )
    kinds = ",".join(config.private_data) or "none"
    return ok("PrivateData", f"{kinds}: the whole queue is seen")


def look_at_arrays(site: Site, config: ClusterConfig) -> Finding:
    """Find whether leases can be asked for many at a time."""
    most = config.max_array_size
    if most < _SMALL_ARRAY:
        advice = "Each lease is a request of its own; [caps] rpcs_per_tick binds."
        return warn("MaxArraySize", f"{most}: no job arrays", advice)
    if most < site.caps.requests_per_tick:
        seen = f"{most}, below [caps] requests_per_tick = {site.caps.requests_per_tick}"
        return ok("MaxArraySize", f"{seen}: several arrays a tick")
    return ok("MaxArraySize", str(most))


def look_at_overrun(config: ClusterConfig, partition: Partition) -> Finding:
    """Find how long jobs may overrun, which every hole loses at its end."""
    allowed_s = partition.over_time_limit_s
    allowed_s = config.over_time_limit_s if allowed_s is None else allowed_s
    if allowed_s > 0:
        return warn(
            "OverTimeLimit",
            f"{_limit(allowed_s)}: leases may outlive their limit by that",
            "Holes are left that much earlier; a partition's own OverTimeLimit=0 "
            "gives it back.",
        )
    return ok("OverTimeLimit", "0: limits hold")


def look_at_nodes(site: Site, config: ClusterConfig) -> Finding:
    """Find what a lease gets of its node."""
    seen = f"{config.select_type} {config.select_type_parameters}"
    if site.lease.exclusive:
        return ok("whole nodes", f"{seen}; leases ask for --exclusive --mem=0")
    if site.lease.cpus is None:
        return warn(
            "whole nodes",
            f"{seen}; leases share nodes and name no CPUs",
            "A lease then has one CPU. Set [lease] cpus and memory, or exclusive.",
        )
    return ok("whole nodes", f"{seen}; leases ask for {site.lease.cpus} CPUs")


def look_at_priority(
    site: Site, config: ClusterConfig, partition: Partition
) -> Finding:
    """Find whether leases that wait stand behind everybody else."""
    nice, tier = site.lease.nice, partition.priority_tier
    seen = f"{config.priority_type}, nice {nice:,}, tier {tier}"
    if config.priority_type == "priority/multifactor" and nice < _OUTWEIGHING:
        return warn(
            "priority",
            f"{seen}: multifactor priorities can be larger than that",
            "Set [lease] nice to 1,000,000, or give FreeTrain a partition of its own "
            "with the lowest PriorityTier.",
        )
    return ok("priority", f"{seen}: leases that wait stand behind others")


_OUTWEIGHING = 100_000


def _limit(seconds: float) -> str:
    return "none" if math.isinf(seconds) else render_duration(seconds)
