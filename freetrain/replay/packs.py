"""Replay packs: trainers that share crowded nodes, and move from one to another.

A trainer is put on the node with the fewest when it arrives. Those on a node have
equal shares of it. Under ``placed`` they stay there to their end, as containers do;
under the rules of live packs (``freetrain.priority.migration``) they move. Under
``work-left`` they move by what truly is left to do, which no user knows quite.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from freetrain.losscurve.forecast import MetricDirection
from freetrain.priority import flowcon
from freetrain.priority.migration import (
    RULES,
    Migration,
    MoveRule,
    PackLoad,
    PackMember,
)
from freetrain.replay.accounting import Run
from freetrain.replay.engine import record_evaluations
from freetrain.replay.run import learning_of
from freetrain.replay.settings import PLACED, WORK_LEFT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from freetrain.replay.run import Learning
    from freetrain.replay.trainers import TrainerSpec

_SHARES = (0.1, 0.25, 0.5, 1.0)
_STEP_TIMES = (1.25, 1.20, 1.12, 1.0)
"""Times a step takes at these shares of a processor, over what the share would have it
(docs/notes/recorded-curves.md)."""

_LEAST_GAIN = 0.05
"""A move by work left has to lower the larger of two nodes' work by this part."""


@dataclass(frozen=True, slots=True)
class PackReplay:
    """The result of a replay of packs.

    Attributes:
        rule: Of ``PACK_RULES``.
        end_s: When the last trainer finished.
        moves: How often trainers moved.
        learning: What became of the trainers.
    """

    rule: str
    end_s: float
    moves: int
    learning: tuple[Learning, ...]


def replay_packs(
    trainers: Sequence[TrainerSpec],
    rule: str,
    *,
    nodes: int,
    interval_s: float,
    cost_factor: float = 1.0,
) -> PackReplay:
    """Replay *trainers* on *nodes* packs until all have finished.

    Args:
        trainers: With quality curves.
        rule: Of ``PACK_RULES``.
        nodes: How many nodes there are, each with a pack.
        interval_s: Growth is measured, and a move is begun, so often. A trainer that
            has just come stays as long.
        cost_factor: Multiplies the seconds of a start, which a move costs, too.
    """
    engine = _Engine(trainers, rule, nodes, interval_s, cost_factor)
    engine.run()
    return PackReplay(
        rule=rule,
        end_s=engine.now_s,
        moves=engine.moves,
        learning=learning_of(engine.runs),
    )


@dataclass(slots=True, eq=False)
class _Member:
    """A trainer on a node.

    Attributes:
        run: What it has done.
        came_s: When it came to the node.
        resumes_s: When it begins to train there.
        used_s: Seconds of the whole node that it has used.
        seen: Points of its curve up to the last measurement of its growth.
    """

    run: Run
    came_s: float
    resumes_s: float
    used_s: float = 0.0
    seen: int = 0

    @property
    def left_s(self) -> float:
        """Seconds of the remaining work alone on a node."""
        return (self.run.work - self.run.done) / self.run.rates[1]


@dataclass(slots=True, eq=False)
class _Node:
    members: list[_Member] = field(default_factory=list)
    growth: flowcon.FlowConState = field(default_factory=flowcon.FlowConState)

    @property
    def left_s(self) -> float:
        return sum(member.left_s for member in self.members)


