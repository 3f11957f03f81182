"""How long a step takes at several shares of one processor."""

from __future__ import annotations

import os
from dataclasses import dataclass
from statistics import median
from time import perf_counter, process_time
from typing import TYPE_CHECKING

import numpy as np

from freetrain.losscurve.recorded import COLUMNS, parse_step_times

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from examples.record_curves.shares import Share
    from examples.record_curves.training import Training

WARM_UP_STEPS = 5
QUIET = 0.9
"""The part of a share that a process gets at least where nobody else runs."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """Steps that were measured together.

    Attributes:
        steps: How many.
        wall_s: How long they took.
        cpu_s: Processor time that they used.
    """

    steps: int
    wall_s: float
    cpu_s: float

    @property
    def step_ms(self) -> float:
        """Mean time of a step."""
        return 1000 * self.wall_s / self.steps


def measure(
    trainings: Sequence[Training],
    share: Share,
    *,
    percents: Sequence[int],
    seconds: float,
    repeats: int,
) -> Iterator[str]:
    """Yield the lines of the table, after its heading.

    The shares take turns, so that a busy minute strikes all of them.

    Args:
        trainings: What to measure; each starts anew.
        share: Keeps this process to a share.
        percents: Shares of one processor.
        seconds: Length of a stretch.
        repeats: Stretches for each share.
    """
    for training in trainings:
        stretches: dict[int, list[Stretch]] = {percent: [] for percent in percents}
        for _ in range(repeats):
            for percent, so_far in stretches.items():
                so_far.append(_stretch(training, share, percent, seconds=seconds))
        for percent, measured in stretches.items():
            yield _line(training.name, percent, measured, method=share.method)


def heading(seconds: float, repeats: int) -> list[str]:
    """Return the lines before the rows."""
    return [
        f"# Step time, one thread, at shares of one of {os.cpu_count()} processors.",
        f"# step_ms: median over {repeats} stretches of {seconds:g} s, each's mean.",
        "# low_ms, high_ms: the least and the largest of these means.",
        "# used_percent: processor time that was used, of wall time.",
        "# licence: Apache-2.0",
        ",".join(COLUMNS),
    ]


def starved(table: str) -> list[tuple[str, float]]:
    """Return trainings and shares of *table* that were not given in full.

    Raises:
        BadDataError: The table cannot be read.
    """
    names = {line.partition(",")[0] for line in table.splitlines()}
    times = parse_step_times(table, file="the new table", names=names)
    return [
        (name, time.cpu_percent)
        for name, of_shares in times.items()
        for time in of_shares
        if time.used_percent < QUIET * time.cpu_percent
    ]


def _stretch(
    training: Training, share: Share, percent: int, *, seconds: float
) -> Stretch:
    learner, split = training.begin()
    batches = training.batches(len(split.x))
    with share.of(percent) as rest, np.errstate(all="ignore"):
        for _ in range(WARM_UP_STEPS):
            learner.step(next(batches), training.rate.peak)
        steps, wall_s, cpu_s = 0, perf_counter(), process_time()
        while not steps or perf_counter() - wall_s < seconds:
            learner.step(next(batches), training.rate.peak)
            steps += 1
            rest()
        return Stretch(steps, perf_counter() - wall_s, process_time() - cpu_s)


def _line(name: str, percent: int, measured: Sequence[Stretch], *, method: str) -> str:
    times_ms = [stretch.step_ms for stretch in measured]
    used = sum(s.cpu_s for s in measured) / sum(s.wall_s for s in measured)
    steps = sum(stretch.steps for stretch in measured)
    middle = f"{median(times_ms):.4g},{min(times_ms):.4g},{max(times_ms):.4g}"
    return f"{name},{percent},{middle},{100 * used:.3g},{steps},{method}"
