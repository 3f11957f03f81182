"""The files that agents and broker share, as an agent uses them.

Assignments and endings are created exclusively: the first of several writers wins, and
the others read its file. Names are read by listing, so that NFS shows new files at
once; files that never change are read once.

Any call to a file may fail at any time, and no such failure may end an agent or the
world that it launched. So a question that cannot be answered now has the answer that it
had last (``answers_as_before``), and one that never had any raises
``UnknownNowError``. What could not be written raises ``OSError``, and the rules choose
it again.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import wraps
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar, cast

from freetrain.broker.lease import LeaseKey
from freetrain.config.job import WorkSettings, read_job
from freetrain.elastic.contract import MOST_OUTCOME_BYTES, OutcomeKind, parse_outcome
from freetrain.errors import FreeTrainError, TryLaterError
from freetrain.launch.base import log_of, logs_of, run_dir_of
from freetrain.opening import open_plain, read_plain
from freetrain.progress import (
    ProgressReader,
    bookmark_at_end,
    progress_file,
    read_tail,
    report_folder,
    work_is_done,
)
from freetrain.state.files import (
    GO_ON,
    LAST_ENDINGS,
    EndingKind,
    UnreadableFileError,
    create_assigned,
    create_ending,
    read_assigned,
    read_ending,
    read_heartbeat,
    read_tick_sign,
    write_heartbeat,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, MutableMapping
    from pathlib import Path

    from freetrain.config.job import TrainerJob
    from freetrain.elastic.contract import Outcome
    from freetrain.elastic.files import RunDir
    from freetrain.formats import ProgressRecord
    from freetrain.state.files import (
        AssignmentFile,
        GenerationEnding,
        Heartbeat,
        StateDir,
        TickSign,
        TrainerDir,
    )

_GENERATION = re.compile(r"([0-9]{10})\.json", re.ASCII)
_NOTICE = re.compile(r"([0-9]{10})\.(.{1,100})-([0-9]{1,10})", re.ASCII)
_MOST_REMEMBERED = 1_000
_LONGEST_MESSAGE = 2_000
_MOST_OPEN = 20  # generations that are not over, as far back as an agent looks
_MOST_ANSWERS = 10_000
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL

_LAST_OUTPUT_BYTES = 1 << 16


class UnknownNowError(TryLaterError):
    """A shared file cannot be read now, and nothing is known of it from before."""


_Read = TypeVar("_Read", bound="Callable[..., Any]")
_UNKNOWN: Any = object()


def answers_as_before(*, otherwise: Any = _UNKNOWN) -> Callable[[_Read], _Read]:  # noqa: ANN401 -- an answer
    """Return the guard of a method of the board that reads files.

    A failed read is logged, and answered as the same question was answered last. Files
    of a generation only come to be and are never changed, so an old answer is what a
    look some moments ago would have found.

    Args:
        otherwise: The answer where there was none; without it ``UnknownNowError``.
    """

    def guard(read: _Read) -> _Read:
        @wraps(read)
        def guarded(self: Board, *args: Hashable, **how: object) -> object:
            question = (read.__name__, *args)
            try:
                answer = read(self, *args, **how)
            except (OSError, FreeTrainError) as error:
                return self.last_answer(question, error, otherwise=otherwise)
            self.remember(question, answer)
            return answer

        return cast("_Read", guarded)

    return guard


@dataclass(frozen=True, slots=True)
class TrainerFolder:
    """The files in the folder of one trainer, listed at one time.

    Attributes:
        generations: All of them, ascending, one or more.
        over: Generations with an ending.
    """

    name: str
    generations: tuple[int, ...]
    over: frozenset[int]

    @property
    def newest(self) -> int:
        """The newest generation."""
        return self.generations[-1]

    @property
    def open(self) -> tuple[int, ...]:
        """Recent generations before the newest without an ending."""
        recent = self.generations[-_MOST_OPEN - 1 : -1]
        return tuple(number for number in recent if number not in self.over)


class Board:
    """The state directory.

    Methods that read raise ``UnknownNowError`` alone, and only where nothing is known
    from before; those that write raise ``OSError`` or ``FreeTrainError``.
    """

    def __init__(
        self,
        state: StateDir,
        listing: Listing,
        *,
        elapsed_s: Callable[[], float],
        log: Callable[[str], None],
    ) -> None:
        """Take the folder, a listing, a clock that never goes back, and a log."""
        self._state = state
        self._listing = listing
        self._elapsed_s = elapsed_s
        self._log = log
        self._answers: dict[tuple[Hashable, ...], object] = {}
        self._steps: dict[tuple[str, int], _StepReader] = {}
        self._folders: dict[str, int] = {}
        self._jobs: dict[str, TrainerJob] = {}
        self._gauges: dict[str, _WorkGauge] = {}
        self._assigned: dict[tuple[str, int], AssignmentFile] = {}
        self._endings: dict[tuple[str, int], GenerationEnding] = {}

    def remember(self, question: tuple[Hashable, ...], answer: object) -> None:
        """Keep the answer to *question* for when it cannot be read."""
        self._answers.pop(question, None)  # so that the oldest stand first
        _trim(self._answers, most=_MOST_ANSWERS)
        self._answers[question] = answer

    def last_answer(
        self, question: tuple[Hashable, ...], error: Exception, *, otherwise: object
    ) -> object:
        """Return the last answer to *question*, which *error* keeps from being read.

        Raises:
            UnknownNowError: There was none, and there is no other answer.
        """
        subject = " ".join(map(str, question))
        if question in self._answers:
            self._log(f"cannot read ({subject}): {error}; the last answer stands")
            return self._answers[question]
        self._log(f"cannot read ({subject}): {error}; nothing is done about it")
        if otherwise is _UNKNOWN:
            raise UnknownNowError(f"{subject}: {error}") from error
        return otherwise

    @answers_as_before()
    def trainers(self) -> tuple[str, ...]:
        """Return the trainers' names."""
        return tuple(sorted(self._listing.names(self._state.trainers)))

    @answers_as_before()
    def generations(self, trainer: str) -> tuple[int, ...]:
        """Return the generations of *trainer*, ascending."""
        folder = self._trainer_dir(trainer).assignments
        found = _numbers(self._listing.names(folder))
        identity = self._listing.identity(folder)
        if self._folders.setdefault(trainer, identity) != identity:
            self._forget(trainer)
            self._folders[trainer] = identity
        return tuple(sorted(found))

    def folder(self, trainer: str) -> TrainerFolder | None:
        """Return the files of *trainer*; None before its first generation."""
        # Endings first: that of a generation that was not listed yet would be lost.
        over = self.endings(trainer)
        generations = self.generations(trainer)
        return TrainerFolder(trainer, generations, over) if generations else None

    @answers_as_before()
    def assigned(self, trainer: str, generation: int) -> AssignmentFile:
        """Return one generation."""
        key = (trainer, generation)
        if key not in self._assigned:
            _trim(self._assigned)
            self._assigned[key] = read_assigned(self._trainer_dir(trainer), generation)
        return self._assigned[key]

    @answers_as_before()
    def endings(self, trainer: str) -> frozenset[int]:
        """Return the generations that are over."""
        return frozenset(
            _numbers(self._listing.names(self._trainer_dir(trainer).endings))
        )

    @answers_as_before()
    def ending(self, trainer: str, generation: int) -> GenerationEnding:
        """Return how a generation that is over ended."""
        key = (trainer, generation)
        if key not in self._endings:
            found = read_ending(self._trainer_dir(trainer), generation)
            if found is None:
                path = self._trainer_dir(trainer).ending(generation)
                raise UnreadableFileError(path, "listed, and not there")
            _trim(self._endings)
            self._endings[key] = found
        return self._endings[key]

    def last_endings(self, folder: TrainerFolder) -> tuple[GenerationEnding, ...]:
        """Return the last endings of worlds since its user let the trainer go on.

        The newest first, and ten at most.
        """
        name = folder.name
        found: list[GenerationEnding] = []
        for number in reversed(folder.generations[-LAST_ENDINGS:]):
            if number in folder.over:
                ending = self.ending(name, number)
                if ending.was_launched:
                    found.append(ending)
            elif self.assigned(name, number).reason == GO_ON:
                break
        return tuple(found)

    @answers_as_before(otherwise=frozenset())
    def notices(self, trainer: str) -> frozenset[tuple[int, LeaseKey]]:
        """Return the generations and the leases that leave them."""
        names = self._listing.names(self._trainer_dir(trainer).notices)
        found = (_NOTICE.fullmatch(name) for name in names)
        return frozenset((int(m[1]), LeaseKey(m[2], int(m[3]))) for m in found if m)

    @answers_as_before()
    def job(self, trainer: str) -> TrainerJob:
        """Return the trainer's job file."""
        if trainer not in self._jobs:
            self._jobs[trainer] = read_job(self._trainer_dir(trainer).job)
        return self._jobs[trainer]

    @answers_as_before(otherwise="")
    def outcome(self, trainer: str, generation: int) -> str:
        """Return how a world says that it ended; empty while it says nothing."""
        outcome = self._outcome(self._run_dir(trainer), generation)
        return "" if outcome is None else str(outcome.kind)

    def steps_reported(
        self, trainer: str, generation: int, *, at_once: bool = False
    ) -> int:
        """Return how many steps a world has reported since this was first asked.

        Steps that it reports together count as one; they are read once a second, or
        *at_once*.

        Raises:
            UnknownNowError: They cannot be read now.
        """
        key = (trainer, generation)
        try:
            if key not in self._steps:
                _trim(self._steps, most=_MOST_OPEN)
                self._steps[key] = _StepReader(
                    self.job(trainer),
                    generation,
                    self._run_dir(trainer).path,
                    logs_of(self.job(trainer), self._trainer_dir(trainer)),
                    elapsed_s=self._elapsed_s,
                )
            return self._steps[key].count(at_once=at_once)
        except OSError as error:
            raise UnknownNowError(str(error)) from error

    def checkpoint_stamp(self, trainer: str) -> Hashable:
        """Return a value that changes while checkpoints of *trainer* are written.

        Raises:
            UnknownNowError: They cannot be looked at now.
        """
        job = self.job(trainer)
        path = self._run_dir(trainer).checkpoints
        if not job.elastic and job.checkpoint.path is not None:
            path = job.checkpoint.path
        try:
            return _stamp_of(path)
        except OSError as error:
            raise UnknownNowError(str(error)) from error

    @answers_as_before(otherwise=None)
    def last_saved_s(self, trainer: str) -> float | None:
        """Return when a program that saves by itself did so last; None if unknown.

        That is the Unix time of the newest file at ``checkpoint.path``.
        """
        job = self.job(trainer)
        if job.elastic or job.checkpoint.path is None:
            return None
        return _newest_s(job.checkpoint.path)

    def can_report(self, trainer: str) -> bool:
        """Tell whether a program could report steps now, as its files can be written.

        An elastic program trains on without, as on a full disk.
        """
        job = self.job(trainer)
        folder = report_folder(job, self._run_dir(trainer).path)
        folder = folder or logs_of(job, self._trainer_dir(trainer))
        probe = folder / f".freetrain-{os.uname().nodename}-{os.getpid()}"
        try:
            with os.fdopen(open_plain(probe, _NEW_FILE), "wb") as trial:
                trial.write(b"\n")
                trial.flush()
                os.fsync(trial.fileno())
            probe.unlink()
        except OSError:
            return False
        return True

    @answers_as_before(otherwise=b"")
    def last_output(self, trainer: str, generation: int) -> bytes:
        """Return the end of what the world of *generation* has printed."""
        job = self.job(trainer)
        path = log_of(job, self._trainer_dir(trainer), generation)
        return read_tail(path, _LAST_OUTPUT_BYTES)

    @answers_as_before(otherwise=False)
    def is_ready(self, trainer: str, generation: int) -> bool:
        """Tell whether a world that was launched ahead waits with all ranks."""
        path = self._run_dir(trainer).ready(generation)
        return path.name in self._listing.names(path.parent)

    @answers_as_before(otherwise=False)
    def has_begun(self, trainer: str, generation: int) -> bool:
        """Tell whether an elastic program left a sign of life, or cannot leave one.

        It trains on where the run directory takes no file.
        """
        run = self._run_dir(trainer)
        if not _takes_files(run.path):
            return True
        claim = run.claim(generation)
        is_claimed = claim.name in self._listing.names(claim.parent)
        return is_claimed or self.is_ready(trainer, generation)

    @answers_as_before(otherwise=False)
    def is_stop_requested(self, trainer: str, generation: int) -> bool:
        """Tell whether the request to stop a world is there."""
        path = self._run_dir(trainer).stop_request(generation)
        return path.name in self._listing.names(path.parent)

    def heartbeat(self, lease: LeaseKey) -> Heartbeat | None:
        """Return the last heartbeat of *lease*, as it is now and not as it was.

        Raises:
            UnknownNowError: It cannot be read, so that nothing tells if it changed.
        """
        try:
            return read_heartbeat(self._state.lease(lease).heartbeat)
        except (OSError, FreeTrainError) as error:
            raise UnknownNowError(str(error)) from error

    def tick_sign(self) -> TickSign | None:
        """Return the sign of ticks, as it is now; None where no tick has left one.

        Raises:
            UnknownNowError: It cannot be read, so that nothing tells if it changed.
        """
        try:
            return read_tick_sign(self._state.tick_sign)
        except (OSError, FreeTrainError) as error:
            raise UnknownNowError(str(error)) from error

    def tick_sign_age_s(self, lease: LeaseKey) -> float:
        """Return by how much the heartbeat of *lease* is younger than the sign.

        Both times are the file server's, so no two clocks are compared; 0 where they
        cannot be read.
        """
        try:
            beaten_s = self._state.lease(lease).heartbeat.stat().st_mtime
            return max(0.0, beaten_s - self._state.tick_sign.stat().st_mtime)
        except OSError:
            return 0.0

    @answers_as_before(otherwise="")
    def spare_of(self, lease: LeaseKey) -> str:
        """Return the trainer whose spare waits in *lease*; empty for none."""
        try:
            return self._state.lease(lease).spare.read_text(encoding="utf-8")
        except (FileNotFoundError, UnicodeDecodeError):
            return ""

    def announce_spare(self, lease: LeaseKey, trainer: str) -> None:
        """Write for which trainer a spare waits in *lease*; empty for none."""
        self._state.lease(lease).spare.write_text(trainer, encoding="utf-8")

    @answers_as_before()
    def is_done(self, trainer: str, *, running_s: float) -> bool:
        """Tell whether the work is done; the present world has run for *running_s*."""
        job = self.job(trainer)
        if job.work == WorkSettings():
            return False
        if trainer not in self._gauges:
            folder = self._trainer_dir(trainer)
            self._gauges[trainer] = _WorkGauge(
                job,
                self._run_dir(trainer).path,
                logs_of(job, folder),
                elapsed_s=self._elapsed_s,
            )
        endings = [self.ending(trainer, g) for g in sorted(self.endings(trainer))]
        return self._gauges[trainer].is_done(endings, running_s=running_s)

    def propose(self, assigned: AssignmentFile) -> bool:
        """Create a generation unless it is there; return whether this call did."""
        folder = self._trainer_dir(assigned.trainer)
        self._listing.forget(folder.assignments)
        return create_assigned(folder, assigned)

    def write_ending(self, trainer: str, ending: GenerationEnding) -> bool:
        """Write that a generation is over, unless it is there; return whether we did.

        A world that waits for its end goes on, whether it left an outcome or not.
        """
        folder, run = self._trainer_dir(trainer), self._run_dir(trainer)
        if self.job(trainer).elastic:
            run.create()
            run.over(ending.generation).touch()
        self._listing.forget(folder.endings)
        return create_ending(folder, ending)

    def with_outcome(self, trainer: str, ending: GenerationEnding) -> GenerationEnding:
        """Return *ending* with the outcome that the world itself left."""
        run = self._run_dir(trainer)
        self._listing.forget(run.outcomes)
        outcome = self._outcome(run, ending.generation)
        if outcome is not None:
            return _with_outcome(ending, outcome)
        committed_step = max((found.step for found in run.committed()), default=0)
        return replace(ending, committed_step=committed_step)

    def write_notice(self, trainer: str, generation: int, lease: LeaseKey) -> None:
        """Write the notice that *lease* leaves a generation."""
        path = self._trainer_dir(trainer).notice(generation, lease)
        self._listing.forget(path.parent)
        path.touch(mode=0o600)

    def request_stop(self, trainer: str, generation: int) -> None:
        """Leave the request to stop for a world."""
        run = self._run_dir(trainer)
        run.create()
        self._listing.forget(run.control)
        run.stop_request(generation).touch(mode=0o600)

    def write_heartbeat(self, lease: LeaseKey, beat: Heartbeat) -> None:
        """Replace the heartbeat of *lease*."""
        write_heartbeat(self._state.lease(lease).heartbeat, beat)

    def _trainer_dir(self, trainer: str) -> TrainerDir:
        return self._state.trainer(trainer)

    def _run_dir(self, trainer: str) -> RunDir:
        return run_dir_of(self.job(trainer), self._trainer_dir(trainer))

    def _outcome(self, run: RunDir, generation: int) -> Outcome | None:
        path = run.outcome(generation)
        if path.name in self._listing.names(run.outcomes):
            with suppress(ValueError):  # no program writes one as large as that
                return parse_outcome(read_plain(path, MOST_OUTCOME_BYTES), generation)
        return None

    def _forget(self, trainer: str) -> None:
        """Forget the files that were read: another trainer has got the name."""
        self._jobs.pop(trainer, None)
        self._gauges.pop(trainer, None)
        caches: tuple[dict[tuple[str, int], Any], ...] = (self._assigned, self._endings)
        for known in caches:
            for key in [key for key in known if key[0] == trainer]:
                known.pop(key)
        for question in [asked for asked in self._answers if asked[1:2] == (trainer,)]:
            self._answers.pop(question)


