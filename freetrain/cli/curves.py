"""``freetrain curves``: losses, fits and forecasts of trainers."""

import math
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from freetrain.cli.context import (
    AsJson,
    CliContext,
    Config,
    Force,
    json_text,
    print_out,
    write_file,
    write_out,
)
from freetrain.client.curves import Aim, TrainerCurves, curves_of
from freetrain.losscurve.fit import FittedForecast
from freetrain.losscurve.forecast import Point
from freetrain.state.files import StateDir
from freetrain.text import counted, one_line, render_duration, scaled

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
    as_json: AsJson = False,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Draw them, too: a page without network."),
    ] = None,
    force: Force = False,
    config: Config = None,
) -> None:
    """Show measured values, fits and forecasts, and when targets are expected."""
    context: CliContext = ctx.obj
    state = StateDir(context.site(config).state_directory)
    all_curves = curves_of(state, name=trainer, uid=context.uid)
    if out is not None:
        from freetrain.report.curves import render_page  # noqa: PLC0415 - Plotly

        write_file(context.cwd / out, render_page(all_curves).encode(), force=force)
    if as_json:
        write_out(context, json_text(curves_record(all_curves), allow_nan=False))
        return
    print_out(context, _screen(all_curves))
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


def _screen(all_curves: Sequence[TrainerCurves]) -> RenderableType:
    """Return what is known of each trainer, for a console of any width."""
    if not all_curves:
        return Text("No trainer is there that is not over.")
    parts: list[RenderableType] = []
    for curves in all_curves:
        parts += ["", *_parts(curves)] if parts else list(_parts(curves))
    return Group(*parts)


def _parts(curves: TrainerCurves) -> Iterator[RenderableType]:
    yield _line(f"{curves.name}: {curves.metric}, where {curves.better} is better")
    if not curves.told:
        for text in ("No value was read by a tick so far.", *bad_line_lines(curves)):
            yield _line(text)
        return
    yield _table(curves)
    if curves.is_diverging:
        yield _line(DIVERGING)
    for text in (
        *forecast_lines(curves),
        *speed_lines(curves),
        *bad_line_lines(curves),
    ):
        yield _line(text)


def _line(text: str) -> Text:
    return Text(one_line(text), overflow="fold")


def _table(curves: TrainerCurves) -> Table:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0))
    for heading in (curves.units, curves.metric, "90 % of outcomes"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    for point in _evenly(curves.told):
        table.add_row(_amount(point.samples), f"{point.value:.4g}", "", "told")
    if curves.loss_forecast is not None:
        for row in _ahead(curves.loss_forecast):
            table.add_row(*row)
    return table


def _evenly(points: Sequence[Point]) -> list[Point]:
    """Return ``MEASURED_ROWS`` of *points* at most, the first and last included."""
    if len(points) <= MEASURED_ROWS:
        return list(points)
    step = (len(points) - 1) / (MEASURED_ROWS - 1)
    return [points[round(k * step)] for k in range(MEASURED_ROWS)]


def _ahead(loss_forecast: FittedForecast) -> Iterator[tuple[str, str, str, str]]:
    done = loss_forecast.points[-1].samples
    for times in AHEAD:
        expected = loss_forecast.expected(times * done)
        within = f"{expected.low:.4g} to {expected.high:.4g}"
        yield _amount(times * done), f"{expected.value:.4g}", within, "expected"


def forecast_lines(curves: TrainerCurves) -> Iterator[str]:
    """Yield the fitted family and when each target is expected, a sentence a line."""
    if curves.loss_forecast is None:
        yield "Its values say nothing of what is to come."
        return
    odd = sum(not math.isfinite(point.value) for point in curves.told)
    left_out = f", {odd} left out that are no numbers" if odd else ""
    yield (
        f"Fitted by the family {curves.loss_forecast.family} to "
        f"{len(curves.loss_forecast.points)} values{left_out}."
    )
    for aim in curves.aims:
        yield _aim_line(aim, curves)


def _aim_line(aim: Aim, curves: TrainerCurves) -> str:
    what = f"{aim.tier} at {aim.value:g}"
    if math.isinf(aim.work):
        return f"{what}: not expected to be reached."
    if aim.in_s == 0:
        return f"{what}: reached after {_amount(aim.work)} {curves.units}."
    when = "" if aim.in_s is None else f", {render_duration(aim.in_s)} of training away"
    return f"{what}: expected after {_amount(aim.work)} {curves.units}{when}."


def speed_lines(curves: TrainerCurves) -> Iterator[str]:
    """Yield the speeds that were measured, in one line."""
    if curves.speeds:
        told = ", ".join(f"{_amount(s)} on {nodes}" for nodes, s in curves.speeds)
        yield f"{curves.units.capitalize()} a second, measured: {told} nodes."


def bad_line_lines(curves: TrainerCurves) -> Iterator[str]:
    """Yield how many lines were left out, in one line; nothing for none."""
    if curves.bad_lines:
        yield (
            f"Left out: {counted(curves.bad_lines, 'line')} of its progress that could "
            f"not be understood."
        )


def _amount(value: float) -> str:
    """Return an amount of work, or of work a second."""
    if value >= _MANY:
        return scaled(value)
    return f"{value:,.0f}" if value >= _FEW else f"{value:.4g}"


def curves_record(all_curves: Iterable[TrainerCurves]) -> list[dict[str, Any]]:
    """Return an object for each trainer; what is not known is null."""
    return [_record(curves) for curves in all_curves]


def forecast_record(curves: TrainerCurves) -> dict[str, Any]:
    """Return the summary of *curves* and the forecast, without the measured values."""
    expected = None
    if curves.loss_forecast is not None:
        then = curves.loss_forecast.expected(
            AHEAD[0] * curves.loss_forecast.points[-1].samples
        )
        expected = {"value": then.value, "low": then.low, "high": then.high}
    return {
        "name": curves.name,
        "metric": curves.metric,
        "better": str(curves.better),
        "unit": curves.unit,
        "work": curves.work,
        "total": curves.total,
        "per_s": curves.per_s,
        "speeds": {str(nodes): speed for nodes, speed in curves.speeds},
        "is_diverging": curves.is_diverging,
        "family": curves.loss_forecast.family if curves.loss_forecast else None,
        "expected": expected,
        "aims": [_aim_record(aim) for aim in curves.aims],
        "bad_lines": curves.bad_lines,
    }


def _record(curves: TrainerCurves) -> dict[str, Any]:
    forecast = curves.forecast
    return forecast_record(curves) | {
        "points": [
            {"t_s": p.t_s, "work": p.samples, "value": _measured(p.value)}
            for p in curves.told
        ],
        "forecast": None
        if forecast is None
        else [
            {"work": work, "value": value, "low": _finite(low), "high": _finite(high)}
            for work, value, low, high in zip(
                forecast.work, forecast.values, forecast.low, forecast.high, strict=True
            )
        ],
    }


def _aim_record(aim: Aim) -> dict[str, Any]:
    return {
        "tier": aim.tier,
        "value": aim.value,
        "work": _finite(aim.work),
        "in_s": None if aim.in_s is None else _finite(aim.in_s),
        "is_expected": math.isfinite(aim.work),
    }


def _finite(value: float) -> float | None:
    """Return *value* for JSON; null where it is not finite."""
    return value if math.isfinite(value) else None


def _measured(value: float) -> float | str:
    """Return a measured value for JSON; a word such as "nan" where it is not finite."""
    return value if math.isfinite(value) else str(value)
