"""What a demo showed, in numbers."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from freetrain.demo.history import History
    from freetrain.standin.records import Job


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainerFigures:
    """One trainer's.

    Attributes:
        name: Its name.
        is_finished: Whether it came to its end.
        steps: Steps done.
        samples: Samples done.
        repeated_steps: Steps done again, because a kill undid them.
        by_broker: Rescales that the broker decided.
        by_survivors: Rescales that the remaining leases' agents decided.
        sizes: Node counts, generation by generation.
        pauses_s: Last step before to first step after, of each rescale.
        loss: Of the last step.
        loss_alone: The same of a run that nobody disturbed.
        loss_difference: The largest relative difference between the two runs in
            any step; None where one lacks a step.
        accuracy: On images that it did not train on.
    """

    name: str
    is_finished: bool
    steps: int
    samples: int
    repeated_steps: int
    by_broker: int
    by_survivors: int
    sizes: tuple[int, ...]
    pauses_s: tuple[float, ...]
    loss: float | None
    loss_alone: float | None
    loss_difference: float | None
    accuracy: float | None

    @property
    def rescales(self) -> int:
        """All rescales."""
        return self.by_broker + self.by_survivors


@dataclass(frozen=True, slots=True, kw_only=True)
class OthersFigures:
    """What others felt of it.

    Attributes:
        jobs: Jobs of theirs that started.
        met_leases: Those that found a lease on one of their nodes.
        mean_delay_s: Start after it was due, mean over all.
        most_delay_s: The same, the worst.
    """

    jobs: int
    met_leases: int
    mean_delay_s: float
    most_delay_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """All of a demo's.

    Attributes:
        seconds: From the first submission to the last trainer's end.
        nodes: Nodes of the cluster.
        idle_node_s: Node-time that others left idle.
        trained_node_s: Node-time between first and last step of all generations.
        median_pause_s: Over all rescales; None where there were none.
        trainers: One each.
        others: What others felt.
    """

    seconds: float
    nodes: int
    idle_node_s: float
    trained_node_s: float
    median_pause_s: float | None
    trainers: tuple[TrainerFigures, ...]
    others: OthersFigures

    @property
    def coverage(self) -> float:
        """The share of the idle node-time that trained."""
        return self.trained_node_s / self.idle_node_s if self.idle_node_s else 0.0

    @property
    def is_good(self) -> bool:
        """Whether all finished and were rescaled, with an undisturbed run's losses."""
        return all(
            one.is_finished and one.rescales > 0 and is_same(one.loss_difference)
            for one in self.trainers
        )


SAME = 1e-9
"""Relative difference of losses that still counts as none."""


def is_same(difference: float | None) -> bool:
    """Tell whether two runs' losses are the same."""
    return difference is not None and difference <= SAME


def figures_of(
    histories: Sequence[History],
    alone: Mapping[str, Mapping[int, float]],
    jobs: Iterable[Job],
    *,
    nodes: int,
    begin_s: float,
) -> Figures:
    """Return the figures of a demo.

    Args:
        histories: What happened to each trainer.
        alone: Losses by step of undisturbed runs, by trainer.
        jobs: All of the cluster's.
        nodes: How many it has.
        begin_s: When the trainers were submitted, Unix time.
    """
    lasts = [one.last_s for history in histories for one in history.stretches]
    end_s = max(lasts, default=begin_s)
    theirs = [job for job in jobs if job.run_s is not None]
    busy_s = sum(_busy_s(job, begin_s, end_s) for job in theirs)
    pauses_s = [pause_s for history in histories for pause_s in history.pauses_s]
    return Figures(
        seconds=end_s - begin_s,
        nodes=nodes,
        idle_node_s=nodes * (end_s - begin_s) - busy_s,
        trained_node_s=sum(
            len(one.nodes) * (one.last_s - one.start_s)
            for history in histories
            for one in history.stretches
        ),
        median_pause_s=median(pauses_s) if pauses_s else None,
        trainers=tuple(_trainer(one, alone.get(one.name, {})) for one in histories),
        others=_others(theirs),
    )


def most_difference(
    one: Mapping[int, float], other: Mapping[int, float]
) -> float | None:
    """Return the largest relative difference; None where a step is missing."""
    if not one or one.keys() != other.keys():
        return None
    return max(
        abs(one[step] - other[step]) / max(abs(other[step]), 1e-300) for step in one
    )


def _trainer(history: History, alone: Mapping[int, float]) -> TrainerFigures:
    told = history.told
    by_broker = sum(one.is_brokers for one in history.rescales)
    return TrainerFigures(
        name=history.name,
        is_finished=history.is_finished,
        steps=told.steps,
        samples=told.samples,
        repeated_steps=told.repeated_steps,
        by_broker=by_broker,
        by_survivors=len(history.rescales) - by_broker,
        sizes=tuple(len(one.nodes) for one in history.stretches),
        pauses_s=history.pauses_s,
        loss=told.losses.get(told.steps),
        loss_alone=alone.get(max(alone, default=0)),
        loss_difference=most_difference(told.losses, alone),
        accuracy=told.accuracy,
    )


def _busy_s(job: Job, begin_s: float, end_s: float) -> float:
    if job.start_s is None:
        return 0.0
    until_s = end_s if job.end_s is None else min(job.end_s, end_s)
    return len(job.nodes) * max(0.0, until_s - max(job.start_s, begin_s))


def _others(theirs: Sequence[Job]) -> OthersFigures:
    delays_s = [
        job.start_s - job.due_s
        for job in theirs
        if job.start_s is not None and job.due_s is not None
    ]
    return OthersFigures(
        jobs=len(delays_s),
        met_leases=sum(job.has_preempted for job in theirs),
        mean_delay_s=sum(delays_s) / max(1, len(delays_s)),
        most_delay_s=max(delays_s, default=0.0),
    )
