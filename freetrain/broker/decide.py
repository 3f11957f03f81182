"""The whole decision of a tick, pure: from holes, trainers and leases to actions.

``decide_leases`` sorts the nodes that can be planned with into classes, asks the policy
how many of each class every trainer gets, names the leases that this takes, and
compares them with those that exist (``reconcile``). It also says why, for users.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter, defaultdict
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from freetrain.broker.pool import (
    classify,
    classify_by,
    divided,
    is_piece,
    pool_of,
    rank_by,
)
from freetrain.broker.reasons import HoleReason, TrainerReason
from freetrain.broker.reconcile import Wanted, WantedLeases, WantedTrainer, reconcile
from freetrain.config.job import size_within
from freetrain.planning.policy import ClassForecast, PlanTrainer, Request
from freetrain.planning.rating import start_cost_s, start_loss_s
from freetrain.scaling import ASSUMED_STAY_S
from milp.answer import assign

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from freetrain.broker.lease import LeaseKey
    from freetrain.broker.limits import Limits
    from freetrain.broker.pool import (
        Classes,
        Foresight,
        PoolNode,
        Situation,
        Trainer,
    )
    from freetrain.broker.reasons import Brake, Refusal
    from freetrain.broker.reconcile import Action
    from freetrain.planning.policy import Planned, Policy
    from milp.window import Holding
    from slurm.holes import Hole


@dataclass(frozen=True, slots=True)
class Decision:
    """The actions of a tick, and the reasons for them.

    Attributes:
        actions: In the order in which they are carried out.
        wanted: The leases that the plan asks for.
        classes: The nodes planned with.
        refused: Why other holes cannot be planned with, by node.
        planned: The plan.
        brake: Why no more leases may be asked for, None where they may.
        trainers: Why each trainer has the nodes it has.
        holes: What each hole is used for, in Slurm's order, the refused ones last.
    """

    actions: tuple[Action, ...]
    wanted: Wanted
    classes: Classes
    refused: Mapping[str, Refusal]
    planned: Planned
    brake: Brake | None
    trainers: tuple[TrainerExplanation, ...]
    holes: tuple[HoleExplanation, ...]


def decide_leases(
    situation: Situation,
    policy: Policy,
    limits: Limits,
    *,
    t_fwd_s: float,
    foresight: Foresight | None = None,
) -> Decision:
    """Return what to do about leases and generations.

    Args:
        situation: All that is known.
        policy: What plans; it keeps what runs where it fails.
        limits: Caps and time-outs.
        t_fwd_s: Look-ahead over which a plan's gain is counted, seconds.
        foresight: How long nodes are expected to stay, by which they are sorted and
            planned with; None where that is not known. Where leases take pieces, the
            policy first plans without it, which divides idle nodes among the shapes;
            looking ahead then says which trainer gets what of those of its shape.

    Raises:
        MalformedProblemError: Two trainers have one name, or a curve makes no sense.
    """
    now_s = situation.now_s
    stay_s = ASSUMED_STAY_S if foresight is None else foresight.stay_s
    ask = partial(_asked, situation, t_fwd_s=t_fwd_s, stay_s=stay_s)
    rank = None if foresight is None else partial(rank_by, foresight, now_s=now_s)
    nodes, refused = pool_of(situation, limits, rank=rank)
    if foresight is None:
        usable = classes = classify(nodes, now_s=now_s)
        planned = policy.plan(ask(classes))
    elif situation.widths:
        usable = classify(nodes, now_s=now_s)
        given: Mapping[tuple[str, str], int] = {}
        if any(len(node.shapes) > 1 for node in nodes):
            given = _given_idle(policy.plan(ask(usable)), situation.trainers, usable)
        blocks = divided(usable, given)
        classes, forecast = classify_by(foresight, blocks, now_s=now_s)
        planned = policy.plan(ask(classes, forecast=forecast))
    else:
        classes, forecast = classify_by(foresight, nodes, now_s=now_s)
        usable = classes
        planned = policy.plan(ask(classes, forecast=forecast))
    wanted = wanted_of(
        planned.holdings, situation.trainers, classes, now_s=now_s, limits=limits
    )
    actions, brake = reconcile(
        wanted,
        situation,
        limits,
        pool_nodes=frozenset(node.node for node in nodes),
    )
    return Decision(
        actions=actions,
        wanted=wanted,
        classes=classes,
        refused=refused,
        planned=planned,
        brake=brake,
        trainers=_explain_trainers(situation, wanted, usable, refused, brake),
        holes=_explain_holes(situation, wanted, nodes, refused, brake),
    )


# What the policy is asked, and the leases that its answer takes.


def _asked(
    situation: Situation,
    classes: Classes,
    *,
    t_fwd_s: float,
    stay_s: float,
    forecast: ClassForecast | None = None,
) -> Request:
    """Return what the policy is asked about *classes*.

    Args:
        situation: All that is known.
        classes: The nodes.
        t_fwd_s: Look-ahead of a plan without a forecast, seconds.
        stay_s: How long trainers keep nodes, over which a start is spread.
        forecast: How long the nodes of the classes stay; None where that is not known.
    """
    reach_s = t_fwd_s if forecast is None else forecast.reach_s
    held_of = held_nodes(situation.trainers, classes.nodes)
    return request_of(
        [
            trainer if held else _waiting(trainer, stay_s=stay_s, reach_s=reach_s)
            for trainer, held in zip(situation.trainers, held_of, strict=True)
        ],
        classes,
        t_fwd_s=t_fwd_s,
        background=situation.background,
        forecast=forecast,
    )


def _waiting(trainer: Trainer, *, stay_s: float, reach_s: float) -> Trainer:
    """Return *trainer*, which has no nodes, with the costs that a plan is charged."""
    start_s, lost_s = trainer.start_s, max(0.0, trainer.loss_s - trainer.down_s)
    return replace(
        trainer,
        start_s=start_cost_s(start_s, stay_s=stay_s, reach_s=reach_s),
        loss_s=start_loss_s(lost_s, start_s, stay_s=stay_s),
    )


def held_nodes(
    trainers: Iterable[Trainer], nodes: Iterable[PoolNode]
) -> tuple[tuple[PoolNode, ...], ...]:
    """Return which of *nodes* each trainer runs on now.

    A trainer whose curve has become shorter holds as many as it can use; the others
    are free.
    """
    by_lease = {node.lease.key: node for node in nodes if node.lease is not None}
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
    held_of = held_nodes(trainers, classes.nodes)
    for trainer, mine in zip(trainers, held_of, strict=True):
        held = Counter(classes.index[node.name] for node in mine)
        for k, leases in held.items():
            free[k] -= leases * classes.width(trainer.shape, k)
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
                widths=classes.widths_of(trainer.shape),
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
        limits: Caps and time-outs.

    Raises:
        MalformedProblemError: The plan is for another pool.
    """
    wanted, idle = [], []
    for trainer, nodes in zip(
        trainers, _given(holdings, trainers, classes), strict=True
    ):
        leases = frozenset(n.lease.key for n in nodes if n.lease is not None)
        awaited = [node for node in nodes if node.lease is None]
        del awaited[_useful(trainer, len(leases), len(awaited)) :]
        idle += [(trainer.shape, node) for node in awaited]
        wanted.append(
            WantedTrainer(trainer.name, trainer.curve.sizes, leases, len(awaited))
        )
    return Wanted(tuple(wanted), _requests(idle, now_s=now_s, limits=limits))


