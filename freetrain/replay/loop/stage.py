"""A log of jobs on its machine, from where the broker begins."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from freetrain.replay.loop.nodes import Nodes
from freetrain.replay.timeline import DAY_S
from logs.schedule.build import prepare

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from logs.schedule import Method
    from logs.schedule.guests import Guests
    from logs.schedule.simulation import Moment, Simulation
    from logs.trace import JobTrace


class Stage:
    """Jobs played up to the start of a replay; each run goes its own way from there.

    Args:
        trace: The jobs.
        method: Who starts them: ``easy`` or ``slurm``.
        start_s: Second of the log at which the broker begins.
        days: How long it stays; None until the last job is submitted.
        on_progress: Told now and then how much of the time before that is over.

    Attributes:
        start_s: As above.
        end_s: Second of the log at which the broker stops.
        nodes: The machine's nodes.
        names: What they are called.
        moment: The last thing that happened; None where nothing has.
    """

    def __init__(
        self,
        trace: JobTrace,
        method: Method,
        *,
        start_s: float = 0.0,
        days: float | None = None,
        on_progress: Callable[[float], None] | None = None,
    ) -> None:
        prepared = prepare(trace, method)
        last_s = max((trace.jobs[job].submit_s for job in prepared.admitted), default=0)
        self.start_s = start_s
        self.end_s = last_s if days is None else start_s + days * DAY_S
        self.nodes = Nodes(prepared.layout)
        self.names = prepared.layout.names
        self.moment: Moment | None = None
        self._simulation = prepared.simulation
        self._begun: set[int] = set()
        self._submitted = {
            job for job in prepared.admitted if trace.jobs[job].submit_s <= self.end_s
        }
        self._play_up(on_progress)

    def branch(self, guests: Guests | None = None) -> Simulation:
        """Return a simulation that goes on from here, with *guests* on the machine."""
        return self._simulation.branch(guests)

    @cached_property
    def alone_s(self) -> Mapping[int, float]:
        """When each job starts that is submitted by the end, without the broker."""
        return self.play_out(self.branch(), {})

    def play_out(
        self, simulation: Simulation, starts_s: Mapping[int, float]
    ) -> dict[int, float]:
        """Play on until all have started that are submitted while the broker is there.

        Args:
            simulation: A branch.
            starts_s: When jobs have started in it so far.

        Returns:
            Their starts, of those that had not begun before the broker came.
        """
        starts = dict(starts_s)
        missing = self._submitted.difference(starts, self._begun)
        while missing and (moment := simulation.step()) is not None:
            for started in moment.started:
                starts[started.job] = started.start_s
                missing.discard(started.job)
        return {job: s for job, s in starts.items() if job in self._submitted}

    def _play_up(self, on_progress: Callable[[float], None] | None) -> None:
        while self._simulation.next_s <= self.start_s:
            self.moment = self._simulation.step()
            if self.moment is not None:
                self._begun.update(job.job for job in self.moment.started)
                if on_progress is not None and self.start_s > 0:
                    on_progress(max(0.0, self.moment.time_s / self.start_s))
