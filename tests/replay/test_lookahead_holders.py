from dataclasses import replace

from freetrain.replay.accounting import Run
from freetrain.replay.policies.lookahead import ClusteredTrainers
from freetrain.replay.trainers import Costs
from milp.problem import custom
from tests.replay.worlds import trainer

CURVE = custom([0.0, 10.0, 20.0])
CLUSTERS = {0: 7, 1: 7, 2: 8}


def run(serial: int, *held: int) -> Run:
    return Run(serial, trainer(), [0.0, 10.0, 20.0], 0.0, held=set(held))


def test_a_trainer_is_seen_with_its_nodes_by_cluster_and_with_its_costs() -> None:
    one = run(3, 0, 1, 2)
    one.spec = replace(one.spec, costs=Costs(2.0, 3.0, 4.0, checkpoint_every_s=10.0))

    (seen,) = ClusteredTrainers().of([one], [CURVE], CLUSTERS.__getitem__)

    assert seen.held == {7: 2, 8: 1}
    assert (seen.up_s, seen.down_s, seen.start_s) == (2, 3, 4)
    assert seen.loss_s == 3.0 + 5.0


def test_who_is_as_before_is_not_made_anew() -> None:
    holders, one = ClusteredTrainers(), run(3, 0, 1)
    before = holders.of([one], [CURVE], CLUSTERS.__getitem__)

    assert holders.of([one], [CURVE], CLUSTERS.__getitem__)[0] is before[0]


def test_who_changed_in_any_way_is_made_anew() -> None:
    holders, one = ClusteredTrainers(), run(3, 0, 1)
    holders.of([one], [CURVE], CLUSTERS.__getitem__)

    one.held.remove(1)
    assert holders.of([one], [CURVE], CLUSTERS.__getitem__)[0].held == {7: 1}
    one.held.add(2)
    assert holders.of([one], [CURVE], CLUSTERS.__getitem__)[0].held == {7: 1, 8: 1}
    better = custom([0.0, 11.0, 21.0])
    assert holders.of([one], [better], CLUSTERS.__getitem__)[0].curve is better
    one.spec = replace(one.spec, costs=Costs(9.0, 9.0))
    assert holders.of([one], [better], CLUSTERS.__getitem__)[0].up_s == 9.0


def test_a_node_that_left_and_came_back_is_of_its_new_cluster() -> None:
    holders, one = ClusteredTrainers(), run(3, 0, 1)
    holders.of([one], [CURVE], CLUSTERS.__getitem__)
    one.held.remove(1)
    holders.of([one], [CURVE], CLUSTERS.__getitem__)
    one.held.add(1)

    (seen,) = holders.of([one], [CURVE], {0: 7, 1: 9}.__getitem__)

    assert seen.held == {7: 1, 9: 1}


def test_another_trainer_is_not_taken_for_one_that_held_the_same() -> None:
    holders = ClusteredTrainers()
    holders.of([run(3, 0), run(4, 1)], [CURVE] * 2, CLUSTERS.__getitem__)

    seen = holders.of([run(4, 2), run(5, 1)], [CURVE] * 2, CLUSTERS.__getitem__)

    assert [one.held for one in seen] == [{8: 1}, {7: 1}]
    assert len({one.name for one in seen}) == 2
