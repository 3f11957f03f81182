"""Harm, coverage, fairness and pauses, from the records of runs."""

import json
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from typing import NamedTuple

from freetrain.elastic.files import RunDir
from freetrain.state.files import (
    AssignmentFile,
    EndingKind,
    TrainerDir,
    generations,
    read_assigned,
    read_ending,
)
from tests.e2e.others import JobSeen, Run, Span, busy

_SLACK_S = 1.5
"""Slurm's times are whole seconds: jobs that touch may have overlapped."""


# Harm: how much later others' jobs started than in another run of their workload


class Delay(NamedTuple):
    """One job of the workload, in two runs.

    Attributes:
        name: The job.
        delay_s: How much later it started in the second, counted from the beginning
            of each run; below 0 is earlier.
        met_lease: Whether nodes that it got had held a lease while it waited.
        met_request: Whether a lease waited in the queue while it did.
        kept_s: How much of its wait in the second was after only leases held its
            nodes. The rest of a delay is that of the jobs it waited behind.
    """

    name: str
    delay_s: float
    met_lease: bool
    met_request: bool = False
    kept_s: float = 0.0


class Spread(NamedTuple):
    """Several delays in a few numbers, in seconds, NaN without any.

    Attributes:
        jobs: How many.
        median_s: Half are at most this.
        high_s: Nineteen of twenty are at most this.
        most_s: The largest.
    """

    jobs: int
    median_s: float
    high_s: float
    most_s: float


def delays(without: Run, run: Run) -> tuple[Delay, ...]:
    """Return the delay of each job of the workload in *run*, by its name.

    Raises:
        ValueError: The two did not run the same jobs, or one never started.
    """
    before, after = _starts(without), _starts(run)
    if before.keys() != after.keys():
        raise ValueError(f"different jobs: {sorted(before.keys() ^ after.keys())}")
    jobs = {job.name: job for job in run.others}
    return tuple(
        Delay(
            name,
            after[name] - before[name],
            met_lease(jobs[name], run.leases),
            met_request(jobs[name], run.leases),
            kept_s(jobs[name], run.others),
        )
        for name in sorted(before)
    )


def kept_s(job: JobSeen, others: Iterable[JobSeen]) -> float:
    """Return for how long *job* waited though none of *others* held its nodes."""
    if job.started_s is None:
        return math.nan
    gone_s = [
        other.ended_s
        for other in others
        if other is not job
        and other.nodes & job.nodes
        and other.started_s is not None
        and other.started_s < job.started_s
    ]
    free_s = max((s for s in gone_s if s is not None), default=-math.inf)
    return max(0.0, job.started_s - max(free_s, job.submitted_s))


def met_lease(job: JobSeen, leases: Iterable[JobSeen]) -> bool:
    """Tell whether any of *leases* held a node of *job*'s while that waited."""
    if job.started_s is None:
        return False
    return any(
        lease.nodes & job.nodes and _overlaps(lease, job.submitted_s, job.started_s)
        for lease in leases
    )


def met_request(job: JobSeen, leases: Iterable[JobSeen]) -> bool:
    """Tell whether any of *leases* waited in the queue while *job* did."""
    if job.started_s is None:
        return False
    return any(
        lease.submitted_s <= job.started_s and _waited_until(lease) > job.submitted_s
        for lease in leases
    )


def spread(seconds: Iterable[float]) -> Spread:
    ordered = sorted(seconds)
    if not ordered:
        return Spread(0, math.nan, math.nan, math.nan)
    median_s, high_s = (
        ordered[max(0, math.ceil(share * len(ordered)) - 1)] for share in (0.5, 0.95)
    )
    return Spread(len(ordered), median_s, high_s, ordered[-1])


def _starts(run: Run) -> dict[str, float]:
    never = [job.name for job in run.others if job.started_s is None]
    if never:
        raise ValueError(f"these jobs never started: {never}")
    return {
        job.name: job.started_s - run.origin_s
        for job in run.others
        if job.started_s is not None
    }


def _waited_until(lease: JobSeen) -> float:
    """Return when *lease* began, or was withdrawn before it could."""
    if lease.started_s is not None:
        return lease.started_s
    return math.inf if lease.ended_s is None else lease.ended_s


def _overlaps(lease: JobSeen, from_s: float, until_s: float) -> bool:
    if lease.started_s is None or lease.started_s > until_s:
        return False
    return lease.ended_s is None or lease.ended_s >= from_s - _SLACK_S


# Coverage: the share of idle node-time in which training went on


