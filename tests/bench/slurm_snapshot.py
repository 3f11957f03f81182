"""How long a look at a huge cluster takes: 10,000 nodes, 20,000 jobs, as text.

Run it with ``python -m tests.bench.slurm_snapshot``. The answers are generated
into files first; reading them, taking the snapshot apart and finding the holes is
then measured in a process of its own, so that its peak memory is its own too.
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
from slurm.records import JobRecord, Requirement, collapse
from slurm.text import (
    parse_nodes,
    parse_partitions,
    parse_reservations,
    parse_sdiag,
    parse_squeue,
)
from tests.slurm.clusters import recorded, scontrol_text, squeue_text

NODES = 10_000
JOBS = 20_000
PLANNED = 1_000
IDLE_SHARE = 0.05
NOW_S = 1_795_250_000
_LIMIT_S = 3.0
_LIMIT_MIB = 500


class Cost(NamedTuple):
    """What one look took, in seconds of processor time and MiB."""

    parse_s: float
    holes_s: float
    wall_s: float
    peak_mib: float
    holes: int


def main() -> int:
    """Print what it took, and return 1 where that is more than was promised."""
    with tempfile.TemporaryDirectory() as name:
        generate(Path(name), random.Random(1))  # noqa: S311 -- load, not secrets
        context = multiprocessing.get_context("spawn")
        with context.Pool(1) as pool:
            cost = pool.apply(_measure, (Path(name),))
    print(  # noqa: T201 -- a benchmark's result
        f"{NODES} nodes, {JOBS} jobs: parse {cost.parse_s:.2f} s, "
        f"holes {cost.holes_s:.2f} s ({cost.holes} found) of processor time, "
        f"{cost.wall_s:.2f} s by the clock, peak {cost.peak_mib:.0f} MiB"
    )
    return int(cost.parse_s + cost.holes_s > _LIMIT_S or cost.peak_mib > _LIMIT_MIB)


def _measure(folder: Path) -> Cost:
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
    leases = Requirement(partition="freetrain")
    holes = find_holes(snapshot, leases, is_ours=_is_ours, margin_s=60)
    return Cost(
        parse_s=parsed_s - started_s,
        holes_s=time.process_time() - parsed_s,
        wall_s=time.perf_counter() - clock_s,
        peak_mib=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        holes=len(holes),
    )


def _is_ours(job: JobRecord) -> bool:
    return job.name.startswith("ft-")


def generate(folder: Path, rng: random.Random) -> None:
    names = [f"cn{number:05d}" for number in range(NODES)]
    idle = set(rng.sample(names, int(NODES * IDLE_SHARE)))
    texts = {
        "nodes": scontrol_text(_node(name, is_idle=name in idle) for name in names),
        "jobs": squeue_text(_jobs(names, idle, rng)),
        "reservations": _reservation(names[: NODES // 100]),
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


def _jobs(
    names: list[str], idle: set[str], rng: random.Random
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
    for number in range(job_id, JOBS + 1):
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
    nodes = rng.sample(names, rng.choice((1, 4, 16, 64, 512, 2048)))
    return {"SchedNodes": collapse(nodes), "StartTime": _iso(NOW_S + 600 + 30 * rank)}


def _reservation(names: list[str]) -> str:
    line = recorded("busy", "reservations.txt").splitlines()[0]
    return line.replace("Nodes=n5 ", f"Nodes={collapse(names)} ") + "\n"


def _iso(time_s: int) -> str:
    return datetime.fromtimestamp(time_s, tz=UTC).strftime("%Y-%m-%dT%H:%M:%S")


if __name__ == "__main__":
    raise SystemExit(main())
