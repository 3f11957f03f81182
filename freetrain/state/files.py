"""The files by which broker, agents and commands talk to each other.

An assignment file says which leases make up one generation of a trainer; it is created
exclusively, so that the first process to create generation g + 1 wins. An ending says
that a generation is over; where the program left an outcome
(``freetrain.elastic.contract``), the ending repeats it. A heartbeat is an agent's file
about itself. ``StateDir``, ``TrainerDir`` and ``LeaseDir`` say where each file is.
"""

from __future__ import annotations

import json
import re
import stat
from contextlib import suppress
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, TypeVar

import msgspec

from freetrain.broker.lease import Assignment, LeaseKey
from freetrain.elastic.files import RunDir, create_once
from freetrain.errors import BadDataError
from freetrain.opening import read_json

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path


class UnreadableFileError(BadDataError):
    """A file of the state directory has not the content that its name promises."""

    def __init__(self, path: Path, why: object) -> None:
        super().__init__(
            f"{path} cannot be read: {why}. Nothing was done about its trainer or "
            f"lease; keep the file for a bug report."
        )


T = TypeVar("T")


def _read(path: Path, kind: type[T]) -> T:
    """Return the record of *kind* in the file at *path*.

    Raises:
        UnreadableFileError: It is no such record.
        OSError: It cannot be read.
    """
    try:
        return msgspec.convert(read_json(path), kind)
    except ValueError as error:
        raise UnreadableFileError(path, error) from error


# ----------------------------------------------------------------------
# Assignments: which leases make up a generation

_NAME = re.compile(r"([0-9]{10})\.json", re.ASCII)
BROKER = "broker"
USER = "user"
"""Author of generations that users make: empty ones, to stop or to restart."""

GO_ON = "its user lets it go on"
"""Reason of the empty generation after which earlier endings no longer count."""

GAVE_UP = "failed too often"
"""Beginning of the reason of the empty generation that ends a failing trainer."""

KILLED_OUTSIDE = "killed from outside"
"""Beginning of the message of an ending that is no failure, though it lost no lease."""

