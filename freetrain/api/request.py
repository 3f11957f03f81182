"""What is to be replayed, and which options of it do not go together.

Messages name options as the command line has them; in Python they are parameters of
the same names.
"""

from __future__ import annotations

import math
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING

from freetrain.api.context import member_named
from freetrain.errors import UsageError
from freetrain.lookahead.base import DEFAULT_FORECASTER, check_forecaster
from freetrain.losscurve.forecast import MetricDirection
from freetrain.planning.settings import (
    DEFAULT_T_FWD_S,
    POLICIES,
    RATED_POLICIES,
    Solver,
)
from freetrain.replay.settings import DEFAULT_PRIORITY, Accounting, ReplaySettings

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from freetrain.api.logs import MethodName, PassesName

POLICY_NAMES = tuple(POLICIES)
PARALLEL = 10
"""Trainers at a time, as in the published evaluation."""

DRAWN = "quality:"
"""Prefix of the name of a drawn set of trainers; its size follows."""


def is_drawn(trainers: str) -> bool:
    """Return whether *trainers* names a drawn set."""
    return trainers.startswith(DRAWN)


Settings = tuple[tuple[str, float], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayRequest:
    """One log, to be replayed under each of several policies.

    Attributes:
        log: The log's file; None for dedicated nodes.
        named: The name of the log as the user wrote it.
        pool: The number of dedicated nodes; None with a log.
        packs: The same where each has a pack, and rules of moves are compared.
        trainers: A built-in set, ``quality:N`` or a TOML file.
        load: Of a drawn set: the work that arrives, over what the nodes can do.
        curves: Of a drawn set: the folder of its curves; None for the recorded ones.
        better: Whether higher or lower values of these curves are good.
        topology: The file of the leaf switches that nodes are below.
        policies: At least one, each once.
        priorities: At least one, each once. Each rated policy is replayed under each;
            ``static`` under the first.
        priority_settings: Settings by name; each priority gets those that it has.
        forecasters: ``lookahead`` is replayed with each; empty for the default one.
        against: The policy or priority that the others are compared with, trainer by
            trainer.
        schedule: How the jobs of a job log got their nodes.
        passes: When a simulated scheduler makes a pass.
        nodes: How many of the log's nodes take part, the first ones; None for all.
        start_s: Second of the log to begin at.
        days: Days to replay; None for all of a log, or 90 of ``pool``.
        cores_per_node: Processors of a node; None for what the log's header says.
        gpus_per_node: GPUs of a node, where those count; None for what the log says.
        gpus_per_lease: GPUs of a lease; None for whole nodes.
        skip_bad: Bad lines that may be passed over.
        settings: Everything else; its policy and priority are replaced.
        demo_command: The command line of the demo that makes this request; empty for a
            replay, whose own it is.
    """

    log: Path | None
    named: str
    pool: int | None = None
    packs: int | None = None
    trainers: str
    load: float = 1.0
    curves: str | None = None
    better: MetricDirection = MetricDirection.HIGHER
    topology: str | None = None
    policies: tuple[str, ...]
    priorities: tuple[str, ...] = (DEFAULT_PRIORITY,)
    priority_settings: Settings = ()
    forecasters: tuple[str, ...] = ()
    against: str | None = None
    schedule: MethodName
    passes: PassesName = "moment"
    nodes: int | None
    start_s: float
    days: float | None
    cores_per_node: int | None = None
    gpus_per_node: int | None = None
    gpus_per_lease: int | None = None
    skip_bad: int
    seed: int
    settings: ReplaySettings
    demo_command: str = ""

    @property
    def looks_ahead(self) -> bool:
        """Whether forecasts count for any of its policies."""
        return any(POLICIES[policy].looks_ahead for policy in self.policies)

    def forecasters_of(self, policy: str) -> tuple[str, ...]:
        """Return the forecasters to replay *policy* with; most policies ignore it."""
        usual = (DEFAULT_FORECASTER,)
        return self.forecasters or usual if POLICIES[policy].looks_ahead else usual

    @property
    def command(self) -> str:
        """The command line that asks for the same again, defaults spelled out."""
        if self.demo_command:
            return self.demo_command
        settings, every_s = self.settings, self.settings.look_every_s
        forecasters = self.forecasters_of("lookahead") if self.looks_ahead else ()
        given: list[tuple[str, object]] = [
            ("--pool", self.pool),
            ("--trainers", self.trainers),
            ("--load", None if self.load == 1.0 else f"{self.load:.15g}"),
            ("--curves", self.curves),
            ("--better", self.better if self.better is MetricDirection.LOWER else None),
            *(("--policy", policy) for policy in self.policies),
            *(("--priority", priority) for priority in self.priorities),
            *(("--set", f"{k}={value:.15g}") for k, value in self.priority_settings),
            ("--against", self.against),
            ("--topology", self.topology),
            *(("--forecaster", name) for name in forecasters),
            ("--every", None if every_s is None else f"{every_s:.15g}"),
            ("--accounting", settings.accounting),
            ("--schedule", self.schedule),
            ("--passes", None if self.passes == "moment" else self.passes),
            ("--nodes", self.nodes),
            ("--start", f"{self.start_s:.15g}"),
            ("--days", None if self.days is None else f"{self.days:.15g}"),
            ("--parallel", settings.parallel),
            ("--t-fwd", f"{settings.t_fwd_s:.15g}"),
            ("--cost-factor", f"{settings.cost_factor:.15g}"),
            ("--solver", settings.solver),
            ("--seed", self.seed),
            ("--cores-per-node", self.cores_per_node),
            ("--gpus-per-node", self.gpus_per_node),
            ("--gpus-per-lease", self.gpus_per_lease),
            ("--skip-bad", self.skip_bad or None),
        ]
        words = ["freetrain", "replay", *([] if self.log is None else [self.named])]
        words += [str(w) for pair in given if pair[1] is not None for w in pair]
        words += ["--requeue"] if settings.requeue else []
        words += ["--learned"] if settings.learns_speeds else []
        return shlex.join(words)


def replay_request(  # noqa: PLR0913 - one parameter an option
    *,
    log: Path | None = None,
    named: str = "",
    pool: int | None = None,
    packs: int | None = None,
    trainers: str = "hps",
    policies: Sequence[str] = (),
    priorities: Sequence[str] = (),
    settings: Mapping[str, float] | None = None,
    forecasters: Sequence[str] = (),
    against: str | None = None,
    accounting: str = Accounting.REAL,
    schedule: MethodName = "recorded",
    passes: PassesName = "moment",
    nodes: int | None = None,
    start: float = 0.0,
    days: float | None = None,
    load: float = 1.0,
    curves: str | Path | None = None,
    better: str = MetricDirection.HIGHER,
    parallel: int | None = None,
    every: float | None = None,
    requeue: bool = False,
    learned: bool = False,
    topology: str | Path | None = None,
    t_fwd: float = DEFAULT_T_FWD_S,
    cost_factor: float = 1.0,
    solver: str = Solver.EXACT,
    seed: int = 0,
    cores_per_node: int | None = None,
    gpus_per_node: int | None = None,
    gpus_per_lease: int | None = None,
    skip_bad: int = 0,
    record_steps: bool = False,
    record_forecasts: bool = False,
) -> ReplayRequest:
    """Return the request that options of ``freetrain replay`` make.

    Options that may be repeated are sequences; empty ones stand for the default, which
    of policies is all.

    Raises:
        UsageError: One has no such value, or is of no use beside the others.
    """
    if (log is None) == (pool is None):
        raise UsageError(
            "expected either a log or --pool N, and not both; nothing was replayed. "
            "`freetrain demo` replays a log that ships."
        )
    _check_numbers(
        {"--pool": pool, "--nodes": nodes, "--gpus-per-lease": gpus_per_lease},
        least=1,
    )
    _check_numbers({"--start": start, "--seed": seed, "--skip-bad": skip_bad}, least=0)
    _check_numbers({"--days": days, "--load": load})
    for name in policies:
        check_policy_name(name)
    for name in forecasters:
        check_forecaster(name)
    request = ReplayRequest(
        log=log,
        named=f"{pool} nodes" if log is None else named or str(log),
        pool=pool,
        packs=packs,
        trainers=trainers,
        load=load,
        curves=None if curves is None else str(curves),
        topology=None if topology is None else str(topology),
        better=member_named(MetricDirection, better, "--better"),
        policies=with_baseline_policy(policies or POLICY_NAMES, against),
        priorities=with_baseline_priority(priorities or [DEFAULT_PRIORITY], against),
        priority_settings=tuple(sorted((settings or {}).items())),
        forecasters=tuple(dict.fromkeys(forecasters)),
        against=against,
        schedule=schedule,
        passes=passes,
        nodes=nodes,
        start_s=start,
        days=days,
        cores_per_node=cores_per_node,
        gpus_per_node=gpus_per_node,
        gpus_per_lease=gpus_per_lease,
        skip_bad=skip_bad,
        seed=seed,
        settings=ReplaySettings(
            accounting=member_named(Accounting, accounting, "--accounting"),
            parallel=(None if is_drawn(trainers) else PARALLEL)
            if parallel is None
            else parallel,
            t_fwd_s=t_fwd,
            look_every_s=every,
            learns_speeds=learned,
            cost_factor=cost_factor,
            requeue=requeue,
            solver=member_named(Solver, solver, "--solver"),
            record_steps=record_steps,
            record_forecasts=record_forecasts and log is not None,
        ),
    )
    refuse_unused(request)
    return request


def _check_numbers(
    given: Mapping[str, float | None], *, least: float | None = None
) -> None:
    """Refuse numbers below *least*, or without one numbers that are not above 0."""
    for option, value in given.items():
        if value is None:
            continue
        fits = value > 0 if least is None else least <= value
        if not fits or value == math.inf:
            expected = "above 0" if least is None else f"of {least:g} or more"
            raise UsageError(
                f"{option} {value:g}: expected a number {expected}. Nothing was "
                f"replayed."
            )


def check_policy_name(name: str) -> None:
    """Refuse a policy that does not exist.

    Raises:
        UsageError: It does not.
    """
    if name not in POLICY_NAMES:
        known = ", ".join(POLICY_NAMES)
        raise UsageError(f"there is no policy {name!r}; choose of {known}")


def with_baseline_policy(
    policies: Sequence[str], against: str | None
) -> tuple[str, ...]:
    """Return *policies*, with *against* if it is a policy.

    Raises:
        UsageError: *against* is a priority, and none of *policies* follows priorities.
    """
    if against is not None and against in POLICY_NAMES:
        return tuple(dict.fromkeys([*policies, against]))
    if against is not None and not set(RATED_POLICIES).intersection(policies):
        raise UsageError(
            f"--against {against} is no policy, and only the policies "
            f"{' and '.join(RATED_POLICIES)} go by priorities; nothing was replayed. "
            f"Add --policy {RATED_POLICIES[0]}."
        )
    return tuple(policies)


def with_baseline_priority(
    priorities: Sequence[str], against: str | None
) -> tuple[str, ...]:
    """Return *priorities*, each once, with *against* if it is a priority."""
    also = [] if against is None or against in POLICY_NAMES else [against]
    return tuple(dict.fromkeys([*priorities, *also]))


def refuse_unused(request: ReplayRequest) -> None:
    """Refuse options that have no effect without something that is missing.

    Raises:
        UsageError: There is such an option.
    """
    has_log, has_draw = request.log is not None, is_drawn(request.trainers)
    has_curves, is_lower = (
        request.curves is not None,
        request.better is MetricDirection.LOWER,
    )
    rates = not set(RATED_POLICIES).isdisjoint(request.policies)
    plans = rates or "static" in request.policies
    without_effect = {
        "replays of a log": {
            "--schedule": not has_log and request.schedule != "recorded",
            "--passes": not has_log and request.passes != "moment",
            "--nodes": not has_log and request.nodes is not None,
            "--start": not has_log and request.start_s > 0,
            "--cores-per-node": not has_log and request.cores_per_node is not None,
            "--gpus-per-node": not has_log and request.gpus_per_node is not None,
            "--skip-bad": not has_log and request.skip_bad > 0,
            "--topology": not has_log and request.topology is not None,
        },
        "the policies lookahead and adaptive": {
            "--topology": not request.looks_ahead and request.topology is not None,
            "--forecaster": not request.looks_ahead and bool(request.forecasters),
        },
        "--trainers quality:N": {
            "--load": not has_draw and request.load != 1.0,
            "--curves": not has_draw and has_curves,
        },
        "--curves": {"--better": is_lower and not has_curves},
        f"the policies {', '.join((*RATED_POLICIES, 'static'))}": {
            "--priority": not plans and request.priorities != (DEFAULT_PRIORITY,)
        },
        f"the policies {', '.join(RATED_POLICIES)}": {
            "a second --priority": not rates and len(request.priorities) > 1,
            "--learned": not rates and request.settings.learns_speeds,
        },
    }
    for needed, options in without_effect.items():
        for option, is_given in options.items():
            if is_given:
                raise UsageError(
                    f"{option} is for {needed}; nothing was replayed. Leave it out."
                )
