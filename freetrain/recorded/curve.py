"""A recorded training."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from freetrain.quality.outlook import Better


@dataclass(frozen=True, slots=True, eq=False)
class Series:
    """The values of one metric as the training went on.

    Attributes:
        metric: Its name.
        better: Which values are good.
        samples: Training samples done, ascending, above 0; float64, read-only.
        values: The metric there, nan and infinite values included; float64,
            read-only, of the same shape.
    """

    metric: str
    better: Better
    samples: NDArray[np.float64]
    values: NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTime:
    """How long a step took at a share of one processor.

    Attributes:
        cpu_percent: The share.
        step_s: Median of several stretches' mean step times.
        low_s: The least of these means.
        high_s: The largest of these means.
        used_percent: The share that was really used.
        steps: Steps that were measured.
        method: How the share was enforced.
    """

    cpu_percent: float
    step_s: float
    low_s: float
    high_s: float
    used_percent: float
    steps: int
    method: str


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RecordedCurve:
    """A real training, as it went.

    Attributes:
        name: Unique among the recorded ones.
        model: Kind and size, for people.
        data_set: Name and number of samples, for people.
        batch_size: Samples a step.
        optimizer: Name and settings, for people.
        learning_rate: The schedule, for people.
        seed: Of the training.
        made_with: Versions of what made the file.
        licence: SPDX identifier.
        epoch_samples: Training samples an epoch.
        loss: Training loss, mean over the steps since the point before.
        validation: The validation metric at the end of each epoch.
        step_times: By share of a processor, largest first; empty where they were
            not measured.
    """

    name: str
    model: str
    data_set: str
    batch_size: int
    optimizer: str
    learning_rate: str
    seed: int
    made_with: str
    licence: str
    epoch_samples: int
    loss: Series
    validation: Series
    step_times: tuple[StepTime, ...] = ()
