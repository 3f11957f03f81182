"""The second half of observing: from what is so to what to do about it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from freetrain.broker.booking import Span
from freetrain.broker.claims import NO_CLAIMS, Ground, find_claims
from freetrain.broker.decide import Decision, Look, decide
from freetrain.broker.lease import uuid_in
from freetrain.broker.limits import Mode
from freetrain.broker.wanted import Trainer
from freetrain.jobfile.job import Nodes
from freetrain.jobfile.requirement import requirement_of
from freetrain.tick.ahead import look_ahead
from freetrain.tick.deserts import Deserts
from freetrain.tick.limits import margin_s
from freetrain.tick.planners import planner_of
from freetrain.tick.shapes import shape_name
from slurm.errors import SlurmRefusedError
from slurm.holes import find_holes
from slurm.hostlist import expand
from slurm.requirement import Requirement
from slurm.states import NodeState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from freetrain.broker.belief import Belief
    from freetrain.broker.claims import Claims
    from freetrain.broker.decide import Plans
    from freetrain.jobfile.job import TrainerJob
    from freetrain.site.settings import Site
    from freetrain.tick.foreseeing import Outlook
    from freetrain.tick.observe import Observed
    from freetrain.tick.run import Run
    from freetrain.tick.standing import Standing
    from slurm.holes import Hole
    from slurm.records import JobRecord


_SHARED = {NodeState.MIXED, NodeState.ALLOCATED, NodeState.PLANNED}


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    """What to do, and all that it was decided by.

    Attributes:
        look: What was so, as the broker takes it.
        decision: What to do.
        shapes: What leases ask of their nodes, by shape.
        deserts: What the priority says of the trainers.
        problems: What could not be taken into account, for people.
        outlook: What is expected of nodes; None where the policy looks at none.
    """

    look: Look
    decision: Decision
    shapes: Mapping[str, Requirement]
    deserts: Deserts
    problems: tuple[str, ...]
    outlook: Outlook | None = None


def decide_on(
    run: Run, observed: Observed, *, planner: Callable[..., Plans] = planner_of
) -> Decided:
    """Return what to do about what is so.

    Raises:
        SolverUnavailableError: The solver asked for is not installed.
        MilpError: The planning problem contradicts itself.
        UnreadableOutputError: Slurm's lists of nodes cannot be read.
        BadConfigurationError: There is no such priority.
        StoreError: What it remembers cannot be read.
    """
    shapes = _shapes(run.site, observed)
    holes, problems = _holes(run, observed, shapes)
    claims = _claims(run, observed, shapes)
    nodes = {hole.node for found in holes.values() for hole in found}
    deserts = _deserts(run, observed, nodes=len(nodes))
    look = Look(
        now_s=observed.now_s,
        holes=holes,
        belief=_without_the_unreadable(observed, claims),
        trainers=_trainers(run.site, observed, deserts),
        assignments=tuple(
            one.newest.assignment
            for one in observed.trainers
            if one.newest is not None and not one.problem
        ),
        claims=claims,
        pace=observed.pace,
        silent=observed.hearing.silent,
        absent=observed.hearing.absent,
        unheard_s=observed.hearing.unheard_s,
        is_plan_known=observed.is_plan_known,
    )
    settings = run.site.planner
    plans = planner(settings, background=deserts.background)
    is_ours = _ours(run, observed)
    outlook, foresight = look_ahead(run, observed, deserts, is_ours=is_ours)
    decision = decide(
        look,
        plans,
        observed.limits,
        t_fwd_s=settings.t_fwd_s,
        foresight=foresight,
    )
    unreadable = tuple(one.problem for one in observed.trainers if one.problem)
    dropped = (outlook.problem,) if outlook is not None and outlook.problem else ()
    return Decided(
        look=look,
        decision=decision,
        shapes=shapes,
        deserts=deserts,
        problems=(*unreadable, *problems, *dropped),
        outlook=outlook,
    )


def requirement_for(site: Site, job: TrainerJob, observed: Observed) -> Requirement:
    """Return what leases for *job* ask of their nodes."""
    default = observed.partition.name
    return requirement_of(job.nodes, site.lease, default_partition=default)


def _shapes(site: Site, observed: Observed) -> dict[str, Requirement]:
    """Return what is asked of nodes, by shape; the site's own where nobody asks."""
    wanted = [
        requirement_for(site, one.job, observed)
        for one in observed.trainers
        if one.job is not None and one.is_wanted
    ]
    if not wanted:
        default = observed.partition.name
        own = requirement_of(Nodes(max_nodes=1), site.lease, default_partition=default)
        wanted = [own]
    return {shape_name(one): one for one in wanted}


def _holes(
    run: Run, observed: Observed, shapes: Mapping[str, Requirement]
) -> tuple[dict[str, tuple[Hole, ...]], tuple[str, ...]]:
    """Return the holes of each shape; a shape that Slurm cannot have gets none."""
    holes: dict[str, tuple[Hole, ...]] = {}
    problems = []
    for shape, requirement in shapes.items():
        try:
            holes[shape] = _holes_of(run, observed, requirement)
        except SlurmRefusedError as error:
            problems.append(str(error))
    return holes, tuple(problems)


