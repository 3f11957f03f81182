"""``freetrain demo --live``: run it, show it as it goes, and write its report."""

from __future__ import annotations

import importlib.metadata
import shutil
import tempfile
from collections import Counter
from contextlib import closing, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich import box
from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from freetrain.api.writing import check_folder, write_folder
from freetrain.cli.context import (
    CliContext,
    json_text,
    write_out,
)
from freetrain.demo.live import (
    TRAINERS,
    DemoEnvironment,
    DemoMoment,
    History,
    find_mpirun,
    losses_alone,
    play,
    variables,
)
from freetrain.demo.report import (
    HEADINGS,
    NARROW,
    Figures,
    cards,
    figures_of,
    render_page,
    shortfalls,
    trainer_row,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from freetrain.demo.fake_slurm.cluster import FakeCluster

NOT_ALL_WELL = 1
"""Exit code where a trainer did not finish, or was not rescaled, or lost its way."""


def run_live(  # noqa: PLR0913 - what the command line says, as it says it
    context: CliContext,
    *,
    out: Path,
    force: bool,
    seconds: float,
    seed: int,
    keep: bool,
    as_json: bool,
) -> None:
    """Run the demo for *seconds* of other users' jobs, show it, write its report.

    Raises:
        NoMpiError: There is no MPI here; nothing was run.
        CannotWriteError: The folder cannot be written; nothing was run.
        typer.Exit: Not all went well; the report says what did not.
    """
    target = context.cwd / out
    check_folder(target, force=force)
    environment = _environment(context)
    with _workplace(target, keep=keep) as folder:
        moments = play(folder, environment, seconds=seconds, seed=seed)
        with closing(moments), _watching(context) as show:
            for moment in moments:
                show(moment)
        alone = losses_alone(folder / "alone", environment)
    figures = figures_of(
        moment.histories,
        alone,
        moment.cluster.jobs,
        nodes=len(moment.cluster.nodes),
        begin_s=moment.begin_s,
    )
    origin = {
        "command": f"freetrain demo --live --seconds {seconds:g} --seed {seed}",
        "version": importlib.metadata.version("freetrain"),
        "mpirun": str(environment.mpirun),
    }
    good = {"is_good": figures.is_good, "coverage": figures.coverage}
    result = json_text(origin | good | asdict(figures), indent=2)
    pages = {
        "report.html": render_page(figures, moment, **origin),
        "result.json": result,
    }
    write_folder(target, {name: text.encode() for name, text in pages.items()})
    write_out(context, result if as_json else result_text(figures, context))
    if not as_json:
        write_out(context, f"Report: {out / 'report.html'}\n")
    if not figures.is_good:
        why = "; ".join(shortfalls(figures))
        context.stderr.write(
            f"error: {why}. The report was written. Try again on a machine with two "
            f"idle cores; --keep keeps the logs.\n"
        )
        raise typer.Exit(NOT_ALL_WELL)


def _environment(context: CliContext) -> DemoEnvironment:
    mpirun = find_mpirun(context.environ, uid=context.uid)
    return DemoEnvironment(
        now_s=context.now_s,
        pause=context.sleep,
        environ=context.environ,
        home=context.home,
        uid=context.uid,
        mpirun=mpirun,
        mpi=variables(context.uid),
    )


@contextmanager
def _workplace(out: Path, *, keep: bool) -> Iterator[Path]:
    """Give a folder for the demo, which is removed at the end unless *keep*."""
    if keep:
        folder = out / "live"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True, mode=0o700)
        yield folder.resolve()
        return
    with tempfile.TemporaryDirectory(
        prefix="freetrain-live-", ignore_cleanup_errors=True
    ) as temporary:
        yield Path(temporary).resolve()


QUIET_EVERY_S = 10.0
_COLOURS = ("blue", "yellow", "green")
_STEPS_PER_EPOCH = 20


