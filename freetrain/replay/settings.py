"""Settings of a replay, and of a broker in the loop.

Imports nothing heavy, so that a command line is read without NumPy.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

from freetrain.broker.limits import Mode
from freetrain.errors import UsageError
from freetrain.lookahead.base import DEFAULT_FORECASTER
from freetrain.planning.settings import DEFAULT_T_FWD_S, Solver
from freetrain.priority.migration import MoveRule

DEFAULT_PRIORITY = "throughput"
LOOK_EVERY_S = 60.0
"""As often as cron can call a tick."""

PLACED = "placed"
WORK_LEFT = "work-left"
PACK_RULES = (PLACED, *map(str, MoveRule), WORK_LEFT)
"""How members of packs are moved in replays: never, by the rules of live packs, and by
what truly is left to do."""


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
        priority: A name in ``freetrain.priority.base``, by which policies that ask
            the planner rate trainers.
        priority_settings: The priority's own settings, by name; others have defaults.
        forecaster: A name in ``freetrain.lookahead.base``; it forecasts for
            ``lookahead`` how long nodes stay.
        parallel: Trainers admitted at a time; None for no limit.
        t_fwd_s: [T_fwd] The planner's look-ahead, seconds.
        cost_factor: Multiplies the cost of every rescale and start.
        requeue: Whether a finished trainer starts over at the end of the queue.
        solver_limit_s: The longest that one solver call may take.
        look_every_s: The longest time between two decisions; None for a minute if
            ratings change with time or speeds are learned, else for no limit.
        learns_speeds: Whether policies of ``RATED_POLICIES`` learn speeds by node count
            from trainers' pasts, instead of believing their users.
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
            raise _refusal(f"{self.parallel:g} trainers at a time", "1 or more")
        every_s = LOOK_EVERY_S if self.look_every_s is None else self.look_every_s
        for what, value in (
            ("seconds of look-ahead", self.t_fwd_s),
            ("seconds for the solver", self.solver_limit_s),
            ("seconds between looks", every_s),
        ):
            if not 0 < value < math.inf:
                raise _refusal(f"{value:g} {what}", "a number above 0")
        if not 0 <= self.cost_factor < math.inf:
            raise _refusal(f"{self.cost_factor:g} times the costs", "0 or more")


def _refusal(found: str, expected: str) -> UsageError:
    return UsageError(f"{found}: expected {expected}. Nothing was replayed.")


# The broker in the loop

TICK_S = 60.0
"""As often as cron can call a tick."""

NOTICE_S = 30.0
"""Slurm's KillWait, where a partition has no GraceTime."""

COMMIT_S = 5.0
"""From the notice until a trainer has committed and its lease has ended."""

MARGIN_S = 30.0
"""How long before a planned start a lease ends."""

POLL_S = 1.0
"""How long a poll takes at most: a last one may be so late."""

SHORTEST_S = 120.0
"""The shortest hole worth a lease, as in the site's settings."""

LONGEST_S = 14_400.0
"""The longest lease, as in the site's settings."""

IN_THE_LOOP = ("freetrain", "equal", "lookahead")
"""Policies that can decide at ticks only."""


@dataclass(frozen=True, slots=True)
class LoopSettings:
    """One loop's choices.

    Attributes:
        mode: How leases give way to others' jobs.
        knows_plans: Whether the broker sees the scheduler's planned starts.
        tick_s: Seconds from one poll of the broker to the next.
        lead_s: How long before multiples of ``tick_s`` of the log's time the broker
            polls, as backfill's cycles are at multiples of their interval; None if
            polls count from the start of the replay.
        last_s: How long before these it polls once more, and ticks if jobs wait and
            something has changed; None, or ``lead_s`` and more, for never.
        notice_s: Mode ``preempt``: how long a job waits for our leases at most.
        commit_s: From the notice until a trainer has committed and gone.
        margin_s: How long before a planned start a lease ends; None if leases do not
            end because of plans.
        shortest_s: The shortest hole worth a lease, margin taken off.
        longest_s: The longest lease; finite under ``yield``.
        is_careful: Mode ``yield``: whether nodes are left alone that some job would
            need if one other job ended.

    Raises:
        UsageError: A number is outside its range.
    """

    mode: Mode = Mode.PREEMPT
    knows_plans: bool = True
    tick_s: float = TICK_S
    lead_s: float | None = None
    last_s: float | None = None
    notice_s: float = NOTICE_S
    commit_s: float = COMMIT_S
    margin_s: float | None = None
    shortest_s: float = SHORTEST_S
    longest_s: float = math.inf
    is_careful: bool = False

    def __post_init__(self) -> None:
        """Refuse numbers that mean nothing."""
        for what, value in (("a tick", self.tick_s), ("a lease", self.longest_s)):
            if not value > 0 or math.isinf(self.tick_s):
                raise _refusal(f"{value:g} s for {what}", "a number above 0")
        for what, value in (
            ("a tick's lead", self.lead_s or 0.0),
            ("a last look's lead", self.last_s or 0.0),
            ("notice", self.notice_s),
            ("a commit", self.commit_s),
            ("a lease's margin", self.margin_s or 0.0),
            ("the shortest hole", self.shortest_s),
        ):
            if not 0 <= value < math.inf:
                raise _refusal(f"{value:g} s for {what}", "a number 0 or more")
        if self.mode is Mode.YIELD and math.isinf(self.longest_s):
            raise _refusal(
                f"{self.longest_s:g} s for a lease that the scheduler sees",
                "a number finite",
            )

    @property
    def last_lead_s(self) -> float | None:
        """How long before a cycle the last poll comes; None if there is none."""
        if self.lead_s is None or self.last_s is None or self.last_s >= self.lead_s:
            return None
        return self.last_s

    @property
    def used_notice_s(self) -> float:
        """How long a job waits for a trainer on its nodes: no longer than a commit."""
        return min(self.notice_s, self.commit_s)

    @property
    def longest_wait_s(self) -> float:
        """How long a job should wait for our leases at most."""
        return self.tick_s if self.mode is Mode.YIELD else self.notice_s

    @property
    def commits_in_time(self) -> bool:
        """Whether a trainer that must go has the time to commit."""
        return self.mode is Mode.YIELD or self.commit_s <= self.notice_s


def usual_settings(mode: Mode) -> LoopSettings:
    """Return the settings that suit *mode*.

    Leases that are preempted harm no job beyond the notice, and plans that move would
    end many in vain: on two days of Theta that costs more than it spares. If leases
    are jobs, a poll comes before each cycle of backfill, in which other jobs could
    overtake a job that waits for a lease.
    """
    if mode is Mode.PREEMPT:
        return LoopSettings()
    # These bring NumPy and Slurm's records along, and help needs neither.
    from freetrain.broker.yielding import LEAD_S, last_lead_s  # noqa: PLC0415
    from logs.simulation import SlurmParameters  # noqa: PLC0415

    return LoopSettings(
        mode=mode,
        tick_s=SlurmParameters().bf_interval_s,
        lead_s=LEAD_S,
        last_s=last_lead_s(POLL_S),
        margin_s=MARGIN_S,
        longest_s=LONGEST_S,
        is_careful=True,
    )


def check_policy(name: str) -> None:
    """Refuse a policy that cannot decide at ticks only.

    Raises:
        UsageError: It is one.
    """
    if name not in IN_THE_LOOP:
        raise UsageError(
            f"the policy {name!r} cannot be in the loop, where a broker decides once "
            f"a tick; nothing was replayed. Choose of {', '.join(IN_THE_LOOP)}."
        )
