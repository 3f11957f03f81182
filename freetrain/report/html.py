"""What every page is made of: one HTML document that needs no network, and tables."""

from __future__ import annotations

from html import escape
from importlib import resources
from typing import TYPE_CHECKING

from plotly.offline import get_plotlyjs

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from plotly.graph_objects import Figure


# ----------------------------------------------------------------------
# What every page is made of: one HTML document that needs no network, and tables.

_STILL = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
_SCRIPTED = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "
    "img-src data: blob:"
)
"""The browser itself refuses every request the page might make."""


def document(title: str, body: str, *, style: str = "", script: str = "") -> str:
    """Return a page, the same bytes every time.

    Args:
        title: Plain text.
        body: HTML.
        style: CSS after that of all pages.
        script: JavaScript that *body* needs; empty for a page without any.
    """
    policy = _SCRIPTED if script else _STILL
    head = f"<script>{script}</script>\n" if script else ""
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n"
        f"<style>\n{content('page.css')}{style}</style>\n{head}</head>\n"
        f"<body>\n{body}\n</body>\n</html>\n"
    )


def content(name: str) -> str:
    """Return a file that lies beside this module."""
    return resources.files("freetrain.report").joinpath(name).read_text("utf-8")


def table(heads: Iterable[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table of plain text as HTML."""
    head = "".join(f"<th>{escape(name)}</th>" for name in heads)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>\n"
        for row in rows
    )
    return (
        f'<div class="scroll"><table><thead><tr>{head}</tr></thead>\n'
        f"<tbody>{body}</tbody></table></div>\n"
    )


def in_cards(figures: Iterable[tuple[str, str]]) -> str:
    """Return figures that matter most as HTML: what each is, and what it means."""
    told = "".join(
        f'<div class="card"><b>{escape(value)}</b><span>{escape(meaning)}</span></div>'
        for value, meaning in figures
    )
    return f'<div class="cards">{told}</div>'


def how_made(command: str, version: str, facts: Iterable[tuple[str, str]]) -> str:
    """Return what a page ends with, as HTML: how to make it again.

    Args:
        command: The command line.
        version: FreeTrain's version.
        facts: What else is to be known: name, and value as HTML.
    """
    told = (
        ("Command", f"<code>{escape(command)}</code>"),
        ("Version", f"FreeTrain {escape(version)}"),
        *facts,
    )
    rows = "".join(f"<dt>{name}</dt><dd>{value}</dd>" for name, value in told)
    return f"<h2>How this was made</h2>\n<dl>{rows}</dl>"


# ----------------------------------------------------------------------
# Pages with figures that Plotly draws.

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
