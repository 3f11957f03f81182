"""freetrain.toml and site.toml: settings of a user or site, and rules for all users.

The structs below are the file: their fields are its keys, with types, limits and
defaults, in the order in which they are written; docs/guide/job-file.md explains them.
The defaults work for a plain user, who needs no file. ``find_site`` looks for one where
such files are kept, and refuses files that other users could have written. site.toml
is the administrators' alone: what it says counts for every user.
"""

import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from freetrain.config.document import (
    NOT_A_KEY,
    AbsolutePath,
    Account,
    BaseFolders,
    Cpus,
    Features,
    FileKind,
    Form,
    GenericResources,
    MemoryMib,
    MismatchError,
    Partition,
    Positive,
    Qos,
    Table,
    choice,
    key_name,
    limited,
    named,
    parse_document,
    read_limited,
    read_value,
    seconds,
)
from freetrain.config.job import NodeSettings
from freetrain.errors import BadConfigurationError, MissingInputError, UsageError
from freetrain.lookahead.base import DEFAULT_FORECASTER, check_forecaster
from freetrain.opening import (
    owners_trusted_by,
    read_with_status,
    why_changeable,
)
from freetrain.planning.settings import DEFAULT_T_FWD_S, LIVE_POLICIES, Solver
from freetrain.text import DAY_S
from slurm.pieces import GPU, in_proportion
from slurm.records import Gres, Node, NodeSharing, Requirement

LARGEST_NICE = 2_147_483_645
"""The largest that Slurm takes."""

Count = Annotated[int, Meta(ge=0, le=100_000)]


# ----------------------------------------------------------------------
# Tables of numbers by name, as the settings of a priority are

_NAME = r"[a-z][a-z0-9_-]{0,39}"
_MOST_NUMBERS = 100


def _read_numbers(value: object, places: BaseFolders) -> tuple[tuple[str, float], ...]:
    if not isinstance(value, dict) or len(value) > _MOST_NUMBERS:
        raise MismatchError
    try:
        return tuple(
            sorted(
                (
                    read_value(name, Annotated[str, named(_NAME, "")], places),
                    read_value(number, float, places),
                )
                for name, number in value.items()
            )
        )
    except MismatchError:
        raise MismatchError from None


NUMBERS = Form(
    "numbers by name, such as { hysteresis = 0.1 }",
    _read_numbers,
    dict,
    {
        "type": "object",
        "patternProperties": {f"^{_NAME}$": {"type": "number"}},
        "additionalProperties": False,
    },
)


# ----------------------------------------------------------------------
# The tables of freetrain.toml


class LeaseMode(StrEnum):
    """Who ends a lease when another user's job needs its node."""

    AUTO = "auto"
    PREEMPT = "preempt"
    YIELD = "yield"


class LeaseSettings(Struct, frozen=True, kw_only=True, rename=key_name):
    """``[lease]``: how leases are submitted, and what they ask of their nodes.

    Attributes:
        partition: Empty for the cluster's default partition.
        qos: Quality of service; empty for the default.
        account: The account to charge; empty for the default.
        nice: How much their priority is lowered. 10,000 let a user's job start
            0.05 s after leases were cancelled, under priority/basic.
        mode: Slurm ends them, the broker, or as the partition says.
        careful: Whether, where the broker ends them, they avoid nodes that a job
            would need if one running job ended.
        exclusive: Whether they take whole nodes.
        features: What each node must have, as Slurm names it.
        gres: Generic resources of each node.
        memory_mib: Memory that each node must have; None for any.
        cpus: CPUs that each node must have; None for any.
        shortest_s: The shortest time limit worth a lease; limits are whole minutes,
            and a hole of less than about two cannot be leased safely.
        longest_s: The longest time limit asked for.
        silence_s: How long a lease goes on without a sign of a tick; None for as long
            as the mode needs (``tick.leases.silence_s``).
    """

    partition: Partition = ""
    qos: Qos = ""
    account: Account = ""
    nice: Annotated[int, Meta(ge=1, le=LARGEST_NICE)] = 10_000
    mode: LeaseMode = LeaseMode.AUTO
    careful: bool = True
    exclusive: bool = True
    features: Features = ()
    gres: GenericResources = ()
    memory_mib: MemoryMib | None = None
    cpus: Cpus | None = None
    shortest_s: Annotated[float, seconds(60.0, 30 * DAY_S)] = 120.0
    longest_s: Annotated[float, seconds(60.0, 30 * DAY_S)] = 14_400.0
    silence_s: Annotated[float, seconds(60.0, 30 * DAY_S)] | None = None


