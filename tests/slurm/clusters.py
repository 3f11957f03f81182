"""Small clusters: recorded, made by hand, and as the text that Slurm would print."""

from collections.abc import Callable, Iterable, Mapping
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
    FREE_WIDTH_COLUMNS,
    TYPED_WIDTHS,
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
    return snapshot_from(lambda file: recorded(scenario, file))


def snapshot_from(read: Callable[[str], str]) -> Snapshot:
    """The snapshot of the answers that *read* returns by the file's name."""
    return Snapshot(
        nodes=parse_nodes(read("nodes.txt")),
        jobs=parse_squeue(read("jobs.txt")),
        reservations=parse_reservations(read("reservations.txt")),
        partitions=parse_partitions(read("partitions.txt")),
        before=parse_sdiag(read("sdiag-before.txt")),
        after=parse_sdiag(read("sdiag-after.txt")),
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


def waiting(job_id: int, planned_nodes: str, in_s: float | None) -> JobRecord:
    return JobRecord(
        job_id=job_id,
        display_id=str(job_id),
        states=frozenset({JobState.PENDING}),
        name=f"job{job_id}",
        start_s=None if in_s is None else NOW_S + in_s,
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


def cluster(
    nodes: str,
    *jobs: JobRecord,
    reserved: Reservation | None = None,
    max_time_s: float = 24 * HOUR_S,
    statistic: Sdiag | None = None,
) -> Snapshot:
    """A snapshot of *nodes*, written ``n1 n2:MIXED n3:IDLE+DRAIN``."""
    names = (word.partition(":") for word in nodes.split())
    return snapshot_of(
        nodes=[
            node(name, *map(NodeState, states.split("+") if states else ()))
            for name, _, states in names
        ],
        jobs=jobs,
        reservations=() if reserved is None else (reserved,),
        max_time_s=max_time_s,
        statistic=statistic,
    )


def fields_of(text: str) -> dict[str, str]:
    """The fields of ``Key=value Key=value``."""
    return dict(pair.split("=", 1) for pair in text.split())


JOB_DEFAULTS = fields_of(
    "ArrayTaskID=N/A UserID=1001 UserName=alice Partition=main State=PENDING "
    "Reason=Priority PriorityLong=1000 Nice=0 SubmitTime=2026-11-21T08:00:00 "
    "EligibleTime=2026-11-21T08:00:00 StartTime=N/A EndTime=N/A TimeLimit=1:00:00 "
    "NumNodes=1 NumCPUs=1 NumTasks=1 MinCPUs=1 MinMemory=0 HetJobID=N/A "
    "ReqNodes= SchedNodes=(null) NodeList="
)


def squeue_text(jobs: Iterable[Mapping[str, str]]) -> str:
    """What squeue prints for *jobs*, byte for byte as Slurm pads its columns."""
    header = {name: name.upper() for name in (*TYPED_WIDTHS, *FREE_WIDTH_COLUMNS)}
    rows = [header]
    for job in jobs:
        ids = {"JobArrayID": job["JobID"], "ArrayJobID": job["JobID"]}
        rows.append(JOB_DEFAULTS | ids | dict(job))
    return b"".join(map(_row, rows)).decode("utf-8", "surrogateescape")


def _row(values: Mapping[str, str]) -> bytes:
    """Cut and pad in bytes, as printf does in the C locale."""
    cells = {
        name: values.get(name, "(null)").encode("utf-8", "surrogateescape")
        for name in (*TYPED_WIDTHS, *FREE_WIDTH_COLUMNS)
    }
    fixed = (cells[name][:width].ljust(width) for name, width in TYPED_WIDTHS.items())
    free = (cells[name] for name in FREE_WIDTH_COLUMNS)
    return b"".join(cell + b"|" for cell in (*fixed, *free)) + b"\n"


def scontrol_text(records: Iterable[Mapping[str, str]]) -> str:
    """What ``scontrol --oneliner show`` prints for *records*."""
    lines = (" ".join(f"{k}={v}" for k, v in record.items()) for record in records)
    return "".join(f"{line}\n" for line in lines)
