"""Where a real Slurm puts jobs that share nodes, against the rule of replays."""

from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from logs.gpus import GpuNodes
from logs.timeline import members, unit_set
from slurm.records import expand
from tests.cluster.cluster import Cluster
from tests.cluster.settings import PART_GPUS, Variant
from tests.cluster.site import Site
from tests.cluster.waiting import wait_for

pytestmark = pytest.mark.slurm

KIND = "a100"
NODES = tuple(name for name, (kind, _) in PART_GPUS.items() if kind == KIND)
GPUS = 4
SHAPES = ((1, 1),) * 4 + ((2, 1),) * 3 + ((4, 1), (4, 2))
"""GPUs of each node, and nodes."""


def end(cluster: Cluster, job: int) -> None:
    """End *job* and wait until its GPUs are free."""
    cluster.run("scancel", str(job))
    listed = ("squeue", "--noheader", "--format=%i")
    wait_for(f"job {job} to end", lambda: str(job) not in cluster.run(*listed).split())


def test_slurm_packs_jobs_where_replays_do(
    cluster_of: Callable[..., Cluster], tmp_path: Path
) -> None:
    cluster = cluster_of(Variant.PARTS)
    site = Site(cluster, tmp_path, "freetrain")
    nodes, chance = GpuNodes(len(NODES), GPUS), Random(5)  # noqa: S311 -- load
    free = dict.fromkeys(NODES, GPUS)
    running: dict[int, tuple[tuple[str, ...], int]] = {}
    compared = 0
    while compared < 30:
        each, count = chance.choice(SHAPES)
        fits = sum(own >= each for own in free.values()) >= count
        if not fits or (running and chance.random() < 0.2):
            ended = chance.choice(sorted(running))
            names, gpus = running.pop(ended)
            end(cluster, ended)
            free |= {name: free[name] + gpus for name in names}
            continue
        had = unit_set(
            place * GPUS + gpu
            for place, name in enumerate(NODES)
            for gpu in range(free[name])
        )
        placed = nodes.place(had, each * count, count)
        wanted = {NODES[unit // GPUS] for unit in members(placed)}

        asked = (f"--gres=gpu:{KIND}:{each}", f"--ntasks={count}")
        size = (f"--cpus-per-task={2 * each}", f"--mem={each}000")
        job = site.others_running_job(count, 10, *asked, *size)

        assert set(expand(job.nodes)) == wanted, free
        free |= {name: free[name] - each for name in wanted}
        running[job.job_id] = (tuple(wanted), each)
        compared += 1
    cluster.clear()
