"""GPUs of nodes that jobs share: how much of their idle time trains, and who waits.

Other users' jobs take one GPU, half a node's or whole nodes. The same workload runs
with FreeTrain, whose leases are pieces of nodes, and beside that twice without it.
Where Slurm preempts it runs once more beside plain jobs of one GPU that it preempts.
"""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from random import Random

from freetrain.state.database import read_store
from freetrain.state.tables import EventKind
from tests.cluster.cluster import Cluster
from tests.cluster.settings import PART_GPUS
from tests.cluster.waiting import wait_for
from tests.e2e.others import (
    HOLE_S,
    LEASES,
    JobSeen,
    Run,
    Span,
    Submission,
    live_through,
)
from tests.e2e.stage import Stage
from tests.soak.harm_runs import Measurement, delay_lines
from tests.soak.measures import Delay, delays, read_worked, trained

KINDS = ("a100", "v100")
GPUS = {node: count for node, (kind, count) in PART_GPUS.items() if kind in KINDS}

# Trainers by name: kind of GPU, GPUs of a lease, most leases.
TRAINERS = {
    "ada": ("a100", 1, 8),
    "ben": ("a100", 1, 8),
    "cleo": ("a100", 2, 4),
    "dan": ("v100", 1, 4),
}

_BUSY_S = (100.0, 600.0)
_GAPS_S = ((30.0, 200.0), (320.0, 700.0))
_OVERASKED = (1.1, 1.8)
_PLAIN_ARRAYS = 2
_LEASES = {
    "preempt": 'partition = "freetrain"\nmode = "preempt"',
    "yield": 'partition = "main"\nmode = "yield"',
}


def make_gpu_workload(seed: int, *, span_s: float) -> tuple[Submission, ...]:
    """Return jobs for the GPUs of the cluster, in the order of their submission.

    Lanes of jobs of one kind and size take turns with gaps, half of them long.
    """
    random = Random(seed)  # noqa: S311 -- jobs of a test, no secret
    lanes = [("a100", 1)] * 5 + [("a100", 2)] * 2 + [("a100", 4)] + [("v100", 1)] * 2
    jobs = [
        job for kind, gpus in lanes for job in _lane(random, kind, gpus, span_s=span_s)
    ]
    return tuple(sorted(jobs))


def _lane(
    random: Random, kind: str, gpus: int, *, span_s: float
) -> Iterator[Submission]:
    at_s = random.uniform(*_GAPS_S[0])
    while at_s < span_s:
        run_s = random.uniform(*_BUSY_S)
        limit_min = 1 + int(run_s * random.uniform(*_OVERASKED) / 60.0)
        size = (
            ("--exclusive", "--mem=0")
            if gpus == max(GPUS.values())
            else (f"--cpus-per-task={gpus}", f"--mem={1_000 * gpus}")
        )
        options = (f"--gres=gpu:{kind}:{gpus}", *size)
        yield Submission(at_s, 1, run_s, limit_min, options)
        at_s += run_s + random.uniform(*random.choice(_GAPS_S))


def measure_gpus(
    clusters: Sequence[Cluster], folder: Path, wanted: Measurement, *, mode: str
) -> Iterator[str]:
    """Yield the lines of a report.

    Args:
        clusters: One for FreeTrain, and two for runs without it, or none; a fourth
            for plain jobs in its place.
        folder: All users must reach it.
        wanted: The settings.
        mode: How leases give way.
    """
    workload = make_gpu_workload(wanted.seed, span_s=wanted.span_s)
    yield f"{len(workload)} jobs of others in {wanted.span_s:g} s, seed {wanted.seed}"

    def live(number: int) -> Run:
        mine = folder / f"others-{number}"
        mine.mkdir()
        return live_through(clusters[number], workload, mine, span_s=wanted.span_s)

    stage = Stage(clusters[0], folder)
    for cluster in clusters[3:]:
        _fill(cluster)
    with (
        ThreadPoolExecutor(len(clusters)) as pool,
        _freetrain(stage, wanted.tick_every_s, mode),
    ):
        run, *without = pool.map(live, range(len(clusters)))
    yield from _lines(stage, run)
    if without:
        first, second, *beside_plain = without
        rows = {
            "without FreeTrain, against without": delays(first, second),
            **_met_or_not("with FreeTrain", delays(first, run)),
        }
        for plain in beside_plain:
            rows |= _met_or_not("with plain jobs", delays(first, plain))
        yield from delay_lines(rows)


def _met_or_not(title: str, harm: Sequence[Delay]) -> dict[str, list[Delay]]:
    return {
        f"{title}, met none": [d for d in harm if not d.met_lease],
        f"{title}, met one": [d for d in harm if d.met_lease],
    }


def _fill(cluster: Cluster) -> None:
    """Ask for plain jobs of one GPU, more than fit, whose steps end when preempted.

    They are named as leases are, so that they count as such.
    """
    for kind in KINDS:
        for number in range(_PLAIN_ARRAYS):
            cluster.run(
                *("sbatch", f"--job-name={LEASES}plain-{number}", "--array=0-100"),
                *("--partition=freetrain", "--time=60", "--chdir=/"),
                *(f"--gres=gpu:{kind}:1", "--mem=500", "--output=/dev/null"),
                "--wrap=srun --mem=0 sleep 3600",
            )


@contextmanager
def _freetrain(stage: Stage, tick_every_s: float, mode: str) -> Iterator[None]:
    stage.set_up(lease=_LEASES[mode])
    for name, (kind, gpus, most) in TRAINERS.items():
        stage.submit(
            name,
            most=most,
            nodes=f'gpus_per_lease = {gpus}\ngpu_type = "{kind}"',
            launch='launcher = "srun"\nprocesses_per_node = 1\nahead = false',
            DIGITS_EPOCHS="4000",
            DIGITS_COUNTED="0",
            DIGITS_STEP_S="2",
        )
    with stage.ticking(tick_every_s):
        yield
        stage.freetrain("cancel", *TRAINERS)
        wait_for("leases to go", lambda: not stage.leases(), limit_s=600, pause_s=1)


