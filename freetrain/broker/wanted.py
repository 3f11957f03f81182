"""From trainers and a pool to a planning problem, and from a plan to leases."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from milp.assign import assign
from milp.problem import Problem, TrainerState

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from freetrain.broker.lease import Assignment, LeaseKey
    from freetrain.broker.limits import Limits
    from freetrain.broker.pool import Classes, Pool, PoolNode
    from milp.problem import Curve, Plan

_SPREAD = 1.1
"""Holes whose lives differ by less are asked for together: each request is a call."""


@dataclass(frozen=True, slots=True)
class Trainer:
    """A trainer that wants nodes, as the broker sees it.

    Attributes:
        name: Unique among the trainers.
        curve: Its worth by node count.
        shape: The requirement that its nodes must meet.
        up_s: Seconds that growing costs.
        down_s: Seconds that shrinking costs.
        start_s: Seconds that starting from no nodes costs.
        assignment: Its newest generation, None before the first.
    """

    name: str
    curve: Curve
    shape: str
    up_s: float
    down_s: float
    start_s: float
    assignment: Assignment | None = None

    @property
    def leases(self) -> frozenset[LeaseKey]:
        """The leases of its newest generation."""
        return frozenset() if self.assignment is None else self.assignment.leases


@dataclass(frozen=True, slots=True)
class WantedTrainer:
    """What one trainer is to have.

    Attributes:
        name: The trainer's name.
        sizes: Node counts that it can use, ascending.
        leases: Running leases that the plan gives it.
        awaited_nodes: Nodes beyond those for which leases are yet to come.
    """

    name: str
    sizes: tuple[int, ...]
    leases: frozenset[LeaseKey]
    awaited_nodes: int = 0

    @property
    def planned_nodes(self) -> int:
        """How many nodes the plan gives it."""
        return len(self.leases) + self.awaited_nodes


@dataclass(frozen=True, slots=True)
class WantedLeases:
    """Equal leases that the plan needs beyond those that run.

    Attributes:
        shape: Requirement to ask with.
        limit_min: Time limit to ask for, whole minutes.
        most_limit_min: The longest limit that still fits into the holes.
        deadline_s: Unix time by which they must have ended.
        end_s: When the first of their holes ends, Unix time.
        nodes: Holes they are meant for; Slurm chooses.
    """

    shape: str
    limit_min: int
    most_limit_min: float
    deadline_s: float
    end_s: float
    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a plan asks for, in leases.

    Attributes:
        trainers: In order of admission.
        requests: Leases that must wait in Slurm's queue, longest first.
    """

    trainers: tuple[WantedTrainer, ...]
    requests: tuple[WantedLeases, ...]

    @property
    def kept(self) -> frozenset[LeaseKey]:
        """The running leases that some trainer is to have."""
        return frozenset(key for trainer in self.trainers for key in trainer.leases)


def held_nodes(
    trainers: Iterable[Trainer], pool: Pool
) -> tuple[tuple[PoolNode, ...], ...]:
    """Return the nodes of *pool* that each trainer runs on now.

    A trainer whose curve has become shorter holds as many as it can use; the
    others are anybody's.
    """
    by_lease = {node.lease.key: node for node in pool.nodes if node.lease is not None}
    held = []
    for trainer in trainers:
        mine = [by_lease[key] for key in trainer.leases if key in by_lease]
        mine.sort(key=lambda node: (-node.end_s, node.name))
        held.append(tuple(mine[: trainer.curve.sizes[-1]]))
    return tuple(held)


def problem_of(
    trainers: Sequence[Trainer], classes: Classes, *, t_fwd_s: float
) -> Problem:
    """Return what the planner is to solve."""
    states = []
    for trainer, mine in zip(trainers, held_nodes(trainers, classes.pool), strict=True):
        held = [0] * len(classes.classes)
        for node in mine:
            held[classes.index[node.name]] += 1
        shapes = enumerate(classes.shapes)
        usable = (k for k, met in shapes if trainer.shape in met)
        states.append(
            TrainerState(
                name=trainer.name,
                curve=trainer.curve,
                held=tuple(held),
                up_s=trainer.up_s,
                down_s=trainer.down_s,
                start_s=trainer.start_s,
                usable=frozenset(usable),
            )
        )
    return Problem(classes.classes, tuple(states), t_fwd_s)


