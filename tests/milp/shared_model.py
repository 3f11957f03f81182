"""A MILP that places leases on pieces of nodes: a yardstick for shared nodes.

It shares nothing with the planner: the objective M0 is written out, capacity is that of
each single piece of a node (a block, or all that is free or held of it), and a lease
lies on one piece. Widths divide one another, so that leases whose GPUs are no more than
those of a piece fit into it.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import pulp

from milp.answer import SolverStatus
from milp.program import Cbc
from tests.milp.shared_nodes import SharedProblem, SharedTrainer


class Piece(NamedTuple):
    """GPUs of one node.

    Attributes:
        kind: Of GPUs.
        size: GPUs that are free or held.
        held: Leases on it, by trainer.
    """

    kind: int
    size: int
    held: Mapping[int, int]


def blocks_as_pieces(shared: SharedProblem) -> list[Piece]:
    return [
        Piece(b.kind, b.size, {} if b.holder is None else {b.holder: 1})
        for b in shared.blocks
    ]


def nodes_as_pieces(shared: SharedProblem) -> list[Piece]:
    return [
        Piece(
            node.kind,
            node.free + sum(shared.trainers[j].widths[node.kind] for j in node.leases),
            Counter(node.leases),
        )
        for node in shared.nodes
    ]


def best_gain(
    trainers: Sequence[SharedTrainer], pieces: Sequence[Piece], t_fwd_s: float
) -> float:
    """Return the gain of the best plan that places every lease on a piece."""
    if not trainers:
        return 0.0  # CBC crashes on a model without variables
    model = pulp.LpProblem("shared", pulp.LpMaximize)
    worth = []
    used: list[list[pulp.LpAffineExpression]] = [[] for _ in pieces]
    for j, trainer in enumerate(trainers):
        held = sum(piece.held.get(j, 0) for piece in pieces)
        curve = trainer.curve.value_per_s.tolist()
        size = {n: _whole(model, f"z_{j}_{n}", 1) for n in (0, *trainer.curve.sizes)}
        model += pulp.lpSum(size.values()) == 1
        grown = pulp.lpSum(z for n, z in size.items() if n > held)
        shrunk = pulp.lpSum(z for n, z in size.items() if n < held)
        leases = []
        for i, piece in enumerate(pieces):
            width, before = trainer.widths[piece.kind], piece.held.get(j, 0)
            if piece.kind not in trainer.kinds or width > piece.size:
                model += shrunk >= min(before, 1)  # what it may not use it gives up
                continue
            most = piece.size // width
            x = _whole(model, f"x_{j}_{i}", most)
            leases.append(x)
            used[i].append(width * x)
            model += x >= before * (1 - shrunk)
            model += x <= before + (most - before) * grown
        model += pulp.lpSum(leases) == pulp.lpSum(n * z for n, z in size.items())
        up_s, down_s, start_s = trainer.costs_s
        earning_s = t_fwd_s - (start_s if held == 0 else 0.0)
        worth.append(pulp.lpSum(earning_s * curve[n] * z for n, z in size.items()))
        worth.append(-curve[held] * (up_s * grown + down_s * shrunk))
    model += pulp.lpSum(worth)
    for piece, own in zip(pieces, used, strict=True):
        model += pulp.lpSum(own) <= piece.size
    assert Cbc().solve(model, limit_s=60.0) is SolverStatus.OPTIMUM
    return float(pulp.value(model.objective) or 0.0)


def _whole(model: pulp.LpProblem, name: str, most: int) -> pulp.LpVariable:
    return model.add_variable(name, 0, most, pulp.LpInteger)
