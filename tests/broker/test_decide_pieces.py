"""Decisions about leases that take pieces of nodes: GPUs beside other jobs."""

import math
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from freetrain.broker.decide import Decision, decide_leases
from freetrain.broker.lease import Assignment, Lease
from freetrain.broker.limits import Limits
from freetrain.broker.pool import PoolNode, Situation, Trainer, pool_of
from freetrain.broker.reasons import HoleReason, Refusal
from freetrain.broker.reconcile import EndLeases, Submit
from freetrain.broker.yielding import Claims
from freetrain.planning.freetrain import FreeTrain
from milp.answer import PlanStatus
from milp.problem import throughput
from slurm.holes import Hole, HoleEnd
from tests.broker.broker_records import NOW_S, generation, lease, situation
from tests.planning.requests import TOOLS

WIDTHS = {"one": 1, "two": 2, "four": 4}


SIXTEEN = throughput([10.0 * n for n in range(17)], [4, 8, 16])


def free(node: str, gpus: int, *, shape: str, in_use: bool = True) -> Hole:
    """What is free of a node for leases of *shape*; "whole" takes an idle node."""
    room = gpus // WIDTHS[shape] if shape in WIDTHS else int(not in_use)
    return Hole(
        node, NOW_S, math.inf, HoleEnd.OPEN, room=room, held_by=(), is_in_use=in_use
    )


def look(
    gpus: dict[str, int],
    *trainers: Trainer,
    leases: tuple[Lease, ...] = (),
    idle: frozenset[str] = frozenset(),
    shapes: tuple[str, ...] = ("one", "two", "four"),
    **changes: Any,  # noqa: ANN401 - fields of a Situation
) -> Situation:
    """A cluster with so many free GPUs on each node."""
    found: dict[str, list[Hole]] = {shape: [] for shape in shapes}
    by_node: dict[str, list[int]] = {}
    for held in leases:
        by_node.setdefault(held.node, []).append(held.job_id or 0)
    for node, count in gpus.items():
        for shape in shapes:
            in_use = node not in idle
            hole = free(node, count, shape=shape, in_use=in_use)
            hole = replace(hole, held_by=tuple(by_node.get(node, ())))
            if hole.room or hole.held_by:
                found[shape].append(hole)
    widths = {shape: width for shape, width in WIDTHS.items() if shape in shapes}
    fields = {"holes": found, "trainers": trainers, "widths": widths}
    return situation(*leases, **(fields | changes))


def trainer(name: str, shape: str, *tasks: int, most: int = 8) -> Trainer:
    curve = throughput([10.0 * n**0.9 for n in range(most + 1)])
    newest = generation(name, *tasks) if tasks else None
    return Trainer(name, curve, shape, 5.0, 5.0, 5.0, newest)


def decided(seen: Situation, limits: Limits | None = None) -> Decision:
    return decide_leases(seen, FreeTrain(TOOLS), limits or Limits(), t_fwd_s=1_000.0)


def units(nodes: tuple[PoolNode, ...], node: str) -> list[int]:
    return [part.units for part in nodes if part.node == node]


def asked(decision: Decision) -> Counter[str]:
    """How many leases of each shape are asked for."""
    submits = (a for a in decision.actions if isinstance(a, Submit))
    return Counter({s.shape: s.tasks for s in submits})


def test_free_gpus_are_cut_into_pieces_as_wide_as_leases() -> None:
    nodes, refused = pool_of(look({"n1": 7, "n2": 2}), Limits())
    assert units(nodes, "n1") == [4, 2, 1]
    assert units(nodes, "n2") == [2]
    assert refused == {}
    assert len({part.name for part in nodes}) == len(nodes)


def test_an_idle_node_stays_one_part_where_a_lease_may_take_it_whole() -> None:
    seen = look({"n1": 8}, idle=frozenset({"n1"}), shapes=("one", "four", "whole"))
    (part,) = pool_of(seen, Limits())[0]
    assert (part.node, part.units, part.is_apart) == ("n1", 8, True)
    assert part.shapes == {"one", "four", "whole"}


def test_of_a_kind_with_fewer_gpus_free_fewer_pieces_are_for_its_leases() -> None:
    seen = look({"n1": 4}, shapes=("one",))
    few = replace(seen.holes["one"][0], room=1)
    seen = replace(
        seen, holes={**seen.holes, "kind": (few,)}, widths={"one": 1, "kind": 1}
    )
    nodes, _ = pool_of(seen, Limits())
    assert sorted(map(sorted, (part.shapes for part in nodes))) == [
        ["kind", "one"],
        ["one"],
        ["one"],
        ["one"],
    ]


