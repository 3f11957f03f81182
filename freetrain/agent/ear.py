"""A step of the lease's job that hears of preemption for the agent.

At the start of the grace time Slurm sends TERM to every process of the job's steps,
and to none of the batch script's. Were the agent a step, its mpirun and the clients
of its remote steps would hear it too, and end the world before it has committed. So
the agent runs under the batch script, and a step that does nothing but end listens.
"""

from __future__ import annotations

import signal
import subprocess
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_AGAIN_S = 5.0
_CLOSE_S = 1.0
_TOLD = frozenset({signal.SIGTERM, 128 + signal.SIGTERM, -signal.SIGTERM})
_LONG_S = 10**9


class Ear:
    """Listens; a step that ends for another reason is started again."""

    def __init__(
        self,
        job_id: int,
        environment: Mapping[str, str],
        *,
        elapsed_s: Callable[[], float],
    ) -> None:
        """Take the lease's job, a scrubbed environment, and a clock."""
        self._argv = ear_argv(job_id)
        self._environment = dict(environment)
        self._elapsed_s = elapsed_s
        self._step: subprocess.Popen[bytes] | None = None
        self._due_s = elapsed_s()
        self._has_heard = False

    @property
    def is_listening(self) -> bool:
        """Whether the step is there, as far as was seen."""
        return self._step is not None

    def has_heard(self) -> bool:
        """Tell whether Slurm has announced the end of the job; listens from now on."""
        if self._step is not None and self._step.poll() is not None:
            self._has_heard |= self._step.returncode in _TOLD
            self._step = None
        is_due = self._elapsed_s() >= self._due_s
        if self._step is None and is_due and not self._has_heard:
            self._due_s = self._elapsed_s() + _AGAIN_S
            with suppress(OSError):
                self._step = self._start()
        return self._has_heard

    def close(self) -> None:
        """Stop listening, kindly: a step whose client was killed takes long to end."""
        if self._step is not None:
            self._step.terminate()
            with suppress(subprocess.TimeoutExpired):
                self._step.wait(_CLOSE_S)
            self._step.kill()
            self._step.wait()

    def _start(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(  # noqa: S603 -- a list, never a shell
            self._argv,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )


def ear_argv(job_id: int) -> list[str]:
    """Return the command that listens in the job of raw number *job_id*."""
    return [
        "srun",
        f"--jobid={job_id}",
        "--overlap",
        "--nodes=1",
        "--ntasks=1",
        "--mem=0",
        "--mpi=none",
        "--input=none",
        "--export=ALL",
        "sleep",
        str(_LONG_S),
    ]
