"""Progress and costs of a replay; docs/notes/replay.md has the rules.

The engine reports every event of the runs under way to an accountant, which keeps their
speeds, their losses and the sums.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Container, Sequence

    from freetrain.losscurve.forecast import MetricPoint
    from freetrain.replay.trainers import Scaling, TrainerSpec


class Cause(StrEnum):
    """Why a trainer is paused."""

    START = "start"
    RESCALE = "rescale"
    PREEMPTION = "preemption"


@dataclass(slots=True, eq=False)
class Run:
    """One run of a trainer, from its arrival to its finish.

    Attributes:
        serial: Unique in the replay; a trainer that starts over gets a new one.
        rates: Samples/s at 0 .. max nodes; 0 at sizes it cannot run on.
        arrival_s: When it was submitted, or started over.
        held: Nodes that it holds, by index.
        nodes: Nodes that it has run on since ``rate`` was set.
        rate: Samples/s on ``nodes``.
        done: Samples trained, net of losses.
        finish_s: When it will finish if nothing changes, ``inf`` where it will
            not, or where finishing is only noticed at pool events.
        lump: Published accountings: samples to take off the next progress.
        resumes_s: Real accounting: until when it is paused.
        paused_by: Real accounting: why it is, or was last, paused.
        committed: Real accounting: samples trained at the last commit.
        uncommitted_s: Real accounting: training time since the last commit.
        points: The evaluations that it has passed and whose work is not lost.
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
    points: list[MetricPoint] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Look up once what every event needs."""
        self.work = self.spec.work


@dataclass(slots=True)
class Tally:
    """Sums over a replay; docs/notes/replay.md defines each.

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


class Accountant(Protocol):
    """Keeps the books of one replay.

    The engine calls ``settle`` once an event, before it moves any node to a
    trainer; then ``resized`` for each trainer whose count the policy changed,
    in order of admission; then ``resume`` for each trainer whose count changed,
    for any reason.

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
    the rest of the old one runs at the same time.
    """
    if until_s >= run.resumes_s:
        run.resumes_s, run.paused_by = until_s, cause
