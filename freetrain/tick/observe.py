"""The first half of a tick: what is so, from Slurm, the store and the files."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from freetrain.broker.belief import Belief, believe
from freetrain.broker.lease import IntentOutcome, LeaseEnd, job_name
from freetrain.broker.sightings import Sources
from freetrain.broker.trust import is_plan_known
from freetrain.store.beats import seen_beats
from freetrain.store.deliveries import Delivery, deliveries
from freetrain.store.events import pace
from freetrain.store.intents import intents
from freetrain.store.leases import leases
from freetrain.store.plans import SeenPlans, seen_plans
from freetrain.store.trainers import TrainerState, trainers
from freetrain.tick.belonging import check_cluster
from freetrain.tick.hearing import Hearing, hear
from freetrain.tick.limits import limits_of
from freetrain.tick.standing import Outcome, Standing, read_standing
from slurm.partitions import choose_partition
from slurm.snapshot import carry_plans, plans_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from freetrain.broker.lease import Intent, Lease
    from freetrain.broker.limits import Limits
    from freetrain.broker.pace import Pace
    from freetrain.tick.learning import Learned
    from freetrain.tick.run import Run
    from slurm.config import ClusterConfig
    from slurm.records import JobRecord, Partition
    from slurm.snapshot import Snapshot

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
    from freetrain.tick.learning import learn  # noqa: PLC0415

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
