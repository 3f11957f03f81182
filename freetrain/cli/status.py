"""``freetrain status``: which trainers run where, how far they are, and why."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from freetrain.broker.lease import LeaseState
from freetrain.cli import options
from freetrain.cli.output import json_text, print_out, show_anew, write_out
from freetrain.cli.wording import (
    ago,
    aim_lines,
    clock_text,
    maker_text,
    member_lines,
    nodes_text,
    pack_line,
    pack_record,
    reason_of,
    short_age,
)
from freetrain.client.status import Doing, Overview, Standing, overview
from freetrain.report.comparison import UNKNOWN, scaled
from freetrain.state.files import StateDir
from freetrain.state.tables import Delivery, TrainerState
from freetrain.text import one_line

if TYPE_CHECKING:
    from freetrain.cli.context import CliContext

EXAMPLES = {
    "status": """
freetrain status

freetrain status digits --watch

freetrain status --json
""",
}
EVERY_S = 2.0


def status(  # noqa: PLR0913 - one parameter an option, as Typer wants it
    ctx: typer.Context,
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="Only this trainer.")
    ] = None,
    *,
    watch: Annotated[
        bool,
        typer.Option("--watch", metavar="", help="Show it anew every two seconds."),
    ] = False,
    ended: Annotated[
        bool, typer.Option("--all", metavar="", help="Those that ended long ago too.")
    ] = False,
    as_json: options.AsJson = False,
    config: options.Config = None,
) -> None:
    """Show trainers: state, nodes, progress, and why. Slurm is not asked."""
    context: CliContext = ctx.obj
    state = StateDir(context.site(config).state_directory)

    def look() -> Overview:
        now_s = context.now_s()
        return overview(state, name=name, uid=context.uid, now_s=now_s, ended=ended)

    if as_json:
        write_out(context, json_text(status_record(look())))
    elif watch and context.is_out_terminal:
        show_anew(context, lambda: _screen(look(), name), every_s=EVERY_S)
    else:
        print_out(context, _screen(look(), name))


def _screen(seen: "Overview", name: str | None) -> RenderableType:

    screen = status_screen(seen)
    if name is None:
        return screen
    return Group(screen, *(detail_lines(one, seen) for one in seen.standings))


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


_WIDTH = 15


def detail_lines(one: Standing, seen: Overview) -> Text:
    """Return all that is known of *one*, beside what the overview tells.

    Lines are never broken, so that paths can be copied.
    """
    lines = (
        f"{what:<{_WIDTH}}{one_line(said)}" for what, said in _pairs(one, seen.now_s)
    )
    return Text("\n".join(("", *lines)), no_wrap=True, overflow="ignore")


def _pairs(one: Standing, now_s: float) -> Iterator[tuple[str, str]]:
    yield "submitted", _when(one.row.submitted_s, now_s)
    if one.job is not None:
        nodes = one.job.nodes
        most = nodes_text(nodes.max_nodes)
        is_fixed = nodes.min_nodes == nodes.max_nodes
        yield "asks for", most if is_fixed else f"{nodes.min_nodes} to {most}"
    yield from _generation(one, now_s)
    yield from _progress(one, now_s)
    yield "run directory", one.row.run_dir


def _generation(one: Standing, now_s: float) -> Iterator[tuple[str, str]]:
    newest, ending = one.worlds.newest, one.worlds.ending
    if newest is not None:
        where = ", ".join(member.node for member in newest.members) or "no nodes"
        yield f"generation {newest.generation}", where
        made = _when(newest.created_s, now_s)
        yield "", f"made {made} by {maker_text(newest.author)}: {newest.reason}"
    if ending is not None:
        said = f"{ending.ended.words} {_when(ending.ended_s, now_s)}"
        told = f": {ending.message}" if ending.message else ""
        yield f"generation {ending.generation}", f"{said}{told}"


def _progress(one: Standing, now_s: float) -> Iterator[tuple[str, str]]:
    told = one.progress
    if told is not None and told.t is not None:
        yield "last told", _when(told.t, now_s)
    if told is not None and told.epoch is not None:
        yield "epoch", f"{told.epoch:g}"
    if told is not None:
        others = {k: v for k, v in told.metrics.items() if k != "loss"}
        if others:
            yield "metrics", ", ".join(f"{k} {v:.4g}" for k, v in others.items())
    if one.pack is not None:
        for number, said in enumerate(member_lines(one.pack)):
            yield "" if number else "members", said
    if one.committed_step is not None:
        yield "committed", f"step {one.committed_step:,}"


def _when(time_s: float, now_s: float) -> str:
    return f"{ago(time_s, now_s)} ({clock_text(time_s)})"


def status_record(seen: Overview) -> dict[str, Any]:
    """Return everything there is to see; what nobody told is null."""
    return {
        "now_s": seen.now_s,
        "last_tick_s": None if seen.page is None else seen.page.at_s,
        "is_tick_missing": seen.is_tick_missing,
        "forecaster": (seen.page.forecaster if seen.page else "") or None,
        "leases": {str(state): count for state, count in seen.leases.items()},
        "problems": list(seen.page.problems) if seen.page else [],
        "trainers": [_record(one, seen) for one in seen.standings],
    }


def _record(one: Standing, seen: Overview) -> dict[str, Any]:
    newest, ending = one.worlds.newest, one.worlds.ending
    line = seen.of_trainer(one.row.name)
    return {
        "name": one.row.name,
        "state": str(one.row.state),
        "doing": str(one.doing),
        "since_s": one.since_s,
        "submitted_s": one.row.submitted_s,
        "nodes": one.nodes,
        "planned_nodes": None if line is None else line.planned_nodes,
        "node_names": [m.node for m in newest.members] if newest else [],
        "generation": one.generation,
        "generation_reason": newest.reason if newest else None,
        "generation_author": newest.author if newest else None,
        **_progress_record(one),
        "committed_step": one.committed_step,
        "last_ending": None if ending is None else str(ending.ended),
        "last_message": None if ending is None else ending.message,
        "reason": reason_of(one, seen),
        "is_diverging": line is not None and line.is_diverging,
        "delivery": _delivery_record(seen.delivery_of(one.row)),
        "pack": None if one.pack is None else pack_record(one.pack),
        "run_dir": one.row.run_dir,
    }


def _delivery_record(delivery: Delivery | None) -> dict[str, Any] | None:
    if delivery is None:
        return None
    return {
        "stage": str(delivery.stage),
        "reached_s": delivery.reached_s,
        "step": delivery.step,
        "value": delivery.value,
        "checkpoint": delivery.checkpoint or None,
        "problem": delivery.problem or None,
    }


def _progress_record(one: Standing) -> dict[str, Any]:
    told = one.progress
    return {
        "step": told.step if told else None,
        "samples": told.samples if told else None,
        "epoch": told.epoch if told else None,
        "loss": told.loss if told else None,
        "told_s": told.t if told else None,
        "samples_per_s": one.samples_per_s,
    }
