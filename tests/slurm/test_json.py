"""The JSON of every release, read into the same records as the text."""

import json
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm.errors import SlurmError, SlurmRefusedError, UnreadableOutputError
from slurm.json import (
    minutes_s,
    number,
    parse_jobs_json,
    parse_nodes_json,
    parse_partitions_json,
    parse_reservations_json,
    time_s,
    whole,
)
from slurm.records import JobState, NodeState, expand

PARSERS = {
    "jobs": parse_jobs_json,
    "nodes": parse_nodes_json,
    "partitions": parse_partitions_json,
    "reservations": parse_reservations_json,
}


# By release: jobs, nodes, partitions and reservations, and planned jobs, of which
# JSON tells from 23.02 on.
COUNTS = {
    "22.05.9": ((3, 3, 1, 0), None),
    "23.02.8": ((30, 100, 3, 1), 26),
    "23.11.10": ((14, 6, 1, 1), 1),
    "24.11.5": ((16, 6, 2, 0), 1),
}


def answer(shared: Path, release: str, kind: str) -> str:
    folder = shared / "slurm-recordings" / release
    (path,) = folder.glob(f"*{kind}.json")
    return path.read_text(encoding="utf-8")


@pytest.mark.shared
def test_every_release_recorded_is_expected_here(shared: Path) -> None:
    folders = {p.name for p in (shared / "slurm-recordings").iterdir() if p.is_dir()}

    assert folders == COUNTS.keys()


@pytest.mark.shared
@pytest.mark.parametrize("release", COUNTS)
def test_every_release_has_the_records_that_were_recorded_and_they_make_sense(
    shared: Path, release: str
) -> None:
    counts, planned = COUNTS[release]
    jobs = parse_jobs_json(answer(shared, release, "jobs"))
    nodes = parse_nodes_json(answer(shared, release, "nodes"))
    partitions = parse_partitions_json(answer(shared, release, "partitions"))
    reserved = parse_reservations_json(answer(shared, release, "reservations"))

    assert (len(jobs), len(nodes), len(partitions), len(reserved)) == counts
    assert len({job.job_id for job in jobs}) == len(jobs)
    assert sum(job.is_planned for job in jobs) == (planned or 0)
    assert {job.planned_nodes is None for job in jobs} == {planned is None}
    for job in jobs:
        assert job.states
        assert not job.unknown_states
        assert job.submit_s is not None
        assert 1_700_000_000 < job.submit_s < 1_800_000_000
        assert job.limit_s is not None
        assert 60 <= job.limit_s <= 60 * 86_400
        assert job.user
        assert job.partitions
        assert job.node_count >= 1
        assert len(expand(job.nodes)) == (0 if job.is_pending else job.node_count)
        if JobState.RUNNING in job.states:
            assert job.holds_nodes
            assert job.start_s is not None
            assert job.end_s == job.start_s + job.limit_s
        if job.has_ended:
            assert not job.holds_nodes
        if job.is_planned:
            assert len(expand(job.planned_nodes or "")) == job.node_count
    bases = {NodeState.IDLE, NodeState.ALLOCATED, NodeState.MIXED, NodeState.DOWN}
    for node in nodes:
        assert len(node.states & bases) == 1
        assert not node.unknown_states
        assert node.cpus >= 2
        assert node.memory_mib >= 1
        assert node.partitions
        assert (NodeState.ALLOCATED in node.states) == (
            node.allocated_cpus == node.cpus
        )
        assert bool(node.reason) == bool(
            node.states & {NodeState.DRAIN, NodeState.DOWN}
        )
    assert any(NodeState.DRAIN in node.states for node in nodes)
    for partition in partitions:
        assert partition.is_up
        assert expand(partition.nodes)
        assert partition.max_time_s in {math.inf, 600.0, 3600.0, 7200.0}
        assert (partition.priority_tier, partition.grace_time_s) == (1, 0.0)


@pytest.mark.shared
def test_resources_and_reservations_are_read(shared: Path) -> None:
    nodes = parse_nodes_json(answer(shared, "24.11.5", "nodes"))
    (study,) = parse_reservations_json(answer(shared, "23.02.8", "reservations"))
    (training,) = parse_reservations_json(answer(shared, "23.11.10", "reservations"))

    gpus = {sum(gres.count for gres in node.gres) for node in nodes}
    assert gpus == {0, 6}
    assert (study.nodes, study.end_s) == ("cn[001-010]", 1_728_745_200.0)
    assert (training.start_s, "FLEX" in training.flags) == (1_732_957_200.0, True)


