"""What a replay found out about quality, from what its trainers told."""

from __future__ import annotations

from typing import TYPE_CHECKING

from freetrain.replay.result import Learning

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from freetrain.quality.outlook import Point
    from freetrain.replay.runs import Run
    from freetrain.trainers.quality import QualityTruth


def learning_of(runs: Iterable[Run]) -> tuple[Learning, ...]:
    """Return the way of each of *runs* that has a quality curve."""
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
