"""The regular ticks of a site, whichever back end keeps them."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from freetrain.config.site import Site
from freetrain.cron.back_ends import BACK_ENDS, BackEnd, Kind
from freetrain.cron.call import CronUnavailableError, CronUnfitError, Programs, TickCall


@dataclass(frozen=True, slots=True)
class Ticks:
    """The regular ticks of one state directory.

    Attributes:
        call: The command of a tick.
        programs: Runs ``crontab`` and its like.
        units: The folder of the user's systemd units.
    """

    call: TickCall
    programs: Programs
    units: Path

    def back_end(self, kind: Kind) -> BackEnd:
        """Return the back end *kind* for these ticks."""
        return BACK_ENDS[kind](self.call, self.programs, self.units)

    def kinds_here(self) -> tuple[Kind, ...]:
        """Return the kinds whose program is on this machine, in order of preference."""
        return tuple(
            kind
            for kind, back_end in BACK_ENDS.items()
            if self.programs.find(back_end.program)
        )

    def fitting(self) -> Kind:
        """Return the first kind whose program is here.

        Raises:
            CronUnavailableError: None is.
        """
        here = self.kinds_here()
        if here:
            return here[0]
        wanted = ", ".join(back_end.program for back_end in BACK_ENDS.values())
        raise CronUnavailableError(
            f"none of {wanted} is on the PATH; nothing was installed. Ask for cron on "
            f"this login node, or run `freetrain tick` from a loop that sleeps a "
            f"minute."
        )


_SLURM_PROGRAMS = ("sbatch", "squeue", "scancel", "scontrol", "sdiag", "sinfo", "srun")


_SYSTEM_FOLDERS = ("/usr/local/bin", "/usr/bin", "/bin")


_KEPT_VARIABLES = (
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
    kept = ((name, environ[name]) for name in _KEPT_VARIABLES if environ.get(name))
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
    found = (programs.find(name) for name in _SLURM_PROGRAMS)
    folders = [str(path.parent) for path in found if path is not None]
    return tuple(dict.fromkeys((*folders, *_SYSTEM_FOLDERS)))
