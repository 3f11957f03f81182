"""From a look to actions: the whole of a tick that needs no outside world."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Protocol

from freetrain.broker.actual import Actual
from freetrain.broker.brakes import allowance
from freetrain.broker.claims import NO_CLAIMS, Claims
from freetrain.broker.pace import NOTHING_LATELY, Pace
from freetrain.broker.pool import classify, pool_of
from freetrain.broker.reconcile import reconcile
from freetrain.broker.wanted import problem_of, wanted_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from freetrain.broker.actions import Action
    from freetrain.broker.belief import Belief
    from freetrain.broker.brakes import Brake
    from freetrain.broker.lease import Assignment, LeaseKey
    from freetrain.broker.limits import Limits
    from freetrain.broker.pool import Classes, Pool, PoolNode
    from freetrain.broker.wanted import Trainer, Wanted
    from milp.planner import Answer
    from milp.problem import Problem
    from slurm.holes import Hole


class Plans(Protocol):
    """What plans: ``milp.planner.Planner``, or a fake of it."""

    def plan(self, problem: Problem) -> Answer:
        """Return a verified plan; the present one where there is no better."""
        ...


class Prepares(Protocol):
    """What sorts the nodes of a pool in its own way, and plans with that."""

    def rank(self, nodes: Sequence[PoolNode], *, now_s: float) -> Sequence[PoolNode]:
        """Sort idle nodes, those worth a lease first."""
        ...

    def prepare(self, pool: Pool, *, now_s: float) -> tuple[Classes, Plans]:
        """Return the classes of *pool*, and what plans with these."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """All that a decision is made of.

    Attributes:
        now_s: When the snapshot was taken, by slurmctld's clock.
        holes: Holes by shape: one ``find_holes`` for each requirement.
        belief: What is believed of our leases.
        trainers: Trainers that want nodes, in order of admission.
        assignments: The newest generation of every trainer that has one.
        claims: Nodes that others' jobs could start on; none where Slurm preempts.
        pace: What happened lately.
        silent: Leases whose agents do not answer: not up yet, leaving, or lost.
        absent: Leases of which no agent was ever heard.
        unheard_s: For how long running leases have not been heard.
        is_plan_known: Whether the holes can be trusted.
    """

    now_s: float
    holes: Mapping[str, tuple[Hole, ...]]
    belief: Belief
    trainers: tuple[Trainer, ...]
    assignments: tuple[Assignment, ...]
    claims: Claims = NO_CLAIMS
    pace: Pace = NOTHING_LATELY
    silent: frozenset[LeaseKey] = frozenset()
    absent: frozenset[LeaseKey] = frozenset()
    unheard_s: Mapping[LeaseKey, float] = field(default_factory=dict)
    is_plan_known: bool = True


@dataclass(frozen=True, slots=True)
class Decision:
    """What to do, and all that explains it.

    Attributes:
        actions: What to do, in order.
        wanted: What the plan asks for.
        classes: The nodes planned with.
        actual: What was so.
        answer: What the planner said.
        brake: What keeps more leases from being asked for, None for nothing.
    """

    actions: tuple[Action, ...]
    wanted: Wanted
    classes: Classes
    actual: Actual
    answer: Answer
    brake: Brake | None


def decide(
    look: Look,
    planner: Plans,
    limits: Limits,
    *,
    t_fwd_s: float,
    foresight: Prepares | None = None,
) -> Decision:
    """Return what to do about *look*.

    Args:
        look: What is so.
        planner: What plans; it keeps what runs where it fails.
        limits: Caps and patience.
        t_fwd_s: Look-ahead over which a plan's gain is counted, seconds.
        foresight: Sorts nodes by what is expected of them, and plans by that instead
            of *planner*.

    Raises:
        MalformedProblemError: Two trainers have one name, or a curve makes no sense.
    """
    pool = pool_of(
        look.holes,
        look.belief.leases,
        claimed=look.claims.nodes,
        assigned=frozenset(key for one in look.assignments for key in one.leases),
        now_s=look.now_s,
        limits=limits,
        kept=look.claims.care.kept.keys(),
        rank=partial(foresight.rank, now_s=look.now_s) if foresight else None,
    )
    if foresight is None:
        classes = classify(pool, now_s=look.now_s)
    else:
        classes, planner = foresight.prepare(pool, now_s=look.now_s)
    answer = planner.plan(problem_of(look.trainers, classes, t_fwd_s=t_fwd_s))
    wanted = wanted_of(
        answer.plan, look.trainers, classes, now_s=look.now_s, limits=limits
    )
    actual = _actual(look, frozenset(node.name for node in pool.nodes))
    intents = look.belief.intents
    may = allowance(
        actual, intents, limits, churn=limits.most_churn - look.pace.churned
    )
    return Decision(
        actions=reconcile(wanted, actual, intents, limits),
        wanted=wanted,
        classes=classes,
        actual=actual,
        answer=answer,
        brake=may.brake if may.leases == 0 else None,
    )


def _actual(look: Look, pool_nodes: frozenset[str]) -> Actual:
    return Actual(
        leases=look.belief.leases,
        assignments=look.assignments,
        now_s=look.now_s,
        pool_nodes=pool_nodes,
        extras=look.belief.extras,
        claims=look.claims,
        pace=look.pace,
        silent=look.silent,
        absent=look.absent,
        unheard_s=look.unheard_s,
        is_plan_known=look.is_plan_known,
    )