class _Engine:
    """Goes from event to event: arrivals, ends, looks of the rule, ends of pauses."""

    def __init__(
        self,
        trainers: Sequence[TrainerSpec],
        rule: str,
        nodes: int,
        interval_s: float,
        cost_factor: float,
    ) -> None:
        order = sorted(trainers, key=lambda trainer: trainer.arrival_s)
        self.runs = [
            Run(k, spec, spec.scaling.samples_per_s.tolist(), spec.arrival_s)
            for k, spec in enumerate(order)
        ]
        self.moves = 0
        self.now_s = self.runs[0].arrival_s
        self._rule = rule
        self._interval_s = interval_s
        self._cost_factor = cost_factor
        self._settings = flowcon.FlowConSettings(interval_s=interval_s)
        self._nodes = [_Node() for _ in range(nodes)]
        self._coming = deque(self.runs)
        self._look_s = self.now_s + interval_s

    def run(self) -> None:
        """Play until all trainers have finished."""
        while self._coming or any(node.members for node in self._nodes):
            while self._coming and self._coming[0].arrival_s <= self.now_s:
                node = min(self._nodes, key=lambda node: len(node.members))
                self._put(self._coming.popleft(), node)
            if self._rule != PLACED:
                self._look()
            self._advance()

    def _put(self, run: Run, node: _Node) -> None:
        start_s = run.spec.costs.start_s * self._cost_factor
        node.members.append(_Member(run, self.now_s, self.now_s + start_s))

    # Time

    def _advance(self) -> None:
        """Train until the next event."""
        shares = self._shares()
        ends_s = [
            self.now_s + (member.run.work - member.run.done) / member.run.rate
            for member in shares
        ]
        pauses_s = [
            member.resumes_s
            for node in self._nodes
            for member in node.members
            if member.resumes_s > self.now_s
        ]
        others_s = [run.arrival_s for run in list(self._coming)[:1]]
        others_s += [] if self._rule == PLACED else [self._look_s]
        to_s = min([*ends_s, *pauses_s, *others_s])
        passed_s = to_s - self.now_s
        for (member, share), end_s in zip(shares.items(), ends_s, strict=True):
            run = member.run
            is_over = end_s <= to_s
            run.done = run.work if is_over else run.done + run.rate * passed_s
            run.finished_s = to_s if is_over else None
            member.used_s += share * passed_s
            record_evaluations(run, from_s=self.now_s, to_s=to_s)
        for node in self._nodes:
            node.members = [m for m in node.members if m.run.finished_s is None]
        self.now_s = to_s

    def _shares(self) -> dict[_Member, float]:
        """Return the share of its node of each member that trains; set its rate."""
        shares: dict[_Member, float] = {}
        for node in self._nodes:
            busy = [m for m in node.members if m.resumes_s <= self.now_s]
            for member in busy:
                share = 1 / len(busy)
                slower = float(np.interp(share, _SHARES, _STEP_TIMES))
                member.run.rate = member.run.rates[1] * share / slower
                shares[member] = share
        return shares

    # Moves

    def _look(self) -> None:
        """Measure growth where that is due, and begin the next move."""
        for node in self._nodes:
            if node.members and self._rule == MoveRule.SPECON:
                self._measure(node)
        if self.now_s < self._look_s:
            return
        self._look_s = self.now_s + self._interval_s
        loads = [self._load(k, node) for k, node in enumerate(self._nodes)]
        if self._rule == WORK_LEFT:
            move = self._by_work_left(loads)
        else:
            move = RULES[MoveRule(self._rule)](loads)
        if move is None:
            return
        source, target = self._nodes[int(move.source)], self._nodes[int(move.target)]
        gone = next(m for m in source.members if m.run.spec.name == move.member)
        source.members.remove(gone)
        self._put(gone.run, target)
        self.moves += 1

    def _measure(self, node: _Node) -> None:
        names = [member.run.spec.name for member in node.members]
        if not flowcon.is_due(node.growth, names, self.now_s):
            return
        samples = [_growth_sample(member) for member in node.members]
        node.growth = flowcon.update(node.growth, samples, self.now_s, self._settings)
        for member, track in zip(node.members, node.growth.tracks, strict=True):
            if track.measured_s == self.now_s:
                member.seen = len(member.run.points)

    def _load(self, k: int, node: _Node) -> PackLoad:
        tracks = {track.name: track for track in node.growth.tracks}
        members = []
        for member in node.members:
            track = tracks.get(member.run.spec.name)
            members.append(
                PackMember(
                    name=member.run.spec.name,
                    growth=track.growth if track else None,
                    is_slow=track is not None
                    and track.place is flowcon.GrowthList.COMPLETING,
                    can_move=self.now_s - member.came_s >= self._interval_s,
                )
            )
        return PackLoad(pack=str(k), cpus=1, members=tuple(members))

    def _by_work_left(self, loads: Sequence[PackLoad]) -> Migration | None:
        """Return the move that leaves least to the node with most work, if any."""
        order = sorted(range(len(self._nodes)), key=lambda k: self._nodes[k].left_s)
        least, most = order[0], order[-1]
        there_s, here_s = self._nodes[least].left_s, self._nodes[most].left_s
        best, best_s = None, (1 - _LEAST_GAIN) * here_s
        pairs = zip(self._nodes[most].members, loads[most].members, strict=True)
        for member, seen in pairs:
            after_s = max(here_s - member.left_s, there_s + member.left_s)
            if seen.can_move and after_s < best_s:
                best, best_s = Migration(seen.name, str(most), str(least)), after_s
        return best


def _growth_sample(member: _Member) -> flowcon.GrowthSample:
    truth = member.run.spec.quality
    is_higher = truth is not None and truth.better is MetricDirection.HIGHER
    sign = -1.0 if is_higher else 1.0
    points = member.run.points[member.seen :]
    return flowcon.GrowthSample(
        name=member.run.spec.name,
        values=tuple((point.t_s, sign * point.value) for point in points),
        used_s=member.used_s,
    )
