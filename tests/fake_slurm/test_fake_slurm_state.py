"""The fake Slurm's state: read as FreeTrain reads it, and brought on by time."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from freetrain.demo.fake_slurm import commands as telling
from freetrain.demo.fake_slurm.cluster import (
    FakeCluster,
    FakeJob,
    FakeJobState,
    Process,
    advance,
    from_json,
    to_json,
)
from freetrain.demo.fake_slurm.commands import clock, iso, read_iso
from slurm.records import NodeState
from slurm.text import (
    duration_s,
    parse_config,
    parse_nodes,
    parse_partitions,
    parse_reservations,
    parse_sdiag,
    parse_squeue,
    parse_version,
    squeue_argv,
    unix_time,
)

NOW_S = 1_795_250_000.0
NODES = [f"n{n}" for n in range(1, 9)]
moments = st.integers(0, 2_000_000_000).map(float)
texts = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=40)
clear = texts.map(lambda text: "x" + text.strip() + "x")  # never one of "nothing"


@st.composite
def jobs(draw: st.DrawFn, *, job_id: int) -> FakeJob:
    state = draw(st.sampled_from(FakeJobState))
    ran = state is not FakeJobState.PENDING
    planned = not ran and draw(st.booleans())
    return FakeJob(
        job_id=job_id,
        name=draw(clear),
        comment=draw(clear),
        user=draw(st.sampled_from(["alice", "bob"])),
        partition=draw(st.sampled_from(["main", "freetrain"])),
        nice=draw(st.integers(0, 20_000)),
        limit_s=float(draw(st.integers(1, 400_000))),
        submit_s=NOW_S - 50,
        due_s=draw(moments) if planned else None,
        wanted=draw(st.permutations(NODES))[:3] if planned else [],
        state=state,
        nodes=["n3"] if ran else [],
        start_s=draw(moments) if ran else None,
        end_s=NOW_S if ran and state is not FakeJobState.RUNNING else None,
        supervisor=draw(st.sampled_from([None, Process(5, 6)])),
        steps=[Process(7, 8)],
        ends_as=draw(st.sampled_from([None, FakeJobState.TIMEOUT])),
    )


@st.composite
def clusters(draw: st.DrawFn) -> FakeCluster:
    return FakeCluster(
        user="alice",
        uid=1000,
        since_s=NOW_S - 100,
        planned_s=draw(st.sampled_from([NOW_S - 100, NOW_S])),
        keeper=draw(st.sampled_from([None, Process(3, 4)])),
        jobs=[draw(jobs(job_id=n)) for n in range(1, draw(st.integers(1, 4)) + 1)],
    )


@given(clusters())
def test_the_queue_is_read_as_it_is(cluster: FakeCluster) -> None:
    argv = squeue_argv(all_states=True)[1:]

    found = parse_squeue(telling.squeue(cluster, argv, NOW_S))

    assert len(found) == len(cluster.jobs)
    for job, read in zip(cluster.jobs, found, strict=True):
        assert (read.job_id, read.display_id) == (job.job_id, job.display_id)
        assert (
            job.name.encode()[:100].rstrip(b" ").decode("utf-8", "replace") == read.name
        )
        assert (read.user, read.partitions) == (job.user, (job.partition,))
        assert [str(state) for state in read.states] == [str(job.state)]
        assert read.limit_s == job.limit_s
        assert read.planned_nodes == ",".join(job.wanted)
        assert read.start_s == (job.due_s if job.is_pending else job.start_s)
        assert read.nodes == ",".join(job.nodes)
        assert read.nice == job.nice


@given(clusters())
def test_nodes_are_read_as_they_are(cluster: FakeCluster) -> None:
    found = parse_nodes(telling.scontrol(cluster, ["show", "nodes"], NOW_S))

    assert [node.name for node in found] == NODES
    held = {node for job in cluster.jobs if job.is_running for node in job.nodes}
    planned = {node for job in cluster.jobs if job.is_pending for node in job.wanted}
    for node in found:
        assert (NodeState.ALLOCATED in node.states) == (node.name in held)
        is_planned = node.name in planned - held
        assert (NodeState.PLANNED in node.states) == is_planned
        assert not node.unknown_states


@given(clusters())
def test_the_rest_is_read_as_it_is(cluster: FakeCluster) -> None:
    main, ours = parse_partitions(telling.scontrol(cluster, ["show", "partitions"], 0))
    config = parse_config(telling.scontrol(cluster, ["show", "config"], NOW_S))
    statistics = parse_sdiag(telling.sdiag(cluster, NOW_S))

    assert (main.priority_tier, main.is_default, ours.grace_time_s) == (10, True, 10)
    assert ours.preempt_mode == "CANCEL"
    assert config.kill_wait_s == cluster.kill_wait_s
    assert (statistics.taken_s, statistics.since_s) == (NOW_S, NOW_S - 100)
    assert statistics.bf_last_cycle_s == cluster.planned_s
    assert not statistics.bf_active
    reservations = telling.scontrol(cluster, ["show", "reservations"], NOW_S)
    assert parse_reservations(reservations) == ()
    assert str(parse_version(telling.sinfo(["--version"]))) == telling.RELEASE


@given(clusters())
def test_what_is_kept_is_read_back_as_it_was(cluster: FakeCluster) -> None:
    assert from_json(to_json(cluster)) == cluster


@given(st.integers(0, 4_000_000_000), st.integers(0, 10_000_000))
def test_times_and_durations_are_read_back_as_they_were(at: int, lasts: int) -> None:
    assert read_iso(iso(at)) == unix_time(iso(at)) == at
    assert duration_s(clock(lasts)) == lasts
    assert time.gmtime(at).tm_year < 2100


@pytest.mark.parametrize(
    ("end", "term_s", "state"),
    [
        ({"term_s": NOW_S, "ends_as": FakeJobState.CANCELLED}, 0, "CANCELLED"),
        ({"limit_s": 60.0}, 60, "TIMEOUT"),
        ({"notice_s": NOW_S, "ends_as": FakeJobState.PREEMPTED}, 10, "PREEMPTED"),
    ],
    ids=["cancelled", "at its time limit", "preempted, after GraceTime"],
)
def test_a_job_gets_term_at_its_end_and_kill_when_killwait_is_over(
    end: dict[str, Any], term_s: float, state: str
) -> None:
    fields = {"limit_s": 3_600.0, "start_s": NOW_S} | end
    job = FakeJob(
        job_id=1,
        name="j",
        user="alice",
        partition="freetrain",
        submit_s=NOW_S,
        state=FakeJobState.RUNNING,
        nodes=["n1"],
        supervisor=Process(5, 6),
        **fields,
    )
    cluster = FakeCluster(
        user="alice", uid=1, since_s=NOW_S, planned_s=NOW_S, jobs=[job], kill_wait_s=5.0
    )

    def signals_at(seconds: float) -> list[str]:
        return [o.signal for o in advance(cluster, NOW_S + seconds, exits={})]

    if term_s:
        assert signals_at(term_s - 0.1) == []
        assert signals_at(term_s) == ["CONT", "TERM"]
    assert signals_at(term_s + 4.9) == []
    assert job.is_running
    assert signals_at(term_s + 5.0) == ["KILL"]
    assert (job.state, job.is_completing) == (state, True)
