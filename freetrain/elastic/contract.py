"""The contract between a launcher and a training program.

The launcher sets variables (``read_launch``). Later it asks for a stop, by a signal or
by a file in the run directory (``StopSignals``, ``StopFile``). At its end the program
writes an outcome file, once (``write_outcome``). The page
docs/reference/run-directory.md has the whole contract; a program must work with any of
the variables missing. Agents and launchers import this module, so it needs no NumPy.

The errors of the package, by what to do next:

ElasticError
├── LaunchError            the launch is wrong: nothing was trained, launch anew
│   ├── WorldMismatchError     the world is not the one that the launcher announced
│   ├── GenerationTakenError   another world runs, or has followed, this one
│   └── CheckpointMissingError a checkpoint that was committed cannot be seen
├── ProgramError           the training program is wrong: correct it
│   ├── StateError             a value that a checkpoint cannot hold
│   └── ChangedTrainingError   seed, samples or batch differ from the checkpoint's
├── CheckpointError        this file cannot be used; an older one may be
└── NotCommittedError      training ended, its last steps could not be kept
"""

from __future__ import annotations

import json
import math
import re
import signal
from contextlib import suppress
from dataclasses import asdict, dataclass
from enum import IntEnum, StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from freetrain.elastic.files import create_once
from freetrain.opening import parse_json, read_plain

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import FrameType

    from freetrain.elastic.files import Clock, RunDir


class ElasticError(Exception):
    """Something the person or program that launched the run can act on."""


class LaunchError(ElasticError):
    """The launch is wrong; nothing was trained."""


class WorldMismatchError(LaunchError):
    """The world is not the one that the launcher announced."""


class GenerationTakenError(LaunchError):
    """This generation was started before, or a later one exists."""


class CheckpointMissingError(LaunchError):
    """An earlier generation committed more than the folder of checkpoints shows.

    The file system is to blame and not the program: the launch is tried again.
    """


class ProgramError(ElasticError):
    """The training program asks for something impossible."""


class StateError(ProgramError):
    """A value in the state cannot be kept in a checkpoint."""


class ChangedTrainingError(ProgramError):
    """The program's seed, samples or global batch are not the checkpoint's."""


class CheckpointError(ElasticError):
    """A checkpoint file is torn, corrupt, or of an unknown version."""


class NotCommittedError(ElasticError):
    """The training is over, but its last steps could not be kept."""


# The variables that a launcher sets.

RUN_DIR = "FREETRAIN_RUN_DIR"
GENERATION = "FREETRAIN_GENERATION"
AFTER = "FREETRAIN_AFTER"
WORLD_SIZE = "FREETRAIN_WORLD_SIZE"
STOP_SIGNALS = "FREETRAIN_STOP_SIGNALS"
COMMIT_EVERY_S = "FREETRAIN_COMMIT_EVERY_S"
PROGRESS_EVERY_S = "FREETRAIN_PROGRESS_EVERY_S"
SPARE = "FREETRAIN_SPARE"
"""Set for a spare, and not for the ranks that it becomes."""
WITH_MPI = "mpi"
"""A word of it where the ranks will start MPI, so that the spare may load it."""
UNASKED = "unasked"
"""A word of it where no job file asks for spares, and the program may not be fit."""

# NCCL and several schedulers use USR1 themselves (submitit issue 1701); KILL and
# STOP cannot be caught.
_REFUSED_SIGNALS = frozenset({signal.SIGUSR1, signal.SIGKILL, signal.SIGSTOP})
_DEFAULT_SIGNALS = (signal.SIGTERM, signal.SIGUSR2)
_LARGEST_GENERATION = 10**10 - 1


@dataclass(frozen=True, slots=True)
class Launch:
    """One launch of a program, as its launcher announced it.

    Attributes:
        run_dir: The folder of the run; None where the launcher names none.
        generation: The fragment's number, from 1 on; None where the program takes
            the next free one.
        after: The earlier generation to wait for; None where there is none.
        world_size: How many ranks the launcher started; None where it is unknown.
        stop_signals: The signals that ask for a stop.
        commit_every_s: Time between two commits; None leaves it to the program.
        progress_every_s: Least time between two progress lines; None likewise.
    """

    run_dir: Path | None = None
    generation: int | None = None
    after: int | None = None
    world_size: int | None = None
    stop_signals: tuple[signal.Signals, ...] = _DEFAULT_SIGNALS
    commit_every_s: float | None = None
    progress_every_s: float | None = None


def read_launch(environment: Mapping[str, str]) -> Launch:
    """Read the launcher's variables.

    Raises:
        LaunchError: A variable breaks the rules of docs/reference/run-directory.md.
    """
    folder = environment.get(RUN_DIR)
    generation, after = _count(environment, GENERATION), _count(environment, AFTER)
    if after is not None and after >= (generation or 0):
        raise _wrong(AFTER, str(after), f"a generation below {GENERATION}")
    return Launch(
        run_dir=Path(folder) if folder else None,
        generation=generation,
        after=after,
        world_size=_count(environment, WORLD_SIZE),
        stop_signals=_signals(environment),
        commit_every_s=_seconds(environment, COMMIT_EVERY_S),
        progress_every_s=_seconds(environment, PROGRESS_EVERY_S),
    )


def _count(environment: Mapping[str, str], name: str) -> int | None:
    text = environment.get(name)
    if not text:
        return None
    if re.fullmatch(r"[0-9]{1,10}", text) and 1 <= int(text) <= _LARGEST_GENERATION:
        return int(text)
    raise _wrong(name, text, "a whole number from 1 on")


def _seconds(environment: Mapping[str, str], name: str) -> float | None:
    text = environment.get(name)
    if not text:
        return None
    if re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9})?", text):
        return float(text)
    raise _wrong(name, text, "seconds, 0 or more, such as 60 or 0.5")


