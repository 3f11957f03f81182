"""How the cluster is set up: Slurm's release, its settings, its leaf switches.

From ``sinfo --version``, ``scontrol show config`` and ``scontrol show topology``.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from slurm.errors import UnreadableOutputError
from slurm.hostlist import expand
from slurm.text import NOTHING, check_whole, duration_s, text_or_empty

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from slurm.records import Partition


@dataclass(frozen=True, slots=True)
class Release:
    """A release of Slurm, ordered by age.

    Attributes:
        major: For example 22.
        minor: For example 5.
        micro: For example ``8``, or ``0rc1``.
    """

    major: int
    minor: int
    micro: str

    @property
    def series(self) -> tuple[int, int]:
        """Major and minor number: what back ends and formats depend on."""
        return self.major, self.minor

    def __str__(self) -> str:
        """Write it as Slurm does, for example ``22.05.8``."""
        return f"{self.major}.{self.minor:02d}.{self.micro}"


VERSION_ARGV = ("sinfo", "--version")
"""Shows the release of the installed programs."""

_VERSION = re.compile(r"slurm\S* (\d+)\.(\d+)\.(\S+)")


def parse_version(text: str) -> Release:
    """Return the release that ``sinfo --version`` printed.

    Raises:
        UnreadableOutputError: Not such an answer.
    """
    found = _VERSION.match(text.strip())
    if found is None:
        raise UnreadableOutputError("sinfo --version", 1, text, "no release in it")
    return Release(int(found[1]), int(found[2]), found[3])


_MINUTE_S = 60.0
_DEFAULT_WINDOW_MIN = 1440
_DEFAULT_RESOLUTION_S = 60
_DEFAULT_INTERVAL_S = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterConfig:
    """The settings that FreeTrain goes by.

    Attributes:
        cluster: ClusterName.
        release: slurmctld's release.
        select_type: For example ``select/cons_tres``.
        select_type_parameters: For example ``CR_CPU_MEMORY``.
        scheduler_type: For example ``sched/backfill``.
        scheduler_parameters: SchedulerParameters by name; empty for a bare word.
        priority_type: For example ``priority/multifactor``.
        preempt_type: For example ``preempt/partition_prio``.
        preempt_mode: For example ``CANCEL``.
        private_data: Kinds of records of which users see only their own.
        kill_wait_s: Between a job's TERM and its KILL.
        complete_wait_s: How long ending jobs hold up the schedulers.
        over_time_limit_s: How long jobs may overrun their limit.
        has_epilog: Whether an epilog runs on the nodes.
        max_array_size: One more than the largest index of a job array.
        topology_plugin: For example ``topology/tree``; empty where Slurm omits it.
    """

    cluster: str
    release: Release
    select_type: str
    select_type_parameters: str
    scheduler_type: str
    scheduler_parameters: Mapping[str, str] = field(hash=False)
    priority_type: str
    preempt_type: str
    preempt_mode: str
    private_data: tuple[str, ...]
    kill_wait_s: float
    complete_wait_s: float
    over_time_limit_s: float
    has_epilog: bool
    max_array_size: int
    topology_plugin: str = ""

    @property
    def bf_window_s(self) -> float:
        """How far ahead backfill plans; infinite where it does not."""
        if self.scheduler_type != "sched/backfill":
            return math.inf
        return _MINUTE_S * self._number("bf_window", _DEFAULT_WINDOW_MIN)

    @property
    def bf_resolution_s(self) -> float:
        """The grain of planned starts."""
        return float(self._number("bf_resolution", _DEFAULT_RESOLUTION_S))

    @property
    def bf_interval_s(self) -> float:
        """The pause between two backfill cycles."""
        return float(self._number("bf_interval", _DEFAULT_INTERVAL_S))

    def overrun_s(self, partition: Partition, *, epilog_s: float) -> float:
        """Return how long after its limit a job may still hold its node.

        Args:
            partition: The job's partition.
            epilog_s: How long the epilog takes, where there is one.
        """
        allowed_s = partition.over_time_limit_s
        if allowed_s is None:
            allowed_s = self.over_time_limit_s
        return allowed_s + self.kill_wait_s + (epilog_s if self.has_epilog else 0.0)

    def _number(self, name: str, default: int) -> int:
        text = self.scheduler_parameters.get(name, "")
        return int(text) if text.isdecimal() else default


CONFIG_ARGV = ("scontrol", "show", "config")
"""Shows the configuration."""

_LINE = re.compile(r"^(\S+)\s*= ?(.*)$", re.MULTILINE)


def parse_config(text: str) -> ClusterConfig:
    """Return the configuration that ``scontrol show config`` printed.

    Raises:
        UnreadableOutputError: Not such an answer, or a setting is missing.
    """
    command = "scontrol show config"
    check_whole(text, command)
    settings = {key: value.strip() for key, value in reversed(_LINE.findall(text))}
    try:
        return _config(settings)
    except KeyError as error:
        why = f"the setting {error.args[0]} is missing"
        raise UnreadableOutputError(command, 0, text, why) from error
    except ValueError as error:
        raise UnreadableOutputError(command, 0, text, str(error)) from error


def _config(settings: dict[str, str]) -> ClusterConfig:
    return ClusterConfig(
        cluster=settings["ClusterName"],
        release=parse_version(f"slurm {settings['SLURM_VERSION']}"),
        select_type=settings["SelectType"],
        select_type_parameters=settings["SelectTypeParameters"],
        scheduler_type=settings["SchedulerType"],
        scheduler_parameters=_parameters(settings["SchedulerParameters"]),
        priority_type=settings["PriorityType"],
        preempt_type=settings["PreemptType"],
        preempt_mode=settings["PreemptMode"],
        private_data=_private(settings["PrivateData"]),
        kill_wait_s=_seconds(settings["KillWait"]),
        complete_wait_s=_seconds(settings["CompleteWait"]),
        over_time_limit_s=_seconds(settings["OverTimeLimit"]),
        has_epilog=_has_epilog(settings),
        max_array_size=int(settings["MaxArraySize"]),
        topology_plugin=text_or_empty(settings.get("TopologyPlugin", "")),
    )


def _parameters(text: str) -> dict[str, str]:
    if text in NOTHING:
        return {}
    pairs = (word.partition("=") for word in text.split(","))
    return {name.strip(): value for name, _, value in pairs if name.strip()}


def _private(text: str) -> tuple[str, ...]:
    return () if text == "none" else tuple(text_or_empty(text).split(","))


def _seconds(text: str) -> float:
    return duration_s(text) or 0.0


def _has_epilog(settings: dict[str, str]) -> bool:
    """Tell whether an Epilog is set; 23.11 and later number several of them."""
    return any(
        re.fullmatch(r"Epilog(\[\d+\])?", key) and value not in NOTHING
        for key, value in settings.items()
    )


@dataclass(frozen=True, slots=True)
class Leaf:
    """A leaf switch, or a block: the smallest group of nodes that the site names.

    Attributes:
        name: The switch's or the block's.
        nodes: Its nodes, as a hostlist expression.
    """

    name: str
    nodes: str


TOPOLOGY_ARGV = ("scontrol", "--oneliner", "show", "topology")
"""Shows switches or blocks."""

COMMAND = "scontrol show topology"
_WITH_LEAVES = frozenset({"topology/tree", "topology/block"})

_FIRST_WITH_YAML = (25, 5)
"""From it on topology.yaml counts, and the configuration says topology/flat all the
same (seen on 26.05.5)."""


def must_have_leaves(config: ClusterConfig) -> bool:
    """Tell whether an answer without leaves is a failed query."""
    return config.topology_plugin in _WITH_LEAVES


def may_have_leaves(config: ClusterConfig) -> bool:
    """Tell whether it is worth asking for the topology."""
    return must_have_leaves(config) or config.release.series >= _FIRST_WITH_YAML


_FIELD = re.compile(r"(?:^| )([A-Za-z]+)=(\S*)")


def parse_topology(text: str) -> tuple[Leaf, ...]:
    """Return the leaves that ``scontrol show topology`` printed, in its order.

    Switches above others and blocks made of blocks are left out, and so are leaves
    without nodes, and other kinds that a newer Slurm may know (rings).

    Raises:
        UnreadableOutputError: Not such an answer, or cut short.
    """
    if not text.strip():
        return ()
    check_whole(text, COMMAND)
    return tuple(_leaves(text))


def _leaves(text: str) -> Iterator[Leaf]:
    for number, line in enumerate(text.splitlines(), start=1):
        pairs = _FIELD.findall(line)
        if not pairs or not line.startswith(f"{pairs[0][0]}="):
            why = "expected SwitchName=… or BlockName=…"
            raise UnreadableOutputError(COMMAND, number, line, why)
        (kind, name), fields = pairs[0], dict(reversed(pairs))
        is_leaf = kind in {"SwitchName", "BlockName"} and "Switches" not in fields
        if is_leaf and name and expand(fields.get("Nodes", "")):
            yield Leaf(name, fields["Nodes"])


def leaf_by_node(leaves: Iterable[Leaf]) -> dict[str, str]:
    """Return the name of each node's leaf; of several the first.

    Raises:
        UnreadableOutputError: A list of nodes is unreadable.
    """
    found: dict[str, str] = {}
    for leaf in leaves:
        for node in expand(leaf.nodes):
            found.setdefault(node, leaf.name)
    return found
