"""What an agent remembers from one look to the next."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from freetrain.agent.pulse import Pulse
from freetrain.agent.seen import SpareSeen, WorldSeen

if TYPE_CHECKING:
    from collections.abc import Collection, Hashable

    from freetrain.broker.lease import LeaseKey
    from freetrain.launch.world import World


@dataclass(slots=True)
class Running:
    """A world that this agent launched, with the times of what happened to it.

    Attributes:
        trainer: Whose.
        generation: Which.
        world: Its launcher.
        after: The generation it waits for, if any.
        launched_s: When it was launched, on the agent's clock.
        asked_s: When it was asked to stop, if it was.
        killed_s: When it was killed, if it was.
        why_killed: Why, for people; empty if it was not.
        exit_s: When its launcher was first seen gone.
        exit_code: The launcher's exit status.
        lingers: Whether something of its session was left when last looked at.
        has_begun: Whether its program ever left a sign of life: what it leaves goes
            when the next generation begins.
    """

    trainer: str
    generation: int
    world: World
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
        """See whether the launcher is still there, and then what is left of it."""
        if self.exit_s is None:
            self.exit_code = self.world.poll()
            if self.exit_code is not None:
                self.exit_s = now_s
        if self.exit_s is not None and self.killed_s is None:
            self.lingers = self.world.lingers()

    def seen(self, now_s: float) -> WorldSeen:
        """Return what decisions need of it."""
        return WorldSeen(
            age_s=now_s - self.launched_s,
            after=self.after,
            asked_s=None if self.asked_s is None else now_s - self.asked_s,
            killed_s=None if self.killed_s is None else now_s - self.killed_s,
            exit_s=None if self.exit_s is None else now_s - self.exit_s,
            exit_code=self.exit_code,
            lingers=self.lingers,
        )


@dataclass(slots=True)
class Spare:
    """A spare that this agent started.

    Attributes:
        trainer: Whose ranks it makes.
        generation: The one that it was started beside.
        process: What was started.
        is_asked: Whether it was told to make no more.
        has_ended: Whether it was seen gone.
        is_ready: Whether it was seen to wait for ranks to make.
    """

    trainer: str
    generation: int
    process: World
    is_asked: bool = False
    has_ended: bool = False
    is_ready: bool = False

    def seen(self) -> SpareSeen:
        """Return what decisions need of it."""
        return SpareSeen(self.trainer, self.generation, is_asked=self.is_asked)


@dataclass(slots=True)
class Memory:
    """Everything that outlives a look; the files have the rest.

    Attributes:
        now_s: The time of this look, on the agent's clock.
        unix_s: The same for people.
        worlds: Those that this agent launched and still cares for.
        pulses: The heartbeats it watches.
        ended_leases: Silent leases whose jobs it ended.
        leaving_since_s: When it was told to leave.
        busy_s: When it last had a trainer.
        spare: The spare that it has, or had and did not tell to end.
    """

    now_s: float
    unix_s: float = 0.0
    worlds: dict[tuple[str, int], Running] = field(default_factory=dict)
    pulses: dict[LeaseKey, Pulse] = field(default_factory=dict)
    ended_leases: set[LeaseKey] = field(default_factory=set)
    leaving_since_s: float | None = None
    busy_s: float = 0.0
    spare: Spare | None = None
    _since_s: dict[Hashable, float] = field(default_factory=dict)
    _asked: set[Hashable] = field(default_factory=set)

    def begin(self, *, now_s: float, unix_s: float) -> None:
        """Begin a look."""
        self.now_s, self.unix_s = now_s, unix_s
        self._asked = set()

    def age_s(self, what: Hashable) -> float:
        """Return for how long *what* has been so; 0 the first time it is asked."""
        self._asked.add(what)
        return self.now_s - self._since_s.setdefault(what, self.now_s)

    def end(self) -> None:
        """End a look: what was not asked about is not so any more."""
        self._since_s = {k: s for k, s in self._since_s.items() if k in self._asked}

    def pulse(self, key: LeaseKey) -> Pulse:
        """Return the watch of *key*, begun now if there is none."""
        return self.pulses.setdefault(key, Pulse(now_s=self.now_s))

    def watch_only(self, keys: Collection[LeaseKey]) -> None:
        """Forget the heartbeats of all others."""
        self.pulses = {key: self.pulses[key] for key in self.pulses if key in keys}
