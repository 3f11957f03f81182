"""Showing, installing and removing regular ticks, whatever kind of table keeps them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from freetrain.cron.block import Block, lines_between, put, without
from freetrain.cron.kinds import PROGRAM, Found, Kind
from freetrain.cron.lines import crontab_block, scrontab_block, unit_files, unit_name
from freetrain.cron.table import Table
from freetrain.cron.units import Units

if TYPE_CHECKING:
    from pathlib import Path

    from freetrain.cron.call import TickCall
    from freetrain.cron.programs import Programs

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
