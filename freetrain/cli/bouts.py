"""Replays the same trainers under several priorities, one bout a load and seed."""

from __future__ import annotations

import multiprocessing
import signal
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from freetrain.cli.compare import compare
from freetrain.cli.progress import progress
from freetrain.cli.world import real_world
from freetrain.report.quality import scores_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from freetrain.cli.request import ReplayRequest
    from freetrain.cli.world import World
    from freetrain.report.quality import Score


@dataclass(frozen=True, slots=True)
class Contest:
    """What is to be replayed.

    Attributes:
        request: Everything but load and seed.
        loads: At least one.
        seeds: At least one.
        processes: How many bouts may run at a time.
    """

    request: ReplayRequest
    loads: tuple[float, ...]
    seeds: tuple[int, ...]
    processes: int

    @property
    def bouts(self) -> tuple[ReplayRequest, ...]:
        """One request a load and seed."""
        return tuple(
            replace(self.request, load=load, seed=seed)
            for load in self.loads
            for seed in self.seeds
        )


def hold(contest: Contest, world: World) -> tuple[Score, ...]:
    """Return the scores of all bouts, whatever the processes, in the same order."""
    found: list[Score] = []
    with progress(world, "replaying") as report:
        for done, scores in enumerate(_played(contest, world), start=1):
            found.extend(scores)
            if report is not None:
                report(done / len(contest.bouts))
    return tuple(found)


def _played(contest: Contest, world: World) -> Iterator[Sequence[Score]]:
    quiet = replace(world, is_terminal=False)
    if contest.processes == 1:
        yield from (_bout(request, quiet) for request in contest.bouts)
        return
    # A fresh interpreter: forking one that has threads may hang.
    fresh = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(contest.processes, mp_context=fresh) as pool:
        with _interrupts_later():
            bouts = [pool.submit(_bout_elsewhere, bout) for bout in contest.bouts]
        try:
            for bout in bouts:
                yield bout.result()
        except BaseException:  # an interrupt, too: nobody waits for the rest
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


def _bout_elsewhere(request: ReplayRequest) -> Sequence[Score]:
    return _bout(request, replace(real_world(), is_terminal=False))


def _bout(request: ReplayRequest, world: World) -> Sequence[Score]:
    comparison = compare(request, world).comparison
    return scores_of(comparison, load=request.load, seed=request.seed)
