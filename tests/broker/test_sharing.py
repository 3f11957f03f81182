"""Who gets which nodes, were our leases away."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from freetrain.broker.ground import Ground, idle_first, slurms_order
from freetrain.broker.sharing import share
from slurm.holes import Hole, HoleEnd
from tests.broker.broker_records import NOW_S
from tests.broker.test_claims import NODES, waiting

if TYPE_CHECKING:
    from collections.abc import Callable

    from freetrain.broker.ground import Rank
    from slurm.records import JobRecord

NAMES = tuple(f"n{k}" for k in range(6))

jobs = st.lists(
    st.builds(
        waiting,
        nodes=st.integers(1, 6),
        limit_s=st.sampled_from([60.0, 600.0, 6_000.0]),
        requested_nodes=st.sampled_from(["", "", "", *NAMES]),
    ),
    min_size=1,
    max_size=6,
).map(lambda some: [replace(one, job_id=k) for k, one in enumerate(some)])


@st.composite
def grounds(draw: st.DrawFn) -> Ground:
    """Draw nodes that are idle, leased, promised to somebody who waits, or busy."""
    holes, leased, busy_s = list[Hole](), set[str](), dict[str, float]()
    for name in NAMES:
        end_s = NOW_S + draw(st.sampled_from([100.0, 1_000.0, 10_000.0]))
        match draw(st.sampled_from(["idle", "leased", "planned", "busy"])):
            case "busy":
                busy_s[name] = end_s
            case "planned":
                by = str(draw(st.integers(0, 7)))
                holes.append(Hole(name, NOW_S, end_s, HoleEnd.PLANNED_JOB, by))
            case kind:
                holes.append(Hole(name, NOW_S, float("inf"), HoleEnd.OPEN))
                leased |= {name} if kind == "leased" else set()
    nodes = {name: replace(NODES["n0"], name=name) for name in NAMES}
    return Ground(holes, nodes, frozenset(leased), busy_until_s=busy_s)


@given(
    jobs,
    grounds(),
    st.frozensets(st.integers(0, 5), min_size=1),
    st.sampled_from([idle_first, slurms_order]),
)
def test_of_whom_is_asked_about_the_same_start_as_where_all_are(
    queue: list[JobRecord],
    ground: Ground,
    until: frozenset[int],
    order: Callable[[Ground], Rank],
) -> None:
    rank = order(ground)

    asked = share(queue, ground, NOW_S, rank=rank, until=until)
    every = share(queue, ground, NOW_S, rank=rank)

    assert asked.started & until == every.started & until
    assert asked.taken.items() <= every.taken.items()


@given(jobs, grounds())
def test_grounds_of_the_same_nodes_share_what_suits_whom_and_no_others(
    queue: list[JobRecord], ground: Ground
) -> None:
    fewer = {name: node for name, node in ground.nodes.items() if name != "n0"}
    same = (ground, ground.beside({}, {}), replace(ground, leased=frozenset()))
    other = replace(ground, nodes=fewer)

    for job in queue:
        names = [one.suiting.names(job) for one in same]
        assert all(one is another for one, another in pairwise(names))
        assert other.suiting.names(job) == tuple(n for n in names[0] if n != "n0")
