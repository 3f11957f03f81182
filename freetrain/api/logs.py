"""Scheduler logs: read, described, and searched for holes."""

from __future__ import annotations

import errno
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from freetrain.api.context import UserContext, member_named, missing

if TYPE_CHECKING:
    from logs.summary import TraceSummary
    from logs.trace import IdleTrace, Trace

MethodName = Literal["recorded", "easy", "slurm"]
"""The values of ``logs.simulation.Method``, which takes long to import."""

PassesName = Literal["moment", "event"]
"""The values of ``logs.simulation.Passes``."""


@dataclass(frozen=True, slots=True, eq=False)
class Log:
    """A scheduler log.

    Times are seconds since the log's own start, and sizes whole nodes, unless a
    column's name says otherwise.

    Attributes:
        trace: Its jobs or idle intervals, as read.
        path: The file.
        named: The file as the user named it.
        skip_bad: Bad lines that might be passed over.
        cores_per_node: Processors of a node, as the user said.
        gpus_per_node: GPUs of a node, as the user said.
    """

    trace: Trace
    path: Path
    named: str
    skip_bad: int = 0
    cores_per_node: int | None = None
    gpus_per_node: int | None = None

    def info(self) -> TraceSummary:
        """Return what the log holds: the figures of ``freetrain trace info``."""
        from logs.summary import summarise  # noqa: PLC0415 - NumPy

        return summarise(replace(self.trace, source=self.named))

    @property
    def cautions(self) -> tuple[str, ...]:
        """A sentence each for what was not read of the log, or may mislead."""
        from freetrain.replay.pool import reading_cautions  # noqa: PLC0415 - NumPy

        return reading_cautions(self.trace)

    def idle(
        self,
        *,
        schedule: MethodName = "recorded",
        passes: PassesName = "moment",
        gpus_per_lease: int | None = None,
        context: UserContext | None = None,
    ) -> tuple[IdleTrace, tuple[str, ...]]:
        """Return when nodes are idle, and the log's cautions as it was placed.

        Args:
            schedule: Who starts jobs: ``recorded`` (as the log says), ``easy`` or
                ``slurm`` (simulated).
            passes: Simulated schedulers look once a ``moment``, or at each ``event``
                of it.
            gpus_per_lease: Find what leases of so many GPUs could have; None for whole
                nodes.
            context: Whose work it is: progress is shown there.

        Raises:
            UsageError, UnusableLogError: The log does not suit these.
        """
        from freetrain.replay.pool import idle_of  # noqa: PLC0415 - NumPy
        from logs.simulation import Method, Passes  # noqa: PLC0415 - NumPy

        around = context or UserContext.of_process()
        with around.progress(f"scheduling ({schedule})") as report:
            return idle_of(
                self.trace,
                member_named(Method, schedule, "--schedule"),
                passes=member_named(Passes, passes, "--passes"),
                lease_gpus=gpus_per_lease,
                on_progress=report,
            )


def read_log(
    path: str | Path,
    *,
    skip_bad: int = 0,
    cores_per_node: int | None = None,
    gpus_per_node: int | None = None,
    named: str = "",
) -> Log:
    """Read a scheduler log in any format that ``freetrain trace info`` reads.

    Args:
        path: The file.
        skip_bad: Pass over up to so many bad lines.
        cores_per_node: Processors of a node, for a log that counts those; None for
            what its header says.
        gpus_per_node: GPUs of a node, for a log of jobs that share nodes: their GPUs
            count. None for what a log of GPUs says.
        named: The file as the user named it; empty for *path*.

    Raises:
        MissingInputError: It is not there or may not be read.
        OSError: Reading it broke off.
        UnreadableLogError: It is not a log, or a line of it is bad.
        UnusableLogError: *cores_per_node* is given, and it counts nodes; or
            *gpus_per_node*, and it says nothing of GPUs.
    """
    from logs.read import read_trace  # noqa: PLC0415 - NumPy

    path, named = Path(path), named or str(path)
    try:
        trace = read_trace(
            path,
            skip_bad=skip_bad,
            cores_per_node=cores_per_node,
            gpus_per_node=gpus_per_node,
        )
    except OSError as error:
        if error.errno == errno.EIO:
            raise
        raise missing(named, error, undone="done") from error
    return Log(trace, path, named, skip_bad, cores_per_node, gpus_per_node)
