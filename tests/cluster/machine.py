"""Whether a cluster can be had on this machine, and the Slurm that it runs.

``prepare`` gets Debian's packages. Another release of Slurm comes from a later Debian,
in a folder of its own: each program is started by its own Debian's loader, with its own
libraries, on this machine's files. Jobs see the Python and the MPI that are installed
here, and run with its libraries, since nothing is put into their environment.
"""

import os
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from shlex import quote

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


SUITES = {"24.11": "trixie", "26.05": "forky"}
"""Debian's suites, by the release of Slurm in them."""

RELEASE = "FREETRAIN_SLURM_RELEASE"
"""The variable that chooses one; empty for the Slurm that is installed."""

_MIRROR = "FREETRAIN_DEBIAN_MIRROR"
_USUAL_MIRROR = "http://deb.debian.org/debian"
_FETCHED = (
    "slurmctld,slurmd,slurm-client,slurm-wlm-basic-plugins,munge,"
    "slurmdbd,slurm-wlm-mysql-plugin"
)
_FOLDER = "programs"
_NAMES = (
    *("slurmctld", "slurmd", "slurmstepd"),
    *("sbatch", "scancel", "scontrol", "sdiag", "sinfo", "squeue", "srun"),
    *("slurmdbd", "sacctmgr"),
)
_DONE = "programs/complete"
_SCRIPT = """\
#!/bin/sh
exec {loader} --argv0 "$0" --library-path {libraries} {program} "$@"
"""


def programs_of(release: str, environ: Mapping[str, str]) -> Path | None:
    """Return the folder of *release*'s programs, fetched where it is missing.

    Args:
        release: One of ``SUITES``; empty for what is installed, which is None.
        environ: Says where to keep and to fetch it: XDG_CACHE_HOME, and
            FREETRAIN_DEBIAN_MIRROR.

    Raises:
        ClusterRefusedError: It cannot be had here. Nothing was started.
    """
    if not release:
        return None
    if release not in SUITES:
        raise ClusterRefusedError(
            f"there is no release {release!r}, only {' and '.join(SUITES)}, and "
            f"without RELEASE the one that is installed. Nothing was started."
        )
    root = _cache(environ) / SUITES[release]
    if not (root / _DONE).exists():
        _fetch(root, SUITES[release], environ.get(_MIRROR, _USUAL_MIRROR))
        write_programs(root)
    return root / _FOLDER


def plugin_folder(programs: Path | None) -> Path | None:
    """Return where the plugins of *programs* are; None for those installed."""
    if programs is None:
        return None
    found = sorted(programs.parent.glob("usr/lib/*/slurm-wlm"))
    return found[0] if found else None


def _cache(environ: Mapping[str, str]) -> Path:
    """Return where releases are kept: not in root's home, as all users run them."""
    return Path(environ.get("XDG_CACHE_HOME") or "/var/cache") / "freetrain-slurm"


def _fetch(root: Path, suite: str, mirror: str) -> None:
    if os.geteuid() != 0 or not shutil.which("debootstrap"):
        raise ClusterRefusedError(
            f"another release of Slurm is fetched with debootstrap, as root. Nothing "
            f"was started. As root: apt-get install debootstrap. {root} keeps it."
        )
    shutil.rmtree(root, ignore_errors=True)  # half of one, from a fetch that failed
    root.parent.mkdir(parents=True, exist_ok=True)
    # What an older debootstrap does for sid it does right for each later suite.
    options = ("--variant=minbase", f"--include={_FETCHED}")
    done = subprocess.run(  # noqa: S603 -- fixed words, never a shell
        ["debootstrap", *options, suite, str(root), mirror, "sid"],  # noqa: S607
        check=False,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    if done.returncode != 0:
        raise ClusterRefusedError(
            f"debootstrap {suite} failed; nothing was started. It said: "
            f"{done.stdout.strip()[-500:]}"
        )


def write_programs(root: Path) -> None:
    """Write a script for each program in the Debian at *root*, for the PATH."""
    folder = root / _FOLDER
    folder.mkdir(exist_ok=True)
    loader = next(root.glob("usr/lib/*/ld-linux*.so.*"))
    libraries = f"{loader.parent}:{loader.parent}/slurm-wlm"
    for name in _NAMES:
        program = _program(root, name)
        words = {"loader": loader, "libraries": libraries, "program": program}
        quoted = {word: quote(str(path)) for word, path in words.items()}
        path = folder / name
        path.write_text(_SCRIPT.format(**quoted), encoding="utf-8")
        path.chmod(0o755)
    (root / _DONE).touch()


def _program(root: Path, name: str) -> Path:
    """Return where *name* is; for daemons Debian has links into /etc."""
    places = (f"usr/sbin/{name}-wlm", f"usr/bin/{name}", f"usr/sbin/{name}")
    return next(root / place for place in places if (root / place).exists())
