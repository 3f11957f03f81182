"""What a replay is asked to do."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

from freetrain.errors import UsageError
from freetrain.lookahead.base import DEFAULT_FORECASTER
from freetrain.planning.settings import DEFAULT_T_FWD_S, Solver

DEFAULT_PRIORITY = "throughput"
LOOK_EVERY_S = 60.0
"""As often as cron can call a tick."""


class Accounting(StrEnum):
    """How progress and costs are counted (docs/notes/replay.md)."""

    REAL = "real"
    PUBLISHED = "published"
    PUBLISHED_C = "published+c"


@dataclass(frozen=True, slots=True)
class ReplaySettings:
    """One replay's choices.

    Attributes:
        policy: A name in ``POLICIES``.
        priority: A name in ``freetrain.priority.registry``, by which policies that ask
            the planner rate trainers.
        priority_settings: The priority's own settings, by name; others have defaults.
        forecaster: A name in ``freetrain.lookahead.base``; it tells ``lookahead``
            how long nodes stay.
        parallel: Trainers admitted at a time; None for no limit.
        t_fwd_s: [T_fwd] The planner's look-ahead, seconds.
        cost_factor: What every rescale and start cost is multiplied by.
        requeue: Whether a finished trainer starts over at the end of the queue.
        solver_limit_s: How long one solver call may take.
        look_every_s: How long the policy is left unasked at most; None for a minute
            if ratings change with time, and for ever if they do not.
        learns_speeds: Whether policies of ``RATED_POLICIES`` learn speeds by node count
            from what trainers do, instead of believing their users.
        record_steps: Whether the result lists every step.
        record_forecasts: Whether a policy's forecasts are compared with what came.
        leaves: By node index: the leaf switch, empty if there is none, for policies
            that learn which nodes leave together; no entries if switches are unknown.

    Raises:
        UsageError: A number is outside its range.
    """

    policy: str = "freetrain"
    priority: str = DEFAULT_PRIORITY
    priority_settings: tuple[tuple[str, float], ...] = ()
    forecaster: str = DEFAULT_FORECASTER
    accounting: Accounting = Accounting.REAL
    parallel: int | None = 10
    t_fwd_s: float = DEFAULT_T_FWD_S
    cost_factor: float = 1.0
    requeue: bool = False
    solver: Solver = Solver.EXACT
    solver_limit_s: float = 10.0
    look_every_s: float | None = None
    learns_speeds: bool = False
    record_steps: bool = True
    record_forecasts: bool = False
    leaves: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuse numbers that mean nothing."""
        if self.parallel is not None and self.parallel < 1:
            raise _refusal("trainers at a time", self.parallel, "1 or more")
        for what, value in (
            ("seconds of look-ahead", self.t_fwd_s),
            ("seconds for the solver", self.solver_limit_s),
            ("seconds between looks", _given(self.look_every_s)),
        ):
            if not 0 < value < math.inf:
                raise _refusal(what, value, "a number above 0")
        if not 0 <= self.cost_factor < math.inf:
            raise _refusal("times the costs", self.cost_factor, "0 or more")


def _given(every_s: float | None) -> float:
    return LOOK_EVERY_S if every_s is None else every_s


def _refusal(what: str, value: float, expected: str) -> UsageError:
    return UsageError(f"{value:g} {what}: expected {expected}. Nothing was replayed.")
