"""A comparison as people read it on a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich import box
from rich.table import Table

from freetrain.report.rows import HEADINGS, table_row

if TYPE_CHECKING:
    from freetrain.cli.world import World
    from freetrain.report.comparison import Comparison

LEGEND = """\
efficiency: training speed over that of as many dedicated nodes ("static")
coverage:   idle node-time spent on training that lasted, of all idle node-time
lost:       training not done because of rescales, preemptions and starts
slowdown:   arrival to finish, queueing included, over running alone at best"""
"""What the columns mean; docs/replay.md has the formulas."""


def comparison_text(comparison: Comparison, world: World) -> str:
    """Return what was read and left out, and the table, for *world*'s terminal."""
    console = world.out()
    with console.capture() as captured:
        console.print(f"{comparison.log}: {comparison.read_as}", soft_wrap=True)
        for line in (*comparison.left_out, *comparison.cautions):
            console.print(line, soft_wrap=True)
        console.print(f"Trainers: {comparison.trainers}.", soft_wrap=True)
        console.print(comparison_table(comparison))
        console.print(f"\n{LEGEND}", soft_wrap=True)
    return captured.get()


def comparison_table(comparison: Comparison) -> Table:
    """Return one row a policy; 80 columns are enough."""
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 0, 0, 1))
    for heading in HEADINGS:
        left = heading == HEADINGS[0]
        table.add_column(heading, justify="left" if left else "right", no_wrap=left)
    for result in comparison.results:
        table.add_row(*table_row(result))
    return table
