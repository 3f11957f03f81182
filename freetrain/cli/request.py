"""What a replay was asked for, whichever verb asked."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from freetrain.cli.priority_settings import own_settings
from freetrain.lookahead.base import DEFAULT_FORECASTER
from freetrain.losscurve.outlook import Better
from freetrain.planning.settings import RATED_POLICIES
from freetrain.replay.settings import DEFAULT_PRIORITY

if TYPE_CHECKING:
    from pathlib import Path

    from freetrain.cli.options import MethodName
    from freetrain.replay.settings import ReplaySettings


DRAWN = "quality:"
"""How the name of a set of trainers begins that is drawn; its size follows."""


def is_drawn(trainers: str) -> bool:
    """Tell whether *trainers* names a set that is drawn."""
    return trainers.startswith(DRAWN)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayRequest:
    """One log, several policies, everything else the same.

    Attributes:
        log: The log's file; None for dedicated nodes.
        named: How the user named it.
        pool: Dedicated nodes instead of a log's idle ones; None with a log.
        trainers: A built-in set, ``quality:N`` or a TOML file, as the user named it.
        load: Of a drawn set: the work that arrives, over what the nodes can do.
        curves: Of a drawn set: the folder of its curves; None for the recorded ones.
        better: Which of their values are good.
        topology: The file of the leaf switches that nodes are below; None for none.
        policies: At least one, each once.
        priorities: What the policies of ``RATED_POLICIES`` go by, at least one, each
            once; ``static`` goes by the first.
        priority_settings: Settings of these by name; each has those that are its own.
        forecasters: By whom ``lookahead`` looks ahead, each once; empty for the usual
            one.
        against: Which of these the others are held against, trainer by trainer.
        schedule: How jobs of a job log got their nodes.
        nodes: The first nodes that take part; None for all.
        start_s: Second of the log to begin at.
        days: Days to replay; None to the end.
        skip_bad: Bad lines that may be passed over.
        seed: Seed of whatever is drawn.
        settings: Everything else; its policy and priority are replaced.
        by: The command line of another verb that asked for this; empty for ``replay``.
    """

    log: Path | None
    named: str
    pool: int | None = None
    trainers: str
    load: float = 1.0
    curves: str | None = None
    better: Better = Better.HIGHER
    topology: str | None = None
    policies: tuple[str, ...]
    priorities: tuple[str, ...] = (DEFAULT_PRIORITY,)
    priority_settings: tuple[tuple[str, float], ...] = ()
    forecasters: tuple[str, ...] = ()
    against: str | None = None
    schedule: MethodName
    nodes: int | None
    start_s: float
    days: float | None
    skip_bad: int
    seed: int
    settings: ReplaySettings
    by: str = ""

    @property
    def entrants(self) -> tuple[ReplaySettings, ...]:
        """What is replayed: each policy, the rated ones by each priority.

        ``lookahead`` also by each forecaster.

        Raises:
            UsageError: There is no such priority, or none of them has such a setting.
        """
        own = own_settings(self.priorities, self.priority_settings)
        return tuple(
            replace(
                self.settings,
                policy=policy,
                priority=priority,
                priority_settings=own[priority],
                forecaster=forecaster,
            )
            for policy in self.policies
            for priority in (
                self.priorities if policy in RATED_POLICIES else self.priorities[:1]
            )
            for forecaster in self._asked(policy)
        )

    @property
    def looks_ahead(self) -> bool:
        """Whether forecasts count for any of its policies."""
        return "lookahead" in self.policies

    def _asked(self, policy: str) -> tuple[str, ...]:
        """Return by whom *policy* looks ahead; one for those that do not, unused."""
        usual = (DEFAULT_FORECASTER,)
        return self.forecasters or usual if policy == "lookahead" else usual

    @property
    def _told(self) -> tuple[str, ...]:
        return self._asked("lookahead") if self.looks_ahead else ()

    @property
    def command(self) -> str:
        """The command line that asks for the same again, defaults spelled out."""
        return self.by or self._replay

    @property
    def _replay(self) -> str:
        settings, every_s = self.settings, self.settings.look_every_s
        given: list[tuple[str, object]] = [
            ("--pool", self.pool),
            ("--trainers", self.trainers),
            ("--load", None if self.load == 1.0 else f"{self.load:.15g}"),
            ("--curves", self.curves),
            ("--better", self.better if self.better is Better.LOWER else None),
            *(("--policy", policy) for policy in self.policies),
            *(("--priority", priority) for priority in self.priorities),
            *(("--set", f"{k}={value:.15g}") for k, value in self.priority_settings),
            ("--against", self.against),
            ("--topology", self.topology),
            *(("--forecaster", name) for name in self._told),
            ("--every", None if every_s is None else f"{every_s:.15g}"),
            ("--accounting", settings.accounting),
            ("--schedule", self.schedule),
            ("--nodes", self.nodes),
            ("--start", f"{self.start_s:.15g}"),
            ("--days", None if self.days is None else f"{self.days:.15g}"),
            ("--parallel", settings.parallel),
            ("--t-fwd", f"{settings.t_fwd_s:.15g}"),
            ("--cost-factor", f"{settings.cost_factor:.15g}"),
            ("--solver", settings.solver),
            ("--seed", self.seed),
            ("--skip-bad", self.skip_bad or None),
        ]
        words = ["freetrain", "replay", *([] if self.log is None else [self.named])]
        words += [str(w) for pair in given if pair[1] is not None for w in pair]
        words += ["--requeue"] if settings.requeue else []
        words += ["--learned"] if settings.learns_speeds else []
        return shlex.join(words)
