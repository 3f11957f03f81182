"""The trainers that a request names: a built-in set, a drawn one, or a file's."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from freetrain.cli.load import load_trainers
from freetrain.cli.request import DRAWN, is_drawn
from freetrain.errors import BadDataError, MissingInputError, UsageError
from freetrain.losscurve.outlook import Better
from freetrain.replay.trainers import Demand, quality_trainers, truth_of
from freetrain.replay.trainers_file import read_curve

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from freetrain.cli.request import ReplayRequest
    from freetrain.replay.trainers import QualityTruth, TrainerSpec

MOST_DRAWN = 10_000


def team(
    request: ReplayRequest, cwd: Path, *, mean_nodes: float
) -> tuple[TrainerSpec, ...]:
    """Return the trainers of *request*.

    Args:
        request: What was asked for.
        cwd: Where relative names begin.
        mean_nodes: Idle nodes on average, which a load is measured against.

    Raises:
        MissingInputError, BadConfigurationError, BadDataError: A file is not there,
            or not what it should be.
        UsageError: The set's size makes no sense.
    """
    if not is_drawn(request.trainers):
        return load_trainers(request.trainers, cwd)
    size = request.trainers.removeprefix(DRAWN)
    if not size.isdecimal() or not 1 <= int(size) <= MOST_DRAWN:
        raise UsageError(
            f"{size!r} trainers: expected a number from 1 to {MOST_DRAWN}, as in "
            f"{DRAWN}40. Nothing was replayed."
        )
    if request.curves is None:
        curves = list(_recorded())
    else:
        curves = _in(cwd / request.curves, request.better)
    demand = Demand(nodes=mean_nodes, load=request.load)
    return quality_trainers(int(size), tuple(curves), seed=request.seed, demand=demand)


def _recorded() -> Iterator[QualityTruth]:
    """Yield the loss and the validation metric of each recorded training."""
    from freetrain.losscurve.recorded import load  # noqa: PLC0415 - 29 files to read

    for name, curve in load().items():
        for series in (curve.loss, curve.validation):
            yield truth_of(
                series.samples.tolist(),
                series.values.tolist(),
                series.better,
                name=f"{name}.{series.metric}",
            )


def _in(folder: Path, better: Better) -> list[QualityTruth]:
    """Return every curve under *folder*, of the column ``metric``.

    Raises:
        MissingInputError: There is none.
        BadDataError: One cannot be read, or all of them get worse.
    """
    files = sorted(folder.rglob("*.csv"))
    if not files:
        raise MissingInputError(
            f"there is no .csv file in {folder}; nothing was replayed. Name a folder "
            f"of curves with --curves, or leave it out for the recorded ones."
        )
    found = [
        replace(
            read_curve(file, "metric", better, named=str(file)),
            name=f"{file.parent.name}.{file.stem}",
        )
        for file in files
    ]
    if not any(better.is_reached(one.values[0], one.values[-1]) for one in found):
        other = Better.LOWER if better is Better.HIGHER else Better.HIGHER
        raise BadDataError(
            f"every curve in {folder} ends worse than it begins where {better} values "
            f"are good; nothing was replayed. Say --better {other}."
        )
    return found
