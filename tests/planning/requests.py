"""Requests from problems of the count model, and back."""

from freetrain.planning.lookahead import QuickSearch
from freetrain.planning.policy import Planned, PlanTrainer, Request, Tools, counts_of
from milp.answer import Plan
from milp.planner import Planner
from milp.problem import Problem, plan_gain

TOOLS = Tools(solver=Planner, start_solver=Planner, search=QuickSearch)


def request_from(
    problem: Problem, *, background: frozenset[str] = frozenset()
) -> Request:
    """Return *problem* as policies are asked it."""
    free = {k: one.nodes for k, one in enumerate(problem.classes)}
    trainers = []
    for state in problem.trainers:
        held = {k: leases for k, leases in enumerate(state.held) if leases}
        for k, leases in held.items():
            free[k] -= leases * state.width(k)
        trainers.append(
            PlanTrainer(
                name=state.name,
                curve=state.curve,
                held=held,
                up_s=state.up_s,
                down_s=state.down_s,
                start_s=state.start_s,
                usable=state.usable,
                widths=None if state.widths is None else dict(enumerate(state.widths)),
            )
        )
    return Request(
        trainers=trainers, free=free, t_fwd_s=problem.t_fwd_s, background=background
    )


def plan_of(planned: Planned, request: Request, problem: Problem) -> Plan:
    """Return what was planned as the count model has it."""
    counts = counts_of(planned.holdings, request)
    gain = plan_gain(problem, counts)
    return Plan(counts, gain, gain)
