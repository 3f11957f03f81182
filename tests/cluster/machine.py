"""Whether a cluster can be had on this machine, and getting Debian's packages."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

PACKAGES = {
    "slurmctld": "slurmctld",
    "slurmd": "slurmd",
    "sbatch": "slurm-client",
    "munged": "munge",
    "mungekey": "munge",
    "setpriv": "util-linux",
}
"""Programs that a cluster needs, and Debian's packages that have them."""

_PLUGINS = "slurm-wlm-basic-plugins"
_PATH = os.defpath + ":/usr/sbin:/sbin"
_APT = ("apt-get", "--quiet", "--quiet", "--yes", "--no-install-recommends")


class ClusterRefusedError(Exception):
    """There can be no cluster here; the message says what is missing."""


@dataclass(frozen=True, slots=True)
class Machine:
    """What the check asks of the machine.

    Attributes:
        is_root: Whether we may start daemons that start jobs as other users.
        find: Returns a program's path, None where it is not installed.
        run: Runs a command; returns its status and what it said.
    """

    is_root: bool
    find: Callable[[str], str | None]
    run: Callable[[Sequence[str]], tuple[int, str]]


def this_machine() -> Machine:
    """Return the one we are on."""
    return Machine(
        is_root=os.geteuid() == 0,
        find=lambda program: shutil.which(program, path=_PATH),
        run=_run,
    )


def prepare(machine: Machine) -> None:
    """Make sure that *machine* has all that a cluster needs; install what it lacks.

    Raises:
        ClusterRefusedError: It cannot be had. Nothing was started.
    """
    missing = sorted({p for name, p in PACKAGES.items() if not machine.find(name)})
    if missing:
        missing.append(_PLUGINS)
    if not machine.is_root:
        also = f", and the packages {' '.join(missing)}" if missing else ""
        raise ClusterRefusedError(
            f"a Slurm cluster needs root{also}: slurmd starts jobs as their users. "
            f"Nothing was started. Run it as root on Debian, perhaps in a container."
        )
    if missing:
        _install(machine, missing)


def _install(machine: Machine, packages: Sequence[str]) -> None:
    if not machine.find("apt-get"):
        raise ClusterRefusedError(
            f"a Slurm cluster needs Debian's packages {' '.join(packages)}, and there "
            f"is no apt-get here. Nothing was started. Run it on Debian or Ubuntu."
        )
    install = (*_APT, "install", *packages)
    status, said = machine.run(install)
    if status != 0:  # a fresh container has no package lists yet
        machine.run((*_APT, "update"))
        status, said = machine.run(install)
    if status != 0:
        raise ClusterRefusedError(
            f"`{' '.join(install)}` failed; nothing was started. It said: "
            f"{said.strip()[-500:]}"
        )


def _run(argv: Sequence[str]) -> tuple[int, str]:
    done = subprocess.run(  # noqa: S603 -- fixed words, never a shell
        list(argv),
        check=False,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={"PATH": _PATH, "LC_ALL": "C", "DEBIAN_FRONTEND": "noninteractive"},
        text=True,
        errors="replace",
    )
    return done.returncode, done.stdout
