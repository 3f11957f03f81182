"""Failures between us and Slurm, by what the caller should do next.

SlurmError
├── SlurmUnavailableError    no answer: try again at the next tick
│   └── SlurmMissingError    no such program on the PATH
├── RequestsSpentError       nothing was asked: go on at the next tick
├── SlurmRefusedError        Slurm said no: tell the user, trying again will not help
└── UnreadableOutputError    our bug or a new Slurm: keep the text, change nothing
"""

from __future__ import annotations

_SHOWN_CHARACTERS = 200


class SlurmError(Exception):
    """Something between us and Slurm went wrong."""


class SlurmUnavailableError(SlurmError):
    """Slurm did not answer; the request may or may not have had its effect."""


class SlurmMissingError(SlurmUnavailableError):
    """There is no such program on the PATH; nothing was asked."""


class RequestsSpentError(SlurmError):
    """All allowed requests were made; this one was not sent."""


class SlurmRefusedError(SlurmError):
    """Slurm answered, and the answer is no.

    Attributes:
        said: All that the command printed as its reason, empty where none ran.
    """

    def __init__(self, message: str, *, said: str = "") -> None:
        self.said = said
        super().__init__(message)


class UnreadableOutputError(SlurmError):
    """Slurm answered with something this version cannot read.

    Attributes:
        command: The command that answered, for example ``squeue``.
        line_number: Line from 1; the record from 1 where the answer is JSON;
            0 where the whole answer is meant.
        line: The unreadable text, shortened in the message only.
        why: The form that was expected instead.
    """

    def __init__(self, command: str, line_number: int, line: str, why: str) -> None:
        self.command = command
        self.line_number = line_number
        self.line = line
        self.why = why
        shown = line[:_SHOWN_CHARACTERS] + "…" * (len(line) > _SHOWN_CHARACTERS)
        super().__init__(
            f"cannot read line {line_number} of `{command}`: {why}: {shown!r}. "
            f"No node was touched. If Slurm was upgraded, attach this command's output "
            f"to a bug report; in FreeTrain's source tree `python -m "
            f"tests.record_slurm DIR` writes it with all names replaced."
        )
