"""Why a trainer has what it has, and why a hole stays empty; as data."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from freetrain.broker.lease import LeaseState

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from freetrain.broker.actual import Actual
    from freetrain.broker.brakes import Brake
    from freetrain.broker.pool import Classes, Refusal
    from freetrain.broker.wanted import Trainer, Wanted, WantedTrainer
    from slurm.holes import Hole


class TrainerReason(StrEnum):
    """Why a trainer has the nodes it has."""

    AS_PLANNED = "it has what the plan gives it"
    AWAITS_LEASES = "leases for it are on their way"
    HELD_BACK = "leases for it may not be asked for now"
    RE_FORMS = "it is being moved to what the plan gives it"
    NO_NODES = "no hole meets its requirement"
    NO_USABLE_NODES = "no hole that meets its requirement can be used"
    TOO_FEW_NODES = "fewer nodes are to be had than its smallest size"
    OTHERS_GAIN_MORE = "the nodes are worth more elsewhere, or the change too dear"


class HoleReason(StrEnum):
    """What a hole is used for."""

    TRAINING = "a trainer runs there"
    LEASED = "a lease is there, for a trainer that re-forms"
    AWAITED = "a lease for it is on its way"
    HELD_BACK = "leases may not be asked for now"
    UNUSABLE = "it cannot be planned with"
    UNWANTED = "no trainer gains by it"


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