def _takes_files(folder: Path) -> bool:
    try:
        room = os.statvfs(folder)
    except FileNotFoundError:
        return True  # the program makes it
    except PermissionError:
        return False
    is_full = room.f_bavail == 0 or (room.f_files > 0 and room.f_favail == 0)
    return os.access(folder, os.W_OK) and not is_full


def _numbers(names: frozenset[str]) -> list[int]:
    return [int(m[1]) for name in names if (m := _GENERATION.fullmatch(name))]


def _trim(known: MutableMapping[Any, Any], *, most: int = _MOST_REMEMBERED) -> None:
    """Forget what was read first; it is hardly needed again."""
    while len(known) >= most:
        known.pop(next(iter(known)))


_ENDED = {OutcomeKind.NOT_STARTED: EndingKind.NOT_LAUNCHED}
"""A world that could not see its checkpoint is no failure of its program."""


def _with_outcome(ending: GenerationEnding, outcome: Outcome) -> GenerationEnding:
    return replace(
        ending,
        ended=_ENDED.get(outcome.kind) or EndingKind(str(outcome.kind)),
        step=outcome.step,
        committed_step=outcome.committed_step,
        message=outcome.message[:_LONGEST_MESSAGE] or ending.message,
    )


_MOST_ENTRIES = 1_000


