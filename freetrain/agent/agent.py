"""The agent of a lease: its command line, its loop, and the acts of its rules.

About ten times a second the loop observes (``observer``), decides (``rules``) and acts:
the ``Executor`` here carries out the actions, through the shared files (``board``) and
on this node (``environment``).
"""

from __future__ import annotations

import math
import os
import re
import signal
import socket
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from freetrain.agent.board import Board, Listing, UnknownNowError
from freetrain.agent.environment import (
    Environment,
    Journal,
    LeaseEndListener,
    NodeProcesses,
    unix_s,
)
from freetrain.agent.observation import (
    LAUNCH_AGENT,
    LISTENER_MARK,
    PATIENCE_VARIABLE,
    must_have_committed,
    read_patience,
    with_size,
)
from freetrain.agent.observer import (
    AgentMemory,
    LaunchedWorld,
    Observer,
    OwnLease,
    StartedSpare,
)
from freetrain.agent.rules import (
    AskOfLeases,
    AskSlurm,
    AskToStop,
    BeginToLeave,
    CancelSilentLease,
    EndSpare,
    GiveBackLease,
    Kill,
    KillRanks,
    LaunchWorld,
    Propose,
    RequestStop,
    StartSpare,
    Sweep,
    SweepAll,
    WriteEnding,
    WriteNotice,
    choose_actions,
    conditions,
    is_awaited,
    is_stalled,
)
from freetrain.broker.lease import LeaseKey
from freetrain.errors import FreeTrainError, UsageError
from freetrain.launch.local import LocalLauncher, this_node
from freetrain.state.files import (
    KILLED_OUTSIDE,
    AgentState,
    EndingKind,
    GenerationEnding,
    Heartbeat,
    StateDir,
    all_sizes,
    lease_name,
)
from freetrain.text import utc
from slurm.backend import CommandLine
from slurm.records import JobKey
from slurm.runner import (
    SubprocessRunner,
    scrubbed,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from freetrain.agent.board import TrainerFolder
    from freetrain.agent.observation import Observation, ObservedTrainer, Patience
    from freetrain.agent.rules import Action
    from freetrain.state.files import AssignmentFile


USAGE = """\
usage: python -m freetrain.agent STATE_DIR UUID TASK LIMIT_MIN GRACE_S
       python -m freetrain.agent sweep STATE_DIR UUID TASK
"""
TO_SWEEP = 75
"""The exit status of an agent that could not end everything of its lease."""

_UUID = re.compile(r"[A-Za-z0-9-]{1,64}", re.ASCII)
_SLURM_TIMEOUT_S = 10.0
_ARGUMENTS = {"run": 5, "sweep": 3}


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """The arguments of the command line.

    Attributes:
        limit_s: Its time limit; 0 for a sweep.
        grace_s: How long it has from Slurm's signal to the kill.
        is_sweep: Whether only its processes that are left are to be ended.
    """

    state: StateDir
    key: LeaseKey
    limit_s: float = 0.0
    grace_s: float = 0.0
    is_sweep: bool = False


def main(argv: Sequence[str]) -> int:
    """Run the command line *argv* in this process; return the exit status."""
    if argv and argv[0] in {"-h", "--help"}:
        sys.stdout.write(USAGE)
        return 0
    try:
        call = read_call(argv)
        patience = read_patience(os.environ.get(PATIENCE_VARIABLE, ""))
        if call.is_sweep:
            _sweep(call, patience)
        elif not _run(call, patience):
            return TO_SWEEP
    except FreeTrainError as error:
        sys.stderr.write(f"error: {error}\n")
        return error.exit_code
    except OSError as error:
        sys.stderr.write(
            f"error: {error}. The agent did not start, and its lease is given back; "
            f"make the state directory readable and writable on compute nodes.\n"
        )
        return 73
    return 0


def read_call(argv: Sequence[str]) -> Call:
    """Return the arguments of the command line.

    Raises:
        UsageError: They make no sense.
    """
    is_sweep = bool(argv) and argv[0] == "sweep"
    words = argv[1:] if is_sweep else argv
    if len(words) != _ARGUMENTS["sweep" if is_sweep else "run"]:
        raise _wrong("the number of arguments is wrong")
    folder, uuid, task, *times = words
    if not Path(folder).is_absolute():
        raise _wrong(f"STATE_DIR {folder[:80]!r} is no absolute path")
    if _UUID.fullmatch(uuid) is None or not re.fullmatch("[0-9]{1,10}", task):
        raise _wrong(f"{uuid[:80]!r} and {task[:80]!r} name no lease")
    key = LeaseKey(uuid, int(task))
    if is_sweep:
        return Call(state=StateDir(Path(folder)), key=key, is_sweep=True)
    limit_min, grace_s = map(_number, times)
    return Call(
        state=StateDir(Path(folder)), key=key, limit_s=limit_min * 60, grace_s=grace_s
    )


def own_job(environment: Mapping[str, str]) -> JobKey | None:
    """Return this lease's job, by Slurm's variables; None outside of one.

    Of an array task scancel wants ``18_0``, and does nothing for its raw number.
    """
    raw = environment.get("SLURM_JOB_ID", "")
    array = environment.get("SLURM_ARRAY_JOB_ID", "")
    task = environment.get("SLURM_ARRAY_TASK_ID", "")
    if not raw.isdecimal():
        return None
    is_task = array.isdecimal() and task.isdecimal()
    return JobKey(int(raw), f"{array}_{task}" if is_task else raw)


def _run(call: Call, patience: Patience) -> bool:
    """Run the agent; return whether nothing is left that must be swept."""
    _try_for_a_while(call.state.lease(call.key).create)
    environment = _environment(call, is_listening=True)
    environment.handle_signals()
    lease = OwnLease(
        key=call.key,
        node=os.environ.get("SLURMD_NODENAME") or socket.gethostname(),
        host=socket.gethostname(),
        pid=os.getpid(),
        limit_s=call.limit_s,
        grace_s=call.grace_s,
    )
    environment.log_limits()
    environment.log(f"began on {lease.node} for {call.limit_s / 60:g} min")
    if not Agent(lease, _board(call, environment), environment, patience).run():
        return False
    _remove_groups()
    return True


_TRIES = 5
_TRY_AGAIN_S = 0.5
_END_POLL_S = 0.02
_LONGEST_KILL_S = 60.0
"""A process that waits for a file server dies once that answers."""


def _try_for_a_while(act: Callable[[], None]) -> None:
    """Do *act*; again where it fails, as one call to a file may fail at any time.

    Raises:
        OSError, FreeTrainError: It failed each time.
    """
    for left in reversed(range(_TRIES)):
        try:
            act()
        except (OSError, FreeTrainError):
            if not left:
                raise
            time.sleep(_TRY_AGAIN_S)
        else:
            return


def _sweep(call: Call, patience: Patience) -> None:
    """End the processes of the lease; write that it is gone if its agent did not."""
    environment = _environment(call)
    environment.log_limits()
    board = _board(call, environment)
    processes = NodeProcesses(call.key, board, environment, patience)
    until_s = time.monotonic() + patience.sweep_grace_s + _LONGEST_KILL_S
    while not processes.end_all() and time.monotonic() < until_s:
        environment.wait(_END_POLL_S)
    environment.end_listeners(call.key)
    _remove_groups()
    _try_for_a_while(lambda: _write_ended(board, call.key))


def _write_ended(board: Board, key: LeaseKey) -> None:
    last = board.heartbeat(key)
    if last is not None and last.state is not AgentState.ENDED:
        ended = replace(last, beat=last.beat + 1, state=AgentState.ENDED)
        board.write_heartbeat(key, ended)


def _remove_groups() -> None:
    # Imported here: an agent's start is waited for, and only its end needs them.
    from freetrain.pack.cpu_controllers import (  # noqa: PLC0415
        KernelCgroups,
        own_cgroups,
        remove_empty_groups,
    )

    parents = [path for _, path in own_cgroups()]
    remove_empty_groups(parents, KernelCgroups())


def _environment(call: Call, *, is_listening: bool = False) -> Environment:
    agent = os.environ.get(LAUNCH_AGENT)
    head = this_node(os.environ, launch_agent=Path(agent) if agent else None)
    scrubbed_variables = scrubbed(os.environ)
    runner = SubprocessRunner(scrubbed_variables)
    job = own_job(os.environ)
    listener = None
    if is_listening and job is not None:
        listener = LeaseEndListener(
            job.job_id,
            scrubbed_variables | {LISTENER_MARK: lease_name(call.key)},
            elapsed_s=time.monotonic,
        )
    return Environment(
        LocalLauncher(call.state, head),
        CommandLine(runner, timeout_s=_SLURM_TIMEOUT_S),
        own_job=job,
        listener=listener,
        journal=Journal(
            call.state.lease(call.key).log, unix_s=unix_s, elapsed_s=time.monotonic
        ),
    )


def _board(call: Call, environment: Environment) -> Board:
    listing = Listing(time.monotonic)
    return Board(call.state, listing, elapsed_s=time.monotonic, log=environment.log)


def _number(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 <= number < math.inf:
        raise _wrong(f"{text[:80]!r} is no time")
    return number


def _wrong(why: str) -> UsageError:
    return UsageError(f"{why}. Nothing was started.\n{USAGE.rstrip()}")


_HURRIED_SCAN_S = 0.3


class Agent:
    """The agent of one lease."""

    def __init__(
        self,
        lease: OwnLease,
        board: Board,
        environment: Environment,
        patience: Patience,
    ) -> None:
        """Take the lease, the shared files, the environment, and times to go by."""
        self._environment = environment
        self._patience = patience
        self._observer = Observer(lease, board, environment, patience)
        self._memory = self._observer.memory
        self._processes = self._observer.processes
        self._heartbeat = HeartbeatWriter(lease, board, environment, self._processes)
        self._executor = Executor(
            lease.key, board, environment, self._memory, self._processes
        )
        self._me = lease.key
        self._scanned_s = -math.inf
        self._pause_s = patience.poll_s
        self._is_clean = False

    def run(self) -> bool:
        """Work until the lease ends; return whether nothing of it is left here.

        Then its batch script may end, and with it the job, a second sooner than Slurm
        ends one by force.
        """
        while not self.turn_or_log():
            self._environment.wait(self._pause_s)
        return self._is_clean

    def turn_or_log(self) -> bool:
        """Do a turn; an error of the system costs this one, and never the lease."""
        try:
            return self.turn()
        except OSError as error:
            self._environment.log(f"a turn failed, and the next begins anew: {error}")
            return False

    def turn(self) -> bool:
        """Observe, decide and act, once; return whether the lease has ended."""
        memory, environment = self._memory, self._environment
        memory.begin(now_s=environment.elapsed_s(), unix_s=environment.unix_s())
        self._observer.look_at_own()
        folders = self._observer.folders()
        self._scan(folders)
        observed = self._observer.observe(
            folders, is_cut_off=self._heartbeat.is_cut_off
        )
        self._heartbeat.beat(
            observed, now_s=memory.now_s, every_s=self._patience.beat_s
        )
        ages_s = {found: memory.age_s(found) for found in conditions(observed)}
        for action in choose_actions(observed, ages_s=ages_s):
            if isinstance(action, GiveBackLease):
                self._end(action)
                return True
            self._executor.carry_out(action)
        self._forget_worlds(observed)
        patience = self._patience
        self._pause_s = (
            patience.hurried_poll_s if is_awaited(observed) else patience.poll_s
        )
        memory.end()
        return False

    def _scan(self, folders: Sequence[TrainerFolder]) -> None:
        """Look at the processes of the node, if it is time, and sweep."""
        memory = self._memory
        is_urgent = memory.leaving_since_s is not None or any(
            world.exit_s is not None for world in memory.worlds.values()
        )
        every_s = self._patience.scan_s
        if any(folder.open for folder in folders):
            every_s = min(_HURRIED_SCAN_S, every_s)
        if is_urgent:
            every_s = min(self._patience.poll_s, every_s)
        is_due = memory.now_s >= self._scanned_s + every_s
        if not is_due and not self._processes.has_lost_ranks():
            return
        self._scanned_s = memory.now_s
        self._processes.scan(folders)
        self._processes.sweep()

    def _forget_worlds(self, observed: Observation) -> None:
        """Forget worlds that are gone and have an ending."""
        for trainer in observed.trainers:
            for g in trainer.generations:
                is_gone = g.world is not None and g.world.exit_s is not None
                if is_gone and g.is_over and not g.processes:
                    self._memory.worlds.pop((trainer.name, g.number))

    def _end(self, action: GiveBackLease) -> None:
        """End this lease's processes and itself; end the job if something is left."""
        environment = self._environment
        environment.log(f"ending this lease's job: {action.why}")
        if environment.is_asked_to_leave():
            self._processes.kill_all()  # all is committed, and others wait
        until_s = environment.elapsed_s() + self._patience.sweep_grace_s
        self._is_clean = self._processes.end_all()
        while not self._is_clean and environment.elapsed_s() < until_s:
            environment.wait(_END_POLL_S)
            self._is_clean = self._processes.end_all()
        for _ in range(_TRIES):
            self._heartbeat.write_ended()
            if not self._heartbeat.is_cut_off:
                break
            environment.wait(_END_POLL_S)
        environment.stop_listening()
        environment.end_listeners(self._me)
        if not self._is_clean:
            self._processes.kill_all()
            environment.end_own_job()


class HeartbeatWriter:
    """Writes the agent's own heartbeat.

    Attributes:
        is_cut_off: Whether the last one could not be written.
    """

    def __init__(
        self,
        lease: OwnLease,
        board: Board,
        environment: Environment,
        processes: NodeProcesses,
    ) -> None:
        """Take the lease, the shared files, the environment, and the node."""
        self.is_cut_off = False
        self._lease = lease
        self._board = board
        self._environment = environment
        self._processes = processes
        self._count = 0
        self._due_s = environment.elapsed_s()
        self._occupation = ("", 0)

    def beat(self, observed: Observation, *, now_s: float, every_s: float) -> None:
        """Write it if it is time, or at once when the lease begins to leave."""
        has_news = observed.leaving_s == 0.0
        if now_s < self._due_s and not has_news:
            return
        self._due_s = now_s + every_s
        state = AgentState.IDLE if observed.leaving_s is None else AgentState.LEAVING
        if not observed.unknown:
            self._occupation = _occupation(observed)
        trainer, generation = self._occupation
        if trainer and observed.leaving_s is None:
            state = AgentState.TRAINING
        self._write(
            replace(
                self._next_beat(state),
                trainer=trainer,
                generation=generation,
                is_stuck=bool(observed.stuck),
                is_stalled=_has_stalled(observed),
                swept_generation=self._processes.swept.get(trainer, 0),
            )
        )

    def write_ended(self) -> None:
        """Write that the agent ends, so that the others do not wait for this lease."""
        self._write(self._next_beat(AgentState.ENDED))

    def _next_beat(self, state: AgentState) -> Heartbeat:
        self._count += 1
        return Heartbeat(
            beat=self._count,
            t=self._environment.unix_s(),
            node=self._lease.node,
            host=self._lease.host,
            pid=self._lease.pid,
            state=state,
        )

    def _write(self, heartbeat: Heartbeat) -> None:
        try:
            self._board.write_heartbeat(self._lease.key, heartbeat)
        except OSError as error:
            self.is_cut_off = True
            self._environment.log(
                f"cannot write the heartbeat: {error}; training goes on"
            )
        else:
            self.is_cut_off = False


def _occupation(observed: Observation) -> tuple[str, int]:
    """Return the trainer and generation that the heartbeat names.

    A generation that is stuck counts most; then one that still has this lease: until
    it is over, this lease is not free for its next trainer.
    """
    if observed.stuck:
        return min(observed.stuck)
    home = next((t for t in observed.trainers if _is_home(observed, t)), None)
    name = home.name if home else ""
    other = observed.occupied_by(but=name)
    if other is not None:
        return other
    return (name, home.newest.number) if home else ("", 0)


def _has_stalled(observed: Observation) -> bool:
    """Tell whether a world that this agent launched makes no steps."""
    worlds = [g.world for t in observed.trainers for g in t.generations if g.world]
    return any(
        world.exit_s is None and is_stalled(world, observed.patience)
        for world in worlds
    )


def _is_home(observed: Observation, trainer: ObservedTrainer) -> bool:
    return observed.me in trainer.newest.assigned.keys and not trainer.is_being_left


_SPARE_AGAIN_S = 60.0
_LAUNCH_TRIES = 3
_LAUNCH_AGAIN_S = 1.0


class Executor:
    """Carries out actions; a failure is logged, and the action chosen again."""

    def __init__(
        self,
        me: LeaseKey,
        board: Board,
        environment: Environment,
        memory: AgentMemory,
        processes: NodeProcesses,
    ) -> None:
        """Take this lease and all that actions change."""
        self._me = me
        self._board = board
        self._environment = environment
        self._memory = memory
        self._processes = processes
        self._author = lease_name(me)
        self._spare_due_s = memory.now_s
        # By world that could not be launched: how often, and when to try again.
        self._failed_launches: dict[tuple[str, int], tuple[int, float]] = {}

    def carry_out(self, action: Action) -> None:
        """Do *action*, or log why it could not be done."""
        try:
            self._do(action)
        except (OSError, FreeTrainError) as error:
            self._environment.log(f"{type(action).__name__} failed: {error}")

    def _do(self, action: Action) -> None:
        match action:
            case LaunchWorld():
                self._launch(action)
            case AskToStop():
                self._ask_to_stop(action)
            case RequestStop():
                self._board.request_stop(action.trainer, action.generation)
                self._log(_world_of(action), "asked to stop, since its head is lost")
            case Kill():
                self._kill(action)
            case KillRanks():
                self._processes.kill_ranks((action.trainer, action.generation))
            case Propose():
                self._propose(action)
            case WriteEnding():
                self._write_ending(action)
            case _:
                self._do_about_lease(action)

    def _do_about_lease(self, action: Action) -> None:
        match action:
            case Sweep():
                self._processes.sweep({(action.trainer, action.generation)})
            case SweepAll():
                self._processes.kill_all()
            case WriteNotice():
                self._board.write_notice(action.trainer, action.generation, self._me)
                self._log(_world_of(action), "noted that this lease leaves")
            case CancelSilentLease():
                self._memory.ended_leases.add(action.member.key)
                self._environment.log(f"ending silent lease {action.member.display_id}")
                self._environment.cancel_silent_lease(action.member)
            case StartSpare():
                self._start_spare(action.assigned)
            case EndSpare():
                self._end_spare()
            case AskOfLeases():
                others = (m for m in action.assigned.members if m.key != self._me)
                self._environment.ask_of_leases(tuple(others))
            case AskSlurm():
                self._memory.has_asked_slurm = True
                self._environment.ask_slurm()
            case BeginToLeave():
                self._memory.leaving_since_s = self._memory.now_s
                self._memory.leave_grace_s = action.grace_s
                self._environment.log(f"leaving: {action.why}")
            case _:
                raise AssertionError(f"the loop itself does {action}")

    def _launch(self, action: LaunchWorld) -> None:
        assigned, memory = action.assigned, self._memory
        world = (assigned.trainer, assigned.generation)
        failed, due_s = self._failed_launches.get(world, (0, memory.now_s))
        if memory.now_s < due_s:
            return
        job = self._board.job(assigned.trainer)
        is_forked = job.may_have_spares and self._have_spares(assigned)
        try:
            process = self._environment.launch(
                job, assigned, after=action.after, is_forked=is_forked
            )
        except (OSError, FreeTrainError) as error:
            if failed + 1 < _LAUNCH_TRIES:
                again_s = memory.now_s + _LAUNCH_AGAIN_S
                self._failed_launches[world] = (failed + 1, again_s)
                raise
            ending = failed_launch(
                assigned.generation, error, author=self._author, unix_s=memory.unix_s
            )
            self._end(ending, assigned.trainer)
            return
        self._failed_launches.clear()
        memory.worlds[world] = LaunchedWorld(
            *world,
            process,
            action.after,
            launched_s=memory.now_s,
            oom_kills=self._environment.oom_kills(),
        )
        nodes = ",".join(member.node for member in assigned.members)
        after = f", after generation {action.after}" if action.after else ""
        how = ", as forks of spares" if is_forked else ""
        self._log(world, f"launched on {nodes}{after}{how}")

    def _have_spares(self, assigned: AssignmentFile) -> bool:
        """Tell whether each lease has a spare; where it cannot be read, it has none."""
        return all(
            self._board.spare_of(member.key) == assigned.trainer
            for member in assigned.members
        )

    def _ask_to_stop(self, action: AskToStop) -> None:
        world = self._memory.worlds[action.trainer, action.generation]
        if world.asked_s is None:
            world.asked_s = self._memory.now_s
            world.stalled = action.why if action.is_stalled else ""
            self._log(_world_of(action), f"asked to stop: {action.why}")
        world.process.ask_to_stop(f"{action.why}, {utc(self._memory.unix_s)}")
        world.is_told = True

    def _kill(self, action: Kill) -> None:
        world = self._memory.worlds[action.trainer, action.generation]
        if world.killed_s is None:
            world.killed_s = self._memory.now_s
            world.why_killed = action.why
            if action.why:
                self._log(_world_of(action), f"killed: {action.why}")
        world.process.kill()
        if action.why:
            self._processes.kill((action.trainer, action.generation))

    def _propose(self, action: Propose) -> None:
        assigned = action.assigned
        is_mine = self._board.propose(assigned)
        nodes = ",".join(member.node for member in assigned.members) or "no node"
        author = "made" if is_mine else "another agent or the broker made"
        self._log(
            (assigned.trainer, assigned.generation),
            f"{author} it: {assigned.reason}; proposed {nodes}",
        )

    def _write_ending(self, action: WriteEnding) -> None:
        ending = draft_ending(action, author=self._author, unix_s=self._memory.unix_s)
        if action.was_launched:
            elastic = self._board.job(action.trainer).elastic
            ending = self._board.with_outcome(action.trainer, ending)
            killed_how = self._killed_how(ending, action)
            ending = complete_ending(
                ending, action, elastic=elastic, killed_how=killed_how
            )
            world = self._memory.worlds.get((action.trainer, action.generation))
            if world is not None and not ending.message:
                ending = replace(ending, message=world.why_killed)
            if action.stalled and ending.ended in _STALLED_ENDINGS:
                ending = replace(ending, was_asked=False, message=action.stalled)
            ending = with_unsaved(ending, self._board.last_saved_s(action.trainer))
        self._end(ending, action.trainer)

    def _killed_how(self, ending: GenerationEnding, action: WriteEnding) -> str:
        """Return who killed a world, as far as is known; empty if it was not killed.

        The kernel counts the node's kills for want of memory, which on a shared node
        may be of other jobs.
        """
        if ending.ended is not EndingKind.KILLED or _is_ours(action):
            return ""
        job = self._board.job(action.trainer)
        output = self._board.last_output(action.trainer, action.generation)
        how = killed_how(action.exit_code, output, elastic=job.elastic)
        world = self._memory.worlds.get((action.trainer, action.generation))
        before = 0 if world is None else world.oom_kills
        has_node = job.nodes.gpus_per_lease is None
        is_full = has_node and self._environment.oom_kills() > before
        return OUT_OF_MEMORY if how and is_full else how

    def _end(self, ending: GenerationEnding, trainer: str) -> None:
        ending = self._with_size(ending, trainer)
        if self._board.write_ending(trainer, ending):
            why = f": {ending.message}" if ending.message else ""
            self._log((trainer, ending.generation), f"over: {ending.words}{why}")

    def _with_size(self, ending: GenerationEnding, trainer: str) -> GenerationEnding:
        """Return *ending* with the sizes tried; without, where they cannot be read."""
        try:
            folder = self._board.folder(trainer)
            if folder is None:
                return ending
            assigned = self._board.assigned(trainer, ending.generation)
            before = self._board.last_endings(folder)
            return with_size(
                ending,
                all_sizes(size for ending in before for size in ending.tried),
                leases=len(assigned.members),
                has_trained=self._has_trained(ending, trainer, before),
            )
        except UnknownNowError:
            return ending

    def _has_trained(
        self,
        ending: GenerationEnding,
        trainer: str,
        before: Sequence[GenerationEnding],
    ) -> bool:
        """Tell whether the world that ended so made a step, as far as is known.

        Committing what it restored is no step; and having run for long counts only for
        a program that reports none.
        """
        job = self._board.job(trainer)
        if ending.committed_step > max((e.committed_step for e in before), default=0):
            return True
        if not job.elastic and job.progress is None:
            return must_have_committed(ending, job)
        world = self._memory.worlds.get((trainer, ending.generation))
        if world is None or world.progress is None:
            return False
        steps = self._board.steps_reported(trainer, ending.generation, at_once=True)
        return steps > 0

    def _start_spare(self, assigned: AssignmentFile) -> None:
        if self._memory.now_s < self._spare_due_s:
            return
        job = self._board.job(assigned.trainer)
        try:
            process = self._environment.start_spare(job, assigned, self._me)
        except (OSError, FreeTrainError):
            self._spare_due_s = self._memory.now_s + _SPARE_AGAIN_S
            raise
        self._memory.spare = StartedSpare(
            assigned.trainer, assigned.generation, process
        )
        self._environment.log(f"a spare of {assigned.trainer} was started")

    def _end_spare(self) -> None:
        spare = self._memory.spare
        if spare is not None:
            spare.is_asked = True
            spare.process.ask_to_stop()

    def _log(self, world: tuple[str, int], text: str) -> None:
        self._environment.log(f"{world[0]}/{world[1]}: {text}")


def _world_of(action: RequestStop | WriteNotice | AskToStop | Kill) -> tuple[str, int]:
    return (action.trainer, action.generation)


# Those that count as a failure where the world was asked to stop since it stalled.
_STALLED_ENDINGS = {EndingKind.RESCALED, EndingKind.KILLED, EndingKind.FAILED}

_NOT_ELASTIC = "a program without freetrain.elastic needs elastic = false"


def draft_ending(
    action: WriteEnding, *, author: str, unix_s: float
) -> GenerationEnding:
    """Return the ending as the agent of the lease *author* alone knows it."""
    return GenerationEnding(
        generation=action.generation,
        ended=EndingKind.KILLED if action.was_launched else EndingKind.NOT_LAUNCHED,
        was_asked=action.was_asked,
        lost_lease=action.lost_lease,
        exit_code=action.exit_code,
        step=0,
        committed_step=0,
        message=action.why,
        started_s=None if action.age_s is None else unix_s - action.age_s,
        ended_s=unix_s,
        author=author,
    )


def failed_launch(
    generation: int, error: Exception, *, author: str, unix_s: float
) -> GenerationEnding:
    """Return the ending of a world that could not be started."""
    return GenerationEnding(
        generation=generation,
        ended=EndingKind.FAILED,
        was_asked=False,
        lost_lease=False,
        exit_code=None,
        step=0,
        committed_step=0,
        message=str(error),
        started_s=None,
        ended_s=unix_s,
        author=author,
    )


OUT_OF_MEMORY = "killed for want of memory"
# Words in the output of a world: of Slurm for a kill for memory, of srun for a task
# that ended by itself, of those that crash, and of ranks whose peer is gone.
_NO_MEMORY = (b"oom_kill event", b"oom-kill event", b"Out Of Memory")
_EXITED = b"Exited with exit code"
_CRASHED = (b"Process received signal", b"Fatal Python error", b"Segmentation fault")
_PEER_LOST = (
    b"peer process has unexpectedly disconnected",
    b"An error occurred in Socket closed",
)


def _is_ours(action: WriteEnding) -> bool:
    """Tell whether agents ended the world, or its end needs no reason."""
    caused = action.was_asked or action.was_killed or action.lost_lease
    return caused or action.is_done or action.exit_code is None


def killed_how(exit_code: int | None, output: bytes, *, elastic: bool) -> str:
    """Return who killed a world that no agent ended; empty where it failed itself.

    Launchers exit with 128 and the signal that ended the first rank. Signals that a
    program gets by its own errors, such as SEGV, are its own failure. mpirun may hear
    first of a rank that stopped because its peer was gone; an elastic program, which
    writes its errors down, was killed there if it wrote none.

    Args:
        exit_code: The launcher's.
        output: The end of what the world has printed.
        elastic: Whether the program is.
    """
    code = exit_code or 0
    number = -code if code < 0 else code - 128
    is_killed = number in {signal.SIGKILL, signal.SIGTERM}
    lost_peer = elastic and code > 0 and any(w in output for w in _PEER_LOST)
    has_crashed = any(words in output for words in _CRASHED)
    if not is_killed and (not lost_peer or has_crashed):
        return ""
    if any(words in output for words in _NO_MEMORY):
        return OUT_OF_MEMORY
    if _EXITED in output:
        return ""  # srun's own status is the largest of all, also of killed ranks
    return f"{KILLED_OUTSIDE} by signal {number}" if is_killed else KILLED_OUTSIDE


def complete_ending(
    ending: GenerationEnding,
    action: WriteEnding,
    *,
    elastic: bool,
    killed_how: str = "",
) -> GenerationEnding:
    """Return *ending*, which has the world's outcome by now, as it is to count.

    Programs that are not elastic leave nothing but their exit status: whatever it
    is, a program that was asked to stop and did has been rescaled.

    Args:
        ending: As the agent and the outcome have it.
        action: What the agent knows.
        elastic: Whether the program is.
        killed_how: How it was killed where its agent did not; empty if it was not.
    """
    if killed_how:
        is_outside = killed_how.startswith(KILLED_OUTSIDE)
        return replace(
            ending,
            ended=EndingKind.KILLED,
            lost_lease=ending.lost_lease or is_outside,
            message=killed_how,
        )
    ended = ending.ended
    if ended is EndingKind.KILLED and not elastic:
        ended = _by_exit_code(action)
    if action.is_done and ended not in {EndingKind.FAILED, EndingKind.DO_NOT_RESTART}:
        ended = EndingKind.FINISHED
    message = ending.message or _exit_message(action, ended, elastic=elastic)
    return replace(ending, ended=ended, message=message)


_UNSAVED_S = 1.0
"""A program that saved so shortly before its end saved as it was asked to."""


def with_unsaved(ending: GenerationEnding, saved_s: float | None) -> GenerationEnding:
    """Return *ending*, saying what a program that saves by itself has lost.

    Args:
        ending: As it is to count.
        saved_s: When it saved last, Unix time; None where that is not known.
    """
    if saved_s is None or ending.ended is EndingKind.FINISHED:
        return ending
    began_s = -math.inf if ending.started_s is None else ending.started_s
    lost_s = ending.ended_s - max(saved_s, began_s)
    if lost_s < _UNSAVED_S:
        return ending
    since = "it last saved" if saved_s >= began_s else "it saved nothing since it began"
    said = f"{since} {lost_s:.0f} s before its end, and what it did since is lost"
    return replace(ending, message="; ".join(filter(None, (ending.message, said))))


def _by_exit_code(action: WriteEnding) -> EndingKind:
    if action.was_killed or action.exit_code is None:
        return EndingKind.KILLED
    if action.was_asked:
        return EndingKind.RESCALED
    if action.exit_code == 0:
        return EndingKind.FINISHED
    return EndingKind.KILLED if action.lost_lease else EndingKind.FAILED


def _exit_message(action: WriteEnding, ended: EndingKind, *, elastic: bool) -> str:
    """Return the reason for people, of a world that left no outcome and failed."""
    if ended not in {EndingKind.KILLED, EndingKind.FAILED} or action.exit_code is None:
        return ""
    if action.was_asked or action.was_killed or action.lost_lease:
        return ""
    if elastic and action.exit_code == 0:
        return f"exit code 0, and no outcome; {_NOT_ELASTIC}"
    if action.exit_code < 0:
        return f"its launcher was ended by signal {-action.exit_code}"
    return f"exit code {action.exit_code}"
