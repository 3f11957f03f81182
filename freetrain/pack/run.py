"""Run a pack: several small trainers on one node, which share its CPUs.

One launch of a pack is a fragment, which begins, runs and ends as elastic programs do.
``main`` is the command and ``run_pack`` one fragment. ``PackLoop`` is its loop: start
members, share the CPUs, notice ends, stop all. ``Workers`` starts and ends the
processes of members (``RunningMember``).
"""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage
from signal import SIGKILL
from typing import TYPE_CHECKING

from freetrain.elastic.checkpoint import CheckpointStore
from freetrain.elastic.contract import (
    ElasticError,
    Outcome,
    OutcomeKind,
    Stop,
    StopFile,
    StopSignals,
    read_launch,
    read_outcome,
    write_outcome,
)
from freetrain.elastic.files import Clock, RunDir
from freetrain.elastic.fragment import wait_for_predecessor, write_failure
from freetrain.elastic.world import LoneWorld
from freetrain.errors import FreeTrainError
from freetrain.launch.base import (
    DEVICE_VARIABLES,
    LEASE_MARK,
    WORLD_MARK,
    contract_variables,
    is_passed_on,
    job_variables,
)
from freetrain.losscurve.forecast import MetricDirection
from freetrain.opening import check_own, open_plain
from freetrain.pack.cpu_controllers import (
    MARK,
    KernelCgroups,
    choose_controller,
    is_there,
    left_behind,
    members_of,
    own_cgroups,
    packers_groups,
    remove_group,
    signal_all,
    this_packer,
    used_s,
)
from freetrain.pack.exchange import PackExchange
from freetrain.pack.pack import (
    Inbox,
    MemberEnd,
    MemberRecord,
    SharingName,
    append_progress,
    count_failure,
    how_it_failed,
    member_folder,
    read_pack,
    read_record,
    write_record,
)
from freetrain.priority import flowcon
from freetrain.priority.migration import PackLoad, PackMember
from freetrain.progress import ProgressReader, read_tail
from freetrain.state.files import generation_name
from freetrain.text import one_line, per_cent
from slurm.runner import KEPT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from freetrain.config.job import TrainerJob
    from freetrain.pack.cpu_controllers import CpuController, Packer
    from freetrain.pack.pack import Pack, PackRecord

USAGE = """\
usage: python -m freetrain.pack PACK_FILE

Trains several small trainers on this node, which share its CPUs.
PACK_FILE is TOML; `freetrain docs packs` says what is in it. Example:

    members = ["digits/job.toml", "wine/job.toml"]
    sharing = "flowcon"
    interval = "30s"
"""


def main(arguments: list[str]) -> int:
    """Run the pack that *arguments* name; return the exit status."""
    if arguments[:1] in (["-h"], ["--help"]):
        sys.stdout.write(USAGE)
        return 0
    if len(arguments) != 1:
        sys.stderr.write(USAGE)
        return 64
    try:
        path = Path(arguments[0]).absolute()
        run_pack(path, os.environ, clock=Clock(), say=_say)
    except FreeTrainError as error:
        sys.stderr.write(f"error: {error}\n")
        return error.exit_code
    except (ElasticError, MembersFailedError, OSError) as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    return 0


def _say(line: str) -> None:
    sys.stdout.write(f"pack: {line}\n")
    sys.stdout.flush()


# One fragment of a pack.

_DEFAULT_RUN_DIR = "freetrain-run"


class MembersFailedError(Exception):
    """Members failed; the others are over."""


