"""``freetrain demo --live``: run it, show it as it goes, and write its report."""

from __future__ import annotations

import importlib.metadata
import json
import shutil
import tempfile
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from freetrain.cli.demo_live_screen import result_text, watching
from freetrain.cli.output import check_folder, write_folder, write_out
from freetrain.demo.live import Around, find_mpirun, losses_alone, play, variables
from freetrain.demo.report import Played, figures_of, render_page, shortfalls

if TYPE_CHECKING:
    from collections.abc import Iterator

    from freetrain.cli.world import World
    from freetrain.demo.live import Moment
    from freetrain.demo.report import Figures

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


def run_live(request: LiveRequest, world: World) -> None:
    """Run the demo, show it, write its folder.

    Raises:
        NoMpiError: There is no MPI here; nothing was run.
        CannotWriteError: The folder cannot be written; nothing was run.
        typer.Exit: Not all went well; the report says what did not.
    """
    out = world.cwd / request.out
    check_folder(out, force=request.force)
    around = _around(world)
    with _workplace(out, keep=request.keep) as folder:
        moment = _played(folder, around, request, world)
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
    result = json.dumps(_record(told), indent=2) + "\n"
    pages = {"report.html": render_page(told), "result.json": result}
    write_folder(out, {name: text.encode() for name, text in pages.items()})
    write_out(world, result if request.as_json else result_text(figures, world))
    if not request.as_json:
        write_out(world, f"Report: {request.out / 'report.html'}\n")
    if not figures.is_good:
        why = "; ".join(shortfalls(figures))
        world.stderr.write(
            f"error: {why}. The report was written. Try again on a machine with two "
            f"idle cores; --keep keeps the logs.\n"
        )
        raise typer.Exit(NOT_ALL_WELL)


def _around(world: World) -> Around:
    mpirun = find_mpirun(world.environ, uid=world.uid)
    return Around(
        now_s=world.now_s,
        pause=world.sleep,
        environ=world.environ,
        home=world.home,
        uid=world.uid,
        mpirun=mpirun,
        mpi=variables(world.uid),
    )


def _played(folder: Path, around: Around, request: LiveRequest, world: World) -> Moment:
    """Play it, show each moment, and return the last."""
    moments = play(folder, around, seconds=request.seconds, seed=request.seed)
    with closing(moments), watching(world) as show:
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
