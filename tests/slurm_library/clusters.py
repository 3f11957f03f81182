"""Small clusters to look at: made by hand, and recorded."""

from collections.abc import Iterable
from pathlib import Path

from slurm.holes import Snapshot
from slurm.records import (
    JobRecord,
    JobState,
    Node,
    NodeState,
    Partition,
    Reservation,
    Sdiag,
)
from slurm.text import (
    parse_nodes,
    parse_partitions,
    parse_reservations,
    parse_sdiag,
    parse_squeue,
)

NOW_S = 1_000_000.0
HOUR_S = 3_600.0
RECORDINGS = Path(__file__).resolve().parent.parent / "data" / "slurm" / "22.05"
SCENARIOS = ("quiet", "busy", "leases", "torn", "broken", "private")


def recorded(scenario: str, file: str) -> str:
    """One recorded answer, as a runner returns it."""
    path = RECORDINGS / scenario / file
    return path.read_bytes().decode("utf-8", "surrogateescape")


def recorded_snapshot(scenario: str) -> Snapshot:
    """One recorded look."""
    return Snapshot(
        nodes=parse_nodes(recorded(scenario, "nodes.txt")),
        jobs=parse_squeue(recorded(scenario, "jobs.txt")),
        reservations=parse_reservations(recorded(scenario, "reservations.txt")),
        partitions=parse_partitions(recorded(scenario, "partitions.txt")),
        before=parse_sdiag(recorded(scenario, "sdiag-before.txt")),
        after=parse_sdiag(recorded(scenario, "sdiag-after.txt")),
    )


def statistics(
    *, taken_s: float = NOW_S, last_s: float = NOW_S - 5, is_active: bool = False
) -> Sdiag:
    return Sdiag(
        taken_s=taken_s,
        since_s=0.0,
        bf_active=is_active,
        bf_cycles=int(last_s),
        bf_last_cycle_s=last_s,
        bf_last_took_s=0.0,
    )


def node(name: str, *states: NodeState) -> Node:
    return Node(
        name=name,
        states=frozenset(states or (NodeState.IDLE,)),
        cpus=2,
        memory_mib=2000,
        partitions=("main", "freetrain"),
    )


def waiting(job_id: int, planned_nodes: str, start_s: float | None) -> JobRecord:
    return JobRecord(
        job_id=job_id,
        display_id=str(job_id),
        states=frozenset({JobState.PENDING}),
        name=f"job{job_id}",
        start_s=start_s,
        planned_nodes=planned_nodes,
    )


def running(job_id: int, nodes: str) -> JobRecord:
    return JobRecord(
        job_id=job_id,
        display_id=str(job_id),
        states=frozenset({JobState.RUNNING}),
        name=f"job{job_id}",
        nodes=nodes,
    )


def snapshot_of(
    *,
    nodes: Iterable[Node],
    jobs: Iterable[JobRecord] = (),
    reservations: Iterable[Reservation] = (),
    max_time_s: float = 24 * HOUR_S,
    statistic: Sdiag | None = None,
) -> Snapshot:
    statistic = statistic or statistics()
    return Snapshot(
        nodes=tuple(nodes),
        jobs=tuple(jobs),
        reservations=tuple(reservations),
        partitions=(Partition("freetrain", "", is_up=True, max_time_s=max_time_s),),
        before=statistic,
        after=statistic,
    )
