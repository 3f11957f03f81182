"""The nodes that can be planned with, and the few classes they fall into.

``pool_of`` refuses holes that are claimed, too short or beyond the caps. ``classify``
sorts the rest by the requirements that they meet; ``classify_by`` sorts them also by
how long, and with which others, they are expected to stay idle.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, TypeAlias

from freetrain.broker.limits import Refusal
from freetrain.planning.policy import ClassForecast
from milp.problem import NodeClass
from milp.window import WindowClass

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from freetrain.broker.lease import Lease, LeaseKey
    from freetrain.broker.limits import Limits
    from freetrain.lookahead.base import Prospect
    from slurm.holes import Hole

    Key = tuple[tuple[str, ...], str, int, bool]


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


Rank: TypeAlias = "Callable[[Sequence[PoolNode]], Sequence[PoolNode]]"
"""Sorts nodes, those to be had first."""

_LEFT = 0.5  # of the least limit; a lease with less left is not worth a start


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
    first. Planning by forecasts has its own classes (:func:`classify_by`).
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


# Classes by expected lives, for a planner that goes by them.

_STEP_S = 60.0
"""Nodes of a group whose ends are known are told apart by the minute."""

_ALIKE_S = 20.0
"""Nodes that leave alone fall into one class where their lives differ by less."""

_APART = 1e-6
"""Share of a class that a hit takes whose nodes leave one by one: h(x) is linear."""


class Forecast(Protocol):
    """What is expected of nodes; ``forecast.live.LiveForecast`` or a fake of it."""

    def group(self, node: str) -> str:
        """Return the name of the nodes that are expected to leave with *node*."""
        ...

    def size(self, node: str) -> int:
        """Return how many idle nodes that group has, whoever may use them."""
        ...

    def prospect(self, node: str, usable_s: float) -> Prospect:
        """Return what is expected of the group of *node*, usable for so long."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Foresight:
    """What planning by expected lives takes.

    Attributes:
        forecast: How long nodes stay idle.
        horizon_s: How far plans reach.
        hit_weight: [κ] What a foreseeable loss counts.
        change_weight: [η] What a change counts.
        wait_s: How long idle nodes wait for a lease whose agent answers.
    """

    forecast: Forecast
    horizon_s: float
    hit_weight: float
    change_weight: float
    wait_s: float = 0.0


@dataclass(slots=True)
class _Alike:
    """Nodes that fall into one class, and what is expected of their whole groups."""

    nodes: list[PoolNode] = field(default_factory=list)
    groups: dict[str, WindowClass] = field(default_factory=dict)

    def add(self, node: PoolNode, group: str, whole: WindowClass) -> None:
        self.nodes.append(node)
        self.groups[group] = whole


def classify_by(
    foresight: Foresight, pool: Pool, *, now_s: float
) -> tuple[Classes, ClassForecast]:
    """Sort the nodes of *pool* by which of them leave together, and about when.

    A class has one use, one group, and one known end where that comes before the
    horizon. Nodes that leave alone are put together by how long they last: each of
    them is hit by itself, so that the hits of a class add up. Where idle nodes wait
    for a lease, during which nothing trains there, they are apart from leased ones.

    Args:
        foresight: What is expected.
        pool: The nodes.
        now_s: Unix time.

    Returns:
        The classes, and what is expected of each.
    """
    forecast, horizon_s = foresight.forecast, foresight.horizon_s
    groups = {node.name: forecast.group(node.name) for node in pool.nodes}
    sizes = Counter(groups.values())
    wholes: dict[tuple[str, int], WindowClass] = {}
    found: dict[Key, _Alike] = {}
    for node in pool.nodes:
        group = groups[node.name]
        until = _until(max(0.0, node.end_s - now_s), horizon_s)
        if (group, until) not in wholes:
            known_s = math.inf if until < 0 else until * _STEP_S
            prospect = forecast.prospect(node.name, known_s)
            wholes[group, until] = WindowClass(forecast.size(node.name), *prospect)
        whole = wholes[group, until]
        is_alone = sizes[group] == 1
        alike = f"alone {int(whole.life_s / _ALIKE_S)}" if is_alone else group
        waits = foresight.wait_s > 0.0 and node.lease is None
        key = (tuple(sorted(node.shapes)), alike, until, waits)
        found.setdefault(key, _Alike()).add(node, group, whole)
    return _classified(foresight, pool, found, now_s=now_s)


