"""The discrete-event engine: pool events, arrivals and completions, in order.

Pure: same timeline, trainers, policy and accountant, same outcome.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from freetrain.errors import FreeTrainError
from freetrain.losscurve.forecast import MetricPoint
from freetrain.replay.accounting import Run, usable_rates
from freetrain.replay.policies.base import View
from freetrain.replay.pool import NO_NODES, NodePool, PoolEvent

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from collections.abc import Set as AbstractSet

    from freetrain.replay.accounting import Accountant
    from freetrain.replay.policies.base import Change, ReplayPolicy
    from freetrain.replay.pool import Nodes, PoolSource
    from freetrain.replay.settings import ReplaySettings
    from freetrain.replay.trainers import QualityTruth, Scaling, TrainerSpec


@dataclass(frozen=True, slots=True)
class Step:
    """The pool and its use from one event on.

    Attributes:
        time_s: Seconds from the start of the replay.
        idle_nodes: Nodes in the pool.
        used_nodes: Nodes of the pool that trainers hold.
        resized: Trainers whose node count changed at this event, with their new
            count: (trainer name, nodes).
        finished: Trainers that finished at this event, by name.
    """

    time_s: float
    idle_nodes: int
    used_nodes: int
    resized: tuple[tuple[str, int], ...]
    finished: tuple[str, ...]


class Engine:
    """One replay under way; ``run`` plays it to its end, ``advance`` event by event.

    Attributes:
        policy: Decides at every event.
        running: The admitted trainers, in order of admission.
        queue: Trainers that are not admitted, and every run there was.
        pool: Which run holds which node.
        tally: The sums so far.
        steps: The steps, if they are recorded.
    """

    def __init__(
        self,
        timeline: PoolSource,
        trainers: Sequence[TrainerSpec],
        *,
        policy: ReplayPolicy,
        accountant: Accountant,
        settings: ReplaySettings,
    ) -> None:
        self.queue = TrainerQueue(trainers)
        self.tally = accountant.tally
        self.steps: list[Step] = []
        self._timeline = timeline
        self.policy = policy
        self._accountant = accountant
        self._settings = settings
        self._most = math.inf if settings.parallel is None else settings.parallel
        self._every_s = settings.look_every_s or math.inf
        self._looked_s = 0.0
        self._evaluates = any(trainer.quality for trainer in trainers)
        self.pool = NodePool()
        self.running: list[Run] = []
        self._now_s = 0.0

    def run(self, on_progress: Callable[[float], None] | None = None) -> None:
        """Play the replay to its end.

        Args:
            on_progress: Called after every pool event with the fraction of the
                replay's span that is over.

        Raises:
            BrokenPolicyError: The policy broke its contract.
        """
        horizon_s = self._timeline.horizon_s
        for event in self._timeline.events():
            if self._accountant.stops_on_time and event.time_s >= horizon_s:
                break
            if not self.advance(event):
                return
            if on_progress is not None:
                on_progress(min(1.0, event.time_s / horizon_s))
        if self._accountant.stops_on_time and self.play_until(horizon_s):
            self._settle(NO_NODES, horizon_s)

    def advance(self, event: PoolEvent) -> bool:
        """Play all up to *event*, and the event; return whether more is to come."""
        return self.play_until(event.time_s) and self._play(event)

    def settle(self, now_s: float) -> None:
        """Play all up to *now_s* and at it, and count the progress made by then."""
        # Whoever finishes at this very time makes room, which is an event.
        goes_on = now_s <= self._now_s or self.play_until(
            math.nextafter(now_s, math.inf)
        )
        if goes_on and now_s > self._now_s:
            self._settle(NO_NODES, now_s)

    def play_until(self, until_s: float) -> bool:
        """Play arrivals, completions and polls; return whether more is to come."""
        while self._accountant.notices_at_once:
            next_s = min([run.finish_s for run in self.running], default=math.inf)
            if len(self.running) < self._most:
                next_s = min(next_s, self.queue.next_arrival_s)
            if self.running:
                next_s = min(next_s, self._looked_s + self._every_s)
            if next_s >= until_s:
                break
            if not self._play(PoolEvent(next_s, NO_NODES, NO_NODES)):
                return False
        return True

    def _play(self, event: PoolEvent) -> bool:
        """Play one event; return whether more is to come."""
        self.tally.events += event.time_s > 0
        hit, finished = self._settle(event.left, event.time_s)
        self.pool.join(event.joined)
        goes_on = event.time_s <= self._timeline.horizon_s
        if goes_on:
            self._admit()
            goes_on = bool(self.running) or not self.queue.is_empty
        moved = hit | self._decide(event) if goes_on else hit
        resized = [run for run in self.running if run in moved]
        for run in resized:
            self._accountant.resume(run, now_s=event.time_s)
        if self._settings.record_steps:
            self._record(resized, finished)
        return goes_on

    def _settle(self, left: Nodes, now_s: float) -> tuple[AbstractSet[Run], list[Run]]:
        """Count the time until *now_s*; return the runs that lost nodes or finished."""
        tally, pool, then_s = self.tally, self.pool, self._now_s
        tally.pool_node_s += pool.idle_nodes * (now_s - then_s)
        tally.used_node_s += pool.used_nodes * (now_s - then_s)
        hit = pool.leave(left)
        # Hundreds may wait without a node: nothing happens to them.
        active = [run for run in self.running if run.nodes or run.lump]
        finished = self._accountant.settle(active, hit, from_s=then_s, to_s=now_s)
        self._now_s = tally.end_s = now_s
        for run in self.running if self._evaluates else ():
            record_evaluations(run, from_s=then_s, to_s=now_s)
        for run in finished:
            self._finish(run)
        return hit, finished

    def _finish(self, run: Run) -> None:
        self.tally.finished += 1
        run.finished_s = self._now_s
        self.pool.drop(run, sorted(run.held))
        self.running.remove(run)
        if self._settings.requeue:
            self.queue.join(run.spec, self._now_s)

    def _admit(self) -> None:
        self.queue.arrive_until(self._now_s)
        while self.queue.waiting and len(self.running) < self._most:
            run = self.queue.waiting.popleft()
            run.admitted_s = self._now_s
            self.running.append(run)

    def _decide(self, event: PoolEvent) -> set[Run]:
        """Ask the policy, move nodes and charge for it; return the changed runs."""
        self._looked_s = self._now_s
        view = View(
            now_s=self._now_s,
            trainers=self.running,
            free=self.pool.free,
            idle_nodes=self.pool.idle_nodes,
            joined=event.joined,
            left=event.left,
        )
        changes = self.policy.decide(view)
        try:
            return self._apply(changes)
        except (ValueError, IndexError) as error:
            why = str(error)
            raise BrokenPolicyError(self.policy.name, self._now_s, why) from error

    def _apply(self, changes: Sequence[Change]) -> set[Run]:
        """Make *changes*, all drops before all takes; return the runs that changed.

        Raises:
            ValueError: They break the contract of ``ReplayPolicy``.
            IndexError: There is no such trainer.
        """
        runs = [self.running[change.trainer] for change in changes]
        before = [len(run.held) for run in runs]
        if len(set(runs)) < len(runs):
            raise ValueError("a trainer is changed twice")
        for run, change in zip(runs, changes, strict=True):
            if change.drop:
                self.pool.drop(run, change.drop)
            if run.held and change.drop and change.take:
                raise ValueError(f"{run.spec.name} keeps nodes, drops some, takes some")
        for run, change in zip(runs, changes, strict=True):
            if change.take:
                self.pool.take(run, change.take)
        for run, change, count in zip(runs, changes, before, strict=True):
            self._charge(run, change, count)
        return set(runs)

    def _charge(self, run: Run, change: Change, before: int) -> None:
        kept = before - len(change.drop)
        for here, there in ((before, kept), (kept, len(run.held))):
            if here != there:
                self._accountant.resized(
                    run, before=here, after=there, now_s=self._now_s
                )

    def _record(self, resized: Sequence[Run], finished: Sequence[Run]) -> None:
        step = Step(
            time_s=self._now_s,
            idle_nodes=self.pool.idle_nodes,
            used_nodes=self.pool.used_nodes,
            resized=tuple((run.spec.name, len(run.held)) for run in resized),
            finished=tuple(run.spec.name for run in finished),
        )
        self.steps.append(step)


class TrainerQueue:
    """Trainers that are not admitted: still to arrive, or waiting.

    Attributes:
        waiting: Runs that have arrived and are not admitted, in order of arrival.
        runs: Every run there ever was, in order of arrival.
    """

    def __init__(self, trainers: Sequence[TrainerSpec]) -> None:
        self.waiting: deque[Run] = deque()
        self.runs: list[Run] = []
        self._to_come = deque(sorted(trainers, key=lambda spec: spec.arrival_s))
        self._rates: dict[Scaling, list[float]] = {}

    @property
    def is_empty(self) -> bool:
        """Whether no trainer waits and none will arrive."""
        return not self.waiting and not self._to_come

    @property
    def next_arrival_s(self) -> float:
        """When the next trainer arrives, ``inf`` for never."""
        return self._to_come[0].arrival_s if self._to_come else math.inf

    def arrive_until(self, now_s: float) -> None:
        """Let all trainers wait that are submitted by *now_s*."""
        while self.next_arrival_s <= now_s:
            spec = self._to_come.popleft()
            self.join(spec, spec.arrival_s)

    def join(self, spec: TrainerSpec, arrival_s: float) -> None:
        """Put a new run of *spec* at the end of the waiting ones."""
        rates = self._rates.get(spec.scaling)
        if rates is None:
            rates = self._rates[spec.scaling] = usable_rates(spec.scaling)
        run = Run(len(self.runs), spec, rates, arrival_s)
        self.runs.append(run)
        self.waiting.append(run)


def record_evaluations(run: Run, *, from_s: float, to_s: float) -> None:
    """Add the evaluations of *run* since *from_s*, and drop those that it lost.

    An evaluation counts for as long as its training does: a run that goes back to a
    commit passes it again, later. Within the time settled a trainer trains last, after
    its pause, so that progress counts back from *to_s*.
    """
    if run.spec.quality is None:
        return
    points = run.points
    while points and points[-1].samples > run.done:
        points.pop()
    _add_passed(run, run.spec.quality, from_s=from_s, to_s=to_s)


def _add_passed(run: Run, truth: QualityTruth, *, from_s: float, to_s: float) -> None:
    points, place = run.points, len(run.points)
    while place < len(truth.samples) and truth.samples[place] <= run.done:
        samples = truth.samples.item(place)
        since_s = (run.done - samples) / run.rate if run.rate else 0.0
        t_s = max(from_s, to_s - since_s)
        points.append(
            MetricPoint(t_s=t_s, samples=samples, value=truth.values.item(place))
        )
        place += 1


class BrokenPolicyError(FreeTrainError):
    """A policy asked for a change that cannot be; the policy has a defect."""

    def __init__(self, policy: str, now_s: float, why: str) -> None:
        super().__init__(
            f"the policy {policy!r} broke a rule of the replay at {now_s:g} s: {why}. "
            f"The replay was stopped and reports nothing. This is a defect in the "
            f"policy; please report it with the command that you ran."
        )