class Caps(Struct, frozen=True, kw_only=True, rename=key_name):
    """``[caps]``: the most that FreeTrain asks of Slurm.

    Attributes:
        leases: Leases held and waiting at a time.
        leases_per_tick: Leases asked for in one tick.
        rpcs_per_tick: Slurm commands in one tick that change something.
        churn_per_hour: Leases asked for or given up by choice in an hour; nodes that
            others need are given up whatever this says. Each end may stop the
            schedulers for CompleteWait.
    """

    leases: Count = 64
    leases_per_tick: Count = 32
    rpcs_per_tick: Annotated[int, Meta(ge=1, le=1_000)] = 8
    churn_per_hour: Count = 240


class HoleSettings(Struct, frozen=True, kw_only=True, rename=key_name):
    """``[holes]``: until when holes are used.

    Attributes:
        margin_s: How long before its end a hole is left, the epilog not counted;
            None for as long as Slurm's own settings need.
        epilog_s: How long the epilog takes at the end of a job; Slurm does not say.
        plan_age_s: How long a plan of backfill's is believed while backfill is making
            a new one.
    """

    margin_s: Annotated[float, seconds(0.0, DAY_S)] | None = None
    epilog_s: Annotated[float, seconds(0.0, DAY_S)] = 0.0
    plan_age_s: Annotated[float, seconds(0.0, DAY_S)] = 600.0


class PlannerSettings(Struct, frozen=True, kw_only=True, rename=key_name):
    """``[planner]``: how nodes are given to trainers.

    Attributes:
        t_fwd_s: [T_fwd] The look-ahead over which a gain is counted.
        policy: Which trainer gets how many nodes: a name in
            ``planning.settings.LIVE_POLICIES``.
        priority: Which trainers deserve nodes: a name in ``freetrain.priority.base``.
            Speed-up times weight lets trainers be compared whose samples have
            nothing in common.
        priority_settings: The priority's own settings, by name.
        forecaster: Predicts how long nodes stay, for ``lookahead``: a name in
            ``lookahead.base``.
        learn: Whether measured speeds and costs count; else only those that users
            give, and what is assumed.
        profile: Whether trainers begin on their smallest size and try others of
            unknown speed, where that is worth more than it costs.
        solver: The program that finds plans.
        solver_limit_s: Time for the solver in one tick.
    """

    t_fwd_s: Annotated[float, seconds(1.0, DAY_S)] = DEFAULT_T_FWD_S
    policy: Annotated[str, choice(LIVE_POLICIES)] = "freetrain"
    priority: Annotated[str, named(_NAME, "the name of a priority")] = "weight"
    priority_settings: Annotated[tuple[tuple[str, float], ...], NUMBERS] = ()
    forecaster: Annotated[str, named(_NAME, "the name of a forecaster")] = (
        DEFAULT_FORECASTER
    )
    learn: bool = True
    profile: bool = True
    solver: Solver = Solver.EXACT
    solver_limit_s: Annotated[float, seconds(0.1, 600.0)] = 10.0


class StartSettings(Struct, frozen=True, kw_only=True, rename=key_name):
    """``[starts]``: the pause after leases or trainers failed to start.

    Attributes:
        pause_after: Failed starts in a row before nothing more is started.
        pause_s: For how long; each further failure doubles it.
    """

    pause_after: Annotated[int, Meta(ge=1, le=1_000)] = 3
    pause_s: Annotated[float, seconds(1.0, 7 * DAY_S)] = 300.0


# ----------------------------------------------------------------------
# The tables of site.toml: rules that no user's file replaces

_MOST_USERS = 10_000


def _read_weights(value: object, places: BaseFolders) -> tuple[tuple[str, float], ...]:
    if not isinstance(value, dict) or len(value) > _MOST_USERS:
        raise MismatchError
    try:
        return tuple(
            (read_value(name, Account, places), read_value(weight, Positive, places))
            for name, weight in sorted(value.items())
        )
    except MismatchError:
        raise MismatchError from None


