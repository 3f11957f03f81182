"""A pack: its file, its members' job files, its launcher, and its record.

docs/reference/packs.md describes the pack file (``read_pack``). Members come from job
files that it names, or that appear in its inbox (``Inbox``). ``PackLauncher`` runs the
pack in a lease. Its record (``PackRecord``) goes from one generation to the next.
"""

import json
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Struct

from freetrain.config.document import (
    PATH,
    AbsolutePath,
    BaseFolders,
    Cpus,
    FileKind,
    Form,
    MismatchError,
    Positive,
    key_name,
    named,
    parse_document,
    read_limited,
    seconds,
)
from freetrain.config.job import LaunchSettings, TrainerJob, read_job
from freetrain.elastic.files import RunDir, replaced
from freetrain.errors import BadConfigurationError, FreeTrainError
from freetrain.launch.base import (
    Launcher,
    Tool,
    WorldPlan,
    WorldRequest,
    agent_files,
    assemble_plan,
)
from freetrain.losscurve.forecast import MetricDirection
from freetrain.opening import open_plain, read_json
from freetrain.priority.migration import MoveRule


class SharingName(StrEnum):
    """How the shares are computed."""

    FLOWCON = "flowcon"  # by growth efficiency
    FAIR = "fair"  # all the same


class ControllerName(StrEnum):
    """What sets CPU shares."""

    AUTO = "auto"  # the first of the others that can be used
    CGROUP_V2 = "cgroup-v2"
    CGROUP_V1 = "cgroup-v1"
    AFFINITY = "affinity"  # whole CPUs
    DUTY_CYCLE = "duty-cycle"  # turns of a few milliseconds


MOST_MEMBERS = 100
LONGEST_S = 86_400.0


def _read_members(value: object, places: BaseFolders) -> tuple[Path, ...]:
    if not isinstance(value, list) or len(value) > MOST_MEMBERS:
        raise MismatchError
    return tuple(PATH.read(item, places) for item in value)


MEMBERS = Form(
    f"a list of up to {MOST_MEMBERS} job files, such as "
    '["digits/job.toml", "wine/job.toml"]',
    _read_members,
    lambda paths: [str(path) for path in paths],
    {"type": "array", "items": PATH.schema, "maxItems": MOST_MEMBERS},
)


class Pack(Struct, frozen=True, kw_only=True, rename=key_name):
    """A pack as its user wrote it: the keys of its file. All paths are absolute.

    Attributes:
        members: Job files of the members to begin with.
        inbox: A folder in which further job files may appear, if any.
        stay_s: How long to wait for more members when none is left.
        interval_s: FlowCon's interval.
        alpha: FlowCon's threshold.
        metric: The metric that shows how a trainer grows.
        better: Which values of the metric are good.
        means: The controller that sets the shares.
        cpus: How many of the node's CPUs all members together may use; None for
            all CPUs of the pack.
        exchange: A folder through which packs exchange members, if any.
        moves: The rule by which members move to other packs.
    """

    members: Annotated[tuple[Path, ...], MEMBERS] = ()
    inbox: AbsolutePath | None = None
    stay_s: Annotated[float, seconds(0.0, LONGEST_S)] = 0.0
    sharing: SharingName = SharingName.FAIR
    interval_s: Annotated[float, seconds(0.1, LONGEST_S)] = 30.0
    alpha: Positive = 0.03  # flowcon.DEFAULT_ALPHA, without the NumPy it imports
    metric: Annotated[
        str, named(r"[A-Za-z_][A-Za-z0-9_]{0,63}", "the name of a metric")
    ] = "loss"
    better: MetricDirection = MetricDirection.LOWER
    means: ControllerName = ControllerName.AUTO
    cpus: Cpus | None = None
    exchange: AbsolutePath | None = None
    moves: MoveRule = MoveRule.BALANCE


FILE = FileKind(
    prefix="pack file ",
    most_bytes=2**20,
    consequence="Nothing was started.",
    advice="Name a TOML file as `freetrain docs packs` describes it.",
)


