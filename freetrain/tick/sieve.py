"""A few of very many, evenly, and always the newest; pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

Row = list[float]


@dataclass(slots=True)
class Sieve:
    """Keeps every n-th row; n doubles whenever too many are kept.

    Attributes:
        most: Rows that are kept at the most, beside the newest.
        every: n.
        count: Rows that came.
        kept: Every n-th of them, the first included.
        newest: The last that came, where it is not kept; else None.
    """

    most: int
    every: int = 1
    count: int = 0
    kept: list[Row] = field(default_factory=list)
    newest: Row | None = None

    def add(self, row: Row) -> None:
        """Take in the next row."""
        self.newest = None
        if self.count % self.every:
            self.newest = row
        else:
            self.kept.append(row)
        self.count += 1
        if len(self.kept) > self.most:
            last = self.kept[-1]
            self.kept, self.every = self.kept[::2], 2 * self.every
            if self.kept[-1] is not last and self.newest is None:
                self.newest = last

    @property
    def rows(self) -> list[Row]:
        """Those kept, and the newest, in the order in which they came."""
        return self.kept if self.newest is None else [*self.kept, self.newest]

    def to_state(self) -> dict[str, Any]:
        """Return it as JSON has it, but for ``most``."""
        return {
            "every": self.every,
            "count": self.count,
            "kept": self.kept,
            "newest": self.newest,
        }


def sieve_from(state: Mapping[str, Any], *, most: int) -> Sieve:
    """Return what ``to_state`` made *state* of."""
    return Sieve(most, state["every"], state["count"], state["kept"], state["newest"])