def _stamp_of(path: Path) -> Hashable:
    """Return sizes and times of a file, or of what is in a folder; () for neither."""
    try:
        if not path.is_dir():
            status = path.stat()
            return (status.st_size, status.st_mtime_ns)
        found, _ = _entries(path)
    except FileNotFoundError:
        return ()
    return frozenset((name, s.st_size, s.st_mtime_ns) for name, s in found)


def _entries(path: Path) -> tuple[list[tuple[str, os.stat_result]], bool]:
    """Return what is in a folder, ``_MOST_ENTRIES`` at most, and whether that is all.

    Links to nothing are left out, and files that go away meanwhile.
    """
    found = []
    with os.scandir(path) as entries:
        for entry in islice(entries, _MOST_ENTRIES):
            with suppress(FileNotFoundError):
                found.append((entry.name, entry.stat()))
        return found, next(entries, None) is None


def _newest_s(path: Path) -> float | None:
    """Return the time of a file, or of the newest in a folder; None for neither.

    None, too, where a folder has more than ``_MOST_ENTRIES``: any may be the newest.
    """
    try:
        if not path.is_dir():
            return path.stat().st_mtime
        found, is_all = _entries(path)
    except FileNotFoundError:
        return None
    times = [status.st_mtime for _, status in found]
    return max(times, default=None) if is_all else None


