"""``freetrain replay --seeds N --loads X``: priorities against each other.

The same trainers on the same nodes are replayed under each priority, once for each load
and seed; each priority is held against one of them.
"""

from __future__ import annotations

import multiprocessing
import signal
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from rich import box
from rich.table import Table

from freetrain.cli.output import (
    CliContext,
    json_text,
    process_context,
    progress,
    write_file,
    write_out,
)
from freetrain.cli.replay_run import compare
from freetrain.report.sweep import Score, cell, scores_of, sweep_rows

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from freetrain.cli.replay_request import ReplayRequest


def run_sweep_and_show(  # noqa: PLR0913 - what the command line says, as it says it
    request: ReplayRequest,
    context: CliContext,
    *,
    loads: Sequence[float],
    seeds: Sequence[int],
    processes: int,
    as_json: bool,
    out: Path | None,
    force: bool,
) -> None:
    """Replay *request* once for each load and seed, and show or write the scores.

    Raises:
        FreeTrainError, LogError, MilpError: See ``compare``.
    """
    draws = [replace(request, load=load, seed=seed) for load in loads for seed in seeds]
    scores = sweep(draws, context, processes=processes)
    if as_json or out is not None:
        text = json_text(scores, indent=2)
    else:
        text = sweep_text(scores, context, against=str(request.against))
    if out is None:
        write_out(context, text)
    else:
        write_file(context.cwd / out, text.encode("utf-8"), force=force)


def sweep(
    draws: Sequence[ReplayRequest], context: CliContext, *, processes: int
) -> tuple[Score, ...]:
    """Return the scores of all *draws*, in their order whatever the processes."""
    found: list[Score] = []
    with progress(context, "replaying") as report:
        for done, scores in enumerate(_scores(draws, context, processes), start=1):
            found.extend(scores)
            if report is not None:
                report(done / len(draws))
    return tuple(found)


def _scores(
    draws: Sequence[ReplayRequest], context: CliContext, processes: int
) -> Iterator[Sequence[Score]]:
    if processes == 1:
        quiet = replace(context, is_terminal=False)
        yield from (_scores_of_draw(request, quiet) for request in draws)
        return
    # A fresh interpreter: forking one that has threads may hang.
    fresh = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, mp_context=fresh) as pool:
        with _interrupts_later():
            replays = [pool.submit(_in_a_worker, request) for request in draws]
        try:
            for replay in replays:
                yield replay.result()
        except BaseException:  # an interrupt, too: do not wait for the rest
            for worker in multiprocessing.active_children():
                worker.terminate()
            raise


@contextmanager
def _interrupts_later() -> Iterator[None]:
    """Hold interrupts back, and let no process that begins meanwhile ever have one.

    Ctrl-C goes to all processes of a terminal; each of ours would tell it by a
    traceback. Processes keep the mask that they begin with, signal(7).
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _in_a_worker(request: ReplayRequest) -> Sequence[Score]:
    return _scores_of_draw(request, replace(process_context(), is_terminal=False))


def _scores_of_draw(request: ReplayRequest, context: CliContext) -> Sequence[Score]:
    comparison, _ = compare(request, context)
    return scores_of(comparison, load=request.load, seed=request.seed)


ABREAST = 3
"""Priorities that fit beside each other into 80 columns."""

LEGEND = """\
Changes in % against the same trainers on the same nodes: the mean over the seeds,
then the best and the worst seed. docs/replay.md defines every figure."""


def sweep_text(scores: Sequence[Score], context: CliContext, *, against: str) -> str:
    """Return tables by load: a column a priority, a line a figure."""
    console = context.out()
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
    for row in sweep_rows():
        table.add_row(row.title, *(cell(row, own) for own in by_name))
    return table
