"""A plan beside leases that stay on a node of which a part is given up."""

from dataclasses import replace

import pytest

from freetrain.broker.backfill import (
    BackfillState,
    LeaseSpan,
    allocate,
    by_slurm_order,
)
from freetrain.broker.parts import SharedNode, SharedNodes, YieldingLease
from slurm.records import Grain, Gres, JobRecord, Node, NodeSharing, Requirement
from tests.broker.broker_records import NOW_S, hole
from tests.broker.waiting_jobs import waiting

GPU = Gres("gpu", "", 1)
NODE = Node(
    "n1",
    frozenset(),
    partitions=("main",),
    gres=(replace(GPU, count=4),),
    cpus=4,
    allocated_cpus=4,
    allocated_gres=(replace(GPU, count=4),),
)
HELD = Requirement(partition="", cpus=1, gres=(GPU,), exclusive=False)
PIECES = tuple(YieldingLease(number, number, HELD) for number in (11, 12, 13, 14))
KEPT = {"n1": frozenset({12, 13, 14})}
END_S = NOW_S + 3_600.0


def state(pieces: tuple[YieldingLease, ...]) -> BackfillState:
    """Return a node with these leases; others have the rest for 100 s."""
    shared = SharedNode(NODE, hole("n1"), pieces)
    is_whole = len(pieces) == len(PIECES)
    return BackfillState(
        holes=(hole("n1"),) if is_whole else (),
        nodes={"n1": NODE},
        leased=frozenset({"n1"}),
        shared=SharedNodes({"n1": shared}, NodeSharing(Grain.CPU, counts_memory=False)),
        spans={"n1": LeaseSpan(NOW_S, END_S)},
        busy_until_s={} if is_whole else {"n1": NOW_S + 100.0},
    )


def one_gpu(number: int) -> JobRecord:
    return waiting(number, cpu_count=1, gres_per_node="gres:gpu:1", oversubscribe="OK")


@pytest.mark.parametrize("pieces", [PIECES, PIECES[:3]])
def test_only_what_is_given_up_is_free_beside_leases_that_stay(
    pieces: tuple[YieldingLease, ...],
) -> None:
    before = state(pieces)
    kept = {"n1": KEPT["n1"] & {piece.job_id for piece in pieces}}
    beside = before.beside({"n1"}, {}, kept)
    whole = waiting(3, oversubscribe="NO", priority=1)
    jobs = [one_gpu(1), one_gpu(2), whole]
    requests = [before.eligibility.request(job) for job in jobs]

    found = allocate(requests, beside, NOW_S, rank=by_slurm_order(beside))

    assert found.started == {1}
    assert found.booked_s == {"n1": END_S}


@pytest.mark.parametrize("pieces", [PIECES, PIECES[:3]])
def test_nothing_is_free_of_a_node_that_is_not_given_up(
    pieces: tuple[YieldingLease, ...],
) -> None:
    before = state(pieces)
    beside = before.beside(set(), {}, {})
    requests = [before.eligibility.request(one_gpu(1))]
    found = allocate(requests, beside, NOW_S, rank=by_slurm_order(beside))
    assert found.started == frozenset()
