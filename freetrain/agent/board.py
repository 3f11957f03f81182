"""The files that agents and broker share, as an agent uses them."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

from freetrain.agent.seen import WorkGauge
from freetrain.broker.lease import LeaseKey
from freetrain.config.job import Work, read_job
from freetrain.elastic.outcome import read_outcome
from freetrain.launch.request import logs_of, run_dir_of
from freetrain.state.files import (
    Ended,
    UnreadableFileError,
    create_assigned,
    create_ending,
    read_assigned,
    read_ending,
    read_heartbeat,
    write_heartbeat,
)

if TYPE_CHECKING:
    from collections.abc import Callable, MutableMapping
    from pathlib import Path

    from freetrain.config.job import TrainerJob
    from freetrain.elastic.files import RunDir
    from freetrain.elastic.outcome import Outcome
    from freetrain.state.files import Assigned, Ending, Heartbeat, StateDir, TrainerDir


# ----------------------------------------------------------------------
# The files that agents and broker share, as an agent uses them.


class Board(Protocol):
    """What is shared by all agents; any method may raise OSError or FreeTrainError.

    Names are read by listing, so that NFS shows new files at once; what never
    changes is read once.
    """

    def trainers(self) -> tuple[str, ...]:
        """Return the trainers' names."""
        ...

    def generations(self, trainer: str) -> tuple[int, ...]:
        """Return the generations of *trainer*, ascending."""
        ...

    def assigned(self, trainer: str, generation: int) -> Assigned:
        """Return one generation."""
        ...

    def endings(self, trainer: str) -> frozenset[int]:
        """Return the generations that are over."""
        ...

    def ending(self, trainer: str, generation: int) -> Ending:
        """Return how one that is over ended."""
        ...

    def notices(self, trainer: str) -> frozenset[tuple[int, LeaseKey]]:
        """Return which leases must leave which generations."""
        ...

    def job(self, trainer: str) -> TrainerJob:
        """Return what the trainer's user wrote."""
        ...

    def outcome(self, trainer: str, generation: int) -> str:
        """Return how a world says that it ended; empty while it does not."""
        ...

    def is_ready(self, trainer: str, generation: int) -> bool:
        """Tell whether a world that was launched ahead waits with all ranks."""
        ...

    def has_begun(self, trainer: str, generation: int) -> bool:
        """Tell whether an elastic program left a sign of life, or cannot leave one."""
        ...

    def is_stop_requested(self, trainer: str, generation: int) -> bool:
        """Tell whether the request to stop is there."""
        ...

    def beat(self, lease: LeaseKey) -> Heartbeat | None:
        """Return the last heartbeat of *lease*."""
        ...

    def spare_of(self, lease: LeaseKey) -> str:
        """Return the trainer whose spare waits in *lease*; empty for none."""
        ...

    def tell_spare(self, lease: LeaseKey, trainer: str) -> None:
        """Say whose spare waits in *lease*; empty for nobody's.

        Raises:
            OSError: It could not be written.
        """
        ...

    def is_done(self, trainer: str, *, running_s: float) -> bool:
        """Tell whether the work is done, with a world that ran for *running_s*."""
        ...

    def propose(self, assigned: Assigned) -> bool:
        """Create a generation unless it is there; return whether this call did."""
        ...

    def end(self, trainer: str, ending: Ending) -> bool:
        """Say that a generation is over, unless that was said.

        A world that waits for it goes on, whether it left word or not.
        """
        ...

    def compose(self, trainer: str, ending: Ending) -> Ending:
        """Return *ending* with what the world itself left word of."""
        ...

    def notice(self, trainer: str, generation: int, lease: LeaseKey) -> None:
        """Say that *lease* leaves a generation."""
        ...

    def request_stop(self, trainer: str, generation: int) -> None:
        """Leave the request to stop for a world."""
        ...

    def write_beat(self, lease: LeaseKey, beat: Heartbeat) -> None:
        """Replace the heartbeat of *lease*."""
        ...


# ----------------------------------------------------------------------
# The shared files themselves; a ``freetrain.agent.board.Board``.

_GENERATION = re.compile(r"([0-9]{10})\.json", re.ASCII)
_NOTICE = re.compile(r"([0-9]{10})\.(.{1,100})-([0-9]{1,10})", re.ASCII)
_KEPT = 1_000
_LONGEST_MESSAGE = 2_000


