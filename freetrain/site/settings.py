"""The settings of a site, with defaults that work for a plain user."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from freetrain.forecast.interface import DEFAULT_FORECASTER
from freetrain.replay.settings import DEFAULT_T_FWD_S, Solver

if TYPE_CHECKING:
    from pathlib import Path

    from slurm.records import Gres


class Mode(StrEnum):
    """Who takes leases away when somebody needs their nodes."""

    AUTO = "auto"
    PREEMPT = "preempt"
    YIELD = "yield"


class PolicyName(StrEnum):
    """Who decides which trainer gets how many nodes."""

    FREETRAIN = "freetrain"
    EQUAL = "equal"
    LOOKAHEAD = "lookahead"


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseSettings:
    """How leases are submitted, and what they ask of their nodes.

    Attributes:
        partition: Where; empty for the cluster's default partition.
        qos: Quality of service; empty for the default.
        account: Account to charge; empty for the default.
        nice: How much their priority is lowered. 10,000 let a user's job start
            0.05 s after leases were cancelled, under priority/basic.
        mode: Who takes them away: Slurm, the broker, or as the partition says.
        careful: Whether they keep off nodes that somebody would need if one job ended,
            where the broker takes them away.
        exclusive: Whether they take whole nodes.
        features: Features that each node must have.
        gres: Generic resources of each node.
        memory_mib: Memory that each node must have; None for any.
        cpus: CPUs that each node must have; None for any.
        shortest_s: The shortest time limit worth a lease; limits are whole minutes,
            and a hole of less than about two cannot be leased safely.
        longest_s: The longest time limit asked for.
    """

    partition: str = ""
    qos: str = ""
    account: str = ""
    nice: int = 10_000
    mode: Mode = Mode.AUTO
    careful: bool = True
    exclusive: bool = True
    features: tuple[str, ...] = ()
    gres: tuple[Gres, ...] = ()
    memory_mib: int | None = None
    cpus: int | None = None
    shortest_s: float = 120.0
    longest_s: float = 14_400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Caps:
    """The most that FreeTrain asks of Slurm.

    Attributes:
        leases: Leases held and waiting at a time.
        requests_per_tick: Leases asked for in one tick.
        rpcs_per_tick: Slurm commands in one tick that change something.
        churn_per_hour: Leases asked for or given up by choice in an hour; what
            others need is given up whatever this says. Each end may stop the
            schedulers for CompleteWait.
    """

    leases: int = 64
    requests_per_tick: int = 32
    rpcs_per_tick: int = 8
    churn_per_hour: int = 240


@dataclass(frozen=True, slots=True, kw_only=True)
class HoleSettings:
    """Until when holes are used.

    Attributes:
        margin_s: How long before its end a hole is left, the epilog not counted;
            None for what Slurm's own settings ask for.
        epilog_s: How long the epilog takes at the end of a job; Slurm tells not.
        plan_age_s: How long a plan of Slurm's is believed while backfill is making
            a new one.
    """

    margin_s: float | None = None
    epilog_s: float = 0.0
    plan_age_s: float = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannerSettings:
    """How nodes are given to trainers.

    Attributes:
        t_fwd_s: [T_fwd] The look-ahead over which a gain is counted.
        policy: Who decides.
        priority: Which trainers deserve nodes: a name in ``priority.registry``.
            Speed-up times weight lets trainers be compared whose samples have
            nothing in common.
        priority_settings: Its own settings, by name.
        forecaster: Who says how long nodes stay, for ``lookahead``: a name in
            ``forecast.registry``.
        learn: Whether speeds and costs that were measured count; else only those
            that users give, and what is assumed.
        profile: Whether running trainers may try sizes whose speed is not known,
            where what that may teach is worth more than it costs.
        solver: What finds the optimum.
        solver_limit_s: Time for the solver in one tick.
    """

    t_fwd_s: float = DEFAULT_T_FWD_S
    policy: PolicyName = PolicyName.FREETRAIN
    priority: str = "weight"
    priority_settings: tuple[tuple[str, float], ...] = ()
    forecaster: str = DEFAULT_FORECASTER
    learn: bool = True
    profile: bool = False
    solver: Solver = Solver.EXACT
    solver_limit_s: float = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class StartSettings:
    """What is done about leases and trainers that fail to start.

    Attributes:
        pause_after: Failed starts in a row before nothing more is started.
        pause_s: For how long; each further failure doubles it.
    """

    pause_after: int = 3
    pause_s: float = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """All settings of a site. All paths are absolute.

    Attributes:
        path: The file they were read from; None where there is none.
        state_directory: Where FreeTrain keeps its state, on a file system that
            login nodes and compute nodes share.
        launch_agent: What starts a process on another lease's node, like ssh;
            None for FreeTrain's own.
        lease: How leases are submitted.
        caps: The most that is asked of Slurm.
        holes: Until when holes are used.
        planner: How nodes are given to trainers.
        starts: What is done about failing starts.
    """

    state_directory: Path
    path: Path | None = None
    launch_agent: Path | None = None
    lease: LeaseSettings = LeaseSettings()
    caps: Caps = Caps()
    holes: HoleSettings = HoleSettings()
    planner: PlannerSettings = PlannerSettings()
    starts: StartSettings = StartSettings()
