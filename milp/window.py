"""Planning by expected lives: the problem, its objective, and how a plan is judged.

Nodes that are expected to leave together form a class; a plan says how many nodes of
which class each trainer has. Symbols in brackets are those of docs/lookahead.md.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from milp.problem import Curve

Holding: TypeAlias = "Mapping[int, int]"
"""Nodes by class, none of them 0."""


class Stay(NamedTuple):
    """A class of nodes, and what is expected of it until the horizon.

    Attributes:
        nodes: [m_k] How many are idle now, held ones included; above 0.
        life_s: [L_k] Mean seconds until the horizon that one of them stays.
        hit: [p_k] Probability that at least one leaves before the horizon.
        share: [f_k] Share that leaves with a hit, above 0, to 1.
    """

    nodes: int
    life_s: float
    hit: float
    share: float

    def hits(self) -> list[float]:
        """Return [h_k] the expected hits on 0 .. m_k of its nodes.

        Nodes of a class leave together, so that many are hit hardly more often than
        few: h(x) = p (1 - (1-f)^x) / (1 - (1-f)^m), which is p for all of them.
        """
        some = gone(self.share, self.nodes)
        return [self.hit * one / some[-1] for one in some]

    def until(self, reach_s: float) -> Stay:
        """Return the same where nothing counts that comes after *reach_s*.

        Who lives longer in the mean is not hit before.
        """
        if self.life_s <= reach_s:
            return self
        return self._replace(life_s=reach_s, hit=0.0)


def gone(share: float, nodes: int) -> list[float]:
    """Return [1 - (1-f)^x] on 0 .. *nodes* nodes, of which *share* leaves with a hit.

    It is the probability that one of x leaves, if each does by itself.
    """
    stays = 1.0 - share
    return [1.0 - stays**few for few in range(nodes + 1)]


@dataclass(frozen=True, slots=True)
class Holder:
    """A trainer as the look-ahead planner sees it.

    Attributes:
        curve: [O_j] Its worth by node count.
        held: [C_jk] Nodes it holds now, by class.
        up_s: [Rup_j] Seconds of its present worth that growing costs.
        down_s: [Rdw_j] Seconds of its present worth that shrinking costs.
        start_s: [Rst_j] Seconds of its new worth that starting from 0 costs.
        loss_s: [D_j] Seconds of its worth that losing nodes costs.
        fresh: [s_jk] By class, 0 to 1: what share of the hits on it hits no other node
            of this trainer's; 1 where not named. Where nodes that leave together are of
            several classes, the later of them go on where the earlier ones end:
            h(o + x) = h(o) + (1-f)^o h(x).
    """

    curve: Curve
    held: Holding
    up_s: float
    down_s: float
    start_s: float
    loss_s: float
    fresh: Mapping[int, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Window:
    """Who gets how many nodes of which class, as lives are expected.

    Attributes:
        stays: [K] Classes by number.
        free: Nodes that nobody holds, by class.
        trainers: [J] In order of admission.
        hit_weight: [κ] What a foreseeable loss counts.
        change_weight: [η] What a change counts; above 1 for hysteresis.
    """

    stays: Mapping[int, Stay]
    free: Holding
    trainers: tuple[Holder, ...]
    hit_weight: float
    change_weight: float


def gain(window: Window, place: int, holding: Holding) -> float:
    """Return what trainer *place* gains by *holding* until the horizon [W0].

    ::

        O(n) (Σ x_k L_k / n - κ D Σ s_k h_k(x_k))
            - η O(C) (Rup [n > C] + Rdw [n < C]) - [C = 0] η Rst O(n)

    Returns:
        Objective units; below 0 where changing and losing cost more than is gained.
    """
    trainer = window.trainers[place]
    nodes, held = sum(holding.values()), sum(trainer.held.values())
    worth = trainer.curve.value_per_s
    change_s = trainer.up_s if nodes > held else trainer.down_s if nodes < held else 0.0
    cost = window.change_weight * worth.item(held) * change_s
    if not nodes:
        return -cost
    stays, fresh = window.stays, trainer.fresh
    life_s = sum([n * stays[k].life_s for k, n in holding.items()]) / nodes
    hits = sum([fresh.get(k, 1.0) * stays[k].hits()[n] for k, n in holding.items()])
    useful_s = life_s - window.hit_weight * trainer.loss_s * hits
    if held == 0:
        useful_s -= window.change_weight * trainer.start_s
    return worth.item(nodes) * useful_s - cost


def total_gain(window: Window, plan: Sequence[Holding]) -> float:
    """Return what all trainers gain together."""
    return sum([gain(window, place, holding) for place, holding in enumerate(plan)])
