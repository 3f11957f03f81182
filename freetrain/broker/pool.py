"""The nodes that can be planned with, and the few classes they fall into."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol, TypeAlias

from freetrain.planning.policy import ClassForecast, PlanTrainer, Request
from milp.answer import assign
from milp.problem import NodeClass
from milp.window import WindowClass

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from freetrain.broker.lease import Assignment, Lease, LeaseKey
    from freetrain.broker.limits import Limits
    from freetrain.lookahead.base import Prospect
    from milp.problem import Curve
    from milp.window import Holding
    from slurm.holes import Hole


# ----------------------------------------------------------------------
# The nodes that can be planned with, and the few classes they fall into.

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


# ----------------------------------------------------------------------
# Nodes sorted by what is expected of them, for a planner that goes by it; pure.

if TYPE_CHECKING:
    Key = tuple[tuple[str, ...], str, int, bool]

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


# ----------------------------------------------------------------------
# From trainers and a pool to a planning problem, and from a plan to leases.

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
        trainers: In the order of the request.
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