_READ_AGAIN_S = 1.0


class _StepReader:
    """Counts the reports of steps of one generation, from its beginning on."""

    def __init__(
        self,
        job: TrainerJob,
        generation: int,
        run_dir: Path,
        logs: Path,
        *,
        elapsed_s: Callable[[], float],
    ) -> None:
        """Take the generation, the places of its progress lines, and a clock.

        Raises:
            OSError: They cannot be looked at.
        """
        self._is_elastic = job.elastic
        self._generation = generation
        self._file = progress_file(job, run_dir)
        since = bookmark_at_end(job, run_dir, generation)
        self._reader = ProgressReader(job, run_dir, logs, since=since)
        self._logs = logs
        self._elapsed_s = elapsed_s
        self._due_s = elapsed_s()
        self._count = 0
        self._step: int | None = None

    def count(self, *, at_once: bool = False) -> int:
        """Return the number of reports so far.

        Raises:
            OSError: The place of reports cannot be looked at.
        """
        now_s = self._elapsed_s()
        if at_once or now_s >= self._due_s:
            with suppress(FileNotFoundError):
                (self._file or self._logs).stat()
            self._due_s = now_s + _READ_AGAIN_S
            self._count += sum(map(self._is_of_a_step, self._reader.read()))
        return self._count

    def _is_of_a_step(self, record: ProgressRecord) -> bool:
        if record.generation not in {None, self._generation}:
            return False
        # What an elastic program reports first is where it begins.
        before, self._step = self._step, record.step
        return not self._is_elastic or (before is not None and record.step != before)


