"""Reading and replacing a user's crontab or scrontab, and nobody else's lines."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from freetrain.cron.errors import CronChangedError, CronUnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable

    from freetrain.cron.kinds import Kind
    from freetrain.cron.programs import Programs, Said

_NONE_YET = re.compile(r"no crontab for|can't open .*No such file", re.IGNORECASE)
_SHOWN = 300


class Table:
    """One of the user's tables, kept by a program such as ``crontab``."""

    def __init__(self, kind: Kind, programs: Programs) -> None:
        """Take the *kind*, crontab or scrontab, and what runs programs."""
        self._program = kind.value
        self._programs = programs

    def read(self) -> bytes:
        """Return the table as it is, empty where there is none.

        Raises:
            CronUnavailableError: It cannot be read: no program, not allowed.
        """
        said = self._run("-l")
        if said.status == 0:
            return said.out
        # scrontab says so on its standard output, cron on its standard error
        if _NONE_YET.search(said.complaint + said.out.decode("utf-8", "replace")):
            return b""
        raise self._refused(said)

    def change(self, edit: Callable[[bytes], bytes]) -> bool:
        """Replace the table by what *edit* makes of it; tell whether it changed.

        Raises:
            CronUnavailableError: The table cannot be read or replaced.
            CronChangedError: Somebody else changed it in between.
        """
        before = self.read()
        after = edit(before)
        if after == before:
            return False
        if self.read() != before:
            raise CronChangedError(
                f"your {self._program} changed while it was being edited. Nothing was "
                f"written; ask again."
            )
        self._write(after)
        if self.read() != after:
            raise CronChangedError(
                f"your {self._program} is not what was just written: somebody else "
                f"wrote it too, or the program changed it. Look at it with "
                f"`{self._program} -l`, and ask again."
            )
        return True

    def _write(self, table: bytes) -> None:
        said = self._run("-", given=table) if table else self._run("-r")
        if said.status != 0:
            raise self._refused(said)

    def _run(self, *words: str, given: bytes = b"") -> Said:
        if self._programs.find(self._program) is None:
            raise CronUnavailableError(
                f"there is no program `{self._program}` on the PATH; nothing was "
                f"changed. Choose another --kind, or ask for cron on this host."
            )
        return self._programs.run((self._program, *words), given=given)

    def _refused(self, said: Said) -> CronUnavailableError:
        words = " ".join(
            (said.complaint or said.out.decode("utf-8", "replace")).split()
        )
        return CronUnavailableError(
            f"`{self._program}` refused: {words[:_SHOWN] or 'it said nothing'}. "
            f"Nothing was changed. Where cron is closed to you (cron.allow), ask for "
            f"it or choose another --kind."
        )
