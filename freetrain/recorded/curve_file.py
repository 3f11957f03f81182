"""Files of curves to typed records."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from freetrain.quality.outlook import Better
from freetrain.recorded.curve import RecordedCurve, Series
from freetrain.recorded.sheet import read_sheet

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from freetrain.recorded.sheet import Line, Sheet

EPOCH_DIGITS = 1e-5
"""Epochs are written with six digits."""


def parse_curve(text: str, *, file: str) -> RecordedCurve:
    """Return the training that *text* tells; *file* is its name, ending in .csv.

    Raises:
        BadDataError: It is not a recorded training; names file, line and reason.
    """
    sheet = read_sheet(text, file=file)
    told = sheet.header
    loss, lower = _metric(told, "loss")
    metric, better = _metric(told, "validation")
    sheet.expect(("samples", "step", "epoch", "loss", metric))
    _check_progress(sheet)
    return RecordedCurve(
        name=file.removesuffix(".csv"),
        model=told.text("model"),
        data_set=told.text("data_set"),
        batch_size=told.whole("batch_size"),
        optimizer=told.text("optimizer"),
        learning_rate=told.text("learning_rate"),
        seed=told.whole("seed", least=0),
        made_with=told.text("made_with"),
        licence=told.text("licence"),
        epoch_samples=told.whole("epoch_samples"),
        loss=Series(loss, lower, *_columns(sheet.rows, "loss")),
        validation=Series(metric, better, *_columns(_validated(sheet, metric), metric)),
    )


def _metric(told: Line, key: str) -> tuple[str, Better]:
    """Read ``name, lower is better``."""
    name, _, rest = told.text(key).partition(", ")
    meant = {f"{better} is better": better for better in Better}
    if rest not in meant:
        told.refuse(key, "NAME, lower is better, or NAME, higher is better")
    return name, meant[rest]


def _check_progress(sheet: Sheet) -> None:
    """Refuse counts that do not grow or do not fit each other."""
    batch, epoch = (sheet.header.whole(key) for key in ("batch_size", "epoch_samples"))
    for line in sheet.rows:
        samples = line.whole("samples")
        if line.whole("step") * batch != samples:
            line.refuse("step", f"{samples / batch:g}, which makes {samples} samples")
        if not math.isclose(
            line.positive("epoch"), samples / epoch, rel_tol=EPOCH_DIGITS
        ):
            line.refuse("epoch", f"{samples / epoch:g}, which is {samples} samples")
    for before, after in pairwise(sheet.rows):
        if after.whole("samples") <= before.whole("samples"):
            after.refuse("samples", f"more than {before.text('samples')}")


def _validated(sheet: Sheet, metric: str) -> tuple[Line, ...]:
    """Return the rows with a validation metric; the last one has to have it."""
    sheet.rows[-1].text(metric)
    return tuple(line for line in sheet.rows if line.cells[metric])


def _columns(
    rows: Iterable[Line], column: str
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return samples and values, read-only."""
    pairs = [(line.whole("samples"), line.real(column)) for line in rows]
    samples, values = np.array(pairs, dtype=np.float64).T.copy()
    samples.flags.writeable = False
    values.flags.writeable = False
    return samples, values
