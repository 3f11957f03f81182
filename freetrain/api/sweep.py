"""Replays the same trainers under several priorities, over loads and seeds.

Each priority, or rule by which packs exchange members, is held against one of them.
"""

from __future__ import annotations

import multiprocessing
import signal
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING

from freetrain.api.compare import compare, trainers_of
from freetrain.api.context import UserContext
from freetrain.replay.packs import replay_packs
from freetrain.replay.settings import PACK_RULES
from freetrain.report.quality import Score, against, quality_of, scores_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from freetrain.api.request import ReplayRequest


def sweep(
    draws: Sequence[ReplayRequest], context: UserContext, *, processes: int
) -> tuple[Score, ...]:
    """Return the scores of all *draws*, in order, with any number of processes."""
    found: list[Score] = []
    with context.progress("replaying") as report:
        for done, scores in enumerate(_scores(draws, context, processes), start=1):
            found.extend(scores)
            if report is not None:
                report(done / len(draws))
    return tuple(found)


def _scores(
    draws: Sequence[ReplayRequest], context: UserContext, processes: int
) -> Iterator[Sequence[Score]]:
    if processes == 1:
        quiet = UserContext.of_process(cwd=context.cwd)
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

    Ctrl-C goes to all processes of a terminal; each of ours would print a traceback.
    Processes keep the mask that they begin with, signal(7).
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _in_a_worker(request: ReplayRequest) -> Sequence[Score]:
    return _scores_of_draw(request, UserContext.of_process())


def _scores_of_draw(request: ReplayRequest, context: UserContext) -> Sequence[Score]:
    if request.packs is not None:
        return _scores_of_packs(request, request.packs, context)
    comparison, _ = compare(request, context)
    return scores_of(comparison, load=request.load, seed=request.seed)


def _scores_of_packs(
    request: ReplayRequest, nodes: int, context: UserContext
) -> Sequence[Score]:
    """Return the scores of all rules by which members of packs move, but one."""
    trainers = trainers_of(request, context.cwd, mean_nodes=nodes)
    results = {
        rule: replay_packs(
            trainers,
            rule,
            nodes=nodes,
            interval_s=request.t_fwd_s,
            cost_factor=request.cost_factor,
        )
        for rule in PACK_RULES
    }
    baseline = results.pop(str(request.against))
    return tuple(
        Score(
            priority=rule,
            load=request.load,
            seed=request.seed,
            quality=quality_of(result),
            against=against(result, baseline),
        )
        for rule, result in results.items()
    )