def run_pack(
    path: Path,
    environment: Mapping[str, str],
    *,
    clock: Clock,
    say: Callable[[str], None],
) -> OutcomeKind:
    """Run the pack of the file at *path* until it is over or is asked to stop.

    Writes the outcome of this generation. Call it on the main thread, where Python
    lets signals be handled.

    Args:
        path: The pack file, absolute.
        environment: This process' variables.
        clock: The clocks to go by.
        say: Prints a line for people.

    Raises:
        LaunchError: The launch is wrong; nothing was started.
        FreeTrainError: The pack or a job file is wrong; nothing was started.
        MembersFailedError: Members failed; the others are over.
    """
    launch = read_launch(environment)
    run = RunDir(Path(launch.run_dir or _DEFAULT_RUN_DIR).absolute())
    home = Path(environment["HOME"]) if environment.get("HOME") else None
    signals = StopSignals(launch.stop_signals)
    generation = launch.generation
    try:
        pack = read_pack(path, home=home)
        stop, why = wait_for_predecessor(launch, run, LoneWorld(), signals, clock)
        if generation is None:
            generation = run.newest_generation() + 1
        if stop is Stop.NO:
            CheckpointStore(run, generation=generation).claim()
            inbox = Inbox(pack, home=home, say=say)
            packer, cpus, controller = _own_node(pack, run, clock, say)
            exchange = _exchange(pack, run, inbox, say)
            workers = Workers(
                run=run,
                home=run if pack.exchange is None else RunDir(pack.exchange),
                generation=generation,
                packer=packer,
                controller=controller,
                cpus=cpus,
                environment=environment,
                clock=clock,
            )
            kind = _run_members(
                pack, workers, inbox, exchange, signals=signals, say=say
            )
        else:
            gave_up = stop is Stop.FOR_GOOD
            kind = OutcomeKind.DO_NOT_RESTART if gave_up else OutcomeKind.RESCALED
        _write_outcome(run, generation, kind, why, unix_s=clock.unix_s())
    except BaseException as error:
        write_failure(run, generation, error, clock=clock)
        raise
    finally:
        signals.ignore()
    return kind


def _own_node(
    pack: Pack, run: RunDir, clock: Clock, say: Callable[[str], None]
) -> tuple[Packer, int, CpuController]:
    """Make this process the packer of its node, and choose a controller of shares.

    Returns:
        This process, the number of CPUs of all members, and the controller.
    """
    packer = this_packer(pack_id(run))
    cpus = sorted(os.sched_getaffinity(0))[: pack.cpus]
    os.sched_setaffinity(0, cpus)  # members inherit it
    sweep(packer, clock)
    controller = choose_controller(
        pack.means,
        parents=own_cgroups(),
        cgroups=KernelCgroups(),
        packer=packer,
        cpus=cpus,
    )
    say(f"sharing {len(cpus)} CPUs by {controller.name}")
    return packer, len(cpus), controller


def _exchange(
    pack: Pack, run: RunDir, inbox: Inbox, say: Callable[[str], None]
) -> PackExchange | None:
    if pack.exchange is None:
        return None
    return PackExchange(
        pack.exchange, pack=str(run.path), rule=pack.moves, inbox=inbox, say=say
    )


def pack_id(run: RunDir) -> str:
    """Return an identifier of the pack of *run*, the same in each generation."""
    return sha256(os.fsencode(run.path)).hexdigest()[:16]


def sweep(packer: Packer, clock: Clock) -> None:
    """Kill processes and remove groups that earlier packers of this pack left here."""
    until_s = clock.elapsed_s() + _KILLED_WITHIN_S
    while True:
        left, are_all = left_behind(packer)
        if (are_all and not left) or clock.elapsed_s() >= until_s:
            break
        signal_all(left, SIGKILL)
        clock.sleep(0.01)
    cgroups = KernelCgroups()
    for _, parent in own_cgroups():
        for group in packers_groups(parent, cgroups, packer.has_left):
            remove_group(cgroups, group, kills=True)


def _run_members(  # noqa: PLR0913 -- only run_pack calls it
    pack: Pack,
    workers: Workers,
    inbox: Inbox,
    exchange: PackExchange | None,
    *,
    signals: StopSignals,
    say: Callable[[str], None],
) -> OutcomeKind:
    run, generation = workers.run, workers.generation
    stop_file = StopFile(run.stop_request(generation), clock=workers.clock)
    record = read_record(run)

    def is_superseded() -> bool:
        with suppress(OSError):
            return run.newest_generation() > generation
        return False

    loop = PackLoop(
        pack,
        workers,
        arrivals=inbox.arrivals,
        sharing=Sharing(pack, record.sharing),
        record=record,
        say=say,
        exchange=exchange,
    )
    is_over = loop.run(lambda: signals.came or stop_file.is_there() or is_superseded())
    if is_superseded():
        return OutcomeKind.SUPERSEDED
    failed = [
        f"{name} {how_it_failed(member)}"
        for name, member in record.members.items()
        if not member.is_over  # such as one whose job file could not be read now
    ]
    if is_over and failed:
        where = workers.home.path
        raise MembersFailedError(f"{'; '.join(failed)}. Their logs are in {where}")
    return OutcomeKind.FINISHED if is_over else OutcomeKind.RESCALED


