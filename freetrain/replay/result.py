"""What a replay found out; every figure is defined in docs/replay.md."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from milp.window_bound import window_gap

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from freetrain.lookahead.reliability import ForecastRecord
    from freetrain.losscurve.forecast import Point
    from freetrain.replay.trainers import QualityTruth, Scaling, TrainerSpec
    from milp.window import Window


# ----------------------------------------------------------------------
# How far a replay's plans were from the best there can be, looked at now and then.

_MOST = 40
"""Bounds at the end of a replay: of 40 trainers one takes 43 ms, of 10 it takes 19."""

_HIGH = 0.9


@dataclass(frozen=True, slots=True)
class Gap:
    """How far plans were below their bounds; ``milp.gap`` says what a gap is.

    Attributes:
        mean: Of the plans looked at.
        high: Nine of ten of them have at most this.
        most: The largest.
        sampled: How many were looked at: all, or some at equal distances.
        plans: How many plans were made.
    """

    mean: float
    high: float
    most: float
    sampled: int
    plans: int


class Gaps:
    """Takes note of plans, and looks at some of them when the replay is over.

    A bound takes a hundred times as long as a plan of a window, so that some dozens
    of windows are kept, at equal distances: where there are too many, every second is
    dropped, and of those that come half as many are kept. Nothing that plans is asked.

    Args:
        most: Windows that are kept at most, 1 or more.
    """

    def __init__(self, most: int = _MOST) -> None:
        self._most = most
        self._every = 1
        self._plans = 0
        self._known: list[float] = []
        self._kept: list[tuple[Window, float]] = []

    def know(self, gap: float) -> None:
        """Take note of a plan with a *gap* that its planner tells."""
        self._plans += 1
        self._known.append(gap)

    def keep(self, window: Window, gain: float) -> None:
        """Take note of a plan of *window* that gains *gain*; neither may change."""
        if self._plans % self._every == 0:
            self._kept.append((window, gain))
            if len(self._kept) > self._most:
                self._kept, self._every = self._kept[::2], 2 * self._every
        self._plans += 1

    def summary(self) -> Gap | None:
        """Return how far the plans were from the best; None where none was made."""
        found = sorted(self._found())
        if not found:
            return None
        return Gap(
            mean=math.fsum(found) / len(found),
            high=found[math.ceil(_HIGH * len(found)) - 1],
            most=found[-1],
            sampled=len(found),
            plans=self._plans,
        )

    def _found(self) -> Iterator[float]:
        yield from self._known
        for window, gain in self._kept:
            yield window_gap(window, gain)


# ----------------------------------------------------------------------
# What a replay found out; every figure is defined in docs/replay.md.


@dataclass(frozen=True, slots=True)
class Step:
    """The pool and its use from one event on.

    Attributes:
        time_s: Seconds from the start of the replay.
        idle_nodes: Nodes in the pool.
        used_nodes: Those of them that a trainer holds.
        resized: Trainers whose node count changed at this event, with their new
            count: (trainer name, nodes).
        finished: Trainers that finished at this event, by name.
    """

    time_s: float
    idle_nodes: int
    used_nodes: int
    resized: tuple[tuple[str, int], ...]
    finished: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Completion:
    """One trainer's way through the replay.

    Attributes:
        trainer: Its name.
        arrival_s: When it was submitted.
        admitted_s: When it was first taken up, or None.
        finished_s: When it finished, or None.
        samples: Samples it trained, net of losses.
        slowdown: Time from arrival to finish over the time it would need alone
            on its best size; None where it did not finish.
    """

    trainer: str
    arrival_s: float
    admitted_s: float | None
    finished_s: float | None
    samples: float
    slowdown: float | None


@dataclass(frozen=True, slots=True)
class Learning:
    """How good the model of one trainer with a quality curve became, and when.

    Attributes:
        trainer: Its name.
        arrival_s: When it was submitted.
        finished_s: When it finished, or None.
        times_s: When it passed each evaluation for good, ascending.
        quality: The best by then, as a share of the best it has by the end of its
            work, by evaluation: 0 where it began, never falling.
        deliver_s: When it reached the first tier of its target, or None.
        final_s: When it reached the second, or None.
    """

    trainer: str
    arrival_s: float
    finished_s: float | None
    times_s: tuple[float, ...]
    quality: tuple[float, ...]
    deliver_s: float | None
    final_s: float | None


@dataclass(frozen=True, slots=True)
class ReplayResult:
    """One policy's replay of one log.

    Node-seconds and samples are sums over the replay; ``*_samples`` losses are
    samples that were not trained because of the cause named. ``gap`` is None where
    nothing was planned by an objective. ``forecaster`` is None
    where the policy has none; so is ``forecasts``, also where they were not to be
    recorded.
    """

    policy: str
    priority: str
    accounting: str
    samples: float
    finished: int
    end_s: float
    images_per_s: float
    eq_nodes: float
    pool_node_s: float
    used_node_s: float
    rescale_samples: float
    preempt_samples: float
    start_samples: float
    preemptions: int
    rescales: int
    events: int
    efficiency: float | None
    coverage: float
    solver_calls: int
    solver_s: float
    solver_fallbacks: int
    wall_s: float
    peak_rss_bytes: int
    steps: tuple[Step, ...]
    completions: tuple[Completion, ...]
    learning: tuple[Learning, ...] = ()
    priority_settings: tuple[tuple[str, float], ...] = ()
    gap: Gap | None = None
    forecaster: str | None = None
    forecasts: ForecastRecord | None = None


# ----------------------------------------------------------------------
# What a replay found out about quality, from what its trainers told.


def learning_of(runs: Iterable[Run]) -> tuple[Learning, ...]:
    """Return the way of each of *runs* that has a quality curve."""
    shares: dict[tuple[QualityTruth, float], tuple[float, ...]] = {}
    made = []
    for run in runs:
        truth = run.spec.quality
        if truth is not None:
            key = truth, run.work
            if key not in shares:
                shares[key] = tuple(truth.quality(until=run.work).tolist())
            made.append(_learning(run, truth, shares[key]))
    return tuple(made)


def _learning(run: Run, truth: QualityTruth, shares: Sequence[float]) -> Learning:
    target = run.spec.target
    return Learning(
        trainer=run.spec.name,
        arrival_s=run.arrival_s,
        finished_s=run.finished_s,
        times_s=tuple(point.t_s for point in run.points),
        quality=tuple(shares[: len(run.points)]),
        deliver_s=_reached_s(run.points, truth, target.deliver if target else None),
        final_s=_reached_s(run.points, truth, target.final if target else None),
    )


def _reached_s(
    points: Sequence[Point], truth: QualityTruth, value: float | None
) -> float | None:
    if value is None:
        return None
    good = (p.t_s for p in points if truth.better.is_reached(value, p.value))
    return next(good, None)


# ----------------------------------------------------------------------
# What changes while a replay goes on: trainers under way, and sums.


class Cause(StrEnum):
    """Why a trainer is paused."""

    START = "start"
    RESCALE = "rescale"
    PREEMPTION = "preemption"


@dataclass(slots=True, eq=False)
class Run:
    """One way of a trainer through the queue, from its arrival to its finish.

    Attributes:
        serial: Unique in the replay; a trainer that starts over gets a new one.
        spec: The trainer.
        rates: Samples/s at 0 .. max nodes; 0 at sizes it cannot run on.
        arrival_s: When it was submitted, or started over.
        admitted_s: When it was admitted, or None.
        finished_s: When it finished, or None.
        held: Nodes that it holds, by index.
        nodes: How many it held when ``rate`` was set: what it ran on since.
        rate: Samples/s on ``nodes``.
        done: Samples trained, net of losses.
        finish_s: When it will finish if nothing changes, ``inf`` where it will
            not, or where finishing is only noticed at pool events.
        lump: Published accountings: samples to take off the next progress.
        resumes_s: Real accounting: until when it is paused.
        paused_by: Real accounting: why it is, or was last, paused.
        committed: Real accounting: samples trained at the last commit.
        uncommitted_s: Real accounting: training time since the last commit.
        work: Samples after which it is finished.
        points: The evaluations that it has passed and not lost.
    """

    serial: int
    spec: TrainerSpec
    rates: list[float]
    arrival_s: float
    admitted_s: float | None = None
    finished_s: float | None = None
    held: set[int] = field(default_factory=set)
    nodes: int = 0
    rate: float = 0.0
    done: float = 0.0
    finish_s: float = math.inf
    lump: float = 0.0
    resumes_s: float = 0.0
    paused_by: Cause = Cause.START
    committed: float = 0.0
    uncommitted_s: float = 0.0
    work: float = field(init=False)
    points: list[Point] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Look up once what is asked for at every event."""
        self.work = self.spec.work


@dataclass(slots=True)
class Tally:
    """Sums over a replay; docs/replay.md defines each.

    Attributes:
        wasted_node_s: Node-seconds held by trainers that were paused, or whose
            work was lost.
    """

    samples: float = 0.0
    finished: int = 0
    end_s: float = 0.0
    pool_node_s: float = 0.0
    used_node_s: float = 0.0
    wasted_node_s: float = 0.0
    rescale_samples: float = 0.0
    preempt_samples: float = 0.0
    start_samples: float = 0.0
    preemptions: int = 0
    rescales: int = 0
    events: int = 0


def usable_rates(scaling: Scaling) -> list[float]:
    """Return samples/s by node count, 0 where the trainer cannot run."""
    sizes = frozenset(scaling.sizes)
    speeds = scaling.samples_per_s.tolist()
    return [speed if n in sizes else 0.0 for n, speed in enumerate(speeds)]
