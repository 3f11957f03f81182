"""Job files: what a user submits, one trainer a file; docs/guide/job-file.md.

The structs below are the file: their fields are its keys, with types, limits and
defaults, in the order in which they are written. ``_check`` says which of them cannot
hold together. A trainer's file is written again when it is submitted
(``render_job``), so that the state directory and agents read the same form.
"""

import re
import warnings
from bisect import bisect_right
from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from fnmatch import fnmatchcase
from itertools import takewhile
from pathlib import Path
from typing import Annotated, NamedTuple

from msgspec import Meta, Struct, field, structs

from freetrain.config.document import (
    AMOUNTS,
    MOST_NODES,
    PATH,
    AbsolutePath,
    Argument,
    Arguments,
    BaseFolders,
    Command,
    Cpus,
    Features,
    FileKind,
    Form,
    GenericResources,
    GpuType,
    MemoryMib,
    MismatchError,
    Partition,
    Positive,
    Table,
    TrainerName,
    curve,
    key_name,
    named,
    parse_document,
    read_limited,
    render_record,
    seconds,
    sizes,
)
from freetrain.losscurve.forecast import MetricDirection
from freetrain.patterns import SlowPatternError, compiled
from freetrain.plugins import (
    LAUNCHERS,
    UnusablePluginError,
    find_launcher,
    launcher_names,
)
from freetrain.text import DAY_S, closest, exact_duration, shown
from slurm.pieces import GPU

MOST_PROCESSES = 4_096
MOST_GPUS = 64
LONGEST_S = 3_650 * 86_400.0
MOST_HOOK_S = 60.0
"""A tick waits for a hook, and the next tick for this one."""


# ----------------------------------------------------------------------
# Forms of values that only job files have

MOST_PATTERN_CHARACTERS = 1_000
MOST_VARIABLES = 1_000
MOST_VARIABLE_BYTES = 100_000
MOST_FIELDS = 100
MOST_COLUMN_CHARACTERS = 256

COUNTED = ("step", "samples", "epoch")
"""Fields that say how far a training is; one of them is needed."""

OURS = ("FREETRAIN_", "SLURM_", "PMI_", "PMIX_")
"""Beginnings of variables that the launch itself sets or takes away."""

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,255}", re.ASCII)
_FIELD = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}", re.ASCII)
_FIRST = datetime(1970, 1, 2, tzinfo=UTC)
_LATEST = datetime(9000, 1, 1, tzinfo=UTC)
"""A later time is a mistake, and could not be written in another time zone."""


def _read_environment(value: object, _: BaseFolders) -> tuple[tuple[str, str], ...]:
    if not isinstance(value, dict) or len(value) > MOST_VARIABLES:
        raise MismatchError
    for name, text in value.items():
        if _VARIABLE.fullmatch(name) is None:
            raise MismatchError(
                f"no variable {shown(name)}; names are letters, digits, _"
            )
        if name.startswith(OURS):
            raise MismatchError(f"no variable {name}; FreeTrain and Slurm set it")
        if not isinstance(text, str) or "\0" in text:
            raise MismatchError(f"a text without NUL for {name}")
        if len(text.encode()) > MOST_VARIABLE_BYTES:
            raise MismatchError(f"up to {MOST_VARIABLE_BYTES} bytes for {name}")
    return tuple(sorted(value.items()))


def _read_pattern(value: object, _: BaseFolders) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= MOST_PATTERN_CHARACTERS:
        raise MismatchError
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # for what a later Python will read otherwise
        try:
            groups = compiled(value).groupindex
        except SlowPatternError:
            raise MismatchError(
                "a regular expression that is compiled in less than half a second"
            ) from None
        except (re.error, Warning, RecursionError, OverflowError) as error:
            raise MismatchError(f"a regular expression; {error}") from None
    if not any(name in groups for name in COUNTED):
        raise MismatchError
    return value


def _read_fields(value: object, _: BaseFolders) -> tuple[tuple[str, str], ...]:
    if not isinstance(value, dict) or len(value) > MOST_FIELDS:
        raise MismatchError
    for name, column in value.items():
        if _FIELD.fullmatch(name) is None or not isinstance(column, str):
            raise MismatchError
        if not column.isprintable() or not 0 < len(column) <= MOST_COLUMN_CHARACTERS:
            raise MismatchError
    return tuple(sorted(value.items()))


