"""The discrete-event engine: pool events, arrivals and completions, in order.

Pure: same timeline, trainers, policy and accountant, same outcome.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from freetrain.replay.errors import BrokenPolicyError
from freetrain.replay.policies.interface import View
from freetrain.replay.pool import Pool
from freetrain.replay.queue import Queue
from freetrain.replay.result import Step
from freetrain.replay.telling import tell
from freetrain.replay.timeline import PoolEvent

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from collections.abc import Set as AbstractSet

    from freetrain.replay.accounting import Accountant
    from freetrain.replay.policies.interface import Change, Policy
    from freetrain.replay.runs import Run
    from freetrain.replay.settings import ReplaySettings
    from freetrain.replay.timeline import PoolSource
    from freetrain.trainers.spec import TrainerSpec


class Engine:
    """One replay under way; ``run`` plays it to its end.

    Attributes:
        queue: Everybody who is not under way, and every run there was.
        pool: Who holds which node.
        steps: What was recorded, where steps are.
    """

    def __init__(
        self,
        timeline: PoolSource,
        trainers: Sequence[TrainerSpec],
        *,
        policy: Policy,
        accountant: Accountant,
        settings: ReplaySettings,
    ) -> None:
        self.queue = Queue(trainers)
        self.steps: list[Step] = []
        self._timeline = timeline
        self._policy = policy
        self._accountant = accountant
        self._settings = settings
        self._most = math.inf if settings.parallel is None else settings.parallel
        self._every_s = settings.look_every_s or math.inf
        self._looked_s = 0.0
        self._tells = any(trainer.quality for trainer in trainers)
        self.pool = Pool(len(timeline.node_names))
        self._running: list[Run] = []
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
            if not self._play_until(event.time_s) or not self._play(event):
                return
            if on_progress is not None:
                on_progress(min(1.0, event.time_s / horizon_s))
        if self._accountant.stops_on_time and self._play_until(horizon_s):
            self._settle((), horizon_s)

    def _play_until(self, until_s: float) -> bool:
        """Play arrivals, completions and looks; tell if more is to come."""
        while self._accountant.notices_at_once:
            next_s = min([run.finish_s for run in self._running], default=math.inf)
            if len(self._running) < self._most:
                next_s = min(next_s, self.queue.next_arrival_s)
            if self._running:
                next_s = min(next_s, self._looked_s + self._every_s)
            if next_s >= until_s:
                break
            if not self._play(PoolEvent(next_s, (), ())):
                return False
        return True

    def _play(self, event: PoolEvent) -> bool:
        """Play one event; tell if more is to come."""
        self._accountant.tally.events += event.time_s > 0
        hit, finished = self._settle(event.left, event.time_s)
        self.pool.join(event.joined, event.time_s)
        goes_on = event.time_s <= self._timeline.horizon_s
        if goes_on:
            self._admit()
            goes_on = bool(self._running) or not self.queue.is_empty
        moved = hit | self._decide(event) if goes_on else hit
        resized = [run for run in self._running if run in moved]
        for run in resized:
            self._accountant.resume(run, now_s=event.time_s)
        if self._settings.record_steps:
            self._record(resized, finished)
        return goes_on

    def _settle(
        self, left: Sequence[int], now_s: float
    ) -> tuple[AbstractSet[Run], list[Run]]:
        """Count the time until *now_s*; return who lost nodes and who finished."""
        tally, pool, then_s = self._accountant.tally, self.pool, self._now_s
        tally.pool_node_s += pool.idle_nodes * (now_s - then_s)
        tally.used_node_s += pool.used_nodes * (now_s - then_s)
        hit = pool.leave(left)
        finished = self._accountant.settle(
            self._running, hit, from_s=then_s, to_s=now_s
        )
        self._now_s = tally.end_s = now_s
        for run in self._running if self._tells else ():
            tell(run, from_s=then_s, to_s=now_s)
        for run in finished:
            self._finish(run)
        return hit, finished

    def _finish(self, run: Run) -> None:
        self._accountant.tally.finished += 1
        run.finished_s = self._now_s
        self.pool.drop(run, sorted(run.held))
        self._running.remove(run)
        if self._settings.requeue:
            self.queue.join(run.spec, self._now_s)

    def _admit(self) -> None:
        self.queue.arrive_until(self._now_s)
        while self.queue.waiting and len(self._running) < self._most:
            run = self.queue.waiting.popleft()
            run.admitted_s = self._now_s
            self._running.append(run)

    def _decide(self, event: PoolEvent) -> set[Run]:
        """Ask the policy, move nodes and charge for it; return who changed."""
        self._looked_s = self._now_s
        view = View(
            now_s=self._now_s,
            trainers=self._running,
            free=self.pool.free,
            idle_nodes=self.pool.idle_nodes,
            since_s=self.pool.since_s,
            joined=event.joined,
            left=event.left,
        )
        changes = self._policy.decide(view)
        try:
            return self._apply(changes)
        except (ValueError, IndexError) as error:
            why = str(error)
            raise BrokenPolicyError(self._policy.name, self._now_s, why) from error

    def _apply(self, changes: Sequence[Change]) -> set[Run]:
        """Make *changes*, all drops before all takes; return who changed.

        Raises:
            ValueError: They break the contract of ``Policy``.
            IndexError: There is no such trainer.
        """
        runs = [self._running[change.trainer] for change in changes]
        before = [len(run.held) for run in runs]
        if len(set(runs)) < len(runs):
            raise ValueError("a trainer is changed twice")
        for run, change in zip(runs, changes, strict=True):
            self.pool.drop(run, change.drop)
            if run.held and change.drop and change.take:
                raise ValueError(f"{run.spec.name} keeps nodes, drops some, takes some")
        for run, change in zip(runs, changes, strict=True):
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
