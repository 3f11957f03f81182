"""Job files: what a user submits, one trainer a file; docs/job-file.md."""

from __future__ import annotations

import re
import warnings
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from freetrain.config.schema import (
    MOST_NODES,
    FileKind,
    Key,
    Kind,
    MismatchError,
    Places,
    Schema,
    Section,
    argument,
    arguments,
    command,
    curve,
    gres,
    matching,
    memory,
    number,
    one_of,
    parse_document,
    path_from,
    positive,
    read_limited,
    seconds,
    sizes,
    trainer_name,
    whole,
    word,
    words,
    yes_or_no,
)
from freetrain.launchers import (
    BUILT_IN,
    UnusableLauncherError,
    find_launcher,
    launcher_names,
)
from freetrain.losscurve.outlook import Better
from freetrain.text import closest, exact_duration, shown
from slurm.records import Requirement

if TYPE_CHECKING:
    from freetrain.config.schema import Table
    from freetrain.config.site import LeaseSettings
    from slurm.records import Gres


# ----------------------------------------------------------------------
# What a trainer's user wants of it: which metric counts, up to where, and by when.


@dataclass(frozen=True, slots=True, kw_only=True)
class Quality:
    """Which metric says how good a trainer's model is.

    Attributes:
        metric: Its name among those that the program tells.
        better: Which of its values are good.
    """

    metric: str = "loss"
    better: Better = Better.LOWER

    def is_reached(self, target: float, value: float) -> bool:
        """Tell whether *value* is *target* or better; nan never is."""
        return self.better.is_reached(target, value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Two values of the metric that a user wants, and what is done at the first.

    Attributes:
        deliver: Reaching it, the trainer's checkpoint is handed over.
        final: Reaching it, the training is over; None for as long as it likes.
        publish: Where that checkpoint is put; None for nowhere.
        hook: The program called then, and its arguments; empty for none.
        hook_limit_s: How long it may take before it is killed. A tick waits for it.
    """

    deliver: float
    final: float | None = None
    publish: Path | None = None
    hook: tuple[str, ...] = ()
    hook_limit_s: float = 20.0


@dataclass(frozen=True, slots=True)
class Deadline:
    """When a trainer should be finished: one of the two.

    Attributes:
        after_s: So long after its submission.
        at: At this time, which has an offset from UTC.
    """

    after_s: float | None = None
    at: datetime | None = None

    def time_s(self, submitted_s: float) -> float:
        """Return the Unix time that is meant by who submitted at *submitted_s*."""
        if self.at is not None:
            return self.at.timestamp()
        return submitted_s + (self.after_s or 0.0)


# ----------------------------------------------------------------------
# What a trainer is, as its user wrote it.

_COMMITS = 2  # intervals in which there was one for sure
_MOST_DOUBLINGS = 20


class StopSignal(StrEnum):
    """What may ask a program to stop. USR1 may not: NCCL uses it (submitit #1701)."""

    USR2 = "USR2"
    TERM = "TERM"
    INT = "INT"
    HUP = "HUP"
    QUIT = "QUIT"


class Order(StrEnum):
    """Who is served first."""

    NORMAL = "normal"
    BACKGROUND = "background"


class ProgressFormat(StrEnum):
    """How a program that does not use ``freetrain.elastic`` tells its progress."""

    PATTERN = "pattern"
    CSV = "csv"
    JSON_LINES = "json-lines"


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """How a world is started.

    Attributes:
        launcher: What starts it; a name that ``freetrain.launchers`` knows.
        processes_per_node: Processes on each node, 1 or more.
        ahead: Whether an elastic program's next world starts while the last one still
            trains, and waits for it in ``elastic.join``.
        spare: Whether on each node a process waits that has done all that the program
            does before ``elastic.join``, and of which the next ranks are forked. None
            for no; it is not written, so that agents of an earlier release, which
            run while the program is upgraded, can read the file.
        threads: What OMP_NUM_THREADS is set to; None leaves it alone.
        executable: The launcher's program; empty for its usual name.
        options: Further words for the launcher, before the program's command.
        command: For ``custom``: what the program's command is appended to, with
            placeholders.
        pack: For ``pack``: the file that names the trainers which share the node.
    """

    launcher: str = "mpirun"
    processes_per_node: int = 1
    ahead: bool = True
    spare: bool | None = None
    threads: int | None = None
    executable: str = ""
    options: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    pack: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Nodes:
    """How many nodes a trainer can use, and which.

    Attributes:
        max_nodes: The most.
        min_nodes: The fewest.
        only: The counts that it can run on, ascending; empty for all.
        partition: Where leases for it are submitted; None as the site says.
        features: Features that each node must have, beside the site's.
        gres: Generic resources of each node; None as the site says.
        memory_mib: Memory that each node must have; None as the site says.
        cpus: CPUs that each node must have; None as the site says.
    """

    max_nodes: int
    min_nodes: int = 1
    only: tuple[int, ...] = ()
    partition: str | None = None
    features: tuple[str, ...] = ()
    gres: tuple[Gres, ...] | None = None
    memory_mib: int | None = None
    cpus: int | None = None

    @property
    def sizes(self) -> tuple[int, ...]:
        """The node counts that it can run on, ascending, never empty."""
        allowed = range(self.min_nodes, self.max_nodes + 1)
        return tuple(n for n in self.only or allowed if n in allowed)


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """When a trainer is done; without anything, when its program says so.

    Attributes:
        samples: Training samples; None for as many as its program likes.
        epochs: Epochs; likewise. Never both.
        time_limit_s: Time on nodes after which it is stopped; None for none.
    """

    samples: float | None = None
    epochs: int | None = None
    time_limit_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """Where and how often a trainer commits.

    Attributes:
        path: For a program that uses ``freetrain.elastic`` its run directory, for
            another what it writes; None for a run directory of FreeTrain's.
        every_s: Time between two commits: what a kill may cost.
    """

    path: Path | None = None
    every_s: float = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """How a program is asked to commit and end.

    Attributes:
        signal: The signal that asks.
        kill_after_s: How long it may take before it is killed.
    """

    signal: StopSignal = StopSignal.USR2
    kill_after_s: float = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Restart:
    """What is done when a program fails; taking its nodes away is no failure.

    Attributes:
        attempts: Failures in a row, without a commit between them, after which it
            is not started any more; 0 for never again.
        wait_s: Time before the next start; doubles with each failure in a row.
    """

    attempts: int = 3
    wait_s: float = 30.0

    def is_used_up(self, failures: int) -> bool:
        """Tell whether it is not started again after so many failures in a row."""
        return failures >= max(1, self.attempts)

    def pause_s(self, failures: int) -> float:
        """Return the time before the next start after so many, at least one."""
        return float(self.wait_s * 2.0 ** min(failures - 1, _MOST_DOUBLINGS))


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Where a program that does not use ``freetrain.elastic`` tells its progress.

    Attributes:
        form: How.
        file: The file that it appends to; None for what it prints.
        pattern: Regular expression to find in a line, its named groups being the
            fields; for ``PATTERN`` only.
        fields: Pairs of field and column or key; for the other two only. Fields
            are ``step``, ``samples``, ``epoch``, and names of metrics.
    """

    form: ProgressFormat
    file: Path | None = None
    pattern: str = ""
    fields: tuple[tuple[str, str], ...] = ()

    @property
    def told(self) -> frozenset[str]:
        """The fields that the program tells."""
        names = {name for name, _ in self.fields}
        return frozenset(names | re.compile(self.pattern).groupindex.keys())


@dataclass(frozen=True, slots=True, kw_only=True)
class RescaleCosts:
    """Time without training at a change of nodes; None until it is measured.

    Attributes:
        grow_s: When nodes are added.
        shrink_s: When nodes are given up or lost.
        start_s: When it starts from no nodes.
    """

    grow_s: float | None = None
    shrink_s: float | None = None
    start_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainerJob:
    """A trainer as its user wrote it. All paths are absolute.

    Attributes:
        name: What people call it.
        command: The program and its arguments; no shell sees them. Empty for a pack,
            whose members have theirs.
        directory: Where the program starts.
        environment: Variables for it, by name.
        elastic: Whether the program uses ``freetrain.elastic``.
        logs: Folder for what it prints; None for one of FreeTrain's.
        weight: What its work is worth to the planner, above 0.
        order: Whether it is served with the others or after them.
        scaling: Samples a second by node count, ascending, as far as its user knows;
            what is measured counts more.
        deadline: When it should be finished; None for no time.
        launch: How a world is started.
        nodes: How many nodes, and which.
        work: When it is done.
        checkpoint: Where and how often it commits.
        stop: How it is asked to end.
        restart: What is done when it fails.
        progress: Where it tells its progress; None if ``elastic``, or nowhere.
        quality: Which metric says how good it is; None for a loss, which the next
            property says. None is not written, so that agents of an earlier
            release, which run while the program is upgraded, can read the file.
        target: What value is wanted, and what is done then; None for nothing.
        costs: What a rescale costs.
    """

    name: str
    directory: Path
    nodes: Nodes
    command: tuple[str, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()
    elastic: bool = True
    logs: Path | None = None
    weight: float = 1.0
    order: Order = Order.NORMAL
    scaling: tuple[tuple[int, float], ...] = ()
    deadline: Deadline | None = None
    launch: Launch = Launch()
    work: Work = Work()
    checkpoint: Checkpoint = Checkpoint()
    stop: Stop = Stop()
    restart: Restart = Restart()
    progress: Progress | None = None
    quality: Quality | None = None
    target: Target | None = None
    costs: RescaleCosts = RescaleCosts()

    @property
    def measure(self) -> Quality:
        """Which metric says how good it is."""
        return self.quality or Quality()

    def must_have_committed(self, ran_s: float) -> bool:
        """Tell whether a program that tells of no commit made one in so long a run."""
        return not self.elastic and ran_s >= _COMMITS * self.checkpoint.every_s


# ----------------------------------------------------------------------
# What keys of a job file say about each other.


def check(job: TrainerJob, document: Table) -> None:
    """Refuse *document* where what it says cannot all be true.

    Raises:
        BadConfigurationError: The message names the keys.
    """
    _check_nodes(job.nodes, document.inner("nodes"))
    launcher = find_launcher(job.launch.launcher)
    for table, problem in launcher.problems(job):
        (document.inner(table) if table else document).refuse(problem)
    if job.launch.spare and not job.elastic:
        document.inner("launch").refuse(
            "spare = true is for programs that join, and elastic = false"
        )
    if launcher.needs_command:
        document.require("command")
    if job.work.samples is not None and job.work.epochs is not None:
        document.inner("work").refuse("expected either samples or epochs, not both")
    if job.progress is not None:
        _check_progress(job, job.progress, document.inner("progress"))
    if job.quality is not None:
        _check_is_told(job, document.inner("quality"))
    if job.target is not None:
        _check_target(job, job.target, document.inner("target"))


def _check_nodes(nodes: Nodes, table: Table) -> None:
    if nodes.min_nodes > nodes.max_nodes:
        table.refuse(f"min = {nodes.min_nodes} is above max = {nodes.max_nodes}")
    within = f"from min = {nodes.min_nodes} to max = {nodes.max_nodes}"
    if not nodes.sizes:
        table.refuse_value("sizes", f"a node count {within}")
    listed = isinstance(table.values.get("sizes"), list)
    if listed and nodes.sizes != nodes.only:
        table.refuse_value("sizes", f"only node counts {within}")


def _check_progress(job: TrainerJob, progress: Progress, table: Table) -> None:
    if job.elastic:
        table.refuse(
            "a program that uses freetrain.elastic tells its progress itself; leave "
            "this table out, or set elastic = false above"
        )
    if progress.form is ProgressFormat.PATTERN:
        if not progress.pattern or progress.fields:
            table.refuse('format = "pattern" needs pattern, and takes no fields')
    elif not (progress.file and progress.fields) or progress.pattern:
        table.refuse(
            f'format = "{progress.form}" needs file and fields, and takes no pattern'
        )


def _check_target(job: TrainerJob, target: Target, table: Table) -> None:
    _check_is_told(job, table)
    final, better = target.final, job.measure.better
    if final is not None and not job.measure.is_reached(target.deliver, final):
        table.refuse(
            f"final = {final:g} comes before deliver = {target.deliver:g}, where "
            f"{better} is better"
        )
    if target.publish is not None and not job.elastic:
        table.refuse(
            "publish is for programs that use freetrain.elastic, whose checkpoints "
            "can be checked; let hook fetch what this one writes"
        )


def _check_is_told(job: TrainerJob, table: Table) -> None:
    """Refuse a metric that the program cannot tell; an elastic one may tell any."""
    if job.elastic:
        return
    if job.progress is None:
        table.refuse("nobody knows the metric without a table [progress]")
    names = job.progress.told
    name = job.measure.metric
    if name not in names:
        table.refuse(
            f"the metric {shown(name)} is no field of [progress].{closest(name, names)}"
        )


# ----------------------------------------------------------------------
# Kinds of values that only job files have.

MOST_PATTERN_CHARACTERS = 1_000
MOST_VARIABLES = 1_000
MOST_VARIABLE_BYTES = 100_000
MOST_FIELDS = 100
COUNTED = ("step", "samples", "epoch")
"""Fields that tell how far a training is; one of them is needed."""

OURS = ("FREETRAIN_", "SLURM_", "PMI_", "PMIX_")
"""Beginnings of variables that the launch itself sets or takes away."""

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,255}", re.ASCII)
_FIELD = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}", re.ASCII)
_METRIC = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./@-]{0,99}", re.ASCII)
_LATEST = datetime(9000, 1, 1, tzinfo=UTC)
"""What is later is a slip, and could not be written again in another time zone."""
_PAIRS_EXPECTED = (
    "names of columns or keys by field, such as "
    '{ step = "iteration", loss = "train/loss" }, with at least one of '
    f"{', '.join(COUNTED)}"
)


def environment() -> Kind[tuple[tuple[str, str], ...]]:
    """Return the kind of tables of environment variables, by name."""

    def read(value: object) -> tuple[tuple[str, str], ...]:
        if not isinstance(value, dict) or len(value) > MOST_VARIABLES:
            raise MismatchError
        for name, text in value.items():
            _check_variable(name, text)
        return tuple(sorted(value.items()))

    return Kind(
        'variables and their texts, such as { OMP_PROC_BIND = "close" }', read, dict
    )


def _check_variable(name: str, text: object) -> None:
    if _VARIABLE.fullmatch(name) is None:
        raise MismatchError(f"no variable {shown(name)}; names are letters, digits, _")
    if name.startswith(OURS):
        raise MismatchError(f"no variable {name}; FreeTrain and Slurm set it")
    if not isinstance(text, str) or "\0" in text:
        raise MismatchError(f"a text without NUL for {name}")
    if len(text.encode()) > MOST_VARIABLE_BYTES:
        raise MismatchError(f"up to {MOST_VARIABLE_BYTES} bytes for {name}")


def pattern() -> Kind[str]:
    r"""Return the kind of regular expressions that find progress in a line."""

    def read(value: object) -> str:
        if not isinstance(value, str) or not 0 < len(value) <= MOST_PATTERN_CHARACTERS:
            raise MismatchError
        names = _compiled(value).groupindex
        if not any(name in names for name in COUNTED):
            raise MismatchError
        return value

    return Kind(
        r"a regular expression such as 'step (?P<step>\d+) loss (?P<loss>\S+)', of up "
        f"to {MOST_PATTERN_CHARACTERS} characters, with a named group "
        f"{' or '.join(COUNTED)}",
        read,
        str,
    )


def _compiled(text: str) -> re.Pattern[str]:
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # what will mean something else some day
        try:
            return re.compile(text)
        except (re.error, Warning, RecursionError, OverflowError) as error:
            raise MismatchError(f"a regular expression; {error}") from None


def fields() -> Kind[tuple[tuple[str, str], ...]]:
    """Return the kind of tables that name the column or key of each field."""

    def read(value: object) -> tuple[tuple[str, str], ...]:
        if not isinstance(value, dict) or len(value) > MOST_FIELDS:
            raise MismatchError
        if not any(name in value for name in COUNTED):
            raise MismatchError
        for name, column in value.items():
            _check_field(name, column)
        return tuple(sorted(value.items()))

    return Kind(_PAIRS_EXPECTED, read, dict)


def _check_field(name: str, column: object) -> None:
    if _FIELD.fullmatch(name) is None or not isinstance(column, str):
        raise MismatchError
    if not column.isprintable() or not 0 < len(column) <= 256:  # noqa: PLR2004
        raise MismatchError


def launcher_name() -> Kind[str]:
    """Return the kind of names of launchers."""
    expected = f"one of {', '.join(BUILT_IN)}"

    def read(value: object) -> str:
        name = str(value)
        try:
            find_launcher(name)
        except UnusableLauncherError as error:
            raise MismatchError(str(error)) from None
        except LookupError:
            known = launcher_names()
            raise MismatchError(
                f"one of {', '.join(known)}.{closest(name, known)}"
            ) from None
        return name

    return Kind(expected, read, str)


def metric() -> Kind[str]:
    """Return the kind of names of metrics."""
    return matching(_METRIC, 'a metric\'s name, such as "loss" or "val/accuracy"')


def deadline(longest_s: float) -> Kind[Deadline]:
    """Return the kind of deadlines: a duration up to *longest_s*, or a time."""
    duration = seconds(1.0, longest_s)

    def read(value: object) -> Deadline:
        if isinstance(value, str):
            return Deadline(after_s=duration.read(value))
        if not isinstance(value, datetime) or value.utcoffset() is None:
            raise MismatchError
        if not datetime(1970, 1, 2, tzinfo=UTC) <= value <= _LATEST:
            raise MismatchError
        return Deadline(at=value)

    def write(value: Deadline) -> object:
        return value.at or exact_duration(value.after_s or 0.0)

    return Kind(
        f"{duration.expected}, from the submission on, or a time with its offset, "
        "such as 2026-12-24T18:00:00Z",
        read,
        write,
    )


# ----------------------------------------------------------------------
# The keys of job files: docs/job-file.md says the same, and a test compares.

MOST_PROCESSES = 4_096
MOST_CPUS = 100_000
LONGEST_S = 3_650 * 86_400.0
MOST_HOOK_S = 60.0
"""Ticks wait for hooks, and others for ticks."""


def schema(places: Places) -> Schema[TrainerJob]:
    """Return the keys of a job file whose paths start from *places*."""
    return Schema(
        top=Section("", TrainerJob, _top(places)),
        tables=(
            Section("nodes", Nodes, _nodes()),
            Section("launch", Launch, _launch(places)),
            Section("work", Work, _work()),
            Section("checkpoint", Checkpoint, _checkpoint(places)),
            Section("stop", Stop, _stop()),
            Section("restart", Restart, _restart()),
            Section("progress", Progress, _progress(places)),
            Section("quality", Quality, _quality()),
            Section("target", Target, _target(places)),
            Section("costs", RescaleCosts, _costs()),
        ),
    )


def _top(places: Places) -> tuple[Key, ...]:
    return (
        Key("name", trainer_name(), "name"),
        Key("command", command(), "command"),
        Key("directory", path_from(places), "directory", places.folder),
        Key("environment", environment(), "environment"),
        Key("elastic", yes_or_no(), "elastic"),
        Key("logs", path_from(places), "logs"),
        Key("weight", positive(), "weight"),
        Key("order", one_of(Order), "order"),
        Key("scaling", curve("samples a second"), "scaling"),
        Key("deadline", deadline(LONGEST_S), "deadline"),
    )


def _nodes() -> tuple[Key, ...]:
    return (
        Key("min", whole(1, MOST_NODES), "min_nodes"),
        Key("max", whole(1, MOST_NODES), "max_nodes"),
        Key("sizes", sizes(range(1, MOST_NODES + 1)), "only"),
        Key("partition", word("a partition"), "partition"),
        Key("features", words("a feature"), "features"),
        Key("gres", gres(), "gres"),
        Key("memory", memory(), "memory_mib"),
        Key("cpus", whole(1, MOST_CPUS), "cpus"),
    )


def _launch(places: Places) -> tuple[Key, ...]:
    return (
        Key("launcher", launcher_name(), "launcher"),
        Key("processes_per_node", whole(1, MOST_PROCESSES), "processes_per_node"),
        Key("ahead", yes_or_no(), "ahead"),
        Key("spare", yes_or_no(), "spare"),
        Key("threads", whole(1, MOST_PROCESSES), "threads"),
        Key("executable", argument(), "executable"),
        Key("options", arguments(), "options"),
        Key("command", command(), "command"),
        Key("pack", path_from(places), "pack"),
    )


def _work() -> tuple[Key, ...]:
    return (
        Key("samples", positive(), "samples"),
        Key("epochs", whole(1, 10**9), "epochs"),
        Key("time_limit", seconds(1.0, LONGEST_S), "time_limit_s"),
    )


def _checkpoint(places: Places) -> tuple[Key, ...]:
    return (
        Key("path", path_from(places), "path"),
        Key("every", seconds(0.0, LONGEST_S), "every_s"),
    )


def _stop() -> tuple[Key, ...]:
    return (
        Key("signal", one_of(StopSignal), "signal"),
        Key("kill_after", seconds(1.0, 3_600.0), "kill_after_s"),
    )


def _restart() -> tuple[Key, ...]:
    return (
        Key("attempts", whole(0, 1_000), "attempts"),
        Key("wait", seconds(0.0, 86_400.0), "wait_s"),
    )


def _progress(places: Places) -> tuple[Key, ...]:
    return (
        Key("format", one_of(ProgressFormat), "form"),
        Key("file", path_from(places), "file"),
        Key("pattern", pattern(), "pattern"),
        Key("fields", fields(), "fields"),
    )


def _quality() -> tuple[Key, ...]:
    return (
        Key("metric", metric(), "metric"),
        Key("better", one_of(Better), "better"),
    )


def _target(places: Places) -> tuple[Key, ...]:
    return (
        Key("deliver", number(), "deliver"),
        Key("final", number(), "final"),
        Key("publish", path_from(places), "publish"),
        Key("hook", command(), "hook"),
        Key("hook_limit", seconds(1.0, MOST_HOOK_S), "hook_limit_s"),
    )


def _costs() -> tuple[Key, ...]:
    return tuple(
        Key(name, seconds(0.0, 86_400.0), f"{name}_s")
        for name in ("grow", "shrink", "start")
    )


# ----------------------------------------------------------------------
# Reading job files, and writing what was read.

FILE = FileKind(
    what="job file ",
    most_bytes=2**20,
    consequence="Nothing was submitted.",
    advice="Name a TOML file as docs/job-file.md describes it.",
)


def read_job(
    path: Path, *, named: str | None = None, home: Path | None = None
) -> TrainerJob:
    """Return the trainer that the file at *path* describes.

    Args:
        path: The file, absolute: relative paths in it start at its folder.
        named: How the user named it, for messages; None for *path* itself.
        home: What ``~`` stands for in paths.

    Raises:
        MissingInputError: The file is not there or cannot be read.
        BadConfigurationError: See ``parse_job``.
    """
    name = named or str(path)
    content = read_limited(path, named=name, file=FILE)
    return parse_job(content, path=name, places=Places(path.parent, home))


def parse_job(content: bytes, *, path: str, places: Places) -> TrainerJob:
    """Return the trainer that *content* describes; *path* is for messages.

    Raises:
        BadConfigurationError: It does not describe a trainer; the message names the
            file, the table, the key, what was found and what is expected.
    """
    document = parse_document(content, path=path, file=FILE)
    job = schema(places).read(document)
    check(job, document)
    return job


def render_job(job: TrainerJob) -> str:
    """Return *job* as the canonical job file: every value said, every path absolute.

    Read again, from anywhere, it gives an equal job, also after defaults changed.
    """
    return schema(Places(Path("/"))).render(job)


# ----------------------------------------------------------------------
# What the leases of a trainer ask of their nodes: the job file over the site.


def requirement_of(
    nodes: Nodes, lease: LeaseSettings, *, default_partition: str
) -> Requirement:
    """Return what a lease for a trainer asks of its node.

    The trainer's word counts before the site's; features are those of both.

    Args:
        nodes: What the trainer says.
        lease: What the site says.
        default_partition: The cluster's, where neither names one.
    """
    gres = lease.gres if nodes.gres is None else nodes.gres
    return Requirement(
        partition=nodes.partition or lease.partition or default_partition,
        features=frozenset(lease.features) | frozenset(nodes.features),
        gres=gres,
        memory_mib=nodes.memory_mib or lease.memory_mib or 0,
        cpus=nodes.cpus or lease.cpus or 0,
    )
