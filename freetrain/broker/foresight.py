"""Nodes sorted by what is expected of them, for a planner that goes by it; pure."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from freetrain.broker.pool import Classes
from milp.problem import NodeClass
from milp.window import Stay

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from freetrain.broker.pool import Pool, PoolNode
    from freetrain.forecast.interface import Prospect

    Key = tuple[tuple[str, ...], str, int, bool]

_STEP_S = 60.0
"""Nodes of a group whose ends are known are told apart by the minute."""

_ALIKE_S = 20.0
"""Nodes that leave alone fall into one class where their lives differ by less."""

_APART = 1e-6
"""Share of a class that a hit takes whose nodes leave one by one: h(x) is linear."""


class Forecast(Protocol):
    """What is expected of nodes; ``forecast.live.LiveForecast`` or a fake of it."""

    def group(self, node: str) -> str:
        """Return the name of the nodes that are expected to leave with *node*."""
        ...

    def size(self, node: str) -> int:
        """Return how many idle nodes that group has, whoever may use them."""
        ...

    def prospect(self, node: str, usable_s: float) -> Prospect:
        """Return what is expected of the group of *node*, usable for so long."""
        ...


@dataclass(frozen=True, slots=True)
class Foreseen:
    """The nodes of a pool, sorted by what is expected of them.

    Attributes:
        classes: What the planner sees.
        stays: What is expected of each class.
        parts: Classes of one group, by group, where it falls into several: leased ones
            first, as whoever fills up takes those that last longest first.
    """

    classes: Classes
    stays: tuple[Stay, ...]
    parts: tuple[tuple[int, ...], ...] = ()

    def fresh(
        self, held: Mapping[int, int], free: Mapping[int, int]
    ) -> dict[int, float]:
        """Return what share of the hits on classes is new to a trainer, where not all.

        A hit on a group counts once: of its later parts only as far as it spares the
        earlier ones, those nodes that the trainer holds and those that are to be had.

        Args:
            held: Its nodes by class.
            free: Nodes that nobody holds, by class.
        """
        fresh = {}
        for parts in self.parts:
            before = 0
            for k in parts:
                own = held.get(k, 0) + free.get(k, 0)
                if own and before:
                    fresh[k] = (1.0 - self.stays[k].share) ** before
                before += own
        return fresh


@dataclass(slots=True)
class _Alike:
    """Nodes that fall into one class, and what is expected of their whole groups."""

    nodes: list[PoolNode] = field(default_factory=list)
    groups: dict[str, Stay] = field(default_factory=dict)

    def add(self, node: PoolNode, group: str, whole: Stay) -> None:
        self.nodes.append(node)
        self.groups[group] = whole


def classify_by(
    forecast: Forecast,
    pool: Pool,
    *,
    now_s: float,
    horizon_s: float,
    wait_s: float = 0.0,
) -> Foreseen:
    """Sort the nodes of *pool* by who leaves together, and about when.

    A class has one use, one group, and one known end where that comes before the
    horizon. Nodes that leave alone are put together by how long they last: each of
    them is hit by itself, so that the hits of a class add up.

    Args:
        forecast: What is expected.
        pool: The nodes.
        now_s: Unix time.
        horizon_s: How far plans reach, seconds; what comes later counts nothing.
        wait_s: How long idle nodes wait for a lease, during which nobody trains there;
            above 0 they are apart from those that are leased already.
    """
    groups = {node.name: forecast.group(node.name) for node in pool.nodes}
    sizes = Counter(groups.values())
    wholes: dict[tuple[str, int], Stay] = {}
    found: dict[Key, _Alike] = {}
    for node in pool.nodes:
        group = groups[node.name]
        until = _until(max(0.0, node.end_s - now_s), horizon_s)
        if (group, until) not in wholes:
            known_s = math.inf if until < 0 else until * _STEP_S
            prospect = forecast.prospect(node.name, known_s)
            wholes[group, until] = Stay(forecast.size(node.name), *prospect)
        whole = wholes[group, until]
        is_alone = sizes[group] == 1
        alike = f"alone {int(whole.life_s / _ALIKE_S)}" if is_alone else group
        waits = wait_s > 0.0 and node.lease is None
        key = (tuple(sorted(node.shapes)), alike, until, waits)
        found.setdefault(key, _Alike()).add(node, group, whole)
    return _foreseen(pool, found, now_s=now_s, horizon_s=horizon_s, wait_s=wait_s)


def rank_by(
    forecast: Forecast, nodes: Sequence[PoolNode], *, now_s: float, horizon_s: float
) -> list[PoolNode]:
    """Sort *nodes* by their expected lives, the longest first, groups kept whole.

    Args:
        forecast: What is expected.
        nodes: Idle nodes.
        now_s: Unix time.
        horizon_s: How far expectations reach, seconds.
    """

    def key(node: PoolNode) -> tuple[float, str, float]:
        usable_s = max(0.0, node.end_s - now_s)
        until_s = math.inf if usable_s >= horizon_s else usable_s
        life_s = forecast.prospect(node.name, until_s).life_s
        return -life_s, forecast.group(node.name), -node.end_s

    return sorted(nodes, key=key)


def _until(usable_s: float, horizon_s: float) -> int:
    """Return the whole minutes that a node can be used; -1 beyond the horizon."""
    return -1 if usable_s >= horizon_s else int(usable_s / _STEP_S)


def _foreseen(
    pool: Pool,
    found: Mapping[Key, _Alike],
    *,
    now_s: float,
    horizon_s: float,
    wait_s: float,
) -> Foreseen:
    classes, stays, index = [], [], {}
    ordered = sorted(found)
    for k, key in enumerate(ordered):
        nodes, (shapes, alike, until, waits) = found[key].nodes, key
        life_s = max(0.0, min(node.end_s for node in nodes) - now_s)
        classes.append(NodeClass(f"{'+'.join(shapes)}, {alike}", len(nodes), life_s))
        wholes = list(found[key].groups.values())
        stay = _stay(wholes, len(nodes), is_end_known=until >= 0).until(horizon_s)
        useful_s = max(0.0, stay.life_s - wait_s) if waits else stay.life_s
        stays.append(stay._replace(life_s=useful_s))
        index.update(dict.fromkeys((node.name for node in nodes), k))
    return Foreseen(
        Classes(
            pool=pool,
            classes=tuple(classes),
            shapes=tuple(frozenset(key[0]) for key in ordered),
            index=index,
        ),
        tuple(stays),
        _parts(found, stays),
    )


def _parts(
    found: Mapping[Key, _Alike], stays: Sequence[Stay]
) -> tuple[tuple[int, ...], ...]:
    """Return the classes of each group that falls into several, the longest first."""
    parts: dict[tuple[str, int], list[int]] = {}
    for k, key in enumerate(sorted(found)):
        # Nodes that leave alone are in one class only: any of their groups will do.
        group, (_, _, until, _) = next(iter(found[key].groups)), key
        parts.setdefault((group, until), []).append(k)
    return tuple(
        tuple(sorted(own, key=lambda k: -stays[k].life_s))
        for own in parts.values()
        if len(own) > 1
    )


def _stay(wholes: Sequence[Stay], nodes: int, *, is_end_known: bool) -> Stay:
    """Return what is expected of a class of one group, or of nodes that leave alone.

    What is expected is told of whole groups, all idle nodes of them: of a group that
    has others beside the class, fewer nodes are hit less, as W1 has it.

    Of nodes that leave alone W1 is to be linear: x nodes are hit x times as often as
    one. It is where the share is next to nothing, and ``hit`` then the hits on all of
    them. But those whose known ends fall into one minute are lost at once.
    """
    if len(wholes) == 1:
        one = wholes[0]
        is_whole = one.nodes == nodes
        return one if is_whole else one._replace(nodes=nodes, hit=one.hits()[nodes])
    life_s = sum(one.life_s for one in wholes) / len(wholes)
    if is_end_known:
        return Stay(nodes, life_s, 1.0, 1.0)
    hits = sum(one.hits()[1] for one in wholes)
    return Stay(nodes, life_s, hits, _APART)