def _read_launcher(value: object, _: BaseFolders) -> str:
    name = str(value)
    try:
        find_launcher(name)
    except UnusablePluginError as error:
        raise MismatchError(str(error)) from None
    except LookupError:
        known = launcher_names()
        raise MismatchError(
            f"one of {', '.join(known)}.{closest(name, known)}"
        ) from None
    return name


IMAGE_FILES = (".sif", ".simg", ".sqsh", ".sqfs", ".squashfs")
"""Ends of names by which an image is a file, where it does not begin as a path."""

MOST_IMAGE_CHARACTERS = 1_000
MOST_BINDS = 100
_BIND = re.compile(r"(?P<outside>[^:,]+)(:(?P<inside>/[^:,]*)(?P<how>:ro|:rw)?)?")
_SEPARATORS = frozenset(":,")


def _read_image(value: object, places: BaseFolders) -> str:
    if not isinstance(value, str) or not value.isprintable():
        raise MismatchError
    if not 0 < len(value) <= MOST_IMAGE_CHARACTERS or value.startswith("-"):
        raise MismatchError
    is_file = value.endswith(IMAGE_FILES) and "://" not in value
    if is_file or value.startswith(("/", "./", "~/")):
        return str(PATH.read(value, places))
    return value


def _read_binds(value: object, places: BaseFolders) -> tuple[str, ...]:
    if not isinstance(value, list) or len(value) > MOST_BINDS:
        raise MismatchError
    return tuple(_read_bind(bind, places) for bind in value)


def _read_bind(value: object, places: BaseFolders) -> str:
    text = value if isinstance(value, str) and value.isprintable() else ""
    found = _BIND.fullmatch(text)
    if found is None:
        raise MismatchError
    outside = str(PATH.read(found["outside"], places))
    if _SEPARATORS.intersection(outside):
        raise MismatchError
    inside = found["inside"] or outside
    return f"{outside}:{inside}{found['how'] or ''}"


LAUNCHER = Form(
    "the name of a launcher",
    _read_launcher,
    str,
    # Other packages may add some; looking for them would slow every tick down.
    {"anyOf": [{"enum": list(LAUNCHERS)}, {"type": "string", "minLength": 1}]},
)
ENVIRONMENT = Form(
    'variables and their texts, such as { OMP_PROC_BIND = "close" }',
    _read_environment,
    dict,
    {
        "type": "object",
        "patternProperties": {f"^{_VARIABLE.pattern}$": {"type": "string"}},
        "propertyNames": {"not": {"pattern": f"^({'|'.join(OURS)})"}},
        "additionalProperties": False,
    },
)
IMAGE = Form(
    "a container's image as its runtime names it, or a path: one that begins with /, "
    f"./ or ~/, or ends in {', '.join(IMAGE_FILES)}",
    _read_image,
    str,
    {"type": "string", "minLength": 1, "maxLength": MOST_IMAGE_CHARACTERS},
)
BINDS = Form(
    'folders such as "/data", "/scratch/ada:/scratch" or "/data:/data:ro", without '
    "commas",
    _read_binds,
    list,
    {"type": "array", "maxItems": MOST_BINDS, "items": {"type": "string"}},
)
PATTERN = Form(
    r"a regular expression such as 'step (?P<step>\d+) loss (?P<loss>\S+)', of up "
    f"to {MOST_PATTERN_CHARACTERS} characters, with a named group "
    f"{' or '.join(COUNTED)}",
    _read_pattern,
    str,
    {"type": "string", "minLength": 1, "maxLength": MOST_PATTERN_CHARACTERS},
)
FIELDS = Form(
    "names of columns or keys by field, such as "
    '{ step = "iteration", loss = "train/loss" }, with at least one of '
    f"{', '.join(COUNTED)}",
    _read_fields,
    dict,
    {
        "type": "object",
        "patternProperties": {f"^{_FIELD.pattern}$": {"type": "string"}},
        "additionalProperties": False,
    },
)


class JobDeadline(Struct, frozen=True):
    """When a trainer should be finished: at a time, or so long after its submission."""

    after_s: float | None = None
    at: datetime | None = None

    def time_s(self, submitted_s: float) -> float:
        """Return the Unix time meant by a submission at *submitted_s*."""
        if self.at is not None:
            return self.at.timestamp()
        return submitted_s + (self.after_s or 0.0)


