"""What a pack keeps of its members in its run directory, and of their failures."""

import json
import os
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path

from freetrain.config.job import TrainerJob
from freetrain.elastic.files import RunDir, replaced

_FILE = "pack.json"


class MemberEnd(StrEnum):
    """How a member ended."""

    FINISHED = "finished"
    GAVE_UP = "gave up"  # not to be started again
    STOPPED = "stopped"  # asked to; goes on in the pack's next generation
    FAILED = "failed"


@dataclass(slots=True, kw_only=True)
class MemberRecord:
    """What is kept of a member from one generation of its pack to the next.

    Attributes:
        arrived_s: When it was first started, seconds of the pack's running time.
        ended_s: When it ended last; None while it runs.
        end: How; empty while it runs. A member that failed is started again.
        steps: Steps done, as far as it reported.
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
        return self.end in {MemberEnd.FINISHED, MemberEnd.GAVE_UP}


@dataclass(slots=True, kw_only=True)
class PackRecord:
    """What is kept of a pack from one generation to the next.

    Attributes:
        ran_s: How long it has run so far.
        used_s: CPU time of the members that ended in this generation.
        means: What set the shares last.
        shares: The parts of the CPUs, by member.
        sharing: The state of the sharing, as it gave it.
        members: A line for each member that ever was.
    """

    ran_s: float = 0.0
    used_s: float = 0.0
    means: str = ""
    shares: dict[str, float] = field(default_factory=dict)
    sharing: dict[str, object] = field(default_factory=dict)
    members: dict[str, MemberRecord] = field(default_factory=dict)


def member_folder(run: RunDir, name: str) -> Path:
    """Return where things of the member *name* of a pack are."""
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
    """Return what was kept in *run*; an empty one where nothing readable is there."""
    with suppress(OSError, ValueError, TypeError, AttributeError):
        kept = json.loads((run.path / _FILE).read_bytes())
        lines = kept.pop("members").items()
        members = {name: MemberRecord(**line) for name, line in lines}
        return PackRecord(**kept, members=members)
    return PackRecord()


def write_record(run: RunDir, record: PackRecord) -> None:
    """Keep *record* in *run*.

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
    with path.open("ab", buffering=0) as file:
        file.write((json.dumps(line, allow_nan=False) + "\n").encode())


# How often a member that fails is started again, and after which pause.


def count_failure(
    member: MemberRecord, job: TrainerJob, *, committed_step: int, now_s: float
) -> None:
    """Count a failure of the member of *member*, and say when it is started again.

    Its ``[restart]`` holds as it does for a trainer that has nodes of its own
    (``agent.verdict``): failures in a row count, without a commit between them, and
    pauses double. A member whose attempts are used up is started once more in
    each later generation of the pack, which may be on another node.

    Args:
        member: What is kept of the member; changed.
        job: What it is.
        committed_step: Steps that its newest checkpoint has, as far as is known.
        now_s: When it failed, seconds of the pack's running time.
    """
    has_committed = committed_step > member.committed_step
    if has_committed or job.must_have_committed(now_s - member.started_s):
        member.failures = 0
    member.failures += 1
    member.committed_step = max(member.committed_step, committed_step)
    is_left = not job.restart.is_used_up(member.failures)
    member.again_s = now_s + job.restart.pause_s(member.failures) if is_left else None


def how_it_failed(member: MemberRecord) -> str:
    """Return how often a member failed, and why the last time."""
    times = "once" if member.failures == 1 else f"{member.failures} times"
    # A member that does not stop in time is killed, which does not count.
    text = f"failed {times}" if member.failures else "failed"
    return f"{text}: {member.message}" if member.message else text
