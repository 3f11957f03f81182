"""What a pack is, as its user wrote it."""

import json
import os
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Annotated

from msgspec import Struct

from freetrain.config.document import (
    FileKind,
    Form,
    MismatchError,
    Places,
    key_name,
    parse_document,
    read_limited,
)
from freetrain.config.job import TrainerJob
from freetrain.config.values import PATH, AbsolutePath, Cpus, Positive, named, seconds
from freetrain.elastic.files import RunDir, replaced
from freetrain.losscurve.forecast import Better
from freetrain.pack.shares import MeansName

# ----------------------------------------------------------------------
# What a pack is, as its user wrote it.


class SharingName(StrEnum):
    """Who gets how much of the CPUs."""

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
        members: Job files of the trainers that are there from the beginning.
        inbox: A folder in which further job files may appear; None for none.
        stay_s: How long to wait for more when nothing is left to do.
        sharing: How the CPUs are shared.
        interval_s: FlowCon's interval.
        alpha: FlowCon's threshold.
        metric: The metric that shows how a trainer grows.
        better: Which of its values are good.
        means: By what shares are set.
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
    means: MeansName = MeansName.AUTO
    cpus: Cpus | None = None


# ----------------------------------------------------------------------
# Reading pack files; docs/quality-flowcon.md says what is in them.

FILE = FileKind(
    what="pack file ",
    most_bytes=2**20,
    consequence="Nothing was started.",
    advice="Name a TOML file as docs/quality-flowcon.md describes it.",
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


# ----------------------------------------------------------------------
# What a pack keeps in its run directory: how its members stand, and how it goes.

_FILE = "pack.json"


class End(StrEnum):
    """How a member ended."""

    FINISHED = "finished"
    GAVE_UP = "gave up"  # not to be started again
    STOPPED = "stopped"  # asked to; goes on in the pack's next generation
    FAILED = "failed"


@dataclass(slots=True, kw_only=True)
class Line:
    """What is kept of a member.

    Attributes:
        arrived_s: When it was first started, seconds of the pack's running time.
        ended_s: When it ended last; None while it runs.
        end: How; empty while it runs. Who failed is started again.
        steps: Steps done, as far as it told.
        samples: Samples done, likewise.
        generation: The number of its newest fragment.
        started_s: When that was started.
        failures: How often it failed in a row, without a commit in between.
        committed_step: Steps that were committed when it failed last.
        again_s: When it is started again after a failure; None where it is not, or
            not before the pack's next generation.
        message: Why it failed last; empty while it runs. Hostile text.
    """

    arrived_s: float
    ended_s: float | None = None
    end: str = ""
    steps: int = 0
    samples: float = 0.0
    generation: int = 0
    started_s: float = 0.0
    failures: int = 0
    committed_step: int = 0
    again_s: float | None = None
    message: str = ""

    @property
    def is_over(self) -> bool:
        """Whether it is never started again."""
        return self.end in {End.FINISHED, End.GAVE_UP}


@dataclass(slots=True, kw_only=True)
class Record:
    """What is kept of a pack, from one generation to the next.

    Attributes:
        ran_s: How long it has run so far.
        used_s: CPU time of the members that ended in this generation.
        means: By what shares were set last.
        shares: The parts of the CPUs, by member.
        sharing: What the sharing remembers.
        members: A line for each member that ever was.
    """

    ran_s: float = 0.0
    used_s: float = 0.0
    means: str = ""
    shares: dict[str, float] = field(default_factory=dict)
    sharing: dict[str, object] = field(default_factory=dict)
    members: dict[str, Line] = field(default_factory=dict)


def member_folder(run: RunDir, name: str) -> Path:
    """Return where things of the member *name* of a pack are."""
    return run.path / "members" / name


def member_folders(run: RunDir) -> tuple[Path, ...]:
    """Return the folders of all members that a pack ever had.

    Raises:
        OSError: They cannot be listed.
    """
    folder = member_folder(run, "")
    every = sorted(folder.iterdir()) if folder.is_dir() else []
    return tuple(one for one in every if one.is_dir())


def read_record(run: RunDir) -> Record:
    """Return what was kept in *run*; an empty one where nothing readable is there."""
    with suppress(OSError, ValueError, TypeError, AttributeError):
        told = json.loads((run.path / _FILE).read_bytes())
        members = {n: Line(**line) for n, line in told.pop("members").items()}
        return Record(**told, members=members)
    return Record()


def write_record(run: RunDir, record: Record) -> None:
    """Keep *record* in *run*.

    Raises:
        OSError: It could not be written; the older one is untouched.
    """
    text = json.dumps(asdict(record), indent=1, allow_nan=False) + "\n"
    path = run.path / _FILE
    with replaced(path, temporary=run.path / f".{_FILE}.{os.getpid()}") as file:
        file.write(text.encode())


def tell_progress(
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
    with path.open("ab", buffering=0) as file:
        file.write((json.dumps(line, allow_nan=False) + "\n").encode())


# ----------------------------------------------------------------------
# How often a member that fails is started again, and after which pause; pure.


def count_failure(
    line: Line, job: TrainerJob, *, committed_step: int, now_s: float
) -> None:
    """Count a failure of the member of *line*, and say when it is started again.

    Its ``[restart]`` holds as it does for a trainer that has nodes of its own
    (``agent.verdict``): failures in a row count, without a commit between them, and
    pauses double. Who has used up its attempts is started once more in each later
    generation of the pack, which may be on another node.

    Args:
        line: What is kept of the member; changed.
        job: What it is.
        committed_step: Steps that its newest checkpoint has, as far as it tells.
        now_s: When it failed, seconds of the pack's running time.
    """
    has_committed = committed_step > line.committed_step
    if has_committed or job.must_have_committed(now_s - line.started_s):
        line.failures = 0
    line.failures += 1
    line.committed_step = max(line.committed_step, committed_step)
    is_left = not job.restart.is_used_up(line.failures)
    line.again_s = now_s + job.restart.pause_s(line.failures) if is_left else None


def how_it_failed(line: Line) -> str:
    """Return how often a member failed, and why the last time."""
    times = "once" if line.failures == 1 else f"{line.failures} times"
    # Whoever does not stop in time is killed, which is counted for nothing.
    said = f"failed {times}" if line.failures else "failed"
    return f"{said}: {line.message}" if line.message else said
