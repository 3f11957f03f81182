"""Random numbers that are the same on every platform and NumPy version."""

from __future__ import annotations

import math

from numpy.random import PCG64, SeedSequence

BLOCK = 1024
"""Raw numbers fetched at once; it changes the speed, never the numbers."""


class Draws:
    """One stream of random numbers, named by a seed and a key.

    NumPy promises that the raw words of ``PCG64`` and the seeding by
    ``SeedSequence`` stay as they are, and does not promise it for the
    distributions of ``Generator`` (NEP 19). So everything here is made from raw
    words. What is left to the platform is the last bit of ``log`` and ``exp``.

    Streams with different keys are independent: a longer trace, or another
    parameter of one aspect, leaves the numbers of the other aspects alone.
    """

    __slots__ = ("_bits", "_block", "_next")

    def __init__(self, seed: int, *key: int) -> None:
        self._bits = PCG64(SeedSequence(seed, spawn_key=key))
        self._block: list[int] = []
        self._next = 0

    def uniform(self) -> float:
        """Return a number in [0, 1), a multiple of 2**-53."""
        if self._next == len(self._block):
            self._block = self._bits.random_raw(BLOCK).tolist()
            self._next = 0
        word = self._block[self._next]
        self._next += 1
        return (word >> 11) * 2.0**-53

    def normal(self) -> float:
        """Return a standard normal number (polar method, Marsaglia and Bray 1964)."""
        while True:
            x = 2.0 * self.uniform() - 1.0
            y = 2.0 * self.uniform() - 1.0
            square = x * x + y * y
            if 0.0 < square < 1.0:
                return x * math.sqrt(-2.0 * math.log(square) / square)

    def gamma(self, shape: float, scale: float) -> float:
        """Return a gamma number with mean ``shape * scale``.

        Args:
            shape: 1 or more; every shape of the workload model is.
            scale: Above 0, in the unit of the answer.

        Source:
            Marsaglia and Tsang, "A simple method for generating gamma
            variables", ACM TOMS 26(3), 2000.
        """
        d = shape - 1.0 / 3.0
        c = 1.0 / math.sqrt(9.0 * d)
        while True:
            x = self.normal()
            v = (1.0 + c * x) ** 3
            if v <= 0.0:
                continue
            u = 1.0 - self.uniform()  # (0, 1], so that its logarithm exists
            if math.log(u) < 0.5 * x * x + d * (1.0 - v + math.log(v)):
                return d * v * scale