class _WorkGauge:
    """Whether a trainer's work is done; its progress is read once a second."""

    def __init__(
        self,
        job: TrainerJob,
        run_dir: Path,
        logs: Path,
        *,
        elapsed_s: Callable[[], float],
    ) -> None:
        """Take the trainer, the places of its progress lines, and a clock."""
        self._work = job.work
        self._reader = ProgressReader(job, run_dir, logs)
        self._elapsed_s = elapsed_s
        self._due_s = 0.0
        self._is_done = False

    def is_done(
        self, endings: Iterable[GenerationEnding], *, running_s: float = 0.0
    ) -> bool:
        """Tell whether the work is done.

        Args:
            endings: Of all its generations that are over.
            running_s: For how long the present world has run.
        """
        now_s = self._elapsed_s()
        if not self._is_done and now_s >= self._due_s:
            self._due_s = now_s + _READ_AGAIN_S
            self._reader.read()
            is_done = work_is_done(self._work, self._reader.latest())
            self._is_done = is_done or self._is_out_of_time(endings, running_s)
        return self._is_done

    def _is_out_of_time(
        self, endings: Iterable[GenerationEnding], running_s: float
    ) -> bool:
        limit_s = self._work.time_limit_s
        if limit_s is None:
            return False
        return running_s + sum(map(_ran_s, endings)) >= limit_s