def _deadline() -> Form[JobDeadline]:
    duration = seconds(1.0, LONGEST_S)

    def read(value: object, places: BaseFolders) -> JobDeadline:
        if isinstance(value, str):
            return JobDeadline(after_s=duration.read(value, places))
        if not isinstance(value, datetime) or value.utcoffset() is None:
            raise MismatchError
        if not _FIRST <= value <= _LATEST:
            raise MismatchError
        return JobDeadline(at=value)

    return Form(
        f"{duration.expected}, from the submission on, or a time with its offset, "
        "such as 2026-12-24T18:00:00Z",
        read,
        lambda deadline: deadline.at or exact_duration(deadline.after_s or 0.0),
        {"anyOf": [duration.schema, {"type": "string", "format": "date-time"}]},
    )


# ----------------------------------------------------------------------
# The tables of a job file


class NodeSettings(Struct, frozen=True, kw_only=True, rename=key_name):
    """``[nodes]``: how many leases a trainer can use, and of what.

    Attributes:
        min_nodes: The fewest leases that it runs on; a lease is a node, or with
            gpus_per_lease a part of one.
        max_nodes: The most.
        only: The counts that it can run on, ascending; empty for all.
        gpus_per_lease: GPUs of one node that a lease takes, beside other jobs; None
            for leases of whole nodes.
        gpu_type: The kind of these GPUs, as Slurm names it; None for any. Neither is
            written where it is None, so that agents of an earlier release, which run
            while the program is upgraded, can read the file.
        partition: Where leases for it are submitted; None as the site says, as for
            the next ones but features, which add to the site's.
        features: What each node must have, as Slurm names it.
        gres: Generic resources of each node.
        memory_mib: Memory of each node, or with gpus_per_lease of each lease.
        cpus: CPUs of each node, or with gpus_per_lease of each lease.
    """

    min_nodes: Annotated[int, Meta(ge=1, le=MOST_NODES)] = field(name="min", default=1)
    max_nodes: Annotated[int, Meta(ge=1, le=MOST_NODES)] = field(name="max")
    only: Annotated[tuple[int, ...], sizes(range(1, MOST_NODES + 1))] = field(
        name="sizes", default=()
    )
    gpus_per_lease: Annotated[int, Meta(ge=1, le=MOST_GPUS)] | None = None
    gpu_type: GpuType | None = None
    partition: Partition | None = None
    features: Features = ()
    gres: GenericResources | None = None
    memory_mib: MemoryMib | None = None
    cpus: Cpus | None = None

    @property
    def sizes(self) -> tuple[int, ...]:
        """The node counts that the trainer can run on, ascending."""
        allowed = range(self.min_nodes, self.max_nodes + 1)
        return tuple(n for n in self.only or allowed if n in allowed)


def size_within(sizes: Sequence[int], most: int) -> int:
    """Return the largest of *sizes*, ascending, that is no larger; 0 for none."""
    fitting = bisect_right(sizes, most)
    return sizes[fitting - 1] if fitting else 0


class LaunchSettings(Struct, frozen=True, kw_only=True, rename=key_name):
    """``[launch]``: how a world is started.

    Attributes:
        launcher: A name that ``freetrain.plugins`` knows.
        processes_per_node: Processes in each lease; with gpus_per_lease one for each
            GPU, unless it says otherwise.
        ahead: Whether an elastic program's next world starts while the last one still
            trains, and waits for it in ``elastic.join``.
        spare: Whether each node keeps a process that has run the program up to
            ``elastic.join``, from which the next ranks are forked. None where there is
            memory for it; None is not written, so that agents of an earlier release,
            which run while the program is upgraded, can read the file.
        threads: The value of OMP_NUM_THREADS; None leaves it alone.
        executable: The launcher's program; empty for its usual name.
        options: Further words for the launcher, before the program's command.
        command: For ``custom``: the words before the program's command, with
            placeholders.
        pack: For ``pack``: the file that names the trainers which share the node.
    """

    launcher: Annotated[str, LAUNCHER] = "mpirun"
    processes_per_node: Annotated[int, Meta(ge=1, le=MOST_PROCESSES)] = 1
    ahead: bool = True
    spare: bool | None = None
    threads: Annotated[int, Meta(ge=1, le=MOST_PROCESSES)] | None = None
    executable: Argument = ""
    options: Arguments = ()
    command: Command = ()
    pack: AbsolutePath | None = None


