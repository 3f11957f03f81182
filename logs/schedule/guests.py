"""Who uses a machine without standing in its queue."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from logs.schedule.unitset import UnitSet


class Guests(Protocol):
    """Uses units that no job holds, and leaves when one is placed on them.

    The scheduler does not see them, as Slurm does not see jobs that it may preempt:
    a job is placed as if they were not there, and starts when they are gone.
    """

    def leave(self, job: int, units: UnitSet, now_s: float) -> float:
        """Leave *units*, on which *job* was placed now.

        Returns:
            Seconds until the last guest is gone, 0 or more; the units are the
            job's from now on.
        """
        ...


class NoGuests:
    """Nobody."""

    def leave(self, job: int, units: UnitSet, now_s: float) -> float:
        """Return 0: there is nobody to wait for."""
        del job, units, now_s
        return 0.0
