"""The nodes that can be planned with, and the few classes they fall into."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, TypeAlias

from milp.problem import NodeClass

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from freetrain.broker.lease import Lease, LeaseKey
    from freetrain.broker.limits import Limits
    from slurm.holes import Hole

_LEFT = 0.5  # of the least limit; a lease with less left is not worth a start


Rank: TypeAlias = "Callable[[Sequence[PoolNode]], Sequence[PoolNode]]"
"""Sorts nodes, those to be had first."""


class Refusal(StrEnum):
    """Why a hole is not planned with."""

    CLAIMED = "somebody's job could start there"
    KEPT_FREE = "somebody's job would need it if another ended"
    HIDDEN_END = "its end is hidden from us"
    TOO_SHORT = "too short for a lease"
    LEAVING = "a lease there is leaving"
    LEASE_CAP = "more nodes than the site allows to be leased"


@dataclass(frozen=True, slots=True)
class PoolNode:
    """A node that can be planned with: idle, or held by one lease of ours.

    Attributes:
        name: NodeName.
        shapes: Requirements that it meets, or that its lease was asked with.
        end_s: Until when it lasts, Unix time, perhaps ``math.inf``.
        lease: The lease that holds it, None where it is idle.
    """

    name: str
    shapes: frozenset[str]
    end_s: float
    lease: Lease | None = None


@dataclass(frozen=True, slots=True)
class Pool:
    """What there is to plan with.

    Attributes:
        nodes: By node, in Slurm's order.
        refused: Holes left alone, with the reason.
    """

    nodes: tuple[PoolNode, ...]
    refused: Mapping[str, Refusal]


@dataclass(frozen=True, slots=True)
class Classes:
    """The nodes of a pool, sorted into classes.

    Attributes:
        pool: The nodes.
        classes: What the planner sees.
        shapes: Requirements that each class meets.
        index: Each node's class.
    """

    pool: Pool
    classes: tuple[NodeClass, ...]
    shapes: tuple[frozenset[str], ...]
    index: Mapping[str, int]


def pool_of(  # noqa: PLR0913 - one fact each, and none of them has a default
    holes: Mapping[str, Sequence[Hole]],
    leases: Iterable[Lease],
    *,
    claimed: frozenset[str],
    assigned: frozenset[LeaseKey],
    now_s: float,
    limits: Limits,
    kept: Collection[str] = frozenset(),
    rank: Rank | None = None,
) -> Pool:
    """Return the nodes that can be planned with.

    Args:
        holes: Holes by shape: one ``find_holes`` for each requirement.
        leases: What is believed of our leases.
        claimed: Nodes that pending jobs of others could start on.
        assigned: Leases that trainers run on now; these count however little
            time is left, since whoever is there stays until the end.
        now_s: Unix time.
        limits: What is too short, and how long a hidden end is.
        kept: Those of the claimed ones that none could start on yet.
        rank: Says which idle nodes are left out beyond the cap on leases: those
            ranked last; None for those that end first.
    """
    shapes: dict[str, set[str]] = {}
    hole_of: dict[str, Hole] = {}
    for shape, found in holes.items():
        for hole in found:
            shapes.setdefault(hole.node, set()).add(shape)
            hole_of.setdefault(hole.node, hole)
    held, leaving = _held(leases)
    nodes = []
    refused: dict[str, Refusal] = {}
    for name, hole in hole_of.items():
        node = _pool_node(hole, shapes[name], held.get(name), now_s, limits)
        is_leaving = name in leaving or (node.lease is None and bool(hole.held_by))
        why = (
            Refusal.KEPT_FREE
            if name in kept
            else Refusal.CLAIMED
            if name in claimed
            else Refusal.LEAVING
            if is_leaving
            else _too_short(node, hole, assigned, now_s=now_s, limits=limits)
        )
        if why is None:
            nodes.append(node)
        else:
            refused[name] = why
    over = _over_cap(nodes, limits.most_leases, rank or _by_end)
    refused |= dict.fromkeys(over, Refusal.LEASE_CAP)
    return Pool(tuple(node for node in nodes if node.name not in over), refused)


def _over_cap(
    nodes: Sequence[PoolNode], most_leases: int, rank: Rank
) -> frozenset[str]:
    """Return the idle nodes beyond the cap, those ranked first left out.

    The planner must not count on them: a trainer would wait for its last node for
    ever.
    """
    idle = [node for node in nodes if node.lease is None]
    room = max(0, most_leases - (len(nodes) - len(idle)))
    if len(idle) <= room:  # ranking asks for what is expected of every node
        return frozenset()
    return frozenset(node.name for node in rank(idle)[room:])


def _by_end(nodes: Sequence[PoolNode]) -> list[PoolNode]:
    return sorted(nodes, key=lambda node: -node.end_s)


def _held(leases: Iterable[Lease]) -> tuple[dict[str, Lease], frozenset[str]]:
    """Return the lease that can be used on each node, and nodes of leaving ones."""
    held: dict[str, Lease] = {}
    leaving = set()
    for lease in leases:
        if not lease.is_live or not lease.node:
            continue
        if lease.is_usable:
            held.setdefault(lease.node, lease)
        else:
            leaving.add(lease.node)
    return held, frozenset(leaving)


def _pool_node(
    hole: Hole,
    shapes: set[str],
    lease: Lease | None,
    now_s: float,
    limits: Limits,
) -> PoolNode:
    end_s = now_s + limits.unknown_life_s if hole.end_s is None else hole.end_s
    if lease is None:
        return PoolNode(hole.node, frozenset(shapes), end_s)
    lease_end_s = math.inf if lease.end_s is None else lease.end_s
    return PoolNode(hole.node, frozenset({lease.shape}), min(end_s, lease_end_s), lease)


def _too_short(
    node: PoolNode,
    hole: Hole,
    assigned: frozenset[LeaseKey],
    *,
    now_s: float,
    limits: Limits,
) -> Refusal | None:
    if node.lease is not None and node.lease.key in assigned:
        return None
    if hole.end_s is None and node.end_s <= now_s:
        return Refusal.HIDDEN_END
    least_s = 60.0 * limits.least_limit_min
    # A lease of the least limit is younger than that as soon as it runs: given up
    # for it, it would be asked for and given up again, tick by tick.
    needed_s = least_s + limits.start_slack_s if node.lease is None else least_s * _LEFT
    return Refusal.TOO_SHORT if node.end_s - now_s < needed_s else None


def classify(pool: Pool, *, now_s: float) -> Classes:
    """Sort nodes of the same use into classes.

    Lives are not told apart: a planner that gains nothing by a longer one solves one
    class exactly and at once, and the nodes of a class are given out longest life
    first. Who looks ahead makes its own classes (``Foresight.prepare``).
    """
    keys = {node.name: tuple(sorted(node.shapes)) for node in pool.nodes}
    distinct = sorted(set(keys.values()))
    at = {key: index for index, key in enumerate(distinct)}
    index = {name: at[key] for name, key in keys.items()}
    return Classes(
        pool=pool,
        classes=_node_classes(pool, index, distinct, now_s),
        shapes=tuple(map(frozenset, distinct)),
        index=index,
    )


def _node_classes(
    pool: Pool,
    index: Mapping[str, int],
    distinct: Sequence[tuple[str, ...]],
    now_s: float,
) -> tuple[NodeClass, ...]:
    counts = [0] * len(distinct)
    lives_s = [math.inf] * len(distinct)
    for node in pool.nodes:
        k = index[node.name]
        counts[k] += 1
        lives_s[k] = min(lives_s[k], max(0.0, node.end_s - now_s))
    return tuple(
        NodeClass("+".join(shapes), count, life_s)
        for shapes, count, life_s in zip(distinct, counts, lives_s, strict=True)
    )