class Coverage(NamedTuple):
    """Node-seconds without jobs of others, and those in which a world trained."""

    idle_s: float
    trained_s: float

    @property
    def share(self) -> float:
        """The share that trained; 0 where nothing was idle."""
        return self.trained_s / self.idle_s if self.idle_s else 0.0


def coverage(
    run: Run,
    trained: Mapping[str, Sequence[Span]],
    *,
    nodes: Iterable[str],
    shortest_s: float,
) -> Coverage:
    """Return the coverage of *run*'s holes of *shortest_s* and more.

    Args:
        run: The record of others' jobs.
        trained: By node, when worlds trained there.
        nodes: All nodes of the cluster.
        shortest_s: Shorter holes do not count. A hole is as long as it turned out,
            cut off where the run begins and ends.
    """
    idle_s = trained_s = 0.0
    for node in nodes:
        for hole in holes(run.others, node, within=(run.origin_s, run.end_s)):
            if hole[1] - hole[0] >= shortest_s:
                idle_s += hole[1] - hole[0]
                trained_s += _within(trained.get(node, ()), hole)
    return Coverage(idle_s, trained_s)


def holes(others: Iterable[JobSeen], node: str, *, within: Span) -> list[Span]:
    """Return when none of *others* held *node*."""
    at_s, last_s = within
    found = []
    for start_s, end_s in busy(others, node, until_s=last_s):
        if start_s > at_s:
            found.append((at_s, min(start_s, last_s)))
        at_s = max(at_s, end_s)
    if at_s < last_s:
        found.append((at_s, last_s))
    return found


def _within(spans: Iterable[Span], hole: Span) -> float:
    """Return how much of *hole* is in *spans*, none of it counted twice."""
    total_s, at_s = 0.0, hole[0]
    for start_s, end_s in sorted(spans):
        begins_s, ends_s = max(start_s, at_s), min(end_s, hole[1])
        if ends_s > begins_s:
            total_s += ends_s - begins_s
            at_s = ends_s
    return total_s


# Many users: what each got, and what their leases gave up


class Fairness(NamedTuple):
    """What users' leases held over a while, beside each other.

    Attributes:
        held_s: Node-seconds, by user.
        jain: Jain's index: 1 where all held the same, 1/n where one held all.
        furthest: The largest distance of a user's from the mean, over the mean.
    """

    held_s: Mapping[str, float]
    jain: float
    furthest: float


def fairness(
    leases: Iterable[JobSeen], users: Collection[str], *, within: Span
) -> Fairness:
    """Return what *users* held *within* a time."""
    held_s = dict.fromkeys(users, 0.0)
    for lease in leases:
        if lease.user in held_s and lease.started_s is not None:
            until_s = within[1] if lease.ended_s is None else lease.ended_s
            held_s[lease.user] += _within([(lease.started_s, until_s)], within)
    squares = len(held_s) * sum(s * s for s in held_s.values())
    mean_s = sum(held_s.values()) / len(held_s)
    return Fairness(
        held_s,
        jain=sum(held_s.values()) ** 2 / squares if squares else math.nan,
        furthest=max(abs(s - mean_s) for s in held_s.values()) / mean_s
        if mean_s
        else math.nan,
    )


class GivenLease(NamedTuple):
    """A lease that its broker gave up: the job's name, its node, and its start."""

    name: str
    node: str
    start_s: float

    def found(self, run: Run) -> JobSeen | None:
        """Return the lease as it was seen; None where it never was."""
        return next((lease for lease in run.leases if self._is(lease)), None)

    def _is(self, lease: JobSeen) -> bool:
        return (
            lease.name == self.name
            and lease.nodes == {self.node}
            and lease.started_s is not None
            and abs(lease.started_s - self.start_s) <= _SLACK_S
        )

    def said(self, run: Run) -> str:
        """Return what became of its node, for people."""
        lease = self.found(run)
        if lease is None or lease.ended_s is None:
            return f"{self.name} on {self.node}: still there"
        after = _next_on(lease, run)
        waiting = [
            f"{job.name}, {len(job.nodes)} nodes, at {job.started_s - run.origin_s:.0f}"
            for job in run.others
            if job.started_s is not None
            and job.submitted_s - _SLACK_S <= lease.ended_s <= job.started_s + _SLACK_S
        ]
        began_s = 0.0 if after is None else (after.started_s or 0.0) - run.origin_s
        said = "nothing" if after is None else f"{after.name[:14]} at {began_s:.0f} s"
        return (
            f"{lease.user}'s on {self.node} from {self.start_s - run.origin_s:.0f} to "
            f"{lease.ended_s - run.origin_s:.0f} s, then {said}; waiting: {waiting}"
        )