WEIGHTS = Form(
    "numbers above 0 by user name, such as { ada = 2.0 }",
    _read_weights,
    dict,
    {
        "type": "object",
        "additionalProperties": {"type": "number", "exclusiveMinimum": 0},
    },
)


def _read_partitions(value: object, places: BaseFolders) -> tuple[str, ...]:
    if not isinstance(value, list) or len(value) > _MOST_USERS:
        raise MismatchError
    return tuple(read_value(name, Partition, places) for name in value)


PARTITIONS = Form(
    'a list of partitions, such as ["main"]',
    _read_partitions,
    list,
    {"type": "array", "items": {"type": "string"}},
)


class SiteCaps(Struct, frozen=True, kw_only=True, rename=key_name):
    """``[caps]`` of site.toml.

    Attributes:
        leases: Leases of all users together; None for any number.
    """

    leases: Count | None = None


class SiteRules(Struct, frozen=True, kw_only=True, rename=key_name):
    """``site.toml``: rules of a site's administrators, for all users.

    Attributes:
        partitions: Where leases may go; empty for everywhere.
        weights: What users' shares of the nodes are multiplied by; 1 for all others.
    """

    caps: SiteCaps = SiteCaps()
    partitions: Annotated[tuple[str, ...], PARTITIONS] = ()
    weights: Annotated[tuple[tuple[str, float], ...], WEIGHTS] = ()

    def allows(self, partition: str) -> bool:
        """Tell whether leases may go to *partition*."""
        return not self.partitions or partition in self.partitions


NO_RULES = SiteRules()


class Site(Struct, frozen=True, kw_only=True, rename=key_name):
    """All settings of a site. All paths are absolute.

    Attributes:
        path: The file they were read from; None where there is none.
        rules: The administrators' rules for all users, from another file.
        state_directory: Where FreeTrain keeps its state, on a file system that
            login nodes and compute nodes share.
        launch_agent: A program that starts a process on another lease's node, like
            ssh; None for FreeTrain's own.
    """

    path: Annotated[Path | None, NOT_A_KEY] = None
    rules: Annotated[SiteRules, NOT_A_KEY] = NO_RULES
    state_directory: AbsolutePath
    launch_agent: AbsolutePath | None = None
    lease: LeaseSettings = LeaseSettings()
    caps: Caps = Caps()
    holes: HoleSettings = HoleSettings()
    planner: PlannerSettings = PlannerSettings()
    starts: StartSettings = StartSettings()


def requirement_of(
    nodes: NodeSettings, lease: LeaseSettings, *, default_partition: str
) -> Requirement:
    """Return the requirements of a lease for a trainer on its node.

    The trainer's come before the site's; features are those of both. The
    cluster's *default_partition* is asked where neither names a partition. A lease of
    GPUs takes a piece of its node; ``requirement_on`` adds its CPUs and memory. Any
    other lease takes an idle node, even where the site has Slurm share it.
    """
    gres = lease.gres if nodes.gres is None else nodes.gres
    if nodes.gpus_per_lease is not None:
        gpus = Gres(GPU, nodes.gpu_type or "", nodes.gpus_per_lease)
        gres = (gpus, *(other for other in gres if other.name != GPU))
    return Requirement(
        partition=nodes.partition or lease.partition or default_partition,
        features=frozenset(lease.features) | frozenset(nodes.features),
        gres=gres,
        memory_mib=nodes.memory_mib or lease.memory_mib or 0,
        cpus=nodes.cpus or lease.cpus or 0,
        exclusive=nodes.gpus_per_lease is None,
    )


def requirement_on(
    settings: NodeSettings,
    lease: LeaseSettings,
    *,
    default_partition: str,
    nodes: Iterable[Node],
    sharing: NodeSharing,
) -> Requirement:
    """Return the requirements of a lease on a cluster.

    They are those of ``requirement_of``. Of a lease of GPUs, CPUs and memory that
    neither the trainer nor the site names go in proportion to the GPUs.

    Args:
        settings: What the trainer asks of its nodes.
        lease: How leases are submitted.
        default_partition: The cluster's.
        nodes: The cluster's.
        sharing: How Slurm shares them among jobs.
    """
    asked = requirement_of(settings, lease, default_partition=default_partition)
    return asked if asked.exclusive else in_proportion(asked, nodes, sharing)


