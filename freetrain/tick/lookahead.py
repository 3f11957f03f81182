"""The planner ``lookahead`` in a tick: plans by what is expected of nodes, in time."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from freetrain.broker.foresight import classify_by, rank_by
from milp.keep import loose_bound
from milp.objective import plan_gain
from milp.planner import Answer, Judged, Outcome
from milp.problem import NodeClass, Plan, Problem
from milp.verify import constraint_violations
from milp.window import Holder, Window
from milp.window_answer import answer_window

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from freetrain.broker.decide import Plans
    from freetrain.broker.foresight import Forecast, Foreseen
    from freetrain.broker.pool import Classes, Pool, PoolNode
    from milp.problem import TrainerState
    from milp.window import Stay
    from milp.window_answer import WindowAnswer

    Counts = list[list[int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ahead:
    """What looking ahead takes beside the forecasts.

    Attributes:
        horizon_s: How far it looks.
        hit_weight: [κ] What a foreseeable loss counts.
        change_weight: [η] What a change counts.
        losses_s: [D_j] Seconds of its work that losing nodes costs each trainer.
        limit_s: Seconds that planning may take.
        clock: Seconds that only go up.
        wait_s: How long idle nodes wait for a lease that answers.
    """

    horizon_s: float
    hit_weight: float
    change_weight: float
    losses_s: Mapping[str, float]
    limit_s: float
    clock: Callable[[], float]
    wait_s: float = 0.0


class Foresight:
    """Sorts nodes by what is expected of them, and plans by that.

    Args:
        forecast: What is expected.
        ahead: How to plan with it.
        published: Plans where looking ahead cannot, and gives the counts that the
            search starts from besides the present ones.
        in_order: Makes a planner serve some trainers after the others.
    """

    def __init__(
        self,
        forecast: Forecast,
        ahead: Ahead,
        published: Plans,
        in_order: Callable[[Plans], Plans],
    ) -> None:
        self._forecast = forecast
        self._ahead = ahead
        self._published = published
        self._in_order = in_order

    def rank(self, nodes: Sequence[PoolNode], *, now_s: float) -> Sequence[PoolNode]:
        """Sort idle nodes, those that are expected to last longest first."""
        return rank_by(
            self._forecast, nodes, now_s=now_s, horizon_s=self._ahead.horizon_s
        )

    def prepare(self, pool: Pool, *, now_s: float) -> tuple[Classes, Plans]:
        """Return the classes of *pool*, and what plans with these."""
        foreseen = classify_by(
            self._forecast,
            pool,
            now_s=now_s,
            horizon_s=self._ahead.horizon_s,
            wait_s=self._ahead.wait_s,
        )
        planner = Lookahead(foreseen, self._ahead, self._published)
        return foreseen.classes, self._in_order(planner)


class Lookahead:
    """Plans with classes of nodes whose prospects are known; a ``Plans``.

    Args:
        foreseen: The classes, and what is expected of them.
        ahead: How to plan with that.
        published: Plans where this cannot.
    """

    def __init__(self, foreseen: Foreseen, ahead: Ahead, published: Plans) -> None:
        self._foreseen = foreseen
        self._ahead = ahead
        self._published = published
        self._until_s = ahead.clock() + ahead.limit_s

    def plan(self, problem: Problem) -> Answer:
        """Return a verified plan; the published one where this cannot be planned.

        Raises:
            MalformedProblemError: The problem contradicts itself.
        """
        parts = _parts(problem)
        if parts is None:
            return self._instead(problem, "trainers share some kinds of node, not all")
        counts = [[0] * len(problem.classes) for _ in problem.trainers]
        filled = [self._fill(problem, *part, counts) for part in parts]
        return self._answer(problem, counts, filled)

    def _answer(
        self, problem: Problem, counts: Counts, parts: Sequence[WindowAnswer]
    ) -> Answer:
        rows = tuple(map(tuple, counts))
        broken = constraint_violations(problem, rows)
        if broken:
            return self._instead(problem, f"its plan was refused: {'; '.join(broken)}")
        kinds = {one.outcome for one in parts}
        outcome = kinds.pop() if len(kinds) == 1 else Outcome.INCUMBENT
        gain = plan_gain(problem, rows)
        return Answer(
            plan=Plan(rows, gain, max(gain, loose_bound(problem))),
            outcome=outcome,
            reason="; ".join(one.reason for one in parts if one.reason),
            # By expected lives; how far it is from the best by M0 nobody asked.
            by_own=Judged(
                sum(one.gain for one in parts), sum(one.bound for one in parts)
            ),
        )

    def _instead(self, problem: Problem, why: str) -> Answer:
        """Return the published plan, and say that it is one."""
        answer = self._published.plan(problem)
        said = f"Looking ahead was left out: {why}."
        return replace(answer, reason=f"{said} {answer.reason}".strip())

    def _fill(
        self,
        problem: Problem,
        places: Sequence[int],
        usable: Sequence[int],
        counts: Counts,
    ) -> WindowAnswer:
        """Plan for the trainers at *places*, who may use the classes *usable*."""
        trainers = [problem.trainers[place] for place in places]
        window = self._window(problem, trainers, usable)
        starts = [self._start(problem, trainers, usable)]
        left_s = max(0.0, self._until_s - self._ahead.clock())
        answer = answer_window(window, starts, limit_s=left_s, clock=self._ahead.clock)
        for place, holding in zip(places, answer.holdings, strict=True):
            for k, nodes in holding.items():
                counts[place][k] = nodes
        return answer

    def _window(
        self, problem: Problem, trainers: Sequence[TrainerState], usable: Sequence[int]
    ) -> Window:
        free = {
            k: problem.classes[k].nodes - sum(one.held[k] for one in trainers)
            for k in usable
        }
        stays = {k: self._stay(k, problem) for k in usable if problem.classes[k].nodes}
        return Window(
            stays=stays,
            free={k: nodes for k, nodes in free.items() if nodes},
            trainers=tuple(self._holder(one, free) for one in trainers),
            hit_weight=self._ahead.hit_weight,
            change_weight=self._ahead.change_weight,
        )

    def _stay(self, k: int, problem: Problem) -> Stay:
        """Return what is expected of a class, however many of it are to be had.

        Who is served after others sees what they left of it: as many leave at once.
        """
        stay = self._foreseen.stays[k]
        hits = stay.hits()[problem.classes[k].nodes]
        return stay._replace(nodes=problem.classes[k].nodes, hit=hits)

    def _holder(self, trainer: TrainerState, free: Mapping[int, int]) -> Holder:
        held = {k: nodes for k, nodes in enumerate(trainer.held) if nodes}
        return Holder(
            curve=trainer.curve,
            held=held,
            up_s=trainer.up_s,
            down_s=trainer.down_s,
            start_s=trainer.start_s,
            loss_s=self._ahead.losses_s.get(trainer.name, trainer.down_s),
            fresh=self._foreseen.fresh(held, free),
        )

    def _start(
        self, problem: Problem, trainers: Sequence[TrainerState], usable: Sequence[int]
    ) -> list[int]:
        """Return the published counts, as if all nodes were alike until the horizon."""
        states = tuple(
            replace(one, held=(sum(one.held),), usable=None) for one in trainers
        )
        nodes = sum(problem.classes[k].nodes for k in usable)
        alike = Problem((NodeClass("alike", nodes),), states, self._ahead.horizon_s)
        answer = self._published.plan(alike)
        return [sum(row) for row in answer.plan.counts]


def _parts(problem: Problem) -> list[tuple[list[int], list[int]]] | None:
    """Split trainers by what they may use: places, and classes; None if these overlap.

    The window knows no unusable classes (M5), so each part must have its own.
    """
    every = frozenset(range(len(problem.classes)))
    by: dict[frozenset[int], list[int]] = {}
    for place, trainer in enumerate(problem.trainers):
        usable = every if trainer.usable is None else trainer.usable
        held = {k for k, nodes in enumerate(trainer.held) if nodes}
        if not held <= usable:
            return None
        by.setdefault(usable, []).append(place)
    used = [k for usable in by for k in usable]
    if len(used) > len(set(used)):
        return None
    return [(places, sorted(usable)) for usable, places in by.items()]
