"""What a tick decides by, the nodes that it can plan with, and their few classes.

``Situation`` is all that the broker goes by. ``pool_of`` takes the holes that can be
planned with and says why it refuses the others: claimed, too short, or beyond the caps.
``classify`` sorts the pool by the requirements that nodes meet; ``classify_by`` sorts
it also by how long, and with which others, nodes are expected to stay idle. This pool
is one tick's; a replay's, over time, is in ``freetrain.replay.pool``.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol, TypeAlias

from freetrain.broker.lease import LeaseState
from freetrain.broker.limits import NOTHING_LATELY, Pace
from freetrain.broker.reasons import Refusal
from freetrain.broker.yielding import NO_CLAIMS, Claims
from freetrain.planning.policy import ClassForecast
from freetrain.scaling import ASSUMED_STAY_S
from milp.problem import NodeClass
from milp.window import WindowClass

if TYPE_CHECKING:
    from collections.abc import (
        Callable,
        Iterable,
        Iterator,
        Mapping,
        Sequence,
    )

    from freetrain.broker.belief import Belief
    from freetrain.broker.lease import Assignment, Lease, LeaseKey
    from freetrain.broker.limits import Limits
    from freetrain.broker.sharing import Share
    from freetrain.lookahead.base import Prospect
    from milp.problem import Curve
    from slurm.holes import Hole

    Key = tuple[tuple[str, ...], str, int, bool]
    Member = tuple["PoolNode", str, WindowClass]


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
class Situation:
    """All that the broker decides by.

    Attributes:
        now_s: When the snapshot was taken, by slurmctld's clock, Unix time.
        belief: What is believed of our leases and submissions.
        holes: Holes by shape: one ``find_holes`` for each requirement.
        widths: GPUs of a lease, by shape of those that take pieces of nodes. Of other
            leases each has a node for itself.
        trainers: Trainers that want nodes.
        background: Names of those that get only what the others leave.
        assignments: The newest generation of every trainer that has one, those that
            want no more nodes included.
        claims: Nodes that others' jobs could start on; none where Slurm preempts.
        pace: Recent churn and failed starts.
        not_ready: Leases that no new generation may be formed of, because their agents
            have not come up, are leaving or are not heard any more.
        never_heard: Leases of which no agent was ever heard.
        training: By lease whose agent is heard: the trainer that runs there, perhaps
            still in a generation before its newest.
        unheard_s: By running lease: for how long it has not been heard, from its start
            where it never was.
        is_plan_known: Whether Slurm's plan is known well enough to take new holes.
        share: How many nodes are ours beside other users' FreeTrain; None where there
            is none.
    """

    now_s: float
    belief: Belief
    holes: Mapping[str, Sequence[Hole]] = field(default_factory=dict)
    widths: Mapping[str, int] = field(default_factory=dict)
    trainers: Sequence[Trainer] = ()
    background: frozenset[str] = frozenset()
    assignments: Sequence[Assignment] = ()
    claims: Claims = NO_CLAIMS
    pace: Pace = NOTHING_LATELY
    not_ready: frozenset[LeaseKey] = frozenset()
    never_heard: frozenset[LeaseKey] = frozenset()
    training: Mapping[LeaseKey, str] = field(default_factory=dict)
    unheard_s: Mapping[LeaseKey, float] = field(default_factory=dict)
    is_plan_known: bool = True
    share: Share | None = None

    @property
    def assigned(self) -> frozenset[LeaseKey]:
        """Leases of the newest generations: trainers run on them now."""
        return frozenset(key for made in self.assignments for key in made.leases)


def given_leases(situation: Situation, limits: Limits) -> tuple[Lease, ...]:
    """Return the leases to give to other users' FreeTrain now, as shares ask it.

    Those that leave already count, then come those that no trainer runs on, those that
    end soonest in front. Giving is bound by the cap on churn, so that others cannot
    make us give again and again; and nothing is given while Slurm's plan is unknown.
    """
    if situation.share is None or not situation.is_plan_known:
        return ()
    running = [x for x in situation.belief.leases if x.state is LeaseState.RUNNING]
    usable = [lease for lease in running if lease.is_usable]
    churn = max(0, limits.most_churn - situation.pace.churned)
    count = situation.share.gives - (len(running) - len(usable))
    training = situation.assigned
    usable.sort(
        key=lambda lease: (lease.key in training, lease.end_s or math.inf, lease.key)
    )
    return tuple(usable[: max(0, min(count, churn))])


# The nodes, and blocks of nodes, that can be planned with.


@dataclass(frozen=True, slots=True)
class PoolNode:
    """A node that can be planned with, or a block of one: idle, or held by a lease.

    Attributes:
        name: NodeName; of a piece as ``piece_name`` has it.
        shapes: Requirements that it meets, or that its lease was asked with.
        end_s: Until when it lasts, Unix time, perhaps ``math.inf``.
        lease: The lease that holds it, None where it is idle.
        units: Its GPUs; 1 where no lease takes a piece.
        is_apart: Whether it is idle, and on a node that no job is on.
        fits: How many leases of each shape fit that takes pieces.
        below: GPUs of its node that jobs are expected to take later than its own.
    """

    name: str
    shapes: frozenset[str]
    end_s: float
    lease: Lease | None = None
    units: int = 1
    is_apart: bool = False
    fits: tuple[tuple[str, int], ...] = ()
    below: int = 0

    @property
    def most_leases(self) -> int:
        """The most leases that it can take."""
        return max((count for _, count in self.fits), default=1)

    @property
    def node(self) -> str:
        """Its NodeName."""
        return node_of_piece(self.name)


_PIECE = "#"
"""Stands before the number of a piece; no NodeName contains it."""


def piece_name(node: str, gpus: int) -> str:
    """Return the name of the piece that lasts as long as so many *gpus* are left.

    The GPUs of *node* that no job of others has are numbered from 1. As jobs take some,
    those of the highest numbers go: idle ones first, then those of the oldest lease,
    which Slurm preempts first and whose time ends first.
    """
    return f"{node}{_PIECE}{gpus}"


def is_piece(name: str) -> bool:
    """Tell whether *name* is one of ``piece_name``."""
    return _PIECE in name


def node_of_piece(name: str) -> str:
    """Return the NodeName in *name*, a NodeName or one of ``piece_name``."""
    return name.partition(_PIECE)[0]


Rank: TypeAlias = "Callable[[Sequence[PoolNode]], Sequence[PoolNode]]"
"""Sorts nodes, those to be had first."""

_LEFT = 0.5
"""Of the least limit; a lease with less left is not worth a start."""


def pool_of(
    situation: Situation, limits: Limits, *, rank: Rank | None = None
) -> tuple[tuple[PoolNode, ...], dict[str, Refusal]]:
    """Return the nodes to plan with, in Slurm's order, and why others are refused.

    A lease that a trainer runs on counts however little time is left, since the trainer
    stays there until the end.

    Args:
        situation: Holes, leases and claims.
        limits: What is too short, and how long a hidden end is.
        rank: Says which idle nodes are left out beyond the cap on leases: those
            ranked last; None for those that end first.

    Returns:
        The nodes and blocks, and by NodeName why nothing of a node can be used.
    """
    found: dict[str, dict[str, Hole]] = {}
    for shape, holes in situation.holes.items():
        for hole in holes:
            found.setdefault(hole.node, {})[shape] = hole
    now_s, assigned = situation.now_s, situation.assigned
    held, leaving = _held(situation.belief.leases)
    given = {lease.key for lease in given_leases(situation, limits)}
    nodes: list[PoolNode] = []
    refused: dict[str, Refusal] = {}
    for name, by_shape in found.items():
        blocks = _blocks(name, by_shape, held.get(name, ()), situation, limits)
        hole = next(iter(by_shape.values()))
        why = Refusal.LEAVING
        usable = []
        for block in blocks:
            is_given = block.lease is not None and block.lease.key in given
            is_leaving = name in leaving and not is_piece(block.name)
            not_used = (
                _why_claimed(block, situation)
                or (Refusal.SHARE if is_given else None)
                or (Refusal.LEAVING if is_leaving else None)
                or _too_short(block, hole, assigned, now_s=now_s, limits=limits)
            )
            if not_used is None:
                usable.append(block)
            else:
                why = not_used
        nodes += usable
        if not usable:
            refused[name] = why
    caps = [(limits.most_leases, Refusal.LEASE_CAP)]
    if limits.most_allowed is not None:
        caps.append((limits.most_allowed, Refusal.SUBMIT_LIMIT))
    if situation.share is not None and situation.share.binds:
        caps.append((situation.share.nodes, Refusal.SHARE))
    for most, why in caps:
        within = _within_cap(
            nodes, most, rank or _by_end, more_pieces=_more_pieces(situation)
        )
        kept = {node.node for node in within}
        refused |= {node.node: why for node in nodes if node.node not in kept}
        nodes = within
    return tuple(nodes), refused


def _why_claimed(block: PoolNode, situation: Situation) -> Refusal | None:
    """Return why others have *block*; None if they have not.

    Beside jobs that fit into what is free of a node, pieces that leases have stay.
    """
    claims, lease = situation.claims, block.lease
    is_piece = lease is not None and lease.shape in situation.widths
    if lease is not None and is_piece and not claims.takes(block.node, lease.job_id):
        return None
    if block.node in claims.kept_free.nodes:
        return Refusal.KEPT_FREE
    return Refusal.CLAIMED if block.node in claims.nodes else None


def _blocks(
    name: str,
    holes: Mapping[str, Hole],
    leases: Sequence[Lease],
    situation: Situation,
    limits: Limits,
) -> Iterator[PoolNode]:
    """Yield what there is of a node: each lease of ours, and what is free.

    A node that nobody uses is one block where a lease may take it whole. What is free
    of another is cut into blocks as wide as the leases that fit: the widest first.
    Where widths divide each other that loses nothing: leases that fit into the GPUs
    that are free fit into the blocks.

    Args:
        name: NodeName.
        holes: Its holes, by shape.
        leases: Ours that can be used there. Pieces are numbered by ``piece_name``.
        situation: Widths, and the time.
        limits: How long a hidden end is.
    """
    now_s, widths = situation.now_s, situation.widths

    def end_of(hole: Hole) -> float:
        return now_s + limits.unknown_life_s if hole.end_s is None else hole.end_s

    def place_of(lease: Lease) -> tuple[bool, float]:
        is_whole = lease.shape not in widths
        return is_whole, 0.0 if is_whole else -(lease.start_s or math.inf)

    first = next(iter(holes.values()))
    below = 0
    for place, lease in enumerate(sorted(leases, key=place_of)):
        width = widths.get(lease.shape)
        if width is None and place:
            continue  # Slurm has put two leases where each should have a node
        end_s = math.inf if lease.end_s is None else lease.end_s
        end_s = min(end_s, end_of(holes.get(lease.shape, first)))
        shapes = frozenset({lease.shape})
        if width is None:
            yield PoolNode(name, shapes, end_s, lease)
        else:
            fits: tuple[tuple[str, int], ...] = ((lease.shape, 1),)
            shown = piece_name(name, below + width)
            yield PoolNode(shown, shapes, end_s, lease, width, fits=fits, below=below)
            below += width
    rooms = {s: hole.room for s, hole in holes.items() if s in widths and hole.room}
    free = max((room * widths[shape] for shape, room in rooms.items()), default=0)
    whole = {shape for shape in holes if shape not in widths}
    is_idle = not leases and not first.held_by
    is_apart = bool(rooms) and is_idle and not first.is_in_use
    if whole and is_idle:
        shapes = frozenset({*whole, *rooms})
        fits = tuple(sorted(rooms.items()))
        units = max(1, free)
        yield PoolNode(name, shapes, end_of(first), None, units, is_apart, fits)
        return
    begin = 0
    for width in sorted({widths[shape] for shape in rooms}, reverse=True):
        while begin + width <= free:
            # Of another kind of GPU there may be fewer.
            shapes = frozenset(
                shape
                for shape, room in rooms.items()
                if widths[shape] <= width and begin + width <= room * widths[shape]
            )
            if not shapes:
                break
            end_s = min(end_of(holes[shape]) for shape in shapes)
            fits = tuple(sorted((shape, width // widths[shape]) for shape in shapes))
            under = below + begin
            shown = piece_name(name, under + width)
            yield PoolNode(shown, shapes, end_s, None, width, is_apart, fits, under)
            begin += width


def _more_pieces(situation: Situation) -> int:
    """Return how many leases more the trainers of pieces can use."""
    return sum(
        max(0, trainer.curve.sizes[-1] - len(trainer.leases))
        for trainer in situation.trainers
        if trainer.shape in situation.widths
    )


def _within_cap(
    nodes: Sequence[PoolNode], most_leases: int, rank: Rank, *, more_pieces: int
) -> list[PoolNode]:
    """Return *nodes* without the idle ones beyond the cap, those ranked first kept.

    The planner must not count on them: a trainer would wait for its last node for
    ever. A block for several leases is cut where it does not fit.

    Args:
        nodes: Those that can be planned with.
        most_leases: The cap.
        rank: Sorts idle nodes.
        more_pieces: How many more leases all trainers of pieces together can use.
    """
    idle = [node for node in nodes if node.lease is None]
    room = max(0, most_leases - (len(nodes) - len(idle)))
    extra = sum(node.most_leases - 1 for node in idle)
    if len(idle) + min(extra, more_pieces) <= room:
        return list(nodes)  # ranking asks for what is expected of every node
    kept: dict[str, PoolNode] = {}
    for node in rank(idle):
        if room <= 0:
            break
        leases = 1 + min(node.most_leases - 1, more_pieces)
        kept[node.name] = node if leases <= room else _cut(node, room)
        leases = min(leases, room)
        room -= leases
        more_pieces -= leases - 1
    return [
        node if node.lease is not None else kept[node.name]
        for node in nodes
        if node.lease is not None or node.name in kept
    ]


def _cut(node: PoolNode, most: int) -> PoolNode:
    """Return what of the block *node* no more than *most* leases take."""
    widths = {shape: node.units // count for shape, count in node.fits}
    units = most * min(widths.values())
    fits = tuple((s, units // width) for s, width in widths.items() if width <= units)
    shapes = frozenset(shape for shape, _ in fits)
    name = piece_name(node.node, node.below + units)
    return replace(node, name=name, shapes=shapes, units=units, fits=fits)


def _by_end(nodes: Sequence[PoolNode]) -> list[PoolNode]:
    return sorted(nodes, key=lambda node: -node.end_s)


def _held(leases: Iterable[Lease]) -> tuple[dict[str, list[Lease]], frozenset[str]]:
    """Return the leases that can be used on each node, and nodes of leaving ones."""
    held: dict[str, list[Lease]] = {}
    leaving = set()
    for lease in leases:
        if not lease.is_live or not lease.node:
            continue
        if lease.is_usable:
            held.setdefault(lease.node, []).append(lease)
        else:
            leaving.add(lease.node)
    return held, frozenset(leaving)


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
    # A lease of the shortest limit has less than that left once it runs. If that ended
    # it, every tick would ask for it and give it up again.
    needed_s = least_s + limits.start_slack_s if node.lease is None else least_s * _LEFT
    return Refusal.TOO_SHORT if node.end_s - now_s < needed_s else None


# Classes of nodes.


@dataclass(frozen=True, slots=True)
class Classes:
    """The nodes of a pool, sorted into classes.

    Attributes:
        nodes: The nodes, in Slurm's order.
        classes: What the planner sees, in units; those on nodes in use come first.
        shapes: Requirements that each class meets.
        units: Units of each node of a class.
        index: Each node's class.
        widths: Units that a lease of a shape takes, by class, for shapes that take
            pieces; a lease of another shape takes all of a node.
    """

    nodes: tuple[PoolNode, ...]
    classes: tuple[NodeClass, ...]
    shapes: tuple[frozenset[str], ...]
    units: tuple[int, ...]
    index: Mapping[str, int]
    widths: Sequence[Mapping[str, int]] = ()

    def width(self, shape: str, k: int) -> int:
        """Return how many units of class *k* a lease of *shape* takes."""
        return self.widths[k].get(shape, self.units[k]) if self.widths else 1

    def widths_of(self, shape: str) -> dict[int, int] | None:
        """Return the width of *shape* in each class; None where it is always one."""
        if not any(self.widths):  # of many classes and trainers, in most ticks
            return None
        widths = {k: self.width(shape, k) for k in range(len(self.classes))}
        return widths if any(width != 1 for width in widths.values()) else None


def classify(nodes: tuple[PoolNode, ...], *, now_s: float) -> Classes:
    """Sort *nodes* into one class for each set of requirements they meet, and size.

    Nodes of different lives share a class: the published objective does not value life,
    a problem of one class is solved exactly and at once, and the nodes of a class are
    given out longest life first. What is free of nodes in use is apart from nodes that
    pieces would break: of plans that gain the same, planners take the one that uses
    the first classes.
    """
    keys = {
        node.name: (node.is_apart, node.units, tuple(sorted(node.shapes)), node.fits)
        for node in nodes
    }
    distinct = sorted(set(keys.values()))
    at = {key: index for index, key in enumerate(distinct)}
    index = {name: at[key] for name, key in keys.items()}
    shapes = tuple(key[2] for key in distinct)
    return Classes(
        nodes=nodes,
        classes=_node_classes(nodes, index, shapes, now_s),
        shapes=tuple(map(frozenset, shapes)),
        units=tuple(key[1] for key in distinct),
        index=index,
        widths=tuple(
            {shape: _width(units, count) for shape, count in fits}
            for _, units, _, fits in distinct
        ),
    )


def divided(
    classes: Classes, given: Mapping[tuple[str, str], int]
) -> tuple[PoolNode, ...]:
    """Return the nodes of *classes*, each for one lease of one shape.

    What nobody was given stays whole where a lease may take it so, and is else for the
    narrowest leases.

    Args:
        classes: The nodes.
        given: How many leases each shape was given of an idle node, by the names of
            both.
    """
    return tuple(
        block
        for node in classes.nodes
        for block in (
            [node] if node.lease is not None else _divided(node, classes, given)
        )
    )


def _divided(
    node: PoolNode, classes: Classes, given: Mapping[tuple[str, str], int]
) -> Iterator[PoolNode]:
    k = classes.index[node.name]
    leases = {s: given.get((node.name, s), 0) for s in sorted(node.shapes)}
    of_pieces = {shape for shape, _ in node.fits}
    whole = [shape for shape in leases if shape not in of_pieces]
    given_whole = [shape for shape in whole if leases[shape]]
    if given_whole or (whole and not any(leases.values())):
        (shape,) = given_whole or whole[:1]
        yield replace(node, shapes=frozenset({shape}), units=1, fits=())
        return
    widths = {shape: classes.width(shape, k) for shape in sorted(of_pieces)}
    left = node.units - sum(leases[shape] * width for shape, width in widths.items())
    narrowest = min(widths, key=lambda shape: widths[shape])
    leases[narrowest] += left // widths[narrowest]
    below = node.below
    for shape in sorted(widths, key=lambda shape: -widths[shape]):
        for _ in range(leases[shape]):
            yield replace(
                node,
                name=piece_name(node.node, below + widths[shape]),
                shapes=frozenset({shape}),
                units=widths[shape],
                fits=((shape, 1),),
                below=below,
            )
            below += widths[shape]


def _width(units: int, fits: int) -> int:
    """Return the units that a lease takes of a node of which so many leases fit.

    That is a divisor of the node's *units*, the least of which no more leases fit than
    do: other resources than GPUs may be what there is less of.
    """
    return next(
        width
        for width in range(1, units + 1)
        if units % width == 0 and units // width <= max(1, fits)
    )


def _node_classes(
    nodes: Sequence[PoolNode],
    index: Mapping[str, int],
    distinct: Sequence[tuple[str, ...]],
    now_s: float,
) -> tuple[NodeClass, ...]:
    units = [0] * len(distinct)
    lives_s = [math.inf] * len(distinct)
    for node in nodes:
        k = index[node.name]
        units[k] += node.units
        lives_s[k] = min(lives_s[k], max(0.0, node.end_s - now_s))
    return tuple(
        NodeClass("+".join(shapes), count, life_s)
        for shapes, count, life_s in zip(distinct, units, lives_s, strict=True)
    )


# Classes by expected lives, for a planner that goes by them.

_STEP_S = 60.0
"""Nodes of a group whose ends are known form one class for each such time."""

_ALIKE_S = 20.0
"""Nodes that leave alone fall into one class where their lives differ by less."""

_APART = 1e-6
"""Share of a class that a hit takes whose nodes leave one by one: h(x) is linear."""


class Forecast(Protocol):
    """What is expected of nodes: ``lookahead.live.LiveForecast``, or a fake of it."""

    def group(self, node: str) -> str:
        """Return the name of the group that is expected to leave with *node*.

        *node* is a NodeName, or the name of a piece.
        """
        ...

    def size(self, node: str) -> int:
        """Return how many idle nodes, or GPUs, that group has, usable or not."""
        ...

    def prospect(self, node: str, usable_s: float) -> Prospect:
        """Return what is expected of the group of *node*, usable for so long."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Foresight:
    """The input of planning by expected lives: a forecast, its horizon, and weights.

    Attributes:
        forecast: How long nodes stay idle.
        horizon_s: How far plans reach.
        hit_weight: [κ] What a foreseeable loss counts.
        change_weight: [η] What a change counts.
        wait_s: How long idle nodes wait for a lease whose agent answers.
        stay_s: How long trainers keep nodes, over which a start is spread.
    """

    forecast: Forecast
    horizon_s: float
    hit_weight: float
    change_weight: float
    wait_s: float = 0.0
    stay_s: float = ASSUMED_STAY_S


