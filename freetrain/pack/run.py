"""One fragment of a pack: begun, run and ended as elastic programs are."""

from __future__ import annotations

import math
import os
import signal
import subprocess
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage
from signal import SIGKILL
from typing import TYPE_CHECKING, Protocol

from freetrain.config.job import read_job
from freetrain.elastic.checkpoint import CheckpointStore
from freetrain.elastic.files import RunDir
from freetrain.elastic.fragment import Setting
from freetrain.elastic.joining import fail, wait_for_predecessor
from freetrain.elastic.launch import read_launch
from freetrain.elastic.outcome import Ending, Outcome, read_outcome, write_outcome
from freetrain.elastic.stop import Stop, StopFile, StopSignals
from freetrain.elastic.world import LoneWorld
from freetrain.errors import BadConfigurationError, FreeTrainError
from freetrain.launch.request import (
    DEVICE_VARIABLES,
    LEASE_MARK,
    WORLD_MARK,
    contract_variables,
    is_passed_on,
    job_variables,
)
from freetrain.losscurve.forecast import Better
from freetrain.pack.pack import (
    End,
    Line,
    SharingName,
    count_failure,
    how_it_failed,
    member_folder,
    read_pack,
    read_record,
    tell_progress,
    write_record,
)
from freetrain.pack.processes import (
    MARK,
    is_there,
    left_behind,
    members_of,
    tell,
    this_packer,
    used_s,
)
from freetrain.pack.shares import (
    KernelFolders,
    choose,
    groups_where,
    own_places,
    remove_group,
)
from freetrain.priority.flowcon import (
    Seen,
    Settings,
    State,
    from_json,
    is_due,
    look,
    to_json,
)
from freetrain.progress.reader import Reader, read_tail
from freetrain.state.files import generation_name
from freetrain.text import one_line, per_cent
from slurm.runner import KEPT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from freetrain.config.job import TrainerJob
    from freetrain.elastic.files import Clock
    from freetrain.pack.pack import Pack, Record
    from freetrain.pack.processes import Packer
    from freetrain.pack.shares import Means


# ----------------------------------------------------------------------
# The variables of a member: those of a trainer that was launched alone.

# The marks by which the agent finds what its lease left behind, members included, and
# what the pack has from its own lease: the devices, and the way to Slurm.
_INHERITED = {LEASE_MARK, WORLD_MARK, *DEVICE_VARIABLES, *KEPT}


def member_environment(
    berth: Berth, given: Mapping[str, str], packer: Packer
) -> dict[str, str]:
    """Return all variables of a member.

    Args:
        berth: What is started.
        given: The pack's own variables.
        packer: Who starts it.
    """
    job = berth.job
    variables = {
        name: text
        for name, text in given.items()
        if name in _INHERITED or is_passed_on(name)
    }
    told = contract_variables(job, berth.run, berth.generation, processes=1)
    return variables | job_variables(job) | told | {MARK: f"{packer.label}/{job.name}"}


# ----------------------------------------------------------------------
# One trainer of a pack: its process, its progress, and how it ended.

MOST_VALUES = 20_000
"""Values of the metric that are kept between two looks; the oldest go first."""

LONGEST_WHY = 200
"""Characters that are kept of why a member failed."""

_TAIL_BYTES = 4_096

_OVER = {Ending.FINISHED: End.FINISHED, Ending.DO_NOT_RESTART: End.GAVE_UP}
"""What an elastic program's own word makes of its end, whatever its exit status."""


@dataclass(frozen=True, slots=True)
class Berth:
    """One fragment of a trainer in a pack, and where its things are.

    Attributes:
        job: What the trainer is.
        run: Its run directory.
        logs: The folder of what it prints.
        generation: The number of the fragment.
    """

    job: TrainerJob
    run: RunDir
    logs: Path
    generation: int

    @property
    def log(self) -> Path:
        """The file of what it prints."""
        return self.logs / f"{generation_name(self.generation)}.log"


