"""What a site, or a user there, sets once for all trainers; docs/job-file.md."""

from __future__ import annotations

import re
import stat
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from freetrain.config.schema import (
    FileKind,
    Key,
    Kind,
    MismatchError,
    Places,
    Schema,
    Section,
    choice,
    gres,
    matching,
    memory,
    number,
    one_of,
    parse_document,
    path_from,
    read_limited,
    seconds,
    whole,
    word,
    words,
    yes_or_no,
)
from freetrain.errors import BadConfigurationError, MissingInputError, UsageError
from freetrain.lookahead.base import DEFAULT_FORECASTER
from freetrain.planning.settings import DEFAULT_T_FWD_S, LIVE_POLICIES, Solver

if TYPE_CHECKING:
    from collections.abc import Mapping

    from freetrain.config.schema import Table
    from slurm.records import Gres


# ----------------------------------------------------------------------
# Kinds of values that only ``freetrain.toml`` has.

_NAME = re.compile(r"[a-z][a-z0-9_-]{0,39}", re.ASCII)
_MOST = 100


def named(what: str) -> Kind[str]:
    """Return the kind of names of *what*, such as ``a priority``."""
    return matching(_NAME, f"the name of {what}")


def numbers(example: str) -> Kind[tuple[tuple[str, float], ...]]:
    """Return the kind of tables of finite numbers by name."""

    def read(value: object) -> tuple[tuple[str, float], ...]:
        if not isinstance(value, dict) or len(value) > _MOST:
            raise MismatchError
        return tuple(
            sorted((_name(key), number().read(one)) for key, one in value.items())
        )

    return Kind(f"numbers by name, such as {{ {example} = 0.1 }}", read, dict)


def _name(key: str) -> str:
    if _NAME.fullmatch(key) is None:
        raise MismatchError
    return key


# ----------------------------------------------------------------------
# The settings of a site, with defaults that work for a plain user.


class Mode(StrEnum):
    """Who takes leases away when somebody needs their nodes."""

    AUTO = "auto"
    PREEMPT = "preempt"
    YIELD = "yield"


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseSettings:
    """How leases are submitted, and what they ask of their nodes.

    Attributes:
        partition: Where; empty for the cluster's default partition.
        qos: Quality of service; empty for the default.
        account: Account to charge; empty for the default.
        nice: How much their priority is lowered. 10,000 let a user's job start
            0.05 s after leases were cancelled, under priority/basic.
        mode: Who takes them away: Slurm, the broker, or as the partition says.
        careful: Whether they keep off nodes that somebody would need if one job ended,
            where the broker takes them away.
        exclusive: Whether they take whole nodes.
        features: Features that each node must have.
        gres: Generic resources of each node.
        memory_mib: Memory that each node must have; None for any.
        cpus: CPUs that each node must have; None for any.
        shortest_s: The shortest time limit worth a lease; limits are whole minutes,
            and a hole of less than about two cannot be leased safely.
        longest_s: The longest time limit asked for.
    """

    partition: str = ""
    qos: str = ""
    account: str = ""
    nice: int = 10_000
    mode: Mode = Mode.AUTO
    careful: bool = True
    exclusive: bool = True
    features: tuple[str, ...] = ()
    gres: tuple[Gres, ...] = ()
    memory_mib: int | None = None
    cpus: int | None = None
    shortest_s: float = 120.0
    longest_s: float = 14_400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Caps:
    """The most that FreeTrain asks of Slurm.

    Attributes:
        leases: Leases held and waiting at a time.
        requests_per_tick: Leases asked for in one tick.
        rpcs_per_tick: Slurm commands in one tick that change something.
        churn_per_hour: Leases asked for or given up by choice in an hour; what
            others need is given up whatever this says. Each end may stop the
            schedulers for CompleteWait.
    """

    leases: int = 64
    requests_per_tick: int = 32
    rpcs_per_tick: int = 8
    churn_per_hour: int = 240


