"""The policy ``lookahead``: plans by how long nodes are expected to stay idle.

docs/notes/lookahead.md has the objective, W0. The search for a plan starts from the
present one and from the counts of the published plan. In a request with a forecast
every lease takes one unit of its class.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING, NamedTuple

from freetrain.planning.freetrain import FreeTrain
from freetrain.planning.policy import (
    Planned,
    counts_of,
    plan_in_order,
    problem_of,
)
from milp.answer import Judged, PlanStatus
from milp.problem import NodeClass, Problem, ProblemTrainer, constraint_violations
from milp.window import Window, WindowTrainer
from milp.window_search import WindowPlanner

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from freetrain.planning.policy import (
        ClassForecast,
        PlanTrainer,
        ProblemSolver,
        Request,
        Tools,
    )
    from milp.problem import Curve
    from milp.window import Holding

_MOST_KINDS = 10_000
"""A few hundred bytes each, where a curve is kept for them."""

_MOST_COUNTS = 10_000
"""A few hundred bytes each."""


class Lookahead:
    """Plans by forecasts; as ``freetrain`` where there are none, or none that fit."""

    def __init__(self, tools: Tools) -> None:
        self._published = FreeTrain(tools)
        self._starts = Starts(tools.start_solver())
        self._search = tools.search()
        self._verifies = tools.verifies
        self._trainers = KnownTrainers()

    def plan(self, request: Request) -> Planned:
        """Return a verified plan; the published one where this cannot be planned."""
        self._search.begin()
        return plan_in_order(self._plan, request)

    def _plan(self, request: Request) -> Planned:
        forecast = request.forecast
        if forecast is None:
            return self._published.plan(request)
        parts = _parts(request, frozenset(forecast.stays))
        if parts is None:
            return self._instead(request, "trainers share some kinds of node, not all")
        found = [self._fill(request, forecast, *part) for part in parts]
        holdings: Sequence[Holding]
        if len(parts) == 1:
            holdings = found[0].holdings
        else:
            by_place = {
                place: own
                for (places, _), part in zip(parts, found, strict=True)
                for place, own in zip(places, part.holdings, strict=True)
            }
            holdings = [by_place[place] for place in range(len(request.trainers))]
        if self._verifies:
            problem = problem_of(request)
            broken = constraint_violations(problem, counts_of(holdings, request))
            if broken:
                return self._instead(
                    request, f"its plan was refused: {'; '.join(broken)}"
                )
        outcomes = {part.outcome for part in found}
        return Planned(
            holdings=holdings,
            outcome=outcomes.pop() if len(outcomes) == 1 else PlanStatus.INCUMBENT,
            reason="; ".join(part.reason for part in found if part.reason),
            # By expected lives; its distance from the best by M0 is not worked out.
            judged=_sum([part.judged for part in found]),
        )

    def _instead(self, request: Request, why: str) -> Planned:
        """Return the published plan; its reason says so."""
        planned = self._published.plan(request)
        reason = f"Looking ahead was left out: {why}. {planned.reason}".strip()
        return replace(planned, reason=reason)

    def _fill(
        self,
        request: Request,
        forecast: ClassForecast,
        places: Sequence[int],
        classes: Sequence[int],
    ) -> Planned:
        """Plan for the trainers at *places*, which may use *classes*."""
        trainers = [request.trainers[place] for place in places]
        known = self._trainers.of(trainers)
        own = frozenset(classes)
        free = {k: nodes for k, nodes in request.free.items() if nodes and k in own}
        used = free.keys() | {k for trainer in trainers for k in trainer.held}
        holders = [trainer.holder for trainer in known]
        if forecast.groups:
            holders = [
                replace(holder, new_hit_share=forecast.fresh(holder.held, free))
                for holder in holders
            ]
        window = Window(
            classes={k: forecast.stays[k] for k in classes if k in used},
            free=free,
            trainers=tuple(holders),
            hit_weight=forecast.hit_weight,
            change_weight=forecast.change_weight,
            alike=forecast.alike,
            order=forecast.order,
        )
        nodes = window.free_nodes + sum([own.state.held[0] for own in known])
        start = self._starts.counts(known, nodes, forecast.reach_s)
        return self._search.find(window, start)


def _sum(judged: Sequence[Judged | None]) -> Judged:
    known = [part for part in judged if part is not None]
    return Judged(sum(part.gain for part in known), sum(part.bound for part in known))


def _parts(
    request: Request, every: frozenset[int]
) -> list[tuple[Sequence[int], Sequence[int]]] | None:
    """Split trainers by the classes that they may use: places and classes by part.

    The window knows no unusable classes (M5), so that each part must have its own:
    None where parts overlap.

    Args:
        request: The request.
        every: All classes.
    """
    by: dict[frozenset[int], list[int]] = {}
    for place, trainer in enumerate(request.trainers):
        usable = every if trainer.usable is None else trainer.usable
        if not usable.issuperset(trainer.held):
            return None
        by.setdefault(usable, []).append(place)
    if len(by) > 1 and sum(map(len, by)) > len(frozenset().union(*by)):
        return None
    return [(places, sorted(usable)) for usable, places in by.items()]


class KnownTrainer(NamedTuple):
    """A trainer in the forms that planners take.

    Attributes:
        holder: For the planner that looks ahead.
        state: For the published planner, all nodes alike.
        kind: The same number for trainers that the published planner cannot tell apart.
    """

    holder: WindowTrainer
    state: ProblemTrainer
    kind: int


class KnownTrainers:
    """Brings trainers into the forms that planners take, each once."""

    def __init__(self) -> None:
        self._known: dict[PlanTrainer, KnownTrainer] = {}
        self._kinds: dict[tuple[Curve, int, float, float, float], int] = {}
        self._numbers = count()

    def of(self, trainers: Sequence[PlanTrainer]) -> list[KnownTrainer]:
        """Return *trainers*, known ones as they were."""
        before = self._known
        known = [before.get(trainer) or self._made(trainer) for trainer in trainers]
        self._known = dict(zip(trainers, known, strict=True))
        return known

    def _made(self, trainer: PlanTrainer) -> KnownTrainer:
        curve, held = trainer.curve, sum(trainer.held.values())
        up_s, down_s, start_s = trainer.up_s, trainer.down_s, trainer.start_s
        kind = self._kinds.get((curve, held, up_s, down_s, start_s))
        if kind is None:
            if len(self._kinds) >= _MOST_KINDS:
                self._kinds.clear()
            # Never a number that was another kind's, which may be remembered.
            kind = next(self._numbers)
            self._kinds[curve, held, up_s, down_s, start_s] = kind
        return KnownTrainer(
            WindowTrainer(
                curve=curve,
                held=trainer.held,
                up_s=up_s,
                down_s=down_s,
                start_s=start_s,
                loss_s=trainer.loss_s,
            ),
            ProblemTrainer(
                name=trainer.name,
                curve=curve,
                held=(held,),
                up_s=up_s,
                down_s=down_s,
                start_s=start_s,
            ),
            kind,
        )


class Starts:
    """Published counts, as if all nodes were alike, that a search starts from.

    The published planner counts nodes and does not tell them apart, so that its answer
    follows from the number of nodes and of those that each trainer holds: on two days
    of Summit the same at one event of eight with 10 trainers at a time, at one of ten
    with 40. So a proven answer is kept. For trainers in another order it may be another
    of several best plans.

    Args:
        solver: The published planner.
    """

    def __init__(self, solver: ProblemSolver) -> None:
        self._solver = solver
        self._known: dict[tuple[float, ...], Sequence[int]] = {}

    def counts(
        self, trainers: Sequence[KnownTrainer], nodes: int, t_fwd_s: float
    ) -> Sequence[int]:
        """Return nodes by trainer."""
        asked = (t_fwd_s, nodes, *[trainer.kind for trainer in trainers])
        known = self._known.get(asked)
        if known is not None:
            return known
        states = tuple([trainer.state for trainer in trainers])
        answer = self._solver.plan(
            Problem((NodeClass("alike", nodes),), states, t_fwd_s)
        )
        counts = tuple([row[0] for row in answer.plan.counts])
        # A plan at which the solver was stopped may be better the next time.
        if answer.outcome is PlanStatus.PROVEN:
            if len(self._known) >= _MOST_COUNTS:
                self._known.clear()
            self._known[asked] = counts
        return counts


class QuickSearch:
    """Finds good plans in milliseconds and proves nothing; for replays.

    Args:
        note: Takes each window and the gain of its plan, by which the distance from
            the best is measured later.
    """

    def __init__(self, note: Callable[[Window, float], None] | None = None) -> None:
        self._planner = WindowPlanner()
        self._note = note

    def begin(self) -> None:
        """Do nothing: it takes no time worth limiting."""

    def find(self, window: Window, start: Sequence[int]) -> Planned:
        """Return the best plan found."""
        plan = self._planner.plan(window, (start,))
        if self._note is not None:
            self._note(window, plan.gain)
        return Planned(holdings=plan.holdings)


class ProvingSearch:
    """Finds plans, and how far from the best they are at most; for ticks.

    Args:
        limit_s: Seconds that planning may take.
        clock: Seconds that only go up.
    """

    def __init__(self, limit_s: float, clock: Callable[[], float]) -> None:
        self._limit_s = limit_s
        self._clock = clock
        self._until_s = 0.0

    def begin(self) -> None:
        """Let the time begin that planning may take."""
        self._until_s = self._clock() + self._limit_s

    def find(self, window: Window, start: Sequence[int]) -> Planned:
        """Return the best plan found in the time that is left."""
        # PuLP takes 0.1 s to import, which a replay is spared.
        from milp.window_planner import answer_window  # noqa: PLC0415

        left_s = max(0.0, self._until_s - self._clock())
        found = answer_window(window, (start,), limit_s=left_s, clock=self._clock)
        return Planned(
            holdings=found.holdings,
            outcome=found.outcome,
            reason=found.reason,
            judged=Judged(found.gain, found.bound),
        )
