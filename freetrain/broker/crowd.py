"""Who else is there, as far as one question tells: what a last look goes by."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from freetrain.broker.waiting import could_start, is_lease

if TYPE_CHECKING:
    from collections.abc import Iterable

    from slurm.records import JobRecord


@dataclass(frozen=True, slots=True)
class Crowd:
    """Others' jobs at one time; leases, of anybody's FreeTrain, are none of them.

    Attributes:
        waiting: Those that nothing but nodes keeps from starting, as Slurm names them.
        holding: Those that hold nodes, likewise.
    """

    waiting: frozenset[str]
    holding: frozenset[str]

    def is_stirred(self, before: Crowd) -> bool:
        """Tell whether there may be somebody to make room for who was not *before*.

        That needs somebody who waits, and that somebody came, began, ended or gave up.
        """
        return bool(self.waiting) and self != before


NOBODY = Crowd(frozenset(), frozenset())


def crowd_of(jobs: Iterable[JobRecord], *, now_s: float) -> Crowd:
    """Return who is there.

    Args:
        jobs: Every job that waits or holds nodes.
        now_s: Unix time.
    """
    others = [job for job in jobs if not is_lease(job)]
    return Crowd(
        waiting=frozenset(job.display_id for job in others if could_start(job, now_s)),
        holding=frozenset(job.display_id for job in others if job.holds_nodes),
    )
