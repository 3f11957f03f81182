"""What a waiting job asks for decides which leases go for it: each kind of request."""

from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from freetrain.broker.backfill import (
    BackfillState,
    allocate,
    by_slurm_order,
    idle_first,
)
from freetrain.broker.yielding import find_claims
from slurm.demands import demand_of
from slurm.records import Gres, JobRecord, Node
from tests.broker.broker_records import NOW_S, hole
from tests.broker.test_backfill import suits
from tests.broker.waiting_jobs import waiting

NODES = (
    Node(
        "a1",
        frozenset(),
        features=frozenset({"a100", "ib", "rack1"}),
        gres=(Gres("gpu", "a100", 4),),
        cpus=64,
        memory_mib=512_000,
        partitions=("main", "gpu"),
    ),
    Node(
        "a2",
        frozenset(),
        features=frozenset({"a100", "rack2"}),
        gres=(Gres("gpu", "a100", 2),),
        cpus=64,
        memory_mib=256_000,
        partitions=("main", "gpu"),
    ),
    Node(
        "c1",
        frozenset(),
        features=frozenset({"ib", "rack1"}),
        cpus=16,
        memory_mib=64_000,
        partitions=("main",),
    ),
    Node(
        "c2",
        frozenset(),
        features=frozenset({"rack2"}),
        cpus=16,
        memory_mib=64_000,
        partitions=("main", "long"),
    ),
)
BY_NAME = {node.name: node for node in NODES}


def state(leased: str = "a1 a2 c1 c2") -> BackfillState:
    """Return the nodes *leased*, all others held by somebody for good."""
    names = leased.split()
    return BackfillState(
        holes=tuple(hole(name) for name in BY_NAME if name in names),
        nodes=BY_NAME,
        leased=frozenset(names),
    )


def given_up(*jobs: JobRecord, leased: str = "a1 a2 c1 c2") -> str:
    """Return the leased nodes that are given up for *jobs*."""
    claims = find_claims(jobs, state(leased), is_ours=lambda _: False, now_s=NOW_S)
    return " ".join(sorted(claims.leased))


CASES = {
    "and": ({"features": "a100&ib"}, "a1"),
    "comma": ({"features": "a100,ib"}, "a1"),
    "or": ({"features": "none|ib", "nodes": 2}, "a1 c1"),
    "and behind or": ({"features": "a100|ib&rack2"}, "a2"),
    "parentheses": ({"features": "rack2&(ib|a100)"}, "a2"),
    "brackets": ({"features": "[rack1|rack2]", "nodes": 2}, "a1 c1"),
    "brackets, too many": ({"features": "[rack1|rack2]", "nodes": 3}, ""),
    "counts": ({"features": "[a100*1&rack2*2]", "nodes": 3}, "a1 a2 c2"),
    "a count": ({"features": "ib*2", "nodes": 3}, "a1 a2 c1"),
    "a count, too many": ({"features": "ib*3", "nodes": 3}, ""),
    "unclear": ({"features": "!ib"}, "a1"),
    "cut": ({"features": "rack2&i", "cut": frozenset({"features"})}, "a1"),
    "excluded": ({"excluded_nodes": "a[1-2]"}, "c1"),
    "excluded, unclear": ({"excluded_nodes": "a[[1-2]"}, "a1"),
    "CPUs": ({"least_cpus": 32, "excluded_nodes": "a1"}, "a2"),
    "too many CPUs": ({"least_cpus": 65}, ""),
    "memory": ({"least_memory_mib": 300_000}, "a1"),
    "too much memory": ({"least_memory_mib": 600_000}, ""),
    "GRES of a kind": ({"gres_per_node": "gres:gpu:a100:3"}, "a1"),
    "GRES": ({"gres_per_node": "gres:gpu:2", "nodes": 2}, "a1 a2"),
    "GRES of no such kind": ({"gres_per_node": "gres:gpu:h100:1"}, ""),
    "GRES for each task": ({"gres_per_task": "gres:gpu:3"}, "a1"),
    "GRES in all": ({"gres_per_job": "gres:gpu:6"}, "a1 a2"),
    "GRES in all, on one": ({"gres_per_job": "gres:gpu:4"}, "a1"),
    "node list": ({"requested_nodes": "c2"}, "c2"),
    "partitions": ({"partitions": ("long", "gpu"), "nodes": 2}, "a1 a2"),
    "one partition": ({"partitions": ("long", "gpu"), "nodes": 3}, ""),
    "a licence that is there": ({"reason": "Priority"}, "a1"),
    "a licence that is not": ({"reason": "Licenses"}, ""),
    "a limit": ({"reason": "MaxMemPerLimit"}, ""),
}


