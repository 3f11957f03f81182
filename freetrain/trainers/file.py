"""Trainers files: TOML, one ``[[trainer]]`` table a kind; docs/trainers.md."""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from typing import TYPE_CHECKING

from freetrain.errors import BadConfigurationError, MissingInputError
from freetrain.trainers import builtin
from freetrain.trainers.entry import Entry, closest, positive_or_none, shown
from freetrain.trainers.scaling import interpolate, measured_points
from freetrain.trainers.spec import Costs, TrainerSpec

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

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
    "grow",
    "shrink",
    "start",
    "checkpoint_every",
)
POWERS_OF_TWO = "powers-of-two"
MOST_BYTES = 16 * 2**20
MOST_TRAINERS = 100_000
MOST_NODES = 100_000

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", re.ASCII)


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
    try:
        content = path.read_bytes() if path.stat().st_size <= MOST_BYTES else None
    except OSError as error:
        raise MissingInputError(
            f"cannot read trainers file {name}: {error.strerror}. Nothing was "
            f"replayed. Name a readable TOML file, or one of the built-in sets "
            f"{', '.join(builtin.BUILTIN_NAMES)}."
        ) from error
    if content is None:
        raise BadConfigurationError(
            f"{name}: larger than {MOST_BYTES >> 20} MiB. No trainer of this file "
            f"was used. Use `count` for trainers that are alike."
        )
    return parse_trainers(content, path=name)


def parse_trainers(content: bytes, *, path: str) -> tuple[TrainerSpec, ...]:
    """Return the trainers that *content* describes; *path* is for messages.

    Raises:
        BadConfigurationError: See ``read_trainers``.
    """
    trainers: list[TrainerSpec] = []
    scalings: dict[tuple[object, ...], Scaling] = {}
    for entry in _entries(content, path=path):
        trainers.extend(_copies(entry, scalings, room=MOST_TRAINERS - len(trainers)))
    for name, uses in Counter(trainer.name for trainer in trainers).items():
        if uses > 1:
            refused = Entry(path, f"trainer {shown(name)}", {})
            refused.refuse(f"{uses} trainers have this name, expected one")
    return tuple(trainers)


def _entries(content: bytes, *, path: str) -> list[Entry]:
    whole_file = Entry(path, "the file", {})
    try:
        document = tomllib.loads(content.decode("utf-8"))
    except UnicodeDecodeError:
        whole_file.refuse("this is not text in UTF-8, expected TOML")
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        whole_file.refuse(f"this is not TOML: {error}")
    Entry(path, "the file", document).refuse_unknown(("trainer",))
    tables = document.get("trainer", [])
    if not isinstance(tables, list) or not tables:
        whole_file.refuse("no trainer found, expected [[trainer]] tables")
    return [
        Entry(path, _where(table, number), table)
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
    entry: Entry, scalings: dict[tuple[object, ...], Scaling], *, room: int
) -> list[TrainerSpec]:
    entry.refuse_unknown(KEYS)
    name = _name(entry)
    entry.require("samples")
    count = entry.whole("count", default=1, most=MOST_TRAINERS)
    if count > room:
        entry.refuse(f"more than {MOST_TRAINERS} trainers in one file")
    scaling = _scaling(entry, scalings)
    costs = _costs(entry)
    samples = entry.positive("samples", default=0.0)
    first_s = entry.seconds("arrival", default=0.0)
    every_s = entry.seconds("every", default=0.0)
    fixed_nodes = _fixed_nodes(entry, scaling)
    weight = entry.positive("weight", default=1.0)
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
        )
        for k in range(count)
    ]


def _name(entry: Entry) -> str:
    entry.require("name")
    name = entry.values["name"]
    if not isinstance(name, str) or _NAME.fullmatch(name) is None:
        entry.refuse_value("name", "up to 64 letters, digits, '.', '_' and '-'")
    return name


