"""What a replay was asked for, whichever verb asked."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from freetrain.cli.options import MethodName
    from freetrain.replay.settings import ReplaySettings


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayRequest:
    """One log, several policies, everything else the same.

    Attributes:
        log: The log's file.
        named: How the user named it.
        trainers: A built-in set or a TOML file, as the user named it.
        policies: At least one, each once.
        schedule: How jobs of a job log got their nodes.
        nodes: The first nodes that take part; None for all.
        start_s: Second of the log to begin at.
        days: Days to replay; None to the end.
        skip_bad: Bad lines that may be passed over.
        seed: Seed of whatever is drawn.
        settings: Everything else; its policy is replaced by each of ``policies``.
    """

    log: Path
    named: str
    trainers: str
    policies: tuple[str, ...]
    schedule: MethodName
    nodes: int | None
    start_s: float
    days: float | None
    skip_bad: int
    seed: int
    settings: ReplaySettings

    @property
    def command(self) -> str:
        """The command line that asks for the same again, defaults spelled out."""
        settings = self.settings
        given: list[tuple[str, object]] = [
            ("--trainers", self.trainers),
            *(("--policy", policy) for policy in self.policies),
            ("--objective", settings.objective),
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
        words = ["freetrain", "replay", self.named]
        words += [str(w) for pair in given if pair[1] is not None for w in pair]
        return shlex.join([*words, *(["--requeue"] if settings.requeue else [])])
