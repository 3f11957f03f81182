"""The first half of a tick: what is so, from Slurm, the store and the files."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from freetrain.broker.belief import Belief, Sources, believe, is_plan_known
from freetrain.broker.lease import IntentOutcome, LeaseEnd, LeaseState, job_name
from freetrain.broker.limits import Limits, Mode
from freetrain.config.site import Mode as AskedMode
from freetrain.state.files import AgentState, UnreadableFileError, read_heartbeat
from freetrain.state.tables import (
    Delivery,
    SeenBeat,
    SeenPlans,
    TrainerState,
    deliveries,
    intents,
    leases,
    pace,
    seen_beats,
    seen_plans,
    trainers,
)
from freetrain.tick.page import check_cluster
from freetrain.tick.trainers import Outcome, Standing, read_standing
from slurm.hostlist import expand
from slurm.records import choose_partition
from slurm.snapshot import carry_plans, plans_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from freetrain.broker.lease import Intent, Lease, LeaseKey
    from freetrain.broker.limits import Pace
    from freetrain.config.site import Site
    from freetrain.state.files import Heartbeat, StateDir
    from freetrain.tick.context import Run
    from freetrain.tick.trainers import Learned
    from slurm.config import ClusterConfig
    from slurm.records import JobRecord, Partition
    from slurm.snapshot import Snapshot


# ----------------------------------------------------------------------
# Which agents answer, as far as their heartbeat files tell a tick.

SILENT_S = 20.0
"""An agent that told the same number for so long is not there; it beats each second."""

_GOING = {AgentState.LEAVING, AgentState.ENDED}


@dataclass(frozen=True, slots=True)
class Hearing:
    """What agents tell.

    Attributes:
        beats: The last heartbeat of each running lease that has one.
        seen: What to remember until the next tick.
        silent: Running leases that no generation may be formed of.
        first: Leases that are heard of for the first time.
        absent: Running leases of which no agent was ever heard.
        unheard_s: For how long running leases have told nothing new, or nothing at
            all since they started.
    """

    beats: Mapping[LeaseKey, Heartbeat]
    seen: tuple[SeenBeat, ...]
    silent: frozenset[LeaseKey]
    first: frozenset[LeaseKey]
    absent: frozenset[LeaseKey]
    unheard_s: Mapping[LeaseKey, float]


def hear(
    folder: StateDir,
    leases: Iterable[Lease],
    before: Mapping[LeaseKey, SeenBeat],
    *,
    now_s: float,
) -> Hearing:
    """Return what the agents of running *leases* tell.

    Whether an agent lives is told by its number changing from one tick to a later
    one; until then it is believed. The clocks of two nodes are never compared.

    Raises:
        OSError: The files cannot be read.
    """
    running = {one.key: one for one in leases if one.state is LeaseState.RUNNING}
    told = {key: _beat(folder, key) for key in running}
    beats = {key: beat for key, beat in told.items() if beat is not None}
    seen = {key: _seen(key, beat, before, now_s) for key, beat in beats.items()}
    lost = {key for key, one in seen.items() if now_s - one.since_s >= SILENT_S}
    going = {key for key, beat in beats.items() if beat.state in _GOING}
    absent = told.keys() - beats.keys()
    starts_s = {key: running[key].start_s or now_s for key in absent}
    since_s = {key: one.since_s for key, one in seen.items()} | starts_s
    return Hearing(
        beats=beats,
        seen=tuple(seen.values()),
        silent=frozenset(absent | going | lost),
        first=frozenset(beats.keys() - before.keys()),
        absent=frozenset(absent),
        unheard_s={key: now_s - then_s for key, then_s in since_s.items()},
    )


def _beat(folder: StateDir, key: LeaseKey) -> Heartbeat | None:
    try:
        return read_heartbeat(folder.lease(key).heartbeat)
    except UnreadableFileError:  # no honest agent writes such a thing
        return None


def _seen(
    key: LeaseKey,
    beat: Heartbeat,
    before: Mapping[LeaseKey, SeenBeat],
    now_s: float,
) -> SeenBeat:
    last = before.get(key)
    if last is not None and last.beat == beat.beat and last.since_s <= now_s:
        return last
    return SeenBeat(key, beat.beat, now_s)


# ----------------------------------------------------------------------
# From a site's settings, and Slurm's own, to what the broker may do.

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


# ----------------------------------------------------------------------
# The first half of a tick: what is so, from Slurm, the store and the files.

REMEMBERED_S = 3_600.0
"""Jobs are gone from Slurm long before an hour after their deadline."""

WHERE_NAMED = "under [lease] in freetrain.toml"
"""Where people name the partition that leases go to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """What is so.

    Attributes:
        snapshot: The look, with plans carried where it was torn.
        config: How the cluster is set up.
        partition: Where leases are submitted unless a trainer says otherwise.
        limits: What the broker may do.
        before: Leases as they were believed before this look.
        belief: What is believed now.
        plans: What to remember of backfill's plans.
        is_plan_known: Whether these plans can be trusted.
        pace: What happened lately.
        hearing: What the agents tell.
        trainers: Every trainer that was ever submitted.
        learned: What is known of those that train, or may again, by name.
        deliveries: What was written down of them before, by trainer and submission.
    """

    snapshot: Snapshot
    config: ClusterConfig
    partition: Partition
    limits: Limits
    before: tuple[Lease, ...]
    belief: Belief
    plans: SeenPlans
    is_plan_known: bool
    pace: Pace
    hearing: Hearing
    trainers: tuple[Standing, ...]
    learned: Mapping[str, Learned]
    deliveries: Mapping[tuple[str, float], Delivery]

    @property
    def now_s(self) -> float:
        """When the look was taken, by slurmctld's clock."""
        return self.snapshot.time_s


