"""From a site and an environment to the call that a table starts."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from freetrain.cron.call import TickCall
from freetrain.cron.errors import CronUnfitError
from freetrain.cron.ticks import Ticks

if TYPE_CHECKING:
    from collections.abc import Mapping

    from freetrain.cron.programs import Programs
    from freetrain.site.settings import Site

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
