"""What a waiting job certainly asks of its nodes."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm.demands import (
    ANY_NODE,
    NodeDemand,
    asked_for,
    asked_of_parts,
    demand_of,
    held_by,
    part_demand,
)
from slurm.json import parse_jobs_json
from slurm.records import Gres, JobRecord, JobState, Node
from slurm.text import parse_squeue
from tests.slurm.clusters import recorded

JOB = JobRecord(job_id=1, display_id="1", states=frozenset({JobState.PENDING}))


@pytest.mark.parametrize(
    ("written", "gres"),
    [
        ("gres:gpu", Gres("gpu", "", 1)),
        ("gres:gpu:2", Gres("gpu", "", 2)),
        ("gres/gpu:2", Gres("gpu", "", 2)),
        ("gres/gpu=2", Gres("gpu", "", 2)),
        ("gres:gpu:a100", Gres("gpu", "a100", 1)),
        ("gres:gpu:a100:4", Gres("gpu", "a100", 4)),
        ("gres/gpu:1g.5gb:4", Gres("gpu", "1g.5gb", 4)),
        ("cpu:2,gres/gpu:4", Gres("gpu", "", 4)),
    ],
)
def test_resources_are_read_as_every_release_writes_them(
    written: str, gres: Gres
) -> None:
    for field in ("gres_per_node", "gres_per_socket", "gres_per_task"):
        asked: dict[str, Any] = {field: written}
        assert demand_of(replace(JOB, **asked)).gres == (gres,)
    assert demand_of(replace(JOB, gres_per_job=written)).gres_in_all == (gres,)


@pytest.mark.parametrize(
    "written", ["gpu", "gres:", "gres:gpu:x:y:2", "license/a:1", "?"]
)
def test_unclear_resources_ask_for_nothing(written: str) -> None:
    assert demand_of(replace(JOB, gres_per_node=written)).gres == ()


def test_of_a_cut_text_only_what_is_whole_counts() -> None:
    cut = frozenset({"gres_per_node", "features"})
    job = replace(
        JOB, gres_per_node="gres:gpu:2,gres:fpg", features="a&b", cut=cut, node_count=2
    )
    demand = demand_of(job)
    assert demand.gres == (Gres("gpu", "", 2),)
    assert demand.choices == (ANY_NODE,)


def test_what_a_job_asks_for_in_all_need_not_be_on_each_node() -> None:
    job = replace(JOB, gres_per_job="gres:gpu:8", gres_per_task="gres:gpu:2")
    one, two = demand_of(job), demand_of(replace(job, node_count=2, task_count=6))
    assert one.gres == (Gres("gpu", "", 2),)
    assert one.gres_in_all == (Gres("gpu", "", 8),)
    assert two.gres == (Gres("gpu", "", 2),)
    assert two.gres_in_all == (Gres("gpu", "", 12),)


anything = st.text(max_size=20) | st.text("gres:/pu=1,|&[]()", max_size=20)


TEXTS = (
    *("features", "requested_nodes", "excluded_nodes", "gres_per_node"),
    *("gres_per_job", "gres_per_task", "gres_per_socket"),
)


@given(st.fixed_dictionaries(dict.fromkeys(TEXTS, anything)))
def test_no_text_raises_and_equal_keys_ask_for_the_same(texts: dict[str, Any]) -> None:
    job = replace(JOB, **texts)
    named = replace(job, name="another", job_id=2)
    assert asked_for(job) == asked_for(named)
    assert demand_of(job) == demand_of(named)


# What jobs on a real cluster asked for (tests/data/slurm/22.05/asks), by job number.

GPU, KIND = "gpu", "res1"
RECORDED: dict[int, dict[str, Any]] = {
    4: {"nodes": 6},  # --ntasks=12 on nodes of two CPUs
    5: {"gres": (Gres(GPU, "", 1),), "gres_in_all": (Gres(GPU, "", 2),)},
    6: {"nodes": 2, "gres": (Gres(GPU, "", 1),), "gres_in_all": (Gres(GPU, "", 4),)},
    7: {"nodes": 2, "gres_in_all": (Gres(GPU, "", 4),)},
    8: {"cpus": 2, "memory_mib": 1_500},
    9: {"memory_mib": 700},  # for each of two CPUs
    13: {"gres": (Gres(GPU, "", 1),)},
    14: {"nodes": 2, "cpus": 2},  # two tasks on each node
    15: {"cpus": 2},
    19: {"nodes": 2, "gres": (Gres(GPU, KIND, 2),)},
}


@pytest.mark.parametrize("form", ["text", "JSON"])
def test_what_jobs_of_a_real_cluster_asked_for_is_read(form: str) -> None:
    text, json = recorded("asks", "jobs.txt"), recorded("asks", "jobs.json")
    jobs = parse_squeue(text) if form == "text" else parse_jobs_json(json)

    demands = {job.job_id: demand_of(job) for job in jobs}

    for number, demand in demands.items():
        expected: dict[str, Any] = {"nodes": demand.nodes, "cpus": 1}
        expected |= RECORDED.get(number, {})
        usual = NodeDemand(partitions=("part1",), excluded=demand.excluded)
        rest = replace(demand, choices=(ANY_NODE,))
        assert rest == replace(usual, **expected)
    choices = {number: demand.choices for number, demand in demands.items()}
    counts = {n: [c for _, c in way.some] for n, (way,) in choices.items() if way.some}
    assert counts == {11: [1, 2], 12: [1], 18: [1, 1]}
    assert {job.job_id for job in jobs if job.het_job_id} == {16, 17}
    assert {job.account for job in jobs} == {"", "account1"}


# Jobs that share nodes.

NODE = Node("n1", frozenset(), cpus=8, memory_mib=8_000)
SHARES = replace(JOB, oversubscribe="OK", node_count=1, cpu_count=2, task_count=1)


def enough(job: JobRecord, nodes: int = 1) -> tuple[int, int, tuple[Gres, ...]] | None:
    """Return CPUs, MiB and GRES of a node with which the job surely starts."""
    part = part_demand(job)
    assert part is not None
    found = part.enough_of(NODE, nodes)
    return None if found is None else (found.cpus, found.memory_mib, found.gres)


@pytest.mark.parametrize("word", ["NO", "USER", "MCS", "TOPO", "NEW"])
def test_jobs_that_do_not_share_nodes_ask_for_no_part(word: str) -> None:
    assert part_demand(replace(JOB, oversubscribe=word)) is None


def test_memory_counts_for_each_cpu_where_a_node_has_so_much() -> None:
    assert enough(replace(SHARES, least_memory_mib=4_000)) == (2, 8_000, ())
    assert enough(replace(SHARES, least_memory_mib=4_001)) == (2, 4_001, ())
    assert enough(SHARES) == (2, 0, ())


def test_tasks_and_what_a_job_asks_for_in_all_are_spread_evenly() -> None:
    gpu = Gres("gpu", "", 2)
    job = replace(SHARES, cpu_count=12, task_count=3, node_count=2)
    assert enough(job, 2) == (8, 0, ())
    assert enough(replace(job, gres_per_job="gres:gpu:4"), 2) == (8, 0, (gpu,))
    assert enough(replace(job, gres_per_task="gres:gpu:1"), 2) == (8, 0, (gpu,))
    assert enough(replace(job, task_count=0), 2) == (12, 0, ())


@pytest.mark.parametrize(
    "changes",
    [
        {"oversubscribe": ""},
        {"gres_per_socket": "gres:gpu:1"},
        {"gres_per_node": "gres:gpu:x:y:2"},
        {"gres_per_node": "gres:gpu:1", "cut": frozenset({"gres_per_node"})},
    ],
)
def test_of_an_unclear_request_no_part_is_enough(changes: dict[str, Any]) -> None:
    assert enough(replace(SHARES, **changes)) is None


def test_a_running_job_has_what_it_asked_for() -> None:
    job = replace(SHARES, gres_per_node="gres:gpu:a100:2", least_memory_mib=900)
    held, is_clear = held_by(job)
    assert (held.cpus, held.memory_mib, held.gres) == (
        2,
        900,
        (Gres("gpu", "a100", 2),),
    )
    assert is_clear
    assert not held_by(replace(job, gres_per_socket="gres:gpu:1"))[1]


@given(st.fixed_dictionaries(dict.fromkeys(TEXTS, anything)))
def test_no_text_raises_where_a_job_shares_nodes(texts: dict[str, Any]) -> None:
    job = replace(SHARES, **texts)
    part = part_demand(job)
    assert part is not None
    part.enough_of(NODE, 2)
    held_by(job)
    assert asked_of_parts(job) == asked_of_parts(replace(job, name="another"))
