"""How one trainer stands, a line each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.text import Text

from freetrain.cli.maker_text import maker_text
from freetrain.cli.pack_text import member_lines
from freetrain.cli.times import ago, clock_text, nodes_text
from freetrain.text import one_line

if TYPE_CHECKING:
    from collections.abc import Iterator

    from freetrain.client.status import Overview, Standing

_WIDTH = 15


def detail_lines(one: Standing, seen: Overview) -> Text:
    """Return all that is known of *one*, beside what the overview tells.

    Lines are never broken, so that paths can be copied.
    """
    lines = (
        f"{what:<{_WIDTH}}{one_line(said)}" for what, said in _pairs(one, seen.now_s)
    )
    return Text("\n".join(("", *lines)), no_wrap=True, overflow="ignore")


def _pairs(one: Standing, now_s: float) -> Iterator[tuple[str, str]]:
    yield "submitted", _when(one.row.submitted_s, now_s)
    if one.job is not None:
        nodes = one.job.nodes
        most = nodes_text(nodes.max_nodes)
        is_fixed = nodes.min_nodes == nodes.max_nodes
        yield "asks for", most if is_fixed else f"{nodes.min_nodes} to {most}"
    yield from _generation(one, now_s)
    yield from _progress(one, now_s)
    yield "run directory", one.row.run_dir


def _generation(one: Standing, now_s: float) -> Iterator[tuple[str, str]]:
    newest, ending = one.worlds.newest, one.worlds.ending
    if newest is not None:
        where = ", ".join(member.node for member in newest.members) or "no nodes"
        yield f"generation {newest.generation}", where
        made = _when(newest.created_s, now_s)
        yield "", f"made {made} by {maker_text(newest.author)}: {newest.reason}"
    if ending is not None:
        said = f"{ending.ended.words} {_when(ending.ended_s, now_s)}"
        told = f": {ending.message}" if ending.message else ""
        yield f"generation {ending.generation}", f"{said}{told}"


def _progress(one: Standing, now_s: float) -> Iterator[tuple[str, str]]:
    told = one.progress
    if told is not None and told.t is not None:
        yield "last told", _when(told.t, now_s)
    if told is not None and told.epoch is not None:
        yield "epoch", f"{told.epoch:g}"
    if told is not None:
        others = {k: v for k, v in told.metrics.items() if k != "loss"}
        if others:
            yield "metrics", ", ".join(f"{k} {v:.4g}" for k, v in others.items())
    if one.pack is not None:
        for number, said in enumerate(member_lines(one.pack)):
            yield "" if number else "members", said
    if one.committed_step is not None:
        yield "committed", f"step {one.committed_step:,}"


def _when(time_s: float, now_s: float) -> str:
    return f"{ago(time_s, now_s)} ({clock_text(time_s)})"
