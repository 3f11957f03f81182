"""The whole decision of a tick, pure: from holes, trainers and leases to actions.

``decide`` sorts the nodes that can be planned with into classes, asks the policy how
many of each class every trainer gets, names the leases that this takes, and compares
them with those that exist (``reconcile``). It also says why, for users.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from freetrain.broker.lease import LeaseState
from freetrain.broker.limits import NOTHING_LATELY, HoleReason, Pace, TrainerReason
from freetrain.broker.pool import classify, classify_by, pool_of, rank_by
from freetrain.broker.reconcile import (
    Actual,
    Wanted,
    WantedLeases,
    WantedTrainer,
    allowance,
    reconcile,
)
from freetrain.broker.yielding import NO_CLAIMS, Claims
from freetrain.planning.policy import ClassForecast, PlanTrainer, Request
from milp.answer import assign

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from freetrain.broker.belief import Belief
    from freetrain.broker.lease import Assignment, LeaseKey
    from freetrain.broker.limits import Brake, Limits, Refusal
    from freetrain.broker.pool import Classes, Foresight, Pool, PoolNode
    from freetrain.broker.reconcile import Action
    from freetrain.planning.policy import Planned, Policy
    from milp.problem import Curve
    from milp.window import Holding
    from slurm.holes import Hole


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
        loss_s: Seconds of its work that losing nodes costs.
    """

    name: str
    curve: Curve
    shape: str
    up_s: float
    down_s: float
    start_s: float
    assignment: Assignment | None = None
    loss_s: float = 0.0

    @property
    def leases(self) -> frozenset[LeaseKey]:
        """The leases of its newest generation."""
        return frozenset() if self.assignment is None else self.assignment.leases


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """All that a decision is made of.

    Attributes:
        now_s: When the snapshot was taken, by slurmctld's clock.
        holes: Holes by shape: one ``find_holes`` for each requirement.
        belief: What is believed of our leases.
        trainers: Trainers that want nodes.
        assignments: The newest generation of every trainer that has one.
        claims: Nodes that others' jobs could start on; none where Slurm preempts.
        pace: What happened lately.
        silent: Leases whose agents do not answer: not up yet, leaving, or lost.
        absent: Leases of which no agent was ever heard.
        unheard_s: For how long running leases have not been heard.
        is_plan_known: Whether the holes can be trusted.
        background: Names of trainers that get only what the others leave.
    """

    now_s: float
    holes: Mapping[str, tuple[Hole, ...]]
    belief: Belief
    trainers: tuple[Trainer, ...]
    assignments: tuple[Assignment, ...]
    claims: Claims = NO_CLAIMS
    pace: Pace = NOTHING_LATELY
    silent: frozenset[LeaseKey] = frozenset()
    absent: frozenset[LeaseKey] = frozenset()
    unheard_s: Mapping[LeaseKey, float] = field(default_factory=dict)
    is_plan_known: bool = True
    background: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Decision:
    """What to do, and all that explains it.

    Attributes:
        actions: What to do, in order.
        wanted: What the plan asks for.
        classes: The nodes planned with.
        actual: What was so.
        planned: The plan.
        brake: What keeps more leases from being asked for, None for nothing.
        trainers: Why each trainer has what it has.
        holes: What each hole is used for, or why for nothing.
    """

    actions: tuple[Action, ...]
    wanted: Wanted
    classes: Classes
    actual: Actual
    planned: Planned
    brake: Brake | None
    trainers: tuple[TrainerExplanation, ...]
    holes: tuple[HoleExplanation, ...]