class ContainerRuntime(StrEnum):
    """What runs containers."""

    APPTAINER = "apptainer"
    SINGULARITY = "singularity"
    PODMAN = "podman"
    CHARLIECLOUD = "charliecloud"
    PYXIS = "pyxis"


class ContainerGpus(StrEnum):
    """Whose GPUs the program in a container uses."""

    NVIDIA = "nvidia"
    AMD = "amd"


class ContainerSettings(Struct, frozen=True, kw_only=True, rename=key_name):
    """``[container]``: the image in which the ranks run; the agent stays outside.

    Attributes:
        image: The image, as the runtime names it; a path is absolute.
        runtime: What runs containers.
        binds: Folders of the node that the program sees, beside its own: outside,
            inside, and ro where it may only read, apart by colons.
        gpus: Whose GPUs it uses; None where it needs none, or where the site sees to
            them, as with Pyxis and Charliecloud.
        options: Further words for the runtime, before the image.
    """

    image: Annotated[str, IMAGE]
    runtime: ContainerRuntime
    binds: Annotated[tuple[str, ...], BINDS] = ()
    gpus: ContainerGpus | None = None
    options: Arguments = ()

    @property
    def image_path(self) -> Path | None:
        """The image's file or folder; None where the runtime knows it by a name."""
        return Path(self.image) if self.image.startswith("/") else None


class WorkSettings(Struct, frozen=True, kw_only=True, rename=key_name):
    """``[work]``: when a trainer is done; without a key, when its program ends.

    Attributes:
        samples: Training samples; never beside epochs.
        epochs: The same in epochs.
        time_limit_s: Time on nodes after which it is stopped.
    """

    samples: Positive | None = None
    epochs: Annotated[int, Meta(ge=1, le=10**9)] | None = None
    time_limit_s: Annotated[float, seconds(1.0, LONGEST_S)] | None = None


class CheckpointSettings(Struct, frozen=True, kw_only=True, rename=key_name):
    """``[checkpoint]``: where and how often a trainer commits.

    Attributes:
        path: The run directory of a program that uses ``freetrain.elastic``, for
            another the file it writes; None for a run directory of FreeTrain's.
        every_s: Time between two commits, which is what a kill may cost.
    """

    path: AbsolutePath | None = None
    every_s: Annotated[float, seconds(0.0, LONGEST_S)] = 60.0


class StopSignal(StrEnum):
    """A signal that asks a program to stop. Not USR1: NCCL uses it (submitit #1701)."""

    USR2 = "USR2"
    TERM = "TERM"
    INT = "INT"
    HUP = "HUP"
    QUIT = "QUIT"


class StopSettings(Struct, frozen=True, kw_only=True, rename=key_name):
    """``[stop]``: how a program is asked to commit and end, and when it is killed.

    Attributes:
        signal: Asks it; an elastic program is asked by a file, too.
        kill_after_s: How long it may take.
    """

    signal: StopSignal = StopSignal.USR2
    kill_after_s: Annotated[float, seconds(1.0, 3_600.0)] = 30.0


_COMMITS = 2  # after two intervals there was a commit for sure
_MOST_DOUBLINGS = 20


class RestartSettings(Struct, frozen=True, kw_only=True, rename=key_name):
    """``[restart]``: retries after a program's failure; losing its nodes is none.

    Attributes:
        attempts: Failures in a row, without a commit between them, after which it
            is not started again; 0 is as 1.
        wait_s: Time before the next start; doubles with each failure in a row.
    """

    attempts: Annotated[int, Meta(ge=0, le=1_000)] = 3
    wait_s: Annotated[float, seconds(0.0, DAY_S)] = 30.0

    def is_used_up(self, failures: int) -> bool:
        """Tell whether a program is given up after so many failures in a row."""
        return failures >= max(1, self.attempts)

    def pause_s(self, failures: int) -> float:
        """Return the time before the start after *failures* in a row, at least 1."""
        return float(self.wait_s * 2.0 ** min(failures - 1, _MOST_DOUBLINGS))


