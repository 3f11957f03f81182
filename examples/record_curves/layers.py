"""Layers of networks: forward keeps what backward needs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

if TYPE_CHECKING:
    from examples.record_curves.learner import Array


class Layer(Protocol):
    """A function with weights, and its derivative."""

    weights: tuple[Array, ...]

    def forward(self, x: Array) -> Array:
        """Return the layer's values, a row a sample."""
        ...

    def backward(self, back: Array) -> tuple[Array, tuple[Array, ...]]:
        """Return the gradients with respect to the last *x*, and to the weights."""
        ...


class Dense:
    """Every input to every output, with a bias."""

    def __init__(self, inputs: int, outputs: int, random: np.random.Generator) -> None:
        scale = (2 / inputs) ** 0.5  # He et al., arXiv 1502.01852
        matrix = random.normal(scale=scale, size=(inputs, outputs))
        self.weights: tuple[Array, ...] = (matrix, np.zeros(outputs))
        self._x: Array = np.empty(0)

    def forward(self, x: Array) -> Array:
        """Return shape (samples, outputs)."""
        self._x = x
        values: Array = x @ self.weights[0] + self.weights[1]
        return values

    def backward(self, back: Array) -> tuple[Array, tuple[Array, ...]]:
        """Return the gradients."""
        return back @ self.weights[0].T, (self._x.T @ back, back.sum(axis=0))


class Relu:
    """What is above 0."""

    weights: tuple[Array, ...] = ()

    def __init__(self) -> None:
        self._x: Array = np.empty(0)

    def forward(self, x: Array) -> Array:
        """Return the same shape."""
        self._x = x
        return np.maximum(x, 0)

    def backward(self, back: Array) -> tuple[Array, tuple[Array, ...]]:
        """Return the gradient."""
        return back * (self._x > 0), ()


class Reshape:
    """The same numbers, arranged otherwise."""

    weights: tuple[Array, ...] = ()

    def __init__(self, *shape: int) -> None:
        self._shape = shape
        self._before: tuple[int, ...] = ()

    def forward(self, x: Array) -> Array:
        """Return shape (samples, *shape)."""
        self._before = x.shape
        return x.reshape(len(x), *self._shape)

    def backward(self, back: Array) -> tuple[Array, tuple[Array, ...]]:
        """Return the gradient."""
        return back.reshape(self._before), ()


class Convolution:
    """3 x 3 windows with zeros around, of images (samples, channels, side, side)."""

    def __init__(self, inputs: int, outputs: int, random: np.random.Generator) -> None:
        scale = (2 / (9 * inputs)) ** 0.5
        kernels = random.normal(scale=scale, size=(outputs, inputs, 3, 3))
        self.weights: tuple[Array, ...] = (kernels, np.zeros(outputs))
        self._windows: Array = np.empty(0)

    def forward(self, x: Array) -> Array:
        """Return shape (samples, outputs, side, side)."""
        self._windows = windows_of(x)
        sums = np.tensordot(self._windows, self.weights[0], ((1, 4, 5), (1, 2, 3)))
        values: Array = np.moveaxis(sums + self.weights[1], 3, 1)
        return values

    def backward(self, back: Array) -> tuple[Array, tuple[Array, ...]]:
        """Return the gradients; that of the windows turns the kernels round."""
        kernels = np.tensordot(back, self._windows, ((0, 2, 3), (0, 2, 3)))
        turned = self.weights[0][:, :, ::-1, ::-1]
        x = np.tensordot(windows_of(back), turned, ((1, 4, 5), (0, 2, 3)))
        return np.moveaxis(x, 3, 1), (kernels, back.sum(axis=(0, 2, 3)))


def windows_of(images: Array) -> Array:
    """Return the 3 x 3 surroundings of every pixel, as two more axes."""
    padded = np.pad(images, ((0, 0), (0, 0), (1, 1), (1, 1)))
    return sliding_window_view(padded, (3, 3), axis=(2, 3))


class Halve:
    """Means over 2 x 2 pixels."""

    weights: tuple[Array, ...] = ()

    def forward(self, x: Array) -> Array:
        """Return half the side."""
        samples, channels, side, _ = x.shape
        blocks = x.reshape(samples, channels, side // 2, 2, side // 2, 2)
        means: Array = blocks.mean(axis=(3, 5))
        return means

    def backward(self, back: Array) -> tuple[Array, tuple[Array, ...]]:
        """Return the gradient."""
        return back.repeat(2, axis=2).repeat(2, axis=3) / 4, ()


class Recurrent:
    """A tanh network over time; (samples, times, inputs) to its last state."""

    def __init__(self, inputs: int, states: int, random: np.random.Generator) -> None:
        self.weights: tuple[Array, ...] = (
            random.normal(scale=inputs**-0.5, size=(inputs, states)),
            random.normal(scale=states**-0.5, size=(states, states)),
            np.zeros(states),
        )
        self._x: Array = np.empty(0)
        self._states: list[Array] = []

    def forward(self, x: Array) -> Array:
        """Return shape (samples, states)."""
        into, along, bias = self.weights
        self._x, self._states = x, [np.zeros((len(x), len(bias)))]
        for time in range(x.shape[1]):
            told = x[:, time] @ into + self._states[-1] @ along + bias
            self._states.append(np.tanh(told))
        return self._states[-1]

    def backward(self, back: Array) -> tuple[Array, tuple[Array, ...]]:
        """Return the gradients, through all times."""
        into, along, _ = self.weights
        of_into, of_along, of_bias = map(np.zeros_like, self.weights)
        x = np.zeros_like(self._x)
        for time in reversed(range(x.shape[1])):
            inner = back * (1 - self._states[time + 1] ** 2)
            of_into += self._x[:, time].T @ inner
            of_along += self._states[time].T @ inner
            of_bias += inner.sum(axis=0)
            x[:, time] = inner @ into.T
            back = inner @ along.T
        return x, (of_into, of_along, of_bias)
