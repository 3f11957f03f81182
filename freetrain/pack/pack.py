"""A pack: its file, the job files of its members, and the launcher that runs it.

docs/reference/packs.md says what is in a pack file.
"""

from collections.abc import Callable, Iterator
from enum import StrEnum
from pathlib import Path
from typing import Annotated

from msgspec import Struct

from freetrain.config.document import (
    PATH,
    AbsolutePath,
    Cpus,
    FileKind,
    Form,
    MismatchError,
    Places,
    Positive,
    key_name,
    named,
    parse_document,
    read_limited,
    seconds,
)
from freetrain.config.job import LaunchSettings, TrainerJob, read_job
from freetrain.errors import BadConfigurationError, FreeTrainError
from freetrain.launch.base import (
    Launcher,
    Tool,
    WorldPlan,
    WorldRequest,
    agent_files,
    assemble_plan,
)
from freetrain.losscurve.forecast import Better
from freetrain.pack.cpu_controllers import ControllerName


class SharingName(StrEnum):
    """How the CPUs are shared."""

    FLOWCON = "flowcon"  # by growth efficiency
    FAIR = "fair"  # all the same


MOST_MEMBERS = 100
LONGEST_S = 86_400.0


def _read_members(value: object, places: Places) -> tuple[Path, ...]:
    if not isinstance(value, list) or len(value) > MOST_MEMBERS:
        raise MismatchError
    return tuple(PATH.read(item, places) for item in value)


MEMBERS = Form(
    f"a list of up to {MOST_MEMBERS} job files, such as "
    '["digits/job.toml", "wine/job.toml"]',
    _read_members,
    lambda paths: [str(path) for path in paths],
)


class Pack(Struct, frozen=True, kw_only=True, rename=key_name):
    """A pack as its user wrote it: the keys of its file. All paths are absolute.

    Attributes:
        members: Job files of the members that are there from the beginning.
        inbox: A folder in which further job files may appear; None for none.
        stay_s: How long to wait for more when nothing is left to do.
        interval_s: FlowCon's interval.
        alpha: FlowCon's threshold.
        metric: The metric that shows how a trainer grows.
        better: Which of its values are good.
        means: What sets the shares.
        cpus: How many of the node's CPUs all members together may use; None for
            all that the pack may use itself.
    """

    members: Annotated[tuple[Path, ...], MEMBERS] = ()
    inbox: AbsolutePath | None = None
    stay_s: Annotated[float, seconds(0.0, LONGEST_S)] = 0.0
    sharing: SharingName = SharingName.FLOWCON
    interval_s: Annotated[float, seconds(0.1, LONGEST_S)] = 30.0
    alpha: Positive = 0.03  # flowcon.DEFAULT_ALPHA, without the NumPy it imports
    metric: Annotated[
        str, named(r"[A-Za-z_][A-Za-z0-9_]{0,63}", "the name of a metric")
    ] = "loss"
    better: Better = Better.LOWER
    means: ControllerName = ControllerName.AUTO
    cpus: Cpus | None = None


FILE = FileKind(
    what="pack file ",
    most_bytes=2**20,
    consequence="Nothing was started.",
    advice="Name a TOML file as docs/reference/packs.md describes it.",
)


def read_pack(path: Path, *, home: Path | None = None) -> Pack:
    """Return the pack that the file at *path*, which is absolute, describes.

    Raises:
        MissingInputError: The file is not there or cannot be read.
        BadConfigurationError: It does not describe a pack; the message names the
            key, what was found and what is expected.
    """
    content = read_limited(path, named=str(path), file=FILE)
    places = Places(path.parent, home)
    document = parse_document(content, path=str(path), file=FILE, places=places)
    pack = document.read(Pack)
    if not pack.members and pack.inbox is None:
        document.refuse("expected members, inbox, or both")
    return pack


class Inbox:
    """The members of a pack: job files that it names, and what appears in its inbox."""

    def __init__(
        self, pack: Pack, *, home: Path | None, say: Callable[[str], None]
    ) -> None:
        """Read the job files that the pack names.

        Args:
            pack: The pack.
            home: What ``~`` stands for.
            say: Gets a line about each file of the inbox that cannot be used.

        Raises:
            FreeTrainError: One of them is no job file, or no trainer for a pack.
        """
        self._home = home
        self._say = say
        self._inbox = pack.inbox
        self._paths: dict[str, Path] = {}  # of members, by name
        self._owners: dict[Path, str] = {}  # members' names, by folder
        self._versions: dict[Path, tuple[int, int]] = {}
        self._first = tuple(self._read(path) for path in pack.members)

    def arrivals(self) -> tuple[TrainerJob, ...]:
        """Return those that the pack names, once, and what is new in the inbox."""
        first, self._first = self._first, ()
        return (*first, *self._new())

    def _new(self) -> Iterator[TrainerJob]:
        for path in self._listed():
            try:
                status = path.stat()
                version = (status.st_mtime_ns, status.st_size)
                if self._versions.get(path) == version:
                    continue
                self._versions[path] = version
                if path not in self._paths.values():
                    yield self._read(path)
            except (FreeTrainError, OSError) as error:
                # A file that is still being written is looked at again.
                self._say(str(error))

    def _listed(self) -> list[Path]:
        if self._inbox is None:
            return []
        try:
            return sorted(p for p in self._inbox.iterdir() if p.suffix == ".toml")
        except OSError:
            return []

    def _read(self, path: Path) -> TrainerJob:
        job = read_job(path, home=self._home)
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