@dataclass(slots=True)
class Member:
    """A trainer that runs.

    Attributes:
        berth: What runs.
        process: Its first process.
        reader: Reads what it tells.
        values: Time of reading and value of the metric, the newest last.
        pids: Its processes when last looked.
        used_s: CPU time so far, seconds.
        is_asked: Whether it was asked to stop.
    """

    berth: Berth
    process: subprocess.Popen[bytes]
    reader: Reader
    values: deque[tuple[float, float]] = field(
        default_factory=lambda: deque(maxlen=MOST_VALUES)
    )
    pids: tuple[int, ...] = ()
    used_s: float = 0.0
    is_asked: bool = False

    @property
    def name(self) -> str:
        """What people call the trainer."""
        return self.berth.job.name

    @property
    def is_elastic(self) -> bool:
        """Whether its program knows what a stop request and an outcome are."""
        return self.berth.job.elastic

    @property
    def done(self) -> tuple[int, float]:
        """Steps and samples done, as far as it told."""
        progress = self.reader.latest()
        if progress is None:
            return 0, 0.0
        return progress.step or 0, progress.samples or 0.0

    def hear(self, metric: str, *, sign: float, now_s: float) -> None:
        """Read what it told since the last call.

        Args:
            metric: Which of its metrics counts.
            sign: What its values are multiplied with.
            now_s: The time they get.
        """
        for record in self.reader.read():
            value = record.metrics.get(metric)
            if value is not None:
                self.values.append((now_s, sign * value))

    def forget(self, until_s: float) -> None:
        """Forget the values that it told until then."""
        while self.values and self.values[0][0] <= until_s:
            self.values.popleft()

    def count(self, pids: Iterable[int]) -> None:
        """Take note of its processes, and of the time that they used."""
        self.pids = tuple({*pids, self.process.pid})
        self.used_s = max(self.used_s, used_s(self.pids))

    def ask(self) -> None:
        """Ask it to stop."""
        self.is_asked = True
        if not self.is_elastic:
            number = signal.Signals[f"SIG{self.berth.job.stop.signal}"]
            tell(self.pids or (self.process.pid,), number)
            return
        # It looks there every 0.1 s; and a program that is not ready for a signal
        # yet would die of one.
        run = self.berth.run
        with suppress(OSError):
            run.control.mkdir(parents=True, exist_ok=True)
            run.stop_request(self.berth.generation).touch()

    @property
    def committed_step(self) -> int:
        """Steps that its newest checkpoint has; 0 where it tells of none."""
        with suppress(OSError):
            if self.is_elastic and (found := self.berth.run.committed()):
                return found[-1].step
        return 0

    def why_failed(self) -> str:
        """Return why it ended: in its own words where it left any."""
        said = self._said()
        if said is not None and said.message:
            return one_line(said.message)[:LONGEST_WHY]
        status, line = self.process.returncode, last_line(self.berth.log)
        if status is not None and status < 0:
            how = f"signal {-status}, {signal.strsignal(-status) or 'unknown'}"
            return f"{how}; {line}" if line else how
        return line or f"exit status {status}"

    def ended(self) -> End | None:
        """Return how it ended; None while it runs."""
        status = self.process.poll()
        if status is None:
            return None
        said = self._said()
        if said is not None and said.ending in _OVER:
            return _OVER[said.ending]
        if self.is_asked and (status == 0 or not self.is_elastic):
            return End.STOPPED
        is_done = status == 0 and not self.is_elastic
        return End.FINISHED if is_done else End.FAILED

    def _said(self) -> Outcome | None:
        with suppress(OSError):
            if self.is_elastic:
                return read_outcome(self.berth.run, self.berth.generation)
        return None


def last_line(log: Path) -> str:
    """Return the last line with something in it; empty where there is none."""
    text = read_tail(log, _TAIL_BYTES).decode("utf-8", "replace")
    lines = [line for line in map(one_line, text.splitlines()) if line]
    return lines[-1][:LONGEST_WHY] if lines else ""


