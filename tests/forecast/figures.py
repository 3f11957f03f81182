"""What looking ahead is worth on Summit, beside the published policy.

``python -m tests.forecast.figures [hps|imagenet|ablation|gap|speed ...] [--day 6]
[--processes 2]``. The weights were chosen on the six days from day 0; those from day 6
are untouched. Samples are in thousand millions; nothing is asserted.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import dataclass, replace
from functools import cache
from multiprocessing import Pool
from typing import TYPE_CHECKING

from freetrain.forecast.learned import LearnedForecaster
from freetrain.priority.registry import priority_named
from freetrain.replay.accounting import PublishedAccountant
from freetrain.replay.engine import Engine
from freetrain.replay.policies.lookahead import LookaheadPolicy, Weights
from freetrain.replay.policies.planning import MeasuredPlanner, SolverUse
from freetrain.replay.policies.speeds import GivenSpeeds
from freetrain.replay.policies.worth import SteadyWorth
from freetrain.replay.run import run_replay
from freetrain.replay.runs import Tally
from freetrain.replay.settings import Accounting, ReplaySettings
from freetrain.trainers.builtin import builtin_trainers
from milp.planner import Planner
from milp.window_bound import bound
from milp.window_planner import WindowPlan, WindowPlanner
from tests.forecast.reliability_table import shared_folder, timeline

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from freetrain.replay.timeline import PoolTimeline
    from milp.window import Window

COST_FACTORS = (1.0, 5.0, 10.0)
PARALLEL = (10, 20, 40)
PUBLISHED = {"hps": "throughput", "imagenet": "speedup"}
OURS = {"hps": "throughput", "imagenet": "price"}


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
        efficiency: U of docs/replay.md.
        wall_s: Without the yardstick of U, the engine's own time included.
    """

    samples: float
    work: float
    efficiency: float
    wall_s: float


@cache
def pool_from(day: float) -> PoolTimeline:
    """Return the six days from *day*."""
    return timeline(shared_folder(), from_day=day)


def play(case: Case) -> Played:
    """Replay *case*."""
    trainers = builtin_trainers(case.jobs)
    began_s = time.perf_counter()
    result = run_replay(
        pool_from(case.day), trainers, case.settings, clock=time.perf_counter
    )
    wall_s = time.perf_counter() - began_s
    alone = {one.name: one.scaling.samples_per_s.item(1) for one in trainers}
    work_s = sum(one.samples / alone[one.trainer] for one in result.completions)
    efficiency = result.efficiency or 0.0
    return Played(result.samples / 1e9, work_s / 86_400, efficiency, wall_s)


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
            f"{_gain(ours.samples, theirs.samples)} "
            f"{_gain(ours.samples, noticed.samples)}   "
            f"{_gain(ours.work, theirs.work)} {_gain(ours.work, noticed.work)}   "
            f"U {theirs.efficiency:.3f} {noticed.efficiency:.3f} {ours.efficiency:.3f}"
        )


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


def _gain(ours: float, theirs: float) -> str:
    return f"{100 * (ours / theirs - 1):+5.1f} %"


@dataclass(frozen=True, slots=True)
class Part:
    """Looking ahead without one of its parts.

    Attributes:
        name: What is left out.
        jobs: Built-in set of trainers.
        parallel: Trainers at a time.
        cost: Times the published costs.
        day: First day.
        weights: Of the planner.
        knows_pairs: Whether affinity is learned.
        priority: Of the planner.
        at_once: Whether completions are events.
    """

    name: str
    jobs: str
    parallel: int
    cost: float
    day: float
    weights: Weights = Weights()  # noqa: RUF009  frozen
    knows_pairs: bool = True
    priority: str = ""
    at_once: bool = True


def play_part(part: Part, windows: WindowPlanner | None = None) -> float:
    """Return the samples, in thousand millions."""
    use, tally = SolverUse(), Tally()
    trainers = [
        replace(
            one,
            costs=replace(
                one.costs.times(part.cost), start_s=0.0, checkpoint_every_s=0.0
            ),
        )
        for one in builtin_trainers(part.jobs)
    ]
    worth = SteadyWorth(
        priority_named(part.priority or OURS[part.jobs]), GivenSpeeds(), t_fwd_s=120.0
    )
    forecaster = LearnedForecaster(part.weights.horizon_s, knows_pairs=part.knows_pairs)
    planner = MeasuredPlanner(Planner(), use, time.perf_counter)
    Engine(
        pool_from(part.day),
        trainers,
        policy=LookaheadPolicy(
            forecaster, planner, worth, part.weights, windows=windows
        ),
        accountant=PublishedAccountant(tally, notices_at_once=part.at_once),
        settings=ReplaySettings(parallel=part.parallel, record_steps=False),
    ).run()
    return tally.samples / 1e9