class ProgressFormat(StrEnum):
    """How a program that does not use ``freetrain.elastic`` reports its progress."""

    PATTERN = "pattern"
    CSV = "csv"
    JSON_LINES = "json-lines"
    TENSORBOARD = "tensorboard"
    HUGGINGFACE = "huggingface"
    LIGHTNING = "lightning"
    KERAS = "keras"

    @classmethod
    def _missing_(cls, value: object) -> "ProgressFormat | None":
        return cls.JSON_LINES if value == "jsonl" else None


class LibraryFiles(NamedTuple):
    """The files that a library writes, whose names and columns are known.

    Attributes:
        counted: The fields of ``COUNTED`` in them.
        within: Where they lie in the folder that the library is given; empty where it
            is given the file.
    """

    counted: tuple[str, ...]
    within: str


LIBRARIES = {
    ProgressFormat.TENSORBOARD: LibraryFiles(("step",), "events.out.tfevents.*"),
    ProgressFormat.HUGGINGFACE: LibraryFiles(
        ("epoch", "step"), "checkpoint-*/trainer_state.json"
    ),
    ProgressFormat.LIGHTNING: LibraryFiles(("epoch", "step"), "version_*/metrics.csv"),
    ProgressFormat.KERAS: LibraryFiles(("epoch",), ""),
}
"""The formats that are a library's; the other ones are described by the user."""


class ProgressSettings(Struct, frozen=True, kw_only=True, rename=key_name):
    """``[progress]``: where a program without ``freetrain.elastic`` reports progress.

    Attributes:
        form: How it writes, or which library does.
        file: The file that it appends to; None for its standard output. ``*`` and
            ``?`` stand for any characters of a name: the newest such file counts. Of
            a library it may be the folder that the library is given.
        pattern: Regular expression to find in a line, its named groups being the
            fields; for ``PATTERN`` only.
        fields: Pairs of field and column or key; for all others. Fields are ``step``,
            ``samples``, ``epoch``, and names of metrics. Without them, all columns of
            a library's files count under their own names.
    """

    form: ProgressFormat = field(name="format")
    file: AbsolutePath | None = None
    pattern: Annotated[str, PATTERN] = ""
    fields: Annotated[tuple[tuple[str, str], ...], FIELDS] = ()

    @property
    def reported(self) -> frozenset[str]:
        """The fields that the program reports."""
        names = {name for name, _ in self.fields}
        counted = LIBRARIES[self.form].counted if self.form in LIBRARIES else ()
        return frozenset({*names, *counted, *re.compile(self.pattern).groupindex})

    @property
    def has_own_names(self) -> bool:
        """Whether metrics have the names that the program gives them."""
        return self.form in LIBRARIES and not self.fields

    @property
    def files(self) -> Path | None:
        """The file, where ``*`` and ``?`` stand for any characters of a name."""
        if self.file is None or self.form not in LIBRARIES:
            return self.file
        within = Path(LIBRARIES[self.form].within).parts
        # "logs", "logs/version_3" and "logs/version_3/metrics.csv" are all understood.
        known = [
            n for n, part in enumerate(within, 1) if _is_like(self.file.name, part)
        ]
        if not known and self.file.suffix in {".csv", ".json"}:
            return self.file
        return self.file.joinpath(*within[max(known, default=0) :])


def _is_like(name: str, part: str) -> bool:
    return fnmatchcase(name, part) or (name != "*" and fnmatchcase(part, name))


class QualitySettings(Struct, frozen=True, kw_only=True, rename=key_name):
    """``[quality]``: which metric says how good a trainer's model is.

    Attributes:
        metric: Its name among those that the program reports.
        better: Which values are good.
        lr_steps: Work after which the learning rate falls, ascending, in the unit in
            which the program's work is counted; empty where it is not known.
    """

    metric: Annotated[
        str,
        named(
            r"[A-Za-z0-9_][A-Za-z0-9_./@-]{0,99}",
            'a metric\'s name, such as "loss" or "val/accuracy"',
        ),
    ] = "loss"
    better: MetricDirection = MetricDirection.LOWER
    lr_steps: Annotated[tuple[float, ...], AMOUNTS] = ()

    def is_reached(self, target: float, value: float) -> bool:
        """Tell whether *value* is *target* or better; nan never is."""
        return self.better.is_reached(target, value)


