"""Which job gets which nodes if our leases give way."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

from hypothesis import given, settings
from hypothesis import strategies as st

from freetrain.broker.backfill import (
    BackfillState,
    allocate,
    by_slurm_order,
    idle_first,
    required_nodes,
)
from slurm.holes import Hole, HoleEnd
from tests.broker.broker_records import NOW_S
from tests.broker.naive_backfill import Naive
from tests.broker.waiting_jobs import NODES, waiting

if TYPE_CHECKING:
    from collections.abc import Callable

    from freetrain.broker.backfill import Rank
    from slurm.records import JobRecord

NAMES = tuple(f"n{k}" for k in range(6))

job_of_any_kind = st.builds(
    waiting,
    nodes=st.integers(1, 6),
    limit_s=st.sampled_from([60.0, 600.0, 6_000.0, None]),
    requested_nodes=st.sampled_from(["", "", "", "n[0,3]", "n9", *NAMES]),
    array_tasks=st.sampled_from(["", "", "", "1-2", "1-9", "1-..."]),
    features=st.sampled_from(["", "", "fast", "slow"]),
)

some_jobs = st.lists(job_of_any_kind, min_size=1, max_size=6)


def numbered(some: list[JobRecord], times: int = 1) -> list[JobRecord]:
    return [replace(one, job_id=k) for k, one in enumerate(some * times)]


jobs = some_jobs.map(numbered)
# Of many that are alike not all are tried, nor booked for.
queues = st.builds(numbered, some_jobs, st.integers(1, 20))


@st.composite
def states(draw: st.DrawFn) -> BackfillState:
    """Draw nodes that are idle, leased, planned for a waiting job, or busy."""
    holes, leased, busy_s = list[Hole](), set[str](), dict[str, float]()
    partly = set[str]()
    for name in NAMES:
        end_s = NOW_S + draw(st.sampled_from([100.0, 1_000.0, 10_000.0]))
        match draw(st.sampled_from(["idle", "leased", "planned", "busy", "shared"])):
            case "busy":
                busy_s[name] = end_s
            case "shared":
                partly.add(name)
                busy_s |= {name: end_s} if draw(st.booleans()) else {}
            case "planned":
                by = str(draw(st.sampled_from([0, 1, 999])))
                holes.append(Hole(name, NOW_S, end_s, HoleEnd.PLANNED_JOB, by))
            case kind:
                holes.append(Hole(name, NOW_S, float("inf"), HoleEnd.OPEN))
                leased |= {name} if kind == "leased" else set()
    slow = replace(NODES["n0"], features=frozenset({"slow"}))
    nodes = {
        name: replace(draw(st.sampled_from([NODES["n0"], slow])), name=name)
        for name in NAMES
    }
    return BackfillState(
        holes,
        nodes,
        frozenset(leased),
        partly=frozenset(partly),
        busy_until_s=busy_s,
    )


@settings(max_examples=500, deadline=None)
@given(queues, states(), st.sampled_from([idle_first, by_slurm_order]))
def test_jobs_get_what_they_get_node_by_node_and_second_by_second(
    queue: list[JobRecord],
    state: BackfillState,
    order: Callable[[BackfillState], Rank],
) -> None:
    rank = order(state)
    naive = Naive(state, sorted(state.holes, key=rank), NOW_S)
    naive.allocate(queue)

    shared = allocate(
        [state.eligibility.request(job) for job in queue], state, NOW_S, rank=rank
    )

    assert shared.started == naive.started
    assert list(shared.taken.items()) == list(naive.taken.items())
    assert shared.booked_s == naive.booked_s


@given(
    jobs,
    states(),
    st.frozensets(st.integers(0, 5), min_size=1),
    st.sampled_from([idle_first, by_slurm_order]),
)
def test_of_jobs_asked_about_the_same_start_as_of_all(
    queue: list[JobRecord],
    state: BackfillState,
    until: frozenset[int],
    order: Callable[[BackfillState], Rank],
) -> None:
    rank = order(state)
    requests = [state.eligibility.request(job) for job in queue]
    asked = allocate(requests, state, NOW_S, rank=rank, asked=until)
    every = allocate(requests, state, NOW_S, rank=rank)
    assert asked.started & until == every.started & until
    assert asked.taken.items() <= every.taken.items()


@given(jobs, states())
def test_states_of_the_same_nodes_share_eligibility_and_others_do_not(
    queue: list[JobRecord], state: BackfillState
) -> None:
    fewer = {name: node for name, node in state.nodes.items() if name != "n0"}
    same = (state, state.beside({}, {}), replace(state, leased=frozenset()))
    other = replace(state, nodes=fewer)

    for job in queue:
        kinds = [one.eligibility.eligible(job) for one in same]
        assert all(one is another for one, another in pairwise(kinds))
        suits = 0 if "n0" in required_nodes(job) else kinds[0].units
        without = other.eligibility.eligible(job).units << 1  # n0 was the first
        assert without == suits & ~state.eligibility.bit("n0")
