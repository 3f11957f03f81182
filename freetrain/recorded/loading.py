"""The recorded curves of this installation."""

from __future__ import annotations

from dataclasses import replace
from importlib import resources
from typing import TYPE_CHECKING

from freetrain.errors import MissingInputError
from freetrain.recorded.curve_file import parse_curve
from freetrain.recorded.step_time_file import parse_step_times

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

    from freetrain.recorded.curve import RecordedCurve

STEP_TIMES = "step_times.csv"


def load() -> dict[str, RecordedCurve]:
    """Return all recorded trainings by name, in the order of names.

    Raises:
        BadDataError: A file is not what it should be; names file, line and reason.
        MissingInputError: No curve is installed.
    """
    return load_from(resources.files("freetrain.recorded"))


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
