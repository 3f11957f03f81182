"""What the contract of Slurm back ends is checked on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from slurm.batch import LeaseRequest
from tests.cluster.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from slurm.backend import SlurmBackend
    from slurm.records import JobRecord

HELD_BACK = "/freetrain-no-such-node-feature"


@dataclass(frozen=True, slots=True)
class World:
    """A Slurm, or what passes for one, with eight nodes that are all idle.

    Attributes:
        connect: Makes a back end, with a cap on its requests or None.
        user: Who we are there.
        script: A batch script that runs for long.
        new_name: Makes job names that no other test has.
    """

    connect: Callable[[int | None], SlurmBackend]
    user: str
    script: str
    new_name: Callable[[], str]

    def lease(self, name: str, *, tasks: int = 1, comment: str = "") -> LeaseRequest:
        """A request for *tasks* leases."""
        return LeaseRequest(
            name=name,
            comment=comment,
            partition="freetrain",
            limit_min=5,
            nice=10_000,
            script=self.script,
            tasks=tasks,
        )

    def wait_for_states(
        self, backend: SlurmBackend, name: str, expected: Sequence[str]
    ) -> tuple[JobRecord, ...]:
        """Return the jobs of *name* by task, once their states are as *expected*."""

        def look() -> tuple[JobRecord, ...]:
            jobs = sorted(backend.find_by_name(name), key=_task)
            return (
                tuple(jobs) if [_state(job) for job in jobs] == list(expected) else ()
            )

        return wait_for(f"{name} to be {expected}", look)


def _task(job: JobRecord) -> int:
    return job.array_task_id or 0


def _state(job: JobRecord) -> str:
    return "+".join(sorted(job.states))