def observe(run: Run) -> Observed:
    """Return what is so; nothing is changed.

    Raises:
        SlurmError: Slurm did not answer, or not in a way that can be read.
        StoreError: The state cannot be read.
        BadConfigurationError: It is the state of another cluster.
        OSError: The files cannot be read.
    """
    config = run.backend.config()
    last = seen_plans(run.state)
    max_age_s = run.site.holes.plan_age_s
    snapshot = carry_plans(last.plans, run.backend.snapshot(), max_age_s=max_age_s)
    now_s = snapshot.time_s
    since_s = now_s - REMEMBERED_S
    known = intents(run.state, ending_after_s=since_s)
    before = leases(run.state, ending_after_s=since_s)
    partition = choose_partition(
        snapshot.partitions, run.site.lease.partition, where=WHERE_NAMED
    )
    limits = limits_of(
        run.site,
        config,
        partition,
        partitions=snapshot.partitions,
        takes_arrays=not any(map(_refused_array, known)),
    )
    sources = Sources(run.outside.uid, snapshot.jobs, _looked_up(run, known, before))
    belief = believe(before, known, sources, now_s=now_s, limits=limits)
    check_cluster(run.folder.page, config.cluster, belief.leases, now_s=now_s)
    whole_s = last.whole_s if snapshot.is_torn else now_s
    standings = [read_standing(run.folder, row) for row in trainers(run.state)]
    learned = _learned(run, standings, now_s)
    return Observed(
        snapshot=snapshot,
        config=config,
        partition=partition,
        limits=limits,
        before=before,
        belief=belief,
        plans=SeenPlans(plans_of(snapshot), whole_s),
        is_plan_known=is_plan_known(snapshot, whole_s=whole_s, max_age_s=max_age_s),
        pace=pace(run.state, since_s=now_s - limits.churn_window_s),
        hearing=hear(run.folder, belief.leases, seen_beats(run.state), now_s=now_s),
        trainers=tuple(_aimed(one, learned.get(one.row.name)) for one in standings),
        learned=learned,
        deliveries=deliveries(run.state),
    )


def _learned(
    run: Run, standings: list[Standing], now_s: float
) -> Mapping[str, Learned]:
    if not standings:
        return {}
    # Imported here: a tick that has nothing to do must stay cheap.
    from freetrain.tick.trainers import learn  # noqa: PLC0415

    return learn(run, standings, now_s=now_s)


def _aimed(standing: Standing, learned: Learned | None) -> Standing:
    """Return *standing*, finished where its last target has been reached."""
    job = standing.job
    if learned is None or learned.past.final is None or not standing.is_wanted:
        return standing
    metric = "" if job is None else job.measure.metric
    said = f"its final target is reached: {metric} {learned.past.final.value:.6g}"
    return replace(standing, outcome=Outcome(TrainerState.FINISHED, said))


def _refused_array(intent: Intent) -> bool:
    is_refused = intent.outcome is IntentOutcome.REFUSED and intent.tasks > 1
    return is_refused and "array" in intent.detail.lower()


def _looked_up(
    run: Run, known: tuple[Intent, ...], before: tuple[Lease, ...]
) -> tuple[JobRecord, ...]:
    """Return the jobs of all submissions that may still matter, with one command."""
    names = [job_name(uuid) for uuid in _mattering(known, before)]
    return run.backend.find_by_name(*names) if names else ()


def _mattering(known: tuple[Intent, ...], before: tuple[Lease, ...]) -> tuple[str, ...]:
    """Return the uuids whose jobs may have changed since, or may yet turn up.

    A lease that was told to be over stays over; one that merely vanished may not.
    """
    of: dict[str, list[Lease]] = {}
    for lease in before:
        of.setdefault(lease.key.uuid, []).append(lease)
    return tuple(
        intent.uuid
        for intent in known
        if intent.outcome is not IntentOutcome.REFUSED
        and (
            len(of.get(intent.uuid, ())) < intent.tasks
            or any(
                lease.is_live or lease.ended is LeaseEnd.VANISHED
                for lease in of[intent.uuid]
            )
        )
    )
