"""Planning by expected lives: the problem, its objective, and checks of its plans.

Nodes that are expected to leave together form a class; a plan says how many nodes of
which class each trainer has. W0 to W2 are in docs/notes/lookahead.md, M1 to M5 in
docs/reference/model.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from milp.verify import is_size

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from milp.problem import Curve

Holding: TypeAlias = "Mapping[int, int]"
"""Nodes by class, none of them 0."""


class WindowClass(NamedTuple):
    """A class of nodes, and what is expected of it until the horizon.

    Attributes:
        nodes: [m_k] Nodes that are idle now, held ones included; above 0.
        life_s: [L_k] Mean seconds until the horizon that one of them stays.
        hit: [p_k] Probability that at least one leaves before the horizon.
        share: [f_k] Share that leaves with a hit, above 0, to 1.
    """

    nodes: int
    life_s: float
    hit: float
    share: float

    def hits(self) -> list[float]:
        """Return [h_k] the expected hits on 0 .. m_k of its nodes (W1).

        Nodes of a class leave together, so that many are hit hardly more often than
        few: h(x) = p (1 - (1-f)^x) / (1 - (1-f)^m), which is p for all of them.
        """
        touched = hit_probabilities(self.share, self.nodes)
        return [self.hit * part / touched[-1] for part in touched]

    def until(self, reach_s: float) -> WindowClass:
        """Return the same where nothing counts that comes after *reach_s*.

        A class whose mean life is longer is not hit before.
        """
        if self.life_s <= reach_s:
            return self
        return self._replace(life_s=reach_s, hit=0.0)


def hit_probabilities(share: float, nodes: int) -> list[float]:
    """Return [1 - (1-f)^x] for x = 0 .. *nodes*, where *share* leaves with a hit.

    It is the probability that one of x nodes leaves, if each does so by itself.
    """
    stays = 1.0 - share
    return [1.0 - stays**few for few in range(nodes + 1)]


@dataclass(frozen=True, slots=True)
class WindowTrainer:
    """A trainer as the look-ahead planner sees it.

    Attributes:
        curve: [O_j] Its worth by node count.
        held: [C_jk] Nodes it holds now, by class.
        up_s: [Rup_j] Seconds of its present worth that growing costs.
        down_s: [Rdw_j] Seconds of its present worth that shrinking costs.
        start_s: [Rst_j] Seconds of its new worth that starting from 0 costs.
        loss_s: [D_j] Seconds of its worth that losing nodes costs.
        new_hit_share: [s_jk] By class, 0 to 1: the share of its hits that hit no other
            node of this trainer's; 1 where not named. Where nodes that leave together
            are in several classes, the later ones continue the earlier ones' curve:
            h(o + x) = h(o) + (1-f)^o h(x).
    """

    curve: Curve
    held: Holding
    up_s: float
    down_s: float
    start_s: float
    loss_s: float
    new_hit_share: Mapping[int, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Window:
    """Which trainer gets how many nodes of which class, given expected lives.

    Attributes:
        classes: [K] By number.
        free: Nodes that no trainer holds, by class.
        trainers: [J] A plan has a holding for each, in this order.
        hit_weight: [κ] Weight of a foreseeable loss.
        change_weight: [η] Weight of a change; above 1 for hysteresis.
    """

    classes: Mapping[int, WindowClass]
    free: Holding
    trainers: tuple[WindowTrainer, ...]
    hit_weight: float
    change_weight: float


def gain(window: Window, place: int, holding: Holding) -> float:
    """Return what trainer *place* gains by *holding* until the horizon (W0).

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
    classes, new_share = window.classes, trainer.new_hit_share
    life_s = sum([n * classes[k].life_s for k, n in holding.items()]) / nodes
    hits = sum(
        [new_share.get(k, 1.0) * classes[k].hits()[n] for k, n in holding.items()]
    )
    useful_s = life_s - window.hit_weight * trainer.loss_s * hits
    if held == 0:
        useful_s -= window.change_weight * trainer.start_s
    return worth.item(nodes) * useful_s - cost


def total_gain(window: Window, plan: Sequence[Holding]) -> float:
    """Return what all trainers gain together."""
    return sum([gain(window, place, holding) for place, holding in enumerate(plan)])


# Checks of a plan in plain Python, whatever a search or a solver claimed.

_ROUNDING = 1e-9


def violations(
    window: Window, holdings: Sequence[Holding], *, claimed: float, least: float
) -> tuple[str, ...]:
    """Return what is wrong with a plan, in sentences; empty for a sound one.

    M1 to M4, over the trainers that change; a window has no M5.

    Args:
        window: The problem.
        holdings: The plan.
        claimed: Its gain (W0), as the search or solver has it.
        least: What keeping the present plan gains.
    """
    pairs = enumerate(zip(window.trainers, holdings, strict=True))
    moved = [
        (place, trainer, new)
        for place, (trainer, new) in pairs
        if new is not trainer.held and new != trainer.held
    ]
    broken = [fault for changed in moved for fault in _trainer_violations(*changed)]
    broken += _over_stock(window, moved)
    if not broken and claimed < least - _ROUNDING * (1.0 + abs(least)):
        broken = [f"W0: gains {claimed!r}, and keeping the present plan {least!r}"]
    return tuple(broken)


def _trainer_violations(
    place: int, trainer: WindowTrainer, new: Holding
) -> Iterator[str]:
    held = trainer.held
    before, nodes = sum(held.values()), sum(new.values())
    if nodes and not is_size(nodes, trainer.curve.sizes):
        yield f"M2: trainer {place}: {nodes} nodes is not a size it can use"
    for k, count in new.items():
        if type(count) is not int or count < 0:
            yield f"M1: trainer {place}: {count!r} is not a whole number of nodes"
        if nodes <= before and count > held.get(k, 0):
            yield _migrates(place, before, nodes, k)
    if nodes >= before:
        for k, count in held.items():
            if count > new.get(k, 0):
                yield _migrates(place, before, nodes, k)


def _migrates(place: int, before: int, nodes: int, k: int) -> str:
    way = "more" if nodes <= before else "fewer"
    return f"M4: trainer {place}: {before} to {nodes} nodes, but {way} of class {k}"


def _over_stock(
    window: Window, moved: Sequence[tuple[int, WindowTrainer, Holding]]
) -> Iterator[str]:
    """M3: no more of a class is given than was free or is given up."""
    more: dict[int, int] = {}
    for _, trainer, new in moved:
        for k, count in new.items():
            more[k] = more.get(k, 0) + count
        for k, count in trainer.held.items():
            more[k] = more.get(k, 0) - count
    for k, count in more.items():
        if count > window.free.get(k, 0):
            yield f"M3: {count} more nodes of class {k}, of which fewer are free"


# Time limits, by a clock that the caller passes in: the planner itself knows none.


@dataclass(frozen=True, slots=True)
class SearchDeadline:
    """The moment at which planning must have an answer.

    Attributes:
        end_s: The deadline on *clock*.
        clock: Seconds that only go up.
    """

    end_s: float
    clock: Callable[[], float]

    def left_s(self) -> float:
        """Return the seconds that are left; below 0 where it has passed."""
        return self.end_s - self.clock()

    def passed(self) -> bool:
        """Tell whether no time is left."""
        return self.left_s() <= 0.0

    def share(self, part: float) -> SearchDeadline:
        """Return an earlier deadline, after *part* of the time that is left."""
        now_s = self.clock()
        return SearchDeadline(now_s + part * max(0.0, self.end_s - now_s), self.clock)


NEVER = SearchDeadline(math.inf, float)
"""For callers with all the time there is."""
