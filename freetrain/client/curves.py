"""Curves of trainers: reported values, forecasts, speeds and expected targets."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from freetrain.client.trainers import LIVE, find_trainer, job_of
from freetrain.config.job import NodeSettings, ProgressSettings, TrainerJob, read_job
from freetrain.errors import BadDataError, MissingInputError
from freetrain.formats import guess_format
from freetrain.losscurve.fit import fit_forecast, has_diverged
from freetrain.progress import GrowingFile
from freetrain.state.database import read_store
from freetrain.state.tables import TrainerState, history_of, trainers
from freetrain.text import shown
from freetrain.tick.trainers import (
    history_from,
    known_from,
    siblings_of,
    total_of,
    unit_of,
)

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Sequence
    from pathlib import Path

    from freetrain.losscurve.fit import FittedForecast
    from freetrain.losscurve.forecast import MetricDirection, MetricPoint
    from freetrain.state.files import StateDir
    from freetrain.state.tables import TrainerRow
    from freetrain.tick.trainers import PastTrainer, TrainerHistory

FARTHEST = 2.0
"""Forecasts are shown up to twice the work done."""

_FITTED = 120
_HEAD_BYTES = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Aim:
    """A target value, and when it is expected.

    Attributes:
        tier: ``deliver`` or ``final``.
        work: Work in all after which it is, or was, reached; inf for never.
        in_s: Seconds of training until then at the present speed; 0 where it has
            been reached, inf for never, None where the speed is not known.
    """

    tier: str
    value: float
    work: float
    in_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ForecastLine:
    """The metric as fitted, and as expected: four sequences of one length.

    Attributes:
        work: Work in all, ascending.
        values: The curve up to the work done, what is expected from there on.
        low: The lower end of the range; nan up to the work done.
        high: Its upper end; likewise.
    """

    work: tuple[float, ...]
    values: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TrainerCurves:
    """The reported values of one trainer, and the forecast from them.

    Attributes:
        metric: The metric that rates its model.
        unit: The unit of its work: ``samples``, ``step`` or ``epoch``.
        measured: The reported values, down-sampled; may hold nan and infinities.
        work: Work done; None where none was reported.
        total: Work after which it is finished; None where that is not known.
        loss_forecast: None where its history allows none.
        speeds: Work a second by node count, as measured.
        per_s: Its last speed; None where none was measured.
        aims: Its user's targets.
        bad_lines: Lines of its progress that could not be understood.
    """

    name: str
    metric: str
    better: MetricDirection
    unit: str
    measured: tuple[MetricPoint, ...]
    work: float | None
    total: float | None
    loss_forecast: FittedForecast | None
    is_diverging: bool
    speeds: tuple[tuple[int, float], ...]
    per_s: float | None
    aims: tuple[Aim, ...]
    bad_lines: int = 0

    @property
    def forecast(self) -> ForecastLine | None:
        """The forecast as a line, computed at each call; None where there is none."""
        return None if self.loss_forecast is None else forecast_of(self.loss_forecast)

    @property
    def units(self) -> str:
        """The plural of the unit."""
        return self.unit if self.unit.endswith("s") else f"{self.unit}s"


def job_to_try(path: Path, *, named: str, home: Path | None) -> TrainerJob:
    """Return the job that the file at *path* describes, or one that wrote this file.

    Args:
        path: A job file, whose name ends in .toml, or a file of progress; absolute.
        named: How the user named it, for messages.
        home: Replaces ``~`` in paths of a job file.

    Raises:
        MissingInputError: It is not there or cannot be read.
        BadConfigurationError: It is no job file.
        BadDataError: It is a file of progress in no known format.
    """
    if path.suffix == ".toml":
        return read_job(path, named=named, home=home)
    head, _ = GrowingFile(path).grow(_HEAD_BYTES)
    if not head:
        raise MissingInputError(
            f"{shown(named)} is missing, empty, or no plain file. Name a job file, or "
            f"a file in which a program reports its progress."
        )
    form = guess_format(head)
    if form is None:
        raise BadDataError(
            f"{shown(named)} has none of the formats that are known without a job "
            f"file: tensorboard, huggingface, a table with a column step, samples or "
            f"epoch, or JSON lines with such a key. Write a job file whose [progress] "
            f"says how to read it, and name that."
        )
    return TrainerJob(
        name="tried",
        directory=path.parent,
        nodes=NodeSettings(max_nodes=1),
        elastic=False,
        progress=ProgressSettings(form=form, file=path),
    )


def curves_of(
    state: StateDir, *, name: str | None, uid: int
) -> tuple[TrainerCurves, ...]:
    """Return the curves of one trainer, or of all that have not ended.

    Raises:
        UsageError: There is no trainer of that name.
        StoreError: The state cannot be read.
    """
    with read_store(state.path, uid=uid) as connection:
        rows = trainers(connection)
        if name is None:
            wanted = [row for row in rows if row.state in LIVE]
        else:
            wanted = [find_trainer(rows, name)]
        finished = [
            (row, job_of(row)) for row in rows if row.state is TrainerState.FINISHED
        ]
        found = [_curves(connection, row, finished) for row in wanted]
    return tuple(curves for curves in found if curves is not None)


def _curves(
    connection: sqlite3.Connection, row: TrainerRow, finished: Sequence[PastTrainer]
) -> TrainerCurves | None:
    """Return the curves of *row*; None where this version cannot read its job."""
    job = job_of(row)
    kept = history_of(connection, row.name, submitted_s=row.submitted_s)
    if job is None:
        return None
    try:
        past = None if kept is None else history_from(kept.history)
    except ValueError:  # written by another release
        past = None
    scaling = known_from({} if kept is None else kept.scaling)
    measured = () if past is None else tuple(past.metric_points())
    others = [one for one in finished if one[0].name != row.name]
    loss_forecast = fit_forecast(
        measured,
        job.measure.better,
        lr_steps=job.measure.lr_steps,
        siblings=siblings_of(connection, job, others),
    )
    last_seen = [(nodes, seen[-1]) for nodes, seen in sorted(scaling.seen.items())]
    latest = max(last_seen, key=lambda pair: pair[1].began_s, default=None)
    per_s = None if latest is None else latest[1].samples_per_s
    return TrainerCurves(
        name=row.name,
        metric=job.measure.metric,
        better=job.measure.better,
        unit=unit_of(job),
        measured=measured,
        work=None if past is None else past.work,
        total=None if past is None else total_of(job, past),
        loss_forecast=loss_forecast,
        is_diverging=has_diverged(measured, job.measure.better),
        speeds=tuple((nodes, speed.samples_per_s) for nodes, speed in last_seen),
        per_s=per_s,
        aims=_aims(job, past, loss_forecast, per_s),
        bad_lines=0 if kept is None else int(kept.bookmark.get("bad_lines", 0)),
    )


def forecast_of(loss_forecast: FittedForecast) -> ForecastLine:
    """Return the line of *loss_forecast*: through the present phase, and on."""
    done = loss_forecast.points[-1].samples
    behind = np.linspace(loss_forecast.phase_samples, done, _FITTED)
    frame, nan = loss_forecast.frame, math.nan
    heights = loss_forecast.fit.curve(
        (behind - frame.origin_samples) / frame.unit_samples
    )
    fitted = [frame.value(float(height)) for height in heights]
    ahead = np.linspace(done, FARTHEST * done, _FITTED)[1:]
    expected = [loss_forecast.expected(float(samples)) for samples in ahead]
    return ForecastLine(
        work=(*behind.tolist(), *ahead.tolist()),
        values=(*fitted, *(value.value for value in expected)),
        low=(*([nan] * _FITTED), *(value.low for value in expected)),
        high=(*([nan] * _FITTED), *(value.high for value in expected)),
    )


def range_sentence(loss_forecast: FittedForecast) -> str:
    """Say what the range of a forecast promises, for people."""
    count = len(loss_forecast.guides)
    if not count:
        return "The range promises no share of outcomes."
    finished = "a finished training" if count == 1 else f"{count} finished trainings"
    promise = (
        "the range is made to hold nine of ten outcomes"
        if loss_forecast.is_calibrated
        else "the range promises no share of outcomes"
    )
    return f"It goes by {finished} of the same program, too; {promise}."


def _aims(
    job: TrainerJob,
    past: TrainerHistory | None,
    loss_forecast: FittedForecast | None,
    per_s: float | None,
) -> tuple[Aim, ...]:
    if job.target is None:
        return ()
    tiers = {"deliver": job.target.deliver, "final": job.target.final}
    wanted = [(tier, value) for tier, value in tiers.items() if value is not None]
    done = (None if past is None else past.work) or 0.0
    return tuple(
        _aim(tier, value, loss_forecast, done, per_s) for tier, value in wanted
    )


def _aim(
    tier: str,
    value: float,
    loss_forecast: FittedForecast | None,
    done: float,
    per_s: float | None,
) -> Aim:
    work = math.inf if loss_forecast is None else loss_forecast.samples_to(value)
    left = max(0.0, work - done)
    in_s = left if left in {0.0, math.inf} else None if not per_s else left / per_s
    return Aim(tier=tier, value=value, work=work, in_s=in_s)
