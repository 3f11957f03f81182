"""A contest as people read it on a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich import box
from rich.table import Table

from freetrain.report.quality import cell, lines

if TYPE_CHECKING:
    from collections.abc import Sequence

    from freetrain.cli.world import World
    from freetrain.report.quality import Score


ABREAST = 3
"""Priorities that fit beside each other into 80 columns."""

LEGEND = """\
Changes in % against the same trainers on the same nodes: the mean over the seeds,
then the best and the worst seed. docs/replay.md defines every figure."""


def contest_text(scores: Sequence[Score], world: World, *, against: str) -> str:
    """Return tables by load: a column a priority, a line a figure."""
    console = world.out()
    names = list(dict.fromkeys(score.priority for score in scores))
    with console.capture() as captured:
        for load in dict.fromkeys(score.load for score in scores):
            for first in range(0, len(names), ABREAST):
                few = names[first : first + ABREAST]
                own = [s for s in scores if s.load == load and s.priority in few]
                console.print(_table(own, few, f"load {load:g}, vs {against}"))
                console.print()
        console.print(LEGEND, soft_wrap=True)
    return captured.get()


def _table(scores: Sequence[Score], names: Sequence[str], title: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 0, 0, 1))
    table.add_column(title, no_wrap=True)
    for name in names:
        table.add_column(name, justify="right", no_wrap=True)
    by_name = [[s for s in scores if s.priority == name] for name in names]
    for line in lines():
        table.add_row(line.title, *(cell(line, own) for own in by_name))
    return table
