"""A small cluster whose nodes jobs share, as Slurm would show it, and our leases there.

Each node has 8 CPUs, 8000 MiB and 4 GPUs; a lease has a quarter of that unless told.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from msgspec import structs

from freetrain.broker.lease import LeaseComment, is_lease, job_name, render_comment
from freetrain.broker.yielding import Claims
from freetrain.config.site import LeaseMode, LeaseSettings, Site
from freetrain.tick.environment import real_environment
from freetrain.tick.room import SlurmView, claims_of, view_of
from slurm.holes import Snapshot
from slurm.records import (
    Gres,
    JobRecord,
    JobState,
    Node,
    NodeState,
    Partition,
)
from tests.slurm.clusters import NOW_S, snapshot_of
from tests.tick.test_leases import CONFIG, SITE

US, BEN = 1001, 1002
CPUS, MIB, GPUS = 8, 8000, 4
PARTITION = "freetrain"
SHARED = replace(
    CONFIG, select_type="select/cons_tres", select_type_parameters="CR_CPU_MEMORY"
)
ENVIRONMENT = replace(real_environment({}), clock=lambda: 0.0)


def piece(
    number: int, node: str, gpus: int = 1, *, owner: int = US, **changes: object
) -> JobRecord:
    """A lease of so many GPUs, whose broker beat ten seconds ago."""
    uuid = f"{number:032x}"
    said = LeaseComment(uuid=uuid, is_pooled=True, want=8, beat_s=NOW_S - 10)
    settings: dict[str, object] = {
        "uid": owner,
        "name": job_name(uuid),
        "comment": render_comment(said),
        "submit_s": NOW_S - 900,
        "start_s": NOW_S - 600,
        "end_s": NOW_S + 3_000 + number,
    }
    return running(number, node, gpus, **(settings | changes))


def running(number: int, node: str, gpus: int = 1, **changes: object) -> JobRecord:
    """A job of somebody else that has a part of *node*."""
    settings: dict[str, object] = {
        "uid": 7,
        "name": "theirs",
        "partitions": (PARTITION,),
        "start_s": NOW_S - 60,
        "end_s": NOW_S + 2_000,
        "node_count": 1,
        "cpu_count": 2 * gpus,
        "least_memory_mib": 2000 * gpus,
        "gres_per_node": f"gres:gpu:a100:{gpus}" if gpus else "",
    }
    return JobRecord(
        job_id=number,
        display_id=str(number),
        states=frozenset({JobState.RUNNING}),
        nodes=node,
        **(settings | changes),  # type: ignore[arg-type]
    )


def waiting(number: int = 1, gpus: int = 1, **changes: object) -> JobRecord:
    """A job of somebody else that shares nodes, for ten minutes."""
    settings: dict[str, object] = {
        "uid": 7,
        "name": "theirs",
        "partitions": (PARTITION,),
        "reason": "Resources",
        "priority": 100,
        "limit_s": 600.0,
        "node_count": 1,
        "cpu_count": 1,
        "task_count": 1,
        "least_cpus": 1,
        "least_memory_mib": 100,
        "gres_per_node": f"gres:gpu:{gpus}" if gpus else "",
        "oversubscribe": "OK",
    }
    return JobRecord(
        job_id=number,
        display_id=str(number),
        states=frozenset({JobState.PENDING}),
        **(settings | changes),  # type: ignore[arg-type]
    )


def whole(number: int = 1, nodes: int = 1, **changes: object) -> JobRecord:
    """A job of somebody else that takes whole nodes."""
    return waiting(number, 0, node_count=nodes, **({"oversubscribe": "NO"} | changes))


def snapshot(
    nodes: str,
    jobs: Sequence[JobRecord],
    *,
    oversubscribe: str = "NO",
    most_cpus: int | None = None,
) -> Snapshot:
    """Return what Slurm shows of *nodes* and *jobs*, in a partition and two more."""
    seen = snapshot_of(nodes=[_node(name, jobs) for name in nodes.split()], jobs=jobs)
    low = Partition(
        PARTITION,
        "",
        is_up=True,
        max_time_s=86_400.0,
        oversubscribe=oversubscribe,
        most_cpus_per_node=most_cpus,
    )
    high = replace(low, name="high", priority_tier=9)
    exclusive = replace(low, name="exclusive", oversubscribe="EXCLUSIVE")
    return replace(seen, partitions=(low, high, exclusive))


def _node(name: str, jobs: Iterable[JobRecord]) -> Node:
    here = [job for job in jobs if job.nodes == name and not job.is_pending]
    gpus = sum(_gpus(job) for job in here)
    cpus = sum(job.cpu_count for job in here)
    state = NodeState.MIXED if cpus < CPUS else NodeState.ALLOCATED
    states = {state if cpus else NodeState.IDLE}
    if any(JobState.COMPLETING in job.states for job in here):
        states.add(NodeState.COMPLETING)
    return Node(
        name=name,
        states=frozenset(states),
        partitions=(PARTITION, "high", "exclusive"),
        cpus=CPUS,
        memory_mib=MIB,
        gres=(Gres("gpu", "a100", GPUS),),
        allocated_cpus=cpus,
        allocated_memory_mib=min(MIB, sum(job.least_memory_mib or MIB for job in here)),
        allocated_gres=(Gres("gpu", "a100", gpus),) if gpus else (),
    )


def _gpus(job: JobRecord) -> int:
    """Return the GPUs of a job; one of a whole node has all, and shows none."""
    shown = int(job.gres_per_node.rpartition(":")[-1] or 0)
    return GPUS if job.cpu_count == CPUS else shown


@dataclass(frozen=True, slots=True)
class Found:
    """What a broker found, and the leases it was found for."""

    seen: SlurmView
    claims: Claims

    @property
    def goes(self) -> set[int]:
        """The leases that must go, by number."""
        return {
            job.job_id
            for job in self.seen.snapshot.jobs
            if is_lease(job) and self.claims.takes(job.nodes, job.job_id)
        }


def site_of(*, careful: bool = False, mode: LeaseMode = LeaseMode.YIELD) -> Site:
    """Return a site whose leases go to the one partition."""
    lease = LeaseSettings(partition=PARTITION, mode=mode, careful=careful)
    return structs.replace(SITE, lease=lease)


def found(  # noqa: PLR0913 -- each rarely
    nodes: str,
    *jobs: JobRecord,
    owner: int = US,
    careful: bool = False,
    oversubscribe: str = "NO",
    most_cpus: int | None = None,
    mode: LeaseMode = LeaseMode.YIELD,
    gres: tuple[Gres, ...] = (),
) -> Found:
    """Return what *owner*'s broker finds.

    Args:
        nodes: Their names.
        jobs: All that run and wait.
        owner: The broker's user.
        careful: Whether leases are.
        oversubscribe: How the partition shares nodes, Slurm's word.
        most_cpus: CPUs of a node that jobs of the partition can have.
        mode: Who takes leases.
        gres: What each node has, all of it in use; its usual GPUs where empty.
    """
    site = site_of(careful=careful, mode=mode)
    shown = snapshot(nodes, jobs, oversubscribe=oversubscribe, most_cpus=most_cpus)
    if gres:
        full = [replace(n, gres=gres, allocated_gres=gres) for n in shown.nodes]
        shown = replace(shown, nodes=tuple(full))
    seen = view_of(site, SHARED, shown)
    return Found(seen, claims_of(site, replace(ENVIRONMENT, uid=owner), seen))
