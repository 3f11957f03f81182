"""How trainers stand, as people read it on a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich import box
from rich.console import Group
from rich.table import Table
from rich.text import Text

from freetrain.broker.lease import LeaseState
from freetrain.cli.aim_text import aim_lines
from freetrain.cli.pack_text import pack_line
from freetrain.cli.times import ago, short_age
from freetrain.cli.why_text import reason_of
from freetrain.client.status import Doing
from freetrain.report.comparison import UNKNOWN, scaled
from freetrain.state.tables import TrainerState
from freetrain.text import one_line

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import RenderableType

    from freetrain.client.status import Overview, Standing

_COLOURS = {
    Doing.TRAINING: "green",
    Doing.STARTING: "cyan",
    Doing.RESCALING: "cyan",
    Doing.STOPPING: "yellow",
    Doing.FAILED: "red",
    Doing.UNREADABLE: "red",
}
_FEW = 100


def status_screen(seen: Overview) -> RenderableType:
    """Return everything there is to see, for a console of any width."""
    lines = [Text(one_line(line), overflow="fold") for line in _lines(seen)]
    table: list[RenderableType] = [_table(seen), ""] if seen.standings else []
    return Group(*table, *lines)


def _table(seen: Overview) -> Table:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0))
    # The only one that may wrap is the one that shrinks; long names are often alike.
    table.add_column("trainer", overflow="fold", min_width=8)
    table.add_column("state", no_wrap=True)
    for heading in ("nodes", "step", "samples", "loss", "samples/s"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("for", justify="right", no_wrap=True)
    for one in seen.standings:
        table.add_row(*_row(one, seen))
    return table


def _row(one: Standing, seen: Overview) -> tuple[str | Text, ...]:
    told = one.progress
    state = Text(one.doing, style=_COLOURS.get(one.doing, ""))
    speed = one.samples_per_s
    return (
        Text(one_line(one.row.name)),
        state,
        _nodes(one, seen),
        UNKNOWN if told is None or told.step is None else f"{told.step:,}",
        UNKNOWN if told is None or told.samples is None else scaled(told.samples),
        UNKNOWN if told is None or told.loss is None else f"{told.loss:.4g}",
        UNKNOWN if speed is None else _speed(speed),
        short_age(seen.now_s - one.since_s),
    )


def _speed(samples_per_s: float) -> str:
    if samples_per_s >= 10 * _FEW:
        return scaled(samples_per_s)
    return f"{samples_per_s:.3g}"


def _nodes(one: Standing, seen: Overview) -> str:
    """Return nodes now, and planned ones where they are others."""
    line = seen.of_trainer(one.row.name)
    is_wanted = one.row.state is TrainerState.WANTED
    if line is None or not is_wanted or line.planned_nodes == one.nodes:
        return str(one.nodes)
    return f"{one.nodes} → {line.planned_nodes}"


def _lines(seen: Overview) -> Iterator[str]:
    if not seen.standings and not seen.left_out:
        yield "No trainer was submitted so far: `freetrain submit job.toml`."
    if seen.left_out:
        yield f"{seen.left_out} that ended earlier are left out; --all shows them."
    for one in seen.standings:
        reason = reason_of(one, seen)
        if reason:
            yield f"{one.row.name}: {reason}"
        if one.doing is Doing.FAILED:
            yield f"{one.row.name}: `freetrain logs {one.row.name}` shows why."
        for said in aim_lines(one, seen):
            yield f"{one.row.name}: {said}"
        if one.pack is not None:
            yield f"{one.row.name}: {pack_line(one.pack)}"
    yield f"Leases: {_leases(seen)}. {_tick(seen)}"
    yield from () if seen.page is None else seen.page.problems


def _leases(seen: Overview) -> str:
    names = {
        LeaseState.RUNNING: "running",
        LeaseState.PENDING: "waiting",
        LeaseState.ENDING: "ending",
    }
    told = [f"{seen.leases[s]} {name}" for s, name in names.items() if seen.leases[s]]
    return ", ".join(told) or "none"


def _tick(seen: Overview) -> str:
    if seen.problem:
        return seen.problem
    if seen.page is None:
        return "No tick so far; `freetrain cron show` tells what would make them."
    said = f"Last tick {ago(seen.page.at_s, seen.now_s)}."
    if seen.is_tick_missing:
        said = f"{said} That is long: does cron call it? `freetrain cron show`."
    if seen.page.forecaster:
        said = f"{said} It looks ahead by the forecaster {seen.page.forecaster}."
    return said
