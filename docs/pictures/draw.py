"""Draws the pictures of the documents: python docs/pictures/draw.py.

Pictures are SVG made of shapes and text alone, so that a change shows in a diff.
"""

from __future__ import annotations

from html import escape
from pathlib import Path

FOLDER = Path(__file__).parent
STYLE = (
    "text{font:13px sans-serif;fill:#222}.s{font-size:11px;fill:#555}"
    ".w{fill:#fff}.b{font-weight:bold}.m{text-anchor:middle}.e{text-anchor:end}"
)
OTHERS, IDLE = "#c9cdd2", "#ffffff"
ADA, BEN = "#2a7fb8", "#d9822b"


class Drawing:
    """Shapes of one picture, in pixels from the upper left corner."""

    def __init__(self, width: int, height: int, title: str) -> None:
        self._head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
            f'width="{width}" height="{height}" role="img"><title>{escape(title)}'
            f"</title><style>{STYLE}</style>"
            '<defs><marker id="a" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" '
            'markerHeight="7" orient="auto-start-reverse"><path d="M0,0 8,4 0,8z" '
            'fill="#555"/></marker></defs>'
            f'<rect width="{width}" height="{height}" fill="#fff"/>'
        )
        self._shapes: list[str] = []

    def box(  # noqa: PLR0913, PLR0917 - the words of SVG
        self, x: float, y: float, w: float, h: float, fill: str, stroke: str = "#fff"
    ) -> None:
        """Add a rectangle."""
        self._shapes.append(
            f'<rect x="{x:g}" y="{y:g}" width="{w:g}" height="{h:g}" rx="3" '
            f'fill="{fill}" stroke="{stroke}"/>'
        )

    def text(self, x: float, y: float, words: str, style: str = "") -> None:
        """Add text; *style* names classes of ``STYLE``."""
        self._shapes.append(
            f'<text x="{x:g}" y="{y:g}" class="{style}">{escape(words)}</text>'
        )

    def arrow(self, *points: tuple[float, float]) -> None:
        """Add a line through *points* with a head at its end."""
        path = " ".join(f"{x:g},{y:g}" for x, y in points)
        self._shapes.append(
            f'<polyline points="{path}" fill="none" stroke="#555" '
            'marker-end="url(#a)"/>'
        )

    def line(self, x1: float, y1: float, x2: float, y2: float, dash: str = "") -> None:
        """Add a thin line."""
        self._shapes.append(
            f'<line x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}" stroke="#999" '
            f'stroke-dasharray="{dash}"/>'
        )

    def save(self, name: str) -> None:
        """Write the picture into this folder."""
        text = "\n".join([self._head, *self._shapes, "</svg>\n"])
        (FOLDER / name).write_text(text, encoding="utf-8")


