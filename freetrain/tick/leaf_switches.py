"""Which leaf switch nodes are below: asked once an hour, kept with the forecasts."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from slurm.errors import SlurmError
from slurm.records import Leaf, leaf_by_node, may_have_leaves, must_have_leaves

if TYPE_CHECKING:
    from collections.abc import Mapping

    from slurm.backend import SlurmBackend
    from slurm.records import ClusterConfig


ASKED_EVERY_S = 3_600.0
"""Racks are rewired seldom; nodes that a site adds wait that long."""

SILENCES = 3
"""Ticks in a row at which Slurm answers everything else and names no leaf of a topology
that it need not have. One that was asked too late looks the same; after that many there
is no topology any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeafSwitches:
    """What is known of leaf switches, or blocks.

    Attributes:
        plugin: The topology plugin that the configuration named then.
        asked_s: When Slurm was asked last, Unix time.
        leaves: What Slurm answered.
        by_node: The leaf of each node.
        problem: Why they are not known now; empty where they are, or there are none.
        silences: Ticks in a row at which Slurm named none, having named some before.
    """

    plugin: str
    asked_s: float
    leaves: tuple[Leaf, ...] = ()
    by_node: Mapping[str, str] = field(default_factory=dict)
    problem: str = ""
    silences: int = 0

    def to_state(self) -> dict[str, Any]:
        """Return it as JSON has it; node lists as Slurm wrote them, which is short."""
        return {
            "plugin": self.plugin,
            "asked_s": self.asked_s,
            "told": [[leaf.name, leaf.nodes] for leaf in self.leaves],
            "problem": self.problem,
            "silences": self.silences,
        }


def leaf_switches_of(
    backend: SlurmBackend, config: ClusterConfig, state: object, *, now_s: float
) -> LeafSwitches | None:
    """Return what is known of leaf switches, asking Slurm once an hour.

    Where Slurm names none of those that it named before, it is asked again at the next
    tick.

    Args:
        backend: Slurm.
        config: How the cluster is set up; another topology is asked for at once.
        state: What ``to_state`` returned; anything else counts as nothing.
        now_s: Unix time.

    Returns:
        None where there can be none, and nothing was asked.
    """
    if not may_have_leaves(config):
        return None
    last = _kept(state)
    if last is None or last.plugin != config.topology_plugin:
        last = LeafSwitches(plugin=config.topology_plugin, asked_s=-math.inf)
    if 0.0 <= now_s - last.asked_s < ASKED_EVERY_S and not last.silences:
        return last
    return _asked(backend, config, last, now_s)


def _asked(
    backend: SlurmBackend, config: ClusterConfig, last: LeafSwitches, now_s: float
) -> LeafSwitches:
    """Ask Slurm; where that fails, its *last* answer holds for an hour more."""
    problem, silences = "", 0
    try:
        leaves = backend.topology()
        if not leaves and must_have_leaves(config):
            problem = f"it names {config.topology_plugin} and tells no leaf of it"
        elif not leaves and last.leaves and last.silences + 1 < SILENCES:
            silences = last.silences + 1
            problem = "it tells nothing of those that it told before"
    except SlurmError as error:
        leaves, problem = (), str(error)
    if problem:
        leaves = last.leaves
        problem = f"what switches nodes are below was not told: {problem}"
    return LeafSwitches(
        plugin=config.topology_plugin,
        asked_s=now_s,
        leaves=leaves,
        by_node=leaf_by_node(leaves),
        problem=problem,
        silences=silences,
    )


def _kept(state: Any) -> LeafSwitches | None:  # noqa: ANN401 - JSON
    try:
        leaves = tuple(Leaf(str(name), str(nodes)) for name, nodes in state["told"])
        return LeafSwitches(
            plugin=str(state["plugin"]),
            asked_s=float(state["asked_s"]),
            leaves=leaves,
            by_node=leaf_by_node(leaves),
            problem=str(state.get("problem", "")),
            silences=int(state.get("silences", 0)),
        )
    except (ValueError, TypeError, KeyError, ArithmeticError, SlurmError):
        return None
