"""Turns: equal shares over time, where there are more trainers than nodes."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from collections.abc import Set as AbstractSet

    from freetrain.priority.interface import Contender, Look, Memory


@dataclass(frozen=True, slots=True)
class Turn:
    """What is remembered of a trainer.

    Attributes:
        at_s: When it was last looked at.
        held: Nodes that it held from then on.
        ahead_node_s: Node-seconds it has had beyond its equal share; below 0 where
            it has had less.
        since_s: The last look at which it held no nodes, or its first.
    """

    at_s: float
    held: int
    ahead_node_s: float = 0.0
    since_s: float = 0.0


def turns_at(look: Look, memory: Memory) -> dict[str, Turn]:
    """Return how every contender stands now, by name; newcomers are not behind."""
    share = look.nodes / max(len(look.contenders), 1)
    return {
        one.name: _turn(_read(memory.get(one.name)), one, look.now_s, share=share)
        for one in look.contenders
    }


def whose_turn(
    look: Look, turns: Mapping[str, Turn], turn_s: float
) -> AbstractSet[str]:
    """Return the names of those who are to have their smallest size now.

    First whoever holds nodes for less than *turn_s*, then whoever is furthest
    behind, as long as there are nodes.
    """

    def rank(one: Contender) -> tuple[bool, float, str]:
        turn = turns[one.name]
        is_over = one.held == 0 or look.now_s - turn.since_s >= turn_s
        return is_over, turn.ahead_node_s, one.name

    left, chosen = look.nodes, set()
    for one in sorted(look.contenders, key=rank):
        if one.sizes[0] <= left:
            left -= one.sizes[0]
            chosen.add(one.name)
    return chosen


def to_memory(turns: Mapping[str, Turn]) -> Memory:
    """Return *turns* as JSON has them."""
    return {name: asdict(turn) for name, turn in turns.items()}


def _turn(before: Turn | None, one: Contender, now_s: float, *, share: float) -> Turn:
    if before is None:
        return Turn(now_s, one.held, 0.0, now_s)
    passed_s = max(now_s - before.at_s, 0.0)
    return Turn(
        at_s=now_s,
        held=one.held,
        ahead_node_s=before.ahead_node_s + passed_s * (before.held - share),
        since_s=before.since_s if one.held else now_s,
    )


def _read(entry: object) -> Turn | None:
    """Return the turn of *entry*; what cannot be read counts as never seen."""
    match entry:
        case {
            "at_s": float() | int() as at_s,
            "held": int(held),
            "ahead_node_s": float() | int() as ahead_node_s,
            "since_s": float() | int() as since_s,
        }:
            return Turn(at_s, held, ahead_node_s, since_s)
        case _:
            return None
