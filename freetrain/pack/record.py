"""What a pack keeps in its run directory: how its members stand, and how it goes."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from freetrain.elastic.durable import replaced

if TYPE_CHECKING:
    from pathlib import Path

    from freetrain.elastic.run_dir import RunDir

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