def _given_idle(
    planned: Planned, trainers: Sequence[Trainer], classes: Classes
) -> Counter[tuple[str, str]]:
    """Return how many leases of idle nodes a plan gives, by node and shape."""
    given = _given(planned.holdings, trainers, classes)
    return Counter(
        (node.name, trainer.shape)
        for trainer, nodes in zip(trainers, given, strict=True)
        for node in nodes
        if node.lease is None
    )


def _given(
    holdings: Sequence[Holding], trainers: Sequence[Trainer], classes: Classes
) -> list[list[PoolNode]]:
    """Return the nodes that a plan gives, by trainer, once for each lease.

    Raises:
        MalformedProblemError: The plan is for another pool.
    """
    held = held_nodes(trainers, classes.nodes)
    taken = {node.name for mine in held for node in mine}
    node_of = {node.name: node for node in classes.nodes}
    shared = {
        k
        for own, trainer in zip(holdings, trainers, strict=True)
        for k in own
        if classes.width(trainer.shape, k) < classes.units[k]
    }
    given = assign(
        [
            [0 if k in shared else own.get(k, 0) for k in range(len(classes.classes))]
            for own in holdings
        ],
        [[node.name for node in mine] for mine in held],
        free=[
            node.name
            for node in classes.nodes
            if node.name not in taken and classes.index[node.name] not in shared
        ],
        rank=lambda name: _rank(node_of[name]),
        class_of=lambda name: classes.index[name],
    )
    pieces = _pieces(holdings, trainers, classes, shared)
    return [
        [*(node_of[name] for name in sorted(names)), *own]
        for names, own in zip(given, pieces, strict=True)
    ]


