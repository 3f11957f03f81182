"""The real edge: this node's clock, processes and signals, and Slurm."""

from __future__ import annotations

import os
import select
import signal
import socket
import time
from threading import Thread
from typing import TYPE_CHECKING

from freetrain.agent.processes import marked_processes, send
from freetrain.elastic.rank import listens
from freetrain.exchange.layout import lease_name
from slurm.errors import SlurmError
from slurm.records import JobKey

if TYPE_CHECKING:
    from collections.abc import Callable

    from freetrain.agent.ear import Ear
    from freetrain.agent.processes import Marked, Signal
    from freetrain.broker.lease import LeaseKey
    from freetrain.exchange.assigned import Assigned, Member
    from freetrain.jobfile.job import TrainerJob
    from freetrain.launch.world import Launcher, World
    from slurm.backend import SlurmBackend


def unix_s() -> float:
    """Return the time of day, Unix."""
    return time.time()  # noqa: TID251 -- this is the clock that others take


class Machine:
    """This node; a ``freetrain.agent.edge.Edge``."""

    def __init__(
        self,
        launcher: Launcher,
        slurm: SlurmBackend,
        *,
        own_job: JobKey | None,
        ear: Ear | None,
        journal: Callable[[str], None],
    ) -> None:
        """Take what starts worlds, Slurm, this lease's job, and the log.

        Args:
            launcher: Starts worlds.
            slurm: Ends jobs.
            own_job: This lease's job; None where there is none.
            ear: Hears of the lease's end for the agent; None where it does so itself.
            journal: Writes a line.
        """
        self._launcher = launcher
        self._slurm = slurm
        self._own_job = own_job
        self._ear = ear
        self._journal = journal
        self._is_told = False
        self._woken, self._wakes = socket.socketpair()
        for end in (self._woken, self._wakes):
            end.settimeout(0.0)

    def hear(self) -> None:
        """Take TERM for Slurm's announcement from now on; for the main thread."""
        signal.set_wakeup_fd(self._wakes.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGTERM, self._note)

    def _note(self, number: int, frame: object) -> None:
        del number, frame
        self._is_told = True

    def elapsed_s(self) -> float:
        """Return the time on a clock that never goes back."""
        return time.monotonic()

    def unix_s(self) -> float:
        """Return the time of day, Unix."""
        return unix_s()

    def is_told_to_leave(self) -> bool:
        """Tell whether Slurm has announced the end of the lease."""
        if self._ear is not None and not self._is_told:
            self._is_told = self._ear.has_heard()
        return self._is_told

    def launch(
        self,
        job: TrainerJob,
        assigned: Assigned,
        *,
        after: int | None,
        is_forked: bool,
    ) -> World:
        """Start a world."""
        return self._launcher.launch(job, assigned, after=after, is_forked=is_forked)

    def start_spare(
        self, job: TrainerJob, assigned: Assigned, lease: LeaseKey
    ) -> World:
        """Start a spare in *lease*, which is this node's."""
        return self._launcher.start_spare(job, assigned, lease)

    def is_spare_ready(self, lease: LeaseKey) -> bool:
        """Tell whether the spare in *lease*, which is this node's, can be asked."""
        return listens(lease_name(lease))

    def processes(self) -> tuple[Marked, ...]:
        """Return the marked processes of this node, but for the agent's own."""
        return marked_processes(uid=os.geteuid(), own_pid=os.getpid())

    def send(self, signal: Signal) -> None:
        """Send a signal to a process; one that is gone gets none."""
        send(signal.process, signal.number)

    def end_lease(self, member: Member) -> None:
        """Begin to end the job of a silent lease; does not wait for it."""
        key = JobKey(member.job_id, member.display_id)
        Thread(target=self._cancel, args=(key,), daemon=True).start()

    def _cancel(self, key: JobKey) -> None:
        try:
            self._slurm.signal([key], "KILL")
        except (SlurmError, ValueError) as error:
            self.say(f"job {key.display_id} could not be ended: {error}")

    def stop_listening(self) -> None:
        """End what listens for Slurm's announcement, which is a step of the job."""
        if self._ear is not None:
            self._ear.close()

    def end_own_job(self) -> None:
        """End this lease's own job; returns where that failed."""
        if self._own_job is not None:
            self._cancel(self._own_job)

    def wait(self, seconds: float) -> None:
        """Wait, or less: until Slurm announces the end of the lease."""
        if select.select([self._woken], [], [], seconds)[0]:
            self._woken.recv(4096)

    def say(self, text: str) -> None:
        """Write a line to the agent's log; never fails."""
        self._journal(text)