@dataclass(frozen=True, slots=True, kw_only=True)
class HoleSettings:
    """Until when holes are used.

    Attributes:
        margin_s: How long before its end a hole is left, the epilog not counted;
            None for what Slurm's own settings ask for.
        epilog_s: How long the epilog takes at the end of a job; Slurm tells not.
        plan_age_s: How long a plan of Slurm's is believed while backfill is making
            a new one.
    """

    margin_s: float | None = None
    epilog_s: float = 0.0
    plan_age_s: float = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannerSettings:
    """How nodes are given to trainers.

    Attributes:
        t_fwd_s: [T_fwd] The look-ahead over which a gain is counted.
        policy: Which trainer gets how many nodes: a name in
            ``planning.settings.LIVE_POLICIES``.
        priority: Which trainers deserve nodes: a name in ``priority.registry``.
            Speed-up times weight lets trainers be compared whose samples have
            nothing in common.
        priority_settings: Its own settings, by name.
        forecaster: Who says how long nodes stay, for ``lookahead``: a name in
            ``forecast.registry``.
        learn: Whether speeds and costs that were measured count; else only those
            that users give, and what is assumed.
        profile: Whether running trainers may try sizes whose speed is not known,
            where what that may teach is worth more than it costs.
        solver: What finds the optimum.
        solver_limit_s: Time for the solver in one tick.
    """

    t_fwd_s: float = DEFAULT_T_FWD_S
    policy: str = "freetrain"
    priority: str = "weight"
    priority_settings: tuple[tuple[str, float], ...] = ()
    forecaster: str = DEFAULT_FORECASTER
    learn: bool = True
    profile: bool = False
    solver: Solver = Solver.EXACT
    solver_limit_s: float = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class StartSettings:
    """What is done about leases and trainers that fail to start.

    Attributes:
        pause_after: Failed starts in a row before nothing more is started.
        pause_s: For how long; each further failure doubles it.
    """

    pause_after: int = 3
    pause_s: float = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """All settings of a site. All paths are absolute.

    Attributes:
        path: The file they were read from; None where there is none.
        state_directory: Where FreeTrain keeps its state, on a file system that
            login nodes and compute nodes share.
        launch_agent: What starts a process on another lease's node, like ssh;
            None for FreeTrain's own.
        lease: How leases are submitted.
        caps: The most that is asked of Slurm.
        holes: Until when holes are used.
        planner: How nodes are given to trainers.
        starts: What is done about failing starts.
    """

    state_directory: Path
    path: Path | None = None
    launch_agent: Path | None = None
    lease: LeaseSettings = LeaseSettings()
    caps: Caps = Caps()
    holes: HoleSettings = HoleSettings()
    planner: PlannerSettings = PlannerSettings()
    starts: StartSettings = StartSettings()


# ----------------------------------------------------------------------
# The keys of ``freetrain.toml``: docs/job-file.md says the same; a test compares.

MOST = 100_000
DAY_S = 86_400.0
LARGEST_NICE = 2_147_483_645
"""What Slurm takes at most."""


def schema(places: Places) -> Schema[Site]:
    """Return the keys of a site's file whose paths start from *places*."""
    state = places.home / ".freetrain" if places.home else None
    return Schema(
        top=Section(
            "",
            Site,
            (
                Key("state_directory", path_from(places), "state_directory", state),
                Key("launch_agent", path_from(places), "launch_agent"),
            ),
        ),
        tables=(
            Section("lease", LeaseSettings, _lease()),
            Section("caps", Caps, _caps()),
            Section("holes", HoleSettings, _holes()),
            Section("planner", PlannerSettings, _planner()),
            Section("starts", StartSettings, _starts()),
        ),
    )


