"""Recorded trainings that ship with FreeTrain: real loss curves and step times.

``load`` reads ``curves/*.csv`` and ``step_times.csv`` beside this module. Every line is
checked; an unreadable line raises with file, line and reason.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from importlib import resources
from itertools import pairwise, takewhile
from typing import TYPE_CHECKING, NoReturn, TypeVar

import numpy as np

from freetrain.errors import BadDataError, MissingInputError
from freetrain.losscurve.forecast import MetricDirection

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence
    from importlib.resources.abc import Traversable

    from numpy.typing import NDArray


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
    better: MetricDirection
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
    """A real training from its beginning to its end.

    Attributes:
        name: Unique among the recorded ones.
        model: Kind and size, for people.
        data_set: Name and number of samples, for people.
        batch_size: Samples a step.
        optimizer: Name and settings, for people.
        learning_rate: The schedule, for people.
        seed: Of the training.
        made_with: Versions of the programs that made the file.
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


STEP_TIMES = "step_times.csv"


def load() -> dict[str, RecordedCurve]:
    """Return all recorded trainings by name, in the order of names.

    Raises:
        BadDataError: A file is not what it should be; names file, line and reason.
        MissingInputError: No curve is installed.
    """
    return load_from(resources.files("freetrain.losscurve"))


def load_from(folder: Traversable) -> dict[str, RecordedCurve]:
    """Return what *folder* has in ``curves/`` and in ``step_times.csv``.

    Without the table of step times, trainings have none.

    Raises:
        BadDataError: See ``load``.
        MissingInputError: There is no curve in it.
    """
    curves = {}
    for file in _curve_files(folder):
        curve = parse_curve(file.read_text("utf-8"), file=file.name)
        curves[curve.name] = curve
    table = folder / STEP_TIMES
    if not table.is_file():
        return curves
    times = parse_step_times(table.read_text("utf-8"), file=table.name, names=curves)
    return {
        name: replace(curve, step_times=times.get(name, ()))
        for name, curve in curves.items()
    }


def _curve_files(folder: Traversable) -> list[Traversable]:
    curves = folder / "curves"
    found = curves.iterdir() if curves.is_dir() else ()
    files = {
        file.name.removesuffix(".csv"): file
        for file in found
        if file.name.endswith(".csv")
    }
    if not files:
        raise MissingInputError(
            f"there are no recorded curves in {curves}; nothing was loaded. Reinstall "
            f"FreeTrain, or record them: make curves."
        )
    return [file for _, file in sorted(files.items())]


# ----------------------------------------------------------------------
# A curve's file

EPOCH_DIGITS = 1e-5
"""Epochs are written with six digits."""


def parse_curve(text: str, *, file: str) -> RecordedCurve:
    """Return the training in *text*; *file* is its name, ending in .csv.

    Raises:
        BadDataError: It is not a recorded training; names file, line and reason.
    """
    header, columns, rows = _read_sheet(text, file=file)
    loss, lower = _metric(header, "loss")
    metric, better = _metric(header, "validation")
    _check_columns(header, columns, ("samples", "step", "epoch", "loss", metric))
    _check_progress(header, rows)
    rows[-1].text(metric)  # a training ends with its validation
    validated = [row for row in rows if row.cells[metric]]
    return RecordedCurve(
        name=file.removesuffix(".csv"),
        model=header.text("model"),
        data_set=header.text("data_set"),
        batch_size=header.whole("batch_size"),
        optimizer=header.text("optimizer"),
        learning_rate=header.text("learning_rate"),
        seed=header.whole("seed", least=0),
        made_with=header.text("made_with"),
        licence=header.text("licence"),
        epoch_samples=header.whole("epoch_samples"),
        loss=Series(loss, lower, *_columns(rows, "loss")),
        validation=Series(metric, better, *_columns(validated, metric)),
    )


def _metric(header: TableRow, key: str) -> tuple[str, MetricDirection]:
    """Read ``name, lower is better``."""
    name, _, rest = header.text(key).partition(", ")
    meant = {f"{better} is better": better for better in MetricDirection}
    if rest not in meant:
        header.refuse(key, "NAME, lower is better, or NAME, higher is better")
    return name, meant[rest]


def _check_progress(header: TableRow, rows: Sequence[TableRow]) -> None:
    """Refuse counts that do not grow or do not fit each other."""
    batch, epoch = header.whole("batch_size"), header.whole("epoch_samples")
    for line in rows:
        samples = line.whole("samples")
        if line.whole("step") * batch != samples:
            line.refuse("step", f"{samples / batch:g}, which makes {samples} samples")
        if not math.isclose(
            line.positive("epoch"), samples / epoch, rel_tol=EPOCH_DIGITS
        ):
            line.refuse("epoch", f"{samples / epoch:g}, which is {samples} samples")
    for before, after in pairwise(rows):
        if after.whole("samples") <= before.whole("samples"):
            after.refuse("samples", f"more than {before.text('samples')}")


