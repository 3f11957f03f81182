"""What a tick observes: leases, agents and trainers, by Slurm, the store and files.

``observe`` changes nothing. By the snapshot with which room was made it settles which
leases exist (``broker.belief``); then it reads the agents' heartbeats and the trainers'
files.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from freetrain.broker.belief import (
    Belief,
    Sources,
    adopted_intents,
    believe,
    is_adoptable,
    is_plan_known,
)
from freetrain.broker.job_limits import is_refused_for_limit
from freetrain.broker.lease import IntentState, LeaseEnd, LeaseState, job_name
from freetrain.state.files import AgentState, UnreadableFileError, read_heartbeat
from freetrain.state.tables import (
    Delivery,
    SeenBackfillPlans,
    SeenHeartbeat,
    TickCounter,
    call_memory,
    counters,
    deliveries,
    intents,
    leases,
    pace,
    seen_backfill_plans,
    seen_heartbeats,
    trainers,
)
from freetrain.tick.leases import limits_of, shape_of, tag_of
from freetrain.tick.room import with_room_made
from slurm.holes import carry_plans, plans_of
from slurm.records import choose_partition

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Mapping

    from freetrain.broker.lease import Intent, Lease, LeaseKey
    from freetrain.broker.limits import Limits, Pace
    from freetrain.broker.reasons import EndReason
    from freetrain.broker.sharing import CallMemory
    from freetrain.config.site import Site
    from freetrain.state.files import Heartbeat, StateDir
    from freetrain.tick.environment import TickContext
    from freetrain.tick.room import Room
    from freetrain.tick.trainers import TickTrainer, TrainerProgress
    from slurm.holes import Snapshot
    from slurm.records import ClusterConfig, JobRecord, Partition, Requirement


REMEMBERED_S = 3_600.0
"""Jobs are gone from Slurm long before an hour after their deadline."""

WHERE_NAMED = "under [lease] in freetrain.toml"
"""Where users name the partition that leases go to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """What a tick observed: Slurm, leases, agents and trainers.

    Attributes:
        room: What Slurm said first, and the leases that were sent the notice by it.
        snapshot: Slurm's, with backfill's plans carried over where it was torn.
        config: How the cluster is set up.
        partition: Where leases are submitted unless a trainer says otherwise.
        limits: What the broker may do.
        previous_leases: Leases as they were believed before this snapshot.
        belief: Leases and intents as they are believed now.
        gave_way: By lease that was asked to leave just now: why.
        plans: What to remember of backfill's plans.
        is_plan_known: Whether these plans can be trusted.
        calls: Which brokers of other users leave calls unanswered, as it was kept.
        pace: Recent churn and failed starts.
        heartbeats: Which agents answer.
        trainers: Every trainer that was ever submitted.
        progress: Progress of the trainers that train, or may train again, by name.
        deliveries: Those recorded before, by trainer and time of its submission.
    """

    room: Room
    snapshot: Snapshot
    config: ClusterConfig
    partition: Partition
    limits: Limits
    previous_leases: tuple[Lease, ...]
    belief: Belief
    gave_way: Mapping[LeaseKey, EndReason]
    plans: SeenBackfillPlans
    is_plan_known: bool
    calls: CallMemory
    pace: Pace
    heartbeats: Heartbeats
    trainers: tuple[TickTrainer, ...]
    progress: Mapping[str, TrainerProgress]
    deliveries: Mapping[tuple[str, float], Delivery]

    @property
    def now_s(self) -> float:
        """When the snapshot was taken, by slurmctld's clock."""
        return self.snapshot.time_s

    def partition_of(self, requirement: Requirement) -> Partition:
        """Return where leases of *requirement* are submitted, if Slurm shows that."""
        found = (p for p in self.snapshot.partitions if p.name == requirement.partition)
        return next(found, self.partition)


