"""How long a look at a huge cluster takes, as text.

Run it with ``python -m tests.bench.slurm_snapshot``: 10,000 nodes with 20,000 jobs, and
1,000 nodes of 8 GPUs that 8,000 jobs share. The answers are generated into files first;
reading them, taking the snapshot apart and finding the holes is then measured in a
process of its own, so that its peak memory is its own too.
"""

import multiprocessing
import random
import resource
import tempfile
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from slurm.holes import Snapshot, find_holes
from slurm.records import Grain, Gres, JobRecord, NodeSharing, Requirement, collapse
from slurm.text import (
    parse_nodes,
    parse_partitions,
    parse_reservations,
    parse_sdiag,
    parse_squeue,
)
from tests.slurm.clusters import recorded, scontrol_text, squeue_text

PLANNED = 1_000
IDLE_SHARE = 0.05
NOW_S = 1_795_250_000
_LIMIT_MIB = 500
_GPUS = 8


class Case(NamedTuple):
    """A cluster.

    Attributes:
        nodes: How many nodes it has.
        jobs: How many jobs run and wait.
        limit_s: Processor time that a look may take.
        asked: What leases ask for.
    """

    nodes: int
    jobs: int
    limit_s: float
    asked: Requirement

    @property
    def is_shared(self) -> bool:
        """Whether jobs share its nodes."""
        return not self.asked.exclusive


WHOLE = Case(10_000, 20_000, 3.0, Requirement(partition="freetrain"))
SHARED = Case(
    1_000,
    8_000,
    1.0,
    Requirement(
        partition="freetrain",
        gres=(Gres("gpu", "a100", 1),),
        cpus=8,
        memory_mib=64_000,
        exclusive=False,
    ),
)


class Cost(NamedTuple):
    """What one look took, in seconds of processor time and MiB."""

    parse_s: float
    holes_s: float
    wall_s: float
    peak_mib: float
    holes: int


def main() -> int:
    """Print what it took, and return 1 where that is more than was promised."""
    within = [_is_within(case) for case in (WHOLE, SHARED)]
    return int(not all(within))


def _is_within(case: Case) -> bool:
    with tempfile.TemporaryDirectory() as name:
        generate(Path(name), random.Random(1), case)  # noqa: S311 -- load, not secrets
        context = multiprocessing.get_context("spawn")
        with context.Pool(1) as pool:
            cost = pool.apply(_measure, (Path(name), case.asked))
    kind = "shared nodes" if case.is_shared else "nodes"
    print(  # noqa: T201 -- a benchmark's result
        f"{case.nodes} {kind}, {case.jobs} jobs: parse {cost.parse_s:.2f} s, "
        f"holes {cost.holes_s:.2f} s ({cost.holes} found) of processor time, "
        f"{cost.wall_s:.2f} s by the clock, peak {cost.peak_mib:.0f} MiB"
    )
    took_s = cost.parse_s + cost.holes_s
    return took_s <= case.limit_s and cost.peak_mib <= _LIMIT_MIB


def _measure(folder: Path, asked: Requirement) -> Cost:
    clock_s, started_s = time.perf_counter(), time.process_time()
    answers = {path.stem: path.read_text(encoding="utf-8") for path in folder.iterdir()}
    snapshot = Snapshot(
        nodes=parse_nodes(answers["nodes"]),
        jobs=parse_squeue(answers["jobs"]),
        reservations=parse_reservations(answers["reservations"]),
        partitions=parse_partitions(answers["partitions"]),
        before=parse_sdiag(answers["sdiag"]),
        after=parse_sdiag(answers["sdiag"]),
    )
    parsed_s = time.process_time()
    by_cpu = NodeSharing(Grain.CPU, counts_memory=True)
    holes = find_holes(snapshot, asked, is_ours=_is_ours, margin_s=60, sharing=by_cpu)
    return Cost(
        parse_s=parsed_s - started_s,
        holes_s=time.process_time() - parsed_s,
        wall_s=time.perf_counter() - clock_s,
        peak_mib=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        holes=len(holes),
    )


def _is_ours(job: JobRecord) -> bool:
    return job.name.startswith("ft-")


