"""Counting requests, whoever makes them: one allowance for pyslurm and programs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from slurm.errors import RequestsSpentError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from slurm.runner import Runner


class Requests:
    """How many requests were made, and whether more are allowed."""

    def __init__(self, most: int | None, *, made: int = 0) -> None:
        """Allow *most* requests, None for no cap, of which some were *made*."""
        self._most = most
        self._made = made

    @property
    def made(self) -> int:
        """Requests made so far, those that failed included."""
        return self._made

    def make(self, what: str) -> None:
        """Count one request, just before it is made.

        Raises:
            RequestsSpentError: No more are allowed; it must not be made.
        """
        if self._most is not None and self._made >= self._most:
            raise RequestsSpentError(
                f"`{what}` was not run: {self._made} requests were made, and no more "
                f"are allowed at a time. It is tried again next time."
            )
        self._made += 1


class CountedRunner:
    """A ``slurm.runner.Runner`` that counts what it runs."""

    def __init__(self, inner: Runner, requests: Requests) -> None:
        """Run with *inner*, counted by *requests*."""
        self._inner = inner
        self._requests = requests

    def run(self, argv: Sequence[str], *, timeout_s: float) -> str:
        """Run *argv* without a shell and return its standard output."""
        self._requests.make(argv[0])
        return self._inner.run(argv, timeout_s=timeout_s)
