"""Pieces of nodes: how many leases fit beside jobs, and what is missing elsewhere."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm.errors import SlurmRefusedError
from slurm.holes import HoleEnd, Snapshot, find_free_gpus, find_holes, why_no_hole
from slurm.pieces import (
    Lack,
    in_proportion,
    lacks,
    never_fits,
    room,
    with_job,
    without,
)
from slurm.records import (
    Grain,
    Gres,
    JobRecord,
    Node,
    NodeSharing,
    NodeState,
    Partition,
    Requirement,
)
from slurm.text import parse_nodes
from tests.slurm.clusters import NOW_S, running, snapshot_of, waiting

BY_CPU = NodeSharing(Grain.CPU, counts_memory=True)
PARTITION = "freetrain"


def gpus(count: int, kind: str = "a100") -> tuple[Gres, ...]:
    return (Gres("gpu", kind, count),)


def node(name: str = "n1", *states: NodeState, **changes: object) -> Node:
    """A node of eight CPUs, 8000 MiB and four GPUs, half of each in use."""
    settings: dict[str, object] = {
        "states": frozenset(states or (NodeState.MIXED,)),
        "features": frozenset({"ib"}),
        "gres": gpus(4),
        "cpus": 8,
        "memory_mib": 8000,
        "partitions": (PARTITION,),
        "allocated_cpus": 4,
        "allocated_memory_mib": 4000,
        "allocated_gres": gpus(2),
        "cpus_per_core": 2,
        "cpus_per_socket": 4,
    }
    return Node(name=name, **(settings | changes))  # type: ignore[arg-type]


def wanted(**changes: object) -> Requirement:
    settings: dict[str, object] = {
        "gres": gpus(1),
        "cpus": 2,
        "memory_mib": 2000,
        "exclusive": False,
    }
    return Requirement(partition=PARTITION, **(settings | changes))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "grain", "count"),
    [
        ({}, Grain.CPU, 2),
        ({"gres": gpus(2), "cpus": 1, "memory_mib": 1}, Grain.CPU, 1),
        ({"gres": gpus(3)}, Grain.CPU, 0),
        ({"gres": (Gres("gpu", "", 1),)}, Grain.CPU, 2),
        ({"gres": gpus(1, "v100")}, Grain.CPU, 0),
        ({"gres": (), "cpus": 1, "memory_mib": 1}, Grain.CPU, 2),  # by cores, too
        ({"gres": (), "cpus": 1, "memory_mib": 1}, Grain.CORE, 2),
        ({"gres": (), "cpus": 1, "memory_mib": 1}, Grain.SOCKET, 1),
        ({"gres": (), "cpus": 0, "memory_mib": 3000}, Grain.CPU, 1),
        ({"gres": (), "cpus": 1, "memory_mib": 0}, Grain.CPU, 0),  # perhaps all of it
        ({"gres": (), "cpus": 1}, Grain.NODE, 0),
    ],
)
def test_the_resource_of_which_least_is_free_says_how_many_fit(
    changes: dict[str, object], grain: Grain, count: int
) -> None:
    assert room(node(), wanted(**changes), replace(BY_CPU, grain=grain)) == count


SHARDED = (*gpus(2), Gres("shard", "a100", 8))


@pytest.mark.parametrize(
    ("present", "used", "asked", "count"),
    [
        (SHARDED, (Gres("shard", "a100", 2),), gpus(1), 0),  # perhaps one on each GPU
        (SHARDED, (Gres("shard", "a100", 1),), gpus(1), 1),
        (SHARDED, gpus(1), (Gres("shard", "", 1),), 0),
        (SHARDED, (), (Gres("shard", "", 3),), 2),
        ((*gpus(2), Gres("mps", "", 200)), (Gres("mps", "", 50),), gpus(1), 0),
        (gpus(4), gpus(3, ""), gpus(1), 1),
        ((*gpus(2), *gpus(2, "v100")), gpus(1, "h100"), gpus(1), 1),
        (gpus(2), gpus(4), gpus(1), 0),
    ],
)
def test_what_is_not_understood_of_gpus_in_use_counts_as_used(
    present: tuple[Gres, ...],
    used: tuple[Gres, ...],
    asked: tuple[Gres, ...],
    count: int,
) -> None:
    here = node(gres=present, allocated_gres=used, allocated_cpus=2)
    assert room(here, wanted(gres=asked, cpus=1, memory_mib=1), BY_CPU) == count


def test_memory_that_slurm_does_not_count_keeps_nobody_out() -> None:
    full = node(allocated_memory_mib=8000)
    uncounted = NodeSharing(Grain.CPU, counts_memory=False)
    assert room(full, wanted(), uncounted) == 2
    assert room(full, wanted(), BY_CPU) == 0


COUNTS = st.integers(0, 8)


@given(st.tuples(COUNTS, COUNTS, COUNTS), st.tuples(COUNTS, COUNTS, COUNTS))
def test_leases_fit_as_long_as_each_finds_all_it_takes(
    used: tuple[int, int, int], each: tuple[int, int, int]
) -> None:
    here = node(
        gres=gpus(8),
        memory_mib=8,
        allocated_cpus=used[0],
        allocated_memory_mib=used[1],
        allocated_gres=gpus(used[2]),
        cpus_per_core=1,
    )
    asked = wanted(
        cpus=each[0], memory_mib=each[1], gres=gpus(each[2]) if each[2] else ()
    )
    takes = (max(1, each[0]), each[1] or 8, each[2])
    left, count = [8 - amount for amount in used], 0
    while all(has >= takes_ for has, takes_ in zip(left, takes, strict=True)):
        left = [has - takes_ for has, takes_ in zip(left, takes, strict=True)]
        count += 1
    assert room(here, asked, BY_CPU) == count
    assert (lacks(here, asked, BY_CPU) is None) is (count > 0)


def test_the_first_resource_that_is_missing_is_named() -> None:
    assert lacks(node(), wanted(gres=gpus(3)), BY_CPU) == Lack("gpu:a100", 2, 3, 4)
    assert lacks(node(), wanted(cpus=5), BY_CPU) == Lack("cpus", 4, 6, 8)  # cores
    assert lacks(node(), wanted(memory_mib=4001), BY_CPU) == Lack(
        "memory_mib", 4000, 4001, 8000
    )
    assert never_fits(node(), wanted(gres=gpus(5))) == Lack("gpu:a100", 2, 5, 4)
    assert never_fits(node(), wanted()) is None


def test_cpus_and_memory_go_with_the_gpus() -> None:
    small = node("n2", cpus=6, memory_mib=4000, cpus_per_core=1)
    bare = wanted(cpus=0, memory_mib=0)
    shaped = in_proportion(bare, [node(), small], BY_CPU)
    assert (shaped.cpus, shaped.memory_mib) == (1, 1000)
    assert in_proportion(bare, [node()], BY_CPU).cpus == 2
    paired = replace(small, cpus_per_core=2)
    assert in_proportion(bare, [paired], BY_CPU).cpus == 2  # a core at least
    said = wanted(cpus=3, memory_mib=10)
    assert in_proportion(said, [node()], BY_CPU) == said
    no_gpu = wanted(gres=(), cpus=2, memory_mib=0)
    assert in_proportion(no_gpu, [node()], BY_CPU).memory_mib == 2000
    uncounted = NodeSharing(Grain.CPU, counts_memory=False)
    assert in_proportion(bare, [node()], uncounted).memory_mib == 0


@pytest.mark.parametrize("is_last", [True, False])
@pytest.mark.parametrize(
    ("changes", "cpus", "memory_mib"),
    [
        ({"cpus": 8}, 2, 2000),
        ({"memory_mib": 4000}, 4, 1000),
        ({"gres": gpus(8)}, 2, 1000),
        ({"partitions": ("main",)}, 4, 2000),
        ({"features": frozenset()}, 4, 2000),
        ({"cpus_per_core": 8}, 4, 2000),
        ({"cpus_per_socket": 8}, 4, 2000),
    ],
)
def test_of_nodes_that_differ_in_anything_the_least_part_counts(
    changes: dict[str, object], cpus: int, memory_mib: int, *, is_last: bool
) -> None:
    usual = {"cpus": 16, "cpus_per_core": 1, "cpus_per_socket": 4}
    nodes = [node(**usual), node(**(usual | changes))]  # type: ignore[arg-type]
    grain = Grain.SOCKET if "cpus_per_socket" in changes else Grain.CPU
    bare = wanted(cpus=0, memory_mib=0, features=frozenset({"ib"}))

    shaped = in_proportion(
        bare, nodes if is_last else nodes[::-1], replace(BY_CPU, grain=grain)
    )

    assert (shaped.cpus, shaped.memory_mib) == (cpus, memory_mib)


# Holes of pieces


def holes_of(
    look: Snapshot, asked: Requirement, sharing: NodeSharing = BY_CPU
) -> dict[str, tuple[int, HoleEnd]]:
    found = find_holes(
        look, asked, is_ours=lambda j: j.job_id == 7, margin_s=0.0, sharing=sharing
    )
    return {hole.node: (hole.room, hole.ends_by) for hole in found}


def look_of(*nodes: Node, jobs: tuple[JobRecord, ...] = ()) -> Snapshot:
    return snapshot_of(nodes=nodes, jobs=jobs)


def test_beside_jobs_there_are_holes_for_pieces_and_none_for_whole_nodes() -> None:
    look = look_of(
        node("n1"), node("n2", allocated_gres=gpus(4)), jobs=(running(1, "n1"),)
    )
    assert holes_of(look, wanted()) == {"n1": (2, HoleEnd.PARTITION_LIMIT)}
    assert holes_of(look, wanted(exclusive=True)) == {}


def test_where_jobs_get_whole_nodes_pieces_are_whole_nodes() -> None:
    idle = node("n2", NodeState.IDLE, allocated_cpus=0)
    look = look_of(node("n1"), idle, jobs=(running(1, "n1"),))
    linear = NodeSharing(Grain.NODE, counts_memory=False)
    assert holes_of(look, wanted(), linear) == {"n2": (1, HoleEnd.PARTITION_LIMIT)}
    exclusive = replace(look.partitions[0], oversubscribe="EXCLUSIVE")
    whole = replace(look, partitions=(exclusive,))
    assert set(holes_of(whole, wanted())) == {"n2"}


def test_a_planned_job_ends_every_piece_of_its_node() -> None:
    look = look_of(node("n1"), node("n2"), jobs=(waiting(5, "n1", in_s=600.0),))
    found = find_holes(
        look, wanted(), is_ours=lambda _: False, margin_s=60.0, sharing=BY_CPU
    )
    ends = {hole.node: (hole.end_s, hole.blocker) for hole in found}
    assert ends["n1"] == (NOW_S + 540.0, "5")
    assert ends["n2"][1] == ""


@pytest.mark.parametrize(
    "changes",
    [
        {"states": frozenset({NodeState.MIXED, NodeState.DRAIN})},
        {"states": frozenset({NodeState.MIXED, NodeState.COMPLETING})},
        {"states": frozenset({NodeState.DOWN})},
        {"unknown_states": frozenset({"BLUE"})},
        {"owner": "ada"},
        {"partitions": ("other",)},
        {"features": frozenset()},
    ],
)
def test_no_piece_is_free_where_no_job_of_ours_could_start(
    changes: dict[str, object],
) -> None:
    look = look_of(replace(node(), **changes))  # type: ignore[arg-type]
    assert holes_of(look, wanted(features=frozenset({"ib"}))) == {}


def test_a_node_where_a_lease_of_ours_runs_stays_a_hole_without_room() -> None:
    full = node(allocated_cpus=8)
    look = look_of(full, jobs=(running(7, "n1"), running(1, "n1")))
    found = find_holes(
        look, wanted(), is_ours=lambda j: j.job_id == 7, margin_s=0.0, sharing=BY_CPU
    )
    assert [(hole.room, hole.held_by) for hole in found] == [(0, (7,))]


def test_gpus_that_no_job_of_others_has_are_counted_and_unclear_nodes_named() -> None:
    lease = replace(
        running(7, "n2"), cpu_count=2, least_memory_mib=2000, gres_per_node="gres:gpu:1"
    )
    look = look_of(
        node("n1"),
        node("n2"),
        node("n3", allocated_cpus=8),
        node("n4", NodeState.MIXED, NodeState.COMPLETING),
        node("n5", NodeState.DOWN),
        jobs=(running(1, "n1"), lease),
    )

    free, unclear = find_free_gpus(look, is_ours=lambda job: job.job_id == 7)

    assert free == {"n1": 2, "n2": 3, "n3": 0}
    assert unclear == {"n4"}


def test_a_partition_may_give_its_jobs_a_part_of_the_cpus_alone() -> None:
    def room_with(*jobs: JobRecord) -> dict[str, int]:
        look = look_of(node(allocated_gres=(), cpus_per_core=1), jobs=jobs)
        part = Partition(
            PARTITION, "", is_up=True, max_time_s=1e5, most_cpus_per_node=6
        )
        holes = holes_of(replace(look, partitions=(part,)), wanted(cpus=1))
        return {name: count for name, (count, _) in holes.items()}

    theirs = replace(running(1, "n1"), partitions=(PARTITION,), cpu_count=3)
    assert room_with(replace(theirs, partitions=("main",))) == {"n1": 2}
    assert room_with(theirs, replace(theirs, cpu_count=2)) == {"n1": 1}
    over_two = replace(theirs, nodes="n[1-2]", cpu_count=7)
    assert room_with(over_two) == {}


def test_why_a_node_has_no_hole() -> None:
    look = look_of(
        node("n1"),
        node("n2", allocated_gres=gpus(4)),
        node("n3", features=frozenset()),
        node("n4", NodeState.MIXED, NodeState.DRAIN),
        node("n5", gres=()),
        node("n6", owner="ada"),
        node("n7", partitions=("other",)),
        jobs=(running(1, "n1"),),
    )
    asked = wanted(features=frozenset({"ib"}))
    found = why_no_hole(look, asked, is_ours=lambda _: False, sharing=BY_CPU)
    assert found == {
        "n2": Lack("gpu:a100", 0, 1, 4),
        "n3": "it has no feature ib",
        "n4": "its state is DRAIN+MIXED",
        "n5": Lack("gpu:a100", 0, 1, 0),
        "n6": "only jobs of ada may run there",
    }
    whole = replace(asked, exclusive=True)
    found = why_no_hole(look, whole, is_ours=lambda _: False, sharing=BY_CPU)
    assert found["n1"] == "job 1 runs there"
    assert found["n2"] == "its state is MIXED"
    elsewhere = replace(asked, partition="other")
    with pytest.raises(SlurmRefusedError):
        why_no_hole(look, elsewhere, is_ours=lambda _: False, sharing=BY_CPU)


# Nodes as Slurm prints them


def test_what_jobs_have_of_a_node_is_read() -> None:
    line = (
        "NodeName=n1 CoresPerSocket=4 CPUAlloc=6 CPUEfctv=14 CPUTot=16 "
        "ActiveFeatures=ib Gres=gpu:a100:4(S:0-1) GresDrain=N/A "
        "GresUsed=gpu:a100:3(IDX:0-2) RealMemory=8000 AllocMem=3000 Sockets=2 "
        "MemSpecLimit=500 ThreadsPerCore=2 State=MIXED Owner=ada(1001) MCS_label=N/A "
        "Partitions=main\n"
    )
    (read,) = parse_nodes(line)
    assert (read.cpus, read.allocated_cpus) == (14, 6)
    assert (read.memory_mib, read.allocated_memory_mib) == (7500, 3000)
    assert read.allocated_gres == gpus(3)
    assert (read.cpus_per_core, read.cpus_per_socket, read.owner) == (2, 8, "ada")
    (free,) = parse_nodes(line.replace("Owner=ada(1001)", "Owner=N/A"))
    assert free.owner == ""
    # Without --details nobody knows how many GPUs the jobs there have.
    (told,) = parse_nodes(line.replace("GresUsed=gpu:a100:3(IDX:0-2) ", ""))
    assert told.allocated_gres == gpus(4)


# Nodes once jobs come and go


@given(gpus_taken=st.integers(1, 2), cpus=st.integers(1, 4), mib=st.integers(1, 4000))
def test_a_node_is_as_before_once_a_job_that_came_is_gone(
    gpus_taken: int, cpus: int, mib: int
) -> None:
    before = node()
    taken = wanted(gres=gpus(gpus_taken), cpus=cpus, memory_mib=mib)
    during = with_job(before, taken, BY_CPU)
    assert room(during, taken, BY_CPU) == room(before, taken, BY_CPU) - 1
    rounded = replace(taken, cpus=2 * -(-cpus // 2))  # whole cores
    assert room(without(during, [rounded]), taken, BY_CPU) == room(
        before, taken, BY_CPU
    )


def test_gpus_of_no_known_kind_come_free_only_where_a_node_has_one_kind() -> None:
    held = wanted(gres=gpus(1, ""))
    assert without(node(), [held]).allocated_gres == gpus(1)
    mixed = node(gres=(*gpus(4), *gpus(2, "v100")), allocated_gres=gpus(2))
    assert without(mixed, [held]).allocated_gres == gpus(2)


def test_a_job_that_asks_for_no_memory_by_amount_takes_all_of_it() -> None:
    full = with_job(node(), wanted(memory_mib=0), BY_CPU)
    assert room(full, wanted(memory_mib=1), BY_CPU) == 0