def read_pack(path: Path, *, home: Path | None = None) -> Pack:
    """Return the pack that the file at *path*, which is absolute, describes.

    Raises:
        MissingInputError: The file is not there or cannot be read.
        BadConfigurationError: It does not describe a pack; the message names the
            key, what was found and what is expected.
    """
    content = read_limited(path, named=str(path), file=FILE)
    places = BaseFolders(path.parent, home)
    document = parse_document(content, path=str(path), file=FILE, places=places)
    pack = document.read(Pack)
    if not pack.members and pack.inbox is None and pack.exchange is None:
        document.refuse("expected members, inbox or exchange")
    return pack


class Inbox:
    """The members of a pack: job files that it names, and new ones in its inbox."""

    def __init__(
        self, pack: Pack, *, home: Path | None, say: Callable[[str], None]
    ) -> None:
        """Read the job files that the pack names.

        Args:
            pack: The pack.
            home: The folder that ``~`` stands for.
            say: Gets a line about each file of the inbox that cannot be used.

        Raises:
            FreeTrainError: A file is no job file, or its trainer does not fit a pack.
        """
        self._home = home
        self._say = say
        self._inbox = pack.inbox
        self._paths: dict[str, Path] = {}  # of members, by name
        self._owners: dict[Path, str] = {}  # members' names, by folder
        self._versions: dict[Path, tuple[int, int]] = {}
        self._first = tuple(self._read(path) for path in pack.members)

    def arrivals(self) -> tuple[TrainerJob, ...]:
        """Return the members that the pack names, once, and new ones in the inbox."""
        first, self._first = self._first, ()
        return (*first, *self._new())

    def path_of(self, name: str) -> Path:
        """Return the job file of a member."""
        return self._paths[name]

    def handed(self, path: Path, *, name: str) -> TrainerJob:
        """Return the member *name*, which another pack has or had, by its job file.

        Raises:
            FreeTrainError: It is no job file of that trainer, or does not fit here.
        """
        if self._paths.get(name) == path:
            job = read_job(path, home=self._home, must_be_own=True)
        else:
            job = self._read(path, from_inbox=True)
        if job.name != name:
            raise BadConfigurationError(
                f"{path} is of {job.name!r} now, and not of {name!r} any more. The "
                f"member was not taken; let its name be as it was."
            )
        return job

    def _new(self) -> Iterator[TrainerJob]:
        for path in self._listed():
            try:
                status = path.lstat()
                version = (status.st_mtime_ns, status.st_size)
                if self._versions.get(path) == version:
                    continue
                self._versions[path] = version
                if path not in self._paths.values():
                    yield self._read(path, from_inbox=True)
            except (FreeTrainError, OSError) as error:
                # A file that is still being written is read again when it changes.
                self._say(str(error))

    def _listed(self) -> list[Path]:
        if self._inbox is None:
            return []
        try:
            return sorted(p for p in self._inbox.iterdir() if p.suffix == ".toml")
        except OSError:
            return []

    def _read(self, path: Path, *, from_inbox: bool = False) -> TrainerJob:
        job = read_job(path, home=self._home, must_be_own=from_inbox)
        why = _why_unfit(job)
        if not why and job.name in self._paths:
            why = f"{self._paths[job.name]} has a trainer {job.name!r} already"
        why = why or self._shared_folder(job)
        if why:
            raise BadConfigurationError(
                f"{path}: {why}. It was not started; give the pack another job file."
            )
        self._paths[job.name] = path
        self._owners |= dict.fromkeys(_own_folders(job), job.name)
        return job

    def _shared_folder(self, job: TrainerJob) -> str:
        """Return which folder *job* would share with another member; empty for none."""
        for folder in _own_folders(job):
            if folder in self._owners:
                return f"the trainer {self._owners[folder]!r} has {folder} already"
        return ""


def _own_folders(job: TrainerJob) -> tuple[Path, ...]:
    named = (job.checkpoint.path, job.logs)
    return tuple(path.resolve() for path in named if path is not None)


def _why_unfit(job: TrainerJob) -> str:
    if job.launch.pack is not None:
        return "this is a pack, and packs are no members of packs"
    if job.nodes.min_nodes > 1:
        return f"the trainer needs {job.nodes.min_nodes} nodes, and a pack has one"
    if job.launch.processes_per_node > 1:
        return "members of a pack are one process each, and processes_per_node is more"
    return ""


