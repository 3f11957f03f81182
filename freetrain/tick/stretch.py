"""How quick one generation of a trainer was, from what it told; pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from freetrain.tick.sieve import Sieve, sieve_from

if TYPE_CHECKING:
    from collections.abc import Mapping

MOST_MARKS = 60


@dataclass(slots=True)
class Stretch:
    """What was told by one generation, with times.

    Attributes:
        generation: Whose it is.
        marks: Time, work and steps of what was told; steps are counted here where
            the program does not count them.
    """

    generation: int
    marks: Sieve = field(default_factory=lambda: Sieve(MOST_MARKS))

    def take(self, t_s: float, work: float | None, step: int | None) -> None:
        """Take in that *work* and *step* were done at *t_s*.

        Work that goes back is of a program that started over without saying so: what
        was told before is no measure any more.
        """
        if work is None:
            return
        rows = self.marks.rows
        if rows and work < rows[-1][1]:
            self.marks, rows = Sieve(MOST_MARKS), []
        counted = float(self.marks.count) if step is None else float(step)
        self.marks.add([t_s, work, counted])

    @property
    def last_s(self) -> float | None:
        """When its last step was told, None before the first."""
        rows = self.marks.rows
        return rows[-1][0] if rows else None

    def to_state(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        return {"generation": self.generation, "marks": self.marks.to_state()}


def stretch_from(state: Mapping[str, Any]) -> Stretch:
    """Return what ``to_state`` made *state* of."""
    marks = sieve_from(state["marks"], most=MOST_MARKS)
    return Stretch(state["generation"], marks)
