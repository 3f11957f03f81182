"""Trainers files: TOML, one ``[[trainer]]`` table a kind; docs/trainers.md."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from freetrain.toml.document import FileKind, parse_document, read_limited
from freetrain.toml.kind import positive, seconds, trainer_name, whole
from freetrain.toml.nodes import curve, sizes
from freetrain.toml.table import Table
from freetrain.toml.wording import closest, shown
from freetrain.trainers import builtin
from freetrain.trainers.file_quality import quality_of, target_of
from freetrain.trainers.scaling import interpolate, measured_points
from freetrain.trainers.spec import Costs, TrainerSpec

if TYPE_CHECKING:
    from freetrain.trainers.spec import Scaling

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

FILE = FileKind(
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
    content = read_limited(path, named=name, file=FILE)
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
            refused = Table(path, f"trainer {shown(name)}", {}, FILE.consequence)
            refused.refuse(f"{uses} trainers have this name, expected one")
    return tuple(trainers)


def _entries(content: bytes, *, path: str) -> list[Table]:
    document = parse_document(content, path=path, file=FILE)
    whole_file = replace(document, where="the file")
    whole_file.refuse_unknown(("trainer",))
    tables = document.values.get("trainer", [])
    if not isinstance(tables, list) or not tables:
        whole_file.refuse("no trainer found, expected [[trainer]] tables")
    return [
        Table(path, _where(table, number), table, FILE.consequence)
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
