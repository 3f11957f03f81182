"""How the members of a pack stand, for people and for programs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from freetrain.pack.pack import End, how_it_failed
from freetrain.text import per_cent

if TYPE_CHECKING:
    from collections.abc import Iterator

    from freetrain.pack.pack import Line, Record


def pack_line(pack: Record) -> str:
    """Return how many of its members are over."""
    lines = pack.members.values()
    if not lines:
        return "no member was started so far"
    failed = [(name, line) for name, line in pack.members.items() if _failed(line)]
    over = f"{sum(line.is_over for line in lines)} of {len(lines)} members are over"
    if not failed:
        return over
    # Those that are tried again may be well in a moment.
    ended = [
        f"; {name} {how_it_failed(line)}"
        for name, line in failed
        if line.again_s is None
    ]
    return f"{over}, {len(failed)} failed{''.join(ended)}"


def member_lines(pack: Record) -> Iterator[str]:
    """Yield how each member stands, in the order in which they came."""
    for name, line in pack.members.items():
        yield f"{name}: {_stand(line, pack.shares.get(name))}"


def pack_record(pack: Record) -> dict[str, Any]:
    """Return the members of *pack*, for ``--json``; what is not known is null."""
    return {
        "means": pack.means or None,
        "members": [
            {
                "name": name,
                "end": line.end or None,
                "is_over": line.is_over,
                "step": line.steps,
                "samples": line.samples,
                "share": None if line.end else pack.shares.get(name),
                "failures": line.failures,
                "message": line.message or None,
                "is_tried_again": line.again_s is not None,
            }
            for name, line in pack.members.items()
        ],
    }


def _stand(line: Line, share: float | None) -> str:
    step = f"step {line.steps:,}"
    if _failed(line):
        again = "is tried again, " if line.again_s is not None else ""
        return f"{again}{step}, {how_it_failed(line)}"
    if line.end:
        return f"{line.end}, {step}"
    return step if share is None else f"{step}, {per_cent(share)} of the CPUs"


def _failed(line: Line) -> bool:
    return line.end == End.FAILED