class DiskBoard:
    """The state directory."""

    def __init__(
        self,
        state: StateDir,
        listing: Listing,
        *,
        elapsed_s: Callable[[], float],
    ) -> None:
        """Take the folder, what lists, and a clock that never goes back."""
        self._state = state
        self._listing = listing
        self._elapsed_s = elapsed_s
        self._folders: dict[str, int] = {}
        self._jobs: dict[str, TrainerJob] = {}
        self._gauges: dict[str, WorkGauge] = {}
        self._assigned: dict[tuple[str, int], Assigned] = {}
        self._endings: dict[tuple[str, int], Ending] = {}

    def trainers(self) -> tuple[str, ...]:
        """Return the trainers' names."""
        return tuple(sorted(self._listing.names(self._state.trainers)))

    def generations(self, trainer: str) -> tuple[int, ...]:
        """Return the generations of *trainer*, ascending."""
        folder = self._folder(trainer).assignments
        found = _numbers(self._listing.names(folder))
        identity = self._listing.identity(folder)
        if self._folders.setdefault(trainer, identity) != identity:
            self._forget(trainer)
            self._folders[trainer] = identity
        return tuple(sorted(found))

    def assigned(self, trainer: str, generation: int) -> Assigned:
        """Return one generation."""
        key = (trainer, generation)
        if key not in self._assigned:
            _trim(self._assigned)
            self._assigned[key] = read_assigned(self._folder(trainer), generation)
        return self._assigned[key]

    def endings(self, trainer: str) -> frozenset[int]:
        """Return the generations that are over."""
        return frozenset(_numbers(self._listing.names(self._folder(trainer).endings)))

    def ending(self, trainer: str, generation: int) -> Ending:
        """Return how one that is over ended."""
        key = (trainer, generation)
        if key not in self._endings:
            found = read_ending(self._folder(trainer), generation)
            if found is None:
                path = self._folder(trainer).ending(generation)
                raise UnreadableFileError(path, "listed, and not there")
            _trim(self._endings)
            self._endings[key] = found
        return self._endings[key]

    def notices(self, trainer: str) -> frozenset[tuple[int, LeaseKey]]:
        """Return which leases must leave which generations."""
        names = self._listing.names(self._folder(trainer).notices)
        found = (_NOTICE.fullmatch(name) for name in names)
        return frozenset((int(m[1]), LeaseKey(m[2], int(m[3]))) for m in found if m)

    def job(self, trainer: str) -> TrainerJob:
        """Return what the trainer's user wrote."""
        if trainer not in self._jobs:
            self._jobs[trainer] = read_job(self._folder(trainer).job)
        return self._jobs[trainer]

    def outcome(self, trainer: str, generation: int) -> str:
        """Return how a world says that it ended; empty while it does not."""
        said = self._said(self._run(trainer), generation)
        return "" if said is None else str(said.ending)

    def is_ready(self, trainer: str, generation: int) -> bool:
        """Tell whether a world that was launched ahead waits with all ranks."""
        path = self._run(trainer).ready(generation)
        return path.name in self._listing.names(path.parent)

    def has_begun(self, trainer: str, generation: int) -> bool:
        """Tell whether an elastic program left a sign of life, or cannot leave one.

        It trains on where the run directory takes no file, and is not to be blamed.
        """
        run = self._run(trainer)
        if not _takes_files(run.path):
            return True
        claim = run.claim(generation)
        is_claimed = claim.name in self._listing.names(claim.parent)
        return is_claimed or self.is_ready(trainer, generation)

    def is_stop_requested(self, trainer: str, generation: int) -> bool:
        """Tell whether the request to stop is there."""
        path = self._run(trainer).stop_request(generation)
        return path.name in self._listing.names(path.parent)

    def beat(self, lease: LeaseKey) -> Heartbeat | None:
        """Return the last heartbeat of *lease*."""
        return read_heartbeat(self._state.lease(lease).heartbeat)

    def spare_of(self, lease: LeaseKey) -> str:
        """Return the trainer whose spare waits in *lease*; empty for none."""
        with suppress(FileNotFoundError):
            return self._state.lease(lease).spare.read_text(encoding="utf-8")
        return ""

    def tell_spare(self, lease: LeaseKey, trainer: str) -> None:
        """Say whose spare waits in *lease*; empty for nobody's."""
        self._state.lease(lease).spare.write_text(trainer, encoding="utf-8")

    def is_done(self, trainer: str, *, running_s: float) -> bool:
        """Tell whether the work is done, with a world that ran for *running_s*."""
        job = self.job(trainer)
        if job.work == Work():
            return False
        if trainer not in self._gauges:
            folder = self._folder(trainer)
            self._gauges[trainer] = WorkGauge(
                job,
                self._run(trainer).path,
                logs_of(job, folder),
                elapsed_s=self._elapsed_s,
            )
        endings = [self.ending(trainer, g) for g in sorted(self.endings(trainer))]
        return self._gauges[trainer].is_done(endings, running_s=running_s)

    def propose(self, assigned: Assigned) -> bool:
        """Create a generation unless it is there; return whether this call did."""
        folder = self._folder(assigned.trainer)
        self._listing.forget(folder.assignments)
        return create_assigned(folder, assigned)

    def end(self, trainer: str, ending: Ending) -> bool:
        """Say that a generation is over, unless that was said."""
        folder, run = self._folder(trainer), self._run(trainer)
        if self.job(trainer).elastic:
            run.create()
            run.over(ending.generation).touch()
        self._listing.forget(folder.endings)
        return create_ending(folder, ending)

    def compose(self, trainer: str, ending: Ending) -> Ending:
        """Return *ending* with what the world itself left word of."""
        run = self._run(trainer)
        self._listing.forget(run.outcomes)
        said = self._said(run, ending.generation)
        if said is not None:
            return _with_outcome(ending, said)
        committed_step = max((one.step for one in run.committed()), default=0)
        return replace(ending, committed_step=committed_step)

    def notice(self, trainer: str, generation: int, lease: LeaseKey) -> None:
        """Say that *lease* leaves a generation."""
        path = self._folder(trainer).notice(generation, lease)
        self._listing.forget(path.parent)
        path.touch(mode=0o600)

    def request_stop(self, trainer: str, generation: int) -> None:
        """Leave the request to stop for a world."""
        run = self._run(trainer)
        run.create()
        self._listing.forget(run.control)
        run.stop_request(generation).touch(mode=0o600)

    def write_beat(self, lease: LeaseKey, beat: Heartbeat) -> None:
        """Replace the heartbeat of *lease*."""
        write_heartbeat(self._state.lease(lease).heartbeat, beat)

    def _folder(self, trainer: str) -> TrainerDir:
        return self._state.trainer(trainer)

    def _run(self, trainer: str) -> RunDir:
        return run_dir_of(self.job(trainer), self._folder(trainer))

    def _said(self, run: RunDir, generation: int) -> Outcome | None:
        if run.outcome(generation).name in self._listing.names(run.outcomes):
            return read_outcome(run, generation)
        return None

    def _forget(self, trainer: str) -> None:
        """Another trainer has got the name."""
        self._jobs.pop(trainer, None)
        self._gauges.pop(trainer, None)
        caches: tuple[dict[tuple[str, int], Any], ...] = (self._assigned, self._endings)
        for known in caches:
            for key in [key for key in known if key[0] == trainer]:
                known.pop(key)