def _lease() -> tuple[Key, ...]:
    return (
        Key("partition", word("a partition"), "partition"),
        Key("qos", word("a quality of service"), "qos"),
        Key("account", word("an account"), "account"),
        Key("nice", whole(1, LARGEST_NICE), "nice"),
        Key("mode", one_of(Mode), "mode"),
        Key("careful", yes_or_no(), "careful"),
        Key("exclusive", yes_or_no(), "exclusive"),
        Key("features", words("a feature"), "features"),
        Key("gres", gres(), "gres"),
        Key("memory", memory(), "memory_mib"),
        Key("cpus", whole(1, MOST), "cpus"),
        Key("shortest", seconds(60.0, 30 * DAY_S), "shortest_s"),
        Key("longest", seconds(60.0, 30 * DAY_S), "longest_s"),
    )


def _caps() -> tuple[Key, ...]:
    return (
        Key("leases", whole(0, MOST), "leases"),
        Key("requests_per_tick", whole(0, MOST), "requests_per_tick"),
        Key("rpcs_per_tick", whole(1, 1_000), "rpcs_per_tick"),
        Key("churn_per_hour", whole(0, MOST), "churn_per_hour"),
    )


def _holes() -> tuple[Key, ...]:
    return (
        Key("margin", seconds(0.0, DAY_S), "margin_s"),
        Key("epilog", seconds(0.0, DAY_S), "epilog_s"),
        Key("plan_age", seconds(0.0, DAY_S), "plan_age_s"),
    )


def _planner() -> tuple[Key, ...]:
    return (
        Key("t_fwd", seconds(1.0, DAY_S), "t_fwd_s"),
        Key("policy", choice(LIVE_POLICIES), "policy"),
        Key("priority", named("a priority"), "priority"),
        Key("priority_settings", numbers("hysteresis"), "priority_settings"),
        Key("forecaster", named("a forecaster"), "forecaster"),
        Key("learn", yes_or_no(), "learn"),
        Key("profile", yes_or_no(), "profile"),
        Key("solver", one_of(Solver), "solver"),
        Key("solver_limit", seconds(0.1, 600.0), "solver_limit_s"),
    )


def _starts() -> tuple[Key, ...]:
    return (
        Key("pause_after", whole(1, 1_000), "pause_after"),
        Key("pause", seconds(1.0, 7 * DAY_S), "pause_s"),
    )


# ----------------------------------------------------------------------
# Reading ``freetrain.toml``.

FILE = FileKind(
    what="the configuration ",
    most_bytes=2**20,
    consequence="Nothing was done.",
    advice="Name a freetrain.toml that you may read, or none for the defaults.",
)
_OBJECTIVE_IS_GONE = (
    'objective has become priority: write priority = "weight" for "weighted", and '
    '"speedup" or "throughput" as before'
)
DEFAULTS = "the defaults"
"""Stands for the file's name where there is no file."""


def parse_site(content: bytes, *, path: str, places: Places) -> Site:
    """Return the site that *content* describes; *path* is for messages.

    Raises:
        BadConfigurationError: It does not describe a site; the message names the
            file, the table, the key, what was found and what is expected.
    """
    document = parse_document(content, path=path, file=FILE)
    planner = document.values.get("planner")
    if isinstance(planner, dict) and "objective" in planner:
        document.inner("planner").refuse(_OBJECTIVE_IS_GONE)
    if places.home is None and not document.has("state_directory"):
        document.refuse(
            "HOME is not set, so nobody knows where to keep state; set HOME, or "
            "state_directory to an absolute path"
        )
    site = schema(places).read(document)
    usual, own = PlannerSettings(), site.planner
    if (own.priority, own.priority_settings) != (usual.priority, ()):
        _check_priority(site.planner, document.inner("planner"))
    if own.forecaster != usual.forecaster:
        _check_forecaster(own.forecaster, document.inner("planner"))
    if site.lease.shortest_s > site.lease.longest_s:
        document.inner("lease").refuse("shortest is above longest")
    return site


def _check_priority(planner: PlannerSettings, table: Table) -> None:
    """Refuse a priority that is none, or a setting that it has not."""
    # Imported here: most sites have the default, and commands must start quickly.
    from freetrain.priority.registry import priority_named  # noqa: PLC0415

    try:
        priority_named(planner.priority, dict(planner.priority_settings))
    except UsageError as error:
        table.refuse(str(error))


