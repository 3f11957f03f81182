"""Tables and drawings as HTML and SVG, light enough for every tick.

Whatever is put in is escaped: ``%`` of ``Markup``, ``format`` and ``join`` escape all
that is no ``Markup`` itself; ``%`` is the quickest by far. Drawings take the width of
the page, down to that of a phone: shapes stretch with it, labels are text beside them
and keep their size.

Colours are those of Okabe and Ito, which colour-blind readers can tell apart.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from markupsafe import Markup

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

FOLDER = Path(__file__).parent
"""Where ``page.css`` lies."""

COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00")
OTHERS = "#8a8f98"

_WIDTH = 1_000
_ROW = 24
_GAP = 3
_HEIGHT = 180
_HEADROOM = 8
_LEAST_WIDTH = 2.0
_LIFT = 2.0


def table(headings: Sequence[str], rows: Iterable[Sequence[object]]) -> Markup:
    """Return a table; the first cell of a row is its heading."""
    head = Markup("").join(Markup('<th scope="col">%s</th>') % (h,) for h in headings)
    body = Markup("\n").join(
        Markup('<tr><th scope="row">%s</th>%s</tr>')
        % (first, Markup("").join(Markup("<td>%s</td>") % (cell,) for cell in rest))
        for first, *rest in rows
    )
    return Markup(
        '<div class="scroll" tabindex="0">'
        '<table class="text"><thead><tr>%s</tr></thead>\n'
        "<tbody>\n%s\n</tbody></table></div>"
    ) % (head, body)


def legend(entries: Iterable[tuple[str, str]]) -> Markup:
    """Return names, each behind a dot of its colour."""
    return Markup(" &nbsp; ").join(
        Markup('<span class="dot" style="background:{}"></span>{}').format(colour, name)
        for name, colour in entries
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """What runs from left to right, from *first* to *last*.

    Attributes:
        marks: Values that get a line and a label.
        now: A value that gets a line of its own; None for none.
    """

    first: float
    last: float
    marks: Sequence[tuple[float, str]] = ()
    now: float | None = None

    def across(self, value: float) -> float:
        """Return the place of *value* from left to right, 0 to 1, cut off there."""
        share = (value - self.first) / max(self.last - self.first, 1e-9)
        return min(1.0, max(0.0, share))


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """Something that takes a row for a while.

    Attributes:
        row: The row's name.
        start: On the axis; ``end`` likewise.
        label: Shown for the bar under the pointer.
        is_thin: Whether it is drawn behind and beside the others.
    """

    row: str
    start: float
    end: float
    colour: str
    label: str
    is_thin: bool = False


def draw_rows(
    bars: Sequence[Bar], *, rows: Sequence[str], axis: Axis, title: str
) -> Markup:
    """Return a drawing of *bars*, a row for each of *rows*; others are left out."""
    height = _ROW * len(rows)
    places = {row: k for k, row in enumerate(rows)}
    shown = [bar for bar in bars if bar.row in places]
    shapes = [
        *(_line(0, _ROW * k, _WIDTH, _ROW * k) for k in range(1, len(rows) + 1)),
        *_uprights(axis, height),
        *(
            _bar(bar, places[bar.row], axis)
            for bar in sorted(shown, key=lambda bar: not bar.is_thin)
        ),
        *_now(axis, height),
    ]
    beside = [(_ROW * (k + 0.5), row) for k, row in enumerate(rows)]
    return _drawing(shapes, height, axis, beside, title)


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """Values from left to right.

    Attributes:
        points: Places on both axes, from left to right; all of them finite.
        label: Shown for the line under the pointer.
        is_dashed: Whether it is expected rather than seen.
        is_stepped: Whether a value holds until the next.
        band: Lower and upper ends of a range around it, by place; empty for none.
    """

    points: Sequence[tuple[float, float]]
    colour: str
    label: str
    is_dashed: bool = False
    is_stepped: bool = False
    band: Sequence[tuple[float, float, float]] = ()


_FARTHEST = 1e300
"""Values beyond are drawn at the edge: programs report 1.8e308 for no value."""


def draw_lines(
    lines: Sequence[Line], *, axis: Axis, title: str, are_counts: bool = False
) -> Markup:
    """Return a drawing of *lines*; *are_counts* for whole numbers, from 0 on."""
    values = [y for line in lines for _, y in line.points]
    values += [y for line in lines for _, *ends in line.band for y in ends]
    low = max(min(values, default=0.0), -_FARTHEST)
    high = min(max(values, default=1.0), _FARTHEST)
    if are_counts:
        low, high = min(low, 0.0), max(high, 1.0)
    if high - low < max(1e-9 * max(abs(low), abs(high)), 1e-300):
        around = max(0.5, 1e-9 * abs(high))
        low, high = low - around, high + around
    scale = (_HEIGHT - 2 * _HEADROOM) / (high - low)

    def up(value: float) -> float:
        return _HEIGHT - _HEADROOM - scale * (min(max(value, low), high) - low)

    levels = [
        level
        for level in round_values(low, high)
        if not are_counts or level.is_integer()
    ]
    shapes = [
        *(_line(0, up(level), _WIDTH, up(level)) for level in levels),
        *_uprights(axis, _HEIGHT),
        *_now(axis, _HEIGHT),
    ]
    for number, line in enumerate(lines):
        if line.band:
            there = [(x, high_end) for x, _, high_end in line.band]
            back = [(x, low_end) for x, low_end, _ in reversed(line.band)]
            shapes.append(
                Markup('<polygon points="{}" fill="{}" fill-opacity="0.18"/>').format(
                    _places([*there, *back], axis, up), line.colour
                )
            )
        points = [*_stepped(line.points)] if line.is_stepped else line.points
        # Lines of counts often lie on each other.
        lift = _LIFT * number if line.is_stepped else 0.0
        shapes.append(
            Markup(
                '<polyline points="{}" stroke="{}"{}><title>{}</title></polyline>'
            ).format(
                _places(points, axis, up, lift=lift),
                line.colour,
                Markup(' class="ahead"') if line.is_dashed else "",
                line.label,
            )
        )
    beside = [(up(level), f"{level:g}") for level in levels]
    return _drawing(shapes, _HEIGHT, axis, beside, title)


def round_values(low: float, high: float, *, most: int = 5) -> list[float]:
    """Return up to *most* round values from *low* to *high*, both of them finite."""
    rough = (high - low) / most
    size = 10.0 ** math.floor(math.log10(rough)) if rough > 0 else 1.0
    step = next((f * size for f in (1, 2, 5) if f * size >= rough), 10 * size)
    first, last = math.ceil(low / step), math.floor(high / step)
    return [round(k * step, 12) for k in range(first, min(last, first + most) + 1)]


def _drawing(
    shapes: Iterable[Markup],
    height: int,
    axis: Axis,
    beside: Iterable[tuple[float, str]],
    title: str,
) -> Markup:
    """Return *shapes* with labels on the left and below.

    Args:
        shapes: Over a width of 1,000.
        height: Pixels.
        axis: From left to right.
        beside: Labels on the left, each with its middle, pixels from the top.
        title: What it shows, for those who do not see it.
    """
    left = Markup("").join(
        Markup('<span style="top:{:.0f}px">{}</span>').format(top, label)
        for top, label in beside
    )
    below = Markup("").join(
        # Moved left by the same share of itself, a label never leaves the drawing.
        Markup(
            '<span style="left:{0:.1f}%;transform:translateX(-{0:.1f}%)">{1}</span>'
        ).format(100 * axis.across(value), label)
        for value, label in axis.marks
    )
    return Markup(
        '<div class="plot"><div class="left" aria-hidden="true">{left}</div>'
        '<svg role="img" aria-label="{title}" style="height:{height}px" '
        'viewBox="0 0 {width} {height}" preserveAspectRatio="none">\n{shapes}\n</svg>'
        '<div class="below" aria-hidden="true">{below}</div></div>'
    ).format(
        left=left,
        below=below,
        title=title,
        height=height,
        width=_WIDTH,
        shapes=Markup("\n").join(shapes),
    )


def _line(x1: float, y1: float, x2: float, y2: float, kind: str = "grid") -> Markup:
    return Markup('<line class="%s" x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f"/>') % (
        kind,
        x1,
        y1,
        x2,
        y2,
    )


def _uprights(axis: Axis, height: int) -> Iterator[Markup]:
    for value, _ in axis.marks:
        x = _WIDTH * axis.across(value)
        yield _line(x, 0, x, height)


def _now(axis: Axis, height: int) -> Iterator[Markup]:
    if axis.now is not None:
        x = _WIDTH * axis.across(axis.now)
        yield _line(x, 0, x, height, "now")


def _bar(bar: Bar, row: int, axis: Axis) -> Markup:
    gap = 1 if bar.is_thin else _GAP
    start = _WIDTH * axis.across(bar.start)
    width = max(_LEAST_WIDTH, _WIDTH * axis.across(bar.end) - start)
    place = (start, _ROW * row + gap, width, _ROW - 2 * gap)
    return Markup(
        '<rect x="%.1f" y="%d" width="%.1f" height="%d" fill="%s">'
        "<title>%s</title></rect>"
    ) % (*place, bar.colour, bar.label)


def _places(
    points: Iterable[tuple[float, float]],
    axis: Axis,
    up: Callable[[float], float],
    *,
    lift: float = 0.0,
) -> str:
    return " ".join(
        f"{_WIDTH * axis.across(x):.1f},{up(y) - lift:.1f}" for x, y in points
    )


def _stepped(points: Sequence[tuple[float, float]]) -> Iterator[tuple[float, float]]:
    last: float | None = None
    for x, y in points:
        if last is not None:
            yield x, last
        yield x, y
        last = y
