"""Adds to a wheel what only an installation has: the man page, from commands.md.

Hatchling runs ``ManPage`` where a wheel is built; ``python hatch_build.py`` prints the
page, to look at with ``man -l -``.
"""

from __future__ import annotations

import re
import tempfile
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from markdown_it import MarkdownIt

if TYPE_CHECKING:
    from markdown_it.token import Token

TOP = Path(__file__).resolve().parent
PAGE = TOP / "docs" / "guide" / "commands.md"


class ManPage(BuildHookInterface):  # type: ignore[type-arg]
    """Writes ``share/man/man1/freetrain.1`` into the wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Hand the page over to Hatchling, except for an editable installation."""
        if version == "editable":
            return
        self._folder = tempfile.TemporaryDirectory()
        page = Path(self._folder.name) / "freetrain.1"
        page.write_text(man_page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
        build_data["shared_data"][str(page)] = "share/man/man1/freetrain.1"

    def finalize(self, *_: object) -> None:
        """Remove the page, which the wheel has now."""
        if hasattr(self, "_folder"):
            self._folder.cleanup()


def man_page(markdown: str) -> str:
    """Return the list of commands as a manual page, in roff's man macros."""
    tokens = MarkdownIt("commonmark").enable("table").parse(markdown)
    lines = [
        ".TH FREETRAIN 1",
        ".SH NAME",
        r"freetrain \- train neural networks on the nodes that Slurm leaves idle",
        ".SH DESCRIPTION",
    ]
    cells: list[str] = []
    for before, token in pairwise(tokens):
        match token.type:
            case "inline" if before.type == "heading_open":
                macro = {"h1": "", "h2": ".SH"}.get(before.tag, ".SS")
                if macro:
                    lines.append(f'{macro} "{_roff(token)}"')
            case "inline" if before.type == "td_open":
                cells.append(_roff(token))
            case "inline" if before.type == "paragraph_open":
                lines.append(_guarded(_roff(token)))
            case "paragraph_open" if not token.hidden:
                lines.append(".PP")
            case "list_item_open":
                lines.append(r".IP \(bu 2")
            case "fence":
                code = _escaped(token.content.rstrip("\n")).splitlines()
                lines += [".PP", ".nf", ".RS 4", *map(_guarded, code), ".RE", ".fi"]
            case "tr_close" if cells:
                first, *others = cells
                said = ": ".join(filter(None, others))
                lines += [".TP", _guarded(first), _guarded(said)]
                cells = []
    return "\n".join(lines) + "\n"


def _roff(inline: Token) -> str:
    """Return a line of text: code is bold, a page what `freetrain docs` shows."""
    said = []
    for token in inline.children or ():
        match token.type:
            case "text" if token.content.endswith(".md"):
                said.append(
                    _bold(f"freetrain docs {token.content.removesuffix('.md')}")
                )
            case "text":
                said.append(_escaped(token.content))
            case "code_inline":
                said.append(_bold(token.content))
            case "softbreak":
                said.append(" ")
            case other:
                said.append(FONTS.get(other, ""))
    return "".join(said)


FONTS = {
    "strong_open": r"\fB",
    "strong_close": r"\fR",
    "em_open": r"\fI",
    "em_close": r"\fR",
}


def _bold(text: str) -> str:
    return rf"\fB{_escaped(text)}\fR"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\e").replace("-", r"\-").replace('"', r"\(dq")


def _guarded(line: str) -> str:
    """Return a line of text that is no macro, though it may begin like one."""
    return re.sub(r"^(?=[.'])", r"\\&", line)


if __name__ == "__main__":
    print(man_page(PAGE.read_text(encoding="utf-8")), end="")  # noqa: T201
