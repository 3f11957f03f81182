"""What a program told: one record a line, and where that leaves it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from freetrain.jobfile.job import Work


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One line of progress. What the line did not tell is None.

    Attributes:
        t: When, Unix time; by the program's clock where it told it.
        step: Steps done since the training began.
        samples: Samples done since the training began.
        epoch: Epoch of the step. ``freetrain.elastic`` counts from 0; what others
            print is kept as it is.
        generation: Whose line it is.
        world_size: Ranks of that generation.
        metrics: The loss and what else was measured; may be nan or infinite.
    """

    t: float | None = None
    step: int | None = None
    samples: float | None = None
    epoch: float | None = None
    generation: int | None = None
    world_size: int | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Where a trainer is, from all that was read. What was never told is None.

    Attributes:
        t: When the last record was made, Unix time.
        step: Steps done.
        samples: Samples done.
        epoch: Epoch of the last step.
        generation: Whose record was the last.
        world_size: Its ranks.
        metrics: The last value of each metric.
        samples_per_s: Samples a second over the present generation.
    """

    t: float | None
    step: int | None
    samples: float | None
    epoch: float | None
    generation: int | None
    world_size: int | None
    metrics: Mapping[str, float]
    samples_per_s: float | None

    @property
    def loss(self) -> float | None:
        """The last loss, where a metric of that name was told."""
        return self.metrics.get("loss")


def work_is_done(work: Work, progress: Progress | None) -> bool:
    """Tell whether *progress* has reached the samples or epochs of *work*.

    An epoch number of ``work.epochs`` or more counts as done: a program that counts
    epochs from 0 is then a step into the next one, one that prints the number at an
    epoch's end is exactly there. Time on nodes is not looked at.
    """
    if progress is None:
        return False
    if work.samples is not None and progress.samples is not None:
        return progress.samples >= work.samples
    if work.epochs is not None and progress.epoch is not None:
        return progress.epoch >= work.epochs
    return False