def test_each_lease_of_a_node_is_a_part_of_its_own_beside_what_is_free() -> None:
    held = (lease(0, "n1", shape="one"), lease(1, "n1", shape="two"))
    nodes, _ = pool_of(look({"n1": 1}, leases=held), Limits())
    assert [(p.units, p.lease and p.lease.key.task) for p in nodes] == [
        (1, 0),
        (2, 1),
        (1, None),
    ]


def test_leases_that_leave_close_no_free_gpus_beside_them() -> None:
    leaving = lease(0, "n1", shape="one", notice_s=NOW_S - 5.0)
    nodes, refused = pool_of(look({"n1": 2}, leases=(leaving,)), Limits())
    assert units(nodes, "n1") == [2]
    assert refused == {}
    nodes, refused = pool_of(look({"n1": 0}, leases=(leaving,)), Limits())
    assert (nodes, refused) == ((), {"n1": Refusal.LEAVING})


def test_leases_stay_beside_a_job_that_fits_into_what_is_free() -> None:
    held = tuple(lease(task, "n1", shape="one") for task in range(2))
    claims = Claims(leased={}, idle={"n1": 99})
    nodes, refused = pool_of(look({"n1": 2}, leases=held, claims=claims), Limits())
    assert [part.lease for part in nodes] == list(held)
    assert refused == {}


def test_a_lease_that_a_job_needs_goes_and_its_neighbour_stays() -> None:
    held = tuple(lease(task, "n1", shape="one") for task in range(2))
    spared = frozenset({held[0].job_id or 0})
    claims = Claims(leased={"n1": 99}, idle={}, spared={"n1": spared})
    seen = look({"n1": 0}, trainer("a", "one", 0, 1), leases=held, claims=claims)
    ends = [a for a in decided(seen).actions if isinstance(a, EndLeases)]
    assert [end.leases for end in ends] == [(held[1].key,)]
    made = [a for a in decided(seen).actions if isinstance(a, Assignment)]
    assert [each.leases for each in made] == [{held[0].key}]


def test_claims_close_every_part_of_a_node() -> None:
    claims = Claims(leased={}, idle={"n1": 99})
    nodes, refused = pool_of(look({"n1": 3, "n2": 1}, claims=claims), Limits())
    assert {part.node for part in nodes} == {"n2"}
    assert refused == {"n1": Refusal.CLAIMED}


def test_beyond_the_cap_parts_are_cut_to_the_leases_that_are_left() -> None:
    shapes = ("one", "two", "whole")
    small = trainer("a", "one", most=8)
    seen = look({"n1": 8}, small, idle=frozenset({"n1"}), shapes=shapes)
    (part,) = pool_of(seen, Limits(most_leases=3))[0]
    assert part.units == 3
    assert part.shapes == {"one", "two"}
    nodes, refused = pool_of(look({"n1": 1, "n2": 1}), Limits(most_leases=1))
    assert len(nodes) == 1
    assert list(refused.values()) == [Refusal.LEASE_CAP]


def test_a_trainer_of_one_gpu_leaves_a_trainer_of_whole_nodes_its_leases() -> None:
    nodes = {f"n{k}": 8 for k in range(16)}
    large = replace(trainer("b", "whole", most=16), curve=SIXTEEN)
    seen = look(
        nodes,
        trainer("a", "one", most=1),
        large,
        idle=frozenset(nodes),
        shapes=("one", "whole"),
    )
    assert asked(decided(seen, Limits(most_leases=16))) == {"whole": 8, "one": 1}


@pytest.mark.parametrize("most", [2, 1])
def test_what_other_resources_leave_of_an_idle_node_is_all_that_is_planned_with(
    most: int,
) -> None:
    """Eight GPUs are free, and memory for so many leases."""
    seen = look(
        {"n1": 8},
        replace(trainer("a", "one"), curve=throughput([0, 1, 2, 3, 4])),
        idle=frozenset({"n1"}),
        shapes=("one", "whole", "four"),
    )
    few = (replace(seen.holes["one"][0], room=most),)
    seen = replace(seen, holes={**seen.holes, "one": few})
    assert asked(decided(seen)) == {"one": most}


def test_six_gpus_are_planned_with_as_leases_of_four_and_two_fit() -> None:
    seen = look(
        {"n1": 6, "n2": 6},
        Trainer("a", throughput([0, 1, 2, 99], [3]), "four", 5.0, 5.0, 5.0),
        trainer("b", "two", most=6),
        idle=frozenset({"n1", "n2"}),
        shapes=("four", "two", "whole"),
    )
    assert asked(decided(seen)) == {"two": 6}


