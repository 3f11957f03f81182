"""Shadow mode: what ticks would have asked for, planned live and asked of nobody.

``look_once`` takes a snapshot and puts leases into it that are not there, as Slurm
would show them. From there on it plans for job files as a tick does (``make_plan``),
and appends a line to a file of its own: the holes with their foretold ends, and the
leases. The next line tells what became of them: a lease is over once others have its
node, or its piece of it. Slurm is only read. ``api.shadow_looks`` has the file.

What ticks remember, such as forecasts and limits, is in a store beside the file. Left
out of a tick: whatever trainers and agents would have reported, measured speeds first.
"""

from __future__ import annotations

import math
from collections import ChainMap, Counter, defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING
from uuid import NAMESPACE_OID, uuid5

import msgspec

from freetrain.api.holes import MOST_REQUESTS, slurm_now
from freetrain.api.shadow_looks import (
    MOST_GAP_S,
    OPEN,
    EndedLease,
    Ends,
    ShadowLease,
    ShadowLook,
    Trained,
    append_look,
    last_look,
    shadow_file,
)
from freetrain.broker.belief import Belief
from freetrain.broker.lease import Intent, IntentState, Lease, LeaseKey, LeaseState
from freetrain.broker.lease import job_name as name_of_lease
from freetrain.broker.limits import NOTHING_LATELY
from freetrain.config.job import read_job
from freetrain.config.site import requirement_on
from freetrain.errors import UsageError
from freetrain.state.database import open_store, prepare_directory
from freetrain.state.files import AssignedLease, AssignmentFile, StateDir
from freetrain.state.tables import TrainerRow, TrainerState, call_memory
from freetrain.tick.environment import TickContext, real_environment
from freetrain.tick.leases import kind_of_lease, lease_comment, margin_s, shape_name
from freetrain.tick.observe import WHERE_NAMED, Observed, read_heartbeats, with_plans
from freetrain.tick.plan import make_plan
from freetrain.tick.rate import stated_speed
from freetrain.tick.record import record_learned
from freetrain.tick.room import room_to_make, view_of
from freetrain.tick.trainers import TickTrainer
from slurm.batch import gres_argument
from slurm.holes import HoleEnd, find_holes, takes_whole_nodes
from slurm.pieces import room, with_job
from slurm.records import (
    JobRecord,
    JobState,
    NodeState,
    choose_partition,
    collapse,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from freetrain.api.context import UserContext
    from freetrain.config.job import TrainerJob
    from freetrain.config.site import Site
    from freetrain.tick.plan import TickPlan
    from slurm.holes import Hole, Snapshot
    from slurm.records import ClusterConfig, Node, Requirement


_MORE_REQUESTS = 5
"""What a plan may ask Slurm besides, as a tick does: limits, the topology, whether jobs
are hidden."""

_FORETOLD = {HoleEnd.PLANNED_JOB, HoleEnd.RESERVATION}
"""Ends that something is known of; others are only as far as Slurm plans."""


def look_once(
    context: UserContext, config: Path | None, jobs: Sequence[Path]
) -> ShadowLook:
    """Look at Slurm once, plan for the trainers of *jobs*, and append a line.

    Raises:
        UsageError: There is no trainer, or two have one name.
        FreeTrainError, SlurmError: Nothing was seen, and no line appended.
        OSError: The line could not be written.
    """
    site = context.site(config)
    trainers = _read_jobs(jobs, context)
    path = shadow_file(site)
    last = last_look(path)
    environment = replace(
        real_environment(context.environ), uid=context.uid, clock=context.clock
    )
    backend = environment.connect(MOST_REQUESTS + _MORE_REQUESTS)
    settings, snapshot = slurm_now(context, backend)
    prepare_directory(site.state_directory, uid=context.uid)
    with open_store(path.parent, uid=context.uid) as state:
        tick = TickContext(
            site=_by_stated_speeds(site),
            environment=environment,
            folder=StateDir(path.parent),
            state=state,
            backend=backend,
            turn=None,
        )
        look = look_at(tick, settings, snapshot, trainers, last)
    append_look(path, look)
    return look


def look_at(
    context: TickContext,
    config: ClusterConfig,
    snapshot: Snapshot,
    jobs: Mapping[str, TrainerJob],
    last: ShadowLook | None,
) -> ShadowLook:
    """Return what is seen and planned, and what became of the leases of *last*.

    Args:
        context: As of a tick that may carry nothing out; its store is written.
        config: How the cluster is set up.
        snapshot: The cluster.
        jobs: The trainers to plan for, by name.
        last: The look before; None where there is none.

    Raises:
        FreeTrainError, SlurmError, MilpError: As ``make_plan``.
    """
    return _Shadow(context, config, snapshot, jobs).look(last)


def _by_stated_speeds(site: Site) -> Site:
    """Return *site* without measured speeds: trainers would try sizes for ever."""
    structs = msgspec.structs
    return structs.replace(site, planner=structs.replace(site.planner, learn=False))


def _read_jobs(jobs: Sequence[Path], context: UserContext) -> Mapping[str, TrainerJob]:
    found: dict[str, TrainerJob] = {}
    for path in jobs:
        job = read_job(context.folder / path, named=str(path), home=context.home)
        if job.name in found:
            raise UsageError(
                f"two job files are of {job.name!r}. Nothing was planned. Leave one "
                f"out, or give it another name."
            )
        found[job.name] = job
    if not found:
        raise UsageError(
            "there is no trainer to plan for. Nothing was done. Name job files, or "
            "add --score."
        )
    return found


class _Shadow:
    """A cluster at one time, and the plan that a tick would make of it."""

    def __init__(
        self,
        context: TickContext,
        config: ClusterConfig,
        snapshot: Snapshot,
        jobs: Mapping[str, TrainerJob],
    ) -> None:
        site, state = context.site, context.state
        self._context, self._config, self._jobs = context, config, jobs
        self._snapshot, self._plans, self._is_plan_known = with_plans(
            state, site, snapshot
        )
        self._now_s = snapshot.time_s
        self._partition = choose_partition(
            snapshot.partitions, site.lease.partition, where=WHERE_NAMED
        )
        self._asked = {
            name: requirement_on(
                kind_of_lease(job.nodes),
                site.lease,
                default_partition=self._partition.name,
                nodes=snapshot.nodes,
                sharing=config.sharing,
            )
            for name, job in jobs.items()
        }
        self._shapes = {shape_name(asked): asked for asked in self._asked.values()}
        found = {
            shape: {hole.node: hole for hole in self._found(asked)}
            for shape, asked in self._shapes.items()
        }
        self._holes = {
            name: found[shape_name(asked)] for name, asked in self._asked.items()
        }

    def _found(self, asked: Requirement) -> tuple[Hole, ...]:
        """Return the holes for such leases, were there none so far."""
        partition = choose_partition(self._snapshot.partitions, asked.partition)
        return find_holes(
            self._snapshot,
            asked,
            is_ours=lambda _: False,
            margin_s=margin_s(self._context.site, self._config, partition),
            window_s=self._config.bf_window_s,
            sharing=self._config.sharing,
        )

    def look(self, last: ShadowLook | None) -> ShadowLook:
        """Return what ``look_at`` does."""
        now_s = self._now_s
        since_s = math.inf if last is None else now_s - last.at_s
        before: Mapping[LeaseKey, ShadowLease] = {}
        if last is not None and since_s <= MOST_GAP_S:
            before = _by_key(each for each in last.leases if each.trainer in self._jobs)
        over = dict(self._over(before))
        kept = {key: lease for key, lease in before.items() if key not in over}
        observed = self._observed(kept)
        plan = make_plan(self._context, observed)
        with self._context.writing("what was learned") as state:
            record_learned(state, observed, plan)
        claims = plan.situation.claims
        for lease in observed.belief.leases:
            if lease.key not in plan.decision.wanted.leases:
                is_taken = claims.takes(lease.node, lease.job_id)
                over[lease.key] = "taken" if is_taken else "plan"
        stay = (lease for key, lease in kept.items() if key not in over)
        return ShadowLook(
            at_s=now_s,
            is_torn=self._snapshot.is_torn,
            nodes=len(self._snapshot.nodes),
            holes=tuple(_grouped(self._holes.values())),
            leases=(*stay, *_new_leases(plan, most=observed.limits.most_new_leases)),
            ended=tuple(
                EndedLease(**msgspec.structs.asdict(before[key]), at_s=now_s, why=why)
                for key, why in over.items()
            ),
            trained=dict(self._trained(before.values(), kept.values(), since_s)),
            problems=plan.problems,
        )

    def _is_whole(self, asked: Requirement) -> bool:
        """Tell whether a lease that asks so has its node for itself."""
        partition = choose_partition(self._snapshot.partitions, asked.partition)
        return asked.exclusive or takes_whole_nodes(partition, self._config.sharing)

    def _over(
        self, leases: Mapping[LeaseKey, ShadowLease]
    ) -> Iterator[tuple[LeaseKey, str]]:
        """Yield those of *leases* that time or other jobs would have ended by now.

        Of the pieces of a node others take those of its oldest leases first.
        """
        nodes = {node.name: node for node in self._snapshot.nodes}
        newest_first = sorted(leases.items(), key=lambda own: -own[1].start_s)
        for key, lease in newest_first:
            asked, node = self._asked[lease.trainer], nodes.get(lease.node)
            is_whole = self._is_whole(asked)
            if lease.until_s <= self._now_s:
                yield key, "time"
            elif (
                node is None
                or lease.node not in self._holes[lease.trainer]
                or not (is_whole or room(node, asked, self._config.sharing))
            ):
                yield key, "taken"
            else:
                nodes[node.name] = self._with_lease(node, asked)

    def _with_lease(self, node: Node, asked: Requirement) -> Node:
        """Return *node* with a lease more, as Slurm would show it."""
        if self._is_whole(asked):
            taken = replace(
                node,
                allocated_cpus=node.cpus,
                allocated_memory_mib=node.memory_mib,
                allocated_gres=node.gres,
            )
        else:
            taken = with_job(node, asked, self._config.sharing)
        is_full = taken.allocated_cpus >= taken.cpus
        state = NodeState.ALLOCATED if is_full else NodeState.MIXED
        others = node.states - {NodeState.IDLE, NodeState.MIXED}
        return replace(taken, states=others | {state})

    def _observed(self, leases: Mapping[LeaseKey, ShadowLease]) -> Observed:
        """Return what a tick would observe that had *leases*."""
        context, now_s = self._context, self._now_s
        running = tuple(self._running(leases))
        snapshot = self._with_leases(running)
        seen = view_of(context.site, self._config, snapshot)
        return Observed(
            room=room_to_make(
                context.site,
                context.environment,
                context.backend,
                seen,
                is_dry=True,
                notified_before={},
            ),
            snapshot=snapshot,
            config=self._config,
            partition=self._partition,
            limits=seen.limits,
            previous_leases=(),
            belief=Belief(running, tuple(map(_intent_of, running))),
            gave_way={},
            plans=self._plans,
            is_plan_known=self._is_plan_known,
            calls=call_memory(context.state),
            pace=NOTHING_LATELY,
            heartbeats=read_heartbeats(context.folder, (), {}, now_s=now_s),
            trainers=tuple(self._trainer(name, leases) for name in self._jobs),
            progress={},
            deliveries={},
        )

    def _running(self, leases: Mapping[LeaseKey, ShadowLease]) -> Iterator[Lease]:
        """Yield *leases* as a tick has them, with numbers that no job has."""
        last = max((job.job_id for job in self._snapshot.jobs), default=0)
        for number, (key, lease) in enumerate(leases.items(), start=last + 1):
            yield Lease(
                key=key,
                job_id=number,
                display_id=str(number),
                shape=shape_name(self._asked[lease.trainer]),
                limit_min=max(1, math.ceil((lease.until_s - lease.start_s) / 60.0)),
                deadline_s=lease.until_s,
                state=LeaseState.RUNNING,
                node=lease.node,
                start_s=lease.start_s,
                end_s=lease.until_s,
            )

    def _with_leases(self, leases: Iterable[Lease]) -> Snapshot:
        """Return the snapshot with *leases*, as Slurm would show them."""
        environment, settings = self._context.environment, self._context.site.lease
        nodes = {node.name: node for node in self._snapshot.nodes}
        jobs = list(self._snapshot.jobs)
        for lease in leases:
            asked, node = self._shapes[lease.shape], nodes[lease.node]
            uuid = lease.key.uuid
            nodes[node.name] = taken = self._with_lease(node, asked)
            job = JobRecord(
                job_id=lease.job_id or 0,
                display_id=lease.display_id,
                states=frozenset({JobState.RUNNING}),
                user=environment.user,
                uid=environment.uid,
                name=name_of_lease(uuid),
                comment=lease_comment(self._context.folder, uuid, beat_s=self._now_s),
                partitions=(asked.partition,),
                start_s=lease.start_s,
                end_s=lease.end_s,
                limit_s=60.0 * lease.limit_min,
                nodes=node.name,
                node_count=1,
                cpu_count=taken.allocated_cpus - node.allocated_cpus,
                least_cpus=asked.cpus,
                least_memory_mib=asked.memory_mib,
                gres_per_node=",".join(f"gres:{gres_argument(g)}" for g in asked.gres),
                account=settings.account,
                qos=settings.qos,
            )
            jobs.append(job)
        return replace(self._snapshot, nodes=tuple(nodes.values()), jobs=tuple(jobs))

    def _trainer(
        self, name: str, leases: Mapping[LeaseKey, ShadowLease]
    ) -> TickTrainer:
        """Return a trainer as if it had been submitted now, and had its leases."""
        now_s = self._now_s
        members = tuple(
            AssignedLease(key=key, job_id=0, display_id="", node=lease.node)
            for key, lease in leases.items()
            if lease.trainer == name
        )
        newest = AssignmentFile(
            trainer=name,
            generation=1,
            members=members,
            created_s=now_s,
            author="",
            reason="",
        )
        return TickTrainer(
            row=TrainerRow(name, "", "", TrainerState.WANTED, now_s, now_s),
            job=self._jobs[name],
            newest=newest if members else None,
        )

    def _trained(
        self,
        before: Collection[ShadowLease],
        kept: Collection[ShadowLease],
        since_s: float,
    ) -> Iterator[tuple[str, Trained]]:
        """Yield what each trainer would have done on the leases that lasted.

        It is not known when a node was taken, so a lease that was counts for nothing.
        """
        if since_s > MOST_GAP_S:
            return
        lasting = Counter(lease.trainer for lease in kept)
        for name, job in self._jobs.items():
            own = [lease.start_s for lease in before if lease.trainer == name]
            lasted = lasting[name]
            speed = stated_speed(job)
            pause_s = speed.shrink_s if lasted < len(own) else 0.0
            if own:
                grown_s = max(own)
                is_start = min(own) == grown_s
                resumes_s = grown_s + (speed.start_s if is_start else speed.grow_s)
                pause_s = max(pause_s, resumes_s - (self._now_s - since_s))
            sizes = [n for n in job.nodes.sizes if n <= lasted]
            per_s = float(speed.samples_per_s[sizes[-1]]) if sizes else 0.0
            samples = max(0.0, since_s - pause_s) * per_s
            yield name, Trained(lasted * since_s, samples if job.scaling else None)


def _intent_of(lease: Lease) -> Intent:
    return Intent(
        uuid=lease.key.uuid,
        shape=lease.shape,
        limit_min=lease.limit_min,
        deadline_s=lease.deadline_s,
        tasks=1,
        created_s=lease.start_s or 0.0,
        state=IntentState.SUBMITTED,
    )


def _by_key(leases: Iterable[ShadowLease]) -> dict[LeaseKey, ShadowLease]:
    """Return *leases* by keys that are theirs in each line.

    Those of one trainer that begin together on one node are alike but for a number.
    """
    alike: Counter[str] = Counter()
    found = {}
    for lease in leases:
        said = f"{lease.start_s} {lease.node} {lease.trainer}"
        uuid = str(uuid5(NAMESPACE_OID, said))
        found[LeaseKey(uuid, alike[uuid])] = lease
        alike[uuid] += 1
    return found


def _new_leases(plan: TickPlan, *, most: int) -> tuple[ShadowLease, ...]:
    """Return the leases that the tick would have submitted, and Slurm started."""
    situation, decision = plan.situation, plan.decision
    if decision.brake is not None:
        return ()
    now_s = situation.now_s
    free: defaultdict[str, list[tuple[str, float]]] = defaultdict(list)
    for request in decision.wanted.requests:
        until_s = now_s + 60.0 * request.limit_min
        free[request.shape] += [(node, until_s) for node in request.nodes]
    asked = []
    shapes = {trainer.name: trainer.shape for trainer in situation.trainers}
    for trainer in decision.wanted.trainers:
        nodes = free[shapes[trainer.name]]
        for node, until_s in nodes[: trainer.awaited_nodes]:
            asked.append(ShadowLease(node, trainer.name, now_s, until_s))
        del nodes[: trainer.awaited_nodes]
    return tuple(asked[:most])


def _grouped(found: Iterable[dict[str, Hole]]) -> Iterator[tuple[str, Ends]]:
    """Yield the nodes of holes that end at one time, and that time."""
    by_end: dict[Ends, list[str]] = {}
    for hole in ChainMap(*found).values():
        is_open = hole.end_s is not None and hole.ends_by not in _FORETOLD
        end_s: Ends = OPEN if is_open else hole.end_s
        by_end.setdefault(end_s, []).append(hole.node)
    for end_s, nodes in by_end.items():
        yield collapse(nodes), end_s
