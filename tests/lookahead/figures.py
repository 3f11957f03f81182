"""The gain of look-ahead on Summit, beside the published policy.

``python -m tests.lookahead.figures [hps|imagenet|forecasters|ablation|gap|speed|leaves
...] [--day 6] [--processes 2]``. The weights were chosen on the six days from day 0;
those from day 6 are untouched. Samples are in thousand millions; nothing is asserted.
"""

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from multiprocessing import Pool
from typing import NamedTuple

import numpy as np

from freetrain.lookahead.affinity import Affinity, LeafAffinity
from freetrain.lookahead.base import FORECASTERS, LEAST_WATCHED_S, Prospect
from freetrain.lookahead.learned import LearnedForecaster
from freetrain.planning.freetrain import FreeTrain
from freetrain.planning.lookahead import Lookahead, QuickSearch
from freetrain.planning.policy import Tools
from freetrain.priority.base import priority_named
from freetrain.replay.accounting import PublishedAccountant, Tally
from freetrain.replay.engine import Engine
from freetrain.replay.policies.lookahead import LookaheadPolicy, Weights
from freetrain.replay.policies.ratings import GivenSpeeds, RatedOnce
from freetrain.replay.policies.registry import PlannedPolicy
from freetrain.replay.pool import PoolTimeline
from freetrain.replay.run import run_replay
from freetrain.replay.settings import Accounting, ReplaySettings
from freetrain.replay.trainers import builtin_trainers
from freetrain.report.summary import gap_words
from milp.planner import Planner
from tests.lookahead.reliability_table import shared_folder, timeline

COST_FACTORS = (1.0, 5.0, 10.0)
PARALLEL = (10, 20, 40)
PUBLISHED = {"hps": "throughput", "imagenet": "speedup"}
OURS = {"hps": "throughput", "imagenet": "price"}
"""The priority that look-ahead plans by, by set of trainers."""

SPEED_DAYS = 2.0
SPEED_TURNS = 12
LEAF_DAYS = 2.0


@cache
def pool_from(day: float, days: float = 6.0) -> PoolTimeline:
    return timeline(shared_folder(), from_day=day, days=days)


def gain_text(ours: float, theirs: float) -> str:
    return f"{100 * (ours / theirs - 1):+5.1f} %"


class Case(NamedTuple):
    """One replay: built-in set of trainers, first day, and all other settings."""

    jobs: str
    day: float
    settings: ReplaySettings


class Played(NamedTuple):
    """The result of a replay.

    Attributes:
        samples: In thousand millions.
        work: The same, each sample over its trainer's speed on one node: node-days.
        efficiency: U of docs/notes/replay.md.
    """

    samples: float
    work: float
    efficiency: float


def play(case: Case) -> Played:
    trainers = builtin_trainers(case.jobs)
    result = run_replay(
        pool_from(case.day), trainers, case.settings, clock=time.perf_counter
    )
    alone = {own.name: own.scaling.samples_per_s.item(1) for own in trainers}
    work_s = sum(done.samples / alone[done.trainer] for done in result.completions)
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
        named = [replace(ours.settings, forecaster=name) for name in FORECASTERS]
        cases = [noticed, *(Case("hps", day, settings) for settings in named)]
        base, *others = list(mapped(play, cases))  # type: ignore[call-overload]
        cells_text = "  ".join(
            f"{own.samples:.2f} ({gain_text(own.samples, base.samples)})"
            for own in others
        )
        yield f"{parallel:2} at a time x{cost:<2g}  {base.samples:7.2f}  {cells_text}"


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
    return [Case(jobs, day, settings) for settings in (base, noticed, ours)]


@dataclass(frozen=True, slots=True)
class Part:
    """A replay with look-ahead, without one of its parts.

    Attributes:
        name: The part that is left out.
        cost: Times the published costs.
        knows_pairs: Whether affinity is learned.
        knows_lives: Whether lives are learned.
        at_once: Whether completions are events.
    """

    name: str
    jobs: str
    parallel: int
    cost: float
    day: float
    weights: Weights = Weights()  # noqa: RUF009  frozen
    knows_pairs: bool = True
    knows_lives: bool = True
    priority: str = ""
    at_once: bool = True


_TOOLS = Tools(
    solver=Planner,
    start_solver=lambda: Planner(verifies=False),
    search=QuickSearch,
    verifies=False,
)


class Everlasting(LearnedForecaster):
    """Learns which nodes leave together, and expects none to leave."""

    def prospect(self, cluster: int) -> Prospect:
        del cluster
        return Prospect(Weights().horizon_s, 0.0, 1.0)


def play_part(part: Part) -> float:
    """Return the samples, in thousand millions."""
    tally = Tally()
    trainers = [
        replace(
            own,
            costs=replace(
                own.costs.times(part.cost), start_s=0.0, checkpoint_every_s=0.0
            ),
        )
        for own in builtin_trainers(part.jobs)
    ]
    worth = RatedOnce(
        priority_named(part.priority or OURS[part.jobs]), GivenSpeeds(), t_fwd_s=120.0
    )
    learned = LearnedForecaster if part.knows_lives else Everlasting
    forecaster = learned(
        part.weights.horizon_s, knows_pairs=part.knows_pairs, learns_s=LEAST_WATCHED_S
    )
    Engine(
        pool_from(part.day),
        trainers,
        policy=LookaheadPolicy(forecaster, Lookahead(_TOOLS), worth, part.weights),
        accountant=PublishedAccountant(tally, notices_at_once=part.at_once),
        settings=ReplaySettings(parallel=part.parallel, record_steps=False),
    ).run()
    return tally.samples / 1e9


