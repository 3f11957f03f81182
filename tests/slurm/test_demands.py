"""What a waiting job certainly asks of its nodes."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm.demands import ANY_NODE, NodeDemand, asked_for, demand_of
from slurm.json import parse_jobs_json
from slurm.records import Gres, JobRecord, JobState
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
