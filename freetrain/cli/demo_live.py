"""``freetrain demo --live``: run it, show it as it goes, and write its report."""

from __future__ import annotations

import importlib.metadata
import shutil
import tempfile
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich import box
from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from freetrain.cli.output import check_folder, json_text, write_folder, write_out
from freetrain.demo.live import (
    TRAINERS,
    Around,
    History,
    Moment,
    find_mpirun,
    losses_alone,
    play,
    variables,
)
from freetrain.demo.report import (
    HEADINGS,
    NARROW,
    Figures,
    Played,
    cards,
    figures_of,
    render_page,
    shortfalls,
    trainer_row,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from freetrain.cli.context import CliContext
    from freetrain.demo.fake_slurm.cluster import Cluster

NOT_ALL_WELL = 1
"""Exit code where a trainer did not finish, or was not rescaled, or lost its way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveRequest:
    """What a live demo is asked for.

    Attributes:
        out: Folder for the report.
        force: Whether files there may be replaced.
        seconds: How long others come and go.
        seed: Of their coming and going.
        keep: Whether the stand-in's and the state's folders are kept.
        as_json: Whether the result is shown as JSON.
    """

    out: Path
    force: bool
    seconds: float
    seed: int
    keep: bool
    as_json: bool


def run_live(request: LiveRequest, context: CliContext) -> None:
    """Run the demo, show it, write its folder.

    Raises:
        NoMpiError: There is no MPI here; nothing was run.
        CannotWriteError: The folder cannot be written; nothing was run.
        typer.Exit: Not all went well; the report says what did not.
    """
    out = context.cwd / request.out
    check_folder(out, force=request.force)
    around = _around(context)
    with _workplace(out, keep=request.keep) as folder:
        moment = _played(folder, around, request, context)
        alone = losses_alone(folder / "alone", around)
    figures = figures_of(
        moment.histories,
        alone,
        moment.cluster.jobs,
        nodes=len(moment.cluster.nodes),
        begin_s=moment.begin_s,
    )
    told = Played(
        figures=figures,
        histories=moment.histories,
        cluster=moment.cluster,
        begin_s=moment.begin_s,
        command=_command(request),
        version=importlib.metadata.version("freetrain"),
        mpirun=str(around.mpirun),
    )
    result = json_text(_record(told), indent=2)
    pages = {"report.html": render_page(told), "result.json": result}
    write_folder(out, {name: text.encode() for name, text in pages.items()})
    write_out(context, result if request.as_json else result_text(figures, context))
    if not request.as_json:
        write_out(context, f"Report: {request.out / 'report.html'}\n")
    if not figures.is_good:
        why = "; ".join(shortfalls(figures))
        context.stderr.write(
            f"error: {why}. The report was written. Try again on a machine with two "
            f"idle cores; --keep keeps the logs.\n"
        )
        raise typer.Exit(NOT_ALL_WELL)


def _around(context: CliContext) -> Around:
    mpirun = find_mpirun(context.environ, uid=context.uid)
    return Around(
        now_s=context.now_s,
        pause=context.sleep,
        environ=context.environ,
        home=context.home,
        uid=context.uid,
        mpirun=mpirun,
        mpi=variables(context.uid),
    )


def _played(
    folder: Path, around: Around, request: LiveRequest, context: CliContext
) -> Moment:
    """Play it, show each moment, and return the last."""
    moments = play(folder, around, seconds=request.seconds, seed=request.seed)
    with closing(moments), watching(context) as show:
        for moment in moments:
            show(moment)
    return moment


@contextmanager
def _workplace(out: Path, *, keep: bool) -> Iterator[Path]:
    """Give a folder for what the demo needs, which goes away unless it is kept."""
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


def _command(request: LiveRequest) -> str:
    words = f"--seconds {request.seconds:g} --seed {request.seed}"
    return f"freetrain demo --live {words}"


def _record(told: Played) -> dict[str, object]:
    """Return what programs may want to know."""
    figures: Figures = told.figures
    return {
        "command": told.command,
        "version": told.version,
        "mpirun": told.mpirun,
        "is_good": figures.is_good,
        "coverage": figures.coverage,
        **asdict(figures),
    }


QUIET_EVERY_S = 10.0
_COLOURS = ("blue", "yellow", "green")
_STEPS_PER_EPOCH = 20


@contextmanager
def watching(context: CliContext) -> Iterator[Callable[[Moment], None]]:
    """Give what shows a moment: a live table, or a line now and then in a log."""
    if not context.is_terminal:
        yield _Lines(context).show
        return
    with Live(console=context.err(), auto_refresh=False, transient=True) as live:

        def show(moment: Moment) -> None:
            live.update(moment_view(moment), refresh=True)

        yield show


class _Lines:
    """One line every few seconds, for logs."""

    def __init__(self, context: CliContext) -> None:
        self._stderr = context.stderr
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


def result_text(figures: Figures, context: CliContext) -> str:
    """Return what came out, for *context*'s terminal."""
    console = context.out()
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
