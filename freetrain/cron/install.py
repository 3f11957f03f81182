"""Reading and replacing a user's crontab or scrontab, and nobody else's lines."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from freetrain.cron.tables import (
    PROGRAM,
    Block,
    CronChangedError,
    CronUnavailableError,
    CronUnfitError,
    Found,
    Kind,
    TickCall,
    crontab_block,
    lines_between,
    put,
    scrontab_block,
    unit_files,
    unit_name,
    without,
)
from freetrain.errors import CannotWriteError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from freetrain.config.site import Site
    from freetrain.cron.tables import Programs, Said


# ----------------------------------------------------------------------
# Reading and replacing a user's crontab or scrontab, and nobody else's lines.

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


# ----------------------------------------------------------------------
# The user's systemd units: two small files, and asking systemd to follow them.


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


# ----------------------------------------------------------------------
# Showing, installing and removing regular ticks, whatever kind of table keeps them.

_BLOCKS = {Kind.CRONTAB: crontab_block, Kind.SCRONTAB: scrontab_block}


@dataclass(frozen=True, slots=True)
class Ticks:
    """The regular ticks of one state directory.

    Attributes:
        call: What is started.
        programs: Runs ``crontab`` and its like.
        units: The folder of the user's systemd units.
    """

    call: TickCall
    programs: Programs
    units: Path

    def preview(self, kind: Kind, *, every_s: int) -> str:
        """Return what ``install`` would write, and change nothing.

        Raises:
            CronUnfitError: The interval or a path does not fit.
        """
        if kind is Kind.SYSTEMD:
            files = unit_files(self.call, every_s=every_s)
            parts = (f"# {self.units / name}\n{text}" for name, text in files.items())
            return "\n".join(parts)
        block = _BLOCKS[kind](self.call, every_s=every_s)
        return bytes(block).decode("utf-8", "surrogateescape")

    def install(self, kind: Kind, *, every_s: int) -> bool:
        """Write the entry, in place of an earlier one; tell whether it is new.

        Raises:
            FreeTrainError: It could not be written; the message says how far it is.
        """
        if kind is Kind.SYSTEMD:
            files = unit_files(self.call, every_s=every_s)
            units = Units(self.units, self.programs)
            return units.install(files, timer=self._timer)
        block = _BLOCKS[kind](self.call, every_s=every_s)
        return Table(kind, self.programs).change(lambda table: put(table, block))

    def remove(self, kind: Kind) -> bool:
        """Take the entry out again; tell whether there was one.

        Raises:
            FreeTrainError: It could not be taken out.
        """
        if kind is Kind.SYSTEMD:
            names = (self._timer, f"{unit_name(self.call)}.service")
            return Units(self.units, self.programs).remove(names, timer=self._timer)
        block = Block(self.call.mark)
        return Table(kind, self.programs).change(lambda table: without(table, block))

    def installed(self, kind: Kind) -> tuple[str, ...]:
        """Return the lines that are installed, none where there is no entry.

        Raises:
            FreeTrainError: The table cannot be read.
        """
        if kind is Kind.SYSTEMD:
            text = Units(self.units, self.programs).read(self._timer)
            return tuple(text.splitlines())
        return lines_between(Table(kind, self.programs).read(), self.call.mark)

    def compare(self, kind: Kind, *, every_s: int) -> Found:
        """Hold what is installed against what ``preview`` shows.

        Raises:
            FreeTrainError: The table cannot be read, or the interval does not fit.
        """
        lines = self.installed(kind)
        if not lines:
            return Found.NOTHING
        if kind is Kind.SYSTEMD:
            files = unit_files(self.call, every_s=every_s)
            is_same = not Units(self.units, self.programs).changed(files)
        else:
            is_same = lines == _BLOCKS[kind](self.call, every_s=every_s).lines
        return Found.SAME if is_same else Found.OTHER

    def kinds_here(self) -> tuple[Kind, ...]:
        """Return the kinds that can be asked for on this machine."""
        return tuple(kind for kind in Kind if self.programs.find(PROGRAM[kind]))

    @property
    def _timer(self) -> str:
        return f"{unit_name(self.call)}.timer"


# ----------------------------------------------------------------------
# From a site and an environment to the call that a table starts.

_SLURM = ("sbatch", "squeue", "scancel", "scontrol", "sdiag", "sinfo", "srun")
_SYSTEM = ("/usr/local/bin", "/usr/bin", "/bin")
_KEPT = (
    "LD_LIBRARY_PATH",
    "SLURM_CONF",
    "SLURM_CONF_SERVER",
    "FREETRAIN_PYSLURM",
)
"""What Slurm and Python may need to start at all, and which back end is used."""


def ticks_of(
    site: Site,
    *,
    python: Path,
    environ: Mapping[str, str],
    uid: int,
    programs: Programs,
) -> Ticks:
    """Return the regular ticks of *site*.

    Args:
        site: Which state directory and which configuration.
        python: The Python that has us.
        environ: The user's variables: HOME, and what Slurm needs.
        uid: The user's number.
        programs: Finds Slurm's programs, and runs those that keep tables.

    Raises:
        CronUnfitError: HOME is not set.
    """
    home = environ.get("HOME", "")
    if not home.startswith("/"):
        raise CronUnfitError(
            "HOME is not set to an absolute path, and ticks need it. Nothing was "
            "changed; set HOME."
        )
    path = os.pathsep.join(_folders(programs))
    kept = ((name, environ[name]) for name in _KEPT if environ.get(name))
    call = TickCall(
        python=python,
        state=site.state_directory,
        config=site.path,
        variables=(("HOME", home), ("PATH", path), ("LC_ALL", "C.UTF-8"), *kept),
        uid=uid,
    )
    configured = environ.get("XDG_CONFIG_HOME", "")
    base = Path(configured if configured.startswith("/") else f"{home}/.config")
    return Ticks(call, programs, base / "systemd" / "user")


def _folders(programs: Programs) -> tuple[str, ...]:
    """Return where Slurm's programs are, then the system's folders, each once.

    The caller's whole PATH may be thousands of bytes; cron takes 998 in all.
    """
    found = (programs.find(name) for name in _SLURM)
    folders = [str(path.parent) for path in found if path is not None]
    return tuple(dict.fromkeys((*folders, *_SYSTEM)))