# ----------------------------------------------------------------------
# Reading freetrain.toml

FILE = FileKind(
    prefix="the configuration ",
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


def parse_site(content: bytes, *, path: str, places: BaseFolders) -> Site:
    """Return the site that *content* describes; *path* is for messages.

    Raises:
        BadConfigurationError: It does not describe a site; the message names the
            file, the table, the key, what was found and what is expected.
    """
    document = parse_document(content, path=path, file=FILE, places=places)
    planner = document.values.get("planner")
    if isinstance(planner, dict) and "objective" in planner:
        document.inner("planner").refuse(_OBJECTIVE_IS_GONE)
    defaults = {}
    if places.home is not None:
        defaults["state_directory"] = places.home / ".freetrain"
    elif not document.has("state_directory"):
        document.refuse(
            "HOME is not set, so there is no place for the state; set HOME, or "
            "state_directory to an absolute path"
        )
    site = document.read(Site, defaults=defaults)
    usual, own = PlannerSettings(), site.planner
    if (own.priority, own.priority_settings) != (usual.priority, ()):
        _check_priority(own, document.inner("planner"))
    if own.forecaster != usual.forecaster:
        _check_forecaster(own.forecaster, document.inner("planner"))
    if site.lease.shortest_s > site.lease.longest_s:
        document.inner("lease").refuse("shortest is above longest")
    return site


def _check_priority(planner: PlannerSettings, table: Table) -> None:
    """Refuse an unknown priority, or a setting that the priority does not have."""
    # Imported here: most sites have the default, and commands must start quickly.
    from freetrain.priority.base import priority_named  # noqa: PLC0415

    try:
        priority_named(planner.priority, dict(planner.priority_settings))
    except UsageError as error:
        table.refuse(str(error))


def _check_forecaster(name: str, table: Table) -> None:
    """Refuse an unknown forecaster."""
    try:
        check_forecaster(name)
    except UsageError as error:
        table.refuse(str(error))


def default_site(home: Path | None) -> Site:
    """Return the site of a user without a configuration.

    Raises:
        BadConfigurationError: *home* is unknown.
    """
    return parse_site(b"", path=DEFAULTS, places=BaseFolders(Path("/"), home))


# ----------------------------------------------------------------------
# Finding the file that configures a site

VARIABLE = "FREETRAIN_CONFIG"
FILE_NAME = "freetrain.toml"
RULES_NAME = "site.toml"
SYSTEM_FOLDER = Path("/etc/freetrain")


@dataclass(frozen=True, slots=True)
class SiteSearch:
    """Where the search for the file begins.

    Attributes:
        environment: Environment variables.
        folder: The current folder, absolute.
        uid: The user's number.
        system_folder: Where the site's administrators put their files.
        administrator: Whose the rules for all users must be: root's number.
    """

    environment: Mapping[str, str]
    folder: Path
    uid: int
    system_folder: Path = SYSTEM_FOLDER
    administrator: int = 0

    @property
    def home(self) -> Path | None:
        """The user's home, None where HOME is not an absolute path."""
        return _absolute(self.environment.get("HOME", ""))

    @property
    def candidates(self) -> tuple[Path, ...]:
        """Where the file may be if the user named none; the first that exists counts.

        The current folder, the user's configuration (XDG), the system's.
        """
        given = _absolute(self.environment.get("XDG_CONFIG_HOME", ""))
        own = given or (self.home / ".config" if self.home else None)
        folders = (self.folder, own / "freetrain" if own else None, self.system_folder)
        return tuple(folder / FILE_NAME for folder in folders if folder)


def find_site(around: SiteSearch, *, asked: Path | None = None) -> Site:
    """Return the site that the first file found describes, else the defaults.

    The order: *asked* (``--config``), the variable FREETRAIN_CONFIG, the candidates.
    Files are not merged: what one file leaves out has its default. The administrators'
    rules for all users count whatever file that is (``find_rules``).

    Raises:
        MissingInputError: The file asked for is not there, or one cannot be read.
        BadConfigurationError: It does not describe a site; or it was not asked for,
            and another user owns it or could change it: it could make us run anything.
    """
    site = _find_own(around, asked)
    return msgspec.structs.replace(site, rules=find_rules(around))


def _find_own(around: SiteSearch, asked: Path | None) -> Site:
    named_path = asked or around.environment.get(VARIABLE)
    if named_path:
        return _read(around.folder / named_path, around)
    for path in around.candidates:
        found = _read_found(path, around)
        if found is not None:
            return found
    return default_site(around.home)


def _read(path: Path, around: SiteSearch) -> Site:
    content = read_limited(path, named=str(path), file=FILE)
    return _site_of(content, path, around)


def _site_of(content: bytes, path: Path, around: SiteSearch) -> Site:
    places = BaseFolders(path.parent, around.home)
    site = parse_site(content, path=str(path), places=places)
    return msgspec.structs.replace(site, path=path)


def _read_found(path: Path, around: SiteSearch) -> Site | None:
    """Return the site of a file found by its place; None where there is no file.

    What is checked is what is read: the file is opened once, and no other user can
    exchange a folder above it.
    """
    try:
        content, found = read_with_status(path, FILE.most_bytes + 1, follows=True)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise MissingInputError(
            f"cannot look for {path}: {error.strerror}. {FILE.consequence} Name your "
            f"configuration with --config."
        ) from error
    _check_trusted(path, owner=found.st_uid, mode=found.st_mode, uid=around.uid)
    return _site_of(limited(content, named=str(path), file=FILE), path, around)


def _check_trusted(path: Path, *, owner: int, mode: int, uid: int) -> None:
    """Refuse a file that other users could have written, or could put there."""
    if owner not in owners_trusted_by(uid):
        raise BadConfigurationError(
            f"{path}: belongs to user {owner}, expected you or root. "
            f"{FILE.consequence} If you trust it, name it with --config."
        )
    if mode & stat.S_IWOTH:
        raise BadConfigurationError(
            f"{path}: anybody may write to it (mode {stat.S_IMODE(mode):04o}). "
            f"{FILE.consequence} Run `chmod o-w` on it, or name it with --config."
        )
    why = why_changeable(path, uid=uid)
    if why:
        raise BadConfigurationError(
            f"{path}: others could put another file there: {why}. {FILE.consequence} "
            f"If you trust it, name it with --config."
        )


def _absolute(text: str) -> Path | None:
    return Path(text) if text.startswith("/") else None


# ----------------------------------------------------------------------
# Finding the rules for all users

RULES = FileKind(
    prefix="the rules for all users, ",
    most_bytes=2**20,
    consequence="Nothing was done.",
    advice="Ask your administrators to make it readable, or to take it away.",
)


def find_rules(around: SiteSearch) -> SiteRules:
    """Return the administrators' rules for all users; none where there is no file.

    Raises:
        MissingInputError: The file is there, and cannot be read.
        BadConfigurationError: It is no such file; or others than root could write it.
    """
    path = around.system_folder / RULES_NAME
    try:
        # No other user can exchange the file after this: the folder is root's too.
        found = path.stat()
        folder = path.parent.stat()
    except (FileNotFoundError, NotADirectoryError):
        return NO_RULES
    except OSError as error:
        raise MissingInputError(
            f"cannot look for {path}: {error.strerror}. {RULES.consequence} "
            f"{RULES.advice}"
        ) from error
    for place, status in ((path.parent, folder), (path, found)):
        _check_administrators(
            place,
            owner=status.st_uid,
            mode=stat.S_IMODE(status.st_mode),
            administrator=around.administrator,
        )
    content = read_limited(path, named=str(path), file=RULES)
    return parse_rules(content, path=str(path))


def parse_rules(content: bytes, *, path: str) -> SiteRules:
    """Return the rules that *content* states; *path* is for messages.

    Raises:
        BadConfigurationError: It states none; the message names the file, the table,
            the key, what was found and what is expected.
    """
    return parse_document(content, path=path, file=RULES).read(SiteRules)


def _check_administrators(
    path: Path, *, owner: int, mode: int, administrator: int
) -> None:
    """Refuse a file or folder that others than the administrators could change."""
    if owner != administrator:
        raise BadConfigurationError(
            f"{path}: belongs to user {owner}, expected root, as it rules over "
            f"all users. {RULES.consequence} Run `chown root` on it."
        )
    if mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise BadConfigurationError(
            f"{path}: others than root may write to it (mode {mode:04o}), and it rules "
            f"over all users. {RULES.consequence} Run `chmod go-w` on it."
        )