def _holes_of(
    run: Run,
    observed: Observed,
    requirement: Requirement,
    *,
    is_left_early: bool = True,
) -> tuple[Hole, ...]:
    named = (p for p in observed.snapshot.partitions if p.name == requirement.partition)
    partition = next(named, observed.partition)
    early_s = margin_s(run.site, observed.config, partition)
    return find_holes(
        observed.snapshot,
        requirement,
        is_ours=_ours(run, observed),
        margin_s=early_s if is_left_early else 0.0,
        window_s=observed.config.bf_window_s,
    )


def _ours(run: Run, observed: Observed) -> Callable[[JobRecord], bool]:
    known = frozenset(intent.uuid for intent in observed.belief.intents)
    uid = run.outside.uid
    return lambda job: job.uid == uid and uuid_in(job.name) in known


def _claims(run: Run, observed: Observed, shapes: Mapping[str, Requirement]) -> Claims:
    """Return which nodes others could start on, where they cannot take them."""
    if observed.limits.mode is Mode.PREEMPT:
        return NO_CLAIMS
    held = [one for one in observed.belief.leases if one.is_live and one.node]
    is_ours = _ours(run, observed)
    ground = Ground(
        holes=_every_hole(run, observed, shapes),
        nodes={node.name: node for node in observed.snapshot.nodes},
        leased=frozenset(one.node for one in held),
        partly=frozenset(_partly(observed)),
        spans={
            one.node: Span(one.start_s, one.end_s)
            for one in held
            if one.start_s is not None and one.end_s is not None
        },
        busy_until_s=_busy_until_s(observed.snapshot.jobs, is_ours),
    )
    jobs, now_s = observed.snapshot.jobs, observed.now_s
    return find_claims(jobs, ground, is_ours=is_ours, now_s=now_s)


def _busy_until_s(
    jobs: Iterable[JobRecord], is_ours: Callable[[JobRecord], bool]
) -> dict[str, float]:
    """Return when nodes that others hold come free, by the limits of their jobs."""
    until_s: dict[str, float] = {}
    for job in jobs:
        if job.holds_nodes and not is_ours(job):
            end_s = math.inf if job.end_s is None else job.end_s
            for name in expand(job.nodes):
                until_s[name] = max(end_s, until_s.get(name, 0.0))
    return until_s


def _partly(observed: Observed) -> Iterator[str]:
    """Yield the nodes that jobs hold a part of, so that others may start beside."""
    for node in observed.snapshot.nodes:
        is_up = node.states <= _SHARED and not node.unknown_states
        if is_up and 0 < node.allocated_cpus < node.cpus:
            yield node.name


def _every_hole(
    run: Run, observed: Observed, shapes: Mapping[str, Requirement]
) -> tuple[Hole, ...]:
    """Return the holes of every partition that leases are in, whatever is asked."""
    partitions = {one.partition for one in shapes.values()} | {observed.partition.name}
    there = {partition.name for partition in observed.snapshot.partitions}
    found = {
        hole.node: hole
        for name in sorted(partitions & there)
        for hole in _holes_of(
            run, observed, Requirement(partition=name), is_left_early=False
        )
    }
    return tuple(found.values())


def _deserts(run: Run, observed: Observed, *, nodes: int) -> Deserts:
    if not any(one.is_wanted for one in observed.trainers):
        return Deserts(priority=run.site.planner.priority)
    # Imported here: a tick that has nothing to do must stay cheap.
    from freetrain.tick.rated import deserts_of  # noqa: PLC0415

    return deserts_of(run, observed, nodes=nodes)


def _trainers(site: Site, observed: Observed, deserts: Deserts) -> tuple[Trainer, ...]:
    return tuple(
        _trainer(site, observed, one.job, one, deserts)
        for one in observed.trainers
        if one.job is not None and one.is_wanted
    )


def _trainer(
    site: Site,
    observed: Observed,
    job: TrainerJob,
    standing: Standing,
    deserts: Deserts,
) -> Trainer:
    name, newest = standing.row.name, standing.newest
    contender = deserts.contenders[name]
    return Trainer(
        name=name,
        curve=deserts.curves[name],
        shape=shape_name(requirement_for(site, job, observed)),
        up_s=contender.grow_s,
        down_s=contender.shrink_s,
        start_s=contender.start_s,
        assignment=None if newest is None else newest.assignment,
    )


def _without_the_unreadable(observed: Observed, claims: Claims) -> Belief:
    """Return what is believed but for leases of trainers that cannot be read.

    Nothing is done about those: what runs, runs on. But nobody waits for them.
    """
    names = {one.row.name for one in observed.trainers if one.problem}
    if not names:
        return observed.belief
    theirs = {
        key for key, beat in observed.hearing.beats.items() if beat.trainer in names
    }
    kept = (
        one
        for one in observed.belief.leases
        if one.key not in theirs or one.node in claims.leased
    )
    return replace(observed.belief, leases=tuple(kept))
