"""The files that agents and broker share, as an agent uses them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from freetrain.broker.lease import LeaseKey
    from freetrain.exchange.assigned import Assigned
    from freetrain.exchange.ending import Ending
    from freetrain.exchange.heartbeat import Heartbeat
    from freetrain.jobfile.job import TrainerJob


class Board(Protocol):
    """What is shared by all agents; any method may raise OSError or FreeTrainError.

    Names are read by listing, so that NFS shows new files at once; what never
    changes is read once.
    """

    def trainers(self) -> tuple[str, ...]:
        """Return the trainers' names."""
        ...

    def generations(self, trainer: str) -> tuple[int, ...]:
        """Return the generations of *trainer*, ascending."""
        ...

    def assigned(self, trainer: str, generation: int) -> Assigned:
        """Return one generation."""
        ...

    def endings(self, trainer: str) -> frozenset[int]:
        """Return the generations that are over."""
        ...

    def ending(self, trainer: str, generation: int) -> Ending:
        """Return how one that is over ended."""
        ...

    def notices(self, trainer: str) -> frozenset[tuple[int, LeaseKey]]:
        """Return which leases must leave which generations."""
        ...

    def job(self, trainer: str) -> TrainerJob:
        """Return what the trainer's user wrote."""
        ...

    def outcome(self, trainer: str, generation: int) -> str:
        """Return how a world says that it ended; empty while it does not."""
        ...

    def is_ready(self, trainer: str, generation: int) -> bool:
        """Tell whether a world that was launched ahead waits with all ranks."""
        ...

    def has_begun(self, trainer: str, generation: int) -> bool:
        """Tell whether an elastic program left a sign of life, or cannot leave one."""
        ...

    def is_stop_requested(self, trainer: str, generation: int) -> bool:
        """Tell whether the request to stop is there."""
        ...

    def beat(self, lease: LeaseKey) -> Heartbeat | None:
        """Return the last heartbeat of *lease*."""
        ...

    def spare_of(self, lease: LeaseKey) -> str:
        """Return the trainer whose spare waits in *lease*; empty for none."""
        ...

    def tell_spare(self, lease: LeaseKey, trainer: str) -> None:
        """Say whose spare waits in *lease*; empty for nobody's.

        Raises:
            OSError: It could not be written.
        """
        ...

    def is_done(self, trainer: str, *, running_s: float) -> bool:
        """Tell whether the work is done, with a world that ran for *running_s*."""
        ...

    def propose(self, assigned: Assigned) -> bool:
        """Create a generation unless it is there; return whether this call did."""
        ...

    def end(self, trainer: str, ending: Ending) -> bool:
        """Say that a generation is over, unless that was said.

        A world that waits for it goes on, whether it left word or not.
        """
        ...

    def compose(self, trainer: str, ending: Ending) -> Ending:
        """Return *ending* with what the world itself left word of."""
        ...

    def notice(self, trainer: str, generation: int, lease: LeaseKey) -> None:
        """Say that *lease* leaves a generation."""
        ...

    def request_stop(self, trainer: str, generation: int) -> None:
        """Leave the request to stop for a world."""
        ...

    def write_beat(self, lease: LeaseKey, beat: Heartbeat) -> None:
        """Replace the heartbeat of *lease*."""
        ...
