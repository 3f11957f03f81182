"""What a trainers file says of quality: ``quality`` and ``target`` of a trainer."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from freetrain.priority.interface import Target
from freetrain.quality.outlook import Better
from freetrain.toml.kind import matching, number, one_of
from freetrain.trainers.curve_file import read_curve

if TYPE_CHECKING:
    from pathlib import Path

    from freetrain.toml.table import Table
    from freetrain.trainers.quality import QualityTruth

_TEXT = re.compile(r"[^\x00-\x1f]{1,1024}")


def quality_of(entry: Table, folder: Path, *, samples: float) -> QualityTruth | None:
    """Return the curve that *entry* names, stretched to *samples*; None for none.

    Args:
        entry: A trainer's table.
        folder: Where the names of files begin.
        samples: Where the curve's last point is to lie.

    Raises:
        MissingInputError, BadDataError, UsageError: See ``read_curve``.
        BadConfigurationError: A key is missing or not what it should be.
    """
    if not entry.has("quality"):
        return None
    table = entry.inner("quality")
    table.refuse_unknown(("file", "metric", "better"))
    file = table.take("file", matching(_TEXT, "the name of a CSV file"))
    metric = table.take("metric", matching(_TEXT, "the name of a column"))
    better = table.take("better", one_of(Better))
    curve = read_curve(folder / file, metric, better, named=file)
    return curve.scaled_to(samples)


def target_of(entry: Table) -> Target | None:
    """Return the target that *entry* states, None for none.

    Raises:
        BadConfigurationError: There is no metric, or a tier is not a number.
    """
    if not entry.has("target"):
        return None
    if not entry.has("quality"):
        entry.refuse("a target without quality, expected the metric it is about")
    table = entry.inner("target")
    table.refuse_unknown(("deliver", "final"))
    deliver = table.take("deliver", number())
    final = table.take("final", number()) if table.has("final") else None
    return Target(deliver=deliver, final=final)