def _signals(environment: Mapping[str, str]) -> tuple[signal.Signals, ...]:
    text = environment.get(STOP_SIGNALS)
    if not text:
        return _DEFAULT_SIGNALS
    return tuple(_signal(name) for name in text.split(","))


def _signal(text: str) -> signal.Signals:
    name = text.strip().upper().removeprefix("SIG")
    try:
        found = signal.Signals[f"SIG{name}"]
    except KeyError:
        raise _wrong(STOP_SIGNALS, text, "names such as TERM,USR2") from None
    if found in _REFUSED_SIGNALS:
        raise _wrong(STOP_SIGNALS, text, "no USR1 (NCCL uses it), KILL or STOP")
    return found


def _wrong(name: str, text: str, expected: str) -> LaunchError:
    return LaunchError(
        f"the variable {name} is {text[:80]!r}, and should be {expected}. Nothing "
        f"was trained. Correct it in the launcher, or unset it to train alone."
    )


# Requests to stop.

STOP_FILE_EVERY_S = 0.1
"""How often a program looks for its stop file: the longest wait of a request."""


class Stop(IntEnum):
    """Why a fragment ends before the training does; ranks agree on the largest."""

    NO = 0
    RESCALE = 1
    FOR_GOOD = 2
    SUPERSEDED = 3


class StopSignals:
    """Notes that a stop signal came; puts the old handlers back when closed.

    The handler only sets a flag: a checkpoint made inside a handler would meet the
    training in the middle of any statement (Lightning issue 21406).
    """

    def __init__(self, signals: Sequence[signal.Signals]) -> None:
        self.came = False
        self._old = {number: signal.signal(number, self._note) for number in signals}

    def _note(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        self.came = True

    def ignore(self) -> None:
        """Ignore these signals from now on.

        Python's shutdown would remove a handler before the process is gone.
        """
        for number in self._old:
            signal.signal(number, signal.SIG_IGN)

    def close(self) -> None:
        """Put the old handlers back."""
        for number, handler in self._old.items():
            signal.signal(number, handler)
        self._old = {}


class StopFile:
    """Looks for the stop file, at most once every *every_s*.

    It lists the folder instead of asking for the file: NFS remembers for up to a
    minute that a file was not there, and looks again when a folder is opened.
    """

    def __init__(
        self, path: Path, *, clock: Clock, every_s: float = STOP_FILE_EVERY_S
    ) -> None:
        self._path = path
        self._every_s = every_s
        self._clock = clock
        self._due_s = -math.inf

    def is_there(self) -> bool:
        """Tell whether the file was found; False between two looks."""
        now_s = self._clock.elapsed_s()
        if now_s < self._due_s:
            return False
        self._due_s = now_s + self._every_s
        try:
            return any(p.name == self._path.name for p in self._path.parent.iterdir())
        except OSError:
            return False


# How a fragment ended.


class OutcomeKind(StrEnum):
    """How a fragment ended, as the program says: what the launcher does next."""

    RESCALED = "rescaled"  # asked to stop: launch the next generation
    FINISHED = "finished"  # the training is over
    DO_NOT_RESTART = "do not restart"  # the program gave up: do not launch again
    SUPERSEDED = "superseded"  # a later generation exists: nothing to do
    FAILED = "failed"  # an error; the exit code is not 0
    NOT_STARTED = "not started"  # its checkpoint could not be seen: launch again


@dataclass(frozen=True, slots=True)
class Outcome:
    """The end of one fragment as its program recorded it.

    The end as the agent of its head sees it, after that agent has read the outcome, is
    :class:`~freetrain.state.files.GenerationEnding`.

    Attributes:
        generation: The fragment's number.
        step: Steps done since the training began.
        committed_step: Steps in the newest checkpoint that this fragment committed or
            restored; the next generation goes on from there.
        message: The reason, for people; may be empty.
        t: The time of the end, in Unix seconds.
    """

    kind: OutcomeKind
    generation: int
    step: int
    committed_step: int
    message: str
    t: float


def write_outcome(run_dir: RunDir, outcome: Outcome) -> bool:
    """Write *outcome* unless this generation has one.

    Returns:
        Whether this call wrote it: of several failing ranks, the first does.

    Raises:
        OSError: It could not be written.
    """
    fields = asdict(outcome)
    fields["outcome"] = str(fields.pop("kind"))
    run_dir.outcomes.mkdir(parents=True, exist_ok=True, mode=0o700)
    text = json.dumps(fields, indent=1) + "\n"
    return create_once(run_dir.outcome(outcome.generation), text.encode("ascii"))


MOST_OUTCOME_BYTES = 1 << 20


def read_outcome(run_dir: RunDir, generation: int) -> Outcome | None:
    """Return the outcome of *generation*; missing fields are 0 or empty.

    Returns:
        None where there is no outcome, or an unreadable one.

    Raises:
        OSError: It cannot be read now.
    """
    with suppress(FileNotFoundError, ValueError):
        content = read_plain(run_dir.outcome(generation), MOST_OUTCOME_BYTES)
        return parse_outcome(content, generation)
    return None


def parse_outcome(content: bytes, generation: int) -> Outcome | None:
    """Return the outcome that the file of *generation* holds; None for no outcome."""
    with suppress(ValueError):
        found = parse_json(content)
        if isinstance(found, dict):
            return Outcome(
                kind=OutcomeKind(found.get("outcome", "")),
                generation=generation,
                step=_whole(found.get("step")),
                committed_step=_whole(found.get("committed_step")),
                message=str(found.get("message", "")),
                t=found.get("t", 0.0),
            )
    return None


def _whole(value: object) -> int:
    return value if isinstance(value, int) else 0
