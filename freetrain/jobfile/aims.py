"""What a trainer's user wants of it: which metric counts, up to where, and by when."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from freetrain.quality.outlook import Better

if TYPE_CHECKING:
    from datetime import datetime
    from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Quality:
    """Which metric says how good a trainer's model is.

    Attributes:
        metric: Its name among those that the program tells.
        better: Which of its values are good.
    """

    metric: str = "loss"
    better: Better = Better.LOWER

    def is_reached(self, target: float, value: float) -> bool:
        """Tell whether *value* is *target* or better; nan never is."""
        return self.better.is_reached(target, value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Two values of the metric that a user wants, and what is done at the first.

    Attributes:
        deliver: Reaching it, the trainer's checkpoint is handed over.
        final: Reaching it, the training is over; None for as long as it likes.
        publish: Where that checkpoint is put; None for nowhere.
        hook: The program called then, and its arguments; empty for none.
        hook_limit_s: How long it may take before it is killed. A tick waits for it.
    """

    deliver: float
    final: float | None = None
    publish: Path | None = None
    hook: tuple[str, ...] = ()
    hook_limit_s: float = 20.0


@dataclass(frozen=True, slots=True)
class Deadline:
    """When a trainer should be finished: one of the two.

    Attributes:
        after_s: So long after its submission.
        at: At this time, which has an offset from UTC.
    """

    after_s: float | None = None
    at: datetime | None = None

    def time_s(self, submitted_s: float) -> float:
        """Return the Unix time that is meant by who submitted at *submitted_s*."""
        if self.at is not None:
            return self.at.timestamp()
        return submitted_s + (self.after_s or 0.0)
