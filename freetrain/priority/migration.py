"""Which member of a crowded pack moves to another pack: the rules by name.

Pure; live packs and replays share it. A pack is crowded beside another if one of its
members would share the CPUs of the other with fewer. A rule names one move at a time,
so that the next one is decided by what it led to.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence


class MoveRule(StrEnum):
    """The name of a rule."""

    BALANCE = "balance"
    SPECON = "specon"


@dataclass(frozen=True, slots=True, kw_only=True)
class PackMember:
    """A member that runs, or is about to, as the rules see it.

    Attributes:
        name: Its trainer.
        growth: Growth efficiency that was measured last; None where it is unknown.
        is_slow: Whether its growth was too low twice in a row.
        can_move: Whether it goes on from a checkpoint, and is not moving already.
    """

    name: str
    growth: float | None = None
    is_slow: bool = False
    can_move: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class PackLoad:
    """A pack as the rules see it.

    Attributes:
        pack: Its name, unique among the packs.
        cpus: CPUs of all members together.
        members: In the order in which they came to this pack.
    """

    pack: str
    cpus: int
    members: tuple[PackMember, ...] = ()

    @property
    def crowding(self) -> float:
        """Members for each CPU."""
        return len(self.members) / self.cpus


@dataclass(frozen=True, slots=True)
class Migration:
    """A member and the pack that it is to move to."""

    member: str
    source: str
    target: str


def balance(packs: Sequence[PackLoad]) -> Migration | None:
    """Move the newest member of the most crowded pack to the least crowded one."""
    for source, target in _crowded(packs):
        movable = [member for member in source.members if member.can_move]
        if movable:
            return Migration(movable[-1].name, source.pack, target.pack)
    return None


def specon(packs: Sequence[PackLoad]) -> Migration | None:
    """Move the slowest grower of the most crowded pack that has one.

    It goes to the least crowded pack. Members that are not slow stay where they are,
    however crowded that is.

    Source: the idea of SpeCon (arXiv:2010.11307): models that grow slowly make room
    for those that grow fast. Its exact condition is unverified.
    """
    for source, target in _crowded(packs):
        slow = [
            member for member in source.members if member.can_move and member.is_slow
        ]
        if slow:
            slowest = min(slow, key=lambda member: member.growth or 0.0)
            return Migration(slowest.name, source.pack, target.pack)
    return None


RULES: dict[MoveRule, Callable[[Sequence[PackLoad]], Migration | None]] = {
    MoveRule.BALANCE: balance,
    MoveRule.SPECON: specon,
}


def _crowded(packs: Sequence[PackLoad]) -> Iterator[tuple[PackLoad, PackLoad]]:
    """Yield sources and targets of moves, by crowding and then by name."""
    order = sorted(packs, key=lambda pack: (pack.crowding, pack.pack))
    for source in reversed(order):
        target = order[0]
        if (len(target.members) + 1) / target.cpus < source.crowding:
            yield source, target