def start(argv: Sequence[str], berth: Berth, environment: Mapping[str, str]) -> Member:
    """Start a member in a session of its own, printing into its log.

    Raises:
        OSError: It cannot be started.
    """
    run, logs = berth.run.path, berth.logs
    run.mkdir(parents=True, exist_ok=True, mode=0o700)
    logs.mkdir(parents=True, exist_ok=True, mode=0o700)
    reader = Reader(berth.job, run, logs)
    while reader.is_behind:  # what earlier fragments told
        reader.read()
    with berth.log.open("ab") as log:
        process = subprocess.Popen(  # noqa: S603 -- the user's own command, no shell
            argv,
            cwd=berth.job.directory,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    return Member(berth, process, reader)


# ----------------------------------------------------------------------
# The members of a pack that run: started, counted, asked to stop, and ended.

KILLED_WITHIN_S = 5.0
"""Time after which a process that was killed is left to the kernel."""

_AGAIN_S = 0.01


@dataclass(frozen=True, slots=True)
class Node:
    """What members run on.

    Attributes:
        run: The pack's run directory.
        generation: The pack's generation.
        packer: This process.
        means: By what CPU shares are set.
        cpus: CPUs of all members together.
        environment: This process' variables.
        clock: The clocks to go by.
    """

    run: RunDir
    generation: int
    packer: Packer
    means: Means
    cpus: int
    environment: Mapping[str, str]
    clock: Clock


class Crew:
    """The members that run.

    Attributes:
        members: By name, in the order in which they came.
    """

    def __init__(self, node: Node) -> None:
        self.members: dict[str, Member] = {}
        self._node = node

    def start(self, job: TrainerJob, *, after: int = 0) -> Berth:
        """Start a trainer.

        Args:
            job: The trainer.
            after: The number of its last fragment, 0 for none.

        Raises:
            OSError: It cannot be started.
        """
        node, berth = self._node, self._berth(job, after)
        prefix = node.means.admit(job.name)
        variables = member_environment(berth, node.environment, node.packer)
        try:
            member = start((*prefix, *job.command), berth, variables)
        except OSError:
            node.means.release(job.name)
            raise
        self.members[job.name] = member
        node.means.follow(job.name, (member.process.pid,))
        return berth

    def count(self) -> None:
        """List the processes of all members, and the time that they used."""
        for name, pids in self._pids().items():
            self.members[name].count(pids)
            self._node.means.follow(name, self.members[name].pids)

    def ended(self) -> list[tuple[Member, End]]:
        """Take out the members that have ended, with all that they left running."""
        found = [(member, member.ended()) for member in self.members.values()]
        over = [(member, end) for member, end in found if end is not None]
        if over:
            self._kill([member for member, _ in over])
        return over

    def ended_used_s(self) -> float:
        """Return the CPU time of all members that ended, and of their children."""
        used = getrusage(RUSAGE_CHILDREN)
        return used.ru_utime + used.ru_stime

    def ask(self) -> None:
        """Ask all to stop, and give each as much of the CPUs for it."""
        self.count()
        if self.members:
            share = 1 / len(self.members)
            self._node.means.set_shares(dict.fromkeys(self.members, share))
        for member in self.members.values():
            member.ask()

    def kill_late(self, asked_s: float) -> None:
        """Kill those whose time to stop, since *asked_s*, is over."""
        now_s = self._node.clock.elapsed_s()
        late = [
            member
            for member in self.members.values()
            if now_s - asked_s > member.berth.job.stop.kill_after_s
        ]
        for member in late:
            tell((member.process.pid,), SIGKILL)

    def close(self) -> None:
        """Kill whoever is left, and leave nothing behind."""
        self._kill(list(self.members.values()))
        self._node.means.close()

    def _berth(self, job: TrainerJob, after: int) -> Berth:
        folder = member_folder(self._node.run, job.name)
        path = job.checkpoint.path
        run = (
            RunDir(path) if job.elastic and path is not None else RunDir(folder / "run")
        )
        # Above the pack's own, so that the logs of a program that knows nothing of
        # generations are told apart by them; and one that failed before it claimed
        # its number has an outcome there.
        number = max(self._node.generation, run.newest_generation() + 1, after + 1)
        return Berth(job, run, job.logs or folder / "logs", number)

    def _pids(self) -> dict[str, tuple[int, ...]]:
        marked = members_of(self._node.packer)
        return {
            name: (*marked.get(name, ()), *self._node.means.pids(name))
            for name in self.members
        }

    def _kill(self, members: list[Member]) -> None:
        """Kill all processes of *members*: again, as some may just be starting more."""
        until_s = self._node.clock.elapsed_s() + KILLED_WITHIN_S
        names = [member.name for member in members]
        while True:
            found = self._pids()
            left = {pid for name in names for pid in found[name] if is_there(pid)}
            left |= {m.process.pid for m in members if m.process.poll() is None}
            if not left or self._node.clock.elapsed_s() > until_s:
                break
            tell(left, SIGKILL)
            self._node.clock.sleep(_AGAIN_S)
        for name in names:
            del self.members[name]
            self._node.means.release(name)


# ----------------------------------------------------------------------
# Where a pack's members come from: a list, and a folder that is looked into.


class Intake(Protocol):
    """Says who wants to be a member."""

    def arrivals(self) -> tuple[TrainerJob, ...]:
        """Return those that came since the last call, each name once and for all."""
        ...


class Files:
    """Job files: those that the pack names, and what appears in its inbox."""

    def __init__(
        self, pack: Pack, *, home: Path | None, say: Callable[[str], None]
    ) -> None:
        """Read the job files that the pack names.

        Args:
            pack: The pack.
            home: What ``~`` stands for.
            say: Where to complain about files of the inbox.

        Raises:
            FreeTrainError: One of them is no job file, or no trainer for a pack.
        """
        self._home = home
        self._say = say
        self._inbox = pack.inbox
        self._known: dict[str, Path] = {}
        self._taken: dict[Path, str] = {}
        self._seen: dict[Path, tuple[int, int]] = {}
        self._first = tuple(self._read(path) for path in pack.members)

    def arrivals(self) -> tuple[TrainerJob, ...]:
        """Return those that the pack names, once, and what is new in the inbox."""
        first, self._first = self._first, ()
        return (*first, *self._new())

    def _new(self) -> Iterator[TrainerJob]:
        for path in self._listed():
            try:
                found = path.stat()
                version = (found.st_mtime_ns, found.st_size)
                if self._seen.get(path) == version:
                    continue
                self._seen[path] = version
                if path not in self._known.values():
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
        why = _unfit(job)
        if not why and job.name in self._known:
            why = f"{self._known[job.name]} has a trainer {job.name!r} already"
        why = why or self._where_shared(job)
        if why:
            raise BadConfigurationError(
                f"{path}: {why}. It was not started; give the pack another job file."
            )
        self._known[job.name] = path
        self._taken |= dict.fromkeys(_places(job), job.name)
        return job

    def _where_shared(self, job: TrainerJob) -> str:
        """Return what *job* would share with another member, empty for nothing."""
        for place in _places(job):
            if place in self._taken:
                return f"the trainer {self._taken[place]!r} has {place} already"
        return ""


def _places(job: TrainerJob) -> tuple[Path, ...]:
    named = (job.checkpoint.path, job.logs)
    return tuple(path.resolve() for path in named if path is not None)


def _unfit(job: TrainerJob) -> str:
    if job.launch.pack is not None:
        return "this is a pack, and packs are no members of packs"
    if job.nodes.min_nodes > 1:
        return f"the trainer needs {job.nodes.min_nodes} nodes, and a pack has one"
    if job.launch.processes_per_node > 1:
        return "members of a pack are one process each, and processes_per_node is more"
    return ""


# ----------------------------------------------------------------------
# The loop of a pack: take members in, share the CPUs, notice ends, stop all.

TURN_S = 0.1
"""How often ends, arrivals and requests to stop are noticed."""

LOOK_S = 1.0
"""How often processes are listed and progress is read."""

KEEP_S = 5.0
"""How often shares are kept while nobody comes or goes: a commit waits for the disk,
and members that take turns wait with it."""

STAND_S = 30.0
"""How often it is kept how members stand, whatever happens: people look at it."""


class Loop:
    """Runs the members of a pack until all are over, or somebody asks to stop."""

    def __init__(  # noqa: PLR0913 -- only the edge makes one
        self,
        pack: Pack,
        node: Node,
        *,
        crew: Crew,
        intake: Intake,
        sharing: Sharing,
        record: Record,
        say: Callable[[str], None],
    ) -> None:
        self._pack = pack
        self._node = node
        self._crew = crew
        self._intake = intake
        self._sharing = sharing
        self._record = record
        self._say = say
        self._is_shared = False
        self._waiting: dict[str, TrainerJob] = {}  # that failed, until they are due
        self._zero_s = node.clock.elapsed_s() - record.ran_s
        self._looked_s = self._kept_s = -math.inf
        self._busy_s = self._now_s()

    def run(self, stop_wanted: Callable[[], bool]) -> bool:
        """Run members until all are over or *stop_wanted*; none is left then.

        Returns:
            Whether nothing was left to do: it was not asked, or in vain.
        """
        try:
            while not stop_wanted():
                self._step()
                if self._is_idle():
                    return True
                self._sleep()
            return self._stop()
        finally:
            self._crew.close()
            self._keep()

    def _step(self) -> None:
        for job in (*self._intake.arrivals(), *self._due()):
            self._take(job)
        self._notice_ends()
        self._look()

    def _is_idle(self) -> bool:
        now_s = self._now_s()
        is_busy = bool(self._crew.members or self._waiting)
        if is_busy:
            self._busy_s = now_s
        return now_s - self._busy_s >= self._pack.stay_s and not is_busy

    def _stop(self) -> bool:
        asked_s = self._node.clock.elapsed_s()
        self._say("asked to stop")
        self._crew.ask()
        while self._crew.members:
            self._sleep()
            self._notice_ends()
            self._crew.kill_late(asked_s)
        return self._is_all_over()

    def _is_all_over(self) -> bool:
        """Tell whether nobody is left, those included who have not been taken in."""
        lines = self._record.members
        names = {*lines, *(job.name for job in self._intake.arrivals())}
        return all(name in lines and lines[name].is_over for name in names)

    def _now_s(self) -> float:
        return self._node.clock.elapsed_s() - self._zero_s

    def _sleep(self) -> None:
        due_s = self._node.means.turn(self._node.clock.elapsed_s())
        self._node.clock.sleep(min(TURN_S, due_s))

    def _due(self) -> list[TrainerJob]:
        """Take out those that failed and whose pause is over."""
        lines, now_s = self._record.members, self._now_s()
        due = [n for n in self._waiting if (lines[n].again_s or 0.0) <= now_s]
        return [self._waiting.pop(name) for name in due]

    def _take(self, job: TrainerJob) -> None:
        now_s = self._now_s()
        line = self._record.members.setdefault(job.name, Line(arrived_s=now_s))
        if line.is_over:
            return
        if line.again_s is not None and line.again_s > now_s:
            self._waiting[job.name] = job
            return
        line.ended_s, line.end, line.message = None, "", ""
        line.again_s, line.started_s = None, now_s
        try:
            berth = self._crew.start(job, after=line.generation)
        except OSError as error:
            line.message = one_line(f"it cannot be started: {error}")
            self._count_failure(job, line.committed_step)
            self._over(job.name, End.FAILED)
            return
        line.generation = berth.generation
        self._say(f"{job.name} started, generation {berth.generation}")

    def _notice_ends(self) -> None:
        for member, end in self._crew.ended():
            self._hear(member)
            if end is End.FAILED:
                self._record.members[member.name].message = member.why_failed()
                if not member.is_asked:
                    self._count_failure(member.berth.job, member.committed_step)
            self._over(member.name, end)

    def _count_failure(self, job: TrainerJob, committed_step: int) -> None:
        line, now_s = self._record.members[job.name], self._now_s()
        count_failure(line, job, committed_step=committed_step, now_s=now_s)
        if line.again_s is not None:
            self._waiting[job.name] = job

    def _over(self, name: str, end: End) -> None:
        line = self._record.members[name]
        line.ended_s, line.end = self._now_s(), str(end)
        how = how_it_failed(line) if end is End.FAILED else str(end)
        self._say(f"{name} {how}")
        if line.again_s is not None:
            pause_s = line.again_s - line.ended_s
            self._say(f"{name} is started again in {pause_s:.3g} s")
        self._looked_s = -math.inf  # what it did last is to be told
        self._keep()

    def _look(self) -> None:
        now_s = self._now_s()
        members = self._crew.members
        is_due = bool(members) and self._sharing.is_due(members, now_s)
        if now_s - self._looked_s < LOOK_S and not is_due:
            return
        self._looked_s = now_s
        self._crew.count()
        for member in members.values():
            self._hear(member)
        if is_due:
            self._share(now_s)
        elif members and not self._is_shared:  # as the generation before shared
            self._set_shares()
        self._tell()
        if now_s - self._kept_s >= STAND_S:
            self._keep()

    def _hear(self, member: Member) -> None:
        sign = -1.0 if self._pack.better is Better.HIGHER else 1.0
        member.hear(self._pack.metric, sign=sign, now_s=self._now_s())
        line = self._record.members[member.name]
        line.steps, line.samples = member.done

    def _share(self, now_s: float) -> None:
        members = self._crew.members.values()
        seen = [
            Seen(
                name=member.name,
                values=tuple(pair for pair in member.values if pair[0] <= now_s),
                used_s=member.used_s / self._node.cpus,
            )
            for member in members
        ]
        self._record.shares = self._sharing.look(seen, now_s)
        for member in members:
            member.forget(self._sharing.measured_s(member.name))
        self._set_shares()
        if now_s - self._kept_s >= KEEP_S:
            self._keep()

    def _set_shares(self) -> None:
        shares, self._is_shared = self._record.shares, True
        try:
            self._node.means.set_shares(shares)
        except OSError as error:
            self._say(f"shares could not be set, and stay as they were: {error}")
        self._say(", ".join(self._words(name, part) for name, part in shares.items()))

    def _words(self, name: str, share: float) -> str:
        return f"{name} {per_cent(share)} ({self._sharing.words(name)})"

    def _tell(self) -> None:
        """Tell the planner how quick the members are together."""
        lines = self._record.members.values()
        with suppress(OSError):  # a full disk costs lines, never the training
            tell_progress(
                self._node.run.progress,
                t=self._node.clock.unix_s(),
                step=sum(line.steps for line in lines),
                samples=sum(line.samples for line in lines),
                generation=self._node.generation,
            )

    def _keep(self) -> None:
        self._kept_s = self._record.ran_s = self._now_s()
        self._record.used_s = self._crew.ended_used_s()
        self._record.means = str(self._node.means.name)
        self._record.sharing = self._sharing.remember()
        try:
            write_record(self._node.run, self._record)
        except OSError as error:
            self._say(f"how members stand could not be kept: {error}")


# ----------------------------------------------------------------------
# Who gets how much of the CPUs: FlowCon, or all the same.


class Sharing(Protocol):
    """Says what part of the CPUs each member gets."""

    def is_due(self, names: Iterable[str], now_s: float) -> bool:
        """Tell whether to look now."""
        ...

    def look(self, seen: Sequence[Seen], now_s: float) -> dict[str, float]:
        """Return each one's part, above 0; 1 in all."""
        ...

    def measured_s(self, name: str) -> float:
        """Return until when the values of a member need not be shown any more."""
        ...

    def remember(self) -> dict[str, object]:
        """Return what it must be told when the pack goes on elsewhere, as JSON."""
        ...

    def words(self, name: str) -> str:
        """Return what it thinks of a member."""
        ...


def sharing_of(pack: Pack, remembered: Mapping[str, object]) -> Sharing:
    """Return the sharing that *pack* wants, going on from what was remembered."""
    if pack.sharing is SharingName.FAIR:
        return FairSharing()
    how = Settings(interval_s=pack.interval_s, alpha=pack.alpha)
    return FlowConSharing(how, from_json(remembered))


class FairSharing:
    """All the same, whatever they do."""

    def __init__(self) -> None:
        self._names: frozenset[str] = frozenset()

    def is_due(self, names: Iterable[str], now_s: float) -> bool:
        """Tell whether somebody came or went."""
        del now_s
        return self._names != frozenset(names)

    def look(self, seen: Sequence[Seen], now_s: float) -> dict[str, float]:
        """Return equal parts."""
        del now_s
        self._names = frozenset(one.name for one in seen)
        return {one.name: 1 / len(seen) for one in seen}

    def measured_s(self, name: str) -> float:
        """Nobody's values are looked at."""
        del name
        return float("inf")

    def remember(self) -> dict[str, object]:
        """Nothing is."""
        return {}

    def words(self, name: str) -> str:
        """Nothing is thought."""
        del name
        return "equal"


class FlowConSharing:
    """By growth efficiency."""

    def __init__(self, how: Settings, state: State = State()) -> None:  # noqa: B008
        self._how = how
        self._state = state

    def is_due(self, names: Iterable[str], now_s: float) -> bool:
        """Tell whether it is time, or somebody came or went."""
        return is_due(self._state, names, now_s)

    def look(self, seen: Sequence[Seen], now_s: float) -> dict[str, float]:
        """Return each one's part."""
        self._state = look(self._state, seen, now_s, self._how)
        return self._state.shares

    def measured_s(self, name: str) -> float:
        """Return the end of the member's last measured stretch."""
        found = [t.measured_s for t in self._state.tracks if t.name == name]
        return found[0] if found else 0.0

    def remember(self) -> dict[str, object]:
        """Return lists and back-off."""
        return to_json(self._state)

    def words(self, name: str) -> str:
        """Return a member's list and growth."""
        for track in self._state.tracks:
            if track.name == name:
                growth = "-" if track.growth is None else f"{track.growth:.3g}"
                return f"{track.place} {growth}"
        return "-"


# ----------------------------------------------------------------------
# One fragment of a pack: begun, run and ended as elastic programs are.

DEFAULT_RUN_DIR = "freetrain-run"


class MembersFailedError(Exception):
    """Members failed; the others are over."""


@dataclass(frozen=True, slots=True)
class Fragment:
    """One launch of a pack.

    Attributes:
        pack: What its user wrote.
        setting: What it works with.
        generation: Its number.
        environment: This process' variables.
        say: Where it tells people how it goes.
    """

    pack: Pack
    setting: Setting
    generation: int
    environment: Mapping[str, str]
    say: Callable[[str], None]


def run_pack(
    path: Path,
    environment: Mapping[str, str],
    *,
    clock: Clock,
    say: Callable[[str], None],
) -> Ending:
    """Run the pack of the file at *path* until it is over or is asked to stop.

    Writes the outcome, as docs/training-program.md has it. Call it on the main
    thread, where Python lets signals be handled.

    Args:
        path: The pack file, absolute.
        environment: This process' variables.
        clock: The clocks to go by.
        say: Where it tells people how it goes.

    Raises:
        LaunchError: The launch is wrong; nothing was started.
        FreeTrainError: The pack or a job file is wrong; nothing was started.
        MembersFailedError: Members failed. Those that did not are over.
    """
    launch = read_launch(environment)
    run = RunDir(Path(launch.run_dir or DEFAULT_RUN_DIR).absolute())
    setting = Setting(launch, run, 0.0, 0.0, clock)
    signals = StopSignals(launch.stop_signals)
    try:
        pack = read_pack(path, home=_home(environment))
        stop, why = wait_for_predecessor(setting, LoneWorld(), signals)
        generation = launch.generation or run.newest_generation() + 1
        fragment = Fragment(pack, setting, generation, environment, say)
        if stop:
            given_up = stop is Stop.FOR_GOOD
            ending = Ending.DO_NOT_RESTART if given_up else Ending.RESCALED
            return _end(fragment, ending, why)
        # From now on a failure is this generation's.
        setting = replace(setting, launch=replace(launch, generation=generation))
        CheckpointStore(run, generation=generation).claim()
        return _end(fragment, _run(fragment, signals), "")
    except BaseException as error:
        fail(setting, None, None, error)
        raise
    finally:
        signals.ignore()


def _run(fragment: Fragment, signals: StopSignals) -> Ending:
    run, clock = fragment.setting.run, fragment.setting.clock
    file = StopFile(run.stop_request(fragment.generation), clock=clock)
    home = _home(fragment.environment)
    intake = Files(fragment.pack, home=home, say=fragment.say)
    node, record = _node(fragment), read_record(run)
    loop = Loop(
        fragment.pack,
        node,
        crew=Crew(node),
        intake=intake,
        sharing=sharing_of(fragment.pack, record.sharing),
        record=record,
        say=fragment.say,
    )

    def is_superseded() -> bool:
        with suppress(OSError):
            return run.newest_generation() > fragment.generation
        return False

    is_over = loop.run(lambda: signals.came or file.is_there() or is_superseded())
    if is_superseded():
        return Ending.SUPERSEDED
    failed = [
        f"{name} {how_it_failed(line)}"
        for name, line in record.members.items()
        if line.end == End.FAILED
    ]
    if is_over and failed:
        raise MembersFailedError(f"{'; '.join(failed)}. Their logs are in {run.path}")
    return Ending.FINISHED if is_over else Ending.RESCALED


def _home(environment: Mapping[str, str]) -> Path | None:
    home = environment.get("HOME")
    return Path(home) if home else None


def _node(fragment: Fragment) -> Node:
    run = fragment.setting.run
    packer = this_packer(pack_id(run))
    cpus = sorted(os.sched_getaffinity(0))[: fragment.pack.cpus]
    os.sched_setaffinity(0, cpus)  # members inherit it
    sweep(packer, fragment.setting.clock)
    means = choose(
        fragment.pack.means,
        places=own_places(),
        folders=KernelFolders(),
        packer=packer,
        cpus=cpus,
    )
    fragment.say(f"sharing {len(cpus)} CPUs by {means.name}")
    return Node(
        run=run,
        generation=fragment.generation,
        packer=packer,
        means=means,
        cpus=len(cpus),
        environment=fragment.environment,
        clock=fragment.setting.clock,
    )


def pack_id(run: RunDir) -> str:
    """Return what tells the pack of *run* from all others, the same at each start."""
    return sha256(os.fsencode(run.path)).hexdigest()[:16]


def sweep(packer: Packer, clock: Clock) -> None:
    """End what earlier packers of this pack left on this node, and did not end."""
    until_s = clock.elapsed_s() + KILLED_WITHIN_S
    while (left := left_behind(packer)) and clock.elapsed_s() < until_s:
        tell(left, SIGKILL)
        clock.sleep(0.01)
    folders = KernelFolders()
    for place in own_places():
        for group in groups_where(place, folders, packer.has_left):
            remove_group(folders, group, kills=True)


def _end(fragment: Fragment, ending: Ending, message: str) -> Ending:
    # What members have done is for each of them to commit.
    lines = read_record(fragment.setting.run).members.values()
    steps = sum(line.steps for line in lines)
    with suppress(OSError):  # the launcher has the exit code to go by
        write_outcome(
            fragment.setting.run,
            Outcome(
                ending=ending,
                generation=fragment.generation,
                step=steps,
                committed_step=steps,
                message=message,
                t=fragment.setting.clock.unix_s(),
            ),
        )
    return ending