def decide(
    look: Look,
    policy: Policy,
    limits: Limits,
    *,
    t_fwd_s: float,
    foresight: Foresight | None = None,
) -> Decision:
    """Return what to do about *look*.

    Args:
        look: What is so.
        policy: What plans; it keeps what runs where it fails.
        limits: Caps and patience.
        t_fwd_s: Look-ahead over which a plan's gain is counted, seconds.
        foresight: How long nodes are expected to stay, by which they are sorted and
            planned with; None where that is not known.

    Raises:
        MalformedProblemError: Two trainers have one name, or a curve makes no sense.
    """
    now_s = look.now_s
    pool = pool_of(
        look.holes,
        look.belief.leases,
        claimed=look.claims.nodes,
        assigned=frozenset(key for one in look.assignments for key in one.leases),
        now_s=now_s,
        limits=limits,
        kept=look.claims.kept_free.nodes.keys(),
        rank=None if foresight is None else partial(rank_by, foresight, now_s=now_s),
    )
    if foresight is None:
        classes, forecast = classify(pool, now_s=now_s), None
    else:
        classes, forecast = classify_by(foresight, pool, now_s=now_s)
    planned = policy.plan(
        request_of(
            look.trainers,
            classes,
            t_fwd_s=t_fwd_s,
            background=look.background,
            forecast=forecast,
        )
    )
    wanted = wanted_of(
        planned.holdings, look.trainers, classes, now_s=now_s, limits=limits
    )
    actual = _actual(look, frozenset(node.name for node in pool.nodes))
    intents = look.belief.intents
    may = allowance(
        actual, intents, limits, churn=limits.most_churn - look.pace.churned
    )
    brake = may.brake if may.leases == 0 else None
    return Decision(
        actions=reconcile(wanted, actual, intents, limits),
        wanted=wanted,
        classes=classes,
        actual=actual,
        planned=planned,
        brake=brake,
        trainers=explain_trainers(
            look.trainers, wanted, classes, holes=look.holes, brake=brake
        ),
        holes=explain_holes(classes, wanted, actual, brake=brake),
    )


def _actual(look: Look, pool_nodes: frozenset[str]) -> Actual:
    return Actual(
        leases=look.belief.leases,
        assignments=look.assignments,
        now_s=look.now_s,
        pool_nodes=pool_nodes,
        extras=look.belief.extras,
        claims=look.claims,
        pace=look.pace,
        silent=look.silent,
        absent=look.absent,
        unheard_s=look.unheard_s,
        is_plan_known=look.is_plan_known,
    )


# What the policy is asked, and the leases that its answer takes.


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


def request_of(
    trainers: Sequence[Trainer],
    classes: Classes,
    *,
    t_fwd_s: float,
    background: frozenset[str] = frozenset(),
    forecast: ClassForecast | None = None,
) -> Request:
    """Return what the policy is asked.

    Args:
        trainers: Those that want nodes.
        classes: The nodes.
        t_fwd_s: Look-ahead over which a plan's gain is counted, seconds.
        background: Names of trainers that get only what the others leave.
        forecast: How long the nodes of the classes stay; None where that is not known.
    """
    free = {k: node_class.nodes for k, node_class in enumerate(classes.classes)}
    asking = []
    for trainer, mine in zip(trainers, held_nodes(trainers, classes.pool), strict=True):
        held = Counter(classes.index[node.name] for node in mine)
        for k, nodes in held.items():
            free[k] -= nodes
        shapes = enumerate(classes.shapes)
        asking.append(
            PlanTrainer(
                name=trainer.name,
                curve=trainer.curve,
                held=dict(sorted(held.items())),
                up_s=trainer.up_s,
                down_s=trainer.down_s,
                start_s=trainer.start_s,
                loss_s=trainer.loss_s,
                usable=frozenset(k for k, met in shapes if trainer.shape in met),
            )
        )
    return Request(
        trainers=asking,
        free=free,
        t_fwd_s=t_fwd_s,
        background=background,
        forecast=forecast,
    )


_SPREAD = 1.1
"""Holes whose lives differ by less are asked for together: each request is a call."""