def _pieces(
    holdings: Sequence[Holding],
    trainers: Sequence[Trainer],
    classes: Classes,
    shared: Collection[int],
) -> list[list[PoolNode]]:
    """Return, by trainer, the nodes of classes for several leases, once for each.

    The widest leases go first, and a node is filled before the next. Where widths do
    not divide each other, some of them may find no place.
    """
    nodes: dict[int, list[PoolNode]] = defaultdict(list)
    among = (node for node in classes.nodes if classes.index[node.name] in shared)
    for node in sorted(among, key=_rank, reverse=True):
        nodes[classes.index[node.name]].append(node)
    found: list[list[PoolNode]] = [[] for _ in trainers]
    for k in sorted(shared):
        left = [node.units for node in nodes[k]]
        widths = [classes.width(trainer.shape, k) for trainer in trainers]
        for j in sorted(range(len(trainers)), key=lambda j: (-widths[j], j)):
            wanted = holdings[j].get(k, 0)
            for place, node in enumerate(nodes[k] if wanted else ()):
                fitting = min(wanted, left[place] // widths[j])
                left[place] -= fitting * widths[j]
                wanted -= fitting
                found[j] += [node] * fitting
    return found


def _useful(trainer: Trainer, leases: int, awaited: int) -> int:
    """Return how many of *awaited* make up a size together with *leases*."""
    return max(0, size_within(trainer.curve.sizes, leases + awaited) - leases)


def _rank(node: PoolNode) -> tuple[bool, float]:
    return (node.lease is not None, node.end_s)


def _requests(
    idle: Sequence[tuple[str, PoolNode]], *, now_s: float, limits: Limits
) -> tuple[WantedLeases, ...]:
    by_shape: dict[str, list[PoolNode]] = defaultdict(list)
    for shape, node in sorted(idle, key=lambda asked: (asked[1].end_s, asked[1].name)):
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
        nodes=tuple(sorted(node.node for node in nodes)),
    )


# Why a trainer has what it has, and why a hole stays empty.


@dataclass(frozen=True, slots=True)
class LargerSize:
    """A size above that of a trainer which runs as planned.

    Of those for which nodes are left it is the one that pays first, else the next.

    Attributes:
        nodes: The size.
        free_nodes: Nodes that it could use and that the plan leaves idle.
        pays_after_s: When its greater speed has made up for the change; ``math.inf``
            where it is not faster.
    """

    nodes: int
    free_nodes: int
    pays_after_s: float


@dataclass(frozen=True, slots=True)
class TrainerExplanation:
    """Why a trainer has the nodes it has.

    Attributes:
        trainer: Its name.
        reason: Why.
        planned_nodes: How many the plan gives it.
        usable_nodes: How many meet its requirement, others' included.
        brake: What keeps leases from being asked for, None for nothing.
        refusal: Why most holes that meet its requirement cannot be used; None
            where some can, or none is there.
        larger: A larger size of one that has what the plan gives it, if there is any.
    """

    trainer: str
    reason: TrainerReason
    planned_nodes: int
    usable_nodes: int
    brake: Brake | None = None
    refusal: Refusal | None = None
    larger: LargerSize | None = None


@dataclass(frozen=True, slots=True)
class HoleExplanation:
    """What a hole, or a piece of one, is used for, or why for nothing.

    Attributes:
        node: NodeName.
        reason: What for.
        refusal: Why it cannot be planned with, None where it can.
        brake: What keeps leases from being asked for, None for nothing.
        lease: The lease that holds it, None for none.
        piece: Its name where it is a piece, as ``piece_name`` has it; else empty.
    """

    node: str
    reason: HoleReason
    refusal: Refusal | None = None
    brake: Brake | None = None
    lease: LeaseKey | None = None
    piece: str = ""


