"""The shared files, in memory: what several agents of one test see alike."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from freetrain.agent.board import Board
from freetrain.state.files import Ended

if TYPE_CHECKING:
    from freetrain.broker.lease import LeaseKey
    from freetrain.config.job import TrainerJob
    from freetrain.state.files import Assigned, Ending, Heartbeat


@dataclass(slots=True)
class ModelBoard(Board):
    """Holds what files would hold.

    Attributes:
        jobs: Trainers.
        made: Generations, by trainer and number.
        over: Endings.
        refused: Times that a second ending or generation was refused.
        told: Notices.
        ready: Worlds that wait.
        begun: Worlds that began.
        stops: Requests to stop.
        outcomes: What worlds said, with the step that is safe.
        beats: Heartbeats.
        done: Trainers whose work is done.
        cut_off: Whether every use fails.
    """

    jobs: dict[str, TrainerJob] = field(default_factory=dict)
    made: dict[tuple[str, int], Assigned] = field(default_factory=dict)
    over: dict[tuple[str, int], Ending] = field(default_factory=dict)
    told: set[tuple[str, int, LeaseKey]] = field(default_factory=set)
    ready: set[tuple[str, int]] = field(default_factory=set)
    begun: set[tuple[str, int]] = field(default_factory=set)
    stops: set[tuple[str, int]] = field(default_factory=set)
    outcomes: dict[tuple[str, int], tuple[str, int]] = field(default_factory=dict)
    committed: dict[str, int] = field(default_factory=dict)
    beats: dict[LeaseKey, Heartbeat] = field(default_factory=dict)
    done: set[str] = field(default_factory=set)
    spares: dict[LeaseKey, str] = field(default_factory=dict)

    def trainers(self) -> tuple[str, ...]:
        return tuple(sorted(self.jobs))

    def generations(self, trainer: str) -> tuple[int, ...]:
        return tuple(sorted(g for name, g in self.made if name == trainer))

    def assigned(self, trainer: str, generation: int) -> Assigned:
        if (trainer, generation) not in self.made:
            raise FileNotFoundError(generation)
        return self.made[trainer, generation]

    def endings(self, trainer: str) -> frozenset[int]:
        return frozenset(g for name, g in self.over if name == trainer)

    def ending(self, trainer: str, generation: int) -> Ending:
        return self.over[trainer, generation]

    def notices(self, trainer: str) -> frozenset[tuple[int, LeaseKey]]:
        return frozenset((g, key) for name, g, key in self.told if name == trainer)

    def job(self, trainer: str) -> TrainerJob:
        return self.jobs[trainer]

    def outcome(self, trainer: str, generation: int) -> str:
        return self.outcomes.get((trainer, generation), ("", 0))[0]

    def is_ready(self, trainer: str, generation: int) -> bool:
        return (trainer, generation) in self.ready

    def has_begun(self, trainer: str, generation: int) -> bool:
        return (trainer, generation) in self.begun | self.ready

    def is_stop_requested(self, trainer: str, generation: int) -> bool:
        return (trainer, generation) in self.stops

    def heartbeat(self, lease: LeaseKey) -> Heartbeat | None:
        return self.beats.get(lease)

    def spare_of(self, lease: LeaseKey) -> str:
        return self.spares.get(lease, "")

    def announce_spare(self, lease: LeaseKey, trainer: str) -> None:
        self.spares[lease] = trainer

    def is_done(self, trainer: str, *, running_s: float) -> bool:
        del running_s
        return trainer in self.done

    def propose(self, assigned: Assigned) -> bool:
        where = (assigned.trainer, assigned.generation)
        return self.made.setdefault(where, assigned) is assigned

    def write_ending(self, trainer: str, ending: Ending) -> bool:
        return self.over.setdefault((trainer, ending.generation), ending) is ending

    def with_outcome(self, trainer: str, ending: Ending) -> Ending:
        said = self.outcomes.get((trainer, ending.generation))
        if said is None:
            return replace(ending, committed_step=self.committed.get(trainer, 0))
        return replace(ending, ended=Ended(said[0]), committed_step=said[1])

    def write_notice(self, trainer: str, generation: int, lease: LeaseKey) -> None:
        self.told.add((trainer, generation, lease))

    def request_stop(self, trainer: str, generation: int) -> None:
        self.stops.add((trainer, generation))

    def write_heartbeat(self, lease: LeaseKey, beat: Heartbeat) -> None:
        self.beats[lease] = beat
