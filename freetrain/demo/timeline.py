"""The demo in one drawing: nodes × time, coloured by who had them; plain SVG."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

COLOURS = ("#0072B2", "#E69F00", "#009E73")
"""Of the trainers: Okabe and Ito's, which colour-blind readers can tell apart."""

OTHERS = "#8a8f98"
LEASED = "#8a8f9840"

_WIDTH, _LEFT, _ROW, _FOOT = 1_000, 46, 30, 34
_GAP = 3
_TICK_S = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """Somebody has a node for a while.

    Attributes:
        node: Which.
        start_s: From when, seconds from the beginning.
        end_s: Until when.
        colour: Of the bar.
        label: What to say of it.
        is_thin: Whether it is drawn behind and beside the others.
    """

    node: str
    start_s: float
    end_s: float
    colour: str
    label: str
    is_thin: bool = False


def draw_nodes(bars: Sequence[Bar], *, nodes: Sequence[str], seconds: float) -> str:
    """Return the drawing of *bars*, a row for each of *nodes*."""
    height = _ROW * len(nodes) + _FOOT
    scale = (_WIDTH - _LEFT - 8) / max(seconds, 1.0)
    shown = sorted(bars, key=lambda bar: not bar.is_thin)
    rows = {node: k for k, node in enumerate(nodes)}
    parts = [
        *_rows(nodes),
        *_axis(seconds, scale, _ROW * len(nodes)),
        *(_bar(bar, rows[bar.node], scale) for bar in shown if bar.node in rows),
    ]
    return (
        f'<svg viewBox="0 0 {_WIDTH} {height}" role="img" width="100%" '
        f'aria-label="Who had which node when">\n' + "\n".join(parts) + "\n</svg>"
    )


def draw_losses(
    losses: Mapping[str, Mapping[int, float]], colours: Mapping[str, str]
) -> str:
    """Return a drawing of losses by step, a line each."""
    height = 260
    last = max((max(of, default=1) for of in losses.values()), default=1)
    most = max((max(of.values(), default=1.0) for of in losses.values()), default=1.0)
    across = (_WIDTH - _LEFT - 8) / last
    up = (height - _FOOT - 10) / most
    parts = [
        _level(height - _FOOT - up * value, f"{value:g}")
        for value in _round_values(most)
    ]
    for name, of in losses.items():
        points = " ".join(
            f"{_LEFT + across * step:.1f},{height - _FOOT - up * loss:.1f}"
            for step, loss in sorted(of.items())
        )
        parts.append(
            f'<polyline points="{points}" fill="none" stroke-width="1.6" '
            f'stroke="{colours[name]}"><title>{escape(name)}</title></polyline>'
        )
    parts.append(f'<text x="{_LEFT}" y="{height - 10}">step 0</text>')
    parts.append(
        f'<text x="{_WIDTH - 8}" y="{height - 10}" text-anchor="end">{last}</text>'
    )
    return (
        f'<svg viewBox="0 0 {_WIDTH} {height}" role="img" width="100%" '
        f'aria-label="Loss by step">\n' + "\n".join(parts) + "\n</svg>"
    )


def _level(y: float, label: str) -> str:
    return (
        f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - 8}" y1="{y:.1f}" y2="{y:.1f}"/>'
        f'<text x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{label}</text>'
    )


def _rows(nodes: Sequence[str]) -> Iterator[str]:
    for k, node in enumerate(nodes):
        yield (
            f'<text x="{_LEFT - 8}" y="{_ROW * k + _ROW / 2 + 4}" '
            f'text-anchor="end">{escape(node)}</text>'
            f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - 8}" '
            f'y1="{_ROW * (k + 1)}" y2="{_ROW * (k + 1)}"/>'
        )


def _axis(seconds: float, scale: float, foot: int) -> Iterator[str]:
    for at_s in range(0, int(seconds) + 1, _TICK_S):
        x = _LEFT + scale * at_s
        yield (
            f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="0" y2="{foot}"/>'
            f'<text x="{x:.1f}" y="{foot + 18}" text-anchor="middle">{at_s} s</text>'
        )


def _bar(bar: Bar, row: int, scale: float) -> str:
    gap = 1 if bar.is_thin else _GAP
    width = max(1.0, scale * (bar.end_s - bar.start_s))
    return (
        f'<rect x="{_LEFT + scale * bar.start_s:.1f}" y="{_ROW * row + gap}" '
        f'width="{width:.1f}" height="{_ROW - 2 * gap}" rx="3" fill="{bar.colour}">'
        f"<title>{escape(bar.label)}</title></rect>"
    )


def _round_values(most: float) -> list[float]:
    step = next((s for s in (0.25, 0.5, 1.0, 2.0, 5.0) if most / s <= 6), most)  # noqa: PLR2004
    return [step * k for k in range(int(most / step) + 1)]
