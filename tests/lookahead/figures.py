"""What looking ahead is worth on Summit, beside the published policy.

``python -m tests.lookahead.figures [hps|imagenet|forecasters|ablation|gap|speed ...]
[--day 6] [--processes 2]``. The weights were chosen on the six days from day 0; those
from day 6 are untouched. Samples are in thousand millions; nothing is asserted.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import dataclass, replace
from multiprocessing import Pool
from typing import TYPE_CHECKING

from freetrain.lookahead.base import FORECASTERS
from freetrain.replay.run import run_replay
from freetrain.replay.settings import Accounting, ReplaySettings
from freetrain.replay.trainers import builtin_trainers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


from tests.lookahead.figures_parts import ablation, gap, speed
from tests.lookahead.figures_pool import OURS, gain_text, pool_from

COST_FACTORS = (1.0, 5.0, 10.0)
PARALLEL = (10, 20, 40)
PUBLISHED = {"hps": "throughput", "imagenet": "speedup"}


@dataclass(frozen=True, slots=True)
class Case:
    """One replay.

    Attributes:
        jobs: Built-in set of trainers.
        day: First day.
        settings: Everything else.
    """

    jobs: str
    day: float
    settings: ReplaySettings


@dataclass(frozen=True, slots=True)
class Played:
    """What came of it.

    Attributes:
        samples: In thousand millions.
        work: The same, each sample over its trainer's speed on one node: node-days.
        efficiency: U of docs/notes/replay.md.
    """

    samples: float
    work: float
    efficiency: float


def play(case: Case) -> Played:
    """Replay *case*."""
    trainers = builtin_trainers(case.jobs)
    result = run_replay(
        pool_from(case.day), trainers, case.settings, clock=time.perf_counter
    )
    alone = {one.name: one.scaling.samples_per_s.item(1) for one in trainers}
    work_s = sum(one.samples / alone[one.trainer] for one in result.completions)
    efficiency = result.efficiency or 0.0
    return Played(result.samples / 1e9, work_s / 86_400, efficiency)


def comparison(jobs: str, day: float, mapped: Callable[..., object]) -> Iterator[str]:
    """Yield a row for each number of trainers and cost: published, with C, ours."""
    yield (
        f"{jobs}, days {day:g} to {day + 6:g}: samples; gain over published and over "
        "published+c in samples, in work; U"
    )
    cells = [(parallel, cost) for parallel in PARALLEL for cost in COST_FACTORS]
    cases = [case for cell in cells for case in _three(jobs, day, *cell)]
    played = list(mapped(play, cases))  # type: ignore[call-overload]
    for place, (parallel, cost) in enumerate(cells):
        theirs, noticed, ours = played[3 * place : 3 * place + 3]
        yield (
            f"{parallel:2} at a time x{cost:<2g}  {theirs.samples:7.2f} "
            f"{noticed.samples:7.2f} {ours.samples:7.2f}   "
            f"{gain_text(ours.samples, theirs.samples)} "
            f"{gain_text(ours.samples, noticed.samples)}   "
            f"{gain_text(ours.work, theirs.work)} "
            f"{gain_text(ours.work, noticed.work)}   "
            f"U {theirs.efficiency:.3f} {noticed.efficiency:.3f} {ours.efficiency:.3f}"
        )


def forecasters(day: float, mapped: Callable[..., object]) -> Iterator[str]:
    """Yield a row for each number of trainers and cost: C, and every forecaster."""
    yield f"hps, days {day:g} to {day + 6:g}: samples under C, {', '.join(FORECASTERS)}"
    cells = [(parallel, cost) for parallel in (10, 40) for cost in (1.0, 10.0)]
    for parallel, cost in cells:
        _, noticed, ours = _three("hps", day, parallel, cost)
        asked = [replace(ours.settings, forecaster=name) for name in FORECASTERS]
        cases = [noticed, *(replace(ours, settings=one) for one in asked)]
        base, *others = list(mapped(play, cases))  # type: ignore[call-overload]
        told = "  ".join(
            f"{one.samples:.2f} ({gain_text(one.samples, base.samples)})"
            for one in others
        )
        yield f"{parallel:2} at a time x{cost:<2g}  {base.samples:7.2f}  {told}"


def _three(jobs: str, day: float, parallel: int, cost: float) -> list[Case]:
    base = ReplaySettings(
        priority=PUBLISHED[jobs],
        accounting=Accounting.PUBLISHED,
        parallel=parallel,
        cost_factor=cost,
        record_steps=False,
    )
    noticed = replace(base, accounting=Accounting.PUBLISHED_C)
    ours = replace(noticed, policy="lookahead", priority=OURS[jobs])
    return [Case(jobs, day, one) for one in (base, noticed, ours)]


SECTIONS = {
    "forecasters": forecasters,
    "ablation": ablation,
    "gap": gap,
    "speed": speed,
}


def main(arguments: list[str]) -> int:
    """Print the sections asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    known = ("hps", "imagenet", *SECTIONS)
    parser.add_argument("sections", nargs="*", default=["hps"], choices=known)
    parser.add_argument("--day", type=float, default=0.0)
    parser.add_argument("--processes", type=int, default=1)
    chosen = parser.parse_args(arguments)
    with Pool(chosen.processes) as workers:
        for section in chosen.sections:
            if section in OURS:
                rows = comparison(section, chosen.day, workers.imap)
            else:
                rows = SECTIONS[section](chosen.day, workers.imap)
            for row in rows:
                sys.stdout.write(f"{row}\n")
                sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