STALLED = "stalled"
"""Beginning of the message of an ending of a world that made no steps any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignedLease:
    """One lease of a generation, with all that is needed to reach its node.

    Attributes:
        job_id: Raw number, for ``srun --jobid``.
        display_id: Its number for scancel.
        node: NodeName.
        end_s: When its time limit ends it, Unix time; None where unknown.
    """

    key: LeaseKey
    job_id: int
    display_id: str
    node: str
    end_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignmentFile:
    """One generation of a trainer.

    Attributes:
        generation: 1 for the first.
        members: Its leases; the first is the head, whose agent launches. Empty for
            a trainer that is to run nowhere.
        created_s: Unix time.
        author: ``broker``, ``user``, or the name of the lease whose agent made it.
        reason: Why it was made, for people.
    """

    trainer: str
    generation: int
    members: tuple[AssignedLease, ...]
    created_s: float
    author: str
    reason: str

    @property
    def head(self) -> AssignedLease | None:
        """The lease whose agent launches; None where nothing runs."""
        return self.members[0] if self.members else None

    @property
    def keys(self) -> frozenset[LeaseKey]:
        """Its leases."""
        return frozenset(member.key for member in self.members)

    @property
    def assignment(self) -> Assignment:
        """The generation as the broker plans with it."""
        return Assignment(
            trainer=self.trainer,
            generation=self.generation,
            leases=self.keys,
            created_s=self.created_s,
        )


def create_assigned(folder: TrainerDir, assigned: AssignmentFile) -> bool:
    """Create the file of *assigned* unless its generation has one.

    Returns:
        Whether this call created it; if not, another process was first.

    Raises:
        OSError: It could not be written.
    """
    text = json.dumps(asdict(assigned), indent=1) + "\n"
    return create_once(folder.assignment(assigned.generation), text.encode())


def generations(folder: Path) -> tuple[int, ...]:
    """Return the generations that files in *folder* name, ascending.

    Listing a folder shows new files at once on NFS, where asking for one may not.

    Raises:
        OSError: The folder cannot be listed; a missing one is empty.
    """
    try:
        names = [entry.name for entry in folder.iterdir()]
    except FileNotFoundError:
        return ()
    return tuple(sorted(int(m[1]) for name in names if (m := _NAME.fullmatch(name))))


def read_assigned(folder: TrainerDir, generation: int) -> AssignmentFile:
    """Return the assignment in the file of *generation*.

    Raises:
        UnreadableFileError: It is no assignment file.
        OSError: It cannot be read.
    """
    return _read(folder.assignment(generation), AssignmentFile)


def newest_assigned(folder: TrainerDir) -> AssignmentFile | None:
    """Return the newest generation; None before the first.

    Raises:
        UnreadableFileError: Its file is no assignment file.
        OSError: It cannot be read.
    """
    found = generations(folder.assignments)
    return read_assigned(folder, found[-1]) if found else None


# ----------------------------------------------------------------------
# Endings: how a generation ended, written once


class EndingKind(StrEnum):
    """How a generation ended, as its head's agent says; the first five are outcomes."""

    RESCALED = "rescaled"  # asked to stop, and it did
    FINISHED = "finished"  # the training is over
    DO_NOT_RESTART = "do not restart"  # the program gave up
    SUPERSEDED = "superseded"  # it found a later generation at work
    FAILED = "failed"  # the program's own error
    KILLED = "killed"  # it left no outcome: crash, kill, or a lost lease
    NOT_LAUNCHED = "not launched"  # a later one came first, or it saw no checkpoint

    @property
    def words(self) -> str:
        """The same for people: a program without an outcome need not be killed."""
        return "ended without a word" if self is EndingKind.KILLED else str(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class TriedSize:
    """How a trainer did on one number of leases so far.

    Attributes:
        failures: How often it failed there before its first step, while it had made
            none there.
        failed_s: When it failed there last, Unix time; 0 where an earlier release wrote
            the file.
        why: The message of the last of them, for people. Hostile text.
    """

    leases: int
    has_trained: bool = False
    failures: int = 0
    failed_s: float = 0.0
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationEnding:
    """The end of a generation: none of its processes trains any more.

    Attributes:
        was_asked: Whether it had been asked to stop.
        lost_lease: Whether it lost a lease, or was killed from outside; then the end is
            no failure of the program.
        exit_code: The launcher's; None where it was not seen.
        step: Steps done, as its outcome says; 0 where it left none.
        committed_step: Steps that are safe, likewise.
        message: Why it ended, for people. Hostile text.
        started_s: When it was launched, Unix time; None where it was not.
        ended_s: Unix time.
        author: Name of the lease whose agent wrote the file.
        leases: How many it had; 0 where an earlier release wrote the file.
        tried: The sizes that the trainer was tried on so far, this one included,
            ascending. Each ending repeats those of the one before it, so that the last
            ones say all.
    """

    generation: int
    ended: EndingKind
    was_asked: bool
    lost_lease: bool
    exit_code: int | None
    step: int
    committed_step: int
    message: str
    started_s: float | None
    ended_s: float
    author: str
    leases: int = 0
    tried: tuple[TriedSize, ...] = ()

    @property
    def was_launched(self) -> bool:
        """Whether the program ran."""
        return self.ended is not EndingKind.NOT_LAUNCHED

    @property
    def words(self) -> str:
        """How it ended, for people: errors of ranks that lost others are no failure."""
        if self.lost_lease and self.ended is EndingKind.FAILED:
            return "ended as a part of it was lost"
        return self.ended.words


def create_ending(folder: TrainerDir, ending: GenerationEnding) -> bool:
    """Create the file of *ending* unless its generation has one.

    Raises:
        OSError: It could not be written.
    """
    text = json.dumps(asdict(ending), indent=1) + "\n"
    return create_once(folder.ending(ending.generation), text.encode())


def read_ending(folder: TrainerDir, generation: int) -> GenerationEnding | None:
    """Return how *generation* ended; None where it has no ending yet.

    Raises:
        UnreadableFileError: It is no ending.
        OSError: It cannot be read.
    """
    with suppress(FileNotFoundError):
        return _read(folder.ending(generation), GenerationEnding)
    return None


_FINAL = {EndingKind.FINISHED, EndingKind.DO_NOT_RESTART}
LAST_ENDINGS = 10
"""Endings among which a program's last word is: few worlds are started ahead of it."""


def recent_endings(folder: TrainerDir) -> tuple[GenerationEnding, ...]:
    """Return the last endings of a trainer, the newest first.

    Raises:
        UnreadableFileError: One of them is damaged.
        OSError: One of them cannot be read.
    """
    numbers = reversed(generations(folder.endings)[-LAST_ENDINGS:])
    found = (read_ending(folder, generation) for generation in numbers)
    return tuple(ending for ending in found if ending is not None)


def final_ending(
    folder: TrainerDir, recent: Iterable[GenerationEnding]
) -> GenerationEnding | None:
    """Return the ending among *recent* in which the program said that it is done.

    It need not be the newest: a world that was started ahead is killed after it, and a
    user who pauses or cancels at that moment makes an empty generation. None where the
    program did not say so, or its user has let it go on since.

    Raises:
        UnreadableFileError: A file of it is damaged.
        OSError: A file of it cannot be read.
    """
    last = next((ending for ending in recent if ending.ended in _FINAL), None)
    if last is None or _went_on(folder, since=last.generation):
        return None
    return last


def tried_sizes(
    folder: TrainerDir, recent: Iterable[GenerationEnding]
) -> tuple[TriedSize, ...]:
    """Return the sizes that a trainer was tried on since its user last let it go on.

    None where it failed on none.

    Args:
        folder: The trainer's.
        recent: Its last endings, the newest first.

    Raises:
        UnreadableFileError: A file of it is damaged.
        OSError: A file of it cannot be read.
    """
    ran = [ending for ending in recent if ending.was_launched]
    if not any(size.failures for ending in ran for size in ending.tried):
        return ()
    began = _went_on(folder, since=ran[-1].generation)
    return all_sizes(
        size for ending in ran if ending.generation > began for size in ending.tried
    )


def all_sizes(tried: Iterable[TriedSize]) -> tuple[TriedSize, ...]:
    """Return each size of *tried* once, as the ending has it that knows most.

    An ending repeats those before it, but worlds that overlap may end in any order.
    """
    sizes: dict[int, TriedSize] = {}
    for size in tried:
        known = sizes.setdefault(size.leases, size)
        if (size.has_trained, size.failures) > (known.has_trained, known.failures):
            sizes[size.leases] = size
    return tuple(sizes[leases] for leases in sorted(sizes))


def _went_on(folder: TrainerDir, *, since: int) -> int:
    """Return the last generation by which a user let it go on; 0 for none.

    Only those after *since* are looked at.
    """
    later = (g for g in reversed(generations(folder.assignments)) if g > since)
    return next((g for g in later if read_assigned(folder, g).reason == GO_ON), 0)


# ----------------------------------------------------------------------
# The environment of the user who submitted a trainer, kept for its worlds

MPI_TUNING = ("OMPI_MCA_", "PRTE_MCA_", "PMIX_MCA_", "OMPI_ALLOW_RUN_AS_ROOT")
"""Beginnings of variables by which sites and users tune MPI. Other variables of MPI
belong to the world that set them."""


def render_environment(environment: Mapping[str, str]) -> bytes:
    """Return the file's content; bytes that are not text are kept as escapes."""
    return (json.dumps(dict(environment), indent=0, sort_keys=True) + "\n").encode()


def read_environment(folder: TrainerDir) -> dict[str, str]:
    """Return the variables kept for a trainer.

    Raises:
        UnreadableFileError: The file holds no variables.
        OSError: It cannot be read.
    """
    return _read(folder.environment, dict[str, str])


# ----------------------------------------------------------------------
# Heartbeats: an agent's file about itself, replaced every few seconds


class AgentState(StrEnum):
    """The work of an agent."""

    IDLE = "idle"
    TRAINING = "training"
    LEAVING = "leaving"
    ENDED = "ended"


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """One beat.

    Attributes:
        beat: Counts up; the agent is alive while it changes.
        t: Unix time of the agent's node; for people.
        node: NodeName.
        host: The host's own name.
        pid: The agent's process number there.
        trainer: The trainer that it works for, empty for none.
        generation: The generation that it belongs to, 0 for none.
        is_stuck: Whether processes of that generation are stopped on its node.
        is_stalled: Whether its world, which this agent launched, makes no steps.
        swept_generation: Up to which generation of that trainer no process is left
            on its node.
    """

    beat: int
    t: float
    node: str
    host: str
    pid: int
    state: AgentState = AgentState.IDLE
    trainer: str = ""
    generation: int = 0
    is_stuck: bool = False
    swept_generation: int = 0
    is_stalled: bool = False


def write_heartbeat(path: Path, beat: Heartbeat) -> None:
    """Replace the heartbeat at *path*, whole; not synced, as a lost beat does no harm.

    Raises:
        OSError: It could not be written.
    """
    _replace(path, _beat_fields(beat), writer=f"{beat.pid}")


def _replace(path: Path, fields: Mapping[str, object], *, writer: str) -> None:
    """Replace the JSON at *path*, whole, and not synced.

    Args:
        path: The file.
        fields: What it is to hold.
        writer: Tells the temporary of this writer from those of others.

    Raises:
        OSError: It could not be written; the old one stays.
    """
    temporary = path.with_name(f".{path.name}.{writer}")
    try:
        temporary.write_text(json.dumps(fields), encoding="utf-8")
        temporary.replace(path)
    except OSError:
        with suppress(OSError):
            temporary.unlink()
        raise


def _beat_fields(beat: Heartbeat) -> dict[str, object]:
    fields = asdict(beat)
    if not beat.is_stalled:
        del fields["is_stalled"]  # the version before reads no beat that has it
    return fields


def read_heartbeat(path: Path) -> Heartbeat | None:
    """Return the last beat; None before the first.

    Raises:
        UnreadableFileError: It is no heartbeat.
        OSError: It cannot be read.
    """
    with suppress(FileNotFoundError):
        return _read(path, Heartbeat)
    return None


# ----------------------------------------------------------------------
# The sign of ticks: one small file that every agent watches

SILENCE_NOTICE_S = 30.0
"""How long before it must be gone a lease begins to leave that sees no sign."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TickSign:
    """The sign of the last tick that saw the whole queue and made all the room due.

    Attributes:
        tick: Counts up; ticks are at work while it changes.
        silence_s: After so many seconds without a change a lease ends itself; None
            where no lease does.
    """

    tick: int
    silence_s: Annotated[float, msgspec.Meta(gt=0.0)] | None


def write_tick_sign(path: Path, sign: TickSign) -> None:
    """Replace the sign at *path*, whole; not synced, as the next tick writes another.

    Only the tick that has the turn writes it.

    Raises:
        OSError: It could not be written.
    """
    _replace(path, asdict(sign), writer="new")


def read_tick_sign(path: Path) -> TickSign | None:
    """Return the last sign; None where no tick has left one.

    Raises:
        UnreadableFileError: It is no sign.
        OSError: It cannot be read.
    """
    with suppress(FileNotFoundError):
        return _read(path, TickSign)
    return None


# ----------------------------------------------------------------------
# Where files are in the state directory; docs/guide/operating.md says the same

_PRIVATE = 0o700


def generation_name(generation: int) -> str:
    """Return how files name *generation*: ten digits, so that names sort."""
    return f"{generation:010d}"


def lease_name(key: LeaseKey) -> str:
    """Return how files name a lease."""
    return f"{key.uuid}-{key.task}"


@dataclass(frozen=True, slots=True)
class TrainerDir:
    """The folder of one trainer, ``path``."""

    path: Path

    @property
    def job(self) -> Path:
        """Its job file, canonical, as submitted."""
        return self.path / "job.toml"

    @property
    def environment(self) -> Path:
        """The variables of the user who submitted it, JSON."""
        return self.path / "environment.json"

    @property
    def assignments(self) -> Path:
        """One file a generation."""
        return self.path / "assignments"

    @property
    def endings(self) -> Path:
        """One file for each generation that is over."""
        return self.path / "endings"

    @property
    def notices(self) -> Path:
        """One file for each lease that must leave a generation."""
        return self.path / "notices"

    @property
    def logs(self) -> Path:
        """The output of its worlds, unless job.toml names another folder."""
        return self.path / "logs"

    @property
    def run(self) -> RunDir:
        """Its run directory, unless job.toml names another."""
        return RunDir(self.path / "run")

    def assignment(self, generation: int) -> Path:
        """The file that says which leases make up *generation*."""
        return self.assignments / f"{generation_name(generation)}.json"

    def ending(self, generation: int) -> Path:
        """The file that says how *generation* ended."""
        return self.endings / f"{generation_name(generation)}.json"

    def notice(self, generation: int, key: LeaseKey) -> Path:
        """The file whose existence says that a lease leaves *generation*."""
        return self.notices / f"{generation_name(generation)}.{lease_name(key)}"

    def world(self, generation: int) -> Path:
        """The folder of the files that the launcher of *generation* needs."""
        return self.path / "worlds" / generation_name(generation)

    def create(self) -> None:
        """Create the folders that are missing, open to their owner only.

        Raises:
            OSError: They cannot be created.
        """
        folders = (self.assignments, self.endings, self.notices, self.logs)
        _create_private(self.path.parent)
        for folder in (self.path, *folders, self.path / "worlds"):
            folder.mkdir(exist_ok=True, mode=_PRIVATE)


@dataclass(frozen=True, slots=True)
class LeaseDir:
    """The folder of one lease, ``path``; only its agent writes there."""

    path: Path

    @property
    def heartbeat(self) -> Path:
        """The agent's heartbeat."""
        return self.path / "heartbeat.json"

    @property
    def log(self) -> Path:
        """The agent's log."""
        return self.path / "agent.log"

    @property
    def spare(self) -> Path:
        """Names the trainer whose spare waits on the lease's node; missing for none."""
        return self.path / "spare"

    @property
    def spare_log(self) -> Path:
        """The output of spares before they join."""
        return self.path / "spare.log"

    def create(self) -> None:
        """Create the folder, open to its owner only.

        Raises:
            OSError: It cannot be created.
        """
        _create_private(self.path.parent)
        self.path.mkdir(exist_ok=True, mode=_PRIVATE)


def _create_private(folder: Path) -> None:
    """Create a folder of the state directory, or close it, for earlier releases."""
    folder.mkdir(parents=True, exist_ok=True, mode=_PRIVATE)
    if stat.S_IMODE(folder.stat().st_mode) & ~_PRIVATE:
        folder.chmod(_PRIVATE)


@dataclass(frozen=True, slots=True)
class StateDir:
    """The state directory ``path``, which login nodes and compute nodes share."""

    path: Path

    @property
    def trainers(self) -> Path:
        """One folder a trainer."""
        return self.path / "trainers"

    @property
    def past(self) -> Path:
        """Folders of trainers whose names were used again."""
        return self.path / "past"

    @property
    def leases(self) -> Path:
        """One folder a lease."""
        return self.path / "leases"

    @property
    def lease_script(self) -> Path:
        """The batch script of leases."""
        return self.path / "lease.sh"

    @property
    def outputs(self) -> Path:
        """The output of batch scripts: empty, if all is well."""
        return self.path / "outputs"

    @property
    def evidence(self) -> Path:
        """Answers of Slurm that could not be read."""
        return self.path / "evidence"

    @property
    def shadow(self) -> Path:
        """What `freetrain shadow` foresaw, and what its looks have learned."""
        return self.path / "shadow"

    @property
    def log(self) -> Path:
        """One line a tick."""
        return self.path / "tick.log"

    @property
    def tick_sign(self) -> Path:
        """By which agents see that ticks are at work."""
        return self.path / "tick-sign"

    @property
    def status_report(self) -> Path:
        """The last tick's status report, JSON."""
        return self.path / "page.json"

    @property
    def cron_log(self) -> Path:
        """To which regular ticks print."""
        return self.path / "cron.log"

    @property
    def status_page(self) -> Path:
        """The same for people, HTML that needs nothing else."""
        return self.path / "status.html"

    @property
    def web_token(self) -> Path:
        """Without which `freetrain web` shows nothing."""
        return self.path / "web-token"

    @property
    def metrics(self) -> Path:
        """The same in numbers, in the text format of Prometheus."""
        return self.path / "metrics.prom"

    def trainer(self, name: str) -> TrainerDir:
        """The folder of the trainer *name*, a checked ``TrainerName``."""
        return TrainerDir(self.trainers / name)

    def lease(self, key: LeaseKey) -> LeaseDir:
        """The folder of one lease."""
        return LeaseDir(self.leases / lease_name(key))
