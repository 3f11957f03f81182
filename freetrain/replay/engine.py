"""The discrete-event engine: pool events, arrivals and completions, in order.

Pure: same timeline, trainers, policy and accountant, same outcome.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections import deque
from typing import TYPE_CHECKING, Protocol

from freetrain.errors import FreeTrainError
from freetrain.losscurve.forecast import Point
from freetrain.replay.policies.base import View
from freetrain.replay.result import Cause, Run, Step, Tally, usable_rates
from freetrain.replay.timeline import PoolEvent

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Sequence
    from collections.abc import Set as AbstractSet

    from freetrain.replay.policies.base import Change, Policy
    from freetrain.replay.settings import ReplaySettings
    from freetrain.replay.timeline import PoolSource
    from freetrain.replay.trainers import QualityTruth, Scaling, TrainerSpec


# ----------------------------------------------------------------------
# How progress and costs are counted; docs/replay.md states the rules in full.


class Accountant(Protocol):
    """Keeps the books of one replay.

    The engine calls ``settle`` once an event, before it moves any node to a
    trainer; then ``resized`` for each trainer whose count the policy changed,
    in order of admission; then ``resume`` for each trainer whose count changed
    for whatever reason.

    Attributes:
        tally: Where the sums are kept.
        notices_at_once: Whether arrivals and completions are events, or wait
            for the next change of the pool.
        stops_on_time: Whether the replay ends at its horizon exactly, or with
            the first event after it.
    """

    tally: Tally
    notices_at_once: bool
    stops_on_time: bool

    def settle(
        self,
        runs: Sequence[Run],
        hit: Container[Run],
        *,
        from_s: float,
        to_s: float,
    ) -> list[Run]:
        """Count what *runs* did since *from_s*, then that *hit* lost nodes.

        Returns:
            The runs that are finished.
        """
        ...

    def resized(self, run: Run, *, before: int, after: int, now_s: float) -> None:
        """Charge *run* for a change of its node count that the policy made."""
        ...

    def resume(self, run: Run, *, now_s: float) -> None:
        """Let *run* go on with the nodes it holds now."""
        ...


class PublishedAccountant:
    """Costs are lumps of samples, as in the published evaluation.

    Source: the replay scripts of BFTrainer (arXiv 2106.12091).
    """

    stops_on_time = False

    def __init__(self, tally: Tally, *, notices_at_once: bool) -> None:
        self.tally = tally
        self.notices_at_once = notices_at_once

    def settle(
        self,
        runs: Sequence[Run],
        hit: Container[Run],
        *,
        from_s: float,
        to_s: float,
    ) -> list[Run]:
        """Count progress, overshoot removed, and one loss a trainer hit."""
        elapsed_s = to_s - from_s
        finished = []
        summed = 0.0
        for run in runs:
            gain = elapsed_s * run.rate - run.lump
            run.lump = 0.0
            is_due = run.finish_s <= to_s
            if run in hit and not is_due:
                gain -= self._loss(run)
            run.done += gain
            if is_due or run.done >= run.work:
                gain -= run.done - run.work
                run.done = run.work
                finished.append(run)
            summed += gain
        self.tally.samples += summed
        return finished

    def _loss(self, run: Run) -> float:
        cost_s = run.spec.costs.shrink_s
        self.tally.preempt_samples += cost_s * run.rate
        self.tally.preemptions += run.rate > 0
        self.tally.wasted_node_s += cost_s * run.nodes
        return cost_s * run.rate

    def resized(self, run: Run, *, before: int, after: int, now_s: float) -> None:
        """Take the cost's seconds at the speed before the change off the next gain."""
        del now_s  # a lump falls due with the next progress, whenever that is
        if before == 0:
            return
        costs = run.spec.costs
        cost_s = costs.grow_s if after > before else costs.shrink_s
        lump = run.rates[before] * cost_s
        run.lump += lump
        self.tally.rescale_samples += lump
        self.tally.wasted_node_s += cost_s * before
        self.tally.rescales += after > 0

    def resume(self, run: Run, *, now_s: float) -> None:
        """Set the speed, and when it is done if that is an event."""
        run.nodes = len(run.held)
        run.rate = run.rates[run.nodes]
        if self.notices_at_once:
            left = run.work - run.done + run.lump
            run.finish_s = now_s + left / run.rate if run.rate else math.inf


