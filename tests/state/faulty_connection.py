"""A connection that dies before its n-th statement, as kill -9 would."""

from __future__ import annotations

import os
import signal
import sqlite3
from typing import Any


class DeadError(BaseException):
    """The process is no more; nothing may catch this and go on."""


class FaultyConnection(sqlite3.Connection):
    """Executes so many statements, and none after that: no roll-back either."""

    left: int | None = None
    is_killing = False

    def _count(self) -> None:
        if self.left is None:
            return
        if self.left <= 0:
            if self.is_killing:
                os.kill(os.getpid(), signal.SIGKILL)
            raise DeadError
        self.left -= 1

    def execute(self, *args: Any) -> sqlite3.Cursor:  # noqa: ANN401
        self._count()
        return super().execute(*args)

    def executemany(self, *args: Any) -> sqlite3.Cursor:  # noqa: ANN401
        self._count()
        return super().executemany(*args)