class PackLauncher(Launcher):
    """The launcher ``pack``: several small trainers share the node of one lease.

    It runs ``python -m freetrain.pack``, which starts the members of a pack file.
    """

    keys = frozenset({"pack"})
    needs_command = False

    def problems(self, job: TrainerJob) -> Iterator[tuple[str, str]]:
        """Yield what a pack cannot have; most of it its members' job files can say."""
        yield from super().problems(job)
        launch = job.launch
        if launch.pack is None:
            yield "launch", 'launcher = "pack" needs pack, such as "pack.toml"'
        if launch.options or launch.executable or launch.processes_per_node > 1:
            yield "launch", "a pack takes no options, executable or processes_per_node"
        if job.command:
            yield "", "members of a pack have commands, the pack itself has none"
        if not job.elastic:
            yield "", "elastic = false, and a pack stops and goes on by itself"
        if launch.spare:
            yield (
                "launch",
                "spare = true, and a pack has no ranks that could begin in one",
            )
        if job.nodes.sizes != (1,):
            yield "nodes", "a pack is on one node, expected max = 1"
        tables = {"quality": job.quality, "target": job.target}
        for table, said in tables.items():
            if said is not None:
                yield (
                    table,
                    "a pack tells no metrics; its members' job files can say this",
                )

    def program(self, launch: LaunchSettings) -> str:
        """Return nothing: FreeTrain's own Python runs the pack."""
        del launch
        return ""

    def plan(self, request: WorldRequest, tool: Tool) -> WorldPlan:
        """Return the command that runs the pack.

        Its Python is the agent's, whatever the submitter's variables (``-E``) and the
        job's directory (``-P``) hold for the members.
        """
        del tool
        pack = str(request.job.launch.pack)
        return assemble_plan(
            request,
            (request.head.python, "-E", "-P", "-m", "freetrain.pack", pack),
            files=agent_files(request),
            # Python takes a moment until it handles signals, and dies of them until
            # then, so the control file alone asks it to stop.
            stop_signal=None,
        )


# The record of a pack and its members, from one generation to the next.

_FILE = "pack.json"


class MemberEnd(StrEnum):
    """How a member ended."""

    FINISHED = "finished"
    GAVE_UP = "gave up"  # not to be started again
    STOPPED = "stopped"  # asked to; goes on in the pack's next generation
    FAILED = "failed"
    MOVED = "with another pack"
    NOT_STARTED = "not started"  # it saw no checkpoint; started again, and no failure


@dataclass(slots=True, kw_only=True)
class MemberRecord:
    """The record of a member, from one generation of its pack to the next.

    Times are seconds of the pack's running time.

    Attributes:
        arrived_s: When it was first started.
        ended_s: When it ended last; None while it runs.
        end: How it ended; empty while it runs. A member that failed, or did not start,
            is started again.
        steps: Reported steps.
        samples: Reported samples.
        others_steps: Steps of these that other packs did.
        others_samples: Samples of these that other packs did.
        generation: The number of its newest fragment.
        started_s: When that fragment was started.
        failures: Failures in a row, without a commit in between.
        committed_step: Steps that were committed at its last failure.
        again_s: When it is started again by this generation; None where it is not, or
            not before the pack's next generation.
        message: Why it failed last, or did not start; empty while it runs. Hostile
            text.
    """

    arrived_s: float
    ended_s: float | None = None
    end: str = ""
    steps: int = 0
    samples: float = 0.0
    others_steps: int = 0
    others_samples: float = 0.0
    generation: int = 0
    started_s: float = 0.0
    failures: int = 0
    committed_step: int = 0
    again_s: float | None = None
    message: str = ""

    @property
    def is_over(self) -> bool:
        """Whether this pack is not to start it again."""
        return self.end in {MemberEnd.FINISHED, MemberEnd.GAVE_UP, MemberEnd.MOVED}