class TargetSettings(Struct, frozen=True, kw_only=True, rename=key_name):
    """``[target]``: values of the metric that a user wants.

    Attributes:
        deliver: When it is reached, the trainer's checkpoint is handed over.
        final: When it is reached, the training is over; None to train on.
        publish: Where that checkpoint is put; None for nowhere.
        hook: The program called on delivery, and its arguments; empty for none.
        hook_limit_s: How long the hook may take before it is killed.
    """

    deliver: float
    final: float | None = None
    publish: AbsolutePath | None = None
    hook: Command = ()
    hook_limit_s: Annotated[float, seconds(1.0, MOST_HOOK_S)] = 20.0


class RescaleCosts(Struct, frozen=True, kw_only=True, rename=key_name):
    """``[costs]``: time without training at a change of nodes; None until measured.

    Attributes:
        grow_s: When nodes are added.
        shrink_s: When nodes are given up or lost.
        start_s: When the trainer starts from no nodes.
    """

    grow_s: Annotated[float, seconds(0.0, DAY_S)] | None = None
    shrink_s: Annotated[float, seconds(0.0, DAY_S)] | None = None
    start_s: Annotated[float, seconds(0.0, DAY_S)] | None = None


class ServiceOrder(StrEnum):
    """Whether a trainer is served with the others, or after them."""

    NORMAL = "normal"
    BACKGROUND = "background"


class TrainerJob(Struct, frozen=True, kw_only=True, rename=key_name):
    """A trainer as its user wrote it. All paths are absolute.

    Attributes:
        command: The program and its arguments; no shell sees them. Empty for a pack,
            whose members have commands.
        directory: Where the program starts.
        environment: Variables for the program, by name.
        elastic: Whether the program uses ``freetrain.elastic``.
        logs: Folder for what the program prints; None for a folder of FreeTrain's.
        weight: How much the trainer's work is worth to the planner, above 0.
        order: Whether it gets only what the others leave.
        scaling: Samples a second by node count, ascending, as far as its user knows;
            measurements count more.
        deadline: When it should be finished.
        progress: None if ``elastic``, or if the program does not report any.
        container: None for a program that runs on the nodes as they are.
        quality: None for a loss, see ``measure``. Neither is written where it is None,
            so that agents of an earlier release, which run while the program is
            upgraded, can read the file.
    """

    name: TrainerName
    command: Command = ()
    directory: AbsolutePath
    environment: Annotated[tuple[tuple[str, str], ...], ENVIRONMENT] = ()
    elastic: bool = True
    logs: AbsolutePath | None = None
    weight: Positive = 1.0
    order: ServiceOrder = ServiceOrder.NORMAL
    scaling: Annotated[tuple[tuple[int, float], ...], curve("samples a second")] = ()
    deadline: Annotated[JobDeadline, _deadline()] | None = None
    nodes: NodeSettings
    launch: LaunchSettings = LaunchSettings()
    container: ContainerSettings | None = None
    work: WorkSettings = WorkSettings()
    checkpoint: CheckpointSettings = CheckpointSettings()
    stop: StopSettings = StopSettings()
    restart: RestartSettings = RestartSettings()
    progress: ProgressSettings | None = None
    quality: QualitySettings | None = None
    target: TargetSettings | None = None
    costs: RescaleCosts = RescaleCosts()

    @property
    def measure(self) -> QualitySettings:
        """Which metric says how good the model is."""
        return self.quality or QualitySettings()

    @property
    def program(self) -> tuple[str, ...]:
        """The command up to its script or module; without one, to its first option.

        Trainers of one program may differ in options, such as ``--batch-size 64``.
        """
        words = tuple(enumerate(self.command, start=1))
        ends = [
            count
            for endings in _SCRIPT_ENDINGS
            for count, word in words
            if word.endswith(endings)
        ]
        ends += [count + 1 for count, word in words if word == "-m"]
        if ends or "-c" in self.command:
            return self.command[: ends[0] if ends else None]
        return tuple(takewhile(lambda word: not word.startswith("-"), self.command))

    @property
    def may_have_spares(self) -> bool:
        """Whether spares are kept: where asked for, or left open and possible.

        With ``ahead = false`` two worlds do not fit into memory. In a container ranks
        would be forked in that of the spare, with the variables of the node.
        """
        if self.container is not None:
            return False
        if self.launch.spare is not None:
            return self.launch.spare
        return self.elastic and self.launch.ahead and not self.launch.pack

    def without_sizes(self, left_out: Collection[int]) -> "TrainerJob":
        """Return the job for the sizes that remain; as it is where none would."""
        left = tuple(n for n in self.nodes.sizes if n not in left_out)
        if not left or left == self.nodes.sizes:
            return self
        return structs.replace(self, nodes=structs.replace(self.nodes, only=left))

    def must_have_committed(self, ran_s: float) -> bool:
        """Tell whether a program that reports no commits made one in so long a run."""
        return not self.elastic and ran_s >= _COMMITS * self.checkpoint.every_s


