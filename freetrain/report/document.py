"""What every page is made of: one HTML document that needs no network, and tables."""

from __future__ import annotations

from html import escape
from importlib import resources
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

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
