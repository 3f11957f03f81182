"""A log's figures as people read them on a terminal."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from rich.table import Table

from freetrain.cli.exits import one_line
from freetrain.report.rows import percent
from freetrain.toml.duration import render_duration
from logs.summary import Spread

if TYPE_CHECKING:
    from freetrain.cli.world import World
    from logs.summary import TraceSummary

UNIX_TIME = "unix_start_s"
SHARES = ("utilisation", "_share")


def summary_text(summary: TraceSummary, world: World) -> str:
    """Return one line a figure, the unit with the value."""
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    for field in dataclasses.fields(summary):
        value = getattr(summary, field.name)
        table.add_row(_label(field.name), _value(field.name, value))
    console = world.out()
    with console.capture() as captured:
        console.print(table, soft_wrap=True)
    return "".join(f"{line.rstrip()}\n" for line in captured.get().splitlines())


def _label(name: str) -> str:
    if name == UNIX_TIME:
        return "begins"
    plain = name.replace("node_s", "node-time").removesuffix("_s")
    return plain.removeprefix("log_").replace("_", " ")


def _value(name: str, value: object) -> str:
    if isinstance(value, Spread):
        spread = dataclasses.asdict(value).items()
        return ", ".join(f"{word} {_number(name, part)}" for word, part in spread)
    if name == UNIX_TIME and isinstance(value, float | int):
        return f"{datetime.fromtimestamp(value, UTC):%Y-%m-%d %H:%M:%S} UTC"
    if isinstance(value, float | int):
        return _number(name, float(value))
    return "unknown" if value is None else one_line(str(value))


def _number(name: str, value: float) -> str:
    if name.endswith(SHARES):
        return percent(value)
    if name.endswith("node_s"):
        return f"{value / 3600:,.0f} node-h"
    if name.endswith("_s"):
        return render_duration(value)
    return f"{value:,.0f}" if value == round(value) else f"{value:,.1f}"
