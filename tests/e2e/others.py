"""Everybody else on the cluster: submits a workload, and records what came of it."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING

from slurm.errors import SlurmError
from slurm.runner import SubprocessRunner
from slurm.text import parse_squeue, squeue_argv
from tests.cluster.waiting import wait_for
from tests.e2e.record import OTHERS, Run, make_run

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence
    from pathlib import Path

    from slurm.records import JobRecord
    from tests.cluster.cluster import Cluster
    from tests.e2e.workload import Submission

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

    Args:
        cluster: Where; somebody may run leases there at the same time.
        workload: What.
        folder: For scripts and times; jobs of other users must reach it.
        span_s: How long to go on at least.
        enough: Once it is set nothing more is submitted.

    Raises:
        TimeoutError: Some job had not ended an hour after it should have.
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
    return (*who, *size)


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
