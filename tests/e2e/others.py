"""The other users of a cluster: a seeded workload, and a record of their jobs."""

import math
import threading
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from random import Random

from slurm.demands import demand_of
from slurm.errors import SlurmError
from slurm.pieces import GPU
from slurm.records import JobRecord, expand
from slurm.runner import SubprocessRunner
from slurm.text import parse_squeue, squeue_argv
from tests.cluster.cluster import Cluster
from tests.cluster.waiting import wait_for

HOLE_S = 300.0
"""Holes from this length on are worth a lease, and count for coverage."""

_LANES = (3, 2, 2, 1)  # nodes of the jobs that follow each other; again for more nodes
_BUSY_S = (60.0, 400.0)
_SHORT_GAP_S = (60.0, 280.0)
_LONG_GAP_S = (320.0, 900.0)
_BETWEEN_WHOLE_S = (700.0, 1_500.0)  # between two jobs that want every node
_WHOLE_S = (60.0, 150.0)
_OVERASKED = (1.1, 1.8)  # people ask for more time than they need
_MINUTE_S = 60.0


@dataclass(frozen=True, slots=True, order=True)
class Submission:
    """A job of another user, *at_s* seconds after the workload's beginning.

    *options* are further words for sbatch.
    """

    at_s: float
    nodes: int
    run_s: float
    limit_min: int
    options: tuple[str, ...] = ()


def make_workload(
    seed: int, *, span_s: float, time_scale: float = 1.0, nodes: int = sum(_LANES)
) -> tuple[Submission, ...]:
    """Return jobs for so many *nodes*, in the order of their submission.

    Lanes of jobs, four for eight nodes, take turns with gaps, half of them longer than
    ``HOLE_S``, and now and then a job wants every node: until it starts there are holes
    whose end Slurm knows.
    Nothing is submitted from *span_s* on; *time_scale* multiplies all lengths.
    """
    random = Random(seed)  # noqa: S311  jobs of a test, no secret
    span_s /= time_scale
    lanes = _lanes(nodes)
    jobs = [job for width in lanes for job in _lane(random, width, span_s=span_s)]
    jobs += _whole(random, nodes, span_s=span_s)
    return tuple(sorted(_scaled(job, time_scale, random) for job in jobs))


def _lanes(nodes: int) -> list[int]:
    lanes = list[int]()
    while left := nodes - sum(lanes):
        lanes.append(min(left, _LANES[len(lanes) % len(_LANES)]))
    return lanes


def _lane(
    random: Random, nodes: int, *, span_s: float
) -> Iterator[tuple[float, int, float]]:
    at_s = random.choice((0.0, random.uniform(*_SHORT_GAP_S)))
    while at_s < span_s:
        run_s = random.uniform(*_BUSY_S)
        yield at_s, nodes, run_s
        gap = random.choice((_SHORT_GAP_S, _LONG_GAP_S))
        at_s += run_s + random.uniform(*gap)


def _whole(
    random: Random, nodes: int, *, span_s: float
) -> Iterator[tuple[float, int, float]]:
    at_s = random.uniform(*_BETWEEN_WHOLE_S)
    while at_s < span_s:
        yield at_s, nodes, random.uniform(*_WHOLE_S)
        at_s += random.uniform(*_BETWEEN_WHOLE_S)


def _scaled(
    job: tuple[float, int, float], time_scale: float, random: Random
) -> Submission:
    at_s, nodes, run_s = job
    asked_s = run_s * time_scale * random.uniform(*_OVERASKED)
    limit_min = max(1, math.ceil(asked_s / _MINUTE_S))
    return Submission(at_s * time_scale, nodes, run_s * time_scale, limit_min)


Span = tuple[float, float]
"""From when until when, Unix time."""

OTHERS = "other-"
"""Names of jobs of the workload begin so; their number follows."""

LEASES = "freetrain-"
"""Names of leases begin so."""


@dataclass(frozen=True, slots=True)
class JobSeen:
    """One job, as far as it was seen; Unix times, None where they were not reached.

    *gpus* are those of each of its nodes, *limit_s* how long it might have run.
    """

    name: str
    nodes: frozenset[str]
    submitted_s: float
    started_s: float | None = None
    ended_s: float | None = None
    user: str = ""
    gpus: int = 0
    limit_s: float | None = None

    @property
    def ran_out(self) -> bool:
        """Whether it ended as its time was over, which Slurm counts in minutes."""
        if None in {self.started_s, self.ended_s, self.limit_s}:
            return False
        ran_s = (self.ended_s or 0.0) - (self.started_s or 0.0)
        return ran_s > (self.limit_s or 0.0) - _MINUTE_S


@dataclass(frozen=True, slots=True)
class Run:
    """One workload, lived through, and the leases that ran meanwhile."""

    origin_s: float
    end_s: float
    others: tuple[JobSeen, ...]
    leases: tuple[JobSeen, ...] = ()


def seen(job: JobRecord) -> JobSeen:
    """Return what *job* tells of itself; a planned start is none."""
    has_begun = bool(job.nodes) and not job.is_pending
    return JobSeen(
        name=job.name,
        nodes=frozenset(expand(job.nodes)) if job.nodes else frozenset(),
        submitted_s=job.submit_s or 0.0,
        started_s=job.start_s if has_begun else None,
        ended_s=job.end_s if job.has_ended else None,
        user=job.user,
        gpus=sum(gres.count for gres in demand_of(job).gres if gres.name == GPU),
        limit_s=job.limit_s,
    )


