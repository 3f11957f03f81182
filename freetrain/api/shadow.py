"""Shadow mode: what ticks would have asked for, planned live and asked of nobody.

``observe_once`` takes a snapshot, finds holes and plans for job files as a tick does
(``decide_leases``), and appends a line to a file of its own: the holes with their
foretold ends, and leases that are not there. The next line tells what became of them:
a node that is no hole any more has taken its lease with it. Slurm is only read.
``score_file`` sums the lines up.

Left out of a tick: shares beside other users' FreeTrain, limits of accounts and QOS,
measured speeds, forecasts of ``lookahead``, and leases of GPUs.
"""

from __future__ import annotations

import json
import math
import os
import statistics
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import msgspec

from freetrain.api.holes import (
    PartitionHoles,
    holes_for_leases,
    slurm_now,
)
from freetrain.broker.belief import Belief
from freetrain.broker.decide import decide_leases
from freetrain.broker.lease import Lease, LeaseKey, LeaseState
from freetrain.broker.pool import Situation, Trainer
from freetrain.config.job import read_job
from freetrain.config.site import requirement_on
from freetrain.errors import BadDataError, MissingInputError, UsageError
from freetrain.opening import open_plain
from freetrain.planning.policy import make_policy
from freetrain.planning.rating import rate
from freetrain.priority.base import RatingInputs
from freetrain.state.database import prepare_directory
from freetrain.state.files import AssignedLease, AssignmentFile, StateDir
from freetrain.state.tables import TrainerRow, TrainerState
from freetrain.tick.leases import kind_of_lease, limits_of, shape_name
from freetrain.tick.plan import planned_trainer, tools_for
from freetrain.tick.rate import contender_of, priority_of, stated_speed
from freetrain.tick.trainers import TickTrainer
from slurm.holes import HoleEnd
from slurm.records import choose_partition, collapse, expand

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from freetrain.api.context import UserContext
    from freetrain.config.job import TrainerJob
    from freetrain.config.site import Site
    from slurm.holes import Snapshot
    from slurm.records import ClusterConfig


MOST_GAP_S = 300.0
"""Between lines further apart nothing is known, and nothing counts as trained."""

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
        until_s: When its time limit would end it: as long as its hole was to last.
    """

    node: str
    trainer: str
    start_s: float
    until_s: float


class EndedLease(ShadowLease, frozen=True, array_like=True):
    """A lease that was not asked for, and would be over.

    Attributes:
        at_s: When that was seen.
        why: ``taken``: its node was no hole any more, sooner than foretold;
            ``time``: its time limit ended it; ``plan``: the plan gave it up.
    """

    at_s: float
    why: str


class Trained(msgspec.Struct, frozen=True, array_like=True):
    """What one trainer would have done since the line before.

    Attributes:
        node_s: Node-seconds of leases that lasted until this line.
        samples: Samples by the speeds that its job file states, pauses taken off; None
            where it states none.
    """

    node_s: float
    samples: float | None


class ShadowLook(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the file.

    Attributes:
        at_s: When the snapshot was taken, by slurmctld's clock.
        is_torn: Whether a backfill cycle overlapped it, so that plans may be missing.
        nodes: Nodes of the cluster.
        holes: Nodes, as Slurm lists them, with the end of their holes, margin taken
            off.
        leases: Those that would be there from now on.
        ended: Those that would have ended since the line before.
        trained: By trainer: what it would have done since then.
    """

    at_s: float
    is_torn: bool
    nodes: int
    holes: tuple[tuple[str, Ends], ...]
    leases: tuple[ShadowLease, ...]
    ended: tuple[EndedLease, ...]
    trained: dict[str, Trained]


def shadow_file(site: Site) -> Path:
    """Return the file that lines are appended to."""
    return StateDir(site.state_directory).shadow


def observe_once(
    context: UserContext, config: Path | None, jobs: Sequence[Path]
) -> ShadowLook:
    """Look at Slurm once, plan for the trainers of *jobs*, and append a line.

    Raises:
        UsageError: There is no trainer, or one takes pieces of nodes.
        FreeTrainError, SlurmError: Nothing was seen, and no line appended.
        OSError: The line could not be written.
    """
    site = context.site(config)
    trainers = _read_jobs(jobs, context)
    path = shadow_file(site)
    last = last_observation(path)
    settings, snapshot = slurm_now(context)
    seen = _Look(site, settings, snapshot, trainers, context)
    observation = seen.observation(last)
    prepare_directory(path.parent, uid=context.uid)
    _append(path, observation)
    return observation


def _read_jobs(jobs: Sequence[Path], context: UserContext) -> Mapping[str, TrainerJob]:
    found: dict[str, TrainerJob] = {}
    for path in jobs:
        job = read_job(context.folder / path, named=str(path), home=context.home)
        if job.nodes.gpus_per_lease is not None:
            raise UsageError(
                f"{path} takes pieces of nodes, for which there is no shadow yet. "
                f"Nothing was planned. Leave it out."
            )
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