def observe(context: TickContext, room: Room) -> Observed:
    """Return the state of Slurm, leases, agents and trainers; nothing is changed.

    Args:
        context: The tick.
        room: What Slurm said at its beginning, and the room that was made.

    Raises:
        SlurmError: Slurm did not answer, or not in a way that can be read.
        StoreError: The state cannot be read.
    """
    site, state = context.site, context.state
    config = room.seen.config
    snapshot, plans, is_known = with_plans(state, site, room.seen.snapshot)
    now_s = snapshot.time_s
    known = intents(state, ending_after_s=now_s - REMEMBERED_S)
    previous = leases(state, ending_after_s=now_s - REMEMBERED_S)
    partition = choose_partition(
        snapshot.partitions, site.lease.partition, where=WHERE_NAMED
    )
    limits = limits_of(
        site,
        config,
        partition,
        partitions=snapshot.partitions,
        takes_arrays=not any(map(_refused_array, known)),
    )
    uid, tag = context.environment.uid, tag_of(context.folder)
    uuids = {intent.uuid for intent in known}
    unknown = [
        job for job in snapshot.jobs if is_adoptable(job, uuids, uid=uid, state=tag)
    ]
    found = _find_jobs(context, known, previous, unknown)
    unknown += (job for job in found if is_adoptable(job, uuids, uid=uid, state=tag))
    known += adopted_intents(unknown, shape_of=shape_of, now_s=now_s, limits=limits)
    looked_s = counters(state)[TickCounter.LOOKED_S]
    sources = Sources(uid, snapshot.jobs, found, looked_s)
    believed = believe(previous, known, sources, now_s=now_s, limits=limits)
    belief, gave_way = with_room_made(believed, room, now_s)
    known_trainers, progress = _read_trainers(context, now_s=now_s)
    return Observed(
        room=room,
        snapshot=snapshot,
        config=config,
        partition=partition,
        limits=limits,
        previous_leases=previous,
        belief=belief,
        gave_way=gave_way,
        plans=plans,
        is_plan_known=is_known,
        calls=call_memory(state),
        pace=pace(state, since_s=now_s - limits.churn_window_s),
        heartbeats=read_heartbeats(
            context.folder, belief.leases, seen_heartbeats(state), now_s=now_s
        ),
        trainers=known_trainers,
        progress=progress,
        deliveries=deliveries(state),
    )


def with_plans(
    state: sqlite3.Connection, site: Site, snapshot: Snapshot
) -> tuple[Snapshot, SeenBackfillPlans, bool]:
    """Return *snapshot* with backfill's plans of earlier ones where it was torn.

    Returns:
        The snapshot, what to remember of plans, and whether these can be trusted.

    Raises:
        StoreError: What is remembered cannot be read.
    """
    last = seen_backfill_plans(state)
    max_age_s = site.holes.plan_age_s
    carried = carry_plans(last.plans, snapshot, max_age_s=max_age_s)
    whole_s = last.whole_s if carried.is_torn else carried.time_s
    is_known = is_plan_known(carried, whole_s=whole_s, max_age_s=max_age_s)
    return carried, SeenBackfillPlans(plans_of(carried), whole_s), is_known


def _find_jobs(
    context: TickContext,
    known: tuple[Intent, ...],
    previous: tuple[Lease, ...],
    unknown: Iterable[JobRecord],
) -> tuple[JobRecord, ...]:
    """Return the jobs of all submissions that may have changed, with one command.

    A submission may have changed while a lease of it is missing or alive. A lease that
    Slurm said to be over stays over; a lease that merely vanished may come back. The
    tasks of *unknown* ones that wait are shown by themselves only here.
    """
    by_uuid: dict[str, list[Lease]] = {}
    for lease in previous:
        by_uuid.setdefault(lease.key.uuid, []).append(lease)
    names = [
        job_name(intent.uuid)
        for intent in known
        if intent.state is not IntentState.REFUSED
        and (
            len(by_uuid.get(intent.uuid, ())) < intent.tasks
            or any(
                lease.is_live or lease.ended is LeaseEnd.VANISHED
                for lease in by_uuid[intent.uuid]
            )
        )
    ]
    names += dict.fromkeys(job.name for job in unknown)
    return context.backend.find_by_name(*names) if names else ()


