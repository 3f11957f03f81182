"""Curve files: CSV with a header, samples and metrics; docs/trainers.md."""

from __future__ import annotations

import csv
from typing import TYPE_CHECKING

from freetrain.errors import BadDataError
from freetrain.toml.document import FileKind, read_limited
from freetrain.trainers.quality import truth_of

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from freetrain.quality.outlook import Better
    from freetrain.trainers.quality import QualityTruth

SAMPLES = ("samples", "progress", "iteration")
"""Columns that tell how far the training is, the best first."""

FILE = FileKind(
    what="curve file ",
    most_bytes=64 * 2**20,
    consequence="Nothing was replayed.",
    advice="Name a readable CSV file with a header line.",
)


def read_curve(
    path: Path, metric: str, better: Better, *, named: str | None = None
) -> QualityTruth:
    """Return the curve of *metric* in the file at *path*.

    Lines that begin with ``#`` are left out, and so are rows without a value.

    Raises:
        MissingInputError: The file is not there or cannot be read.
        BadDataError: It is not CSV, or lacks the metric or a column of samples.
        UsageError: It has fewer than two different places.
    """
    name = named or str(path)
    content = read_limited(path, named=name, file=FILE)
    text = content.decode("utf-8", errors="replace").splitlines()
    rows = csv.DictReader(line for line in text if line and line[0] != "#")
    columns = rows.fieldnames or ()
    place = next((column for column in SAMPLES if column in columns), None)
    if place is None or metric not in columns:
        raise BadDataError(
            f"{name}: found the columns {', '.join(columns) or 'none'}; expected "
            f"{metric} and one of {', '.join(SAMPLES)}. Nothing was replayed."
        )
    pairs = list(_pairs(rows, place, metric, named=name))
    return truth_of([s for s, _ in pairs], [v for _, v in pairs], better, name=name)


def _pairs(
    rows: Iterable[dict[str, str]], place: str, metric: str, *, named: str
) -> Iterable[tuple[float, float]]:
    for number, row in enumerate(rows, start=1):
        if row[metric] in ("", None):
            continue
        try:
            yield float(row[place]), float(row[metric])
        except (TypeError, ValueError) as error:
            raise BadDataError(
                f"{named}: row {number} is not a number: {row[place]!r}, "
                f"{row[metric]!r}. Nothing was replayed."
            ) from error