def make_run(
    jobs: Iterable[JobRecord],
    began: Mapping[int, float | None],
    *,
    origin_s: float,
    end_s: float,
) -> Run:
    """Sort *jobs* into others' and leases; a run before this one had some, too.

    *began* has when the script of each of the others' jobs began, by id, since Slurm's
    times are whole seconds; None where it did not say.
    """
    others, leases = [], []
    for job in jobs:
        found = seen(job)
        if job.job_id in began:
            exact_s = began[job.job_id]
            others.append(replace(found, started_s=exact_s or found.started_s))
        elif job.name.startswith(LEASES) and (found.ended_s or end_s) >= origin_s:
            leases.append(found)
    return Run(origin_s, end_s, tuple(others), tuple(leases))


def busy(jobs: Iterable[JobSeen], node: str, *, until_s: float) -> list[Span]:
    """Return when *node* was held by any of *jobs*, in order, without overlaps."""
    spans = sorted(
        (job.started_s, job.ended_s or until_s)
        for job in jobs
        if node in job.nodes and job.started_s is not None
    )
    joined: list[Span] = []
    for start_s, end_s in spans:
        if joined and start_s <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end_s, joined[-1][1]))
        else:
            joined.append((start_s, end_s))
    return joined


USER = "games"  # 26.05 refuses nobody by name
_LOOK_EVERY_S = 1.0
_PATIENCE_S = 3_600.0
_ALL_MAY_WRITE = 0o1777
# The job says itself when it began, since Slurm's times are whole seconds.
_SCRIPT = """\
#!/bin/sh
date +%s.%N > "$2/$SLURM_JOB_ID"
exec sleep "$1"
"""


class Recorder:
    """Looks at all jobs again and again, and keeps the last of each."""

    def __init__(self, cluster: Cluster) -> None:
        self._runner = SubprocessRunner(cluster.environ)
        self._lock = threading.Lock()
        self._jobs: dict[int, JobRecord] = {}

    @property
    def jobs(self) -> tuple[JobRecord, ...]:
        """What was last seen of each job, tasks that wait together left out."""
        with self._lock:
            return tuple(self._jobs.values())

    def look(self) -> None:
        """Look once; a Slurm that does not answer is asked again another time."""
        with suppress(SlurmError):
            text = self._runner.run(squeue_argv(all_states=True), timeout_s=30)
            found = parse_squeue(text)
            with self._lock:
                self._jobs |= {j.job_id: j for j in found if not j.array_tasks}

    @contextmanager
    def looking(self) -> Iterator[None]:
        """Look every second, as long as the block lasts, and once at its end."""
        done = threading.Event()

        def watch() -> None:
            while not done.wait(_LOOK_EVERY_S):
                self.look()

        watcher = threading.Thread(target=watch)
        watcher.start()
        try:
            yield
        finally:
            done.set()
            watcher.join()
            self.look()


def live_through(
    cluster: Cluster,
    workload: Sequence[Submission],
    folder: Path,
    *,
    span_s: float = 0.0,
    enough: threading.Event | None = None,
) -> Run:
    """Submit *workload* in time, wait for all of it, and return what was seen.

    Jobs of other users must reach *folder*, which gets scripts and times. It lasts for
    *span_s* at least; nothing more is submitted once *enough* is set.
    """
    began = folder / "began"
    began.mkdir()
    began.chmod(_ALL_MAY_WRITE)
    script = folder / "other"
    script.write_text(_SCRIPT, encoding="ascii")
    script.chmod(0o755)
    recorder = Recorder(cluster)
    with recorder.looking():
        origin_s, clock_s = time.time(), time.monotonic()  # noqa: TID251 -- the real one
        ids = set()
        for number, job in enumerate(workload):
            if not _wait_until(clock_s + job.at_s, enough):
                break
            words = (f"--job-name={OTHERS}{number}", *_words(job), str(script))
            told = cluster.run("sbatch", *words, str(job.run_s), str(began))
            ids.add(int(told))
        _wait_until(clock_s + span_s, enough)
        ended = partial(_have_ended, recorder, ids)
        wait_for("others' jobs to end", ended, limit_s=_PATIENCE_S, pause_s=1)
    end_s = origin_s + time.monotonic() - clock_s
    exact = {number: _began_s(began / str(number)) for number in ids}
    return make_run(recorder.jobs, exact, origin_s=origin_s, end_s=end_s)


def _words(job: Submission) -> tuple[str, ...]:
    size = (f"--nodes={job.nodes}", f"--time={job.limit_min}", "--parsable")
    who = (f"--uid={USER}", "--partition=main", "--chdir=/", "--output=/dev/null")
    return (*who, *size, *job.options)


def _began_s(path: Path) -> float | None:
    try:
        return float(path.read_text(encoding="ascii"))
    except (FileNotFoundError, ValueError):
        return None


def _wait_until(moment_s: float, enough: threading.Event | None) -> bool:
    """Wait, and tell whether there is more to do after that."""
    pause_s = max(0.0, moment_s - time.monotonic())
    if enough is None:
        time.sleep(pause_s)
        return True
    return not enough.wait(pause_s)


def _have_ended(recorder: Recorder, ids: Collection[int]) -> bool:
    others = [job for job in recorder.jobs if job.job_id in ids]
    return len(others) == len(ids) and all(job.has_ended for job in others)
