"""Nodes that several leases share, cut into blocks and classes as model.md says.

A node has GPUs of one kind, and leases of it take 1 GPU up to all. Leases that
trainers hold are blocks of their own; the GPUs that are free beside them are cut into
blocks as large as a lease can be. Blocks of one kind and size are a class, idle nodes
apart from those in use, which are named first.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import NamedTuple

from milp.problem import Curve, NodeClass, Problem, ProblemTrainer, custom

Kinds = Sequence[Sequence[int]]
"""By kind of GPU: widths that leases may have on its nodes, the last a whole node."""

COSTS_S = (0.0, 1.0, 12.0, 180.0)
SOME_KINDS: Kinds = ((1, 2, 4, 8), (1, 2, 6), (1, 4))


@dataclass(frozen=True, slots=True)
class SharedNode:
    """A node.

    Attributes:
        kind: Of its GPUs.
        free: GPUs that nobody uses.
        leases: Trainers that hold a lease on it, by place; one entry for each lease.
    """

    kind: int
    free: int
    leases: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class SharedTrainer:
    """A trainer that takes leases of nodes.

    Attributes:
        curve: Its worth by leases.
        widths: GPUs of a lease by kind.
        kinds: Of GPUs that it may use.
        costs_s: Of growing, shrinking and starting.
    """

    curve: Curve
    widths: tuple[int, ...]
    kinds: frozenset[int]
    costs_s: tuple[float, float, float]


class Block(NamedTuple):
    """GPUs of a node that leases may take.

    Attributes:
        node: By place.
        kind: Of GPUs.
        size: GPUs.
        is_idle: Whether the whole node is idle.
        holder: The trainer whose lease it is, by place.
    """

    node: int
    kind: int
    size: int
    is_idle: bool
    holder: int | None


ClassKey = tuple[bool, int, int]
"""Whether the node is idle, GPUs, kind: the order in which classes are named."""


class SharedProblem(NamedTuple):
    """Nodes and trainers, and the problem that the planner is given.

    Attributes:
        nodes: The nodes.
        trainers: The trainers.
        blocks: Of all nodes.
        keys: The classes of blocks, as they are named.
        problem: As the planner is given it.
    """

    nodes: Sequence[SharedNode]
    trainers: Sequence[SharedTrainer]
    blocks: Sequence[Block]
    keys: Sequence[ClassKey]
    problem: Problem


def blocks_of(
    nodes: Sequence[SharedNode], trainers: Sequence[SharedTrainer], kinds: Kinds
) -> list[Block]:
    blocks = []
    for place, node in enumerate(nodes):
        widths = kinds[node.kind]
        is_idle = node.free == widths[-1]
        for holder in node.leases:
            width = trainers[holder].widths[node.kind]
            blocks.append(Block(place, node.kind, width, is_idle=False, holder=holder))
        left = node.free
        while left:
            size = max(width for width in widths if width <= left)
            blocks.append(Block(place, node.kind, size, is_idle, holder=None))
            left -= size
    return blocks


def key_of(block: Block) -> ClassKey:
    return block.is_idle, block.size, block.kind


def is_usable(trainer: SharedTrainer, key: ClassKey) -> bool:
    _, size, kind = key
    return kind in trainer.kinds and size % trainer.widths[kind] == 0


def shared_problem(
    nodes: Sequence[SharedNode],
    trainers: Sequence[SharedTrainer],
    kinds: Kinds,
    t_fwd_s: float,
) -> SharedProblem:
    blocks = blocks_of(nodes, trainers, kinds)
    keys = sorted({key_of(block) for block in blocks})
    classes = [
        NodeClass(f"{key}", sum(b.size for b in blocks if key_of(b) == key))
        for key in keys
    ]
    held = [[0] * len(keys) for _ in trainers]
    for block in blocks:
        if block.holder is not None:
            held[block.holder][keys.index(key_of(block))] += 1
    asking = [
        ProblemTrainer(
            f"t{j}",
            trainer.curve,
            tuple(held[j]),
            *trainer.costs_s,
            usable=frozenset(
                k for k, key in enumerate(keys) if is_usable(trainer, key)
            ),
            widths=tuple(trainer.widths[kind] for _, _, kind in keys),
        )
        for j, trainer in enumerate(trainers)
    ]
    problem = Problem(tuple(classes), tuple(asking), t_fwd_s)
    return SharedProblem(nodes, trainers, blocks, keys, problem)


def shared_at_random(
    rng: Random, *, nodes: int = 5, trainers: int = 4, are_held: bool = True
) -> SharedProblem:
    """Return a problem of three kinds of nodes, with GPUs in use or free.

    A trainer may hold a count that is not one of its sizes, or leases on GPUs of a kind
    that it may no longer use; or none holds any.

    Args:
        rng: Randomness.
        nodes: Most nodes.
        trainers: Most trainers.
        are_held: Whether trainers hold leases.
    """
    few_curves = [curve_at_random(rng) for _ in range(2)]
    every = range(len(SOME_KINDS))
    team = [
        SharedTrainer(
            rng.choice(few_curves),
            tuple(rng.choice(widths) for widths in SOME_KINDS),
            frozenset(rng.sample(every, rng.randint(1, 3))),
            (rng.choice(COSTS_S), rng.choice(COSTS_S), rng.choice(COSTS_S)),
        )
        for _ in range(rng.randint(1, trainers))
    ]
    rooms = [len(one.curve.value_per_s) - 1 if are_held else 0 for one in team]
    pool = []
    for _ in range(rng.randint(1, nodes)):
        kind = rng.choice(every)
        left = rng.choice((SOME_KINDS[kind][-1], rng.randint(0, SOME_KINDS[kind][-1])))
        leases = list[int]()
        for j in rng.choices(range(len(team)), k=rng.randint(0, 4)):
            width = team[j].widths[kind]
            if width <= left and rooms[j]:
                leases.append(j)
                rooms[j] -= 1
                left -= width
        pool.append(SharedNode(kind, left, tuple(leases)))
    t_fwd_s = rng.choice((1.0, 10.0, 120.0))
    return shared_problem(pool, team, SOME_KINDS, t_fwd_s)


def curve_at_random(rng: Random, most: int = 8) -> Curve:
    """Return a curve of any shape; few distinct worths make ties, any make none."""
    leases = rng.randint(1, most)
    few, is_rising = rng.random() < 0.5, rng.random() < 0.7
    worths = [
        float(rng.randint(0, 4)) if few else rng.uniform(0.0, 100.0)
        for _ in range(leases)
    ]
    sizes = rng.choice((None, rng.sample(range(1, leases + 1), rng.randint(1, leases))))
    return custom([0.0, *(sorted(worths) if is_rising else worths)], sizes)
