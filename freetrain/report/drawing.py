"""Pages with figures that Plotly draws."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from plotly.offline import get_plotlyjs

from freetrain.report.document import content, document

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

_CONFIG = {
    "displaylogo": False,
    "responsive": True,
    "modeBarButtons": [["toImage", "resetScale2d"]],
}


def drawn_document(title: str, body: str) -> str:
    """Return a page whose *body* has drawings; arguments as for ``document``."""
    script = f"<script>\n{content('page.js')}</script>"
    return document(title, f"{body}\n{script}", script=get_plotlyjs())


def drawing(figure: Figure, name: str, caption: str) -> str:
    """Return *figure* as HTML.

    Args:
        figure: What to draw.
        name: Unique in the page.
        caption: Plain text; empty for none.
    """
    drawn = figure.to_html(
        full_html=False, include_plotlyjs=False, div_id=f"draw-{name}", config=_CONFIG
    )
    said = f"<figcaption>{escape(caption)}</figcaption>" if caption else ""
    return f"<figure>{drawn}{said}</figure>\n"
