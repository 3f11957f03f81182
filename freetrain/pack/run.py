"""Run a pack: several small trainers on one node, which share its CPUs.

One launch of a pack is a fragment, which begins, runs and ends as elastic programs do.
``main`` is the command, ``run_pack`` one fragment, ``PackLoop`` its loop: start
members, share the CPUs, notice ends, stop all.
"""

from __future__ import annotations

import math
import os
import sys
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from signal import SIGKILL
from typing import TYPE_CHECKING

from freetrain.elastic.checkpoint import CheckpointStore
from freetrain.elastic.contract import (
    ElasticError,
    Ending,
    Outcome,
    Stop,
    StopFile,
    StopSignals,
    read_launch,
    write_outcome,
)
from freetrain.elastic.files import Clock, RunDir
from freetrain.elastic.fragment import wait_for_predecessor, write_failure
from freetrain.elastic.world import LoneWorld
from freetrain.errors import FreeTrainError
from freetrain.losscurve.forecast import Better
from freetrain.pack.cpu_controllers import (
    KernelCgroups,
    choose_controller,
    own_cgroups,
    packers_groups,
    remove_group,
)
from freetrain.pack.members import KILLED_WITHIN_S, PackNode, Workers
from freetrain.pack.pack import Inbox, SharingName, read_pack
from freetrain.pack.processes import left_behind, signal_all, this_packer
from freetrain.pack.record import (
    MemberEnd,
    MemberRecord,
    append_progress,
    count_failure,
    how_it_failed,
    read_record,
    write_record,
)
from freetrain.priority import flowcon
from freetrain.text import one_line, per_cent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from freetrain.config.job import TrainerJob
    from freetrain.pack.cpu_controllers import CpuController
    from freetrain.pack.members import Member
    from freetrain.pack.pack import Pack
    from freetrain.pack.processes import Packer
    from freetrain.pack.record import PackRecord

USAGE = """\
usage: python -m freetrain.pack PACK_FILE

Trains several small trainers on this node, which share its CPUs by how they grow.
PACK_FILE is TOML; docs/reference/packs.md says what is in it. Example:

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
) -> Ending:
    """Run the pack of the file at *path* until it is over or is asked to stop.

    Writes the outcome, as docs/reference/run-directory.md has it. Call it on the main
    thread, where Python lets signals be handled.

    Args:
        path: The pack file, absolute.
        environment: This process' variables.
        clock: The clocks to go by.
        say: Prints a line for people.

    Raises:
        LaunchError: The launch is wrong; nothing was started.
        FreeTrainError: The pack or a job file is wrong; nothing was started.
        MembersFailedError: Members failed. Those that did not are over.
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
            node = PackNode(
                run=run,
                generation=generation,
                packer=packer,
                controller=controller,
                cpus=cpus,
                environment=environment,
                clock=clock,
            )
            ending = _run_members(pack, node, inbox, signals, say)
        else:
            gave_up = stop is Stop.FOR_GOOD
            ending = Ending.DO_NOT_RESTART if gave_up else Ending.RESCALED
        _write_outcome(run, generation, ending, why, unix_s=clock.unix_s())
    except BaseException as error:
        write_failure(run, generation, error, clock=clock)
        raise
    finally:
        signals.ignore()
    return ending


