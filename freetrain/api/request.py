"""What is to be replayed, and which options of it do not go together.

Messages name options as the command line has them; in Python they are parameters of
the same names.
"""

from __future__ import annotations

import math
import shlex
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING

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
from freetrain.text import option_words

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

    Most fields are options of ``freetrain replay``, in the order in which ``command``
    gives them.

    Attributes:
        log: The log's file; None for dedicated nodes.
        named: The name of the log as the user wrote it.
        packs: As ``pool``, where each node has a pack, and rules of moves are compared.
        pool: The number of dedicated nodes; None with a log.
        trainers: A built-in set, ``quality:N`` or a TOML file.
        load: Of a drawn set: the work that arrives, over what the nodes can do.
        curves: Of a drawn set: the folder of its curves; None for the recorded ones.
        better: Whether higher or lower values of these curves are good.
        policies: Each once; empty for all.
        priorities: Each once. Each rated policy is replayed under each; ``static``
            under the first.
        priority_settings: Settings by name; each priority gets those that it has.
        against: The policy or priority that the others are compared with, trainer by
            trainer.
        topology: The file of the leaf switches that nodes are below.
        forecasters: ``lookahead`` is replayed with each; empty for the default one.
        every_s: Policies are asked at least so often; None for the settings' own.
        schedule: How the jobs of a job log got their nodes.
        passes: When a simulated scheduler makes a pass.
        nodes: How many of the log's nodes take part, the first ones; None for all.
        start_s: Second of the log to begin at.
        days: Days to replay; None for all of a log, or 90 of ``pool``.
        parallel: Trainers at a time; None for 10, and for all of a drawn set.
        cores_per_node: Processors of a node; None for what the log's header says.
        gpus_per_node: GPUs of a node, where those count; None for what the log says.
        gpus_per_lease: GPUs of a lease; None for whole nodes.
        skip_bad: Bad lines that may be passed over.
        record_steps: As in ``ReplaySettings``.
        record_forecasts: Likewise, for replays of a log.
        demo_command: The command line of the demo that makes this request; empty for a
            replay, whose own it is.
    """

    log: Path | None = None
    named: str = ""
    packs: int | None = None
    pool: int | None = None
    trainers: str = "hps"
    load: float = 1.0
    curves: str | None = None
    better: MetricDirection = MetricDirection.HIGHER
    policies: tuple[str, ...] = ()
    priorities: tuple[str, ...] = (DEFAULT_PRIORITY,)
    priority_settings: Settings = ()
    against: str | None = None
    topology: str | None = None
    forecasters: tuple[str, ...] = ()
    every_s: float | None = None
    accounting: Accounting = Accounting.REAL
    schedule: MethodName = "recorded"
    passes: PassesName = "moment"
    nodes: int | None = None
    start_s: float = 0.0
    days: float | None = None
    parallel: int | None = None
    t_fwd_s: float = DEFAULT_T_FWD_S
    cost_factor: float = 1.0
    solver: Solver = Solver.EXACT
    seed: int = 0
    cores_per_node: int | None = None
    gpus_per_node: int | None = None
    gpus_per_lease: int | None = None
    skip_bad: int = 0
    requeue: bool = False
    learned: bool = False
    record_steps: bool = True
    record_forecasts: bool = False
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
    def settings(self) -> ReplaySettings:
        """The settings that all of its replays share."""
        return ReplaySettings(
            accounting=self.accounting,
            parallel=self.parallel,
            t_fwd_s=self.t_fwd_s,
            look_every_s=self.every_s,
            learns_speeds=self.learned,
            cost_factor=self.cost_factor,
            requeue=self.requeue,
            solver=self.solver,
            record_steps=self.record_steps,
            record_forecasts=self.record_forecasts and self.log is not None,
        )

    @property
    def command(self) -> str:
        """The command line that asks for the same again, most defaults spelled out."""
        if self.demo_command:
            return self.demo_command
        given = {
            _OPTIONS.get(each.name, each.name.removesuffix("_s").replace("_", "-")): (
                getattr(self, each.name)
            )
            for each in fields(self)
            if each.name not in _NO_OPTIONS
            and (
                each.name not in _SELDOM_GIVEN
                or getattr(self, each.name) != each.default
            )
        }
        given["set"] = tuple(f"{k}={value:.15g}" for k, value in self.priority_settings)
        if self.looks_ahead:
            given["forecaster"] = self.forecasters_of("lookahead")
        named = [] if self.log is None else [self.named]
        return shlex.join(["freetrain", "replay", *named, *option_words(given)])

    def checked(self) -> ReplayRequest:
        """Return it with the defaults that depend on other options.

        Raises:
            UsageError: An option has no such value, or is of no use beside the others.
        """
        if (self.log is None) == (self.pool is None):
            raise UsageError(
                "expected either a log or --pool N, and not both; nothing was "
                "replayed. `freetrain demo` replays a log that ships."
            )
        counts = {"--pool": self.pool, "--nodes": self.nodes}
        _check_numbers(counts | {"--gpus-per-lease": self.gpus_per_lease}, least=1)
        from_0_on = {"--start": self.start_s, "--seed": self.seed}
        _check_numbers(from_0_on | {"--skip-bad": self.skip_bad}, least=0)
        _check_numbers({"--days": self.days, "--load": self.load})
        for name in self.policies:
            check_policy_name(name)
        for name in self.forecasters:
            check_forecaster(name)
        usual = None if is_drawn(self.trainers) else PARALLEL
        request = replace(
            self,
            named=f"{self.pool} nodes"
            if self.log is None
            else self.named or str(self.log),
            policies=with_baseline_policy(self.policies or POLICY_NAMES, self.against),
            priorities=with_baseline_priority(self.priorities, self.against),
            priority_settings=tuple(sorted(self.priority_settings)),
            forecasters=tuple(dict.fromkeys(self.forecasters)),
            parallel=usual if self.parallel is None else self.parallel,
        )
        _ = request.settings  # refuses other numbers
        refuse_unused(request)
        return request


_OPTIONS = {
    "policies": "policy",
    "priorities": "priority",
    "priority_settings": "set",
    "forecasters": "forecaster",
}
"""Options that have not the name of the field, as they may be repeated."""

_NO_OPTIONS = {
    *("log", "named", "packs"),
    *("record_steps", "record_forecasts", "demo_command"),
}
"""Fields that no option of a command line stands for; of packs there is no report."""

_SELDOM_GIVEN = {"load", "better", "passes", "skip_bad"}
"""Options that command lines do not spell out where they have their defaults."""


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
            "--learned": not rates and request.learned,
        },
    }
    for needed, options in without_effect.items():
        said = f"{{}} is for {needed}; nothing was replayed. Leave it out."
        refuse_given(options, said)


def refuse_given(given: Mapping[str, bool], said: str) -> None:
    """Refuse the first option that is *given*.

    Raises:
        UsageError: There is one; it stands in *said* for ``{}``.
    """
    for option, is_given in given.items():
        if is_given:
            raise UsageError(said.format(option))
