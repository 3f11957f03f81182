"""Shadow mode: what ticks would have asked for, planned live and asked of nobody.

``look_once`` takes a snapshot and puts leases into it that are not there, as Slurm
would show them. From there on it plans for job files as a tick does (``make_plan``),
and appends a line to a file of its own: the holes with their foretold ends, and the
leases. The next line tells what became of them: a lease is over once others have its
node, or its piece of it. Slurm is only read. ``score_file`` sums the lines up.

What ticks remember, such as forecasts and limits, is in a store beside the file. Left
out of a tick: whatever trainers and agents would have reported, measured speeds first.
"""

from __future__ import annotations

import json
import math
import os
import statistics
from collections import ChainMap, Counter, defaultdict
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal
from uuid import NAMESPACE_OID, uuid5

import msgspec

from freetrain.api.holes import MOST_REQUESTS, slurm_now
from freetrain.broker.belief import Belief
from freetrain.broker.lease import Intent, IntentState, Lease, LeaseKey, LeaseState
from freetrain.broker.lease import job_name as name_of_lease
from freetrain.broker.limits import NOTHING_LATELY
from freetrain.config.job import read_job
from freetrain.config.site import requirement_on
from freetrain.errors import BadDataError, MissingInputError, UsageError
from freetrain.opening import open_plain
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
    expand,
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


MOST_GAP_S = 300.0
"""Between lines further apart nothing is known, and nothing counts as trained."""

_MORE_REQUESTS = 5
"""What a plan may ask Slurm besides, as a tick does: limits, the topology, whether jobs
are hidden."""

_TAIL_BYTES = 1 << 20
"""The last line, of ten thousand nodes that are idle singly, is shorter."""

_FORETOLD = {HoleEnd.PLANNED_JOB, HoleEnd.RESERVATION}
"""Ends that something is known of; others are only as far as Slurm plans."""


# The file: a line of JSON for each look, of these records.

OPEN: Literal["open"] = "open"
"""End of a hole before which no job or reservation is planned."""

Ends = float | Literal["open"] | None
"""When a hole ends, Unix time; ``OPEN``, or None where that is not known."""


class ShadowLease(msgspec.Struct, frozen=True, array_like=True):
    """A lease that was not asked for.

    Attributes:
        node: Where it would be.
        trainer: Whose it would be.
        start_s: When it was planned, Unix time.
        until_s: When its time limit would end it.
    """

    node: str
    trainer: str
    start_s: float
    until_s: float


class EndedLease(ShadowLease, frozen=True, array_like=True):
    """A lease that was not asked for, and would be over.

    Attributes:
        at_s: When that was seen.
        why: ``taken``: others have its node, or its piece of it, or could have it by
            the plan; ``time``: its time limit ended it; ``plan``: the plan gave it up.
    """

    at_s: float
    why: str


class Trained(msgspec.Struct, frozen=True, array_like=True):
    """What one trainer would have done since the line before.

    Attributes:
        lease_s: Seconds of its leases that lasted until this line, all together.
        samples: Samples by the speeds that its job file states, pauses taken off; None
            where it states none.
    """

    lease_s: float
    samples: float | None


