"""What trainers tell of their quality as they pass the evaluations of their curves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from freetrain.quality.outlook import Point

if TYPE_CHECKING:
    from freetrain.replay.runs import Run
    from freetrain.trainers.quality import QualityTruth


def tell(run: Run, *, from_s: float, to_s: float) -> None:
    """Let *run* tell what it evaluated since *from_s*, and forget what it lost.

    An evaluation counts for as long as the training stands behind it: who goes
    back to a commit passes it again, later. Within the time settled a trainer
    trains last, after its pause, so that progress counts back from *to_s*.
    """
    if run.spec.quality is None:
        return
    points = run.points
    while points and points[-1].samples > run.done:
        points.pop()
    _pass(run, run.spec.quality, from_s=from_s, to_s=to_s)


def _pass(run: Run, truth: QualityTruth, *, from_s: float, to_s: float) -> None:
    points, place = run.points, len(run.points)
    while place < len(truth.samples) and truth.samples[place] <= run.done:
        samples = truth.samples.item(place)
        since_s = (run.done - samples) / run.rate if run.rate else 0.0
        t_s = max(from_s, to_s - since_s)
        points.append(Point(t_s=t_s, samples=samples, value=truth.values.item(place)))
        place += 1