def generate(folder: Path, rng: random.Random, case: Case = WHOLE) -> None:
    names = [f"cn{number:05d}" for number in range(case.nodes)]
    idle = set(rng.sample(names, int(case.nodes * IDLE_SHARE)))
    if case.is_shared:
        used = {name: 0 if name in idle else rng.randrange(_GPUS + 1) for name in names}
        nodes = scontrol_text(_shared_node(*pair) for pair in used.items())
        jobs = squeue_text(_jobs_of_a_gpu(used, rng, case.jobs))
    else:
        nodes = scontrol_text(_node(name, is_idle=name in idle) for name in names)
        jobs = squeue_text(_jobs(names, idle, rng, case.jobs))
    texts = {
        "nodes": nodes,
        "jobs": jobs,
        "reservations": _reservation(names[: case.nodes // 100]),
        "partitions": recorded("quiet", "partitions.txt"),
        "sdiag": recorded("quiet", "sdiag-before.txt"),
    }
    for stem, text in texts.items():
        (folder / f"{stem}.txt").write_text(text, encoding="utf-8")


def _node(name: str, *, is_idle: bool) -> Mapping[str, str]:
    """A node's record, with all the fields of a real one, widths included."""
    (line,) = recorded("quiet", "nodes.txt").splitlines()[:1]
    fields = dict(pair.split("=", 1) for pair in line.split(" ") if "=" in pair)
    state = "IDLE+PLANNED" if is_idle else "ALLOCATED"
    return fields | {"NodeName": name, "State": state}


def _shared_node(name: str, gpus: int) -> Mapping[str, str]:
    """A node of which jobs have so many GPUs, and as much of all else."""
    used = f"gpu:a100:{gpus}(IDX:0-{gpus - 1})" if gpus else "gpu:a100:0(IDX:N/A)"
    return {
        **_node(name, is_idle=not gpus),
        "CPUTot": "64",
        "CPUEfctv": "64",
        "CPUAlloc": str(8 * gpus),
        "Gres": f"gpu:a100:{_GPUS}(S:0-1)",
        "GresUsed": used,
        "RealMemory": "512000",
        "AllocMem": str(64_000 * gpus),
        "State": ("ALLOCATED" if gpus == _GPUS else "MIXED") if gpus else "IDLE",
    }


def _jobs_of_a_gpu(
    used: Mapping[str, int], rng: random.Random, jobs: int
) -> Iterator[Mapping[str, str]]:
    """Running jobs on all GPUs that are in use, then waiting ones."""
    places = [name for name, gpus in used.items() for _ in range(gpus)]
    for number, name in enumerate(places[:jobs], start=1):
        yield _job(number, rng) | {"State": "RUNNING", "NodeList": name}
    for rank in range(max(0, jobs - len(places))):
        yield _job(len(places) + 1 + rank, rng) | _plan(list(used), rank, rng)


def _jobs(
    names: list[str], idle: set[str], rng: random.Random, jobs: int
) -> Iterator[Mapping[str, str]]:
    """Running jobs on all nodes that are not idle, then waiting ones."""
    busy = [name for name in names if name not in idle]
    rng.shuffle(busy)
    job_id = 1
    while busy:
        size = min(len(busy), rng.choice((1, 1, 2, 4, 8, 32, 128)))
        nodes = collapse(busy[:size])
        yield _job(job_id, rng) | {"State": "RUNNING", "NodeList": nodes}
        del busy[:size]
        job_id += 1
    for number in range(job_id, jobs + 1):
        yield _job(number, rng) | _plan(names, number - job_id, rng)


def _job(job_id: int, rng: random.Random) -> dict[str, str]:
    """Columns that every job has, its name as long and as odd as users make them."""
    return {
        "JobID": str(1_000_000 + job_id),
        "Name": rng.choice(("vasp|relax", "train 'x'\n2", "é" * 80, "a.sh")),
        "Comment": "c" * rng.randrange(300),
        "UserName": f"user{rng.randrange(500)}",
    }


def _plan(names: list[str], rank: int, rng: random.Random) -> dict[str, str]:
    """A planned start for the first waiting jobs, on scattered nodes."""
    if rank >= PLANNED:
        return {}
    sizes = [size for size in (1, 4, 16, 64, 512, 2048) if size <= len(names)]
    nodes = rng.sample(names, rng.choice(sizes))
    return {"SchedNodes": collapse(nodes), "StartTime": _iso(NOW_S + 600 + 30 * rank)}


def _reservation(names: list[str]) -> str:
    line = recorded("busy", "reservations.txt").splitlines()[0]
    return line.replace("Nodes=n5 ", f"Nodes={collapse(names)} ") + "\n"


def _iso(time_s: int) -> str:
    return datetime.fromtimestamp(time_s, tz=UTC).strftime("%Y-%m-%dT%H:%M:%S")


if __name__ == "__main__":
    raise SystemExit(main())
