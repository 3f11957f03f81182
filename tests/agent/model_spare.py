"""A made-up spare."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class ModelSpare:
    """A spare of a trainer; ends as soon as it is asked to.

    Attributes:
        trainer: Whose ranks it makes.
        exit_code: Its own, once it has ended.
        pid: Its number.
    """

    trainer: str
    exit_code: int | None = None
    pid: int = 1

    def poll(self) -> int | None:
        return self.exit_code

    def ask_to_stop(self) -> None:
        self.exit_code = 0

    def lingers(self) -> bool:
        return False

    def kill(self) -> None:
        self.exit_code = -9