_SCRIPT_ENDINGS = ((".py",), (".sh", ".R", ".jl"))
"""Of programs, those first that others start."""


# ----------------------------------------------------------------------
# Reading job files, and writing them

FILE = FileKind(
    prefix="job file ",
    most_bytes=2**20,
    consequence="Nothing was submitted.",
    advice="Name a TOML file as `freetrain docs job-file` describes it.",
)


def read_job(
    path: Path,
    *,
    named: str | None = None,
    home: Path | None = None,
    must_be_own: bool = False,
) -> TrainerJob:
    """Return the trainer that the file at *path* describes.

    Args:
        path: The file, absolute: relative paths in it start at its folder.
        named: How the user named it, for messages; None for *path* itself.
        home: Replaces ``~`` in paths.
        must_be_own: See ``read_limited``.

    Raises:
        MissingInputError: The file is not there or cannot be read.
        BadConfigurationError: See ``parse_job``.
    """
    name = named or str(path)
    content = read_limited(path, named=name, file=FILE, must_be_own=must_be_own)
    return parse_job(content, path=name, places=BaseFolders(path.parent, home))


def parse_job(content: bytes, *, path: str, places: BaseFolders) -> TrainerJob:
    """Return the trainer that *content* describes; *path* is for messages.

    Raises:
        BadConfigurationError: It does not describe a trainer; the message names the
            file, the table, the key, what was found and what is expected.
    """
    document = parse_document(content, path=path, file=FILE, places=places)
    job = document.read(TrainerJob, defaults={"directory": places.folder})
    job = _with_rank_for_each_gpu(job, document)
    _check(job, document)
    return job


def _with_rank_for_each_gpu(job: TrainerJob, document: Table) -> TrainerJob:
    """Return *job* with as many ranks in each lease as GPUs, unless it says how many.

    A pack's members are one process each.
    """
    gpus, launch = job.nodes.gpus_per_lease, job.launch
    is_said = document.inner("launch").has("processes_per_node")
    if gpus is None or launch.pack is not None or is_said:
        return job
    return structs.replace(job, launch=structs.replace(launch, processes_per_node=gpus))


def render_job(job: TrainerJob) -> str:
    """Return *job* as the canonical job file: all values written, all paths absolute.

    It reads back as an equal job from anywhere, also after defaults changed.
    """
    return render_record(job)


# ----------------------------------------------------------------------
# Keys that cannot hold together


def _check(job: TrainerJob, document: Table) -> None:
    """Refuse *document* where its keys contradict each other; name them."""
    _check_nodes(job.nodes, document.inner("nodes"))
    launcher = find_launcher(job.launch.launcher)
    for table, problem in launcher.problems(job):
        (document.inner(table) if table else document).refuse(problem)
    if job.launch.spare and not job.elastic:
        document.inner("launch").refuse(
            "spare = true is for programs that join, and elastic = false"
        )
    if job.container is not None:
        _check_container(job, job.container, document.inner("container"))
    if launcher.needs_command:
        document.require("command")
    if job.work.samples is not None and job.work.epochs is not None:
        document.inner("work").refuse("expected either samples or epochs, not both")
    if job.progress is not None:
        _check_progress(job, job.progress, document.inner("progress"))
    if job.quality is not None:
        _check_is_reported(job, document.inner("quality"))
    if job.target is not None:
        _check_target(job, job.target, document.inner("target"))


