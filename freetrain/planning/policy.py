"""The interface of a policy: a request in, a plan out, both in nodes by class.

A tick and a replay build the same :class:`Request`. Nodes that a policy need not tell
apart form a class, which has a number; a *holding* says how many nodes of which class.
Where leases share nodes, a holding counts leases, each of which takes a trainer's width
in units of the class (:class:`milp.problem.NodeClass`).
``make_policy`` makes the policy of a name.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from freetrain.planning.settings import POLICIES
from freetrain.plugins import load
from milp.answer import Answer, Judged, Plan, PlanStatus, gap
from milp.problem import (
    NodeClass,
    Problem,
    ProblemTrainer,
    keep,
    loose_bound,
    plan_gain,
    violations,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from milp.problem import Curve
    from milp.window import AlikeClasses, Holding, Window, WindowClass


# Records that are made at every event of a replay are not frozen: a frozen one takes
# 1.5 us to make in place of 0.5. None of them is changed once it is made.


@dataclass(slots=True, kw_only=True, eq=False)
class PlanTrainer:
    """A trainer that is to be planned for.

    Policies keep what they derive from it for as long as they are given the same
    object: make a new one only where something has changed.

    Attributes:
        name: Unique in a request.
        curve: Its worth by count of leases.
        held: Leases that it holds now, by class.
        up_s: Seconds of its present worth that growing costs.
        down_s: Seconds of its present worth that shrinking costs.
        start_s: Seconds of its new worth that starting from no nodes costs.
        loss_s: Seconds of its worth that losing nodes costs.
        usable: Classes that it may use; None for all.
        widths: Units that one lease takes, by class; None, or no entry, for one.
    """

    name: str
    curve: Curve
    held: Holding
    up_s: float
    down_s: float
    start_s: float
    loss_s: float = 0.0
    usable: frozenset[int] | None = None
    widths: Mapping[int, int] | None = None

    def width(self, k: int) -> int:
        """Return the units of class *k* that one lease takes."""
        return 1 if self.widths is None else self.widths.get(k, 1)

    def units(self, holding: Holding) -> Holding:
        """Return the units that leases take, by class."""
        if self.widths is None:
            return holding
        return {k: leases * self.width(k) for k, leases in holding.items()}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ClassForecast:
    """How long the nodes of each class are expected to stay idle.

    Attributes:
        stays: The stay of the nodes, by class.
        reach_s: How far plans reach, seconds.
        hit_weight: [κ] What a foreseeable loss counts.
        change_weight: [η] What a change counts.
        groups: Classes whose nodes leave together, where these are several: those that
            last longest first, as they are filled up first.
        alike: Classes besides those of ``stays``, all of whose nodes are free; only
            where every trainer may use every class and takes one unit a lease.
        order: As ``Window`` has it.
    """

    stays: Mapping[int, WindowClass]
    reach_s: float
    hit_weight: float
    change_weight: float
    groups: tuple[tuple[int, ...], ...] = ()
    alike: Sequence[AlikeClasses] = ()
    order: Callable[[int], int] = int

    def fresh(
        self, held: Mapping[int, int], free: Mapping[int, int]
    ) -> dict[int, float]:
        """Return the share of hits on a class that are new to a trainer, if not all.

        A hit on a group counts once: on a later class only as far as it spares the
        earlier ones, of which nodes count that the trainer holds or that are free.

        Args:
            held: Its nodes by class.
            free: Nodes that no trainer holds, by class.
        """
        fresh = {}
        for group in self.groups:
            before = 0
            for k in group:
                own = held.get(k, 0) + free.get(k, 0)
                if own and before:
                    fresh[k] = (1.0 - self.stays[k].share) ** before
                before += own
        return fresh

    def of_nodes(self, nodes: Mapping[int, int]) -> ClassForecast:
        """Return the forecast for fewer nodes: groups leave as before, fewer hit."""
        stays = {
            k: stay
            if nodes[k] == stay.nodes
            else stay._replace(nodes=nodes[k], hit=stay.hits()[nodes[k]])
            for k, stay in self.stays.items()
        }
        return replace(self, stays=stays)


@dataclass(slots=True, kw_only=True, eq=False)
class Request:
    """The question: which trainer gets how many nodes of which class.

    Attributes:
        trainers: The trainers that want nodes.
        free: Units of capacity that none of them holds, by class: nodes, or GPUs where
            leases share nodes. Names every class, unless a forecast does. Of plans that
            gain the same, ``freetrain`` takes one in the classes named first.
        t_fwd_s: [T_fwd] Look-ahead over which the published objective counts a gain.
        background: Names of trainers that get only what the others leave.
        forecast: How long nodes stay; None where that is not known, or where leases
            take several units.
    """

    trainers: Sequence[PlanTrainer]
    free: Mapping[int, int]
    t_fwd_s: float
    background: frozenset[str] = frozenset()
    forecast: ClassForecast | None = None


@dataclass(slots=True, kw_only=True, eq=False)
class Planned:
    """A plan.

    Attributes:
        holdings: Nodes by class, of each trainer in the request's order.
        outcome: Whether it is proven optimal, the best found, or the present plan
            because no better one could be trusted.
        reason: Why, where there is more to say; for people.
        judged: Its gain and bound by the objective that it was made by; None where
            these were not worked out.
    """

    holdings: Sequence[Holding]
    outcome: PlanStatus = PlanStatus.INCUMBENT
    reason: str = ""
    judged: Judged | None = None

    @property
    def is_by_m0(self) -> bool:
        """Whether it was made by the published objective."""
        return self.judged is None or self.judged.is_m0

    @property
    def gap(self) -> float:
        """Its distance from the bound at most; 0 where that was not worked out."""
        return 0.0 if self.judged is None else gap(self.judged.gain, self.judged.bound)


class Policy(Protocol):
    """Decides which trainer gets how many nodes.

    Its constructor takes :class:`Tools`, and ``planning.settings`` names its class.
    """

    def plan(self, request: Request) -> Planned:
        """Return a plan that breaks no constraint of docs/reference/model.md.

        Raises:
            MalformedProblemError: The request contradicts itself.
        """
        ...


class ProblemSolver(Protocol):
    """Solves problems by the published objective: ``milp.planner.Planner``."""

    def plan(self, problem: Problem) -> Answer:
        """Return a verified plan; the present one where there is no better."""
        ...


class Search(Protocol):
    """Finds plans by how long nodes are expected to stay."""

    def begin(self) -> None:
        """Start the time limit of a plan, if there is one."""
        ...

    def find(self, window: Window, start: Sequence[int]) -> Planned:
        """Return the best plan found from the present one and from *start*.

        Args:
            window: The pool and its trainers.
            start: Nodes by trainer.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Tools:
    """Solvers for policies, which a policy makes only if it needs them.

    Attributes:
        solver: Makes a solver.
        start_solver: Makes a solver for plans from which another search starts.
        search: Makes a search that plans by forecasts.
        verifies: Whether policies check their plans once more: in ticks. In a replay
            the engine checks every change.
    """

    solver: Callable[[], ProblemSolver]
    start_solver: Callable[[], ProblemSolver]
    search: Callable[[], Search]
    verifies: bool = True