def made_room(run: Run, given: Iterable[GivenLease]) -> set[GivenLease]:
    """Return those of *given* whose node a job took next that waited when it ended."""
    return {one for one in given if _was_needed(one.found(run), run)}


def _was_needed(lease: JobSeen | None, run: Run) -> bool:
    if lease is None or lease.ended_s is None:
        return False
    after = _next_on(lease, run)
    if after is None or after not in run.others:
        return False
    return after.submitted_s <= lease.ended_s + _SLACK_S


def _next_on(lease: JobSeen, run: Run) -> JobSeen | None:
    """Return the job that was next on the node of *lease*."""
    ended_s = lease.ended_s or 0.0
    later = [
        job
        for job in (*run.others, *run.leases)
        if job is not lease
        and job.nodes & lease.nodes
        and job.started_s is not None
        and job.started_s >= ended_s - _SLACK_S
    ]
    return min(later, key=lambda job: job.started_s or 0.0, default=None)


# Pauses: how long training stood still at each rescale


class Direction(StrEnum):
    """How the number of nodes changed."""

    GROW = "grow"
    SHRINK = "shrink"
    MOVE = "move"  # as many nodes, other ones


class Worked(NamedTuple):
    """The record of a generation that did steps.

    Attributes:
        assigned: Its assignment.
        started_s: When its state was restored and its first step began, Unix time.
        first_s: When its first step was done.
        last_s: When its last step was done.
        outcome_s: When rank 0 recorded its outcome, after the commit; None where it
            did not.
    """

    assigned: AssignmentFile
    started_s: float
    first_s: float
    last_s: float
    outcome_s: float | None


@dataclass(frozen=True, slots=True)
class Pause:
    """The time between the last step of one generation and the first of the next.

    Attributes:
        generation: The later one.
        was_asked: Whether the earlier one ended by a notice; otherwise it was killed.
        total_s: From last step done to first step done.
        commit_s: Of that until the commit; None where it was killed.
        launch_s: From there until the state was restored.
        step_s: The first step.
    """

    generation: int
    direction: Direction
    was_asked: bool
    total_s: float
    commit_s: float | None
    launch_s: float | None
    step_s: float


def read_worked(trainer: TrainerDir, run: RunDir) -> tuple[Worked, ...]:
    """Return every generation of *trainer* that did a step, in order."""
    steps: dict[int, list[float]] = {}
    starts: dict[int, float] = {}
    for line in run.progress.read_text(encoding="utf-8").splitlines():
        entry = json.loads(line)
        if entry.get("event") == "start":
            starts[entry["generation"]] = entry["t"]
        elif "step" in entry:
            steps.setdefault(entry["generation"], []).append(entry["t"])
    return tuple(
        Worked(
            read_assigned(trainer, generation),
            starts[generation],
            min(steps[generation]),
            max(steps[generation]),
            _outcome_s(run, generation),
        )
        for generation in generations(trainer.assignments)
        if generation in steps
    )


def pauses(trainer: TrainerDir, worked: Sequence[Worked]) -> tuple[Pause, ...]:
    """Return the pauses between *worked*, except where there were no nodes at all."""
    found = []
    for before, after in pairwise(worked):
        between = range(before.assigned.generation + 1, after.assigned.generation)
        if all(read_assigned(trainer, number).members for number in between):
            found.append(_pause(trainer, before, after))
    return tuple(found)


def trained(worked: Sequence[Worked]) -> dict[str, list[Span]]:
    """Return by node when *worked* trained there."""
    found: dict[str, list[Span]] = {}
    for own in worked:
        for member in own.assigned.members:
            found.setdefault(member.node, []).append((own.started_s, own.last_s))
    return found


def _pause(trainer: TrainerDir, before: Worked, after: Worked) -> Pause:
    ending = read_ending(trainer, before.assigned.generation)
    outcome_s = before.outcome_s
    change = len(after.assigned.members) - len(before.assigned.members)
    moved = Direction.SHRINK if change < 0 else Direction.MOVE
    return Pause(
        generation=after.assigned.generation,
        direction=Direction.GROW if change > 0 else moved,
        was_asked=ending is not None and ending.ended is EndingKind.RESCALED,
        total_s=after.first_s - before.last_s,
        commit_s=None if outcome_s is None else outcome_s - before.last_s,
        launch_s=None if outcome_s is None else after.started_s - outcome_s,
        step_s=after.first_s - after.started_s,
    )


def _outcome_s(run: RunDir, generation: int) -> float | None:
    path = run.outcome(generation)
    return float(json.loads(path.read_bytes())["t"]) if path.exists() else None