class RealAccountant:
    """Costs are pauses, and a lost node loses the work since the last commit."""

    notices_at_once = True
    stops_on_time = True

    def __init__(self, tally: Tally) -> None:
        self.tally = tally

    def settle(
        self,
        runs: Sequence[Run],
        hit: Container[Run],
        *,
        from_s: float,
        to_s: float,
    ) -> list[Run]:
        """Count training outside pauses, and roll those back that were hit."""
        finished = []
        summed = 0.0
        for run in runs:
            before = run.done
            self._train(run, from_s, to_s)
            if run.finish_s <= to_s:
                run.done = run.work
                finished.append(run)
            elif run in hit:
                self._roll_back(run, to_s)
            summed += run.done - before
        self.tally.samples += summed
        return finished

    def _train(self, run: Run, from_s: float, to_s: float) -> None:
        """Let *run* train from *from_s* or the end of its pause on."""
        trained_s = to_s - from_s
        if run.resumes_s > from_s and run.nodes:
            paused_s = min(run.resumes_s, to_s) - from_s
            trained_s -= paused_s
            self._charge(run.paused_by, paused_s * run.rate)
            self.tally.wasted_node_s += paused_s * run.nodes
        run.done += trained_s * run.rate
        _commit_when_due(run, trained_s)

    def _roll_back(self, run: Run, now_s: float) -> None:
        """Return *run* to its last commit and pause what is left of it."""
        self._charge(Cause.PREEMPTION, run.done - run.committed)
        run.done = run.committed
        self.tally.wasted_node_s += run.uncommitted_s * run.nodes
        self.tally.preemptions += run.rate > 0
        run.uncommitted_s = 0.0
        _pause(run, now_s + run.spec.costs.shrink_s, Cause.PREEMPTION)

    def resized(self, run: Run, *, before: int, after: int, now_s: float) -> None:
        """Commit, and pause for what the change costs."""
        costs = run.spec.costs
        run.committed, run.uncommitted_s = run.done, 0.0
        if before == 0:
            run.resumes_s, run.paused_by = now_s + costs.start_s, Cause.START
        elif after > 0:
            cost_s = costs.grow_s if after > before else costs.shrink_s
            _pause(run, now_s + cost_s, Cause.RESCALE)
            self.tally.rescales += 1

    def resume(self, run: Run, *, now_s: float) -> None:
        """Set the speed, and when it will be done."""
        run.nodes = len(run.held)
        run.rate = run.rates[run.nodes]
        left = run.work - run.done
        begins_s = max(now_s, run.resumes_s)
        run.finish_s = begins_s + left / run.rate if run.rate else math.inf

    def _charge(self, cause: Cause, samples: float) -> None:
        if cause is Cause.RESCALE:
            self.tally.rescale_samples += samples
        elif cause is Cause.PREEMPTION:
            self.tally.preempt_samples += samples
        else:
            self.tally.start_samples += samples


def _commit_when_due(run: Run, trained_s: float) -> None:
    """Make the commits of the last *trained_s*, which were at one speed."""
    every_s = run.spec.costs.checkpoint_every_s
    run.uncommitted_s += trained_s
    if run.uncommitted_s >= every_s:
        run.uncommitted_s = math.fmod(run.uncommitted_s, every_s) if every_s else 0.0
        uncommitted = run.uncommitted_s * run.rate
        run.committed = max(run.committed, run.done - uncommitted)


def _pause(run: Run, until_s: float, cause: Cause) -> None:
    """Pause *run* until *until_s*, unless a pause under way lasts longer.

    A change during a pause begins a new world, with a whole pause of its own;
    what is left of the old one runs at the same time.
    """
    if until_s >= run.resumes_s:
        run.resumes_s, run.paused_by = until_s, cause


# ----------------------------------------------------------------------
# What can go wrong in a replay besides its input.


class BrokenPolicyError(FreeTrainError):
    """A policy asked for a change that cannot be; the policy has a defect."""

    def __init__(self, policy: str, now_s: float, why: str) -> None:
        super().__init__(
            f"the policy {policy!r} broke a rule of the replay at {now_s:g} s: {why}. "
            f"The replay was stopped and reports nothing. This is a defect in the "
            f"policy; please report it with the command that you ran."
        )


# ----------------------------------------------------------------------
# Who holds which node; a move costs time in proportion to what moves.

# One insertion into a sorted list costs about 0.5 µs, sorting two runs into one
# or filtering about 10 ns a node of the whole list.
_FEW = 8


