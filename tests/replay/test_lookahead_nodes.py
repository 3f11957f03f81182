from collections.abc import Collection, Sequence
from collections.abc import Set as AbstractSet

import numpy as np
from numpy.typing import NDArray

from freetrain.lookahead.base import Prospect
from freetrain.planning.policy import PlanTrainer
from freetrain.replay.accounting import Run
from freetrain.replay.policies.base import Change, View
from freetrain.replay.policies.lookahead import changes_to_holdings
from milp.problem import custom
from tests.replay.worlds import trainer

CLOSE = {frozenset({0, 2}): 0.9, frozenset({1, 3}): 0.8}


class Pairs:
    """A forecaster to whom all nodes are of cluster 0, and some pairs are closer."""

    is_learning = False

    def see(
        self, now_s: float, *, joined: Collection[int], left: Collection[int]
    ) -> None:
        raise NotImplementedError

    def cluster(self, node: int) -> int:
        del node
        return 0

    def members(self, cluster: int) -> AbstractSet[int]:
        del cluster
        return frozenset(range(10))

    def prospect(self, cluster: int) -> Prospect:
        raise NotImplementedError

    def survival(self, node: int, horizon_s: float) -> float:
        raise NotImplementedError

    def affinity(self, nodes: Sequence[int]) -> NDArray[np.float64]:
        rows = [[CLOSE.get(frozenset({a, b}), 0.5) for b in nodes] for a in nodes]
        return np.array(rows)


def changes(
    held: Sequence[Sequence[int]], free: Sequence[int], new: Sequence[int]
) -> list[Change]:
    """Return the changes from *held* nodes to *new* counts, all of one cluster."""
    curve = custom([0.0, 1.0, 2.0, 3.0, 4.0])
    runs = [
        Run(place, trainer(), [0.0, 1.0], 0.0, held=set(own))
        for place, own in enumerate(held)
    ]
    nodes = len(free) + sum(map(len, held))
    trainers = [
        PlanTrainer(
            name=str(place),
            curve=curve,
            held={0: len(own)} if own else {},
            up_s=0.0,
            down_s=0.0,
            start_s=0.0,
        )
        for place, own in enumerate(held)
    ]
    view = View(
        now_s=0.0,
        trainers=runs,
        free=free,
        idle_nodes=nodes,
        since_s=[0.0] * nodes,
        joined=(),
        left=(),
    )
    holdings = [{0: n} if n else {} for n in new]
    return list(changes_to_holdings(holdings, trainers, view, Pairs()))


def test_of_a_cluster_those_closest_to_each_other_are_taken() -> None:
    assert changes([[]], [0, 1, 2, 3], [2]) == [Change(0, take=(0, 2))]


def test_of_a_cluster_those_closest_to_each_other_are_given_up() -> None:
    assert changes([[1, 2, 3]], [], [1]) == [Change(0, drop=(1, 3))]


def test_what_one_gives_up_another_may_take() -> None:
    assert changes([[0, 2], []], [], [0, 2]) == [
        Change(0, drop=(0, 2)),
        Change(1, take=(0, 2)),
    ]


def test_two_that_take_of_one_cluster_get_different_nodes() -> None:
    made = changes([[], []], [0, 1, 2, 3], [2, 2])

    assert made == [Change(0, take=(0, 2)), Change(1, take=(1, 3))]


def test_who_keeps_what_it_holds_is_not_changed() -> None:
    assert changes([[0, 1]], [2], [2]) == []
