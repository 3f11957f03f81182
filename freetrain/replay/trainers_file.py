"""Curve files: CSV with a header, samples and metrics; docs/trainers.md."""

from __future__ import annotations

import csv
import math
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from freetrain.config.schema import (
    FileKind,
    Table,
    curve,
    matching,
    number,
    one_of,
    parse_document,
    positive,
    read_limited,
    seconds,
    sizes,
    trainer_name,
    whole,
)
from freetrain.errors import BadDataError
from freetrain.losscurve.outlook import Better
from freetrain.priority.base import Target
from freetrain.replay import trainers as builtin
from freetrain.replay.trainers import (
    Costs,
    TrainerSpec,
    interpolate,
    measured_points,
    truth_of,
)
from freetrain.text import closest, shown

if TYPE_CHECKING:
    from collections.abc import Iterable

    from freetrain.replay.trainers import QualityTruth, Scaling


# ----------------------------------------------------------------------
# Curve files: CSV with a header, samples and metrics; docs/trainers.md.

SAMPLES = ("samples", "progress", "iteration")
"""Columns that tell how far the training is, the best first."""

FILE_curve_file = FileKind(
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
    content = read_limited(path, named=name, file=FILE_curve_file)
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
    for row_number, row in enumerate(rows, start=1):
        if row[metric] in ("", None):
            continue
        try:
            yield float(row[place]), float(row[metric])
        except (TypeError, ValueError) as error:
            raise BadDataError(
                f"{named}: row {row_number} is not a number: {row[place]!r}, "
                f"{row[metric]!r}. Nothing was replayed."
            ) from error


# ----------------------------------------------------------------------
# What a trainers file says of quality: ``quality`` and ``target`` of a trainer.

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


# ----------------------------------------------------------------------
# Trainers files: TOML, one ``[[trainer]]`` table a kind; docs/trainers.md.

KEYS = (
    "name",
    "count",
    "arrival",
    "every",
    "samples",
    "model",
    "scaling",
    "min_nodes",
    "max_nodes",
    "sizes",
    "fixed_nodes",
    "weight",
    "deadline",
    "quality",
    "target",
    "grow",
    "shrink",
    "start",
    "checkpoint_every",
)
MOST_TRAINERS = 100_000
LEAST_AMOUNT, MOST_AMOUNT = 1e-3, 1e18
"""Bounds of samples, samples a second and weights."""

FILE_file = FileKind(
    what="trainers file ",
    most_bytes=16 * 2**20,
    consequence="No trainer of this file was used.",
    advice=f"Name a readable TOML file, or one of the built-in sets "
    f"{', '.join(builtin.BUILTIN_NAMES)}.",
    when_large="Use `count` for trainers that are alike.",
)


def read_trainers(path: Path, *, named: str | None = None) -> tuple[TrainerSpec, ...]:
    """Return the trainers of the file at *path*, in its order, copies spelled out.

    Args:
        path: The file.
        named: How the user named it, for messages; None for *path* itself.

    Raises:
        MissingInputError: The file is not there or cannot be read.
        BadConfigurationError: It does not describe trainers; the message names
            the file, the trainer, the key, what was found and what is expected.
    """
    name = named or str(path)
    content = read_limited(path, named=name, file=FILE_file)
    return parse_trainers(content, path=name, folder=path.parent)


def parse_trainers(
    content: bytes, *, path: str, folder: Path | None = None
) -> tuple[TrainerSpec, ...]:
    """Return the trainers that *content* describes; *path* is for messages.

    Args:
        content: A trainers file.
        path: What to call it.
        folder: Where names of curve files begin; None for the current one.

    Raises:
        BadConfigurationError: See ``read_trainers``.
        MissingInputError, BadDataError: A curve file is not there, or not one.
    """
    trainers: list[TrainerSpec] = []
    scalings: dict[tuple[object, ...], Scaling] = {}
    for entry in _entries(content, path=path):
        room = MOST_TRAINERS - len(trainers)
        trainers.extend(_copies(entry, scalings, folder or Path(), room=room))
    for name, uses in Counter(trainer.name for trainer in trainers).items():
        if uses > 1:
            refused = Table(path, f"trainer {shown(name)}", {}, FILE_file.consequence)
            refused.refuse(f"{uses} trainers have this name, expected one")
    return tuple(trainers)


def _entries(content: bytes, *, path: str) -> list[Table]:
    document = parse_document(content, path=path, file=FILE_file)
    whole_file = replace(document, where="the file")
    whole_file.refuse_unknown(("trainer",))
    tables = document.values.get("trainer", [])
    if not isinstance(tables, list) or not tables:
        whole_file.refuse("no trainer found, expected [[trainer]] tables")
    return [
        Table(path, _where(table, number), table, FILE_file.consequence)
        if isinstance(table, dict)
        else whole_file.refuse("trainer is not a table, expected [[trainer]]")
        for number, table in enumerate(tables, start=1)
    ]


def _where(table: object, number: int) -> str:
    name = table.get("name") if isinstance(table, dict) else None
    if isinstance(name, str):
        return f"trainer {shown(name)} (number {number})"
    return f"trainer number {number}"


def _copies(
    entry: Table,
    scalings: dict[tuple[object, ...], Scaling],
    folder: Path,
    *,
    room: int,
) -> list[TrainerSpec]:
    entry.refuse_unknown(KEYS)
    name = entry.take("name", trainer_name())
    entry.require("samples")
    count = entry.take_or("count", whole(1, MOST_TRAINERS), default=1)
    if count > room:
        entry.refuse(f"more than {MOST_TRAINERS} trainers in one file")
    scaling = _scaling(entry, scalings)
    costs = _costs(entry)
    samples = _believable(entry, "samples", entry.take("samples", positive()))
    first_s = entry.take_or("arrival", seconds(), default=0.0)
    every_s = entry.take_or("every", seconds(), default=0.0)
    fixed_nodes = _fixed_nodes(entry, scaling)
    weight = entry.take_or("weight", positive(), default=1.0)
    _believable(entry, "weight", weight)
    within_s = entry.take_or("deadline", seconds(), default=math.inf)
    quality = quality_of(entry, folder, samples=samples)
    target = target_of(entry)
    digits = len(str(count))
    return [
        TrainerSpec(
            name=name if count == 1 else f"{name}-{k + 1:0{digits}d}",
            scaling=scaling,
            samples=samples,
            arrival_s=first_s + k * every_s,
            costs=costs,
            fixed_nodes=fixed_nodes,
            weight=weight,
            deadline_s=_deadline_s(first_s + k * every_s, within_s),
            target=target,
            quality=quality,
        )
        for k in range(count)
    ]


def _deadline_s(arrival_s: float, within_s: float) -> float | None:
    return arrival_s + within_s if within_s < math.inf else None


def _costs(entry: Table) -> Costs:
    grow_s = entry.take_or("grow", seconds(), default=builtin.GROW_S)
    return Costs(
        grow_s=grow_s,
        shrink_s=entry.take_or("shrink", seconds(), default=builtin.SHRINK_S),
        start_s=entry.take_or("start", seconds(), default=grow_s),
        checkpoint_every_s=entry.take_or(
            "checkpoint_every", seconds(), default=builtin.CHECKPOINT_EVERY_S
        ),
    )


def _scaling(entry: Table, scalings: dict[tuple[object, ...], Scaling]) -> Scaling:
    if entry.has("model") == entry.has("scaling"):
        entry.refuse("expected either model or scaling, and not both")
    model, points = _measured(entry) if entry.has("model") else _given(entry)
    counts = _sizes(entry, measured_nodes=max(points))
    key = (model, *sorted(points.items()), counts)
    if key not in scalings:
        scalings[key] = interpolate(model, points, sizes=counts)
    return scalings[key]


def _measured(entry: Table) -> tuple[str, dict[int, float]]:
    table = measured_points()
    model = entry.values["model"]
    if not isinstance(model, str) or model not in table:
        hint = closest(str(model), tuple(table))
        entry.refuse_value("model", f"one of {', '.join(table)}.{hint}")
    return model, table[model]


def _given(entry: Table) -> tuple[str, dict[int, float]]:
    points = entry.take("scaling", curve("samples a second"))
    for nodes, samples_per_s in dict(points).items():
        _believable(entry, f"scaling at {nodes} nodes", samples_per_s)
    return str(entry.values["name"]), dict(points)


def _believable(entry: Table, what: str, amount: float) -> float:
    """Return *amount*; refuse one with which sums and products lose all meaning."""
    if not LEAST_AMOUNT <= amount <= MOST_AMOUNT:
        entry.refuse(
            f"{what} = {amount:g}, expected a number from {LEAST_AMOUNT:g} "
            f"to {MOST_AMOUNT:g}"
        )
    return amount


def _sizes(entry: Table, *, measured_nodes: int) -> tuple[int, ...]:
    least = entry.take_or("min_nodes", whole(1, measured_nodes), default=1)
    most = entry.take_or("max_nodes", whole(1, measured_nodes), default=measured_nodes)
    if least > most:
        entry.refuse(f"min_nodes = {least} is above max_nodes = {most}")
    allowed = range(least, most + 1)
    return entry.take_or("sizes", sizes(allowed), default=tuple(allowed))


def _fixed_nodes(entry: Table, scaling: Scaling) -> int:
    fitting = [size for size in scaling.sizes if size <= builtin.FIXED_NODES]
    default = max(fitting, default=scaling.sizes[0])
    fixed = entry.take_or("fixed_nodes", whole(1, scaling.sizes[-1]), default=default)
    if fixed not in scaling.sizes:
        entry.refuse_value("fixed_nodes", "one of the sizes the trainer can run on")
    return fixed
