"""The agent's loop: look, decide, do; about ten times a second."""

from __future__ import annotations

from typing import TYPE_CHECKING

from freetrain.agent.actions import EndOwnJob
from freetrain.agent.carry_out import CarryOut
from freetrain.agent.decide import conditions, decide
from freetrain.agent.discovery import Discovery
from freetrain.agent.gather import Self, gather
from freetrain.agent.heart import Heart
from freetrain.agent.leaving import leave_bound_s, limit_margin_s
from freetrain.agent.memory import Memory
from freetrain.agent.node import Node
from freetrain.agent.peer_watch import PeerWatch
from freetrain.agent.seen import Seen
from freetrain.agent.spare_watch import look_at_spare
from freetrain.errors import FreeTrainError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from freetrain.agent.board import Board
    from freetrain.agent.edge import Edge
    from freetrain.agent.gather import Folder
    from freetrain.agent.lease import Lease
    from freetrain.agent.patience import Patience
    from freetrain.agent.seen import TrainerSeen
    from freetrain.broker.lease import LeaseKey

_DEFAULT_KILL_AFTER_S = 30.0
_HURRIED_SCAN_S = 0.3
_END_POLL_S = 0.02


class Agent:
    """One lease's agent."""

    def __init__(
        self, lease: Lease, board: Board, edge: Edge, patience: Patience
    ) -> None:
        """Take the lease, the shared files, the edge, and times to go by."""
        now_s = edge.elapsed_s()
        self._lease = lease
        self._board = board
        self._edge = edge
        self._patience = patience
        self._started_s = now_s
        self._memory = Memory(now_s, busy_s=now_s)
        self._node = Node(lease.key, board, edge, patience)
        self._peers = PeerWatch()
        self._discovery = Discovery(lease.key, board, edge, patience)
        self._heart = Heart(lease, board, edge, self._node)
        self._carry_out = CarryOut(lease, board, edge, self._memory, self._node)
        self._scan_due_s = now_s
        self._is_clean = False

    def run(self) -> bool:
        """Work until the lease ends; return whether nothing of it is left here.

        Then its batch script may end, and with it the job, a second sooner than Slurm
        ends one by force.
        """
        while not self.turn():
            self._edge.wait(self._patience.poll_s)
        return self._is_clean

    def turn(self) -> bool:
        """Look, decide and do, once; return whether the lease has ended."""
        memory, edge = self._memory, self._edge
        memory.begin(now_s=edge.elapsed_s(), unix_s=edge.unix_s())
        self._look_at_worlds()
        self._hear()
        look_at_spare(self._lease.key, self._board, edge, memory)
        folders = self._discovery.folders(self._memory)
        self._scan(folders)
        seen = self._see(folders)
        self._heart.beat(seen, now_s=memory.now_s, every_s=self._patience.beat_s)
        ages_s = {what: memory.age_s(what) for what in conditions(seen, self._patience)}
        actions = decide(seen, self._patience, ages_s=ages_s)
        for action in actions:
            if isinstance(action, EndOwnJob):
                self._end(action)
                return True
            self._carry_out.one(action)
        self._forget_worlds(seen)
        memory.end()
        return False

    def _look_at_worlds(self) -> None:
        memory = self._memory
        for running in memory.worlds.values():
            running.look(memory.now_s)

    def _forget_worlds(self, seen: Seen) -> None:
        """Forget worlds that are gone, and said to be."""
        for trainer in seen.trainers:
            for g in trainer.generations:
                is_gone = g.world is not None and g.world.exit_s is not None
                if is_gone and g.is_over and not g.processes:
                    self._memory.worlds.pop((trainer.name, g.number))

    def _end(self, action: EndOwnJob) -> None:
        """Leave nothing behind, say goodbye, and end the job if something is left."""
        edge = self._edge
        edge.say(f"ending this lease's job: {action.why}")
        if edge.is_told_to_leave():
            self._node.kill_all()  # what was worth keeping is kept, and others wait
        until_s = edge.elapsed_s() + self._patience.sweep_grace_s
        self._is_clean = self._node.end_all()
        while not self._is_clean and edge.elapsed_s() < until_s:
            edge.wait(_END_POLL_S)
            self._is_clean = self._node.end_all()
        self._heart.last_beat()
        edge.stop_listening()
        if not self._is_clean:
            self._node.kill_all()
            edge.end_own_job()

    def _scan(self, folders: Sequence[Folder]) -> None:
        memory = self._memory
        if memory.now_s < self._scan_due_s and not self._is_in_haste():
            return
        is_rescale = any(folder.open for folder in folders)
        every_s = _HURRIED_SCAN_S if is_rescale else self._patience.scan_s
        self._scan_due_s = memory.now_s + min(every_s, self._patience.scan_s)
        self._node.scan(folders)
        self._node.sweep()

    def _is_in_haste(self) -> bool:
        is_leaving = self._memory.leaving_since_s is not None
        return is_leaving or any(
            running.exit_s is not None for running in self._memory.worlds.values()
        )

    def _see(self, folders: Sequence[Folder]) -> Seen:
        trainers = self._trainers(folders)
        memory = self._memory
        if trainers:
            memory.busy_s = memory.now_s
        is_head = any(
            g.is_headed_by(self._lease.key) for t in trainers for g in t.generations
        )
        peers = self._peers.look(
            self._board,
            memory,
            _members(trainers) - {self._lease.key},
            is_head=is_head,
            is_cut_off=self._heart.is_cut_off,
        )
        leaving_s, bound_s = self._leaving(trainers)
        return Seen(
            me=self._lease.key,
            trainers=trainers,
            peers=peers,
            stuck=self._node.stuck,
            leaving_s=leaving_s,
            bound_s=bound_s,
            idle_s=memory.now_s - memory.busy_s,
            ended_leases=frozenset(memory.ended_leases),
            spare=None if memory.spare is None else memory.spare.seen(),
        )

    def _trainers(self, folders: Sequence[Folder]) -> tuple[TrainerSeen, ...]:
        own = Self(
            me=self._lease.key,
            processes=self._node.mine,
            is_leaving=self._memory.leaving_since_s is not None,
            home=self._home(folders),
            has_spare=self._memory.spare is not None,
        )
        found: list[TrainerSeen] = []
        for folder in folders:
            try:
                seen = gather(self._board, folder, self._memory, own)
            except (OSError, FreeTrainError) as error:
                self._edge.say(f"cannot read about trainer {folder.name!r}: {error}")
            else:
                found.append(seen)
        return tuple(found)

    def _home(self, folders: Sequence[Folder]) -> str:
        """Return the trainer that has got this lease last, empty for none.

        Survivors and broker may give it to two at once; it leaves the older.
        """
        claims = []
        for folder in folders:
            newest = self._board.assigned(folder.name, folder.newest)
            if self._lease.key in newest.keys:
                claims.append((newest.created_s, folder.name))
        return max(claims)[1] if claims else ""

    def _hear(self) -> None:
        """Hear of the end before anything is decided: others wait for this lease."""
        if self._edge.is_told_to_leave():
            self._leave("Slurm takes the node")

    def _leave(self, why: str) -> None:
        if self._memory.leaving_since_s is None:
            self._memory.leaving_since_s = self._memory.now_s
            self._edge.say(f"leaving: {why}")

    def _leaving(self, trainers: Sequence[TrainerSeen]) -> tuple[float | None, float]:
        """Return for how long this lease has been leaving, and how long it may."""
        memory, lease = self._memory, self._lease
        kill_after_s = max(
            (t.job.stop.kill_after_s for t in trainers), default=_DEFAULT_KILL_AFTER_S
        )
        margin_s = limit_margin_s(limit_s=lease.limit_s, kill_after_s=kill_after_s)
        is_near = memory.now_s - self._started_s >= lease.limit_s - margin_s
        if is_near:
            self._leave("the time limit is near")
        grace_s = lease.grace_s if self._edge.is_told_to_leave() else margin_s
        bound_s = leave_bound_s(kill_after_s=kill_after_s, grace_s=grace_s)
        since_s = memory.leaving_since_s
        return (None if since_s is None else memory.now_s - since_s), bound_s


def _members(trainers: Sequence[TrainerSeen]) -> frozenset[LeaseKey]:
    """Return every lease whose heartbeat matters."""
    found: set[LeaseKey] = set()
    for trainer in trainers:
        for generation in trainer.generations:
            found |= generation.assigned.keys
        if trainer.previous is not None:
            found |= trainer.previous.keys
    return frozenset(found)
