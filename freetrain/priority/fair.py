"""The priority ``fair``: equal shares of the nodes, whatever trainers make of them.

Where there are more trainers than nodes, shares may be equal over time: in turns.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import numpy as np

from freetrain.errors import UsageError
from freetrain.priority.base import CurveCache, Rating, RatingBasis, RatingResult

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from freetrain.priority.base import Contender, Memory, RatingInputs
    from milp.problem import Curve

BEYOND = 0.1
"""Worth of a node above the share, over one below it: enough to use idle nodes."""


class Fair:
    """O_j(n) = min(n, L) + 0.1 max(0, n - L), with the level L the same for all.

    L fills the pool: the sum of min(L, largest size) is the nodes there are. A node
    below L is worth ten above it, so that the planner levels; it does not where the
    rescale costs more than the look-ahead brings. Where there are fewer nodes than
    trainers, a trainer that holds nodes keeps them: first come, first served, unless
    trainers take turns.

    Args:
        turn_s: Seconds after which the trainer that has had least takes over, where
            there are fewer nodes than trainers; 0 for never.

    Raises:
        UsageError: *turn_s* is below 0, or not finite.
    """

    name = "fair"
    basis = RatingBasis.MOMENT

    def __init__(self, *, turn_s: float = 0.0) -> None:
        if not 0 <= turn_s < math.inf:
            raise UsageError(
                f"turn_s {turn_s:g} is not 0 or more. Give the seconds of a turn, "
                f"or 0 for no turns."
            )
        self._turn_s = turn_s
        self._curves = CurveCache()

    def rate(self, inputs: RatingInputs, memory: Memory, /) -> RatingResult:
        """Rate every contender by how much of its share it has."""
        level = level_nodes(
            [contender.sizes[-1] for contender in inputs.contenders], inputs.nodes
        )
        if not self._turn_s or level >= 1:
            return RatingResult(
                tuple(
                    [self._rating(contender, level) for contender in inputs.contenders]
                ),
                {},
            )
        turns = turns_at(inputs, memory)
        chosen = whose_turn(inputs, turns, self._turn_s)
        ratings = [
            self._turn(contender, contender.sizes[0] if contender.name in chosen else 0)
            for contender in inputs.contenders
        ]
        return RatingResult(tuple(ratings), to_memory(turns))

    def _rating(self, contender: Contender, level: float) -> Rating:
        share = min(level, contender.sizes[-1])
        return Rating(
            curve=share_curve(contender, share, self._curves),
            reason=f"its equal share is {share:.3g} nodes",
        )

    def _turn(self, contender: Contender, least: int) -> Rating:
        return Rating(
            curve=share_curve(contender, least, self._curves),
            floor=least,
            reason="it is its turn" if least else "it is the turn of others",
        )


def share_curve(contender: Contender, share: float, curves: CurveCache) -> Curve:
    """Return the worth of nodes up to a *share* of them, and a little beyond."""
    counts = np.arange(contender.sizes[-1] + 1, dtype=np.float64)
    above = np.maximum(counts - share, 0.0)
    return curves.custom(counts - above + BEYOND * above, contender.sizes)


def level_nodes(most: Sequence[int], nodes: int) -> float:
    """Return the level up to which all can be filled with *nodes*, above 0.

    Args:
        most: The largest size of each, above 0.
        nodes: Nodes to spread; more than all can use level at the largest size.
    """
    left, level = float(max(nodes, 1)), 1.0
    for place, own in enumerate(sorted(most)):
        level = left / (len(most) - place)
        if level <= own:
            return level
        left -= own
        level = float(own)
    return level


# Turns: equal shares over time, where there are more trainers than nodes


@dataclass(frozen=True, slots=True)
class Turn:
    """The memory of a trainer.

    Attributes:
        at_s: The time of the last rating.
        held: Nodes that it held from then on.
        ahead_node_s: Node-seconds it has had beyond what is due to it; below 0 where
            it has had less.
        had_s: Seconds for which it has held nodes.
        since_s: The last rating at which it held no nodes, or its first.
    """

    at_s: float
    held: int
    ahead_node_s: float = 0.0
    had_s: float = 0.0
    since_s: float = 0.0


def turns_at(
    inputs: RatingInputs, memory: Memory, *, part: float = 1.0
) -> dict[str, Turn]:
    """Return the turn of every contender, by name; newcomers are not behind.

    What one has while there are nodes for all is held against nobody; and while there
    are none, nobody falls behind.

    Args:
        inputs: The trainers now.
        memory: The turns at the last rating, as JSON.
        part: Of its equal share of the nodes, what is due to each contender.
    """
    most = {contender.name: contender.sizes[-1] for contender in inputs.contenders}
    level = level_nodes(tuple(most.values()), inputs.nodes)
    is_contended = inputs.nodes > 0 and len(most) > 1 and level < max(most.values())
    return {
        contender.name: _turn(
            _read(memory.get(contender.name)),
            contender,
            inputs.now_s,
            due_nodes=part * min(level, most[contender.name]) if is_contended else None,
        )
        for contender in inputs.contenders
    }


def _turn(
    before: Turn | None, contender: Contender, now_s: float, *, due_nodes: float | None
) -> Turn:
    if before is None:
        return Turn(now_s, contender.held, since_s=now_s)
    passed_s = max(now_s - before.at_s, 0.0)
    beyond = 0.0 if due_nodes is None else before.held - due_nodes
    return Turn(
        at_s=now_s,
        held=contender.held,
        ahead_node_s=before.ahead_node_s + passed_s * beyond,
        had_s=before.had_s + (passed_s if before.held else 0.0),
        since_s=min(before.since_s, now_s) if contender.held else now_s,
    )


def whose_turn(
    inputs: RatingInputs, turns: Mapping[str, Turn], turn_s: float
) -> AbstractSet[str]:
    """Return the names of the trainers that are to have their smallest size now.

    First those that have held nodes for less than *turn_s*, then those furthest
    behind, as long as there are nodes. One that is more than a turn behind goes before
    both; otherwise one that needs several nodes would never get them at once.
    """

    def rank(contender: Contender) -> tuple[bool, bool, float, str]:
        turn, least = turns[contender.name], contender.sizes[0]
        is_late = turn.ahead_node_s < -turn_s * least and least <= inputs.nodes
        is_over = contender.held == 0 or inputs.now_s - turn.since_s >= turn_s
        return not is_late, is_over, turn.ahead_node_s, contender.name

    left, chosen = inputs.nodes, set()
    for contender in sorted(inputs.contenders, key=rank):
        if contender.sizes[0] <= left:
            left -= contender.sizes[0]
            chosen.add(contender.name)
    return chosen


def to_memory(turns: Mapping[str, Turn]) -> Memory:
    """Return *turns* as JSON has them."""
    return {name: asdict(turn) for name, turn in turns.items()}


def _read(entry: object) -> Turn | None:
    """Return the turn in *entry*; None where it cannot be read, as for a newcomer."""
    match entry:
        case {
            "at_s": float() | int() as at_s,
            "held": int(held),
            "ahead_node_s": float() | int() as ahead_node_s,
            "had_s": float() | int() as had_s,
            "since_s": float() | int() as since_s,
        }:
            return Turn(at_s, held, ahead_node_s, had_s, since_s)
        case _:
            return None