def _write_outcome(
    run: RunDir, generation: int, kind: OutcomeKind, message: str, *, unix_s: float
) -> None:
    steps, _ = read_record(run).done  # each member commits its own
    with suppress(OSError):  # the launcher has the exit code to go by
        write_outcome(
            run,
            Outcome(
                kind=kind,
                generation=generation,
                step=steps,
                committed_step=steps,
                message=message,
                t=unix_s,
            ),
        )


# The loop.

_TURN_S = 0.1
"""How often ends, arrivals and requests to stop are noticed."""

_LIST_EVERY_S = 1.0
"""How often processes are listed and progress is read."""

_SAVE_SHARES_EVERY_S = 5.0
"""How often shares are saved while no member comes or goes: saving waits for the disk,
and members that take turns wait with it."""

_SAVE_EVERY_S = 30.0
"""How often the record is saved at least: people look at it."""


_OFFER_S = 30.0
"""An offer to a pack that does not take it within this time is taken back."""

_CLAIM_AGAIN_S = 5.0
"""Time after which a member is claimed again where the file system failed."""


@dataclass(frozen=True, slots=True)
class Offer:
    """A member that is offered to another pack.

    Attributes:
        job: The member.
        to: The other pack.
        until_s: When it is taken back, in seconds of the pack's running time.
    """

    job: TrainerJob
    to: str
    until_s: float