def _ran_s(ending: GenerationEnding) -> float:
    if ending.started_s is None:
        return 0.0
    return max(0.0, ending.ended_s - ending.started_s)


_LIST_AGAIN_S = 1.0
_GONE_S = 5.0  # a folder that was there may be missing for a moment, or seem to be
_Stamp = tuple[int, int, int]  # inode, time of change, device


class Listing:
    """Lists folders.

    A folder is opened each time, which makes NFS ask the server, but read only if
    its time of change is a new one. Times are coarse, so a folder is read twice
    after a change, and once a second whatever its time says.
    """

    def __init__(self, elapsed_s: Callable[[], float]) -> None:
        """Take a clock that never goes back."""
        self._elapsed_s = elapsed_s
        # By folder: its names and stamp, when to list it again at the latest, and
        # whether the stamp was the same twice.
        self._known: dict[Path, tuple[frozenset[str], _Stamp, float, bool]] = {}
        self._missing_since_s: dict[Path, float] = {}

    def names(self, folder: Path) -> frozenset[str]:
        """Return the names in *folder*; none where it is missing.

        Raises:
            OSError: It cannot be listed, or is missing since a moment ago.
        """
        try:
            handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except FileNotFoundError:
            if folder in self._known:
                now_s = self._elapsed_s()
                if now_s - self._missing_since_s.setdefault(folder, now_s) < _GONE_S:
                    raise
                self._known.pop(folder)
                self._missing_since_s.pop(folder)
            return frozenset()
        self._missing_since_s.pop(folder, None)
        try:
            return self._names(folder, handle)
        finally:
            os.close(handle)

    def identity(self, folder: Path) -> int:
        """Return the inode of the folder as it was listed last; 0 where it was not."""
        known = self._known.get(folder)
        return known[1][0] if known else 0

    def forget(self, folder: Path) -> None:
        """List *folder* anew next time: something was just created there."""
        if folder in self._known:
            names, stamp, *_ = self._known[folder]
            self._known[folder] = (names, stamp, 0.0, False)

    def _names(self, folder: Path, handle: int) -> frozenset[str]:
        status = os.fstat(handle)
        stamp = (status.st_ino, status.st_mtime_ns, status.st_dev)
        now_s = self._elapsed_s()
        known = self._known.get(folder)
        is_same = False
        if known is not None:
            names, last_stamp, again_s, is_settled = known
            is_same = last_stamp == stamp
            if is_same and is_settled and now_s < again_s:
                return names
        names = frozenset(os.listdir(handle))
        self._known[folder] = (names, stamp, now_s + _LIST_AGAIN_S, is_same)
        return names
