"""What an agent knows when it decides; all ages are on its own clock, in seconds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from freetrain.agent.verdict import GO_ON, Verdict
from freetrain.exchange.heartbeat import AgentState

if TYPE_CHECKING:
    from collections.abc import Mapping

    from freetrain.agent.patience import Patience
    from freetrain.broker.lease import LeaseKey
    from freetrain.exchange.assigned import Assigned, Member
    from freetrain.exchange.heartbeat import Heartbeat
    from freetrain.jobfile.job import TrainerJob

_FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """What is known of a lease by its heartbeat.

    Attributes:
        beat: The last one; None before the first.
        silent_s: For how long it has been watched without changing.
        has_beaten: Whether it changed while it was watched, so that its agent is up.
    """

    beat: Heartbeat | None = None
    silent_s: float = 0.0
    has_beaten: bool = False

    @property
    def state(self) -> AgentState | None:
        """What its agent says it is about."""
        return None if self.beat is None else self.beat.state

    @property
    def has_left(self) -> bool:
        """Whether its agent said goodbye."""
        return self.state is AgentState.ENDED

    def is_lost(self, patience: Patience) -> bool:
        """Tell whether it has been silent for too long, or never came."""
        if self.has_left:
            return False
        came = self.beat is not None
        limit_s = patience.silent_s if came else patience.ready_patience_s
        return self.silent_s >= limit_s


@dataclass(frozen=True, slots=True, kw_only=True)
class WorldSeen:
    """A world that this agent launched.

    Attributes:
        age_s: Since its launch.
        after: The generation it waits for before it trains, if any.
        asked_s: Since it was asked to stop; None if it was not.
        killed_s: Since it was killed; None if it was not.
        exit_s: Since its launcher was first seen gone; None while it runs.
        exit_code: The launcher's exit status.
        lingers: Whether clients of its steps are left, where the launcher is gone.
    """

    age_s: float
    after: int | None = None
    asked_s: float | None = None
    killed_s: float | None = None
    exit_s: float | None = None
    exit_code: int | None = None
    lingers: bool = False


@dataclass(frozen=True, slots=True)
class SpareSeen:
    """This lease's spare.

    Attributes:
        trainer: Whose ranks it makes.
        generation: The one that it was started beside.
        is_asked: Whether it was told to make no more.
    """

    trainer: str
    generation: int
    is_asked: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationSeen:
    """One generation that matters.

    Attributes:
        assigned: Its leases.
        age_s: Since this agent first saw it.
        is_over: Whether it has an ending.
        outcome: How its world ended, by its own word; empty while it left none.
        said_s: Since this agent first saw that word; 0 while there is none.
        is_ready: Whether its world, launched ahead, waits with all ranks.
        has_begun: Whether its program left a sign of life, or could not.
        is_stop_requested: Whether the request to stop is there for its world.
        notices: Leases that must leave it.
        processes: How many processes of it this lease has on this node.
        world: Its world, where this agent launched it.
    """

    assigned: Assigned
    age_s: float = 0.0
    is_over: bool = False
    outcome: str = ""
    said_s: float = 0.0
    is_ready: bool = False
    has_begun: bool = False
    is_stop_requested: bool = False
    notices: frozenset[LeaseKey] = frozenset()
    processes: int = 0
    world: WorldSeen | None = None

    @property
    def number(self) -> int:
        """Its number."""
        return self.assigned.generation

    @property
    def ended_well(self) -> bool:
        """Whether its world says that it ended, and not by an error."""
        return self.outcome not in {"", _FAILED}

    def has_said_goodbye(self, patience_s: float) -> bool:
        """Tell whether all is committed, and that was *patience_s* ago."""
        return self.ended_well and self.said_s >= patience_s

    @property
    def has_members(self) -> bool:
        """Whether it is to run anywhere."""
        return bool(self.assigned.members)

    def is_headed_by(self, key: LeaseKey) -> bool:
        """Tell whether the agent of *key* launches it."""
        head = self.assigned.head
        return head is not None and head.key == key


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainerSeen:
    """A trainer that this agent has to do with.

    Attributes:
        job: What its user wrote.
        newest: Its newest generation.
        earlier: Those before it that are not over, or whose world this agent still
            has, ascending.
        previous: The one right before the newest; None where there is none.
        verdict: Whether it is to be launched again.
        failed: Its newest generation that failed; 0 for none.
        is_done: Whether its work is done.
        since_end_s: Since this agent first saw its newest ending.
        must_leave: Whether this lease must leave it, for another or for good.
        unix_s: Now, for the files.
    """

    job: TrainerJob
    newest: GenerationSeen
    earlier: tuple[GenerationSeen, ...] = ()
    previous: Assigned | None = None
    verdict: Verdict = GO_ON
    failed: int = 0
    is_done: bool = False
    since_end_s: float = 0.0
    must_leave: bool = False
    unix_s: float = 0.0

    @property
    def name(self) -> str:
        """Its name."""
        return self.newest.assigned.trainer

    @property
    def generations(self) -> tuple[GenerationSeen, ...]:
        """All that matter, ascending."""
        return (*self.earlier, self.newest)

    @property
    def open(self) -> tuple[GenerationSeen, ...]:
        """Those before the newest that are not over."""
        return tuple(g for g in self.earlier if not g.is_over and g.has_members)


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """All that an agent knows.

    Attributes:
        me: This lease.
        trainers: Those it has to do with.
        peers: Other leases of their generations.
        stuck: Trainers and generations of which processes here have been stopped for
            too long.
        leaving_s: Since it was told to leave; None if it was not.
        bound_s: How long leaving may take.
        idle_s: Since it last had a trainer.
        ended_leases: Leases whose jobs it has ended already.
        spare: Its spare, also one that has ended by itself; None without one.
    """

    me: LeaseKey
    trainers: tuple[TrainerSeen, ...] = ()
    peers: Mapping[LeaseKey, Peer]
    stuck: frozenset[tuple[str, int]] = frozenset()
    leaving_s: float | None = None
    bound_s: float = 30.0
    idle_s: float = 0.0
    ended_leases: frozenset[LeaseKey] = frozenset()
    spare: SpareSeen | None = None

    def peer(self, key: LeaseKey) -> Peer:
        """Return what is known of *key*; this lease itself is there, of course."""
        if key == self.me:
            return Peer(has_beaten=True)
        return self.peers.get(key, Peer())

    def is_lost(self, member: Member, patience: Patience) -> bool:
        """Tell whether *member* is silent; this lease itself never is."""
        return member.key != self.me and self.peer(member.key).is_lost(patience)

    def occupied_by(self, *, but: str) -> tuple[str, int] | None:
        """Return the generation of another trainer than *but* that this lease has.

        While it is not over, or has processes here, the next one has to wait.
        """
        for trainer in self.trainers:
            for generation in trainer.generations if trainer.name != but else ():
                has_part = self.me in generation.assigned.keys
                if (has_part and not generation.is_over) or generation.processes:
                    return trainer.name, generation.number
        return None

    def is_leaving(
        self, trainer: TrainerSeen, generation: GenerationSeen, key: LeaseKey
    ) -> bool:
        """Tell whether *key* leaves *generation* of *trainer*, or has left."""
        if key == self.me:
            return trainer.must_leave
        leaves = {AgentState.LEAVING, AgentState.ENDED}
        return self.peer(key).state in leaves or key in generation.notices
