"""Which job gets which nodes if our leases give way, held against a naive plan."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from freetrain.broker.backfill import (
    BackfillState,
    Rank,
    allocate,
    by_slurm_order,
    idle_first,
    startable_tasks,
)
from slurm.demands import FeatureChoice, NodeDemand, demand_of, has_features
from slurm.holes import Hole, HoleEnd
from slurm.records import Gres, JobRecord, Node
from tests.broker.broker_records import NOW_S
from tests.broker.waiting_jobs import NODES, waiting

MOST_BOOKINGS = 50

NO_LIMIT_S = 1e9


def suits(
    node: Node, demand: NodeDemand, choice: FeatureChoice, partition: str
) -> bool:
    """Tell whether *node* has what each node of a job must have."""

    def has(gres: Gres) -> bool:
        there = [
            g for g in node.gres if (g.name, gres.kind or g.kind) == (gres.name, g.kind)
        ]
        return sum(g.count for g in there) >= gres.count

    return (
        partition in node.partitions
        and node.name not in demand.excluded
        and (choice.each is None or has_features(choice.each, node.features))
        and node.cpus >= demand.cpus
        and node.memory_mib >= demand.memory_mib
        and all(map(has, demand.gres))
    )


@dataclass
class Naive:
    """Who gets what.

    Attributes:
        ground: Where jobs might start.
        ranked: Its holes, those first that are given first.
        now_s: The moment.
        held: When others have nodes, by node.
    """

    ground: BackfillState
    ranked: list[Hole]
    now_s: float
    held: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    taken: dict[str, int] = field(default_factory=dict)
    started: set[int] = field(default_factory=set)
    booked_s: dict[str, float] = field(default_factory=dict)
    made: int = 0

    def allocate(self, queue: list[JobRecord]) -> None:
        asked = {str(job.job_id) for job in queue}
        holes = {hole.node: hole for hole in self.ranked}
        for name in self.ground.nodes:
            until_s = self.ground.busy_until_s.get(name, math.inf)
            if name not in holes:
                self.hold(name, self.now_s, max(until_s, self.now_s + 1))
            elif holes[name].blocker and holes[name].blocker not in asked:
                self.hold(name, holes[name].end_s or 0.0, math.inf)
        for job in queue:
            if len(self.taken) == len(holes):
                return
            if not self.starts(job):
                self.book(job)

    def hold(self, name: str, from_s: float, to_s: float) -> None:
        self.held.setdefault(name, []).append((from_s, to_s))

    def is_free(self, name: str, from_s: float, limit_s: float) -> bool:
        to_s = max(from_s + limit_s, from_s + 1)
        return all(a >= to_s or b <= from_s for a, b in self.held.get(name, ()))

    def eligibility(self, job: JobRecord) -> Iterator[str]:
        demand = demand_of(job)
        (choice,) = demand.choices
        for name, node in self.ground.nodes.items():
            if suits(node, demand, choice, *demand.partitions) and (
                name in demand.required or len(demand.required) < demand.nodes
            ):
                yield name

    def starts(self, job: JobRecord) -> bool:
        eligibility, insists = set(self.eligibility(job)), demand_of(job).required
        limit_s = job.limit_s or 0.0
        there = [hole.node for hole in self.ranked if hole.node in eligibility]
        if not insists <= {*there, *self.ground.partly}:
            return False
        free = [name for name in there if self.is_free(name, self.now_s, limit_s)]
        beside, nodes = len(eligibility & self.ground.partly), demand_of(job).nodes
        must = insists & set(there)
        if len(free) < nodes - beside or not must <= set(free):
            return False
        free.sort(key=lambda name: name not in insists)
        most = 1 if must else startable_tasks(job, most=len(self.ground.nodes))
        got: list[str] = []
        for _ in range(most):
            task = free[len(got) : len(got) + nodes]
            if not task or len(task) < nodes - beside:
                break
            got += task
        for name in got:
            self.hold(name, self.now_s, max(self.now_s + limit_s, self.now_s + 1))
            self.taken[name] = job.job_id
        self.started.add(job.job_id)
        return True

    def book(self, job: JobRecord) -> None:
        self.made += 1
        eligibility, insists = list(self.eligibility(job)), demand_of(job).required
        nodes = demand_of(job).nodes
        if self.made > MOST_BOOKINGS or not insists <= set(eligibility):
            return
        limit_s = NO_LIMIT_S if job.limit_s is None else job.limit_s
        ends = {end for spans in self.held.values() for _, end in spans}
        for from_s in sorted({self.now_s, *ends} - {math.inf}):
            free = [name for name in eligibility if self.is_free(name, from_s, limit_s)]
            if len(free) >= nodes and insists <= set(free):
                free.sort(key=lambda name: name not in insists)
                for name in free[:nodes]:
                    self.hold(name, from_s, max(from_s + limit_s, from_s + 1))
                    before_s = self.booked_s.get(name, math.inf)
                    self.booked_s[name] = min(from_s, before_s)
                return


NAMES = tuple(f"n{k}" for k in range(6))

job_of_any_kind = st.builds(
    waiting,
    nodes=st.integers(1, 6),
    limit_s=st.sampled_from([60.0, 600.0, 6_000.0, None]),
    requested_nodes=st.sampled_from(["", "", "", "n[0,3]", "n9", *NAMES]),
    array_tasks=st.sampled_from(["", "", "", "1-2", "1-9", "1-..."]),
    features=st.sampled_from(["", "", "fast", "slow", "slow|fast", "fast&slow", "!"]),
    excluded_nodes=st.sampled_from(["", "", "", "n[1-2]", "n5", "n[[", "n9"]),
    least_cpus=st.sampled_from([0, 1, 2]),
    least_memory_mib=st.sampled_from([0, 0, 500, 2_000]),
    gres_per_node=st.sampled_from(["", "", "gres:gpu", "gres:gpu:a100:2", "gpu??"]),
)

some_jobs = st.lists(job_of_any_kind, min_size=1, max_size=6)


def numbered(some: list[JobRecord], times: int = 1) -> list[JobRecord]:
    return [replace(one, job_id=k) for k, one in enumerate(some * times)]


jobs = some_jobs.map(numbered)

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
    slow = replace(NODES["n0"], features=frozenset({"slow"}), memory_mib=1_000)
    gpus = replace(slow, cpus=2, memory_mib=4_000, gres=(Gres("gpu", "a100", 2),))
    nodes = {
        name: replace(draw(st.sampled_from([NODES["n0"], slow, gpus])), name=name)
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
        kinds = [one.eligibility.ways(job)[0].eligible for one in same]
        assert all(one is another for one, another in pairwise(kinds))
        suiting = 0 if "n0" in demand_of(job).required else kinds[0].units
        (way,) = other.eligibility.ways(job)
        without = way.eligible.units << 1  # n0 was the first
        assert without == suiting & ~state.eligibility.bit("n0")
