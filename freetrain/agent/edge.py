"""What an agent does outside of the shared files, as one object."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from freetrain.agent.processes import Marked, Signal
    from freetrain.broker.lease import LeaseKey
    from freetrain.exchange.assigned import Assigned, Member
    from freetrain.jobfile.job import TrainerJob
    from freetrain.launch.world import World


class Edge(Protocol):
    """Clocks, processes and Slurm."""

    def elapsed_s(self) -> float:
        """Return the time on a clock that never goes back."""
        ...

    def unix_s(self) -> float:
        """Return the time of day, Unix."""
        ...

    def is_told_to_leave(self) -> bool:
        """Tell whether Slurm has announced the end of the lease."""
        ...

    def launch(
        self,
        job: TrainerJob,
        assigned: Assigned,
        *,
        after: int | None,
        is_forked: bool,
    ) -> World:
        """Start a world.

        Raises:
            FreeTrainError: It cannot be started as things are.
            OSError: A file of it could not be written.
        """
        ...

    def start_spare(
        self, job: TrainerJob, assigned: Assigned, lease: LeaseKey
    ) -> World:
        """Start a spare in *lease*, this one, for the trainer of *assigned*.

        Raises:
            FreeTrainError: It cannot be started as things are.
            OSError: A file of it could not be written.
        """
        ...

    def is_spare_ready(self, lease: LeaseKey) -> bool:
        """Tell whether the spare in *lease*, this one, waits for ranks to make."""
        ...

    def processes(self) -> tuple[Marked, ...]:
        """Return the marked processes of this node, but for the agent's own.

        Raises:
            OSError: They cannot be looked at.
        """
        ...

    def send(self, signal: Signal) -> None:
        """Send a signal to a process; one that is gone gets none."""
        ...

    def end_lease(self, member: Member) -> None:
        """Begin to end the job of a silent lease; does not wait for it."""
        ...

    def stop_listening(self) -> None:
        """End what listens for Slurm's announcement, which is a step of the job."""
        ...

    def end_own_job(self) -> None:
        """End this lease's own job; returns where that failed."""
        ...

    def wait(self, seconds: float) -> None:
        """Wait, or less: until Slurm announces the end of the lease."""
        ...

    def say(self, text: str) -> None:
        """Write a line to the agent's log; never fails."""
        ...