def _check_nodes(nodes: NodeSettings, table: Table) -> None:
    if nodes.min_nodes > nodes.max_nodes:
        table.refuse(f"min = {nodes.min_nodes} is above max = {nodes.max_nodes}")
    within = f"from min = {nodes.min_nodes} to max = {nodes.max_nodes}"
    if not nodes.sizes:
        table.refuse_value("sizes", f"a node count {within}")
    is_list = isinstance(table.values.get("sizes"), list)
    if is_list and nodes.sizes != nodes.only:
        table.refuse_value("sizes", f"only node counts {within}")
    if nodes.gpus_per_lease is None:
        if nodes.gpu_type is not None:
            table.refuse(
                "gpu_type is for leases of GPUs, and gpus_per_lease is missing"
            )
    elif any(gres.name == GPU for gres in nodes.gres or ()):
        table.refuse(
            "gpus_per_lease says how many GPUs a lease has, and gres names GPUs too; "
            "leave them out of gres, and name their kind by gpu_type"
        )


_HIDING = frozenset({"--cleanenv", "--contain", "--containall", "--compat"})
"""Options of Apptainer that keep the node's variables or its ``/tmp`` from programs."""

_HIDING_LETTERS = re.compile(r"-[finpuw]*[ceC][cCefinpuw]*", re.ASCII)
"""The same as letters, alone or behind others that take no value."""

_OFF = frozenset({"0", "f", "F", "false", "False", "FALSE"})
"""What Apptainer reads as no behind an option's ``=``."""


def _hides(word: str) -> bool:
    name, _, value = word.partition("=")
    is_hiding = name in _HIDING or _HIDING_LETTERS.fullmatch(name) is not None
    return is_hiding and value not in _OFF


def _check_container(
    job: TrainerJob, container: ContainerSettings, table: Table
) -> None:
    launcher, runtime = job.launch.launcher, container.runtime
    if job.launch.pack is not None:
        table.refuse("the members of a pack run on the node itself; leave it out")
    if job.launch.spare:
        table.refuse("[launch] spare = true, and no spare is kept in a container")
    is_apptainer = runtime in {ContainerRuntime.APPTAINER, ContainerRuntime.SINGULARITY}
    hiding = [*filter(_hides, container.options)] if is_apptainer else []
    if hiding:
        table.refuse(
            f"options has {', '.join(hiding)}, which keeps FreeTrain's variables or "
            f"the node's /tmp from the program"
        )
    if runtime is not ContainerRuntime.PYXIS:
        return
    if launcher not in {"srun", "torchrun"}:
        table.refuse(
            f'runtime = "pyxis" is for launcher = "srun" or "torchrun", and it is '
            f"{launcher}"
        )
    if not job.elastic and (
        launcher == "torchrun" or job.stop.signal is not StopSignal.USR2
    ):
        table.refuse(
            'with runtime = "pyxis" a program that saves by itself needs launcher = '
            '"srun" and [stop] signal = "USR2": srun passes no other signal on'
        )


def _check_progress(job: TrainerJob, progress: ProgressSettings, table: Table) -> None:
    if job.elastic:
        table.refuse(
            "a program that uses freetrain.elastic tells its progress itself; leave "
            "this table out, or set elastic = false above"
        )
    is_counted = any(name in COUNTED for name, _ in progress.fields)
    if progress.form is ProgressFormat.PATTERN:
        if not progress.pattern or progress.fields:
            table.refuse('format = "pattern" needs pattern, and takes no fields')
    elif progress.form in LIBRARIES:
        if not progress.file or progress.pattern:
            table.refuse(f'format = "{progress.form}" needs file, and takes no pattern')
    elif progress.fields and not is_counted:
        table.refuse_value("fields", FIELDS.expected)
    elif not (progress.file and progress.fields) or progress.pattern:
        table.refuse(
            f'format = "{progress.form}" needs file and fields, and takes no pattern'
        )


def _check_target(job: TrainerJob, target: TargetSettings, table: Table) -> None:
    _check_is_reported(job, table)
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


def _check_is_reported(job: TrainerJob, table: Table) -> None:
    """Refuse a metric that the program cannot report; an elastic one may report any."""
    if job.elastic:
        return
    if job.progress is None:
        table.refuse(
            "the table [progress] is missing, which says where the program writes "
            "its metric"
        )
    names = job.progress.reported
    name = job.measure.metric
    if name not in names and not job.progress.has_own_names:
        table.refuse(
            f"the metric {shown(name)} is no field of [progress].{closest(name, names)}"
        )