def _columns(
    rows: Iterable[TableRow], column: str
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return samples and values, read-only."""
    pairs = [(line.whole("samples"), line.real(column)) for line in rows]
    samples, values = np.array(pairs, dtype=np.float64).T.copy()
    samples.flags.writeable = False
    values.flags.writeable = False
    return samples, values


# ----------------------------------------------------------------------
# The table of step times

COLUMNS = (
    "name",
    "cpu_percent",
    "step_ms",
    "low_ms",
    "high_ms",
    "used_percent",
    "steps",
    "method",
)


def parse_step_times(
    text: str, *, file: str, names: Collection[str]
) -> dict[str, tuple[StepTime, ...]]:
    """Return the step times of each training, the largest share first.

    Args:
        text: The table.
        file: For messages.
        names: Trainings that there are.

    Raises:
        BadDataError: It is not such a table, or has another training, or
            twice of one share; names file, line and reason.
    """
    header, columns, rows = _read_sheet(text, file=file)
    _check_columns(header, columns, COLUMNS)
    found: dict[str, dict[float, StepTime]] = {}
    for line in rows:
        name, time = line.text("name"), _step_time(line)
        if name not in names:
            line.refuse("name", "the name of a recorded training")
        shares = found.setdefault(name, {})
        if time.cpu_percent in shares:
            line.refuse("cpu_percent", f"every share of {name} once")
        shares[time.cpu_percent] = time
    return {
        name: tuple(shares[share] for share in sorted(shares, reverse=True))
        for name, shares in found.items()
    }


def _step_time(line: TableRow) -> StepTime:
    low_s, step_s, high_s = (
        line.positive(column) / 1000 for column in ("low_ms", "step_ms", "high_ms")
    )
    if not low_s <= step_s <= high_s:
        line.refuse("step_ms", "a time from low_ms to high_ms")
    return StepTime(
        cpu_percent=line.positive("cpu_percent"),
        step_s=step_s,
        low_s=low_s,
        high_s=high_s,
        used_percent=line.positive("used_percent"),
        steps=line.whole("steps"),
        method=line.text("method"),
    )


# ----------------------------------------------------------------------
# Tables with ``# key: value`` lines above them

Number = TypeVar("Number", int, float)


def _read_sheet(
    text: str, *, file: str
) -> tuple[TableRow, tuple[str, ...], tuple[TableRow, ...]]:
    """Return header values by key, names of columns and rows, one or more.

    Raises:
        BadDataError: A row has not as many cells as there are columns, or there is
            no row.
    """
    lines = text.removesuffix("\n").split("\n")
    above = list(takewhile(lambda line: line.startswith("#"), lines))
    pairs = (line.removeprefix("#").partition(":") for line in above)
    header = {key.strip(): value.strip() for key, _, value in pairs}
    table = [line.split(",") for line in lines[len(above) :]]
    if len(table) <= 1:
        _refuse(file, len(lines), "the file ends, expected columns and rows")
    columns = tuple(table[0])
    rows = []
    for number, cells in enumerate(table[1:], start=len(above) + 2):
        if len(cells) != len(columns):
            _refuse(file, number, f"{len(cells)} cells, expected {len(columns)}")
        rows.append(TableRow(file, number, dict(zip(columns, cells, strict=True))))
    return TableRow(file, len(above), header), columns, tuple(rows)


def _check_columns(
    header: TableRow, columns: tuple[str, ...], expected: tuple[str, ...]
) -> None:
    if columns != expected:
        found = f"columns {','.join(columns)}, expected {','.join(expected)}"
        _refuse(header.file, header.number + 1, found)


@dataclass(frozen=True, slots=True)
class TableRow:
    """One row of a table.

    Attributes:
        file: For messages.
        number: Of the line in the file, from 1.
        cells: By column.
    """

    file: str
    number: int
    cells: dict[str, str]

    def real(self, column: str) -> float:
        """Return any number, nan and inf included."""
        return self._number(column, float)

    def positive(self, column: str) -> float:
        """Return a number above 0 and below infinity."""
        number = self.real(column)
        if not 0 < number < float("inf"):
            self.refuse(column, "a number above 0")
        return number

    def whole(self, column: str, least: int = 1) -> int:
        """Return a whole number, *least* or more."""
        number = self._number(column, int)
        if number < least:
            self.refuse(column, f"a whole number from {least} on")
        return number

    def text(self, column: str) -> str:
        """Return a cell that is not empty."""
        if not self.cells.get(column):
            self.refuse(column, "something")
        return self.cells[column]

    def refuse(self, column: str, expected: str) -> NoReturn:
        """Raise BadDataError about a cell."""
        found = self.cells.get(column)
        cell = "missing" if found is None else f"{found!r}"
        _refuse(self.file, self.number, f"{column} is {cell}, expected {expected}")

    def _number(self, column: str, kind: Callable[[str], Number]) -> Number:
        try:
            return kind(self.text(column))
        except ValueError:
            self.refuse(column, "a number")


def _refuse(file: str, line: int, why: str) -> NoReturn:
    raise BadDataError(
        f"{file}: line {line}: {why}. No recorded curve was loaded. Reinstall "
        f"FreeTrain, or record the curves again: make curves."
    )