def draw_holes() -> None:
    """Six nodes over an hour: others' jobs, holes, leases and rescales."""
    left, top, row, minute = 70, 58, 34, 9.5
    picture = Drawing(700, 350, "Holes, leases and rescales on six nodes over an hour")

    def bar(node: int, start: float, end: float, fill: str, label: str = "") -> None:
        x, y = left + start * minute, top + node * row
        picture.box(x, y, (end - start) * minute, row - 6, fill)
        picture.text(
            x + (end - start) * minute / 2,
            y + 18,
            label,
            "s w m" if fill in (ADA, BEN) else "s m",
        )

    others = [
        (0, 0, 8, "job 1"),
        (1, 0, 8, "job 1"),
        (2, 0, 20, "job 2"),
        (3, 0, 32, "job 3"),
        (4, 0, 32, "job 3"),
        (5, 0, 32, "job 3"),
        (0, 44, 60, "job 4"),
        (1, 44, 60, "job 4"),
        (2, 44, 60, "job 4"),
        (5, 38, 60, "job 5"),
    ]
    leases = [
        (0, 9, 43, ADA, "trainer ada"),
        (1, 9, 43, ADA, "ada"),
        (2, 21, 43, ADA, "ada"),
        (3, 33, 60, BEN, "trainer ben"),
        (4, 33, 43, BEN, "ben"),
        (4, 43, 60, ADA, "ada"),
        (5, 33, 37.6, BEN, ""),
    ]
    for node in range(6):
        picture.text(left - 10, top + node * row + 18, f"node {node + 1}", "e")
        picture.box(left, top + node * row, 60 * minute, row - 6, IDLE, "#ddd")
    for node, start, end, label in others:
        bar(node, start, end, OTHERS, label)
    for node, start, end, fill, label in leases:
        bar(node, start, end, fill, label)
    picture.text(
        left,
        22,
        "hole: a node that Slurm leaves idle until a known or unknown end",
        "b",
    )
    picture.text(
        left,
        42,
        "lease: a one-node Slurm job of FreeTrain in a hole, over before the hole is",
    )
    bottom = top + 6 * row
    for at, words in (
        (21, "ada grows to 3 nodes"),
        (38, "job 5 needs node 6: ben shrinks"),
        (43.5, ""),
    ):
        picture.line(left + at * minute, top - 8, left + at * minute, bottom + 4, "4 3")
        picture.text(left + at * minute, bottom + 18, words, "s m")
    picture.text(
        left + 43.5 * minute,
        bottom + 34,
        "job 4 starts as planned: ada shrinks to one node",
        "s m",
    )
    for at in range(0, 61, 10):
        picture.text(left + at * minute, bottom + 56, f"{at} min", "s m")
    for x, fill, words in (
        (left, OTHERS, "other users' jobs"),
        (left + 150, ADA, "leases of trainer ada"),
        (left + 320, BEN, "leases of trainer ben"),
    ):
        picture.box(x, bottom + 66, 16, 12, fill)
        picture.text(x + 22, bottom + 76, words, "s")
    picture.save("holes.svg")


PACKAGES = (
    ("cli, doctor, cron, demo", 20, 20, 660, "#e8eef5"),
    ("client", 20, 78, 100, "#e3f1e6"),
    ("tick", 140, 78, 150, "#e3f1e6"),
    ("agent", 310, 78, 90, "#e3f1e6"),
    ("launch, pack", 420, 78, 110, "#e3f1e6"),
    ("replay, report", 550, 78, 130, "#f6ebdd"),
    ("state", 20, 136, 100, "#eef0f2"),
    ("broker", 140, 136, 150, "#eef0f2"),
    ("elastic", 420, 136, 110, "#eef0f2"),
    ("planning", 310, 194, 370, "#eef0f2"),
    ("priority", 310, 252, 80, "#eef0f2"),
    ("losscurve", 405, 252, 85, "#eef0f2"),
    ("scaling", 505, 252, 75, "#eef0f2"),
    ("lookahead", 595, 252, 85, "#eef0f2"),
    ("config", 20, 252, 270, "#eef0f2"),
    ("slurm (library)", 20, 320, 200, "#fff"),
    ("milp (library)", 240, 320, 200, "#fff"),
    ("logs (library)", 460, 320, 220, "#fff"),
)


def draw_architecture() -> None:
    """Packages on their floors; each may import what is below it."""
    picture = Drawing(700, 420, "Packages, and who may import whom")
    for name, x, y, width, fill in PACKAGES:
        picture.box(x, y, width, 38, fill, "#8a939c")
        picture.text(x + width / 2, y + 24, name, "m")
    notes = """A package may import packages below it.
Live (green) and replay (orange) never import each other.
broker, planning, priority, losscurve, scaling, lookahead, milp are pure."""
    for row, words in enumerate(notes.splitlines()):
        picture.text(20, 380 + 16 * row, words, "s")
    picture.save("architecture.svg")


def main() -> None:
    """Draw every picture."""
    draw_holes()
    draw_architecture()


if __name__ == "__main__":
    main()
