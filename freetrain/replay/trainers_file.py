"""Trainers files of replays, and curve files they name; docs/reference/trainers.md.

A trainers file is TOML with one ``[[trainer]]`` table a kind of trainer; a curve file
is CSV with a header, samples and metrics.
"""

import csv
import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta, Struct

from freetrain.config.document import (
    FileKind,
    Positive,
    Table,
    TrainerName,
    curve,
    key_name,
    keys_of,
    named,
    parse_document,
    read_limited,
    seconds,
    sizes,
)
from freetrain.errors import BadDataError
from freetrain.losscurve.forecast import MetricDirection
from freetrain.priority.base import Target
from freetrain.replay.trainers import (
    BUILTIN_NAMES,
    CHECKPOINT_EVERY_S,
    GROW_S,
    SHRINK_S,
    Costs,
    QualityTruth,
    Scaling,
    TrainerSpec,
    interpolate,
    measured_points,
    truth_of,
)
from freetrain.text import closest, shown

SAMPLES = ("samples", "progress", "iteration")
"""Columns that tell how far the training is, the best first."""

CURVE_FILE = FileKind(
    prefix="curve file ",
    most_bytes=64 * 2**20,
    consequence="Nothing was replayed.",
    advice="Name a readable CSV file with a header line.",
)


def read_curve(
    path: Path, metric: str, better: MetricDirection, *, named: str | None = None
) -> QualityTruth:
    """Return the curve of *metric* in the file at *path*.

    Lines that begin with ``#`` are left out, and so are rows without a value.

    Raises:
        MissingInputError: The file is not there or cannot be read.
        BadDataError: It is not CSV, or lacks the metric or a column of samples.
        UsageError: It has fewer than two different places.
    """
    name = named or str(path)
    content = read_limited(path, named=name, file=CURVE_FILE)
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


MOST_TRAINERS = 100_000
LEAST_AMOUNT, MOST_AMOUNT = 1e-3, 1e18
"""Bounds of samples, samples a second and weights."""

_TEXT = r"[^\x00-\x1f]{1,1024}"


class QualityTable(Struct, frozen=True, kw_only=True):
    """``quality``: the curve of a metric."""

    file: Annotated[str, named(_TEXT, "the name of a CSV file")]
    metric: Annotated[str, named(_TEXT, "the name of a column")]
    better: MetricDirection


class TargetTable(Struct, frozen=True, kw_only=True):
    """``target``: the values of the metric that are wanted."""

    deliver: float
    final: float | None = None


class TrainerTable(Struct, frozen=True, kw_only=True, rename=key_name):
    """``[[trainer]]``: a kind of trainers.

    What ``Any`` stands for has limits that depend on the model: they are checked when
    the model is known.
    """

    name: TrainerName
    count: Annotated[int, Meta(ge=1, le=MOST_TRAINERS)] = 1
    arrival_s: Annotated[float, seconds()] = 0.0
    every_s: Annotated[float, seconds()] = 0.0
    samples: Positive
    model: Any = None
    scaling: Annotated[
        tuple[tuple[int, float], ...] | None, curve("samples a second")
    ] = None
    min_nodes: Any = None
    max_nodes: Any = None
    sizes: Any = None
    fixed_nodes: Any = None
    weight: Positive = 1.0
    deadline_s: Annotated[float, seconds()] = math.inf
    quality: QualityTable | None = None
    target: TargetTable | None = None
    grow_s: Annotated[float, seconds()] = GROW_S
    shrink_s: Annotated[float, seconds()] = SHRINK_S
    start_s: Annotated[float, seconds()] | None = None
    checkpoint_every_s: Annotated[float, seconds()] = CHECKPOINT_EVERY_S


KEYS = tuple(key.name for key in keys_of(TrainerTable))

