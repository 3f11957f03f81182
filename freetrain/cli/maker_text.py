"""Who made a generation, for people."""

from __future__ import annotations

from freetrain.state.files import BROKER, USER


def maker_text(author: str) -> str:
    """Return who *author* is: a lease's name, two lines long, tells nobody anything."""
    return author if author in {BROKER, USER} else "its agents"
