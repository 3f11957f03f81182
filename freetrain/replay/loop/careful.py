"""Care as a tick takes it, asked for again only where something has changed.

A replay of a week looks ten thousand times; a plan for each job that runs, at each
look, would take longer than all else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from freetrain.broker.caution import NO_CARE, Caution, keep_free
from logs.schedule.slurm import SlurmParameters

if TYPE_CHECKING:
    from collections.abc import Sequence

    from freetrain.broker.caution import Care, Scene

ANEW_S = 300.0
"""Where nothing has changed it is asked for again in each stretch of this length."""


class Careful:
    """Says what to keep leases off; all jobs are tried, as no cycle waits for a replay.

    Args:
        longest_s: The longest lease, seconds.
    """

    def __init__(self, longest_s: float) -> None:
        self._longest_s = longest_s
        self._asked: object = None
        self._care = NO_CARE

    def __call__(self, scene: Scene, *, running: Sequence[frozenset[str]]) -> Care:
        """Return what to keep leases off.

        Args:
            scene: What is so.
            running: Nodes of each job that runs.
        """
        ground = scene.ground
        asked = (
            [job.job_id for job in scene.waiting],
            running,
            {hole.node for hole in ground.holes},
            ground.spans,
            scene.given,
            scene.booked_s,
            scene.now_s // ANEW_S,
        )
        if asked != self._asked:
            again_s = SlurmParameters().bf_interval_s
            caution = Caution(running, again_s, self._longest_s, most_ends=len(running))
            self._asked, self._care = asked, keep_free(scene, caution)
        return self._care