def _read_trainers(
    context: TickContext, *, now_s: float
) -> tuple[tuple[TickTrainer, ...], dict[str, TrainerProgress]]:
    rows = trainers(context.state)
    if not rows:
        return (), {}
    # Imported here: a tick that has nothing to do must stay cheap.
    from freetrain.tick.trainers import (  # noqa: PLC0415
        finished_at_target,
        read_progress,
        read_trainer,
    )

    read = [read_trainer(context.folder, row).with_sizes_left(now_s) for row in rows]
    progress = read_progress(context, read, now_s=now_s)
    return tuple(
        finished_at_target(t, progress.get(t.row.name)) for t in read
    ), progress


def _refused_array(intent: Intent) -> bool:
    if is_refused_for_limit(intent.detail):
        return False
    is_refused = intent.state is IntentState.REFUSED and intent.tasks > 1
    return is_refused and "array" in intent.detail.lower()


# Which agents answer.

AGENT_SILENT_S = 20.0
"""An agent whose counter stands still for so long is gone; it counts each second."""

_GOING = {AgentState.LEAVING, AgentState.ENDED}


@dataclass(frozen=True, slots=True)
class Heartbeats:
    """Which agents of running leases answer.

    Attributes:
        latest: The last heartbeat of each lease that has one.
        seen: What to remember until the next tick.
        not_ready: Leases of which no generation may be formed: never heard, silent
            or leaving, or with a heartbeat that cannot be read.
        unreadable: Leases of which it is unknown what their agents do.
        new: Leases that are heard for the first time.
        never_heard: Leases of which no agent was ever heard.
        unheard_s: For how long each lease has reported nothing new; since its start
            where it never did.
    """

    latest: Mapping[LeaseKey, Heartbeat]
    seen: tuple[SeenHeartbeat, ...]
    not_ready: frozenset[LeaseKey]
    unreadable: frozenset[LeaseKey]
    new: frozenset[LeaseKey]
    never_heard: frozenset[LeaseKey]
    unheard_s: Mapping[LeaseKey, float]

    @property
    def training(self) -> Mapping[LeaseKey, str]:
        """By lease that is ready: the trainer that runs there, as its agent says."""
        return {
            key: beat.trainer
            for key, beat in self.latest.items()
            if beat.trainer and key not in self.not_ready
        }


def read_heartbeats(
    folder: StateDir,
    leases: Iterable[Lease],
    before: Mapping[LeaseKey, SeenHeartbeat],
    *,
    now_s: float,
) -> Heartbeats:
    """Return which agents of the running *leases* answer.

    An agent lives if its counter changes from one tick to a later one; until then it is
    believed to. The clocks of two nodes are never compared. Where a file cannot be read
    its agent is silent: it may be there, but nothing new is heard of it.
    """
    running = {
        lease.key: lease for lease in leases if lease.state is LeaseState.RUNNING
    }
    latest: dict[LeaseKey, Heartbeat] = {}
    silent: set[LeaseKey] = set()
    for key in running:
        try:
            beat = read_heartbeat(folder.lease(key).heartbeat)
        except (OSError, UnreadableFileError):
            silent.add(key)
        else:
            latest |= {} if beat is None else {key: beat}
    seen = {
        key: _seen(key, beat, before.get(key), now_s) for key, beat in latest.items()
    }
    seen |= {key: before[key] for key in silent if key in before}
    lost = {key for key, beat in seen.items() if now_s - beat.since_s >= AGENT_SILENT_S}
    going = {key for key, beat in latest.items() if beat.state in _GOING}
    never = running.keys() - latest.keys() - silent
    since_s = {key: running[key].start_s or now_s for key in running}
    since_s |= {key: beat.since_s for key, beat in seen.items()}
    return Heartbeats(
        latest=latest,
        seen=tuple(seen.values()),
        not_ready=frozenset(never | silent | going | lost),
        unreadable=frozenset(silent),
        new=frozenset(latest.keys() - before.keys()),
        never_heard=frozenset(never),
        unheard_s={key: now_s - then_s for key, then_s in since_s.items()},
    )


def _seen(
    key: LeaseKey, beat: Heartbeat, last: SeenHeartbeat | None, now_s: float
) -> SeenHeartbeat:
    """Return since when *beat* is the latest; a clock that went back counts anew."""
    if last is not None and last.beat == beat.beat and last.since_s <= now_s:
        return last
    return SeenHeartbeat(key, beat.beat, now_s)
