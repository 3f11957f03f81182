"""How weights go down their gradients; all change them in place."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from examples.record_curves.learner import Array


class Optimizer(Protocol):
    """Changes weights; keeps what it needs from step to step."""

    def update(
        self, weights: Sequence[Array], gradients: Sequence[Array], rate: float
    ) -> None:
        """Take one step; always the same arrays, in the same order."""
        ...


class Sgd:
    """Stochastic gradient descent, with momentum (Polyak 1964) and weight decay."""

    def __init__(self, momentum: float = 0.0, decay: float = 0.0) -> None:
        self._momentum = momentum
        self._decay = decay
        self._speeds: list[Array] = []

    def update(
        self, weights: Sequence[Array], gradients: Sequence[Array], rate: float
    ) -> None:
        """Take one step."""
        self._speeds = self._speeds or [np.zeros_like(w) for w in weights]
        for weight, gradient, speed in zip(
            weights, gradients, self._speeds, strict=True
        ):
            speed[...] *= self._momentum
            speed[...] -= rate * (gradient + self._decay * weight)
            weight[...] += speed

    def __str__(self) -> str:
        """Its name and settings."""
        words = ["SGD"]
        words += [f"momentum {self._momentum:g}"] if self._momentum else []
        words += [f"weight decay {self._decay:g}"] if self._decay else []
        return ", ".join(words)


class Adam:
    """Adam with its authors' settings (Kingma and Ba, arXiv 1412.6980)."""

    FIRST, SECOND, SMALL = 0.9, 0.999, 1e-8

    def __init__(self) -> None:
        self._steps = 0
        self._means: list[Array] = []
        self._squares: list[Array] = []

    def update(
        self, weights: Sequence[Array], gradients: Sequence[Array], rate: float
    ) -> None:
        """Take one step."""
        self._means = self._means or [np.zeros_like(w) for w in weights]
        self._squares = self._squares or [np.zeros_like(w) for w in weights]
        self._steps += 1
        scale = rate * (1 - self.SECOND**self._steps) ** 0.5
        scale /= 1 - self.FIRST**self._steps
        for weight, gradient, mean, square in zip(
            weights, gradients, self._means, self._squares, strict=True
        ):
            mean[...] += (1 - self.FIRST) * (gradient - mean)
            square[...] += (1 - self.SECOND) * (gradient**2 - square)
            weight[...] -= scale * mean / (np.sqrt(square) + self.SMALL)

    def __str__(self) -> str:
        """Its name."""
        return "Adam"
