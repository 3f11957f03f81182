"""Which leaf switch nodes are below: asked once an hour, kept with the forecasts.

Sites without a topology are asked for nothing (before Slurm 25.05) and told nothing.
What cannot be had is no reason to stop: nodes are strangers then, as they were before.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from slurm.errors import SlurmError
from slurm.topology import Leaf, leaf_by_node, may_have_leaves, must_have_leaves

if TYPE_CHECKING:
    from collections.abc import Mapping

    from slurm.backend import SlurmBackend
    from slurm.config import ClusterConfig

ASKED_EVERY_S = 3_600.0
"""Racks are rewired seldom; nodes that a site adds wait so long."""

SILENCES = 3
"""Looks in a row at which Slurm answers all else and tells no leaf of a topology that
it need not have. A request that came too late looks like one of them; after so many
there is none any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaves:
    """What is known of leaf switches, or blocks.

    Attributes:
        plugin: What the configuration named then.
        asked_s: When Slurm was asked last, Unix time.
        told: What it told; nothing where it told nothing.
        by_node: The leaf of each node, from that.
        problem: Why it is not known now; empty where it is, or there is none.
        silences: Looks in a row at which nothing was told, where something had been.
    """

    plugin: str
    asked_s: float
    told: tuple[Leaf, ...] = ()
    by_node: Mapping[str, str] = field(default_factory=dict)
    problem: str = ""
    silences: int = 0

    def to_state(self) -> dict[str, Any]:
        """Return it as JSON has it; node lists as Slurm wrote them, which is short."""
        return {
            "plugin": self.plugin,
            "asked_s": self.asked_s,
            "told": [[leaf.name, leaf.nodes] for leaf in self.told],
            "problem": self.problem,
            "silences": self.silences,
        }


def leaves_of(
    backend: SlurmBackend, config: ClusterConfig, state: object, *, now_s: float
) -> Leaves | None:
    """Return what is known of leaves, asking Slurm once an hour.

    And at the next look where it told nothing of what it had told before.

    Args:
        backend: Slurm, which has just told *config*.
        config: How the cluster is set up; another topology is asked for at once.
        state: What ``to_state`` gave; whatever else is asked for anew.
        now_s: Unix time.

    Returns:
        None where there can be none, and nothing was asked.
    """
    if not may_have_leaves(config):
        return None
    last = _kept(state)
    if last is None or last.plugin != config.topology_plugin:
        last = Leaves(plugin=config.topology_plugin, asked_s=-math.inf)
    if 0.0 <= now_s - last.asked_s < ASKED_EVERY_S and not last.silences:
        return last
    return _asked(backend, config, last, now_s)


def _asked(
    backend: SlurmBackend, config: ClusterConfig, last: Leaves, now_s: float
) -> Leaves:
    """Ask; where that fails, what was told *last* holds for an hour more."""
    problem, silences = "", 0
    try:
        told = backend.topology()
        if not told and must_have_leaves(config):
            problem = f"it names {config.topology_plugin} and tells no leaf of it"
        elif not told and last.told and last.silences + 1 < SILENCES:
            silences = last.silences + 1
            problem = "it tells nothing of those that it told before"
    except SlurmError as error:
        told, problem = (), str(error)
    if problem:
        told = last.told
        problem = f"what switches nodes are below was not told: {problem}"
    return Leaves(
        plugin=config.topology_plugin,
        asked_s=now_s,
        told=told,
        by_node=leaf_by_node(told),
        problem=problem,
        silences=silences,
    )


def _kept(state: Any) -> Leaves | None:  # noqa: ANN401 - JSON
    try:
        told = tuple(Leaf(str(name), str(nodes)) for name, nodes in state["told"])
        return Leaves(
            plugin=str(state["plugin"]),
            asked_s=float(state["asked_s"]),
            told=told,
            by_node=leaf_by_node(told),
            problem=str(state.get("problem", "")),
            silences=int(state.get("silences", 0)),
        )
    except (ValueError, TypeError, KeyError, ArithmeticError, SlurmError):
        return None