def ablation(day: float, mapped: Callable[..., object]) -> Iterator[str]:
    """Yield what each part is worth: the loss of samples without it."""
    yield f"ablation, days {day:g} to {day + 6:g}: samples, and what is lost without"
    cells = [
        ("hps", 10, 1.0),
        ("hps", 10, 10.0),
        ("hps", 40, 10.0),
        ("imagenet", 20, 10.0),
    ]
    for cell in cells:
        parts = _parts(*cell, day)
        played = list(mapped(play_part, parts))  # type: ignore[call-overload]
        for part, samples in zip(parts, played, strict=True):
            yield (
                f"{part.jobs:8} {part.parallel:2} at a time x{part.cost:<2g} "
                f"{part.name:22} {samples:7.2f}  {_gain(samples, played[0])}"
            )


def _parts(jobs: str, parallel: int, cost: float, day: float) -> list[Part]:
    whole = Part("whole", jobs, parallel, cost, day)
    parts = [
        whole,
        replace(whole, name="without affinity", knows_pairs=False),
        replace(whole, name="without survival", weights=Weights(lives=False)),
        replace(whole, name="without losses foreseen", weights=Weights(hit=0.0)),
        replace(whole, name="without hysteresis", weights=Weights(change=1.0)),
        replace(whole, name="without C", at_once=False),
    ]
    if jobs == "imagenet":
        parts += [
            replace(whole, name=f"{name}, no price", priority=name)
            for name in ("throughput", "speedup")
        ]
    return parts


class _Watching(WindowPlanner):
    """Plans as ever, and holds every fiftieth plan against the bound."""

    def __init__(self) -> None:
        super().__init__()
        self.gaps: list[float] = []
        self._plans = 0

    def plan(self, window: Window, starts: Sequence[Sequence[int]] = ()) -> WindowPlan:
        made = super().plan(window, starts)
        self._plans += 1
        if self._plans % 50 == 0 and made.gain > 0.0:
            self.gaps.append(bound(window) / made.gain - 1.0)
        return made


def gap(day: float, _mapped: Callable[..., object]) -> Iterator[str]:
    """Yield how far plans are from the bound at most, every fiftieth of them."""
    yield "hps: distance from the bound, per cent of the gain: mean, nine of ten below"
    for parallel, cost in ((10, 1.0), (10, 10.0), (40, 1.0), (40, 10.0)):
        watching = _Watching()
        play_part(Part("gap", "hps", parallel, cost, day), watching)
        gaps = sorted(watching.gaps)
        mean, most = sum(gaps) / len(gaps), gaps[9 * len(gaps) // 10]
        yield (
            f"{parallel:2} at a time x{cost:<2g}  {100 * mean:.1f}  {100 * most:.1f}"
            f"  of {len(gaps)} plans"
        )


def speed(day: float, _mapped: Callable[..., object]) -> Iterator[str]:
    """Yield the time of a replay beside the published policy's, in one process."""
    yield "hps: seconds of the replay, yardstick of U included; ratio"
    for parallel in (10, 40):
        _, theirs, ours = _three("hps", day, parallel, 1.0)
        play(theirs)  # what is read and imported once
        before, after = play(theirs).wall_s, play(ours).wall_s
        yield f"{parallel} at a time  {before:.2f}  {after:.2f}  {after / before:.2f}"


def main(arguments: list[str]) -> int:
    """Print the sections asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    known = ("hps", "imagenet", "ablation", "gap", "speed")
    parser.add_argument("sections", nargs="*", default=["hps"], choices=known)
    parser.add_argument("--day", type=float, default=0.0)
    parser.add_argument("--processes", type=int, default=1)
    chosen = parser.parse_args(arguments)
    with Pool(chosen.processes) as workers:
        for section in chosen.sections:
            if section in OURS:
                rows = comparison(section, chosen.day, workers.imap)
            else:
                rows = {"ablation": ablation, "gap": gap, "speed": speed}[section](
                    chosen.day, workers.imap
                )
            for row in rows:
                sys.stdout.write(f"{row}\n")
                sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
