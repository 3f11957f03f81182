"""The user's systemd units: two small files, and asking systemd to follow them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from freetrain.cron.errors import CronUnavailableError
from freetrain.errors import CannotWriteError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from freetrain.cron.programs import Programs


class Units:
    """The folder of a user's units, and the systemd that reads it."""

    def __init__(self, folder: Path, programs: Programs) -> None:
        """Take the folder, for example ``~/.config/systemd/user``."""
        self._folder = folder
        self._programs = programs

    def read(self, name: str) -> str:
        """Return the text of a unit's file, empty where there is none."""
        try:
            return (self._folder / name).read_text("utf-8", "surrogateescape")
        except FileNotFoundError:
            return ""

    def changed(self, files: Mapping[str, str]) -> list[str]:
        """Return the names of those of *files* that are not there, or not so."""
        return [name for name, text in files.items() if self.read(name) != text]

    def install(self, files: Mapping[str, str], *, timer: str) -> bool:
        """Write *files* and start *timer*; tell whether a file changed.

        Raises:
            CannotWriteError: The folder cannot be written.
            CronUnavailableError: The files are there, but systemd did not follow.
        """
        changed = self.changed(files)
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            for name in changed:
                _replace(self._folder / name, files[name])
        except OSError as error:
            raise _unwritable(self._folder, error) from error
        self._systemctl("daemon-reload")
        self._systemctl("enable", "--now", timer)
        return bool(changed)

    def remove(self, names: tuple[str, ...], *, timer: str) -> bool:
        """Stop *timer* and remove the files *names*; tell whether any was there.

        Raises:
            CannotWriteError: A file cannot be removed.
            CronUnavailableError: The files are gone, but systemd did not answer.
        """
        there = [name for name in names if (self._folder / name).exists()]
        if not there:
            return False
        try:
            self._systemctl("disable", "--now", timer)
        finally:
            try:
                for name in there:
                    (self._folder / name).unlink()
            except OSError as error:
                raise _unwritable(self._folder, error) from error
        self._systemctl("daemon-reload")
        return True

    def _systemctl(self, *words: str) -> None:
        argv = ("systemctl", "--user", *words)
        said = self._programs.run(argv)
        if said.status != 0:
            shown = " ".join(said.complaint.split())[:300]
            raise CronUnavailableError(
                f"`{' '.join(argv)}` refused: {shown or 'it said nothing'}. The files "
                f"in {self._folder} are as asked for; run it again where your systemd "
                f"is reachable, or choose another --kind."
            )


def _replace(path: Path, text: str) -> None:
    """Put *text* at *path*, whole or not at all."""
    new = path.with_name(f".{path.name}.new")
    new.write_text(text, "utf-8", "surrogateescape")
    new.replace(path)


def _unwritable(folder: Path, error: OSError) -> CannotWriteError:
    return CannotWriteError(
        f"cannot write {folder}: {error.strerror}. Ticks are as they were before; make "
        f"it writable for you, or choose another --kind."
    )
