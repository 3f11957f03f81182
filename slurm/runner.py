"""How commands are run: the protocol that every back end keeps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence


class Runner(Protocol):
    """Runs one command to its end.

    Contract, checked for every implementation by one suite: returns standard
    output in full, or raises; never returns part of an answer.
    """

    def run(self, argv: Sequence[str], *, timeout_s: float) -> str:
        """Run *argv* without a shell and return its standard output.

        Bytes that are not UTF-8 come as surrogate escapes, so that nothing is
        lost and columns can be counted in bytes.

        Raises:
            SlurmUnavailableError: No answer within *timeout_s*, no such command,
                or the command could not reach Slurm.
            SlurmRefusedError: The command exited with a status other than 0.
            UnreadableOutputError: The answer is larger than any honest one.
        """
        ...
