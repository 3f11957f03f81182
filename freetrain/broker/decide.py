"""From a look to actions: the whole of a tick that needs no outside world."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from freetrain.broker.actions import HoleReason, TrainerReason
from freetrain.broker.lease import LeaseState
from freetrain.broker.limits import NOTHING_LATELY, Pace
from freetrain.broker.pool import (
    classify,
    classify_by,
    pool_of,
    rank_by,
    request_of,
    wanted_of,
)
from freetrain.broker.reconcile import Actual, allowance, reconcile
from freetrain.broker.yielding import NO_CLAIMS, Claims

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from freetrain.broker.actions import Action
    from freetrain.broker.belief import Belief
    from freetrain.broker.lease import Assignment, LeaseKey
    from freetrain.broker.limits import Limits
    from freetrain.broker.pool import (
        Classes,
        Foresight,
        Refusal,
        Trainer,
        Wanted,
        WantedTrainer,
    )
    from freetrain.broker.reconcile import Brake
    from freetrain.planning.policy import Planned, Policy
    from slurm.holes import Hole


# ----------------------------------------------------------------------
# From a look to actions: the whole of a tick that needs no outside world.


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
    """

    actions: tuple[Action, ...]
    wanted: Wanted
    classes: Classes
    actual: Actual
    planned: Planned
    brake: Brake | None


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
    return Decision(
        actions=reconcile(wanted, actual, intents, limits),
        wanted=wanted,
        classes=classes,
        actual=actual,
        planned=planned,
        brake=may.brake if may.leases == 0 else None,
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


# ----------------------------------------------------------------------
# Why a trainer has what it has, and why a hole stays empty; as data.


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