def _check_forecaster(name: str, table: Table) -> None:
    """Refuse a forecaster that is none."""
    from freetrain.lookahead.registry import forecaster_named  # noqa: PLC0415 - as above

    try:
        forecaster_named(name)
    except UsageError as error:
        table.refuse(str(error))


def default_site(home: Path | None) -> Site:
    """Return the site of a user who has configured nothing.

    Raises:
        BadConfigurationError: *home* is unknown.
    """
    return parse_site(b"", path=DEFAULTS, places=Places(Path("/"), home))


# ----------------------------------------------------------------------
# Finding the file that configures a site.

VARIABLE = "FREETRAIN_CONFIG"
FILE_NAME = "freetrain.toml"
SYSTEM_FOLDER = Path("/etc/freetrain")


@dataclass(frozen=True, slots=True)
class Candidate:
    """A place where the file may be.

    Attributes:
        path: Absolute path.
        is_asked_for: Whether somebody named it: then it must be there.
    """

    path: Path
    is_asked_for: bool = False


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the search goes by.

    Attributes:
        environment: Environment variables.
        folder: The current folder, absolute.
        uid: The user's number.
        system_folder: Where the site's administrators put their file.
    """

    environment: Mapping[str, str]
    folder: Path
    uid: int
    system_folder: Path = SYSTEM_FOLDER

    @property
    def home(self) -> Path | None:
        """The user's home, None where HOME is not an absolute path."""
        return _absolute(self.environment.get("HOME", ""))


def candidates(
    around: Surroundings, *, asked: Path | None = None
) -> tuple[Candidate, ...]:
    """Return where the file may be, the first that is there counts.

    The order: *asked* (``--config``), the variable FREETRAIN_CONFIG, the current
    folder, the user's configuration (XDG), the system's.
    """
    named = asked or around.environment.get(VARIABLE)
    if named:
        return (Candidate(around.folder / named, is_asked_for=True),)
    given = _absolute(around.environment.get("XDG_CONFIG_HOME", ""))
    own = given or (around.home / ".config" if around.home else None)
    places = [around.folder, own / "freetrain" if own else None, around.system_folder]
    return tuple(Candidate(place / FILE_NAME) for place in places if place)


def find_site(around: Surroundings, *, asked: Path | None = None) -> Site:
    """Return the site that the first file found describes, else the defaults.

    Files are not merged: what one file leaves out has its default.

    Raises:
        MissingInputError: The file asked for is not there, or one cannot be read.
        BadConfigurationError: It does not describe a site; or nobody asked for it
            and it is somebody else's, or anybody's, who could make us run anything.
    """
    for candidate in candidates(around, asked=asked):
        if candidate.is_asked_for or _is_there(candidate.path, uid=around.uid):
            return _read(candidate.path, around)
    return default_site(around.home)


def _read(path: Path, around: Surroundings) -> Site:
    content = read_limited(path, named=str(path), file=FILE)
    places = Places(path.parent, around.home)
    return replace(parse_site(content, path=str(path), places=places), path=path)


def _is_there(path: Path, *, uid: int) -> bool:
    try:
        found = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise MissingInputError(
            f"cannot look for {path}: {error.strerror}. {FILE.consequence} Name your "
            f"configuration with --config."
        ) from error
    if found.st_uid not in {0, uid}:
        raise BadConfigurationError(
            f"{path}: belongs to user {found.st_uid}, expected you or root. "
            f"{FILE.consequence} If you trust it, name it with --config."
        )
    mode = stat.S_IMODE(found.st_mode)
    if mode & stat.S_IWOTH:
        raise BadConfigurationError(
            f"{path}: anybody may write to it (mode {mode:04o}). "
            f"{FILE.consequence} Run `chmod o-w` on it, or name it with --config."
        )
    return True


def _absolute(text: str) -> Path | None:
    return Path(text) if text.startswith("/") else None
