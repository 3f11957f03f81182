"""Learning rates by epoch."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Rate:
    """A learning rate that may rise, sink in steps, or follow a cosine.

    Attributes:
        peak: Its largest value.
        warm_up: Epochs over which it rises from 0 in a line.
        cosine: Epochs after which it has sunk to 0 along half a cosine, warm-up
            included; None to stay at the peak.
        drops: Epochs after which it is multiplied by *factor*, ascending.
        factor: What each drop leaves.
    """

    peak: float
    warm_up: float = 0.0
    cosine: float | None = None
    drops: tuple[float, ...] = ()
    factor: float = 0.1

    def at(self, epoch: float) -> float:
        """Return the rate when *epoch* epochs are done, a fraction in between."""
        if epoch < self.warm_up:
            return self.peak * epoch / self.warm_up
        dropped = self.peak * self.factor ** sum(epoch >= drop for drop in self.drops)
        if self.cosine is None:
            return dropped
        way = min((epoch - self.warm_up) / (self.cosine - self.warm_up), 1.0)
        return dropped * (1 + math.cos(math.pi * way)) / 2

    def __str__(self) -> str:
        """The schedule in words."""
        words = [f"{self.peak:g}"]
        if self.warm_up:
            words.append(f"warm-up over {self.warm_up:g} epochs")
        if self.cosine is not None:
            words.append(f"cosine to 0 at epoch {self.cosine:g}")
        words += [f"times {self.factor:g} at epoch {drop:g}" for drop in self.drops]
        return ", ".join(words)
