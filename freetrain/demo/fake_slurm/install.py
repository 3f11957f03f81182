"""Putting a stand-in into a folder, and taking it down again."""

from __future__ import annotations

import os
import pwd
import shlex
import shutil
import signal
import subprocess
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from freetrain.demo.fake_slurm import processes as supervising
from freetrain.demo.fake_slurm.cluster import (
    FREETRAIN,
    MAIN,
    FakeCluster,
    FakeJob,
    FakeJobState,
    end,
    opened,
    read,
    write,
)
from freetrain.demo.fake_slurm.commands import NAMES, bring_to, carry_out, command
from freetrain.demo.fake_slurm.processes import (
    is_alive,
    mark_of,
    process_of,
    signal_marked,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from freetrain.demo.fake_slurm.cluster import ClusterPart


_PATIENCE_S = 10.0
_PAUSE_S = 0.05


@dataclass(frozen=True, slots=True)
class StandIn:
    """A stand-in for Slurm in a folder of its own.

    Attributes:
        folder: Has ``bin`` with the programs, and their state.
    """

    folder: Path

    @property
    def path(self) -> str:
        """What to put first on the PATH."""
        return str(self.folder / "bin")

    def look(self) -> FakeCluster:
        """Return the state as the last program left it.

        Raises:
            OSError: It is gone.
        """
        return read(self.folder)

    def add(self, jobs: Sequence[FakeJob]) -> None:
        """Have other people's *jobs* come when their time does; numbers are given.

        Raises:
            OSError: The state is gone or cannot be kept.
        """
        with opened(self.folder) as cluster:
            for job in jobs:
                job.job_id = cluster.take_id()
                cluster.jobs.append(job)

    def wire(self, leaves: Mapping[str, Sequence[str]]) -> None:
        """Have nodes be below leaf switches, each with its name; none for no topology.

        Raises:
            OSError: The state is gone or cannot be kept.
        """
        with opened(self.folder) as cluster:
            cluster.leaves = {name: list(nodes) for name, nodes in leaves.items()}

    def stop(self) -> None:
        """End every job, and return when no process of any is left.

        Raises:
            TimeoutError: Some still were after ten seconds, killed though they are.
        """
        until_s = time.monotonic() + _PATIENCE_S
        while alive := self._end_all():
            if time.monotonic() > until_s:
                raise TimeoutError(f"still there: {alive}; look in {self.folder}")
            time.sleep(_PAUSE_S)

    def _end_all(self) -> list[int]:
        """End what there is; return the supervisors that are not done yet."""
        now_s = time.time()  # noqa: TID251 - the state's own clock
        with opened(self.folder) as cluster:
            for job in cluster.jobs:
                if job.is_pending or job.is_running:
                    orders = end(job, FakeJobState.CANCELLED, now_s)
                    carry_out(self.folder, cluster, orders)
                if job.is_completing:
                    signal_marked(mark_of(self.folder, job), signal.SIGKILL)
            bring_to(self.folder, cluster, now_s)
            there = [job.supervisor for job in cluster.jobs]
        return [process.pid for process in there if process and is_alive(process)]


def install(
    folder: Path,
    *,
    now_s: float,
    runs_jobs: bool = True,
    user: str = "",
    parts: Sequence[ClusterPart] = (MAIN, FREETRAIN),
) -> StandIn:
    """Write the programs into *folder*, which must exist; nothing runs yet.

    Args:
        folder: Empty.
        now_s: Unix time.
        runs_jobs: Whether scripts are run; where not, jobs last until ended.
        user: Whose jobs they are; empty for our own user.
        parts: The partitions.

    Raises:
        OSError: They cannot be written.
    """
    folder = folder.resolve()
    cluster = FakeCluster(
        user=user or pwd.getpwuid(os.getuid()).pw_name,
        uid=os.getuid(),
        parts=list(parts),
        runs_jobs=runs_jobs,
        keeper=process_of(os.getpid()),
        since_s=now_s,
        planned_s=now_s,
    )
    supervising.create(folder)
    write(folder, cluster)
    (folder / "bin").mkdir()
    for name in NAMES:
        path = folder / "bin" / name
        words = shlex.join(command(folder, name))
        path.write_text(f'#!/bin/sh\nexec {words} "$@"\n', encoding="utf-8")
        path.chmod(0o700)
    return StandIn(folder)


@contextmanager
def at_work(standin: StandIn) -> Iterator[StandIn]:
    """Let time go by on *standin* while the block runs; nothing of it is left after.

    Its processes also end by themselves within a second where this process is
    killed, or where the folder is removed.
    """
    controller = subprocess.Popen(  # noqa: S603 - our own words, no shell
        command(standin.folder, "control"),
        stdin=subprocess.DEVNULL,
        start_new_session=True,  # a Ctrl-C is for whoever keeps it, who then stops us
    )
    try:
        yield standin
    finally:
        standin.stop()
        controller.kill()
        controller.wait()


def remove(standin: StandIn) -> None:
    """Remove the folder.

    Raises:
        OSError: It cannot be removed.
    """
    shutil.rmtree(standin.folder)
