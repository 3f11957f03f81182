"""``freetrain curves``: losses, fits and forecasts of trainers."""

import math
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from freetrain.cli import options
from freetrain.cli.output import json_text, print_out, write_file, write_out
from freetrain.client.status import Aim, Curves, curves_of
from freetrain.losscurve.fit import FittedOutlook
from freetrain.losscurve.outlook import Point
from freetrain.report.comparison import scaled
from freetrain.report.curves import render_page
from freetrain.state.files import StateDir
from freetrain.text import counted, one_line, render_duration

if TYPE_CHECKING:
    from freetrain.cli.context import CliContext

EXAMPLES = {
    "curves": """
freetrain curves

freetrain curves digits --out curves.html

freetrain curves digits --json
""",
}


def curves(  # noqa: PLR0913 - one parameter an option, as Typer wants it
    ctx: typer.Context,
    trainer: Annotated[
        str | None,
        typer.Argument(metavar="[TRAINER]", help="Without it all that are not over."),
    ] = None,
    *,
    as_json: options.AsJson = False,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Draw them, too: a page without network."),
    ] = None,
    force: options.Force = False,
    config: options.Config = None,
) -> None:
    """Show measured values, fits and forecasts, and when targets are expected."""
    context: CliContext = ctx.obj
    state = StateDir(context.site(config).state_directory)
    found = curves_of(state, name=trainer, uid=context.uid)
    if out is not None:
        write_file(context.cwd / out, render_page(found).encode(), force=force)
    if as_json:
        write_out(context, json_text(curves_record(found), allow_nan=False))
        return
    print_out(context, curves_text(found))
    if out is not None:
        write_out(context, f"\nDrawn in {out}.\n")


MEASURED_ROWS = 8
AHEAD = (1.1, 1.25, 1.5, 2.0)
"""Times the work done at which a forecast is shown."""

DIVERGING = (
    "It is diverging: its last values are no numbers, or far worse than its best. "
    "Priorities that look at losses give it what others leave."
)
_FEW = 1e3
_MANY = 1e7


def curves_text(found: Sequence[Curves]) -> RenderableType:
    """Return everything there is to say, for a console of any width."""
    if not found:
        return Text("No trainer is there that is not over.")
    parts: list[RenderableType] = []
    for one in found:
        parts += ["", *_one(one)] if parts else list(_one(one))
    return Group(*parts)


def _one(one: Curves) -> Iterator[RenderableType]:
    yield _line(f"{one.name}: {one.metric}, where {one.better} is better")
    if not one.told:
        for said in ("No value was read by a tick so far.", *bad_line_lines(one)):
            yield _line(said)
        return
    yield _table(one)
    if one.is_diverging:
        yield _line(DIVERGING)
    for said in (*outlook_lines(one), *speed_lines(one), *bad_line_lines(one)):
        yield _line(said)


def _line(text: str) -> Text:
    return Text(one_line(text), overflow="fold")