def _own_node(
    pack: Pack, run: RunDir, clock: Clock, say: Callable[[str], None]
) -> tuple[Packer, int, CpuController]:
    """Make this process the packer of its node, and choose how CPU shares are set.

    Returns:
        This process, the number of CPUs of all members, and what sets their shares.
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


def pack_id(run: RunDir) -> str:
    """Return what tells the pack of *run* from all others, the same at each start."""
    return sha256(os.fsencode(run.path)).hexdigest()[:16]


def sweep(packer: Packer, clock: Clock) -> None:
    """End what earlier packers of this pack left on this node, and did not end."""
    until_s = clock.elapsed_s() + KILLED_WITHIN_S
    while (left := left_behind(packer)) and clock.elapsed_s() < until_s:
        signal_all(left, SIGKILL)
        clock.sleep(0.01)
    cgroups = KernelCgroups()
    for parent in own_cgroups():
        for group in packers_groups(parent, cgroups, packer.has_left):
            remove_group(cgroups, group, kills=True)


def _run_members(
    pack: Pack,
    node: PackNode,
    inbox: Inbox,
    signals: StopSignals,
    say: Callable[[str], None],
) -> Ending:
    stop_file = StopFile(node.run.stop_request(node.generation), clock=node.clock)
    record = read_record(node.run)

    def is_superseded() -> bool:
        with suppress(OSError):
            return node.run.newest_generation() > node.generation
        return False

    loop = PackLoop(
        pack,
        node,
        arrivals=inbox.arrivals,
        sharing=sharing_of(pack, record.sharing),
        record=record,
        say=say,
    )
    is_over = loop.run(lambda: signals.came or stop_file.is_there() or is_superseded())
    if is_superseded():
        return Ending.SUPERSEDED
    failed = [
        f"{name} {how_it_failed(member)}"
        for name, member in record.members.items()
        if member.end == MemberEnd.FAILED
    ]
    if is_over and failed:
        raise MembersFailedError(
            f"{'; '.join(failed)}. Their logs are in {node.run.path}"
        )
    return Ending.FINISHED if is_over else Ending.RESCALED


def _write_outcome(
    run: RunDir, generation: int, ending: Ending, message: str, *, unix_s: float
) -> None:
    # What members have done is for each of them to commit.
    steps = sum(member.steps for member in read_record(run).members.values())
    with suppress(OSError):  # the launcher has the exit code to go by
        write_outcome(
            run,
            Outcome(
                ending=ending,
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

_KEEP_SHARES_EVERY_S = 5.0
"""How often shares are kept while no member comes or goes: a commit waits for the disk,
and members that take turns wait with it."""

_KEEP_EVERY_S = 30.0
"""How often the record is kept, whatever happens: people look at it."""


class PackLoop:
    """Runs the members of a pack until all are over or a stop is asked for."""

    def __init__(  # noqa: PLR0913 -- only run_pack makes one
        self,
        pack: Pack,
        node: PackNode,
        *,
        arrivals: Callable[[], Iterable[TrainerJob]],
        sharing: FairSharing | FlowConSharing,
        record: PackRecord,
        say: Callable[[str], None],
    ) -> None:
        self._pack = pack
        self._node = node
        self._workers = Workers(node)
        self._arrivals = arrivals
        self._sharing = sharing
        self._record = record
        self._say = say
        self._is_shared = False
        self._waiting: dict[str, TrainerJob] = {}  # that failed, until they are due
        self._zero_s = node.clock.elapsed_s() - record.ran_s
        self._listed_s = self._kept_s = -math.inf
        self._busy_s = self._now_s()

    def run(self, stop_wanted: Callable[[], bool]) -> bool:
        """Run members until all are over or *stop_wanted*; none is left then.

        Returns:
            Whether nothing was left to do: no stop was asked for, or in vain.
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
            self._keep()

    def _step(self) -> None:
        for job in (*self._arrivals(), *self._due()):
            self._start(job)
        self._notice_ends()
        self._look_at_members()

    def _is_idle(self) -> bool:
        now_s = self._now_s()
        is_busy = bool(self._workers.members or self._waiting)
        if is_busy:
            self._busy_s = now_s
        return now_s - self._busy_s >= self._pack.stay_s and not is_busy

    def _stop(self) -> bool:
        asked_s = self._node.clock.elapsed_s()
        self._say("asked to stop")
        self._workers.ask_to_stop()
        while self._workers.members:
            self._sleep()
            self._notice_ends()
            self._workers.kill_late(asked_s)
        return self._is_all_over()

    def _is_all_over(self) -> bool:
        """Tell whether all members are over, those not started yet included."""
        records = self._record.members
        names = {*records, *(job.name for job in self._arrivals())}
        return all(name in records and records[name].is_over for name in names)

    def _now_s(self) -> float:
        return self._node.clock.elapsed_s() - self._zero_s

    def _sleep(self) -> None:
        due_s = self._node.controller.turn(self._node.clock.elapsed_s())
        self._node.clock.sleep(min(_TURN_S, due_s))

    def _due(self) -> list[TrainerJob]:
        """Take out those that failed and whose pause is over."""
        records, now_s = self._record.members, self._now_s()
        due = [n for n in self._waiting if (records[n].again_s or 0.0) <= now_s]
        return [self._waiting.pop(name) for name in due]

    def _start(self, job: TrainerJob) -> None:
        now_s = self._now_s()
        record = self._record.members.setdefault(
            job.name, MemberRecord(arrived_s=now_s)
        )
        if record.is_over:
            return
        if record.again_s is not None and record.again_s > now_s:
            self._waiting[job.name] = job
            return
        record.ended_s, record.end, record.message = None, "", ""
        record.again_s, record.started_s = None, now_s
        try:
            generation = self._workers.start(job, after=record.generation)
        except OSError as error:
            record.message = one_line(f"it cannot be started: {error}")
            self._count_failure(job, record.committed_step)
            self._note_end(job.name, MemberEnd.FAILED)
            return
        record.generation = generation
        self._say(f"{job.name} started, generation {generation}")

    def _notice_ends(self) -> None:
        for member, end in self._workers.ended():
            self._read_progress(member)
            if end is MemberEnd.FAILED:
                self._record.members[member.name].message = member.why_failed()
                if not member.is_asked:
                    self._count_failure(member.job, member.committed_step)
            self._note_end(member.name, end)

    def _count_failure(self, job: TrainerJob, committed_step: int) -> None:
        record, now_s = self._record.members[job.name], self._now_s()
        count_failure(record, job, committed_step=committed_step, now_s=now_s)
        if record.again_s is not None:
            self._waiting[job.name] = job

    def _note_end(self, name: str, end: MemberEnd) -> None:
        record = self._record.members[name]
        record.ended_s, record.end = self._now_s(), str(end)
        how = how_it_failed(record) if end is MemberEnd.FAILED else str(end)
        self._say(f"{name} {how}")
        if record.again_s is not None:
            pause_s = record.again_s - record.ended_s
            self._say(f"{name} is started again in {pause_s:.3g} s")
        self._listed_s = -math.inf  # what it did last is to be reported
        self._keep()

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
        if now_s - self._kept_s >= _KEEP_EVERY_S:
            self._keep()

    def _read_progress(self, member: Member) -> None:
        sign = -1.0 if self._pack.better is Better.HIGHER else 1.0
        member.read_progress(self._pack.metric, sign=sign, now_s=self._now_s())
        record = self._record.members[member.name]
        record.steps, record.samples = member.done

    def _share(self, now_s: float) -> None:
        members = self._workers.members.values()
        observations = [
            flowcon.GrowthSample(
                name=member.name,
                values=tuple(pair for pair in member.values if pair[0] <= now_s),
                used_s=member.used_s / self._node.cpus,
            )
            for member in members
        ]
        self._record.shares = self._sharing.shares(observations, now_s)
        for member in members:
            member.forget(self._sharing.measured_s(member.name))
        self._set_shares()
        if now_s - self._kept_s >= _KEEP_SHARES_EVERY_S:
            self._keep()

    def _set_shares(self) -> None:
        shares, self._is_shared = self._record.shares, True
        try:
            self._node.controller.set_shares(shares)
        except OSError as error:
            self._say(f"shares could not be set, and stay as they were: {error}")
        self._say(
            ", ".join(self._share_text(name, part) for name, part in shares.items())
        )

    def _share_text(self, name: str, share: float) -> str:
        return f"{name} {per_cent(share)} ({self._sharing.describe(name)})"

    def _report_progress(self) -> None:
        """Report the progress of all members together, for the planner."""
        records = self._record.members.values()
        with suppress(OSError):  # a full disk costs lines, never the training
            append_progress(
                self._node.run.progress,
                t=self._node.clock.unix_s(),
                step=sum(record.steps for record in records),
                samples=sum(record.samples for record in records),
                generation=self._node.generation,
            )

    def _keep(self) -> None:
        self._kept_s = self._record.ran_s = self._now_s()
        self._record.used_s = self._workers.ended_used_s()
        self._record.means = str(self._node.controller.name)
        self._record.sharing = self._sharing.state()
        try:
            write_record(self._node.run, self._record)
        except OSError as error:
            self._say(f"how members stand could not be kept: {error}")


