"""A made-up world of ranks: starts, waits, trains, commits, dies."""

from __future__ import annotations

import signal
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from freetrain.broker.lease import LeaseKey
    from tests.agent.model_cluster import ModelCluster

START_S = 0.6
STOP_S = 0.3
DIE_S = 1.0


@dataclass(slots=True)
class ModelWorld:
    """One generation's processes: a launcher with the head, a rank on each node.

    Attributes:
        cluster: Where it is.
        where: Trainer and generation.
        members: Its leases, the head first.
        after: The generation it waits for.
        ranks: Nodes that still have a process of it.
        frozen: Nodes whose process is stopped.
        began: Whether it claimed its generation and trained.
        steps: Time trained, in steps of the clock.
        exit_code: The launcher's, once it is gone.
        ignores_stop: Whether it does not obey.
        fails_s: After which time of training it fails by itself.
        hangs: Whether it never begins.
        is_forked: Whether its ranks are forks of spares.
    """

    cluster: ModelCluster
    where: tuple[str, int]
    members: tuple[LeaseKey, ...]
    after: int | None
    elastic: bool = True
    ranks: set[LeaseKey] = field(default_factory=set)
    frozen: set[LeaseKey] = field(default_factory=set)
    began: bool = False
    exit_code: int | None = None
    ignores_stop: bool = False
    fails_s: float = 1e9
    hangs: bool = False
    is_forked: bool = False
    pid: int = 1
    _started_s: float = 0.0
    _asked_s: float | None = None
    _broken_s: float | None = None
    _trained_s: float = 0.0

    def __post_init__(self) -> None:
        self.ranks = {m for m in self.members if self.cluster.leases[m].is_alive}
        self._started_s = self.cluster.now_s
        if len(self.ranks) < len(self.members):
            self._broken_s = self.cluster.now_s

    @property
    def is_training(self) -> bool:
        is_whole = self.ranks == set(self.members) and not self.frozen
        return self.began and self.exit_code is None and is_whole

    def poll(self) -> int | None:
        return self.exit_code

    def ask_to_stop(self) -> None:
        self._asked_s = self.cluster.now_s if self._asked_s is None else self._asked_s

    def lingers(self) -> bool:
        return bool(self.ranks - {self.members[0]})  # clients of their steps

    def kill(self) -> None:
        if self.exit_code is None:
            self.exit_code = -9
        self._break()

    def lose_node(self, key: LeaseKey) -> None:
        self.ranks.discard(key)
        self.frozen.discard(key)
        if key == self.members[0] and self.exit_code is None:
            self.exit_code = -9
        if key in self.members:
            self._break()

    def lose_rank(self, key: LeaseKey) -> None:
        self.ranks.discard(key)
        self.frozen.discard(key)
        self._break()

    def hear(self, key: LeaseKey, number: signal.Signals) -> None:
        """Take a signal that a sweep sends to the process on one node."""
        if key in self.frozen and number is not signal.SIGKILL:
            return
        self.ranks.discard(key)
        self.frozen.discard(key)
        self._break()

    def freeze(self, key: LeaseKey) -> None:
        if key in self.ranks:
            self.frozen.add(key)

    def step(self) -> None:
        now_s = self.cluster.now_s
        if self._broken_s is not None:
            if now_s >= self._broken_s + DIE_S:
                self.ranks &= self.frozen  # what is stopped cannot die by itself
                if self.exit_code is None and not self.frozen:
                    self.exit_code = 1
            return
        if self.exit_code is not None or self.frozen:
            return
        self._live(now_s)

    def _live(self, now_s: float) -> None:
        board, trainer = self.cluster.board, self.where[0]
        if self.hangs or now_s < self._started_s + START_S:
            return
        if not self.began:
            if self.after is not None and not self._is_over(self.after):
                board.ready.add(self.where)
                return
            self.began = True
            board.begun.add(self.where)
        if self._is_fenced():
            self._finish("superseded")
            return
        self._trained_s += 0.1
        if self._trained_s >= self.fails_s:
            self.exit_code = 1
            self._break()
            return
        asked_s = self._asked_s
        if asked_s is None and self.where in board.stops:
            asked_s = self._asked_s = now_s
        if asked_s is not None and now_s >= asked_s + STOP_S and not self.ignores_stop:
            board.committed[trainer] = board.committed.get(trainer, 0) + 1
            self._finish("rescaled")

    def _is_over(self, generation: int) -> bool:
        where = (self.where[0], generation)
        board = self.cluster.board
        return where in board.outcomes or where in board.over

    def _is_fenced(self) -> bool:
        return any(
            t == self.where[0] and g > self.where[1] and w.began
            for (t, g), w in self.cluster.worlds.items()
        )

    def _finish(self, outcome: str) -> None:
        step = self.cluster.board.committed.get(self.where[0], 0)
        self.cluster.board.outcomes[self.where] = (outcome, step)
        self.exit_code = 0
        self.ranks = set()

    def _break(self) -> None:
        if self._broken_s is None:
            self._broken_s = self.cluster.now_s
