"""Checks of Slurm: its programs, what it answers, how it is set up, what it allows."""

from __future__ import annotations

import math
import shlex
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from freetrain.broker.limits import Mode
from freetrain.text import render_duration
from freetrain.tick.environment import PYSLURM
from freetrain.tick.observe import mode_of
from slurm.batch import LeaseRequest, gres_argument, sbatch_argv
from slurm.errors import (
    SlurmError,
    SlurmRefusedError,
)
from slurm.json import JSON
from slurm.pyslurm import find_pyslurm
from slurm.records import (
    Requirement,
    leaf_by_node,
    may_have_leaves,
    must_have_leaves,
    named_or_default,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from freetrain.config.site import Site
    from slurm.holes import Snapshot
    from slurm.records import ClusterConfig, Partition
from freetrain.doctor.findings import (
    UNAVAILABLE,
    Finding,
    Subject,
    bad,
    ok,
    skipped,
    warn,
)

NEEDED = ("sbatch", "scancel", "scontrol", "sdiag", "sinfo", "squeue", "srun")


_TIMEOUT_S = 60.0
_SKEW_S = 5.0
_ANSWER_CHARACTERS = 200


@dataclass(frozen=True, slots=True)
class Observation:
    """What Slurm answered.

    Attributes:
        config: Its settings.
        snapshot: Queue, nodes and plan at one moment.
        partition: Where leases go, None where there is no such one.
    """

    config: ClusterConfig
    snapshot: Snapshot
    partition: Partition | None


def look_at_programs(subject: Subject) -> Iterator[Finding]:
    """Find Slurm's programs, their release, and who asks them."""
    missing = [name for name in NEEDED if subject.programs.find(name) is None]
    if missing:
        yield bad(
            "Slurm programs",
            f"not on the PATH: {', '.join(missing)}",
            "Load Slurm's module, or work on a login node; `freetrain demo` needs "
            "none.",
            exit_code=UNAVAILABLE,
        )
        return
    release = subject.backend.release()
    found = subject.programs.find("sbatch")
    yield ok("Slurm programs", f"Slurm {release} in {found.parent if found else '?'}")
    is_allowed = subject.environ.get(PYSLURM) != "off"
    module, reason = find_pyslurm(release, is_allowed=is_allowed)
    name = "command line" if module is None else "pyslurm"
    yield ok("back end", f"{name}: {reason}")


def has_slurm(subject: Subject) -> bool:
    """Tell whether there is a Slurm to ask."""
    return all(subject.programs.find(name) is not None for name in NEEDED)


def observe(subject: Subject) -> Observation:
    """Return what Slurm tells; seven commands.

    Raises:
        SlurmError: It does not.
    """
    config = subject.backend.config()
    snapshot = subject.backend.snapshot()
    partition = partition_of(subject.site, snapshot.partitions)
    return Observation(config, snapshot, partition)


def look_at_cluster(subject: Subject, seen: Observation) -> Iterator[Finding]:
    """Find what Slurm's settings mean for us and for others."""
    site, config, partitions = subject.site, seen.config, seen.snapshot.partitions
    yield _look_at_release(subject, config)
    yield look_at_partition(site, seen.partition, partitions)
    yield from look_at_backfill(config)
    yield look_at_privacy(config)
    yield look_at_arrays(site, config)
    yield look_at_endings(site, config)
    yield look_at_nodes(site, config)
    if seen.partition is not None:
        yield from look_at_mode(site, config, seen.partition, partitions)
        yield look_at_overrun(config, seen.partition)
        yield look_at_priority(site, config, seen.partition)
    yield look_at_topology(subject, config)
    yield look_at_clock(seen.snapshot.time_s, subject.now_s())


def _look_at_release(subject: Subject, config: ClusterConfig) -> Finding:
    programs = subject.backend.release()
    if programs.series != config.release.series:
        return warn(
            "slurmctld",
            f"{config.release}, and the programs are {programs}",
            "Slurm allows two releases' difference; ask which the site means to use.",
        )
    return ok("slurmctld", f"{config.release}, cluster {config.cluster}")


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
        "away: see docs/guide/operating.md.",
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


def look_at_topology(subject: Subject, config: ClusterConfig) -> Finding:
    """Find whether Slurm tells which nodes are close; only lookahead goes by that."""
    name, none = "topology", "no leaf switches or blocks are told, none are needed"
    if not may_have_leaves(config):
        return ok(name, none)
    try:
        leaves = subject.backend.topology()
    except SlurmError as error:
        return warn(name, str(error)[:_ANSWER_CHARACTERS], "Nothing: try again.")
    if leaves:
        nodes = len(leaf_by_node(leaves))
        seen = f"{len(leaves)} leaf switches or blocks, of {nodes} nodes in all"
        return ok(name, f'{seen}; the policy "lookahead" goes by them')
    if must_have_leaves(config):
        seen = f"{config.topology_plugin} is configured, and no leaf of it is told"
        return warn(name, seen, "Ask the administrators; only forecasts miss it.")
    return ok(name, none)


def look_at_clock(slurm_s: float, here_s: float) -> Finding:
    """Find whether slurmctld's clock and this host's agree."""
    apart_s = here_s - slurm_s
    seen = f"this host and slurmctld are {abs(apart_s):.0f} s apart"
    if abs(apart_s) > _SKEW_S:
        advice = "Deadlines are counted by slurmctld's clock. Ask for NTP on both."
        return warn("clock of slurmctld", seen, advice)
    return ok("clock of slurmctld", seen)


def look_at_json(subject: Subject) -> Finding:
    """Find whether Slurm's JSON can be read too; the text is what is used."""
    question = JSON.partitions
    try:
        said = subject.runner.run(question.argv, timeout_s=_TIMEOUT_S)
        count = len(question.parse(said))
    except SlurmRefusedError:
        return ok("JSON", "scontrol knows no --json (before 23.02); text is used")
    except SlurmError as error:
        return warn(
            "JSON",
            f"cannot be read, and is not needed: {error}"[:_ANSWER_CHARACTERS],
            f"Nothing: the text is used. What `{shlex.join(question.argv)}` prints, "
            f"attached to a bug report, helps us.",
        )
    return ok("JSON", f"can be read too ({count} partitions); text is used")


def look_at_rights(subject: Subject, seen: Observation) -> Iterator[Finding]:
    """Find whether we may submit, without doing so: ``sbatch --test-only``, once.

    It takes slurmctld's write locks while it searches for nodes, as a submission
    does.
    """
    name = "right to submit"
    if seen.partition is None:
        yield skipped(name, "there is no partition to submit to")
        return
    with _script() as script:
        request = lease_request(
            subject.site,
            seen.partition.name,
            name="freetrain-doctor",
            script=str(script),
        )
        program, *options = sbatch_argv(request)
        try:
            subject.runner.run([program, "--test-only", *options], timeout_s=_TIMEOUT_S)
        except SlurmRefusedError as error:
            said = " ".join(error.said.split())[:_ANSWER_CHARACTERS]
            advice = "Set [lease] partition, account and qos to what you may use."
            yield bad(name, f"Slurm refuses: {said or error}", advice)
            return
    yield ok(name, "sbatch --test-only accepts a lease (asked once)")


@contextmanager
def _script() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="freetrain-doctor-") as folder:
        script = Path(folder) / "lease"
        script.write_text("#!/bin/sh\nexit 0\n", encoding="ascii")
        yield script


LIMIT_MIN = 1


def lease_request(
    site: Site, partition: str, *, name: str, script: str
) -> LeaseRequest:
    """Return the request for one node of *partition* and one minute.

    Args:
        site: Says what leases ask for.
        partition: Where.
        name: Name of the job.
        script: Absolute path of the batch script.
    """
    lease = site.lease
    return LeaseRequest(
        name=name,
        comment="one-step run of freetrain doctor",
        partition=partition,
        limit_min=LIMIT_MIN,
        nice=lease.nice,
        script=script,
        exclusive=lease.exclusive,
        memory_mib=lease.memory_mib or 0,
        cpus=lease.cpus or 0,
        qos=lease.qos,
        account=lease.account,
        features="&".join(lease.features),
        gres=",".join(gres_argument(gres) for gres in lease.gres),
    )


def requirement(site: Site, partition: str) -> Requirement:
    """Return what such a job asks of its node."""
    lease = site.lease
    return Requirement(
        partition=partition,
        features=frozenset(lease.features),
        gres=lease.gres,
        memory_mib=lease.memory_mib or 0,
        cpus=lease.cpus or 0,
    )
