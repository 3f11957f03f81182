"""Pages from the templates beside this module: HTML that needs no network.

A page asks for nothing: its style, and where it has drawings Plotly's script, are
in it. Values are escaped wherever a template shows them, and the same values give the
same bytes.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from plotly.offline import get_plotlyjs

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

_CONFIG = {
    "displaylogo": False,
    "responsive": True,
    "modeBarButtons": [["toImage", "resetScale2d"]],
}


def render(template: str, **values: object) -> str:
    """Return the page that *template* makes of *values*."""
    return _ENVIRONMENT.get_template(template).render(values)


def _plotly(figure: Figure, name: object) -> Markup:
    """Return the drawing of *figure* as Plotly writes it, which escapes its own text.

    Args:
        figure: What to draw.
        name: Unique in the page.
    """
    drawn = figure.to_html(
        full_html=False, include_plotlyjs=False, div_id=f"draw-{name}", config=_CONFIG
    )
    return Markup(drawn)  # noqa: S704 - see above


def _plotly_script() -> Markup:
    return Markup(get_plotlyjs())  # noqa: S704 - a file of Plotly's


_ENVIRONMENT = Environment(
    loader=FileSystemLoader(Path(__file__).with_name("templates")),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
)
_ENVIRONMENT.filters["plotly"] = _plotly
_ENVIRONMENT.globals["plotly_script"] = _plotly_script