def _explain_trainers(
    situation: Situation,
    wanted: Wanted,
    classes: Classes,
    refused: Mapping[str, Refusal],
    brake: Brake | None,
) -> tuple[TrainerExplanation, ...]:
    usable: Counter[str] = Counter()
    for k, shapes in enumerate(classes.shapes):
        units = classes.classes[k].nodes
        usable.update({shape: units // classes.width(shape, k) for shape in shapes})
    free = _left_idle(wanted, classes)
    explained = []
    for trainer, plan in zip(situation.trainers, wanted.trainers, strict=True):
        shape = trainer.shape
        reason, refusal = _why(trainer, plan, usable[shape], brake), None
        if reason is TrainerReason.NO_NODES:
            refusal = _mostly(refused, situation.holes.get(shape, ()))
            reason = TrainerReason.NO_USABLE_NODES if refusal else reason
        explained.append(
            TrainerExplanation(
                trainer=trainer.name,
                reason=reason,
                planned_nodes=plan.planned_nodes,
                usable_nodes=usable[shape],
                brake=brake if plan.awaited_nodes else None,
                refusal=refusal,
                larger=_larger(trainer, plan.planned_nodes, free[shape])
                if reason is TrainerReason.AS_PLANNED
                else None,
            )
        )
    return tuple(explained)


def _left_idle(wanted: Wanted, classes: Classes) -> Counter[str]:
    """Return how many leases of each shape fit into what a plan leaves idle."""
    awaited = {node for request in wanted.requests for node in request.nodes}
    free: Counter[str] = Counter()
    for node in classes.nodes:
        if node.lease is None and node.node not in awaited:
            k = classes.index[node.name]
            fitting = {s: node.units // classes.width(s, k) for s in node.shapes}
            free.update(fitting)
    return free


def _larger(trainer: Trainer, held: int, free: int) -> LargerSize | None:
    worth = trainer.curve.value_per_s
    lost = trainer.up_s * worth.item(held)

    def pays_after_s(size: int) -> float:
        faster = worth.item(size) - worth.item(held)
        return lost / faster if faster > 0.0 else math.inf

    sizes = trainer.curve.sizes
    above = sizes[bisect_right(sizes, held) :]
    within = above[: bisect_right(above, held + free)]
    size = min(within or above[:1], key=pays_after_s, default=None)
    return None if size is None else LargerSize(size, free, pays_after_s(size))


def _why(
    trainer: Trainer, plan: WantedTrainer, usable: int, brake: Brake | None
) -> TrainerReason:
    if plan.awaited_nodes:
        return TrainerReason.HELD_BACK if brake else TrainerReason.AWAITS_LEASES
    if plan.leases != trainer.leases:
        return TrainerReason.RE_FORMS
    if plan.leases:
        return TrainerReason.AS_PLANNED
    if not usable:
        return TrainerReason.NO_NODES
    if usable < trainer.curve.sizes[0]:
        return TrainerReason.TOO_FEW_NODES
    return TrainerReason.OTHERS_GAIN_MORE


def _mostly(refused: Mapping[str, Refusal], holes: Iterable[Hole]) -> Refusal | None:
    """Return why most of *holes* were refused; None where none was."""
    why = Counter(refused[hole.node] for hole in holes if hole.node in refused)
    return why.most_common(1)[0][0] if why else None


def _explain_holes(
    situation: Situation,
    wanted: Wanted,
    nodes: Iterable[PoolNode],
    refused: Mapping[str, Refusal],
    brake: Brake | None,
) -> tuple[HoleExplanation, ...]:
    awaited = {node for request in wanted.requests for node in request.nodes}
    training = situation.assigned
    used = []
    for node in nodes:
        if node.lease is not None:
            trains = node.lease.key in training
            reason = HoleReason.TRAINING if trains else HoleReason.LEASED
        elif node.node in awaited:
            reason = HoleReason.HELD_BACK if brake else HoleReason.AWAITED
        else:
            reason = HoleReason.UNWANTED
        held_back = brake if reason is HoleReason.HELD_BACK else None
        lease = None if node.lease is None else node.lease.key
        piece = node.name if is_piece(node.name) else ""
        used.append(
            HoleExplanation(
                node.node, reason, brake=held_back, lease=lease, piece=piece
            )
        )
    unusable = HoleReason.UNUSABLE
    used += [HoleExplanation(name, unusable, why) for name, why in refused.items()]
    return tuple(used)