def _costs(entry: Entry) -> Costs:
    grow_s = entry.seconds("grow", default=builtin.GROW_S)
    return Costs(
        grow_s=grow_s,
        shrink_s=entry.seconds("shrink", default=builtin.SHRINK_S),
        start_s=entry.seconds("start", default=grow_s),
        checkpoint_every_s=entry.seconds(
            "checkpoint_every", default=builtin.CHECKPOINT_EVERY_S
        ),
    )


def _scaling(entry: Entry, scalings: dict[tuple[object, ...], Scaling]) -> Scaling:
    if entry.has("model") == entry.has("scaling"):
        entry.refuse("expected either model or scaling, and not both")
    model, points = _measured(entry) if entry.has("model") else _given(entry)
    sizes = _sizes(entry, measured_nodes=max(points))
    key = (model, *sorted(points.items()), sizes)
    if key not in scalings:
        scalings[key] = interpolate(model, points, sizes=sizes)
    return scalings[key]


def _measured(entry: Entry) -> tuple[str, dict[int, float]]:
    table = measured_points()
    model = entry.values["model"]
    if not isinstance(model, str) or model not in table:
        hint = closest(str(model), tuple(table))
        entry.refuse_value("model", f"one of {', '.join(table)}.{hint}")
    return model, table[model]


def _given(entry: Entry) -> tuple[str, dict[int, float]]:
    expected = 'samples a second by node count, such as { "1" = 100.0, "2" = 190.0 }'
    table = entry.values["scaling"]
    if not isinstance(table, dict) or not table:
        entry.refuse_value("scaling", expected)
    points = dict(_point(entry, table, written) for written in table)
    return str(entry.values["name"]), points


def _point(
    entry: Entry, table: Mapping[str, object], written: str
) -> tuple[int, float]:
    nodes = int(written) if re.fullmatch(r"[1-9][0-9]{0,5}", written) else 0
    speed = positive_or_none(table[written])
    if not 1 <= nodes <= MOST_NODES:
        entry.refuse(
            f"scaling has {shown(written)}, "
            f"expected a node count from 1 to {MOST_NODES}"
        )
    if speed is None:
        entry.refuse(
            f'scaling has "{written}" = {shown(table[written])}, '
            f"expected samples a second, a number above 0"
        )
    return nodes, speed


def _sizes(entry: Entry, *, measured_nodes: int) -> tuple[int, ...]:
    least = entry.whole("min_nodes", default=1, most=measured_nodes)
    most = entry.whole("max_nodes", default=measured_nodes, most=measured_nodes)
    if least > most:
        entry.refuse(f"min_nodes = {least} is above max_nodes = {most}")
    if not entry.has("sizes"):
        return tuple(range(least, most + 1))
    return _listed_sizes(entry, range(least, most + 1))


def _listed_sizes(entry: Entry, allowed: range) -> tuple[int, ...]:
    expected = (
        f'"{POWERS_OF_TWO}" or a list of node counts '
        f"from {allowed.start} to {allowed.stop - 1}"
    )
    sizes = entry.values["sizes"]
    if sizes == POWERS_OF_TWO:
        sizes = [size for size in allowed if size & (size - 1) == 0]
    if not isinstance(sizes, list) or not sizes:
        entry.refuse_value("sizes", expected)
    if any(type(size) is not int or size not in allowed for size in sizes):
        entry.refuse_value("sizes", expected)
    return tuple(sorted(set(sizes)))


def _fixed_nodes(entry: Entry, scaling: Scaling) -> int:
    fitting = [size for size in scaling.sizes if size <= builtin.FIXED_NODES]
    default = max(fitting, default=scaling.sizes[0])
    fixed = entry.whole("fixed_nodes", default=default, most=scaling.sizes[-1])
    if fixed not in scaling.sizes:
        entry.refuse_value("fixed_nodes", "one of the sizes the trainer can run on")
    return fixed
