"""Strikes against slow growers, remembered from look to look."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from freetrain.priority.interface import Contender, Memory


@dataclass(frozen=True, slots=True)
class Record:
    """What is remembered of a trainer.

    Attributes:
        at_s: When it was last looked at and had been training.
        samples: Work it had done by then.
        strikes: Slow looks in a row.
    """

    at_s: float
    samples: float
    strikes: int = 0


def struck(
    before: Record | None,
    contender: Contender,
    *,
    now_s: float,
    period_s: float,
    is_slow: bool,
) -> Record:
    """Return the record after a look: one strike more, none, or as it was.

    A look counts where *period_s* has passed since the last that did, and work has
    been done: who holds no nodes is not slow, and its growth is not new.
    """
    done = contender.done_samples
    if before is None:
        return Record(now_s, done, int(is_slow))
    if now_s - before.at_s < period_s or done <= before.samples:
        return before
    return Record(now_s, done, before.strikes + 1 if is_slow else 0)


def to_memory(records: Mapping[str, Record]) -> Memory:
    """Return *records* as JSON has them."""
    return {
        name: {"at_s": own.at_s, "samples": own.samples, "strikes": own.strikes}
        for name, own in records.items()
    }


def from_memory(memory: Memory) -> dict[str, Record]:
    """Return the records of *memory*; what cannot be read counts as never seen."""
    return {name: own for name in memory if (own := _record(memory[name])) is not None}


def _record(entry: object) -> Record | None:
    match entry:
        case {
            "at_s": float() | int() as at_s,
            "samples": float() | int() as samples,
            "strikes": int(strikes),
        }:
            return Record(at_s, samples, strikes)
        case _:
            return None