@pytest.mark.parametrize(
    ("value", "read"),
    [
        (7, 7.0),
        (2.5, 2.5),
        ("7", 7.0),
        (None, None),
        ("", None),
        ("Infinity", math.inf),
        ("UNLIMITED", math.inf),
        ({"set": True, "infinite": False, "number": 7}, 7.0),
        ({"set": False, "infinite": False, "number": 7}, None),
        ({"set": False, "infinite": True, "number": 0}, math.inf),
        ({"set": True, "infinite": True, "number": 0}, math.inf),
        ({"number": 7}, 7.0),
        ({"set": True, "infinite": False, "number": "Infinity"}, math.inf),
    ],
)
def test_numbers_are_read_in_every_form(value: object, read: float | None) -> None:
    assert number(value) == read


@pytest.mark.parametrize("value", ["soon", True, [], {}, {"number": {}}, {"set": True}])
def test_what_is_no_number_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match=r"not a number|could not convert"):
        number(value)


def test_unknown_unlimited_and_infinite_have_values_of_their_own() -> None:
    assert time_s(new(0)) is None
    assert time_s(0) is None
    assert time_s(new(5)) == 5.0
    assert minutes_s(-1) == math.inf  # as 22.05 writes it
    assert minutes_s(new(2)) == 120.0
    assert whole("Infinity") is None


def new(number: int | None) -> dict[str, object]:
    """A number as 23.02 and later write it."""
    return {"set": number is not None, "infinite": False, "number": number or 0}


@pytest.mark.parametrize(
    ("shared", "word"),
    [
        *(("none", "NO"), ("user", "USER"), ("shared", "YES"), (None, "")),  # 22.05
        *((["none"], "NO"), (["topo"], "TOPO"), (["oversubscribe"], "YES"), ([], "")),
    ],
)
def test_a_waiting_job_says_how_it_shares_nodes(shared: object, word: str) -> None:
    """26.05 says ``[]`` of every job, so that this does not tell."""
    job = {"job_id": 7, "shared": shared, "job_state": "PENDING"}
    running = job | {"job_state": "RUNNING"}

    read = parse_jobs_json(json.dumps({"jobs": [job, running]}))

    assert [one.oversubscribe for one in read] == [word, ""]


def test_an_old_answer_reads_like_a_new_one() -> None:
    job = {"job_id": 7, "array_task_string": "2-3", "partition": "a,b"}
    old = {"job_state": "PENDING", "start_time": 0, "array_job_id": 5}
    now = {"job_state": ["PENDING"], "start_time": new(0), "array_job_id": new(5)}
    tasks: list[dict[str, object]] = [
        {"array_task_id": None},
        {"array_task_id": new(None)},
    ]

    (read,) = parse_jobs_json(json.dumps({"jobs": [job | old | tasks[0]]}))

    assert parse_jobs_json(json.dumps({"jobs": [job | now | tasks[1]]})) == (read,)
    assert (read.display_id, read.start_s) == ("5_[2-3]", None)
    assert (read.partitions, read.planned_nodes) == (("a", "b"), None)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        *((t, "jobs as JSON") for t in ("", "{", "[]", '"x"', "{}", "[" * 99_999)),
        *((f'{{"jobs": {it}}}', "jobs as JSON") for it in ("{}", "[1]", "[{}]")),
        (
            '{"jobs": [{"job_id": 1}, {"job_id": 2, "nice": "a lot"}]}',
            "line 2 of `jobs as JSON`",
        ),
        (json.dumps({"jobs": [{"job_id": 1, "nice": 10**400}]}), "too large"),
    ],
    ids=range(11),
)
def test_what_is_no_list_of_jobs_is_refused_and_a_bad_record_named(
    text: str, why: str
) -> None:
    with pytest.raises(UnreadableOutputError, match=why):
        parse_jobs_json(text)


def test_an_error_of_slurm_and_no_node_at_all_are_no_empty_answer() -> None:
    assert parse_jobs_json('{"jobs": [], "errors": []}') == ()
    with pytest.raises(SlurmRefusedError, match="Access denied"):
        parse_jobs_json('{"jobs": [], "errors": [{"error": "Access denied"}]}')
    with pytest.raises(UnreadableOutputError, match="no node"):
        parse_nodes_json('{"nodes": [], "errors": []}')


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(
        st.sampled_from(["set", "infinite", "number", "configured"]), inner, max_size=3
    ),
    max_leaves=4,
)  # fmt: skip
KEYS = st.sampled_from(
    [
        *("job_id", "job_state", "nice", "name", "state", "start_time", "nodes"),
        *("gres", "flags"),
    ]
)


@given(st.lists(st.dictionaries(KEYS, VALUES, max_size=6), max_size=3))
def test_any_records_are_read_or_refused_with_our_own_error(
    records: list[dict[str, object]],
) -> None:
    for kind, parse in PARSERS.items():
        try:
            parse(json.dumps({kind: records}))
        except SlurmError:
            continue
