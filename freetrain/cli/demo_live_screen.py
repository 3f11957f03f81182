"""The live demo on a terminal: a table while it runs, and another at its end."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich import box
from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from freetrain.demo.live import TRAINERS
from freetrain.demo.report import HEADINGS, NARROW, cards, trainer_row

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from freetrain.cli.world import World
    from freetrain.demo.fake_slurm.cluster import Cluster
    from freetrain.demo.live import History, Moment
    from freetrain.demo.report import Figures

QUIET_EVERY_S = 10.0
_COLOURS = ("blue", "yellow", "green")
_STEPS_PER_EPOCH = 20


@contextmanager
def watching(world: World) -> Iterator[Callable[[Moment], None]]:
    """Give what shows a moment: a live table, or a line now and then in a log."""
    if not world.is_terminal:
        yield _Lines(world).show
        return
    with Live(console=world.err(), auto_refresh=False, transient=True) as live:

        def show(moment: Moment) -> None:
            live.update(moment_view(moment), refresh=True)

        yield show


class _Lines:
    """One line every few seconds, for logs."""

    def __init__(self, world: World) -> None:
        self._stderr = world.stderr
        self._due_s = 0.0

    def show(self, moment: Moment) -> None:
        if moment.now_s < self._due_s and not moment.is_over:
            return
        self._due_s = moment.now_s + QUIET_EVERY_S
        self._stderr.write(f"{line_of(moment)}\n")
        self._stderr.flush()


def line_of(moment: Moment) -> str:
    """Return one moment as a line."""
    who = owners(moment)
    told = "; ".join(
        f"{h.name} {h.told.steps} steps"
        + (", finished" if h.is_finished else f" on {list(who.values()).count(h.name)}")
        for h in moment.histories
    )
    theirs = list(who.values()).count("others")
    passed_s = moment.now_s - moment.begin_s
    problem = f" ({moment.problem})" if moment.problem else ""
    return f"{passed_s:3.0f} s: {told}; others hold {theirs} nodes{problem}"


def moment_view(moment: Moment) -> Group:
    """Return one moment as tables: nodes, and trainers."""
    passed_s = moment.now_s - moment.begin_s
    head = Text(f"{passed_s:3.0f} s  Eight nodes, other people's jobs, three trainers")
    problem = Text(moment.problem, style="red")
    return Group(head, _node_table(moment), _trainer_table(moment), problem)


def owners(moment: Moment) -> dict[str, str]:
    """Return who has each node now: a trainer, ``others``, ``lease``, or nobody."""
    cluster: Cluster = moment.cluster
    who = dict.fromkeys(cluster.nodes, "")
    for job in cluster.jobs:
        if job.holds_nodes:
            who |= dict.fromkeys(job.nodes, "lease" if job.run_s is None else "others")
    for history in moment.histories:
        if history.stretches and not history.is_finished:
            held = history.stretches[-1].nodes
            who |= {node: history.name for node in held if who[node] == "lease"}
    return who


def _node_table(moment: Moment) -> Table:
    who = owners(moment)
    styles = {t.name: c for t, c in zip(TRAINERS, _COLOURS, strict=True)}
    styles |= {"others": "bright_black", "lease": "dim", "": "dim"}
    table = Table(*who, box=box.SIMPLE_HEAD, show_edge=False)
    cells = (Text(name or "idle", style=styles[name]) for name in who.values())
    table.add_row(*cells)
    return table


def _trainer_table(moment: Moment) -> Table:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False)
    for heading in ("trainer", "steps", "loss", "nodes so far", "rescales"):
        table.add_column(heading, justify="left" if heading == "trainer" else "right")
    for history, trainer, colour in zip(
        moment.histories, TRAINERS, _COLOURS, strict=True
    ):
        style = "dim" if history.is_finished else colour
        steps = trainer.epochs * _STEPS_PER_EPOCH
        table.add_row(*_row(history, steps), style=style)
    return table


def _row(history: History, steps: int) -> tuple[str, ...]:
    told = history.told
    loss = told.losses.get(told.steps)
    return (
        history.name,
        f"{told.steps}/{steps}",
        "" if loss is None else f"{loss:.3f}",
        " ".join(str(len(one.nodes)) for one in history.stretches),
        str(len(history.rescales)),
    )


def result_text(figures: Figures, world: World) -> str:
    """Return what came out, for *world*'s terminal."""
    console = world.out()
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 0, 0, 1))
    for heading in NARROW:
        left = heading == NARROW[0]
        table.add_column(heading, justify="left" if left else "right")
    for one in figures.trainers:
        cells = dict(zip(HEADINGS, trainer_row(one), strict=True))
        table.add_row(*(cells[heading] for heading in NARROW))
    with console.capture() as captured:
        console.print(table)
        console.print()
        for value, meaning in cards(figures):
            console.print(f"{value:>8}  {meaning}", soft_wrap=True)
    return captured.get()