def test_leases_of_a_shape_that_nobody_asks_for_any_more_do_not_stop_the_plan() -> None:
    held = tuple(lease(task, "n1", shape="old") for task in range(2))
    seen = look({"n1": 4}, trainer("a", "four", 0, 1), leases=held)
    assert decided(seen).planned.outcome is not PlanStatus.KEPT


def test_one_trainer_gets_several_leases_on_a_node_in_one_call() -> None:
    decision = decided(look({"n1": 4, "n2": 2}, trainer("a", "one", most=6)))
    assert asked(decision) == {"one": 6}
    (request,) = decision.wanted.requests
    assert Counter(request.nodes) == {"n1": 4, "n2": 2}
    assert decision.trainers[0].usable_nodes == 6


def test_trainers_of_different_widths_share_a_node() -> None:
    trainers = trainer("a", "four", most=1), trainer("b", "one", most=3)
    decision = decided(look({"n1": 7}, *trainers))
    assert asked(decision) == {"four": 1, "one": 3}


def test_pieces_go_to_nodes_in_use_before_an_idle_node_is_broken() -> None:
    shapes = ("one", "whole")
    seen = look(
        {"n1": 8, "n2": 3},
        trainer("a", "one", most=3),
        idle=frozenset({"n1"}),
        shapes=shapes,
    )
    (request,) = decided(seen).wanted.requests
    assert set(request.nodes) == {"n2"}


def test_a_whole_node_goes_to_the_trainer_that_gains_most_by_it() -> None:
    seen = look(
        {"n1": 8},
        trainer("a", "one", most=2),
        replace(trainer("b", "whole", most=1), curve=throughput([0, 90.0])),
        idle=frozenset({"n1"}),
        shapes=("one", "whole"),
    )
    assert asked(decided(seen)) == {"whole": 1}


def test_a_trainer_keeps_its_leases_and_grows_beside_them() -> None:
    held = tuple(lease(task, "n1", shape="one") for task in range(2))
    seen = look({"n1": 2}, trainer("a", "one", 0, 1), leases=held, shapes=("one",))
    decision = decided(seen)
    assert asked(decision) == {"one": 2}
    assert not [a for a in decision.actions if isinstance(a, (EndLeases, Assignment))]
    reasons = Counter(why.reason for why in decision.holes)
    assert reasons == {HoleReason.TRAINING: 2, HoleReason.AWAITED: 2}


def test_the_same_situation_with_its_leases_asks_for_nothing_more() -> None:
    waiting = tuple(
        lease(task, shape="one", limit_min=240, deadline_s=NOW_S + 15_000.0)
        for task in range(4)
    )
    decision = decided(look({"n1": 4}, trainer("a", "one", most=4), leases=waiting))
    assert decision.actions == ()


def test_of_two_leases_that_should_each_have_a_node_one_ends() -> None:
    held = tuple(lease(task, "n1", shape="whole") for task in range(2))
    decision = decided(
        look({"n1": 8}, trainer("a", "whole", 0), leases=held, shapes=("whole",))
    )
    assert [action.leases for action in decision.actions] == [(held[1].key,)]  # type: ignore[union-attr]


def test_a_lease_beside_another_users_job_keeps_its_node() -> None:
    held = (lease(0, "n1", shape="one"),)
    decision = decided(look({"n1": 0}, trainer("a", "one", 0), leases=held))
    assert decision.actions == ()


CLUSTERS = st.dictionaries(
    st.sampled_from([f"n{i}" for i in range(6)]), st.integers(0, 8), min_size=1
)
MIXES = st.lists(
    st.tuples(st.sampled_from(["one", "two", "four", "whole"]), st.integers(1, 5)),
    min_size=1,
    max_size=5,
)


@given(CLUSTERS, MIXES, st.integers(1, 12))
def test_no_node_is_asked_for_more_than_it_has_and_no_cap_is_passed(
    gpus: dict[str, int], mix: list[tuple[str, int]], most_leases: int
) -> None:
    idle = frozenset(node for node, count in gpus.items() if count == 8)
    trainers = [
        trainer(f"t{i}", shape, most=most) for i, (shape, most) in enumerate(mix)
    ]
    shapes = ("one", "two", "four", "whole")
    seen = look(gpus, *trainers, idle=idle, shapes=shapes)
    decision = decided(seen, Limits(most_leases=most_leases))
    taken: Counter[str] = Counter()
    for request in decision.wanted.requests:
        for node in request.nodes:
            taken[node] += WIDTHS.get(request.shape, gpus[node])
    assert all(count <= gpus[node] for node, count in taken.items())
    for wanted in decision.wanted.trainers:
        assert wanted.planned_nodes in {0, *wanted.sizes}
    assert sum(t.planned_nodes for t in decision.wanted.trainers) <= most_leases
