"""Trainers as guests of a simulated machine: they go when a job is placed on them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from freetrain.replay.loop.nodes import Nodes
    from freetrain.replay.loop.settings import LoopSettings
    from freetrain.replay.pool import Pool
    from logs.schedule.unitset import UnitSet


class Trainees:
    """Leaves the nodes of whoever trains on them, and notes who waited how long.

    Attributes:
        pool: Who holds which node; None before the replay and after it.
        waited_s: How long each job waited for us to go, by job that met us.
    """

    def __init__(self, nodes: Nodes, settings: LoopSettings, *, start_s: float) -> None:
        self.pool: Pool | None = None
        self.waited_s: dict[int, float] = {}
        self._nodes = nodes
        self._settings = settings
        self._start_s = start_s

    def leave(self, job: int, units: UnitSet, now_s: float) -> float:
        """Go from *units*; a trainer that has finished by now has nothing to commit."""
        if self.pool is None:
            return 0.0
        holders = {self.pool.holder(node) for node in self._nodes.touched(units)}
        passed_s = now_s - self._start_s
        if not any(run is not None and run.finish_s > passed_s for run in holders):
            return 0.0
        self.waited_s[job] = self._settings.used_notice_s
        return self._settings.used_notice_s