def make_policy(name: str, tools: Tools) -> Policy:
    """Return the policy *name*, which must be in ``POLICIES`` and plan in counts.

    Its module is imported here: a tick or a replay loads no other policy.
    """
    policy: Policy = load(POLICIES[name].made_by)(tools)
    return policy


# From a request to a problem of the count model, and back.

_MOST_STATES = 10_000
"""Some hundred bytes each; those of 300 trainers would not fit into a tenth."""


class TrainerStates(dict[PlanTrainer, ProblemTrainer]):
    """Makes trainers for the solver, each once for as long as the classes stay."""

    def __init__(self) -> None:
        super().__init__()
        self._classes: tuple[int, ...] = ()

    def of(
        self, trainers: Sequence[PlanTrainer], classes: tuple[int, ...]
    ) -> tuple[ProblemTrainer, ...]:
        """Return *trainers*, with what they hold of *classes*."""
        if classes != self._classes or len(self) > _MOST_STATES:
            self.clear()
            self._classes = classes
        return tuple([self[trainer] for trainer in trainers])

    def __missing__(self, trainer: PlanTrainer) -> ProblemTrainer:
        """Make a trainer."""
        made = self[trainer] = _state(trainer, self._classes)
        return made


def problem_of(request: Request, states: TrainerStates | None = None) -> Problem:
    """Return *request* as a problem of the count model, a class for each of ``free``.

    Args:
        request: The request; its trainers are not changed afterwards.
        states: Keeps trainers from one request to the next.
    """
    free = request.free
    if states is None:
        states = TrainerStates()
    trainers = states.of(request.trainers, tuple(free))
    classes = [
        NodeClass(
            f"{k}",
            nodes + sum([t.held[place] * t.width(place) for t in trainers]),
        )
        for place, (k, nodes) in enumerate(free.items())
    ]
    return Problem(tuple(classes), trainers, request.t_fwd_s)


def _state(trainer: PlanTrainer, classes: Sequence[int]) -> ProblemTrainer:
    usable = trainer.usable
    widths = tuple([trainer.width(k) for k in classes])
    return ProblemTrainer(
        name=trainer.name,
        curve=trainer.curve,
        held=tuple([trainer.held.get(k, 0) for k in classes]),
        up_s=trainer.up_s,
        down_s=trainer.down_s,
        start_s=trainer.start_s,
        usable=None
        if usable is None
        else frozenset(place for place, k in enumerate(classes) if k in usable),
        widths=None if all(width == 1 for width in widths) else widths,
    )


def planned_by(answer: Answer, request: Request) -> Planned:
    """Return a solver's answer to the problem of *request* as a plan."""
    return Planned(
        holdings=_holdings(answer.plan.counts, request),
        outcome=answer.outcome,
        reason=answer.reason,
        judged=answer.judged,
    )


