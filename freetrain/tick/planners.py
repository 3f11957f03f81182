"""Who plans: the planner or equal shares, the background after the others."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from freetrain.planning.equal import equal_counts
from milp.planner import Answer, Judged, Outcome, Planner, SolverName
from milp.problem import Plan, Problem
from milp.verify import keep, loose_bound, plan_gain, violations

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from freetrain.broker.decide import Plans
    from freetrain.config.site import PlannerSettings
    from milp.problem import TrainerState


def planner_of(
    settings: PlannerSettings,
    *,
    background: frozenset[str],
    make: Callable[..., Plans] = Planner,
) -> Plans:
    """Return what plans as *settings* say.

    Args:
        settings: The site's.
        background: Names of trainers that get only what the others leave.
        make: Makes the planner: by its solver and the time that it may take.

    Raises:
        SolverUnavailableError: The solver asked for is not installed.
    """
    if settings.policy == "equal":
        return InOrder(EqualShares(), background)
    solver = SolverName(settings.solver)
    return InOrder(make(solver, limit_s=settings.solver_limit_s), background)


class InOrder:
    """Plans for the normal trainers first, then for the background with the rest."""

    def __init__(self, planner: Plans, background: frozenset[str]) -> None:
        self._planner = planner
        self._background = background

    def plan(self, problem: Problem) -> Answer:
        """Return a verified plan; the present one where there is no better.

        Raises:
            MalformedProblemError: The problem contradicts itself.
        """
        last = [trainer.name in self._background for trainer in problem.trainers]
        if not any(last) or all(last):
            return self._planner.plan(problem)
        first = self._planner.plan(_only(problem, last, is_last=False))
        rest = _rest(problem, last, first.plan)
        second = self._planner.plan(rest)
        counts = _merged(last, first.plan, second.plan)
        answer = _answer(problem, counts, [first, second], _together(first, second))
        if answer.outcome is not Outcome.KEPT:
            return answer
        # Who lost nodes to the others must not grow elsewhere at the same time.
        return _answer(problem, _merged(last, first.plan, keep(rest)), [first, second])


class EqualShares:
    """Gives every trainer the same number of nodes, whatever they are worth."""

    def plan(self, problem: Problem) -> Answer:
        """Return equal shares, of nodes already held where there are such."""
        if not problem.trainers:
            return Answer(Plan((), 0.0, 0.0), Outcome.INCUMBENT)
        free = [node_class.nodes for node_class in problem.classes]
        shares = equal_counts([t.curve.sizes for t in problem.trainers], sum(free))
        rows = [_kept(*one, free) for one in zip(problem.trainers, shares, strict=True)]
        for trainer, share, row in zip(problem.trainers, shares, rows, strict=True):
            _grow(trainer, share, row, free)
        own = Answer(Plan((), 0.0, 0.0), Outcome.INCUMBENT, "equal shares")
        return _answer(problem, tuple(map(tuple, rows)), [own])


def _kept(trainer: TrainerState, share: int, free: list[int]) -> list[int]:
    """Return what *trainer* keeps of what it holds, taken out of *free*."""
    usable = range(len(free)) if trainer.usable is None else trainer.usable
    row = [0] * len(free)
    for k in sorted(usable):
        row[k] = min(trainer.held[k], share - sum(row))
        free[k] -= row[k]
    return row


def _grow(trainer: TrainerState, share: int, row: list[int], free: list[int]) -> None:
    """Bring *row* to the largest size that the share and what is free allow."""
    usable = range(len(free)) if trainer.usable is None else sorted(trainer.usable)
    most = min(share, sum(row) + sum(free[k] for k in usable))
    size = max((n for n in trainer.curve.sizes if n <= most), default=0)
    for k in usable:
        change = max(-row[k], min(free[k], size - sum(row)))
        row[k] += change
        free[k] -= change


def _merged(
    last: Sequence[bool], first: Plan, second: Plan
) -> tuple[tuple[int, ...], ...]:
    given = (iter(first.counts), iter(second.counts))
    return tuple([next(given[is_last]) for is_last in last])


def _only(problem: Problem, last: Sequence[bool], *, is_last: bool) -> Problem:
    pairs = zip(problem.trainers, last, strict=True)
    return replace(problem, trainers=tuple(t for t, its in pairs if its is is_last))


def _rest(problem: Problem, last: Sequence[bool], first: Plan) -> Problem:
    """Return what the background may plan with once *first* has been served."""
    taken = [sum(row[k] for row in first.counts) for k in range(len(problem.classes))]
    classes = tuple(
        replace(one, nodes=one.nodes - gone)
        for one, gone in zip(problem.classes, taken, strict=True)
    )
    left = [one.nodes for one in classes]
    trainers = []
    for trainer in _only(problem, last, is_last=True).trainers:
        held = tuple(map(min, trainer.held, left))
        left = [n - gone for n, gone in zip(left, held, strict=True)]
        trainers.append(replace(trainer, held=held))
    return Problem(classes, tuple(trainers), problem.t_fwd_s)


def _together(first: Answer, second: Answer) -> Judged | None:
    """Return what two plans come to, the second of what the first left.

    None where one was made by another objective than the other.
    """
    one, other = first.judged, second.judged
    if one.is_m0 is not other.is_m0:
        return None
    return Judged(one.gain + other.gain, one.bound + other.bound, one.is_m0)


def _answer(
    problem: Problem,
    counts: tuple[tuple[int, ...], ...],
    parts: Sequence[Answer],
    judged: Judged | None = None,
) -> Answer:
    """Return *counts* as an answer as good as the worst of its *parts*, if sound.

    Args:
        problem: What was planned.
        counts: The plan.
        parts: The answers that it was made from.
        judged: What it comes to; None for M0, under a bound that takes no time.
    """
    gain = plan_gain(problem, counts)
    plan = Plan(counts, gain, max(gain, loose_bound(problem)))
    broken = violations(problem, plan)
    if broken:
        why = f"the plan was refused: {'; '.join(broken)} The present plan stays."
        return Answer(keep(problem), Outcome.KEPT, why)
    worst = max(parts, key=lambda part: list(Outcome).index(part.outcome))
    return Answer(plan, worst.outcome, worst.reason, judged)
