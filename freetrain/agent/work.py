"""Whether a trainer has done what its user asked for: samples, epochs, or time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from freetrain.progress.reader import Reader
from freetrain.progress.record import work_is_done

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from freetrain.exchange.ending import Ending
    from freetrain.jobfile.job import TrainerJob

_AGAIN_S = 1.0


class WorkGauge:
    """Reads a trainer's progress once a second, and remembers the answer."""

    def __init__(
        self,
        job: TrainerJob,
        run_dir: Path,
        logs: Path,
        *,
        elapsed_s: Callable[[], float],
    ) -> None:
        """Take the trainer, where it tells its progress, and a clock."""
        self._work = job.work
        self._reader = Reader(job, run_dir, logs)
        self._elapsed_s = elapsed_s
        self._due_s = 0.0
        self._is_done = False

    def is_done(self, endings: Iterable[Ending], *, running_s: float = 0.0) -> bool:
        """Tell whether the work is done.

        Args:
            endings: Of all its generations that are over.
            running_s: For how long the present world has run.
        """
        now_s = self._elapsed_s()
        if not self._is_done and now_s >= self._due_s:
            self._due_s = now_s + _AGAIN_S
            self._reader.read()
            is_told = work_is_done(self._work, self._reader.latest())
            self._is_done = is_told or self._is_out_of_time(endings, running_s)
        return self._is_done

    def _is_out_of_time(self, endings: Iterable[Ending], running_s: float) -> bool:
        limit_s = self._work.time_limit_s
        if limit_s is None:
            return False
        return running_s + sum(map(_ran_s, endings)) >= limit_s


def _ran_s(ending: Ending) -> float:
    if ending.started_s is None:
        return 0.0
    return max(0.0, ending.ended_s - ending.started_s)
