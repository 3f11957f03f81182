"""What each part of looking ahead is worth, how near its plans are, how fast it is.

Sections of ``python -m tests.lookahead.figures``.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING

from freetrain.lookahead.base import LEAST_WATCHED_S, Prospect
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
from freetrain.replay.run import run_replay
from freetrain.replay.settings import Accounting, ReplaySettings
from freetrain.replay.trainers import builtin_trainers
from freetrain.report.summary import gap_words
from milp.planner import Planner

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

from tests.lookahead.figures_pool import OURS, gain_text, pool_from

SPEED_DAYS = 2.0
SPEED_TURNS = 12


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
        knows_lives: Whether lives are.
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
    """Knows who leaves with whom, and believes that nobody leaves."""

    def prospect(self, cluster: int) -> Prospect:
        del cluster
        return Prospect(Weights().horizon_s, 0.0, 1.0)


def lookahead() -> Lookahead:
    """Return the policy, as replays make it."""
    return Lookahead(_TOOLS)


def play_part(part: Part) -> float:
    """Return the samples, in thousand millions."""
    tally = Tally()
    trainers = [
        replace(
            one,
            costs=replace(
                one.costs.times(part.cost), start_s=0.0, checkpoint_every_s=0.0
            ),
        )
        for one in builtin_trainers(part.jobs)
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
        policy=LookaheadPolicy(forecaster, lookahead(), worth, part.weights),
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
        asked = ReplaySettings(
            policy="lookahead",
            accounting=Accounting.PUBLISHED_C,
            parallel=parallel,
            cost_factor=cost,
            record_steps=False,
        )
        hps, pool = builtin_trainers("hps"), pool_from(day)
        found = run_replay(pool, hps, asked, clock=time.perf_counter).gap
        assert found is not None
        yield f"{parallel:2} at a time x{cost:<2g}  {gap_words(found)}"


def speed(day: float, _mapped: Callable[..., object]) -> Iterator[str]:
    """Yield the time of a replay beside the published policy's, in one process.

    They take turns, and of each event the least time counts: what else the machine
    does only ever adds, and seldom to the same event in every turn.
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
    """Return the processor time of each event of the pool, with what lies before."""
    worth = RatedOnce(priority_named("throughput"), GivenSpeeds(), t_fwd_s=120.0)
    forecaster = LearnedForecaster(
        Weights().horizon_s, checks=False, learns_s=LEAST_WATCHED_S
    )
    engine = Engine(
        pool_from(day, SPEED_DAYS),
        builtin_trainers("hps"),
        policy=LookaheadPolicy(forecaster, lookahead(), worth, Weights())
        if ours
        else PlannedPolicy("freetrain", FreeTrain(_TOOLS), worth, t_fwd_s=120.0),
        accountant=PublishedAccountant(Tally(), notices_at_once=True),
        settings=ReplaySettings(parallel=parallel, record_steps=False),
    )
    at_s = [time.process_time()]
    engine.run(lambda _: at_s.append(time.process_time()))
    return [after_s - before_s for before_s, after_s in pairwise(at_s)]