def rank_by(
    foresight: Foresight, nodes: Sequence[PoolNode], *, now_s: float
) -> list[PoolNode]:
    """Sort idle nodes by expected life, the longest first, groups kept whole."""
    forecast, horizon_s = foresight.forecast, foresight.horizon_s

    def key(node: PoolNode) -> tuple[float, str, float]:
        usable_s = max(0.0, node.end_s - now_s)
        until_s = math.inf if usable_s >= horizon_s else usable_s
        life_s = forecast.prospect(node.name, until_s).life_s
        return -life_s, forecast.group(node.name), -node.end_s

    return sorted(nodes, key=key)


def _until(usable_s: float, horizon_s: float) -> int:
    """Return the whole minutes that a node can be used; -1 beyond the horizon."""
    return -1 if usable_s >= horizon_s else int(usable_s / _STEP_S)


def _classified(
    foresight: Foresight, pool: Pool, found: Mapping[Key, _Alike], *, now_s: float
) -> tuple[Classes, ClassForecast]:
    horizon_s, wait_s = foresight.horizon_s, foresight.wait_s
    classes, stays, index = [], [], {}
    ordered = sorted(found)
    for k, key in enumerate(ordered):
        nodes, (shapes, alike, until, waits) = found[key].nodes, key
        life_s = max(0.0, min(node.end_s for node in nodes) - now_s)
        classes.append(NodeClass(f"{'+'.join(shapes)}, {alike}", len(nodes), life_s))
        wholes = list(found[key].groups.values())
        stay = _stay(wholes, len(nodes), is_end_known=until >= 0).until(horizon_s)
        useful_s = max(0.0, stay.life_s - wait_s) if waits else stay.life_s
        stays.append(stay._replace(life_s=useful_s))
        index.update(dict.fromkeys((node.name for node in nodes), k))
    return (
        Classes(
            pool=pool,
            classes=tuple(classes),
            shapes=tuple(frozenset(key[0]) for key in ordered),
            index=index,
        ),
        ClassForecast(
            stays=dict(enumerate(stays)),
            reach_s=horizon_s,
            hit_weight=foresight.hit_weight,
            change_weight=foresight.change_weight,
            groups=_groups(found, stays),
        ),
    )


def _groups(
    found: Mapping[Key, _Alike], stays: Sequence[WindowClass]
) -> tuple[tuple[int, ...], ...]:
    """Return the classes of each group that falls into several, the longest first."""
    parts: dict[tuple[str, int], list[int]] = {}
    for k, key in enumerate(sorted(found)):
        # Nodes that leave alone are in one class only: any of their groups will do.
        group, (_, _, until, _) = next(iter(found[key].groups)), key
        parts.setdefault((group, until), []).append(k)
    return tuple(
        tuple(sorted(own, key=lambda k: -stays[k].life_s))
        for own in parts.values()
        if len(own) > 1
    )


def _stay(
    wholes: Sequence[WindowClass], nodes: int, *, is_end_known: bool
) -> WindowClass:
    """Return what is expected of a class of one group, or of nodes that leave alone.

    What is expected is told of whole groups, all idle nodes of them: of a group that
    has others beside the class, fewer nodes are hit less, as W1 has it.

    Of nodes that leave alone W1 is to be linear: x nodes are hit x times as often as
    one. It is where the share is next to nothing, and ``hit`` then the hits on all of
    them. But those whose known ends fall into one minute are lost at once.
    """
    if len(wholes) == 1:
        one = wholes[0]
        is_whole = one.nodes == nodes
        return one if is_whole else one._replace(nodes=nodes, hit=one.hits()[nodes])
    life_s = sum(one.life_s for one in wholes) / len(wholes)
    if is_end_known:
        return WindowClass(nodes, life_s, 1.0, 1.0)
    hits = sum(one.hits()[1] for one in wholes)
    return WindowClass(nodes, life_s, hits, _APART)