def classify_by(
    foresight: Foresight, nodes: tuple[PoolNode, ...], *, now_s: float
) -> tuple[Classes, ClassForecast]:
    """Sort *nodes* by which of them leave together, and about when.

    The nodes of a class meet the same requirements, belong to one group, and have one
    known end where that comes before the horizon. Nodes that leave alone are put
    together by how long they last: each of them is hit by itself, so that the hits of
    a class add up. Idle nodes are apart from leased ones where their leases take time
    to start, during which nothing trains there.

    Returns:
        The classes, and what is expected of each.
    """
    forecast, horizon_s = foresight.forecast, foresight.horizon_s
    groups = {node.name: forecast.group(node.name) for node in nodes}
    sizes = Counter(groups.values())
    wholes: dict[tuple[str, int, int], WindowClass] = {}
    found: dict[Key, list[Member]] = {}
    for node in nodes:
        group = groups[node.name]
        until = _until(max(0.0, node.end_s - now_s), horizon_s)
        if (group, until, node.units) not in wholes:
            known_s = math.inf if until < 0 else until * _STEP_S
            prospect = forecast.prospect(node.name, known_s)
            # Of pieces the forecast counts GPUs. Leases in part of a group are of it.
            size = max(sizes[group], forecast.size(node.name) // node.units)
            wholes[group, until, node.units] = WindowClass(size, *prospect)
        whole = wholes[group, until, node.units]
        is_alone = sizes[group] == 1
        alike = f"alone {int(whole.life_s / _ALIKE_S)}" if is_alone else group
        waits = foresight.wait_s > 0.0 and node.lease is None
        key = (tuple(sorted(node.shapes)), alike, until, waits)
        found.setdefault(key, []).append((node, group, whole))
    return _classified(foresight, nodes, found, now_s=now_s)


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
    foresight: Foresight,
    pool: tuple[PoolNode, ...],
    found: Mapping[Key, Sequence[Member]],
    *,
    now_s: float,
) -> tuple[Classes, ClassForecast]:
    horizon_s, wait_s = foresight.horizon_s, foresight.wait_s
    classes, stays, index = [], [], {}
    ordered = sorted(found)
    for k, key in enumerate(ordered):
        shapes, alike, until, waits = key
        nodes = [node for node, _, _ in found[key]]
        life_s = max(0.0, min(node.end_s for node in nodes) - now_s)
        classes.append(NodeClass(f"{'+'.join(shapes)}, {alike}", len(nodes), life_s))
        wholes = list({group: whole for _, group, whole in found[key]}.values())
        stay = _stay(wholes, len(nodes), is_end_known=until >= 0).until(horizon_s)
        useful_s = max(0.0, stay.life_s - wait_s) if waits else stay.life_s
        stays.append(stay._replace(life_s=useful_s))
        index.update(dict.fromkeys((node.name for node in nodes), k))
    return (
        Classes(
            nodes=pool,
            classes=tuple(classes),
            shapes=tuple(frozenset(key[0]) for key in ordered),
            units=(1,) * len(classes),
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
    found: Mapping[Key, Sequence[Member]], stays: Sequence[WindowClass]
) -> tuple[tuple[int, ...], ...]:
    """Return the classes of each group that falls into several, the longest first."""
    parts: dict[tuple[str, int], list[int]] = {}
    for k, key in enumerate(sorted(found)):
        # Nodes that leave alone are in one class only: any of their groups will do.
        (_, group, _), (_, _, until, _) = found[key][0], key
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

    Forecasts are of whole groups, all their idle nodes. Where the class is only a part
    of its group, fewer nodes are hit less often, by W1.

    Nodes that leave alone are lost independently: x nodes see x times the hits of a
    single one. W1 is linear like that where the share is next to nothing, and ``hit``
    is then the hits on all of them. Those whose known ends fall into one minute are
    lost at once.
    """
    if len(wholes) == 1:
        whole = wholes[0]
        if whole.nodes == nodes:
            return whole
        return whole._replace(nodes=nodes, hit=whole.hits()[nodes])
    life_s = sum(whole.life_s for whole in wholes) / len(wholes)
    if is_end_known:
        return WindowClass(nodes, life_s, 1.0, 1.0)
    hits = sum(whole.hits()[1] for whole in wholes)
    return WindowClass(nodes, life_s, hits, _APART)