def _lines(stage: Stage, run: Run) -> Iterator[str]:
    spans: dict[str, list[tuple[Span, int]]] = {}
    for name, (_, gpus, _) in TRAINERS.items():
        trainer, run_dir = stage.trainer(name)
        if run_dir.progress.exists():
            for node, times in trained(read_worked(trainer, run_dir)).items():
                spans.setdefault(node, []).extend((span, gpus) for span in times)
    found = gpu_coverage(run, spans, gpus=GPUS, shortest_s=HOLE_S)
    yield (
        f"coverage of pieces of {HOLE_S:g} s and more: {found.trained_s:.0f} of "
        f"{found.idle_s:.0f} GPU-seconds, {found.trained_s / found.idle_s:.1%}"
    )
    with read_store(stage.state.path, uid=os.getuid()) as state:
        ends = state.execute(
            "SELECT kind || ' (' || detail || ')', count(*) FROM events "
            "WHERE kind IN (?, ?) GROUP BY 1 ORDER BY 2 DESC",
            (EventKind.YIELDED, EventKind.GAVE_UP),
        )
        yield from (f"{count} times {why}" for why, count in ends)
    again = list(asked_again(run))
    yield f"{len(run.leases)} leases; {len(again)} asked again for the same piece"
    yield from again


@dataclass(frozen=True, slots=True)
class GpuCoverage:
    """GPU-seconds without jobs of others, and those in which a world trained."""

    idle_s: float
    trained_s: float


def gpu_coverage(
    run: Run,
    trained_on: Mapping[str, Iterable[tuple[Span, int]]],
    *,
    gpus: Mapping[str, int],
    shortest_s: float,
) -> GpuCoverage:
    """Return the coverage of the pieces of *run* that last *shortest_s* and more.

    The n-th piece of a node is there while n of its GPUs or more are idle, and trains
    while worlds train on n or more of them: so a node's last free GPU has the longest
    piece.

    Args:
        run: The record of others' jobs.
        trained_on: By node, when worlds trained there, and on how many GPUs.
        gpus: How many each node has.
        shortest_s: Shorter pieces do not count.
    """
    idle_s = trained_s = 0.0
    bounds = (run.origin_s, run.end_s)
    for node, count in gpus.items():
        used = [
            ((job.started_s, job.ended_s or run.end_s), job.gpus)
            for job in run.others
            if node in job.nodes and job.started_s is not None
        ]
        free = _levels(((bounds, count), *((span, -n) for span, n in used)), bounds)
        trains = _levels(trained_on.get(node, ()), bounds)
        for level in range(1, count + 1):
            for piece in _at_least(free, level):
                if piece[1] - piece[0] >= shortest_s:
                    idle_s += piece[1] - piece[0]
                    trained_s += sum(
                        max(0.0, min(end_s, piece[1]) - max(start_s, piece[0]))
                        for start_s, end_s in _at_least(trains, level)
                    )
    return GpuCoverage(idle_s, trained_s)


def _levels(
    spans: Iterable[tuple[Span, int]], within: Span
) -> list[tuple[float, float, int]]:
    """Return the sum of what *spans* carry over time: from, until, and the sum."""
    changes: dict[float, int] = {within[0]: 0, within[1]: 0}
    for (start_s, end_s), count in spans:
        begin_s = min(max(start_s, within[0]), within[1])
        until_s = min(max(end_s, within[0]), within[1])
        changes[begin_s] = changes.get(begin_s, 0) + count
        changes[until_s] = changes.get(until_s, 0) - count
    level, levels = 0, []
    times = sorted(changes)
    for at_s, next_s in pairwise(times):
        level += changes[at_s]
        levels.append((at_s, next_s, level))
    return levels


def _at_least(levels: Sequence[tuple[float, float, int]], least: int) -> Iterator[Span]:
    """Yield the spans in which the level is *least* or more."""
    began_s: float | None = None
    for start_s, _, level in levels:
        if level >= least and began_s is None:
            began_s = start_s
        elif level < least and began_s is not None:
            yield began_s, start_s
            began_s = None
    if began_s is not None:
        yield began_s, levels[-1][1]


_AGAIN_S = 30.0
"""A lease that begins so soon after another on its node, with no job of others in
between, took the same piece."""


def asked_again(run: Run) -> Iterator[str]:
    """Yield the leases that took the piece of one that had just ended for no job."""
    for lease in run.leases:
        before = _just_ended(lease, run)
        if before is not None and not _was_wanted(before, lease, run):
            at_s = (lease.started_s or 0.0) - run.origin_s
            why = "whose time was over" if before.ran_out else "that left"
            yield f"on {sorted(lease.nodes)} at {at_s:.0f} s after one {why}"


def _just_ended(lease: JobSeen, run: Run) -> JobSeen | None:
    for other in run.leases:
        if other is lease or other.nodes != lease.nodes or other.gpus != lease.gpus:
            continue
        if None in {other.started_s, other.ended_s, lease.started_s}:
            continue
        if 0.0 <= (lease.started_s or 0.0) - (other.ended_s or 0.0) <= _AGAIN_S:
            return other
    return None


def _was_wanted(before: JobSeen, lease: JobSeen, run: Run) -> bool:
    """Tell whether a job of others waited, or began on the node, between the two."""
    return any(
        job.submitted_s <= (lease.started_s or 0.0)
        and (job.started_s or run.end_s) >= (before.ended_s or 0.0) - _AGAIN_S
        for job in run.others
    )