@pytest.mark.parametrize("case", CASES)
def test_leases_go_for_a_job_only_where_it_could_start(case: str) -> None:
    asked, nodes = CASES[case]
    assert given_up(waiting(**asked)) == nodes  # type: ignore[arg-type]


def component(number: int, nodes: int = 1, **asked: object) -> JobRecord:
    return waiting(number, nodes, het_job_id=7, **asked)


def test_components_of_a_heterogeneous_job_start_together_or_not_at_all() -> None:
    wide = component(7, 2, partitions=("gpu",))
    other = component(8, features="rack2")

    assert given_up(wide, other) == "a1 a2 c2"
    assert given_up(wide, other, leased="a1 a2 c1") == ""
    assert given_up(wide, leased="a1 a2 c1") == "a1 a2"


def test_behind_a_heterogeneous_job_that_must_wait_others_start_elsewhere() -> None:
    wide, other = component(7, 2), component(8, features="rack2", priority=100)
    behind = waiting(9, priority=1)
    assert given_up(wide, other, behind, leased="a1 a2 c1") == "c1"


def test_a_job_has_at_least_the_nodes_that_it_insists_on() -> None:
    assert demand_of(waiting(1, 1, requested_nodes="a1,c1")).nodes == 2


feature = st.sampled_from(["a100", "ib", "rack1", "rack2"])
constraints = st.one_of(
    st.just(""),
    feature,
    st.builds("{}{}{}".format, feature, st.sampled_from("&|,"), feature),
    st.builds("{}&({}|{})".format, feature, feature, feature),
    st.builds("[{}|{}]".format, feature, feature),
    st.builds("{}*{}".format, feature, st.integers(1, 3)),
    st.builds("[{}*{}&{}*1]".format, feature, st.integers(1, 2), feature),
)
any_job = st.builds(
    waiting,
    st.just(1),
    st.integers(1, 4),
    features=constraints,
    partitions=st.sampled_from([("main",), ("gpu", "long"), ("long",), ()]),
    excluded_nodes=st.sampled_from(["", "a1", "c[1-2]"]),
    requested_nodes=st.sampled_from(["", "", "c1", "a2", "a1,c1"]),
    least_cpus=st.sampled_from([0, 17, 64]),
    least_memory_mib=st.sampled_from([0, 65_000, 300_000]),
    gres_per_node=st.sampled_from(["", "", "gres:gpu:1", "gres:gpu:a100:3"]),
)


def could_have(job: JobRecord, names: tuple[str, ...]) -> bool:
    """Tell by Slurm's documentation whether *job* could have exactly these nodes."""
    demand, nodes = demand_of(job), [BY_NAME[name] for name in names]
    if not demand.required <= set(names):
        return False
    for partition in demand.partitions or ("main",):
        for choice in demand.choices:
            many = [count for _, count in choice.some]
            least = sum(many) if choice.is_apart else max(many, default=0)
            if len(nodes) != max(demand.nodes, least):
                continue
            if not all(suits(node, demand, choice, partition) for node in nodes):
                continue
            counts = [
                (sum(part in node.features for node in nodes), count)
                for part, count in choice.some
            ]
            if all(there >= count for there, count in counts):
                return True
    return False


@settings(max_examples=300, deadline=None)
@given(any_job, st.sets(st.sampled_from(sorted(BY_NAME)), min_size=1))
def test_a_job_starts_where_some_nodes_do_for_it_and_gets_such_nodes(
    job: JobRecord, leased: set[str]
) -> None:
    there = state(" ".join(leased))
    for order in (idle_first, by_slurm_order):
        found = allocate(
            [there.eligibility.request(job)], there, NOW_S, rank=order(there)
        )

        ways = [
            names
            for size in range(1, len(leased) + 1)
            for names in combinations(sorted(leased), size)
            if could_have(job, names)
        ]
        assert bool(found.started) == bool(ways)
        if found.started:
            assert could_have(job, tuple(found.taken))