class ShadowLook(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the file.

    Attributes:
        at_s: When the snapshot was taken, by slurmctld's clock.
        is_torn: Whether a backfill cycle overlapped it, so that plans may be missing.
        nodes: Nodes of the cluster.
        holes: Nodes with room for leases of these trainers, as Slurm lists them, with
            the end of their holes, margin taken off.
        leases: Those that would be there from now on.
        ended: Those that would have ended since the line before.
        trained: By trainer: what it would have done since then.
        problems: What the plan could not take into account, for people.
    """

    at_s: float
    is_torn: bool
    nodes: int
    holes: tuple[tuple[str, Ends], ...]
    leases: tuple[ShadowLease, ...]
    ended: tuple[EndedLease, ...]
    trained: dict[str, Trained]
    problems: tuple[str, ...] = ()


def shadow_file(site: Site) -> Path:
    """Return the file that lines are appended to."""
    return StateDir(site.state_directory).shadow / "looks.jsonl"


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
    _append(path, look)
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
        self._holes = {
            name: {hole.node: hole for hole in self._found(asked)}
            for name, asked in self._asked.items()
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
        shapes = {shape_name(asked): asked for asked in self._asked.values()}
        nodes = {node.name: node for node in self._snapshot.nodes}
        jobs = list(self._snapshot.jobs)
        for lease in leases:
            asked, node, uuid = shapes[lease.shape], nodes[lease.node], lease.key.uuid
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


def _append(path: Path, look: ShadowLook) -> None:
    # Not by msgspec, which writes no name that is not Unicode.
    line = json.dumps(msgspec.to_builtins(look), allow_nan=False) + "\n"
    file = open_plain(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    with os.fdopen(file, "ab") as stream:
        stream.write(line.encode())


def last_look(path: Path) -> ShadowLook | None:
    """Return the last line of the file at *path*; None where there is none.

    A line that was cut off, as by a full disk, is passed over.

    Raises:
        BadDataError: It is another file's.
        OSError: It cannot be read.
    """
    try:
        file = open_plain(path)
    except FileNotFoundError:
        return None
    with os.fdopen(file, "rb") as stream:
        size = stream.seek(0, os.SEEK_END)
        stream.seek(max(0, size - _TAIL_BYTES))
        lines = stream.read().split(b"\n")[:-1]
    return None if not lines else parse_line(lines[-1], path)


def looks(path: Path) -> Iterator[ShadowLook]:
    """Yield the lines of the file at *path*, in order.

    Raises:
        BadDataError: A line cannot be read.
        OSError: It is not there, or cannot be read.
    """
    with os.fdopen(open_plain(path), "rb") as stream:
        for line in stream:
            if line.endswith(b"\n"):
                yield parse_line(line, path)


def parse_line(line: bytes, path: Path) -> ShadowLook:
    """Return the look that *line* of the file at *path* is.

    Raises:
        BadDataError: It is none.
    """
    try:
        return msgspec.json.decode(line, type=ShadowLook)
    except (ValueError, RecursionError) as error:
        raise BadDataError(
            f"{path} has a line that is no look of `freetrain shadow` ({error}). "
            f"Nothing was planned or scored. Move its folder away to begin anew."
        ) from error


# How well was foretold, by what came after


@dataclass(frozen=True, slots=True, kw_only=True)
class ForetoldHoles:
    """Holes of which an end was foretold: a job or reservation was planned there.

    Attributes:
        stayed: They lasted until then, or were gone by less than a look sooner.
        ended_early: They did not.
        early_s: By how much, in the median of these; None where there were none.
        unknown: It is not known, as they last still or looks were missing.
    """

    stayed: int
    ended_early: int
    early_s: float | None
    unknown: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenHoles:
    """Holes of which no end was foretold.

    Attributes:
        booked: An end was foretold later: from then on they count there.
        ended: A job took them at once, or they were gone for another reason.
        lasted_s: How long they lasted, in the median of these; None for none.
        unknown: As in ``ForetoldHoles``.
    """

    booked: int
    ended: int
    lasted_s: float | None
    unknown: int


@dataclass(slots=True)
class ShadowTraining:
    """What one trainer would have done: see ``Trained``."""

    lease_s: float = 0.0
    samples: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ShadowScore:
    """The score of a file of looks.

    Attributes:
        first_s: When the first was, Unix time; ``last_s`` the last.
        looks: How many there were.
        torn: Those that a backfill cycle overlapped.
        missing_s: Time in gaps of more than five minutes, which counts for nothing.
        hole_nodes_mean: Nodes with holes on average, over the looks.
        nodes: Nodes of the cluster at the last one.
        foretold: Holes of which an end was foretold.
        open: Those of which none was.
        leases: Leases that would have been asked for.
        taken: Those of them that would have been preempted or given up for others.
        by_time: Those that their time limit would have ended.
        by_plan: Those that the plan gave up.
        training: By trainer, what it would have done.
    """

    first_s: float
    last_s: float
    looks: int
    torn: int
    missing_s: float
    hole_nodes_mean: float
    nodes: int
    foretold: ForetoldHoles
    open: OpenHoles
    leases: int
    taken: int
    by_time: int
    by_plan: int
    training: Mapping[str, ShadowTraining]


def score_file(path: Path) -> ShadowScore:
    """Return the score of the looks in the file at *path*.

    Raises:
        MissingInputError: There are none.
        BadDataError: A line cannot be read.
        OSError: The file cannot be read.
    """
    try:
        return score(looks(path))
    except (FileNotFoundError, StopIteration) as error:
        raise MissingInputError(
            f"there is no look in {path}; nothing was scored. Let `freetrain "
            f"shadow JOB.TOML` run each minute for a while first."
        ) from error


@dataclass(slots=True)
class _Episode:
    """A hole of one node, from the first look that has it to the last."""

    first_s: float
    last_s: float
    foretold_s: float | None


@dataclass(slots=True)
class _Sums:
    early_s: list[float] = field(default_factory=list)
    lasted_s: list[float] = field(default_factory=list)
    count: Counter[str] = field(default_factory=Counter)

    def over(self, hole: _Episode, gone_s: float | None) -> None:
        """Count *hole*, which was seen to be gone at *gone_s*; None for unknown."""
        if hole.foretold_s is None:
            self.count["open" if gone_s is not None else "open unknown"] += 1
            if gone_s is not None:
                self.lasted_s.append(hole.last_s - hole.first_s)
        elif hole.last_s >= hole.foretold_s or (
            # When it ended between two looks is not known.
            gone_s is not None and hole.foretold_s <= 2 * gone_s - hole.last_s
        ):
            self.count["stayed"] += 1
        elif gone_s is None:
            self.count["unknown"] += 1
        else:
            self.count["early"] += 1
            self.early_s.append(hole.foretold_s - gone_s)


def score(seen: Iterable[ShadowLook]) -> ShadowScore:
    """Return the score of looks, in order of time.

    Raises:
        StopIteration: There is none.
    """
    lines = iter(seen)
    last = first = next(lines)
    sums, counts, torn, missing_s = _Sums(), 1, int(first.is_torn), 0.0
    ends: Counter[str] = Counter()
    leases = len(first.leases)
    training: defaultdict[str, ShadowTraining] = defaultdict(ShadowTraining)
    episodes = dict(_begun(first))
    hole_nodes = len(episodes)
    for line in lines:
        counts, torn = counts + 1, torn + int(line.is_torn)
        gap_s = line.at_s - last.at_s
        now = dict(_begun(line))
        hole_nodes += len(now)
        if gap_s > MOST_GAP_S:
            missing_s += gap_s
            for hole in episodes.values():
                sums.over(hole, None)
            episodes = now
        else:
            for node in episodes.keys() - now.keys():
                sums.over(episodes.pop(node), line.at_s)
            for node, hole in now.items():
                before = episodes.setdefault(node, hole)
                if hole.foretold_s is not None and before.foretold_s is None:
                    sums.count["booked"] += 1
                    episodes[node] = hole
                episodes[node].last_s = line.at_s
        ends.update(end.why for end in line.ended)
        leases += sum(lease.start_s == line.at_s for lease in line.leases)
        for name, done in line.trained.items():
            training[name].lease_s += done.lease_s
            if done.samples is not None:
                so_far = training[name].samples or 0.0
                training[name].samples = so_far + done.samples
        last = line
    for hole in episodes.values():
        sums.over(hole, None)
    return ShadowScore(
        first_s=first.at_s,
        last_s=last.at_s,
        looks=counts,
        torn=torn,
        missing_s=missing_s,
        hole_nodes_mean=hole_nodes / counts,
        nodes=last.nodes,
        foretold=ForetoldHoles(
            stayed=sums.count["stayed"],
            ended_early=sums.count["early"],
            early_s=_median(sums.early_s),
            unknown=sums.count["unknown"],
        ),
        open=OpenHoles(
            booked=sums.count["booked"],
            ended=sums.count["open"],
            lasted_s=_median(sums.lasted_s),
            unknown=sums.count["open unknown"],
        ),
        leases=leases,
        taken=ends["taken"],
        by_time=ends["time"],
        by_plan=ends["plan"],
        training=training,
    )


def _begun(line: ShadowLook) -> Iterator[tuple[str, _Episode]]:
    for names, end_s in line.holes:
        for node in expand(names):
            foretold_s = end_s if isinstance(end_s, float) else None
            yield node, _Episode(line.at_s, line.at_s, foretold_s)


def _median(values: list[float]) -> float | None:
    return statistics.median(values) if values else None