class PackLoop:
    """Runs the members of a pack until all are over or a stop is asked for."""

    def __init__(  # noqa: PLR0913 -- only run_pack makes one
        self,
        pack: Pack,
        workers: Workers,
        *,
        arrivals: Callable[[], Iterable[TrainerJob]],
        sharing: Sharing,
        record: PackRecord,
        say: Callable[[str], None],
        exchange: PackExchange | None = None,
    ) -> None:
        self._pack = pack
        self._workers = workers
        self._arrivals = arrivals
        self._sharing = sharing
        self._record = record
        self._say = say
        self._exchange = exchange
        self._is_shared = False
        self._waiting: dict[str, TrainerJob] = {}  # to be started again, until due
        self._leaving: dict[str, str] = {}  # the packs to which members are to move
        self._offers: dict[str, Offer] = {}
        self._staying: set[str] = set()  # members that another pack did not take
        self._zero_s = workers.clock.elapsed_s() - record.ran_s
        self._listed_s = self._saved_s = -math.inf
        self._busy_s = self._now_s()
        self._move_due_s = self._now_s() + pack.interval_s

    def run(self, stop_wanted: Callable[[], bool]) -> bool:
        """Run members until all are over or *stop_wanted*; none is left then.

        Returns:
            Whether all members are over, so that no later generation is needed.
        """
        try:
            while not stop_wanted():
                self._step()
                if self._is_idle():
                    return True
                self._sleep()
            return self._stop()
        finally:
            self._workers.close()
            self._save()
            if self._exchange is not None:
                self._exchange.withdraw()

    def _step(self) -> None:
        for job in (*self._arrivals(), *self._due()):
            self._start(job)
        self._workers.kill_late()
        self._notice_ends()
        self._look_at_members()

    def _is_idle(self) -> bool:
        now_s = self._now_s()
        is_busy = bool(self._workers.members or self._waiting or self._offers)
        is_busy = is_busy or (self._exchange is not None and self._exchange.is_unread)
        if is_busy:
            self._busy_s = now_s
        return now_s - self._busy_s >= self._pack.stay_s and not is_busy

    def _stop(self) -> bool:
        self._say("asked to stop")
        self._leaving.clear()  # they go on in the next generation
        self._workers.ask_all_to_stop()
        while self._workers.members:
            self._sleep()
            self._notice_ends()
            self._workers.kill_late()
        return self._is_all_over()

    def _is_all_over(self) -> bool:
        """Tell whether all members are over, those not started yet included."""
        records, exchange = self._record.members, self._exchange
        coming = (*self._arrivals(), *(exchange.arrivals() if exchange else ()))
        names = {*records, *(job.name for job in coming)}
        if exchange is not None and exchange.is_unread:
            return False
        return all(name in records and records[name].is_over for name in names)

    def _now_s(self) -> float:
        return self._workers.clock.elapsed_s() - self._zero_s

    def _sleep(self) -> None:
        due_s = self._workers.controller.turn(self._workers.clock.elapsed_s())
        self._workers.clock.sleep(min(_TURN_S, due_s))

    def _due(self) -> list[TrainerJob]:
        """Take out members whose pause is over."""
        records, now_s = self._record.members, self._now_s()
        due = [n for n in self._waiting if (records[n].again_s or 0.0) <= now_s]
        return [self._waiting.pop(name) for name in due]

    def _start(self, job: TrainerJob) -> None:
        now_s = self._now_s()
        record = self._record.members.setdefault(
            job.name, MemberRecord(arrived_s=now_s)
        )
        has_left = record.end == MemberEnd.MOVED  # and may be back
        if (record.is_over and not has_left) or job.name in self._workers.members:
            return
        if record.again_s is not None and record.again_s > now_s:
            self._waiting[job.name] = job
            return
        try:
            if self._exchange is not None and not self._is_ours(job, self._exchange):
                return
            record.ended_s, record.end, record.message = None, "", ""
            record.again_s, record.started_s = None, now_s
            generation = self._workers.start(job, after=record.generation)
        except (OSError, FreeTrainError) as error:
            record.message = one_line(f"it cannot be started: {error}")
            self._count_failure(job, record.committed_step)
            self._note_end(job.name, MemberEnd.FAILED)
            return
        record.generation = generation
        self._say(f"{job.name} started, generation {generation}")

    def _notice_ends(self) -> None:
        for member, end in self._workers.ended():
            self._read_progress(member)
            record = self._record.members[member.name]
            if end in _UNDONE:
                record.message = member.why_failed()
            to = self._leaving.pop(member.name, "")
            if end is MemberEnd.FAILED and not member.is_asked:
                self._count_failure(member.job, member.committed_step)
            elif end in _UNDONE and (to or not member.is_asked):
                pause_s = member.job.restart.pause_s(max(1, record.failures))
                record.again_s = self._now_s() + pause_s
                self._waiting[member.name] = member.job
            self._note_end(member.name, end)
            if to and end is MemberEnd.STOPPED:
                self._offer(member.job, to)

    def _count_failure(self, job: TrainerJob, committed_step: int) -> None:
        record, now_s = self._record.members[job.name], self._now_s()
        count_failure(record, job, committed_step=committed_step, now_s=now_s)
        if record.again_s is not None:
            self._waiting[job.name] = job

    def _note_end(self, name: str, end: MemberEnd) -> None:
        record = self._record.members[name]
        record.ended_s, record.end = self._now_s(), str(end)
        how = how_it_failed(record) if end in _UNDONE else str(end)
        self._say(f"{name} {how}")
        if record.again_s is not None:
            pause_s = record.again_s - record.ended_s
            self._say(f"{name} is started again in {pause_s:.3g} s")
        self._listed_s = -math.inf  # its last steps are to be reported
        self._save()

    def _look_at_members(self) -> None:
        now_s = self._now_s()
        members = self._workers.members
        is_due = bool(members) and self._sharing.is_due(members, now_s)
        if now_s - self._listed_s < _LIST_EVERY_S and not is_due:
            return
        self._listed_s = now_s
        self._workers.list_processes()
        for member in members.values():
            self._read_progress(member)
        if is_due:
            self._share(now_s)
        elif members and not self._is_shared:  # as the generation before shared
            self._set_shares()
        self._report_progress()
        if self._exchange is not None:
            self._exchange_members(self._exchange, now_s)
        if now_s - self._saved_s >= _SAVE_EVERY_S:
            self._save()

    # Moves of members to other packs

    def _is_ours(self, job: TrainerJob, exchange: PackExchange) -> bool:
        """Claim a member; return whether this pack has it, and is to start it.

        Raises:
            FreeTrainError: The exchange has another member of this name.
        """
        record, now_s = self._record.members[job.name], self._now_s()
        offer = self._offers.pop(job.name, None)
        is_late = offer is not None and now_s >= offer.until_s
        try:
            owner = exchange.claim(job, takes_back=is_late)
        except OSError as error:
            self._say(f"{job.name} cannot be claimed now: {error}")
            record.again_s = now_s + _CLAIM_AGAIN_S
            self._waiting[job.name] = job
            return False
        if exchange.has(owner):
            if is_late:
                self._staying.add(job.name)
            if owner.generation > record.generation or not record.generation:
                record.others_steps += owner.steps - record.steps
                record.others_samples += owner.samples - record.samples
                record.steps, record.samples = owner.steps, owner.samples
                record.generation = owner.generation  # it arrives
            return True
        if owner.pack == exchange.pack:
            self._offers[job.name] = offer or Offer(job, owner.to, now_s + _OFFER_S)
        elif record.end != MemberEnd.MOVED:
            self._note_end(job.name, MemberEnd.MOVED)
        return False

    def _offer(self, job: TrainerJob, to: str) -> None:
        """Offer a member that has committed and ended to another pack."""
        exchange, record = self._exchange, self._record.members[job.name]
        if exchange is None:
            return
        self._offers[job.name] = Offer(job, to, self._now_s() + _OFFER_S)
        try:
            exchange.offer(job.name, record, to=to)
        except (OSError, FreeTrainError) as error:  # the next look sees what came of it
            self._say(f"{job.name} could not be offered to another pack: {error}")

    def _exchange_members(self, exchange: PackExchange, now_s: float) -> None:
        """Take members in, look after own offers, tell others, and begin a move."""
        offered = [offer.job for offer in self._offers.values()]
        for job in (*exchange.arrivals(), *offered):
            self._start(job)
        members = tuple(
            self._as_seen_by_rules(member, now_s)
            for member in self._workers.members.values()
        )
        load = PackLoad(pack=exchange.pack, cpus=self._workers.cpus, members=members)
        offers = {name: offer.to for name, offer in self._offers.items()}
        try:
            exchange.announce(load, offers, now_s=now_s)
            if self._leaving or self._offers or now_s < self._move_due_s:
                return
            self._move_due_s = now_s + self._pack.interval_s
            move = exchange.next_move(load)
        except OSError as error:
            self._say(f"the exchange cannot be used now: {error}")
            return
        if move is not None:
            self._say(f"{move.member} moves to pack {move.target}")
            self._leaving[move.member] = move.target
            self._workers.ask_to_stop(move.member)

    def _as_seen_by_rules(self, member: RunningMember, now_s: float) -> PackMember:
        """Return a member as rules see it; one that has only just come stays."""
        track = self._sharing.track(member.name)
        ran_s = now_s - self._record.members[member.name].started_s
        return PackMember(
            name=member.name,
            growth=None if track is None else track.growth,
            is_slow=track is not None and track.place is flowcon.GrowthList.COMPLETING,
            can_move=member.goes_on
            and not member.is_asked
            and member.name not in self._staying
            and ran_s >= self._pack.interval_s,
        )

    # Progress and shares

    def _read_progress(self, member: RunningMember) -> None:
        sign = -1.0 if self._pack.better is MetricDirection.HIGHER else 1.0
        was_read = not member.reader.problem
        member.read_progress(self._pack.metric, sign=sign, now_s=self._now_s())
        if was_read and member.reader.problem:
            self._say(f"{member.name}: {member.reader.problem}")
        record = self._record.members[member.name]
        record.steps, record.samples = member.done

    def _share(self, now_s: float) -> None:
        members = self._workers.members.values()
        observations = [
            flowcon.GrowthSample(
                name=member.name,
                values=tuple(pair for pair in member.values if pair[0] <= now_s),
                used_s=member.used_s / self._workers.cpus,
            )
            for member in members
        ]
        self._record.shares = self._sharing.shares(observations, now_s)
        for member in members:
            member.forget(self._sharing.measured_s(member.name))
        self._set_shares()
        if now_s - self._saved_s >= _SAVE_SHARES_EVERY_S:
            self._save()

    def _set_shares(self) -> None:
        shares, self._is_shared = self._record.shares, True
        try:
            self._workers.controller.set_shares(shares)
        except OSError as error:
            self._say(f"shares could not be set, and stay as they were: {error}")
        self._say(
            ", ".join(self._share_text(name, part) for name, part in shares.items())
        )

    def _share_text(self, name: str, share: float) -> str:
        return f"{name} {per_cent(share)} ({self._sharing.describe(name)})"

    def _report_progress(self) -> None:
        """Report the progress of all members together, for the planner."""
        steps, samples = self._record.done
        with suppress(OSError):  # a full disk costs lines, never the training
            append_progress(
                self._workers.run.progress,
                t=self._workers.clock.unix_s(),
                step=steps,
                samples=samples,
                generation=self._workers.generation,
            )

    def _save(self) -> None:
        self._saved_s = self._record.ran_s = self._now_s()
        self._record.used_s = self._workers.ended_used_s()
        self._record.means = str(self._workers.controller.name)
        self._record.sharing = self._sharing.state()
        try:
            write_record(self._workers.run, self._record)
        except OSError as error:
            self._say(f"the record of members could not be saved: {error}")


