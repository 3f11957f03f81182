"""Looks at contenders, to rate and to plan."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from freetrain.planning.rating import planned_curves
from freetrain.priority.base import Contender, RatingInputs
from milp.planner import Planner
from milp.problem import NodeClass, Problem, ProblemTrainer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from freetrain.priority.base import Priority, Rating

T_FWD_S = 120.0


def speeds(most: int, *, one_node: float = 100.0) -> NDArray[np.float64]:
    """Speed on 0 .. *most* nodes, a little less than linear."""
    return one_node * np.arange(most + 1, dtype=np.float64) ** 0.9


def contender(name: str, **changes: object) -> Contender:
    """One that can run on 1 to 8 nodes, and has done some work."""
    settings: dict[str, object] = {
        "sizes": tuple(range(1, 9)),
        "samples_per_s": speeds(8),
        "held": 0,
        "done_samples": 1e5,
    }
    return Contender(name=name, **(settings | changes))  # type: ignore[arg-type]


def inputs_of(
    *contenders: Contender, nodes: int = 8, now_s: float = 1000.0
) -> RatingInputs:
    return RatingInputs(
        now_s=now_s, contenders=contenders, nodes=nodes, t_fwd_s=T_FWD_S
    )


def problem_of(inputs: RatingInputs, ratings: Sequence[Rating]) -> Problem:
    """Return what the planner is asked, all nodes being alike."""
    trainers = [
        ProblemTrainer(
            one.name, curve, (one.held,), one.grow_s, one.shrink_s, one.start_s
        )
        for one, curve in zip(inputs.contenders, planned_curves(ratings), strict=True)
    ]
    nodes = (NodeClass("idle", inputs.nodes),)
    return Problem(nodes, tuple(trainers), inputs.t_fwd_s)


def planned(inputs: RatingInputs, ratings: Sequence[Rating]) -> dict[str, int]:
    """Return the nodes that the planner gives, by trainer."""
    plan = Planner().plan(problem_of(inputs, ratings)).plan
    names = [one.name for one in inputs.contenders]
    return {name: row[0] for name, row in zip(names, plan.counts, strict=True)}


def planned_by(priority: Priority, given: RatingInputs) -> dict[str, int]:
    """Return the nodes that the planner gives by the ratings of *priority*."""
    return planned(given, priority.rate(given, {}).ratings)