# How the CPUs are shared: by FlowCon, or equally.


def sharing_of(pack: Pack, state: Mapping[str, object]) -> FairSharing | FlowConSharing:
    """Return the sharing that *pack* wants, going on from an earlier *state*."""
    if pack.sharing is SharingName.FAIR:
        return FairSharing()
    settings = flowcon.FlowConSettings(interval_s=pack.interval_s, alpha=pack.alpha)
    return FlowConSharing(settings, flowcon.from_json(state))


class FairSharing:
    """Equal parts, whatever members do."""

    def __init__(self) -> None:
        self._names: frozenset[str] = frozenset()

    def is_due(self, names: Iterable[str], now_s: float) -> bool:
        """Tell whether a member came or went."""
        del now_s
        return self._names != frozenset(names)

    def shares(
        self, observations: Sequence[flowcon.GrowthSample], now_s: float
    ) -> dict[str, float]:
        """Return equal parts."""
        del now_s
        self._names = frozenset(member.name for member in observations)
        return {member.name: 1 / len(observations) for member in observations}

    def measured_s(self, name: str) -> float:
        """Return infinity: no values are looked at."""
        del name
        return float("inf")

    def state(self) -> dict[str, object]:
        """Return nothing: there is no state."""
        return {}

    def describe(self, name: str) -> str:
        """Return the same word for all."""
        del name
        return "equal"


class FlowConSharing:
    """Parts by growth efficiency."""

    def __init__(
        self, settings: flowcon.FlowConSettings, state: flowcon.FlowConState
    ) -> None:
        self._settings = settings
        self._state = state

    def is_due(self, names: Iterable[str], now_s: float) -> bool:
        """Tell whether it is time, or a member came or went."""
        return flowcon.is_due(self._state, names, now_s)

    def shares(
        self, observations: Sequence[flowcon.GrowthSample], now_s: float
    ) -> dict[str, float]:
        """Return the part of each member."""
        self._state = flowcon.update(self._state, observations, now_s, self._settings)
        return self._state.shares

    def measured_s(self, name: str) -> float:
        """Return the end of the member's last measurement."""
        found = [t.measured_s for t in self._state.tracks if t.name == name]
        return found[0] if found else 0.0

    def state(self) -> dict[str, object]:
        """Return lists and back-off, as JSON, for the pack's next generation."""
        return flowcon.to_json(self._state)

    def describe(self, name: str) -> str:
        """Return a member's list and growth."""
        for track in self._state.tracks:
            if track.name == name:
                growth = "-" if track.growth is None else f"{track.growth:.3g}"
                return f"{track.place} {growth}"
        return "-"
