"""How an agent makes its observation: from files, heartbeats, processes and its memory.

The ``Observer`` reads the shared files in each turn, or less often where that is
enough, and returns the ``Observation`` by which ``rules`` decides. The
``AgentMemory`` holds all that outlives a turn: the worlds and the spare that the agent
started, and for how long conditions have held.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from freetrain.agent.board import UnknownNowError
from freetrain.agent.environment import NodeProcesses
from freetrain.agent.observation import (
    HeartbeatWatch,
    Observation,
    ObservedGeneration,
    ObservedSpare,
    ObservedTrainer,
    ObservedWorld,
    ProgressWatch,
    TickSilence,
    TickWatch,
    is_failure,
    judge,
    sizes_left_out,
    sizes_to_avoid,
)
from freetrain.agent.rules import leave_bound_s, limit_margin_s
from freetrain.state.files import SILENCE_NOTICE_S, STALLED, all_sizes

if TYPE_CHECKING:
    from collections.abc import Collection, Hashable, Mapping, Sequence

    from freetrain.agent.board import Board, TrainerFolder
    from freetrain.agent.environment import Environment, ProcessGroup
    from freetrain.agent.observation import Patience, Peer
    from freetrain.broker.lease import LeaseKey
    from freetrain.state.files import AssignmentFile, GenerationEnding


@dataclass(slots=True)
class LaunchedWorld:
    """A world that this agent launched, with the times of its events.

    All times are on the agent's clock.

    Attributes:
        process: Its launcher.
        after: The generation that it waits for, if any.
        why_killed: The reason, for people; empty if it was not killed.
        exit_s: When its launcher was first seen gone.
        lingers: Whether a process of its session was left at the last look.
        has_lost_client: Whether a client of one of its steps ended lately.
        has_begun: Whether its program ever left a sign of life: the sign is removed
            when the next generation begins.
        is_told: Whether the request to stop was delivered whole.
        oom_kills: Processes of this node killed for want of memory before its launch.
        progress: Its steps; None before the first look.
        checkpoints: What tells of its checkpoints, at the last look.
        checkpoints_due_s: When to look at them again, while it makes no steps.
        stalled: Why it was asked to stop, where it makes no steps.
    """

    trainer: str
    generation: int
    process: ProcessGroup
    after: int | None
    launched_s: float
    asked_s: float | None = None
    killed_s: float | None = None
    why_killed: str = ""
    exit_s: float | None = None
    exit_code: int | None = None
    lingers: bool = False
    has_lost_client: bool = False
    has_begun: bool = False
    is_told: bool = False
    oom_kills: int = 0
    progress: ProgressWatch | None = None
    checkpoints: Hashable = None
    checkpoints_due_s: float = 0.0
    stalled: str = ""

    def look(self, now_s: float) -> None:
        """See whether the launcher is still there, or else its other processes."""
        if self.exit_s is None:
            self.exit_code = self.process.poll()
            if self.exit_code is not None:
                self.exit_s = now_s
        if self.exit_s is not None and self.killed_s is None:
            self.lingers = self.process.lingers()
        if self.exit_s is None and self.asked_s is None:
            self.has_lost_client = self.process.has_lost_client()

    def observed(self, now_s: float) -> ObservedWorld:
        """Return the part of it that decisions need."""
        progress = self.progress
        return ObservedWorld(
            quiet_s=0.0 if progress is None else progress.quiet_s,
            longest_pause_s=0.0 if progress is None else progress.longest_pause_s,
            stalled=self.stalled,
            age_s=now_s - self.launched_s,
            after=self.after,
            asked_s=None if self.asked_s is None else now_s - self.asked_s,
            is_told=self.is_told,
            killed_s=None if self.killed_s is None else now_s - self.killed_s,
            exit_s=None if self.exit_s is None else now_s - self.exit_s,
            exit_code=self.exit_code,
            lingers=self.lingers,
        )


@dataclass(slots=True)
class StartedSpare:
    """A spare that this agent started.

    Attributes:
        trainer: The trainer whose ranks it makes.
        generation: The generation beside which it was started.
        is_asked: Whether it was asked to make no more ranks.
        has_ended: Whether it was seen gone.
        is_ready: Whether it was seen to wait for ranks to make.
    """

    trainer: str
    generation: int
    process: ProcessGroup
    is_asked: bool = False
    has_ended: bool = False
    is_ready: bool = False


@dataclass(slots=True)
class AgentMemory:
    """Everything that outlives a turn.

    Attributes:
        now_s, unix_s: The time of this turn, on the agent's clock and Unix time.
        worlds: Worlds that this agent launched and that still matter.
        ended_leases: Silent leases whose jobs it ended.
        leaving_since_s: When this lease began to leave for good; None if it does not.
        leave_grace_s: How long it may take to leave where nothing but its agent ends
            it; None for as long as its time limit leaves.
        has_asked_slurm: Whether slurmctld was asked in this silence of ticks.
        busy_s: When it last had a trainer.
        spare: The spare that it has, or that ended without being asked to.
    """

    now_s: float
    unix_s: float = 0.0
    worlds: dict[tuple[str, int], LaunchedWorld] = field(default_factory=dict)
    ended_leases: set[LeaseKey] = field(default_factory=set)
    leaving_since_s: float | None = None
    leave_grace_s: float | None = None
    has_asked_slurm: bool = False
    busy_s: float = 0.0
    spare: StartedSpare | None = None
    _since_s: dict[Hashable, float] = field(default_factory=dict)
    _asked: set[Hashable] = field(default_factory=set)

    def begin(self, *, now_s: float, unix_s: float) -> None:
        """Begin a turn."""
        self.now_s, self.unix_s = now_s, unix_s
        self._asked = set()

    def age_s(self, condition: Hashable) -> float:
        """Return for how long *condition* has held; 0 in the turn that first asks."""
        self._asked.add(condition)
        return self.now_s - self._since_s.setdefault(condition, self.now_s)

    def end(self) -> None:
        """End a turn: conditions that were not asked about do not hold any more."""
        self._since_s = {k: s for k, s in self._since_s.items() if k in self._asked}


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnLease:
    """The lease of an agent.

    Attributes:
        node: Slurm's NodeName, or the host's name outside of Slurm.
        host: The host's own name.
        pid: The agent's process number.
        limit_s: Its time limit.
        grace_s: How long it has from Slurm's signal to the kill.
    """

    key: LeaseKey
    node: str
    host: str
    pid: int
    limit_s: float
    grace_s: float


_CHECKPOINTS_EVERY_S = 5.0
_SIGN_EVERY_S = 3.0
_FIRST_SIGN_S = 15.0  # a tick changes the sign last, when its leases may have begun
_DEFAULT_KILL_AFTER_S = 30.0
_ROOM_AGAIN_S = 5.0
_MOST_HISTORY = 50


class Observer:
    """Makes the observations of one agent.

    Attributes:
        memory: Everything that outlives a turn.
        processes: The processes of this node.
    """

    def __init__(
        self,
        lease: OwnLease,
        board: Board,
        environment: Environment,
        patience: Patience,
    ) -> None:
        """Take the lease, the shared files, the environment, and times to go by."""
        now_s = environment.elapsed_s()
        self.memory = AgentMemory(now_s, busy_s=now_s)
        self.processes = NodeProcesses(lease.key, board, environment, patience)
        self._lease = lease
        self._me = lease.key
        self._board = board
        self._environment = environment
        self._patience = patience
        self._started_s = now_s
        self._names: tuple[str, ...] = ()
        self._list_due_s = now_s
        # By trainer: its files when all that they name could be read.
        self._readable: dict[str, TrainerFolder] = {}
        self._announced_spare = ""
        # By world that was seen on this node: whether ranks of it were.
        self._had_ranks: dict[tuple[str, int], bool] = {}
        self._room_due_s = now_s
        self._ticks = TickWatch(now_s=now_s)
        self._sign_due_s = now_s + patience.poll_s  # once the first beat is written
        self._watches: dict[LeaseKey, HeartbeatWatch] = {}
        self._looked_s: dict[LeaseKey, float] = {}

    def look_at_own(self) -> None:
        """See the state of the worlds, the lease and the spare of this agent."""
        for world in self.memory.worlds.values():
            try:
                world.look(self.memory.now_s)
            except OSError as error:
                self._environment.log(f"cannot look at a world's processes: {error}")
        if self._environment.is_asked_to_leave():  # before all else: others wait for it
            self._leave("asked to leave by Slurm, a tick or a drill")
        spare = self.memory.spare
        if spare is not None:
            if not spare.has_ended:
                self._look_at_spare(spare)
            if spare.has_ended and spare.is_asked:
                self.memory.spare = None
        self._announce_spare(spare)

    def _leave(self, why: str) -> None:
        if self.memory.leaving_since_s is None:
            self.memory.leaving_since_s = self.memory.now_s
            self._environment.log(f"leaving: {why}")

    def _look_at_spare(self, spare: StartedSpare) -> None:
        code = spare.process.poll()
        if code is None and not spare.is_asked and not spare.is_ready:
            spare.is_ready = self._environment.is_spare_ready(self._me)
        elif code is not None and not spare.is_asked:
            self._environment.log(
                f"the spare of {spare.trainer} ended: exit code {code}"
            )
        spare.has_ended = code is not None

    def _announce_spare(self, spare: StartedSpare | None) -> None:
        """Write for which trainer a spare waits here, until that has been written."""
        waits = spare is not None and spare.is_ready
        if spare is None or not waits or spare.is_asked or spare.has_ended:
            wanted = ""
        else:
            wanted = spare.trainer
        if wanted == self._announced_spare:
            return
        try:
            self._board.announce_spare(self._me, wanted)
            self._announced_spare = wanted
        except OSError as error:
            self._environment.log(f"cannot say whether there is a spare: {error}")

    def folders(self) -> tuple[TrainerFolder, ...]:
        """Return the folders of the trainers of which this lease has a part.

        It lists all trainers once a second, and reads those of the lease in every turn.
        """
        names = self._names
        if self.memory.now_s >= self._list_due_s:
            self._list_due_s = self.memory.now_s + self._patience.scan_s
            names = self._all_names()
        found = [self._folder(name) for name in names]
        folders = tuple(folder for folder in found if folder is not None)
        self._names = tuple(folder.name for folder in folders)
        return folders

    def _all_names(self) -> tuple[str, ...]:
        try:
            return tuple(sorted({*self._board.trainers(), *self._names}))
        except UnknownNowError:
            return self._names

    def _folder(self, name: str) -> TrainerFolder | None:
        """Return the folder of a trainer if this lease has a part of it, else None."""
        try:
            folder = self._board.folder(name)
            return folder if folder and self._has_part(folder) else None
        except UnknownNowError:
            return self._readable.get(name)

    def _has_part(self, folder: TrainerFolder) -> bool:
        if any(w.trainer == folder.name for w in self.memory.worlds.values()):
            return True
        return any(
            self._me in self._board.assigned(folder.name, number).keys
            for number in (*folder.open, folder.newest)
        )

    def observe(
        self, folders: Sequence[TrainerFolder], *, is_cut_off: bool
    ) -> Observation:
        """Return everything that the agent knows in this turn.

        Args:
            folders: Of this lease's trainers.
            is_cut_off: Whether the files cannot be used: then no lease grows silent.
        """
        memory = self.memory
        trainers = self._observe_trainers(folders)
        unknown = {f.name for f in folders} - {trainer.name for trainer in trainers}
        if folders:
            memory.busy_s = memory.now_s
        peers = self._observe_peers(trainers, is_cut_off=is_cut_off)
        leaving_s, bound_s = self._leaving(trainers)
        spare = memory.spare
        return Observation(
            me=self._me,
            trainers=trainers,
            unknown=frozenset(unknown),
            peers=peers,
            stuck=self.processes.stuck,
            leaving_s=leaving_s,
            bound_s=bound_s,
            idle_s=memory.now_s - memory.busy_s,
            silence=self._observe_silence(),
            ended_leases=frozenset(memory.ended_leases),
            gone_leases=self._environment.gone_leases(),
            spare=None
            if spare is None
            else ObservedSpare(
                spare.trainer, spare.generation, is_asked=spare.is_asked
            ),
            patience=self._patience,
        )

    def _leaving(
        self, trainers: Sequence[ObservedTrainer]
    ) -> tuple[float | None, float]:
        """Return for how long this lease has been leaving, and how long it may."""
        memory, lease = self.memory, self._lease
        kill_after_s = max(
            (t.job.stop.kill_after_s for t in trainers), default=_DEFAULT_KILL_AFTER_S
        )
        margin_s = limit_margin_s(limit_s=lease.limit_s, kill_after_s=kill_after_s)
        if memory.now_s - self._started_s >= lease.limit_s - margin_s:
            self._leave("the time limit is near")
        grace_s = margin_s if memory.leave_grace_s is None else memory.leave_grace_s
        if self._environment.is_asked_to_leave():
            grace_s = lease.grace_s
        bound_s = leave_bound_s(kill_after_s=kill_after_s, grace_s=grace_s)
        since_s = memory.leaving_since_s
        return (None if since_s is None else memory.now_s - since_s), bound_s

    # Ticks, by their sign.

    def _observe_silence(self) -> TickSilence:
        memory, ticks = self.memory, self._ticks
        limit_s, now_s = ticks.limit_s, memory.now_s
        is_due = limit_s is not None and (
            ticks.age_s(now_s=now_s) >= limit_s - SILENCE_NOTICE_S
        )
        if memory.leaving_since_s is None and (is_due or now_s >= self._sign_due_s):
            self._sign_due_s = now_s + _SIGN_EVERY_S
            self._look_at_sign()
        answers = self._environment.slurm_answers() if memory.has_asked_slurm else None
        if answers is False:
            self._environment.log(
                "no tick gives a sign, and slurmctld does not answer: no job could "
                "start on this node, and the lease stays"
            )
            ticks.begin_anew(now_s=now_s)
            memory.has_asked_slurm = False
        return TickSilence(
            age_s=ticks.age_s(now_s=now_s),
            limit_s=ticks.limit_s,
            is_asked=memory.has_asked_slurm,
            slurm_answers=answers,
        )

    def _look_at_sign(self) -> None:
        """Look at the sign of ticks; one that cannot be read has not changed."""
        with suppress(UnknownNowError):
            sign = self._board.tick_sign()
            age_s = self._board.tick_sign_age_s(self._me)
            if sign is not None and sign.silence_s is not None:
                most_s = sign.silence_s - SILENCE_NOTICE_S - _FIRST_SIGN_S
                age_s = max(0.0, min(age_s, most_s))
            if self._ticks.look(sign, now_s=self.memory.now_s, age_s=age_s):
                self.memory.has_asked_slurm = False

    # Trainers and their generations.

    def _observe_trainers(
        self, folders: Sequence[TrainerFolder]
    ) -> tuple[ObservedTrainer, ...]:
        home = self._home(folders)
        readable: dict[str, TrainerFolder] = {}
        found: list[ObservedTrainer] = []
        for folder in folders:
            # A file that was listed may not be readable yet; all it changes is then
            # seen some turns later.
            for known in (folder, self._readable.get(folder.name)):
                with suppress(UnknownNowError):
                    if known is not None:
                        found.append(self._observe_trainer(known, home=home))
                        readable[known.name] = known
                        break
        self._readable = readable
        return tuple(found)

    def _home(self, folders: Sequence[TrainerFolder]) -> str:
        """Return the trainer that this lease was given to last, empty for none.

        Survivors and broker may give it to two at once; it leaves the older.
        """
        claims = []
        for folder in folders:
            with suppress(UnknownNowError):
                newest = self._board.assigned(folder.name, folder.newest)
                if self._me in newest.keys:
                    claims.append((newest.created_s, folder.name))
        return max(claims)[1] if claims else ""

    def _observe_trainer(self, folder: TrainerFolder, *, home: str) -> ObservedTrainer:
        board, memory, name = self._board, self.memory, folder.name
        job = board.job(name)
        launched = {g for trainer, g in memory.worlds if trainer == name}
        earlier = sorted({*folder.open, *launched} - {folder.newest})
        newest, *before_it = self._generations(
            folder,
            (folder.newest, *earlier),
            wants_spare=job.may_have_spares and memory.spare is None,
        )
        is_running = newest.world is not None and newest.world.exit_s is None
        running_s = newest.world.age_s if newest.world and is_running else 0.0
        history = self._history(folder)
        last = max((e.generation for e in history if e.was_launched), default=0)
        before = folder.generations[:-1]
        is_given_elsewhere = name != home and self._me in newest.assigned.keys
        return ObservedTrainer(
            job=job.without_sizes(self._sizes_to_avoid(folder)),
            newest=newest,
            earlier=tuple(before_it),
            previous=board.assigned(name, before[-1]) if before else None,
            verdict=judge(history, job),
            failed=max((e.generation for e in history if is_failure(e)), default=0),
            stalls=sum(ending.message.startswith(STALLED) for ending in history),
            has_room_for_spare=job.may_have_spares
            and job.launch.spare is None
            and self._has_room_for_spare(newest),
            is_done=board.is_done(name, running_s=running_s),
            since_end_s=memory.age_s(("end", name, last)),
            is_being_left=memory.leaving_since_s is not None or is_given_elsewhere,
            unix_s=memory.unix_s,
        )

    def _sizes_to_avoid(self, folder: TrainerFolder) -> frozenset[int]:
        """Return the sizes that the next world of a trainer is not to have."""
        endings, job = self._board.last_endings(folder), self._board.job(folder.name)
        tried = all_sizes(size for ending in endings for size in ending.tried)
        if endings and endings[0].generation == folder.newest:
            after = endings[0].leases
            return sizes_to_avoid(tried, job, after=after, now_s=self.memory.unix_s)
        return frozenset(sizes_left_out(tried, job, now_s=self.memory.unix_s))

    def _has_room_for_spare(self, newest: ObservedGeneration) -> bool:
        """Tell whether a spare is there, or has room beside the ranks of *newest*."""
        memory, name = self.memory, newest.assigned.trainer
        if memory.spare is not None:
            return memory.spare.trainer == name
        if not newest.has_begun or memory.now_s < self._room_due_s:
            return False
        ranks = [
            process.pid
            for process in self.processes.mine
            if process.mark.world == (name, newest.number) and process.mark.is_rank
        ]
        if not ranks:
            return False
        self._room_due_s = memory.now_s + _ROOM_AGAIN_S
        has_room = self._environment.has_room_for_spare(ranks)
        if not has_room:
            self._environment.log(
                f"no spare of {name}: less memory is free than twice what it has"
            )
        return has_room

    def _history(self, folder: TrainerFolder) -> list[GenerationEnding]:
        """Return the endings since the last generation without leases."""
        endings: list[GenerationEnding] = []
        for number in reversed(folder.generations[-_MOST_HISTORY:]):
            is_newest = number == folder.newest
            if not is_newest and not self._board.assigned(folder.name, number).members:
                break
            if number in folder.over:
                endings.append(self._board.ending(folder.name, number))
        return endings[::-1]

    def _generations(
        self, folder: TrainerFolder, numbers: Sequence[int], *, wants_spare: bool
    ) -> tuple[ObservedGeneration, ...]:
        board, memory, name = self._board, self.memory, folder.name
        notices = board.notices(name)
        marks = [process.mark for process in self.processes.mine]
        found = []
        for number in numbers:
            world = memory.worlds.get((name, number))
            if world is not None and world.exit_s is None and world.asked_s is None:
                self._watch(world)
            outcome = board.outcome(name, number)
            outcome_age_s = memory.age_s(("outcome", name, number)) if outcome else 0.0
            generation = ObservedGeneration(
                assigned=board.assigned(name, number),
                age_s=memory.age_s(("generation", name, number)),
                is_over=number in folder.over,
                outcome=outcome,
                outcome_age_s=outcome_age_s,
                is_ready=board.is_ready(name, number),
                has_begun=self._has_begun(
                    name, number, outcome=outcome, wants_spare=wants_spare
                ),
                is_stop_requested=board.is_stop_requested(name, number),
                has_broken_off=not outcome
                and number not in folder.over
                and self._has_broken_off(name, number),
                notices=frozenset(key for g, key in notices if g == number),
                processes=sum(mark.world == (name, number) for mark in marks),
                world=None if world is None else world.observed(memory.now_s),
            )
            found.append(generation)
        return tuple(found)

    def _watch(self, world: LaunchedWorld) -> None:
        """See whether a world makes steps, or else has a reason not to."""
        board, now_s, name = self._board, self.memory.now_s, world.trainer
        if board.job(name).launch.pack is not None:
            return  # its members take turns, and have watches of their own
        if world.progress is None:
            world.progress = ProgressWatch(now_s=now_s)
        progress = world.progress
        try:
            steps = board.steps_reported(name, world.generation)
            progress.look(steps, now_s=now_s)
            is_quiet = progress.quiet_s >= self._patience.stall_s / 2
            if not is_quiet or now_s < world.checkpoints_due_s:
                return
            world.checkpoints_due_s = now_s + _CHECKPOINTS_EVERY_S
            before, world.checkpoints = world.checkpoints, board.checkpoint_stamp(name)
            is_committing = before not in {None, world.checkpoints}
            if is_committing or not board.can_report(name):
                progress.begin_anew()
        except UnknownNowError:
            progress.skip(now_s=now_s)

    def _has_broken_off(self, name: str, number: int) -> bool:
        """Tell whether a world, or its part on this node, is gone."""
        world = self.memory.worlds.get((name, number))
        if world is not None and (world.exit_s is not None or world.has_lost_client):
            return True
        marks = [p.mark for p in self.processes.mine]
        here = [mark.is_rank for mark in marks if mark.world == (name, number)]
        had_ranks = self._had_ranks.get((name, number), False) or any(here)
        if here:
            self._had_ranks[name, number] = had_ranks
        # Daemons may outlive the ranks; not every launcher's ranks are known as such.
        is_here = any(here) if had_ranks else bool(here)
        return not is_here and (name, number) in self._had_ranks

    def _has_begun(
        self, name: str, number: int, *, outcome: str, wants_spare: bool
    ) -> bool:
        """Tell whether a world has begun, where that matters to this agent."""
        world = self.memory.worlds.get((name, number))
        if world is None:
            return bool(outcome) or (
                wants_spare and self._board.has_begun(name, number)
            )
        if not world.has_begun:
            world.has_begun = bool(outcome) or self._board.has_begun(name, number)
        return world.has_begun

    # The other leases, by their heartbeats.

    def _observe_peers(
        self, trainers: Sequence[ObservedTrainer], *, is_cut_off: bool
    ) -> Mapping[LeaseKey, Peer]:
        """Return the other leases of *trainers*, and forget all others.

        A head reads up to 50 heartbeats a second and a member 12, so that 64 agents of
        one trainer ask for less than 1,000 files a second.
        """
        now_s = self.memory.now_s
        keys = _members(trainers) - {self._me}
        is_head = any(g.is_headed_by(self._me) for t in trainers for g in t.generations)
        least_s, per_s = (0.2, 50) if is_head else (1.0, 12)
        every_s = max(least_s, len(keys) / per_s)
        self._looked_s = {k: s for k, s in self._looked_s.items() if k in keys}
        self._watches = {
            key: self._watches.get(key) or HeartbeatWatch(now_s=now_s) for key in keys
        }
        for key, watch in self._watches.items():
            if now_s - self._looked_s.get(key, -every_s) >= every_s:
                self._looked_s[key] = now_s
                self._look_at_heartbeat(key, watch, is_cut_off=is_cut_off)
        return {key: watch.peer for key, watch in self._watches.items()}

    def _look_at_heartbeat(
        self, key: LeaseKey, watch: HeartbeatWatch, *, is_cut_off: bool
    ) -> None:
        try:
            heartbeat = self._board.heartbeat(key)
        except UnknownNowError:
            is_cut_off = True
        if is_cut_off:
            watch.skip(now_s=self.memory.now_s)
        else:
            watch.look(heartbeat, now_s=self.memory.now_s)


def _members(trainers: Collection[ObservedTrainer]) -> frozenset[LeaseKey]:
    """Return every lease whose heartbeat matters."""
    found: set[LeaseKey] = set()
    for trainer in trainers:
        before: tuple[AssignmentFile, ...] = (
            (trainer.previous,) if trainer.previous else ()
        )
        for assigned in (*before, *(g.assigned for g in trainer.generations)):
            found |= assigned.keys
    return frozenset(found)
