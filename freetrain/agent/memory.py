"""What an agent remembers from one turn to the next; the files have the rest."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from freetrain.agent.observation import HeartbeatWatch, ObservedSpare, ObservedWorld

if TYPE_CHECKING:
    from collections.abc import Collection, Hashable

    from freetrain.agent.environment import ProcessGroup
    from freetrain.broker.lease import LeaseKey


@dataclass(slots=True)
class LaunchedWorld:
    """A world that this agent launched, with the times of what happened to it.

    Attributes:
        trainer: The trainer.
        generation: Its generation.
        process: Its launcher.
        after: The generation it waits for, if any.
        launched_s: When it was launched, on the agent's clock.
        asked_s: When it was asked to stop, if it was.
        killed_s: When it was killed, if it was.
        why_killed: The reason, for people; empty if it was not killed.
        exit_s: When its launcher was first seen gone.
        exit_code: The launcher's exit status.
        lingers: Whether a process of its session was left at the last look.
        has_begun: Whether its program ever left a sign of life: the sign is removed
            when the next generation begins.
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
    has_begun: bool = False

    def look(self, now_s: float) -> None:
        """See whether the launcher is still there, and what is left of it if not."""
        if self.exit_s is None:
            self.exit_code = self.process.poll()
            if self.exit_code is not None:
                self.exit_s = now_s
        if self.exit_s is not None and self.killed_s is None:
            self.lingers = self.process.lingers()

    def observed(self, now_s: float) -> ObservedWorld:
        """Return what decisions need of it."""
        return ObservedWorld(
            age_s=now_s - self.launched_s,
            after=self.after,
            asked_s=None if self.asked_s is None else now_s - self.asked_s,
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
        process: Its process.
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

    def observed(self) -> ObservedSpare:
        """Return what decisions need of it."""
        return ObservedSpare(self.trainer, self.generation, is_asked=self.is_asked)


@dataclass(slots=True)
class Memory:
    """Everything that outlives a turn.

    Attributes:
        now_s: The time of this turn, on the agent's clock.
        unix_s: The same, Unix time.
        worlds: Worlds that this agent launched and that still matter.
        heartbeats: The heartbeats that it watches.
        ended_leases: Silent leases whose jobs it ended.
        leaving_since_s: Since when this lease has to leave; None if it need not.
        busy_s: When it last had a trainer.
        spare: The spare that it has, or that ended without being asked to.
    """

    now_s: float
    unix_s: float = 0.0
    worlds: dict[tuple[str, int], LaunchedWorld] = field(default_factory=dict)
    heartbeats: dict[LeaseKey, HeartbeatWatch] = field(default_factory=dict)
    ended_leases: set[LeaseKey] = field(default_factory=set)
    leaving_since_s: float | None = None
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

    def heartbeat(self, key: LeaseKey) -> HeartbeatWatch:
        """Return the watch of *key*, begun now if there is none."""
        return self.heartbeats.setdefault(key, HeartbeatWatch(now_s=self.now_s))

    def watch_only(self, keys: Collection[LeaseKey]) -> None:
        """Forget the heartbeats of all other leases."""
        self.heartbeats = {k: w for k, w in self.heartbeats.items() if k in keys}