def _holdings(
    counts: Sequence[Sequence[int]], request: Request
) -> Sequence[dict[int, int]]:
    classes = tuple(request.free)
    if len(classes) == 1:
        (k,) = classes
        return [{k: row[0]} if row[0] else {} for row in counts]
    return [
        {k: nodes for k, nodes in zip(classes, row, strict=True) if nodes}
        for row in counts
    ]


def counts_of(
    holdings: Sequence[Holding], request: Request
) -> tuple[tuple[int, ...], ...]:
    """Return *holdings* as rows of counts, a column for each class of ``free``."""
    return tuple([tuple([own.get(k, 0) for k in request.free]) for own in holdings])


def checked(
    request: Request,
    holdings: Sequence[Holding],
    *,
    outcome: PlanStatus,
    reason: str = "",
    judged: Judged | None = None,
) -> Planned:
    """Return a plan, or the present one where *holdings* break a constraint.

    Args:
        request: The request.
        holdings: The plan.
        outcome: How good it is.
        reason: Why, for people.
        judged: Its gain and bound; None for those by the published objective, with a
            bound that takes no time.
    """
    problem, counts = problem_of(request), counts_of(holdings, request)
    gain = plan_gain(problem, counts)
    bound = max(gain, loose_bound(problem))
    broken = violations(problem, Plan(counts, gain, bound))
    if broken:
        why = f"the plan was refused: {'; '.join(broken)} The present plan stays."
        return planned_by(Answer(keep(problem), PlanStatus.KEPT, why), request)
    return Planned(
        holdings=holdings,
        outcome=outcome,
        reason=reason,
        judged=judged or Judged(gain, bound, is_m0=True),
    )


# The background: planned after the others, with the nodes that these leave.


def plan_in_order(plan: Callable[[Request], Planned], request: Request) -> Planned:
    """Plan for the normal trainers first, then for the background with the rest.

    Args:
        plan: Plans for trainers of which none goes before another.
        request: The request.
    """
    if not request.background:
        return plan(request)
    last = [trainer.name in request.background for trainer in request.trainers]
    if not any(last) or all(last):
        return plan(replace(request, background=frozenset()))
    normal = plan(_normal(request, last))
    rest = _rest(request, last, normal)
    behind = plan(rest)
    worst = max(normal, behind, key=lambda part: list(PlanStatus).index(part.outcome))
    planned = checked(
        request,
        _merged(last, normal.holdings, behind.holdings),
        outcome=worst.outcome,
        reason=worst.reason,
        judged=_together(normal.judged, behind.judged),
    )
    if planned.outcome is not PlanStatus.KEPT:
        return planned
    # Trainers that lose nodes to others must not grow elsewhere at the same time.
    kept = planned_by(Answer(keep(problem_of(rest)), PlanStatus.KEPT), rest)
    return checked(
        request,
        _merged(last, normal.holdings, kept.holdings),
        outcome=worst.outcome,
        reason=worst.reason,
    )


def _normal(request: Request, last: Sequence[bool]) -> Request:
    """Return *request* without the background, whose nodes are free for all."""
    free = dict(request.free)
    for trainer, is_last in zip(request.trainers, last, strict=True):
        if is_last:
            for k, units in trainer.units(trainer.held).items():
                free[k] += units
    return replace(
        request,
        trainers=_those(request, last, is_last=False),
        free=free,
        background=frozenset(),
    )


def _rest(request: Request, last: Sequence[bool], normal: Planned) -> Request:
    """Return the request of the background, for what the others leave."""
    left = dict(request.free)
    for trainer in request.trainers:
        for k, units in trainer.units(trainer.held).items():
            left[k] += units
    first = _those(request, last, is_last=False)
    for trainer, own in zip(first, normal.holdings, strict=True):
        for k, units in trainer.units(own).items():
            left[k] -= units
    forecast = None if request.forecast is None else request.forecast.of_nodes(left)
    trainers = []
    for trainer in _those(request, last, is_last=True):
        held = {
            k: min(leases, left[k] // trainer.width(k))
            for k, leases in trainer.held.items()
        }
        held = {k: leases for k, leases in held.items() if leases}
        for k, units in trainer.units(held).items():
            left[k] -= units
        trainers.append(replace(trainer, held=held))
    return replace(
        request,
        trainers=trainers,
        free=left,
        background=frozenset(),
        forecast=forecast,
    )


def _those(
    request: Request, last: Sequence[bool], *, is_last: bool
) -> list[PlanTrainer]:
    pairs = zip(request.trainers, last, strict=True)
    return [trainer for trainer, its in pairs if its is is_last]


def _merged(
    last: Sequence[bool], normal: Sequence[Holding], behind: Sequence[Holding]
) -> list[Holding]:
    given = (iter(normal), iter(behind))
    return [next(given[is_last]) for is_last in last]


def _together(normal: Judged | None, behind: Judged | None) -> Judged | None:
    """Return the gain and bound of two plans; None where objectives differ."""
    if normal is None or behind is None or normal.is_m0 is not behind.is_m0:
        return None
    return Judged(normal.gain + behind.gain, normal.bound + behind.bound, normal.is_m0)