def _takes_files(folder: Path) -> bool:
    try:
        room = os.statvfs(folder)
    except FileNotFoundError:
        return True  # the program makes it
    except OSError:
        return False
    is_full = room.f_bavail == 0 or (room.f_files > 0 and room.f_favail == 0)
    return os.access(folder, os.W_OK) and not is_full


def _numbers(names: frozenset[str]) -> list[int]:
    return [int(m[1]) for name in names if (m := _GENERATION.fullmatch(name))]


def _trim(known: MutableMapping[tuple[str, int], Any]) -> None:
    """Forget the oldest of what was read, which is hardly looked at again."""
    while len(known) >= _KEPT:
        known.pop(next(iter(known)))


def _with_outcome(ending: Ending, said: Outcome) -> Ending:
    return replace(
        ending,
        ended=Ended(str(said.ending)),
        step=said.step,
        committed_step=said.committed_step,
        message=said.message[:_LONGEST_MESSAGE] or ending.message,
    )


# ----------------------------------------------------------------------
# Names in folders, listed again only when a folder has changed.

_AGAIN_S = 1.0


@dataclass(frozen=True, slots=True)
class _Listed:
    names: frozenset[str]
    stamp: tuple[int, int, int]
    listed_s: float
    is_settled: bool


class Listing:
    """Lists folders.

    A folder is opened each time, which makes NFS ask the server, but read only if
    its time of change is a new one. Times are coarse, so a folder is read twice
    after a change, and once a second whatever its time says.
    """

    def __init__(self, elapsed_s: Callable[[], float]) -> None:
        """Take a clock that never goes back."""
        self._elapsed_s = elapsed_s
        self._known: dict[Path, _Listed] = {}

    def names(self, folder: Path) -> frozenset[str]:
        """Return the names in *folder*; none where it is missing.

        Raises:
            OSError: It cannot be listed.
        """
        try:
            handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except FileNotFoundError:
            self._known.pop(folder, None)
            return frozenset()
        try:
            return self._names(folder, handle)
        finally:
            os.close(handle)

    def identity(self, folder: Path) -> int:
        """Return what tells the folder listed last from another of that name."""
        known = self._known.get(folder)
        return known.stamp[0] if known else 0

    def forget(self, folder: Path) -> None:
        """List *folder* anew next time: something was just created there."""
        self._known.pop(folder, None)

    def _names(self, folder: Path, handle: int) -> frozenset[str]:
        status = os.fstat(handle)
        stamp = (status.st_ino, status.st_mtime_ns, status.st_dev)
        now_s = self._elapsed_s()
        known = self._known.get(folder)
        is_same = known is not None and known.stamp == stamp
        if known and is_same and known.is_settled and now_s < known.listed_s + _AGAIN_S:
            return known.names
        names = frozenset(os.listdir(handle))
        self._known[folder] = _Listed(names, stamp, now_s, is_settled=is_same)
        return names