# The members that run: started, listed, asked to stop, and ended.

_KILLED_WITHIN_S = 5.0
"""Time after which a process that was killed is left to the kernel."""

_AGAIN_S = 0.01


@dataclass(slots=True, kw_only=True)
class Workers:
    """The members that run on this node, in one generation of the pack.

    Attributes:
        run: The pack's run directory.
        home: Has the members' folders: the same, or the exchange.
        generation: The pack's generation.
        packer: This process.
        controller: Sets CPU shares.
        cpus: CPUs of all members together.
        environment: This process' variables.
        clock: The clocks to go by.
        members: By name, in the order in which they came.
    """

    run: RunDir
    home: RunDir
    generation: int
    packer: Packer
    controller: CpuController
    cpus: int
    environment: Mapping[str, str]
    clock: Clock
    members: dict[str, RunningMember] = field(default_factory=dict)

    def start(self, job: TrainerJob, *, after: int = 0) -> int:
        """Start a member in a session of its own, printing into its log.

        Args:
            job: The trainer.
            after: The number of its last fragment, 0 for none.

        Returns:
            The number of the fragment that began.

        Raises:
            OSError: It cannot be started.
        """
        folder = member_folder(self.home, job.name)
        path, logs = job.checkpoint.path, job.logs or folder / "logs"
        own_run = path if job.elastic and path is not None else folder / "run"
        run = RunDir(own_run)
        # Above the pack's own, so that logs of a program without generations differ;
        # and above the last one, which has an outcome even if it failed before it
        # claimed its number.
        generation = max(self.generation, run.newest_generation() + 1, after + 1)
        log = logs / f"{generation_name(generation)}.log"
        prefix = self.controller.admit(job.name)
        environment = self._variables(job, run, generation)
        try:
            for place in (run.path, logs):
                check_own(place)
            run.path.mkdir(parents=True, exist_ok=True, mode=0o700)
            logs.mkdir(parents=True, exist_ok=True, mode=0o700)
            reader = ProgressReader(job, run.path, logs)
            while reader.is_behind:  # skip the reports of earlier fragments
                reader.read()
            opened = open_plain(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, mode=0o600)
            with os.fdopen(opened, "ab") as output:
                process = subprocess.Popen(  # noqa: S603 -- the user's own command, no shell
                    (*prefix, *job.command),
                    cwd=job.directory,
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
        except OSError:
            self.controller.release(job.name)
            raise
        member = RunningMember(job, run, log, generation, process, reader)
        self.members[job.name] = member
        self.controller.follow(job.name, (process.pid,))
        return generation

    def list_processes(self) -> None:
        """List the processes of all members, and the time that they used."""
        pids_of, _ = self._pids()
        for name, pids in pids_of.items():
            self.members[name].note_processes(pids)
            self.controller.follow(name, self.members[name].pids)

    def ended(self) -> list[tuple[RunningMember, MemberEnd]]:
        """Take out the members that have ended, and kill what they left running."""
        ends = [(member, member.ended()) for member in self.members.values()]
        over = [(member, end) for member, end in ends if end is not None]
        if over:
            self._kill([member for member, _ in over])
        return over

    def ended_used_s(self) -> float:
        """Return the CPU time of all members that ended, and of their children."""
        used = getrusage(RUSAGE_CHILDREN)
        return used.ru_utime + used.ru_stime

    def ask_to_stop(self, name: str) -> None:
        """Ask one member to stop."""
        self.members[name].ask_to_stop(self.clock.elapsed_s())

    def ask_all_to_stop(self) -> None:
        """Ask all to stop, and give them equal shares of the CPUs for it."""
        self.list_processes()
        if self.members:
            share = 1 / len(self.members)
            self.controller.set_shares(dict.fromkeys(self.members, share))
        for name in self.members:
            self.ask_to_stop(name)

    def kill_late(self) -> None:
        """Kill the members whose time to stop is over; ask again where that failed."""
        now_s = self.clock.elapsed_s()
        for member in self.members.values():
            if member.is_asked and not member.is_told:
                member.ask_to_stop(now_s)
            if now_s - member.asked_s > member.job.stop.kill_after_s:
                signal_all((member.process.pid,), SIGKILL)

    def close(self) -> None:
        """Kill all members that are left, and close the controller."""
        self._kill(list(self.members.values()))
        self.controller.close()

    def _pids(self) -> tuple[dict[str, tuple[int, ...]], bool]:
        """Return the processes of each member, and whether these are all."""
        marked, are_all = members_of(self.packer)
        pids = {
            name: (*marked.get(name, ()), *self.controller.pids(name))
            for name in self.members
        }
        return pids, are_all

    def _kill(self, members: list[RunningMember]) -> None:
        """Kill all processes of *members*, repeatedly: some may just start more."""
        until_s = self.clock.elapsed_s() + _KILLED_WITHIN_S
        names = [member.name for member in members]
        while True:
            pids, are_all = self._pids()
            left = {pid for name in names for pid in pids[name] if is_there(pid)}
            left |= {m.process.pid for m in members if m.process.poll() is None}
            if (are_all and not left) or self.clock.elapsed_s() > until_s:
                break
            signal_all(left, SIGKILL)
            self.clock.sleep(_AGAIN_S)
        for name in names:
            del self.members[name]
            self.controller.release(name)

    def _variables(
        self, job: TrainerJob, run: RunDir, generation: int
    ) -> dict[str, str]:
        """Return all variables of a member: those of a trainer that is launched alone.

        It inherits the lease's marks, by which the agent finds processes that were
        left behind, the lease's devices, and the variables that Slurm's commands need.
        """
        inherited = {LEASE_MARK, WORLD_MARK, *DEVICE_VARIABLES, *KEPT}
        variables = {
            name: text
            for name, text in self.environment.items()
            if name in inherited or is_passed_on(name)
        }
        contract = contract_variables(job, run, generation, processes=1)
        mark = {MARK: f"{self.packer.label}/{job.name}"}
        return variables | job_variables(job) | contract | mark


# One member.

_MOST_VALUES = 20_000
"""Values of the metric that are kept between two sharings; the oldest are dropped."""

_LONGEST_REASON = 200
"""Characters that are kept of why a member failed."""

_TAIL_BYTES = 4_096

_BY_OUTCOME = {
    OutcomeKind.FINISHED: MemberEnd.FINISHED,
    OutcomeKind.DO_NOT_RESTART: MemberEnd.GAVE_UP,
    OutcomeKind.NOT_STARTED: MemberEnd.NOT_STARTED,
}
"""Outcomes of elastic programs that override their exit status."""

_UNDONE = {MemberEnd.FAILED, MemberEnd.NOT_STARTED}
"""Ends that have a reason, and after which a member is started again."""


@dataclass(slots=True)
class RunningMember:
    """A member that runs.

    Attributes:
        job: Its job file.
        run: Its run directory.
        log: The file of its output.
        generation: The number of its fragment.
        process: Its first process.
        reader: Reads its progress.
        values: Time of reading and value of the metric, the newest last.
        pids: Its processes when they were listed last.
        used_s: CPU time so far.
        asked_s: When it was asked to stop, by the elapsed time of the pack's clock;
            infinity where it was not.
        is_told: Whether the request to stop could be delivered.
    """

    job: TrainerJob
    run: RunDir
    log: Path
    generation: int
    process: subprocess.Popen[bytes]
    reader: ProgressReader
    values: deque[tuple[float, float]] = field(
        default_factory=lambda: deque(maxlen=_MOST_VALUES)
    )
    pids: tuple[int, ...] = ()
    used_s: float = 0.0
    asked_s: float = math.inf
    is_told: bool = False

    @property
    def is_asked(self) -> bool:
        """Whether it was asked to stop."""
        return self.asked_s < math.inf

    @property
    def goes_on(self) -> bool:
        """Whether it goes on from a checkpoint where it is started again."""
        return self.is_elastic or self.job.checkpoint.path is not None

    @property
    def name(self) -> str:
        """The name of its trainer."""
        return self.job.name

    @property
    def is_elastic(self) -> bool:
        """Whether its program reads stop requests and writes outcomes."""
        return self.job.elastic

    @property
    def done(self) -> tuple[int, float]:
        """Steps and samples done, as far as it reported."""
        progress = self.reader.latest()
        if progress is None:
            return 0, 0.0
        return progress.step or 0, progress.samples or 0.0

    def read_progress(self, metric: str, *, sign: float, now_s: float) -> None:
        """Read the values of *metric* reported since the last call, times *sign*."""
        for record in self.reader.read():
            value = record.metrics.get(metric)
            if value is not None:
                self.values.append((now_s, sign * value))

    def forget(self, until_s: float) -> None:
        """Drop the values that were read until then."""
        while self.values and self.values[0][0] <= until_s:
            self.values.popleft()

    def note_processes(self, pids: Iterable[int]) -> None:
        """Note its processes, and the CPU time that they used."""
        self.pids = tuple({*pids, self.process.pid})
        self.used_s = max(self.used_s, used_s(self.pids))

    def ask_to_stop(self, now_s: float) -> None:
        """Ask it to stop: by a stop file, or by its job file's signal."""
        self.asked_s = min(self.asked_s, now_s)
        if not self.is_elastic:
            number = signal.Signals[f"SIG{self.job.stop.signal}"]
            signal_all(self.pids or (self.process.pid,), number)
            self.is_told = True
            return
        # It looks there every 0.1 s; a signal would kill a program that has no
        # handler for it yet.
        with suppress(OSError):
            self.run.control.mkdir(parents=True, exist_ok=True)
            self.run.stop_request(self.generation).touch()
            self.is_told = True

    @property
    def committed_step(self) -> int:
        """Steps in its newest checkpoint; 0 where none is known."""
        with suppress(OSError):
            if self.is_elastic and (found := self.run.committed()):
                return found[-1].step
        return 0

    def why_failed(self) -> str:
        """Return why it ended: the message of its outcome where there is one."""
        outcome = self._outcome()
        if outcome is not None and outcome.message:
            return one_line(outcome.message)[:_LONGEST_REASON]
        status, line = self.process.returncode, _last_line(self.log)
        if status is not None and status < 0:
            how = f"signal {-status}, {signal.strsignal(-status) or 'unknown'}"
            return f"{how}; {line}" if line else how
        return line or f"exit status {status}"

    def ended(self) -> MemberEnd | None:
        """Return how it ended; None while it runs."""
        status = self.process.poll()
        if status is None:
            return None
        outcome = self._outcome()
        if outcome is not None and outcome.kind in _BY_OUTCOME:
            return _BY_OUTCOME[outcome.kind]
        if self.is_asked and (status == 0 or not self.is_elastic):
            return MemberEnd.STOPPED
        is_done = status == 0 and not self.is_elastic
        return MemberEnd.FINISHED if is_done else MemberEnd.FAILED

    def _outcome(self) -> Outcome | None:
        with suppress(OSError):
            if self.is_elastic:
                return read_outcome(self.run, self.generation)
        return None


def _last_line(log: Path) -> str:
    """Return the last line that is not empty; "" where there is none."""
    text = read_tail(log, _TAIL_BYTES).decode("utf-8", "replace")
    lines = [line for line in map(one_line, text.splitlines()) if line]
    return lines[-1][:_LONGEST_REASON] if lines else ""


# The shares: equal, or by FlowCon.


class Sharing:
    """Shares by growth efficiency, or equal ones; growth is measured for both.

    Args:
        pack: Its interval and threshold.
        state: FlowCon's lists and back-off as JSON, of the generation before.
    """

    def __init__(self, pack: Pack, state: Mapping[str, object]) -> None:
        self._is_fair = pack.sharing is SharingName.FAIR
        self._settings = flowcon.FlowConSettings(
            interval_s=pack.interval_s, alpha=pack.alpha
        )
        self._state = flowcon.from_json(state)

    def is_due(self, names: Iterable[str], now_s: float) -> bool:
        """Tell whether the interval is over, or a member came or went."""
        return flowcon.is_due(self._state, names, now_s)

    def shares(
        self, observations: Sequence[flowcon.GrowthSample], now_s: float
    ) -> dict[str, float]:
        """Return the share of each member."""
        self._state = flowcon.update(self._state, observations, now_s, self._settings)
        shares = self._state.shares
        return dict.fromkeys(shares, 1 / len(shares)) if self._is_fair else shares

    def measured_s(self, name: str) -> float:
        """Return the end of the member's last measurement."""
        track = self.track(name)
        return 0.0 if track is None else track.measured_s

    def track(self, name: str) -> flowcon.GrowthTrack | None:
        """Return the growth of a member so far; None for a new one."""
        return next((t for t in self._state.tracks if t.name == name), None)

    def state(self) -> dict[str, object]:
        """Return FlowCon's lists and back-off, as JSON, for the next generation."""
        return flowcon.to_json(self._state)

    def describe(self, name: str) -> str:
        """Return a member's list and growth."""
        track = self.track(name)
        if track is None:
            return "-"
        growth = "-" if track.growth is None else f"{track.growth:.3g}"
        return f"{track.place} {growth}"