def _table(one: Curves) -> Table:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0))
    for heading in (one.units, one.metric, "90 % of outcomes"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    for point in few(one.told):
        table.add_row(amount(point.samples), f"{point.value:.4g}", "", "told")
    if one.outlook is not None:
        for row in _ahead(one.outlook):
            table.add_row(*row)
    return table


def few(points: Sequence[Point], most: int = MEASURED_ROWS) -> list[Point]:
    """Return *most* of *points* at most, evenly, the first and the last included."""
    if len(points) <= most:
        return list(points)
    step = (len(points) - 1) / (most - 1)
    return [points[round(k * step)] for k in range(most)]


def _ahead(outlook: FittedOutlook) -> Iterator[tuple[str, str, str, str]]:
    done = outlook.points[-1].samples
    for times in AHEAD:
        expected = outlook.expected(times * done)
        within = f"{expected.low:.4g} to {expected.high:.4g}"
        yield amount(times * done), f"{expected.value:.4g}", within, "expected"


def outlook_lines(one: Curves) -> Iterator[str]:
    """Yield what is expected of *one*, a sentence a line."""
    if one.outlook is None:
        yield "Its values say nothing of what is to come."
        return
    odd = sum(not math.isfinite(point.value) for point in one.told)
    left_out = f", {odd} left out that are no numbers" if odd else ""
    yield (
        f"Fitted by the family {one.outlook.family} to {len(one.outlook.points)} "
        f"values{left_out}."
    )
    for aim in one.aims:
        yield _aim_line(aim, one)


def _aim_line(aim: Aim, one: Curves) -> str:
    what = f"{aim.tier} at {aim.value:g}"
    if math.isinf(aim.work):
        return f"{what}: not expected to be reached."
    if aim.in_s == 0:
        return f"{what}: reached after {amount(aim.work)} {one.units}."
    when = "" if aim.in_s is None else f", {render_duration(aim.in_s)} of training away"
    return f"{what}: expected after {amount(aim.work)} {one.units}{when}."


def speed_lines(one: Curves) -> Iterator[str]:
    """Yield the speeds that were measured, in one line."""
    if one.speeds:
        told = ", ".join(f"{amount(s)} on {nodes}" for nodes, s in one.speeds)
        yield f"{one.units.capitalize()} a second, measured: {told} nodes."


def bad_line_lines(one: Curves) -> Iterator[str]:
    """Yield how many lines were left out, in one line; nothing for none."""
    if one.bad_lines:
        yield (
            f"Left out: {counted(one.bad_lines, 'line')} of its progress that could "
            f"not be understood."
        )


def amount(value: float) -> str:
    """Return an amount of work, or of work a second."""
    if value >= _MANY:
        return scaled(value)
    return f"{value:,.0f}" if value >= _FEW else f"{value:.4g}"


_AHEAD = 1.1
"""Times the work done at which a forecast is given in short."""


def curves_record(found: Iterable[Curves]) -> list[dict[str, Any]]:
    """Return an object for each trainer; what nobody knows is null."""
    return [_record(one) for one in found]


def outlook_record(one: Curves) -> dict[str, Any]:
    """Return what *one* showed and what is expected, without the values told."""
    expected = None
    if one.outlook is not None:
        then = one.outlook.expected(_AHEAD * one.outlook.points[-1].samples)
        expected = {"value": then.value, "low": then.low, "high": then.high}
    return {
        "name": one.name,
        "metric": one.metric,
        "better": str(one.better),
        "unit": one.unit,
        "work": one.work,
        "total": one.total,
        "per_s": one.per_s,
        "speeds": {str(nodes): speed for nodes, speed in one.speeds},
        "is_diverging": one.is_diverging,
        "family": one.outlook.family if one.outlook else None,
        "expected": expected,
        "aims": [_aim(aim) for aim in one.aims],
        "bad_lines": one.bad_lines,
    }


def _record(one: Curves) -> dict[str, Any]:
    forecast = one.forecast
    return outlook_record(one) | {
        "points": [
            {"t_s": p.t_s, "work": p.samples, "value": value_of(p.value)}
            for p in one.told
        ],
        "forecast": None
        if forecast is None
        else [
            {"work": work, "value": value, "low": number(low), "high": number(high)}
            for work, value, low, high in zip(
                forecast.work, forecast.values, forecast.low, forecast.high, strict=True
            )
        ],
    }


def _aim(aim: Aim) -> dict[str, Any]:
    return {
        "tier": aim.tier,
        "value": aim.value,
        "work": number(aim.work),
        "in_s": None if aim.in_s is None else number(aim.in_s),
        "is_expected": math.isfinite(aim.work),
    }


def number(value: float) -> float | None:
    """Return *value* as JSON has it; what is not finite is null."""
    return value if math.isfinite(value) else None


def value_of(value: float) -> float | str:
    """Return a value that was told; what is not finite as a word."""
    return value if math.isfinite(value) else str(value)