class _Look:
    """One look at Slurm, and the plan that a tick would make of it."""

    def __init__(
        self,
        site: Site,
        config: ClusterConfig,
        snapshot: Snapshot,
        jobs: Mapping[str, TrainerJob],
        context: UserContext,
    ) -> None:
        self._site, self._config, self._snapshot = site, config, snapshot
        self._jobs, self._context = jobs, context
        self._now_s = snapshot.time_s
        self._every = self._holes(None)
        self._by_trainer = {name: self._holes(job) for name, job in jobs.items()}

    def observation(self, last: ShadowLook | None) -> ShadowLook:
        """Return what is seen and planned, and what became of the leases of *last*."""
        now_s = self._now_s
        since_s = math.inf if last is None else now_s - last.at_s
        before = () if last is None or since_s > MOST_GAP_S else last.leases
        before = tuple(lease for lease in before if lease.trainer in self._jobs)
        over = dict(self._over(before))
        kept = tuple(lease for lease in before if lease not in over)
        planned = self._planned(kept)
        over |= {lease: "plan" for lease in kept if lease not in planned}
        return ShadowLook(
            at_s=now_s,
            is_torn=self._every.is_torn,
            nodes=self._every.nodes,
            holes=tuple(_grouped(self._every)),
            leases=planned,
            ended=tuple(
                EndedLease(
                    lease.node,
                    lease.trainer,
                    lease.start_s,
                    lease.until_s,
                    at_s=now_s,
                    why=why,
                )
                for lease, why in over.items()
            ),
            trained=dict(self._trained(before, kept, since_s)),
        )

    def _holes(self, job: TrainerJob | None) -> PartitionHoles:
        return holes_for_leases(
            self._snapshot,
            self._config,
            self._site,
            uid=self._context.uid,
            nodes=None if job is None else job.nodes,
        )

    def _over(self, leases: Sequence[ShadowLease]) -> Iterator[tuple[ShadowLease, str]]:
        """Yield those of *leases* that time or other jobs would have ended by now."""
        idle = {
            name: {hole.node for hole in found.holes}
            for name, found in self._by_trainer.items()
        }
        for lease in leases:
            if lease.until_s <= self._now_s:
                yield lease, "time"
            elif lease.node not in idle[lease.trainer]:
                yield lease, "taken"

    def _trained(
        self,
        before: Sequence[ShadowLease],
        kept: Sequence[ShadowLease],
        since_s: float,
    ) -> Iterator[tuple[str, Trained]]:
        """Yield what each trainer would have done on the leases that lasted.

        It is not known when a node was taken, so a lease that was counts for nothing.
        """
        if since_s > MOST_GAP_S:
            return
        for name, job in self._jobs.items():
            own = [lease.start_s for lease in before if lease.trainer == name]
            lasted = sum(lease.trainer == name for lease in kept)
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

    def _planned(self, kept: Sequence[ShadowLease]) -> tuple[ShadowLease, ...]:
        """Return the leases that a tick would have from now on."""
        now_s, settings = self._now_s, self._site.planner
        partition = choose_partition(
            self._snapshot.partitions,
            self._site.lease.partition,
            where="under [lease] in freetrain.toml",
        )
        limits = limits_of(
            self._site,
            self._config,
            partition,
            partitions=self._snapshot.partitions,
        )
        shapes = {name: self._shape(job) for name, job in self._jobs.items()}
        leases = {LeaseKey("shadow", n): lease for n, lease in enumerate(kept)}
        trainers = self._trainers(leases, shapes)
        decision = decide_leases(
            Situation(
                now_s=now_s,
                belief=Belief(
                    leases=tuple(
                        _as_running(key, lease, shapes[lease.trainer])
                        for key, lease in leases.items()
                    ),
                    intents=(),
                ),
                holes={shapes[n]: self._by_trainer[n].holes for n in self._jobs},
                trainers=trainers,
                assignments=tuple(t.assignment for t in trainers if t.assignment),
                training={key: lease.trainer for key, lease in leases.items()},
                is_plan_known=not self._every.is_torn,
            ),
            make_policy(settings.policy, tools_for(settings, self._context.clock)),
            limits,
            t_fwd_s=settings.t_fwd_s,
        )
        wanted = decision.wanted
        stay = tuple(lease for key, lease in leases.items() if key in wanted.leases)
        if decision.brake is not None:
            return stay
        ends_s = {node.name: node.end_s for node in decision.classes.nodes}
        free = {
            shape: [n for r in wanted.requests if r.shape == shape for n in r.nodes]
            for shape in shapes.values()
        }
        asked = []
        for trainer in wanted.trainers:
            nodes = free[shapes[trainer.name]]
            for node in nodes[: trainer.awaited_nodes]:
                longest_s = now_s + 60.0 * limits.most_limit_min
                until_s = min(ends_s[node], longest_s)
                asked.append(ShadowLease(node, trainer.name, now_s, until_s))
            del nodes[: trainer.awaited_nodes]
        return (*stay, *asked[: limits.most_new_leases])

    def _shape(self, job: TrainerJob) -> str:
        return shape_name(
            requirement_on(
                kind_of_lease(job.nodes),
                self._site.lease,
                default_partition=self._every.partition,
                nodes=self._snapshot.nodes,
                sharing=self._config.sharing,
            )
        )

    def _trainers(
        self, leases: Mapping[LeaseKey, ShadowLease], shapes: Mapping[str, str]
    ) -> tuple[Trainer, ...]:
        """Return the trainers as the broker sees them, by what job files state."""
        settings = self._site.planner
        wanted = [
            (self._as_submitted(name, leases), job) for name, job in self._jobs.items()
        ]
        inputs = RatingInputs(
            now_s=self._now_s,
            contenders=tuple(contender_of(trainer, job) for trainer, job in wanted),
            nodes=len(self._every.holes),
            t_fwd_s=settings.t_fwd_s,
        )
        ratings = rate(inputs, priority_of(settings), {}, background=())
        return tuple(
            planned_trainer(trainer, ratings, shapes[job.name])
            for trainer, job in wanted
        )

    def _as_submitted(
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


def _as_running(key: LeaseKey, lease: ShadowLease, shape: str) -> Lease:
    return Lease(
        key=key,
        job_id=None,
        display_id="",
        shape=shape,
        limit_min=max(1, math.ceil((lease.until_s - lease.start_s) / 60.0)),
        deadline_s=lease.until_s,
        state=LeaseState.RUNNING,
        node=lease.node,
        start_s=lease.start_s,
        end_s=lease.until_s,
    )


def _grouped(found: PartitionHoles) -> Iterator[tuple[str, Ends]]:
    """Yield the nodes of holes that end at one time, and that time."""
    by_end: dict[Ends, list[str]] = {}
    for hole in found.holes:
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


def last_observation(path: Path) -> ShadowLook | None:
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


def observations(path: Path) -> Iterator[ShadowLook]:
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
    """Return the observation that *line* of the file at *path* is.

    Raises:
        BadDataError: It is none.
    """
    try:
        return msgspec.json.decode(line, type=ShadowLook)
    except (ValueError, RecursionError) as error:
        raise BadDataError(
            f"{path} has a line that is no observation of `freetrain shadow` "
            f"({error}). Nothing was planned or scored. Move the file away to begin "
            f"anew."
        ) from error


# How well was foretold, by what came after


@dataclass(frozen=True, slots=True, kw_only=True)
class ForetoldHoles:
    """Holes of which an end was foretold: a job or reservation was planned there.

    Attributes:
        stayed: They lasted until then, or were gone by less than a look sooner.
        ended_early: They did not.
        early_s: By how much, in the median of these; None where there were none.
        unknown: It is not known, as they last still or observations were missing.
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

    node_s: float = 0.0
    samples: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ShadowScore:
    """The score of a file of observations.

    Attributes:
        first_s: When the first was, Unix time; ``last_s`` the last.
        observations: How many there were.
        torn: Those that a backfill cycle overlapped.
        missing_s: Time in gaps of more than five minutes, which counts for nothing.
        idle_mean: Idle nodes on average, over the observations.
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
    observations: int
    torn: int
    missing_s: float
    idle_mean: float
    nodes: int
    foretold: ForetoldHoles
    open: OpenHoles
    leases: int
    taken: int
    by_time: int
    by_plan: int
    training: Mapping[str, ShadowTraining]


def score_file(path: Path) -> ShadowScore:
    """Return the score of the observations in the file at *path*.

    Raises:
        MissingInputError: There are none.
        BadDataError: A line cannot be read.
        OSError: The file cannot be read.
    """
    try:
        return score(observations(path))
    except (FileNotFoundError, StopIteration) as error:
        raise MissingInputError(
            f"there is no observation in {path}; nothing was scored. Let `freetrain "
            f"shadow JOB.TOML` run each minute for a while first."
        ) from error


@dataclass(slots=True)
class _Episode:
    """A hole of one node, from the first observation that has it to the last."""

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
    """Return the score of observations, in order of time.

    Raises:
        StopIteration: There is none.
    """
    lines = iter(seen)
    last = first = next(lines)
    sums, counts, torn, idle, missing_s = _Sums(), 1, int(first.is_torn), 0, 0.0
    ends: Counter[str] = Counter()
    leases = len(first.leases)
    training: defaultdict[str, ShadowTraining] = defaultdict(ShadowTraining)
    episodes = dict(_begun(first))
    idle = len(episodes)
    for line in lines:
        counts, torn = counts + 1, torn + int(line.is_torn)
        gap_s = line.at_s - last.at_s
        now = dict(_begun(line))
        idle += len(now)
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
            training[name].node_s += done.node_s
            if done.samples is not None:
                so_far = training[name].samples or 0.0
                training[name].samples = so_far + done.samples
        last = line
    for hole in episodes.values():
        sums.over(hole, None)
    return ShadowScore(
        first_s=first.at_s,
        last_s=last.at_s,
        observations=counts,
        torn=torn,
        missing_s=missing_s,
        idle_mean=idle / counts,
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