TRAINERS_FILE = FileKind(
    prefix="trainers file ",
    most_bytes=16 * 2**20,
    consequence="No trainer of this file was used.",
    advice=f"Name a readable TOML file, or one of the built-in sets "
    f"{', '.join(BUILTIN_NAMES)}.",
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
    content = read_limited(path, named=name, file=TRAINERS_FILE)
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
            refused = Table(
                path, f"trainer {shown(name)}", {}, TRAINERS_FILE.consequence
            )
            refused.refuse(f"{uses} trainers have this name, expected one")
    return tuple(trainers)


def _entries(content: bytes, *, path: str) -> list[Table]:
    document = parse_document(content, path=path, file=TRAINERS_FILE)
    whole_file = replace(document, where="the file")
    whole_file.refuse_unknown(("trainer",))
    tables = document.values.get("trainer", [])
    if not isinstance(tables, list) or not tables:
        whole_file.refuse("no trainer found, expected [[trainer]] tables")
    return [
        Table(path, _where(table, number), table, TRAINERS_FILE.consequence)
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
    if entry.has("target") and not entry.has("quality"):
        entry.refuse("a target without quality, expected the metric it is about")
    table = entry.read(TrainerTable)
    if table.count > room:
        entry.refuse(f"more than {MOST_TRAINERS} trainers in one file")
    scaling = _scaling(entry, table, scalings)
    fixed_nodes = _fixed_nodes(entry, scaling)
    _refuse_unbelievable(entry, "samples", table.samples)
    _refuse_unbelievable(entry, "weight", table.weight)
    quality = _quality(table.quality, folder, samples=table.samples)
    wanted = table.target
    target = Target(deliver=wanted.deliver, final=wanted.final) if wanted else None
    costs = Costs(
        grow_s=table.grow_s,
        shrink_s=table.shrink_s,
        start_s=table.grow_s if table.start_s is None else table.start_s,
        checkpoint_every_s=table.checkpoint_every_s,
    )
    digits = len(str(table.count))
    arrivals_s = [table.arrival_s + k * table.every_s for k in range(table.count)]
    return [
        TrainerSpec(
            name=table.name if table.count == 1 else f"{table.name}-{k:0{digits}d}",
            scaling=scaling,
            samples=table.samples,
            arrival_s=arrival_s,
            costs=costs,
            fixed_nodes=fixed_nodes,
            weight=table.weight,
            deadline_s=_deadline_s(arrival_s, table.deadline_s),
            target=target,
            quality=quality,
        )
        for k, arrival_s in enumerate(arrivals_s, start=1)
    ]


def _deadline_s(arrival_s: float, within_s: float) -> float | None:
    return arrival_s + within_s if within_s < math.inf else None


def _quality(
    table: QualityTable | None, folder: Path, *, samples: float
) -> QualityTruth | None:
    """Return the curve that *table* names, its last point at *samples*."""
    if table is None:
        return None
    path = folder / table.file
    found = read_curve(path, table.metric, table.better, named=table.file)
    return found.scaled_to(samples)


def _scaling(
    entry: Table, table: TrainerTable, scalings: dict[tuple[object, ...], Scaling]
) -> Scaling:
    if entry.has("model") == entry.has("scaling"):
        entry.refuse("expected either model or scaling, and not both")
    if table.scaling is not None:
        model, points = table.name, dict(table.scaling)
        for nodes, samples_per_s in table.scaling:
            _refuse_unbelievable(entry, f"scaling at {nodes} nodes", samples_per_s)
    else:
        model, points = _measured(entry, table.model)
    counts = _sizes(entry, measured_nodes=max(points))
    key = (model, *sorted(points.items()), counts)
    if key not in scalings:
        scalings[key] = interpolate(model, points, sizes=counts)
    return scalings[key]


def _measured(entry: Table, model: object) -> tuple[str, dict[int, float]]:
    table = measured_points()
    if not isinstance(model, str) or model not in table:
        hint = closest(str(model), tuple(table))
        entry.refuse_value("model", f"one of {', '.join(table)}.{hint}")
    return model, table[model]


def _sizes(entry: Table, *, measured_nodes: int) -> tuple[int, ...]:
    least = _nodes(entry, "min_nodes", most=measured_nodes, default=1)
    most = _nodes(entry, "max_nodes", most=measured_nodes, default=measured_nodes)
    if least > most:
        entry.refuse(f"min_nodes = {least} is above max_nodes = {most}")
    allowed = range(least, most + 1)
    if not entry.has("sizes"):
        return tuple(allowed)
    found: tuple[int, ...] = entry.take(
        "sizes", Annotated[tuple[int, ...], sizes(allowed)]
    )
    return found


def _nodes(entry: Table, key: str, *, most: int, default: int) -> int:
    if not entry.has(key):
        return default
    return int(entry.take(key, Annotated[int, Meta(ge=1, le=most)]))


def _fixed_nodes(entry: Table, scaling: Scaling) -> int | None:
    if not entry.has("fixed_nodes"):
        return None
    most = scaling.sizes[-1]
    fixed = _nodes(entry, "fixed_nodes", most=most, default=most)
    if fixed not in scaling.sizes:
        entry.refuse_value("fixed_nodes", "one of the sizes the trainer can run on")
    return fixed


def _refuse_unbelievable(entry: Table, what: str, amount: float) -> None:
    """Refuse an amount with which sums and products lose all meaning."""
    if not LEAST_AMOUNT <= amount <= MOST_AMOUNT:
        entry.refuse(
            f"{what} = {amount:g}, expected a number from {LEAST_AMOUNT:g} "
            f"to {MOST_AMOUNT:g}"
        )
