"""A demo that never was, to be told and drawn."""

from __future__ import annotations

from freetrain.demo.fake_slurm.cluster import FakeCluster, FakeJob, FakeJobState
from freetrain.demo.live import DemoSegment, History
from freetrain.demo.report import Played, figures_of

BEGIN_S = 1_795_250_000.0
HOSTILE = "</title><script>alert(1)</script>&\"'"


def segment(
    generation: int, at_s: float, nodes: str, *, by: str = "broker"
) -> DemoSegment:
    """Ten seconds of training from *at_s* on, the first step being done at once."""
    return DemoSegment(
        generation=generation,
        nodes=tuple(nodes.split()),
        is_brokers=by == "broker",
        reason=HOSTILE,
        start_s=BEGIN_S + at_s,
        first_s=BEGIN_S + at_s + 0.5,
        last_s=BEGIN_S + at_s + 10,
    )


def history(name: str = "ada", *, is_finished: bool = True) -> History:
    """One node for ten seconds, then two, then one again."""
    segments = (
        segment(1, 2, "n1"),
        segment(2, 14, "n1 n2"),
        segment(4, 25, "n2", by="survivors"),
    )
    return History(
        name=name,
        losses={1: 2.0, 2: 1.0, 3: 0.5},
        repeated_steps=1,
        samples=240,
        accuracy=0.9,
        segments=segments,
        is_finished=is_finished,
    )


def jobs() -> list[FakeJob]:
    """Theirs, half a second late because of a lease; and that lease."""
    theirs = FakeJob(
        job_id=1,
        name=HOSTILE,
        user="others",
        partition="main",
        limit_s=600,
        submit_s=BEGIN_S,
        due_s=BEGIN_S + 10,
        wanted=["n3", "n4"],
        run_s=10,
        state=FakeJobState.COMPLETED,
        nodes=["n3", "n4"],
        start_s=BEGIN_S + 10.5,
        end_s=BEGIN_S + 20.5,
        has_preempted=True,
    )
    lease = FakeJob(
        job_id=2,
        name="freetrain-x",
        user="me",
        partition="freetrain",
        limit_s=600,
        submit_s=BEGIN_S,
        state=FakeJobState.RUNNING,
        nodes=["n1"],
        start_s=BEGIN_S + 1,
    )
    return [theirs, lease]


def played(*histories: History) -> Played:
    alone = {history.name: history.losses for history in histories}
    figures = figures_of(histories, alone, jobs(), nodes=8, begin_s=BEGIN_S)
    cluster = FakeCluster(
        user="me", uid=1, since_s=BEGIN_S, planned_s=BEGIN_S, jobs=jobs()
    )
    return Played(
        figures=figures,
        histories=histories,
        cluster=cluster,
        begin_s=BEGIN_S,
        command=HOSTILE,
        version="0",
        mpirun=HOSTILE,
    )
