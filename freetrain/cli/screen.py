"""A comparison as people read it on a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich import box
from rich.table import Table

from freetrain.report import quality as quality_rows
from freetrain.report.comparison import GAPS, HEADINGS, gap_lines, table_row
from freetrain.report.quality import AGAINST_HEADINGS, against_row, quality_row

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rich.console import Console

    from freetrain.cli.world import World
    from freetrain.replay.result import ReplayResult
    from freetrain.report.comparison import Comparison

LEGEND = """\
efficiency: training speed over that of as many dedicated nodes ("static")
coverage:   idle node-time spent on training that lasted, of all idle node-time
lost:       training not done because of rescales, preemptions and starts
slowdown:   arrival to finish, queueing included, over running alone at best"""
"""What the columns mean; docs/replay.md has the formulas."""

QUALITY_LEGEND = """\
quality:    of the best, from 0 where a trainer began: mean and worst under way,
            and the mean of all that were submitted
to, tier 1: mean time from arrival to that share of the best, to the first target
last:       longest from arrival to finish; all in: the makespan
luckiest:   the trainer whose first target came soonest; slower: share of trainers
            that finished later; worst: the one that lost most"""


def comparison_text(comparison: Comparison, world: World) -> str:
    """Return what was read and left out, and the table, for *world*'s terminal."""
    console = world.out()
    with console.capture() as captured:
        console.print(f"{comparison.log}: {comparison.read_as}", soft_wrap=True)
        for line in (*comparison.left_out, *comparison.cautions):
            console.print(line, soft_wrap=True)
        console.print(f"Trainers: {comparison.trainers}.", soft_wrap=True)
        console.print(comparison_table(comparison))
        print_gaps(console, [(comparison.name(r), r) for r in comparison.results])
        console.print(f"\n{LEGEND}", soft_wrap=True)
        tables = quality_tables(comparison)
        for table in tables:
            console.print()
            console.print(table)
        if tables:
            console.print(f"\n{QUALITY_LEGEND}", soft_wrap=True)
    return captured.get()


def print_gaps(console: Console, results: Iterable[tuple[str, ReplayResult]]) -> None:
    """Print how far the plans of each of *results*, by its name, were from the best."""
    lines = list(gap_lines((name, result.gap) for name, result in results))
    if lines:
        console.print(f"\n{GAPS}")
    for line in lines:
        console.print(line, soft_wrap=True)


def comparison_table(comparison: Comparison) -> Table:
    """Return one row a policy; 80 columns are enough."""
    return figures(
        HEADINGS, [table_row(r, comparison.name(r)) for r in comparison.results]
    )


def quality_tables(comparison: Comparison) -> list[Table]:
    """Return what there is to say of quality: nothing, one table, or two."""
    shown, baseline = comparison.results, comparison.baseline
    if not any(result.learning for result in shown):
        return []
    rows = [quality_row(result, comparison.name(result)) for result in shown]
    tables = [figures(quality_rows.HEADINGS, rows)]
    if baseline is not None:
        others = [
            against_row(result, baseline, comparison.name(result))
            for result in shown
            if result is not baseline
        ]
        name = comparison.name(baseline)
        between = "\n" if " " in name else " "
        heads = (f"vs{between}{_stacked(name)}", *AGAINST_HEADINGS[1:])
        tables.append(figures(heads, others))
    return tables


def figures(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    """Return a table for a terminal, its first column words and the others numbers."""
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 0, 0, 1))
    for heading in headings:
        left = heading == headings[0]
        table.add_column(heading, justify="left" if left else "right", no_wrap=left)
    for name, *numbers in rows:
        table.add_row(_stacked(name), *numbers)
    return table


def _stacked(name: str) -> str:
    """Return a policy above its priority, where *name* is both: 80 columns are few."""
    return name.replace(" ", "\n")