class Pool:
    """The idle nodes of a replay.

    Attributes:
        free: Idle nodes that no trainer holds, by index, ascending.
        since_s: By node: when it last became idle, seconds from the start of
            the replay; meaningless for nodes that are not idle.
        idle_nodes: How many nodes are idle, held or free.
    """

    def __init__(self, nodes: int) -> None:
        self.free: list[int] = []
        self.since_s = [0.0] * nodes
        self.idle_nodes = 0
        self._holder: list[Run | None] = [None] * nodes

    @property
    def used_nodes(self) -> int:
        """How many nodes trainers hold."""
        return self.idle_nodes - len(self.free)

    def holder(self, node: int) -> Run | None:
        """Return who holds *node*; None where it is free or not idle."""
        return self._holder[node]

    def join(self, nodes: Sequence[int], now_s: float) -> None:
        """Let *nodes* be idle from now on."""
        self.idle_nodes += len(nodes)
        for node in nodes:
            self.since_s[node] = now_s
        self._put(nodes)

    def leave(self, nodes: Sequence[int]) -> set[Run]:
        """Take *nodes* away and return the runs that held any of them."""
        self.idle_nodes -= len(nodes)
        hit, unheld = set(), []
        for node in nodes:
            holder = self._holder[node]
            if holder is None:
                unheld.append(node)
            else:
                self._holder[node] = None
                holder.held.remove(node)
                hit.add(holder)
        self._pull(unheld)
        return hit

    def drop(self, run: Run, nodes: Sequence[int]) -> None:
        """Let *run* give *nodes* up.

        Raises:
            ValueError: It does not hold one of them.
        """
        for node in nodes:
            if self._holder[node] is not run:
                raise ValueError(f"{run.spec.name} drops node {node}, not its own")
            self._holder[node] = None
        run.held.difference_update(nodes)
        self._put(nodes)

    def take(self, run: Run, nodes: Sequence[int]) -> None:
        """Let *run* have *nodes*.

        Raises:
            ValueError: One of them is not free.
        """
        self._pull(nodes)
        for node in nodes:
            self._holder[node] = run
        run.held.update(nodes)

    def _put(self, nodes: Sequence[int]) -> None:
        if len(nodes) > _FEW:
            self.free.extend(nodes)
            self.free.sort()
            return
        for node in nodes:
            insort(self.free, node)

    def _pull(self, nodes: Sequence[int]) -> None:
        """Remove *nodes* from the free ones.

        Raises:
            ValueError: One of them is not free.
        """
        if len(nodes) > _FEW:
            self._pull_many(nodes)
            return
        for node in nodes:
            place = bisect_left(self.free, node)
            if place == len(self.free) or self.free[place] != node:
                raise ValueError(f"node {node} is taken, which is not free")
            del self.free[place]

    def _pull_many(self, nodes: Sequence[int]) -> None:
        if self.free[-len(nodes) :] == list(nodes):
            del self.free[-len(nodes) :]
            return
        pulled = set(nodes)
        kept = [node for node in self.free if node not in pulled]
        if len(kept) + len(nodes) != len(self.free):
            missing = sorted(pulled - set(self.free))
            raise ValueError(f"nodes {missing} are taken, which are not free")
        self.free[:] = kept


# ----------------------------------------------------------------------
# Who waits for admission.


class Queue:
    """Trainers that are not under way: still to arrive, or waiting.

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
        """Whether nobody waits and nobody will arrive."""
        return not self.waiting and not self._to_come

    @property
    def next_arrival_s(self) -> float:
        """When the next trainer arrives, ``inf`` for never."""
        return self._to_come[0].arrival_s if self._to_come else math.inf

    def arrive_until(self, now_s: float) -> None:
        """Let everybody wait who is submitted by *now_s*."""
        while self.next_arrival_s <= now_s:
            spec = self._to_come.popleft()
            self.join(spec, spec.arrival_s)

    def join(self, spec: TrainerSpec, arrival_s: float) -> None:
        """Put a new run of *spec* at the end of those who wait."""
        rates = self._rates.get(spec.scaling)
        if rates is None:
            rates = self._rates[spec.scaling] = usable_rates(spec.scaling)
        run = Run(len(self.runs), spec, rates, arrival_s)
        self.runs.append(run)
        self.waiting.append(run)


# ----------------------------------------------------------------------
# What trainers tell of their quality as they pass the evaluations of their curves.


def tell(run: Run, *, from_s: float, to_s: float) -> None:
    """Let *run* tell what it evaluated since *from_s*, and forget what it lost.

    An evaluation counts for as long as the training stands behind it: who goes
    back to a commit passes it again, later. Within the time settled a trainer
    trains last, after its pause, so that progress counts back from *to_s*.
    """
    if run.spec.quality is None:
        return
    points = run.points
    while points and points[-1].samples > run.done:
        points.pop()
    _pass(run, run.spec.quality, from_s=from_s, to_s=to_s)


def _pass(run: Run, truth: QualityTruth, *, from_s: float, to_s: float) -> None:
    points, place = run.points, len(run.points)
    while place < len(truth.samples) and truth.samples[place] <= run.done:
        samples = truth.samples.item(place)
        since_s = (run.done - samples) / run.rate if run.rate else 0.0
        t_s = max(from_s, to_s - since_s)
        points.append(Point(t_s=t_s, samples=samples, value=truth.values.item(place)))
        place += 1


# ----------------------------------------------------------------------
# The discrete-event engine: pool events, arrivals and completions, in order.


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
