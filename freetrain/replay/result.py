"""What a replay found out; every figure is defined in docs/notes/replay.md."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from freetrain.lookahead.reliability import ForecastRecord
    from freetrain.losscurve.forecast import Point
    from freetrain.replay.accounting import Run
    from freetrain.replay.gaps import Gap
    from freetrain.replay.trainers import QualityTruth


@dataclass(frozen=True, slots=True)
class ReplayResult:
    """One policy's replay of one log.

    Node-seconds and samples are sums over the replay; ``*_samples`` losses are
    samples that were not trained because of the cause named. ``gap`` is None if no
    plan had an objective, ``forecaster`` if the policy has none, and ``forecasts`` also
    if they were not to be recorded.
    """

    policy: str
    priority: str
    accounting: str
    samples: float
    finished: int
    end_s: float
    images_per_s: float
    eq_nodes: float
    pool_node_s: float
    used_node_s: float
    rescale_samples: float
    preempt_samples: float
    start_samples: float
    preemptions: int
    rescales: int
    events: int
    efficiency: float | None
    coverage: float
    solver_calls: int
    solver_s: float
    solver_fallbacks: int
    wall_s: float
    peak_rss_bytes: int
    steps: tuple[Step, ...]
    completions: tuple[Completion, ...]
    learning: tuple[Learning, ...] = ()
    priority_settings: tuple[tuple[str, float], ...] = ()
    gap: Gap | None = None
    forecaster: str | None = None
    forecasts: ForecastRecord | None = None


@dataclass(frozen=True, slots=True)
class Step:
    """The pool and its use from one event on.

    Attributes:
        time_s: Seconds from the start of the replay.
        idle_nodes: Nodes in the pool.
        used_nodes: Nodes of the pool that trainers hold.
        resized: Trainers whose node count changed at this event, with their new
            count: (trainer name, nodes).
        finished: Trainers that finished at this event, by name.
    """

    time_s: float
    idle_nodes: int
    used_nodes: int
    resized: tuple[tuple[str, int], ...]
    finished: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Completion:
    """When one trainer came, started and finished, and what it trained.

    Attributes:
        admitted_s: When it was admitted; None for never, as below.
        samples: Samples it trained, net of losses.
        slowdown: Time from arrival to finish over the time it would need alone
            on its best size; None where it did not finish.
    """

    trainer: str
    arrival_s: float
    admitted_s: float | None
    finished_s: float | None
    samples: float
    slowdown: float | None


@dataclass(frozen=True, slots=True)
class Learning:
    """How good the model of one trainer with a quality curve became, and when.

    Attributes:
        times_s: When it passed each evaluation for good, ascending.
        quality: The best by then, as a share of the best it has by the end of its
            work, by evaluation: 0 where it began, never falling.
        deliver_s: When it reached the first tier of its target; None for never.
        final_s: When it reached the second, likewise.
    """

    trainer: str
    arrival_s: float
    finished_s: float | None
    times_s: tuple[float, ...]
    quality: tuple[float, ...]
    deliver_s: float | None
    final_s: float | None


def learning_of(runs: Iterable[Run]) -> tuple[Learning, ...]:
    """Return how good each of *runs* that has a quality curve became, and when."""
    shares: dict[tuple[QualityTruth, float], tuple[float, ...]] = {}
    made = []
    for run in runs:
        truth = run.spec.quality
        if truth is not None:
            key = truth, run.work
            if key not in shares:
                shares[key] = tuple(truth.quality(until=run.work).tolist())
            made.append(_learning(run, truth, shares[key]))
    return tuple(made)


def _learning(run: Run, truth: QualityTruth, shares: Sequence[float]) -> Learning:
    target = run.spec.target
    return Learning(
        trainer=run.spec.name,
        arrival_s=run.arrival_s,
        finished_s=run.finished_s,
        times_s=tuple(point.t_s for point in run.points),
        quality=tuple(shares[: len(run.points)]),
        deliver_s=_reached_s(run.points, truth, target.deliver if target else None),
        final_s=_reached_s(run.points, truth, target.final if target else None),
    )


def _reached_s(
    points: Sequence[Point], truth: QualityTruth, value: float | None
) -> float | None:
    if value is None:
        return None
    good = (p.t_s for p in points if truth.better.is_reached(value, p.value))
    return next(good, None)