def ablation(day: float, mapped: Callable[..., object]) -> Iterator[str]:
    """Yield the loss of samples without each part."""
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
                f"{part.name:22} {samples:7.2f}  {gain_text(samples, played[0])}"
            )


def _parts(jobs: str, parallel: int, cost: float, day: float) -> list[Part]:
    whole = Part("whole", jobs, parallel, cost, day)
    parts = [
        whole,
        replace(whole, name="without affinity", knows_pairs=False),
        replace(whole, name="without survival", knows_lives=False),
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


def gap(day: float, _mapped: Callable[..., object]) -> Iterator[str]:
    """Yield how far the plans of whole replays were below their bounds."""
    yield f"hps, days {day:g} to {day + 6:g}: plans of looking ahead"
    for parallel, cost in ((10, 1.0), (10, 10.0), (40, 1.0), (40, 10.0)):
        settings = ReplaySettings(
            policy="lookahead",
            accounting=Accounting.PUBLISHED_C,
            parallel=parallel,
            cost_factor=cost,
            record_steps=False,
        )
        hps, pool = builtin_trainers("hps"), pool_from(day)
        found = run_replay(pool, hps, settings, clock=time.perf_counter).gap
        assert found is not None
        yield f"{parallel:2} at a time x{cost:<2g}  {gap_words(found)}"


def speed(day: float, _mapped: Callable[..., object]) -> Iterator[str]:
    """Yield the time of a replay beside the published policy's, in one process.

    They take turns, and of each event the least time counts: other work of the machine
    only adds, and seldom to the same event in every turn.
    """
    yield (
        f"hps, published+c, {SPEED_DAYS:g} days, of each pool event the least of "
        f"{SPEED_TURNS} turns: seconds of the engine, published, ours, ratio"
    )
    for parallel in (10, 40):
        turns = [
            (_events_s(day, parallel, ours=False), _events_s(day, parallel))
            for _ in range(SPEED_TURNS)
        ]
        before_s, after_s = (
            sum(map(min, zip(*events_s, strict=True)))
            for events_s in zip(*turns, strict=True)
        )
        yield (
            f"{parallel:2} at a time  {before_s:.2f}  {after_s:.2f}  "
            f"{after_s / before_s:.2f}"
        )


def _events_s(day: float, parallel: int, *, ours: bool = True) -> list[float]:
    """Return the processor time of each event, with the time since the one before."""
    worth = RatedOnce(priority_named("throughput"), GivenSpeeds(), t_fwd_s=120.0)
    forecaster = LearnedForecaster(
        Weights().horizon_s, checks=False, learns_s=LEAST_WATCHED_S
    )
    engine = Engine(
        pool_from(day, SPEED_DAYS),
        builtin_trainers("hps"),
        policy=LookaheadPolicy(forecaster, Lookahead(_TOOLS), worth, Weights())
        if ours
        else PlannedPolicy("freetrain", FreeTrain(_TOOLS), worth, t_fwd_s=120.0),
        accountant=PublishedAccountant(Tally(), notices_at_once=True),
        settings=ReplaySettings(parallel=parallel, record_steps=False),
    )
    at_s = [time.process_time()]
    engine.run(lambda _: at_s.append(time.process_time()))
    return [after_s - before_s for before_s, after_s in pairwise(at_s)]


def leaves(day: float, _mapped: Callable[..., object]) -> Iterator[str]:
    """Yield how often both of two neighbours left, of the times that either did.

    So many nodes in the published order are a rack: summed over pairs, and as
    ``LeafAffinity`` counts departures.
    """
    yield f"days {day:g} to {day + LEAF_DAYS:g}: by pairs, and q of the leaves"
    for width in (2, 4, 9, 18, 36, 72):
        learned = _racks_of(width)
        both = either = 0.0
        idle = set[int]()
        for event in pool_from(day, LEAF_DAYS).events():
            if event.left:
                ordered = np.array(sorted(idle), dtype=np.intp)
                learned.saw(event.left, ordered)
                there = np.bincount(ordered // width).astype(float)
                gone = np.bincount(np.array(event.left) // width, minlength=len(there))
                stayed = there - gone
                both += float((gone * (gone - 1)).sum() / 2)
                either += float((there * (there - 1) - stayed * (stayed - 1)).sum() / 2)
            idle = (idle - set(event.left)) | set(event.joined)
        yield f"{width:3} a rack: {both / either:.2f} by pairs, q {learned.rate:.2f}"


def _racks_of(width: int) -> LeafAffinity:
    return LeafAffinity(Affinity(), lambda node: str(node // width))


SECTIONS = {
    "forecasters": forecasters,
    "ablation": ablation,
    "gap": gap,
    "speed": speed,
    "leaves": leaves,
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