def wanted_of(
    plan: Plan,
    trainers: Sequence[Trainer],
    classes: Classes,
    *,
    now_s: float,
    limits: Limits,
) -> Wanted:
    """Return the leases that *plan* needs.

    Trainers keep, and grow into, nodes that run a lease already and last longest.

    Raises:
        MalformedProblemError: The plan is for another pool.
    """
    pool = classes.pool
    held = held_nodes(trainers, pool)
    taken = {node.name for mine in held for node in mine}
    node_of = {node.name: node for node in pool.nodes}
    given = assign(
        plan.counts,
        [[node.name for node in mine] for mine in held],
        free=[node.name for node in pool.nodes if node.name not in taken],
        rank=lambda name: _rank(node_of[name]),
        class_of=lambda name: classes.index[name],
    )
    wanted, idle = [], []
    for trainer, names in zip(trainers, given, strict=True):
        nodes = [node_of[name] for name in sorted(names)]
        leases = frozenset(n.lease.key for n in nodes if n.lease is not None)
        awaited = [node for node in nodes if node.lease is None]
        idle += [(trainer.shape, node) for node in awaited]
        wanted.append(
            WantedTrainer(trainer.name, trainer.curve.sizes, leases, len(awaited))
        )
    return Wanted(tuple(wanted), _requests(idle, now_s=now_s, limits=limits))


def _rank(node: PoolNode) -> tuple[bool, float]:
    return (node.lease is not None, node.end_s)


def _requests(
    idle: Sequence[tuple[str, PoolNode]], *, now_s: float, limits: Limits
) -> tuple[WantedLeases, ...]:
    by_shape: dict[str, list[PoolNode]] = defaultdict(list)
    for shape, node in sorted(idle, key=lambda one: (one[1].end_s, one[1].name)):
        by_shape[shape].append(node)
    requests = (
        _request(shape, group, now_s=now_s, limits=limits)
        for shape, nodes in by_shape.items()
        for group in _alike(nodes, now_s, 60.0 * limits.most_limit_min)
    )
    return tuple(sorted(requests, key=lambda r: (-r.limit_min, r.shape, r.nodes)))


def _alike(
    nodes: Sequence[PoolNode], now_s: float, longest_s: float
) -> tuple[list[PoolNode], ...]:
    """Split *nodes*, by end, where leases as short as the first would waste much."""
    groups: list[list[PoolNode]] = []
    for node in nodes:
        life_s = min(node.end_s - now_s, longest_s)
        if groups and life_s <= _SPREAD * (groups[-1][0].end_s - now_s):
            groups[-1].append(node)
        else:
            groups.append([node])
    return tuple(groups)


def _request(
    shape: str, nodes: Sequence[PoolNode], *, now_s: float, limits: Limits
) -> WantedLeases:
    """Return the leases that fit into all of *nodes*.

    Slurm counts limits in whole minutes, so what does not fill one is cut off. The
    deadline is what takes a lease away that started too late for its hole.
    """
    end_s = min(node.end_s for node in nodes)
    fits_min = (end_s - now_s) / 60.0
    slack_min = limits.start_slack_s / 60.0
    limit_min = math.floor(min(fits_min - slack_min, limits.most_limit_min))
    latest_s = now_s + 60.0 * limit_min + limits.open_patience_s
    return WantedLeases(
        shape=shape,
        limit_min=limit_min,
        most_limit_min=fits_min,
        deadline_s=min(end_s, latest_s),
        end_s=end_s,
        nodes=tuple(sorted(node.name for node in nodes)),
    )
