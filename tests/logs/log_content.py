"""Logs made on the spot, and where the recorded ones lie."""

from pathlib import Path

from logs.format import Content

RECORDED = Path(__file__).parents[1] / "data" / "logs"


def content(*lines: str) -> Content:
    """Return a log of *lines*, as if read from the file ``log``."""
    return Content("log", "".join(f"{line}\n" for line in lines).encode())