@dataclass(slots=True, kw_only=True)
class PackRecord:
    """The record of a pack, from one generation to the next.

    Attributes:
        ran_s: How long it has run so far.
        used_s: CPU time of the members that ended in this generation.
        means: The controller that set the shares last.
        shares: The members' shares of the CPUs.
        sharing: The saved state of the sharing.
        members: The record of each member that ever was.
    """

    ran_s: float = 0.0
    used_s: float = 0.0
    means: str = ""
    shares: dict[str, float] = field(default_factory=dict)
    sharing: dict[str, object] = field(default_factory=dict)
    members: dict[str, MemberRecord] = field(default_factory=dict)

    @property
    def done(self) -> tuple[int, float]:
        """Steps and samples that members did in this pack."""
        lines = self.members.values()  # one that was just started has reported none
        return (
            sum(max(0, line.steps - line.others_steps) for line in lines),
            sum(max(0.0, line.samples - line.others_samples) for line in lines),
        )


def member_folder(run: RunDir, name: str) -> Path:
    """Return the folder of the member *name* of a pack.

    Packs that exchange members have the members' folders in the exchange.
    """
    return run.path / "members" / name


def member_folders(run: RunDir) -> tuple[Path, ...]:
    """Return the folders of all members that a pack ever had.

    Raises:
        OSError: They cannot be listed.
    """
    folder = member_folder(run, "")
    entries = sorted(folder.iterdir()) if folder.is_dir() else []
    return tuple(entry for entry in entries if entry.is_dir())


def read_record(run: RunDir) -> PackRecord:
    """Return the record in *run*; an empty one where none can be read."""
    with suppress(OSError, ValueError):
        return msgspec.convert(read_json(run.path / _FILE), PackRecord)
    return PackRecord()


def write_record(run: RunDir, record: PackRecord) -> None:
    """Write *record* to *run*.

    Raises:
        OSError: It could not be written; the older one is untouched.
    """
    text = json.dumps(asdict(record), indent=1, allow_nan=False) + "\n"
    path = run.path / _FILE
    with replaced(path, temporary=run.path / f".{_FILE}.{os.getpid()}") as file:
        file.write(text.encode())


def append_progress(
    path: Path, *, t: float, step: int, samples: float, generation: int
) -> None:
    """Append a progress line, as elastic programs do, for all members together.

    Raises:
        OSError: It could not be written.
    """
    line = {
        "t": round(t, 6),
        "step": step,
        "samples": samples,
        "generation": generation,
        "world_size": 1,
    }
    opened = open_plain(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    with os.fdopen(opened, "ab", buffering=0) as file:
        file.write((json.dumps(line, allow_nan=False) + "\n").encode())


def count_failure(
    member: MemberRecord, job: TrainerJob, *, committed_step: int, now_s: float
) -> None:
    """Count a failure of a member, and set when it is started again.

    Its ``[restart]`` holds as for a trainer with nodes of its own: failures in a row
    count, without a commit between them, and pauses double. A member whose attempts
    are used up is started once more in each later generation of the pack, which may be
    on another node.

    Args:
        member: The member's record; changed.
        job: Its job file.
        committed_step: Steps in its newest checkpoint, as far as is known.
        now_s: The time of the failure, in seconds of the pack's running time.
    """
    has_committed = committed_step > member.committed_step
    if has_committed or job.must_have_committed(now_s - member.started_s):
        member.failures = 0
    member.failures += 1
    member.committed_step = max(member.committed_step, committed_step)
    is_left = not job.restart.is_used_up(member.failures)
    member.again_s = now_s + job.restart.pause_s(member.failures) if is_left else None


def how_it_failed(member: MemberRecord) -> str:
    """Return how often a member failed, or why it did not start or go on."""
    if member.end == MemberEnd.NOT_STARTED:
        return f"{member.end}: {member.message}"
    if member.end == MemberEnd.STOPPED:
        return "was stopped and not started again, as its job file was not read"
    times = "once" if member.failures == 1 else f"{member.failures} times"
    # A member that is killed because it did not stop in time has 0 failures.
    text = f"failed {times}" if member.failures else "failed"
    return f"{text}: {member.message}" if member.message else text