def wanted_of(
    holdings: Sequence[Holding],
    trainers: Sequence[Trainer],
    classes: Classes,
    *,
    now_s: float,
    limits: Limits,
) -> Wanted:
    """Return the leases that a plan needs.

    Trainers keep, and grow into, nodes that run a lease already and last longest.

    Args:
        holdings: The plan: nodes by class, of each trainer.
        trainers: Those that were planned for.
        classes: The nodes.
        now_s: Unix time.
        limits: Caps and patience.

    Raises:
        MalformedProblemError: The plan is for another pool.
    """
    pool = classes.pool
    held = held_nodes(trainers, pool)
    taken = {node.name for mine in held for node in mine}
    node_of = {node.name: node for node in pool.nodes}
    given = assign(
        [[own.get(k, 0) for k in range(len(classes.classes))] for own in holdings],
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


# Why a trainer has what it has, and why a hole stays empty.


@dataclass(frozen=True, slots=True)
class TrainerExplanation:
    """Why a trainer has what it has.

    Attributes:
        trainer: Its name.
        reason: Why.
        nodes: How many nodes its newest generation has.
        planned_nodes: How many the plan gives it.
        usable_nodes: How many meet its requirement, others' included.
        brake: What keeps leases from being asked for, None for nothing.
        refusal: Why most holes that meet its requirement cannot be used; None
            where some can, or none is there.
    """

    trainer: str
    reason: TrainerReason
    nodes: int
    planned_nodes: int
    usable_nodes: int
    brake: Brake | None = None
    refusal: Refusal | None = None


@dataclass(frozen=True, slots=True)
class HoleExplanation:
    """What a hole is used for, or why for nothing.

    Attributes:
        node: NodeName.
        reason: What for.
        refusal: Why it cannot be planned with, None where it can.
        brake: What keeps leases from being asked for, None for nothing.
    """

    node: str
    reason: HoleReason
    refusal: Refusal | None = None
    brake: Brake | None = None


def explain_trainers(
    trainers: Sequence[Trainer],
    wanted: Wanted,
    classes: Classes,
    *,
    holes: Mapping[str, Sequence[Hole]],
    brake: Brake | None,
) -> tuple[TrainerExplanation, ...]:
    """Return why each of *trainers* has what it has.

    Args:
        trainers: As they stood when planning.
        wanted: What the plan asks for, in the same order.
        classes: The nodes planned with.
        holes: Holes by requirement, those included that cannot be planned with.
        brake: What kept leases from being asked for.
    """
    usable: Counter[str] = Counter()
    for node_class, shapes in zip(classes.classes, classes.shapes, strict=True):
        usable.update(dict.fromkeys(shapes, node_class.nodes))
    refusals = {
        shape: _mostly(classes.pool.refused, found) for shape, found in holes.items()
    }
    return tuple(
        _explained(
            trainer, one, usable[trainer.shape], refusals.get(trainer.shape), brake
        )
        for trainer, one in zip(trainers, wanted.trainers, strict=True)
    )


def _explained(
    trainer: Trainer,
    one: WantedTrainer,
    usable: int,
    refusal: Refusal | None,
    brake: Brake | None,
) -> TrainerExplanation:
    reason = _why(trainer, one, usable, brake)
    is_refused = reason is TrainerReason.NO_NODES and refusal is not None
    return TrainerExplanation(
        trainer=trainer.name,
        reason=TrainerReason.NO_USABLE_NODES if is_refused else reason,
        nodes=len(trainer.leases),
        planned_nodes=one.planned_nodes,
        usable_nodes=usable,
        brake=brake if one.awaited_nodes else None,
        refusal=refusal if is_refused else None,
    )


def _mostly(refused: Mapping[str, Refusal], holes: Iterable[Hole]) -> Refusal | None:
    """Return why most of *holes* were refused; None where none was."""
    why = Counter(refused[hole.node] for hole in holes if hole.node in refused)
    return why.most_common(1)[0][0] if why else None


def _why(
    trainer: Trainer, one: WantedTrainer, usable: int, brake: Brake | None
) -> TrainerReason:
    if one.awaited_nodes:
        return TrainerReason.HELD_BACK if brake else TrainerReason.AWAITS_LEASES
    if one.leases != trainer.leases:
        return TrainerReason.RE_FORMS
    if one.leases:
        return TrainerReason.AS_PLANNED
    if not usable:
        return TrainerReason.NO_NODES
    if usable < trainer.curve.sizes[0]:
        return TrainerReason.TOO_FEW_NODES
    return TrainerReason.OTHERS_GAIN_MORE


def explain_holes(
    classes: Classes, wanted: Wanted, actual: Actual, *, brake: Brake | None
) -> tuple[HoleExplanation, ...]:
    """Return what each hole is used for, in Slurm's order, the refused ones last."""
    awaited = {node for request in wanted.requests for node in request.nodes}
    training = {key for one in actual.assignments for key in one.leases}
    running = {
        lease.node: lease.key in training
        for lease in actual.leases
        if lease.state is LeaseState.RUNNING
    }
    used = []
    for node in classes.pool.nodes:
        if node.name in running:
            trains = running[node.name]
            reason = HoleReason.TRAINING if trains else HoleReason.LEASED
        elif node.name in awaited:
            reason = HoleReason.HELD_BACK if brake else HoleReason.AWAITED
        else:
            reason = HoleReason.UNWANTED
        held_back = brake if reason is HoleReason.HELD_BACK else None
        used.append(HoleExplanation(node.name, reason, brake=held_back))
    refused = classes.pool.refused.items()
    unusable = (HoleExplanation(n, HoleReason.UNUSABLE, why) for n, why in refused)
    return (*used, *unusable)