@contextmanager
def _watching(context: CliContext) -> Iterator[Callable[[DemoMoment], None]]:
    """Give a function that shows a moment: a live table, or a line now and then."""
    if not context.is_terminal:
        yield _Lines(context).show
        return
    with Live(console=context.err(), auto_refresh=False, transient=True) as live:

        def show(moment: DemoMoment) -> None:
            live.update(moment_view(moment), refresh=True)

        yield show


class _Lines:
    """One line every few seconds, for logs."""

    def __init__(self, context: CliContext) -> None:
        self._stderr = context.stderr
        self._due_s = 0.0

    def show(self, moment: DemoMoment) -> None:
        if moment.now_s < self._due_s and not moment.is_over:
            return
        self._due_s = moment.now_s + QUIET_EVERY_S
        self._stderr.write(f"{line_of(moment)}\n")
        self._stderr.flush()


def line_of(moment: DemoMoment) -> str:
    """Return one moment as a line."""
    counts = Counter(owners(moment).values())
    trainers = "; ".join(
        f"{h.name} {h.steps} steps"
        + (", finished" if h.is_finished else f" on {counts[h.name]}")
        for h in moment.histories
    )
    passed_s = moment.now_s - moment.begin_s
    problem = f" ({moment.problem})" if moment.problem else ""
    return (
        f"{passed_s:3.0f} s: {trainers}; others hold {counts['others']} nodes{problem}"
    )


def moment_view(moment: DemoMoment) -> Group:
    """Return one moment as tables: nodes, and trainers."""
    passed_s = moment.now_s - moment.begin_s
    head = Text(f"{passed_s:3.0f} s  Eight nodes, other people's jobs, three trainers")
    problem = Text(moment.problem, style="red")
    return Group(head, _node_table(moment), _trainer_table(moment), problem)


def owners(moment: DemoMoment) -> dict[str, str]:
    """Return each node's owner now: a trainer, ``others``, ``lease``, or ``""``."""
    cluster: FakeCluster = moment.cluster
    owner_of = dict.fromkeys(cluster.nodes, "")
    for job in cluster.jobs:
        if job.holds_nodes:
            owner_of |= dict.fromkeys(
                job.nodes, "lease" if job.run_s is None else "others"
            )
    for history in moment.histories:
        if history.segments and not history.is_finished:
            held = history.segments[-1].nodes
            owner_of |= {
                node: history.name for node in held if owner_of[node] == "lease"
            }
    return owner_of


def _node_table(moment: DemoMoment) -> Table:
    owner_of = owners(moment)
    styles = {t.name: c for t, c in zip(TRAINERS, _COLOURS, strict=True)}
    styles |= {"others": "bright_black", "lease": "dim", "": "dim"}
    table = Table(*owner_of, box=box.SIMPLE_HEAD, show_edge=False)
    cells = (Text(name or "idle", style=styles[name]) for name in owner_of.values())
    table.add_row(*cells)
    return table


def _trainer_table(moment: DemoMoment) -> Table:
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
    loss = history.losses.get(history.steps)
    return (
        history.name,
        f"{history.steps}/{steps}",
        "" if loss is None else f"{loss:.3f}",
        " ".join(str(len(segment.nodes)) for segment in history.segments),
        str(len(history.rescales)),
    )


def result_text(figures: Figures, context: CliContext) -> str:
    """Return the result as a table, for *context*'s terminal."""
    console = context.out()
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 0, 0, 1))
    for heading in NARROW:
        left = heading == NARROW[0]
        table.add_column(heading, justify="left" if left else "right")
    for trainer in figures.trainers:
        cells = dict(zip(HEADINGS, trainer_row(trainer), strict=True))
        table.add_row(*(cells[heading] for heading in NARROW))
    with console.capture() as captured:
        console.print(table)
        console.print()
        for value, meaning in cards(figures):
            console.print(f"{value:>8}  {meaning}", soft_wrap=True)
    return captured.get()
