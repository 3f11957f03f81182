"""What trainers' losses say, as people read it on a terminal."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from rich import box
from rich.console import Group
from rich.table import Table
from rich.text import Text

from freetrain.report.comparison import scaled
from freetrain.text import counted, one_line, render_duration

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.console import RenderableType

    from freetrain.client.status import Aim, Curves
    from freetrain.losscurve.fit import FittedOutlook
    from freetrain.losscurve.outlook import Point

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
