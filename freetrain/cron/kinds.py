"""The kinds of tables, and the one that fits a machine."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

from freetrain.cron.errors import CronUnavailableError

if TYPE_CHECKING:
    from freetrain.cron.programs import Programs


class Kind(StrEnum):
    """Who starts the ticks."""

    CRONTAB = "crontab"
    SYSTEMD = "systemd"
    SCRONTAB = "scrontab"


PROGRAM = {
    Kind.CRONTAB: "crontab",
    Kind.SYSTEMD: "systemctl",
    Kind.SCRONTAB: "scrontab",
}
"""What each needs; in order of preference."""


class Found(StrEnum):
    """What is installed, beside what would be."""

    NOTHING = "nothing"
    SAME = "the same"
    OTHER = "another"  # with another interval, or by an older release


def fitting(programs: Programs) -> Kind:
    """Return the first kind whose program is here.

    Raises:
        CronUnavailableError: None is.
    """
    for kind, program in PROGRAM.items():
        if programs.find(program):
            return kind
    wanted = ", ".join(PROGRAM.values())
    raise CronUnavailableError(
        f"none of {wanted} is on the PATH; nothing was installed. Ask for cron on this "
        f"login node, or run `freetrain tick` from a loop that sleeps a minute."
    )
