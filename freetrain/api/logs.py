"""Scheduler logs: read, described, and searched for holes."""

from __future__ import annotations

import errno
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from freetrain.api.context import UserContext, member_named, missing
from freetrain.errors import UsageError
from freetrain.text import counted

if TYPE_CHECKING:
    import pandas as pd

    from logs.summary import TraceSummary
    from logs.trace import IdleTrace, Trace

MethodName = Literal["recorded", "easy", "slurm"]
"""The values of ``logs.simulation.Method``, which takes long to import."""

PassesName = Literal["moment", "event"]
"""The values of ``logs.simulation.Passes``."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
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

    def __repr__(self) -> str:
        """Return the name, and what the log is of; a log has many lines."""
        from logs.trace import IdleTrace  # noqa: PLC0415 - NumPy

        if isinstance(self.trace, IdleTrace):
            holds = counted(len(self.trace.start_s), "idle interval")
        else:
            holds = counted(len(self.trace.jobs), "job")
        return f"<Log {self.named}: {holds}>"

    @property
    def start(self) -> pd.Timestamp | None:
        """When second 0 was, in UTC; None where the log does not say.

        ``log.start + pd.to_timedelta(log.jobs.submit_s, unit="s")`` are dates.
        """
        import pandas as pd  # noqa: PLC0415 - commands do without

        unix_s = self.trace.unix_start_s
        return None if unix_s is None else pd.Timestamp(unix_s, unit="s", tz="UTC")

    @property
    def jobs(self) -> pd.DataFrame:
        """A row a job, by submission: see ``logs.frames.jobs_frame``.

        Raises:
            UsageError: It is a log of idle intervals.
        """
        from logs.frames import jobs_frame  # noqa: PLC0415 - NumPy
        from logs.trace import IdleTrace  # noqa: PLC0415

        if isinstance(self.trace, IdleTrace):
            raise UsageError(
                f"{self.named} holds idle intervals and no jobs. Use holes()."
            )
        return jobs_frame(self.trace)

    @property
    def nodes(self) -> pd.DataFrame:
        """A row a node, as recorded: ``node``, its ``holes``, and ``idle_s`` in all.

        Jobs of a log that names no nodes are placed on any that are free.
        """
        import numpy as np  # noqa: PLC0415
        import pandas as pd  # noqa: PLC0415 - commands do without

        from logs.frames import single_nodes  # noqa: PLC0415

        idle, _ = self.idle()
        node, size = single_nodes(idle), len(idle.node_names)
        lasts_s = np.repeat(idle.end_s - idle.start_s, idle.widths)
        return pd.DataFrame(
            {
                "node": idle.node_names,
                "holes": np.bincount(node, minlength=size),
                "idle_s": np.bincount(node, weights=lasts_s, minlength=size),
            }
        )

    def holes(
        self,
        *,
        schedule: MethodName = "recorded",
        passes: PassesName = "moment",
        gpus_per_lease: int | None = None,
    ) -> pd.DataFrame:
        """Return a row for each hole: ``node``, ``idle_start_s``, ``idle_end_s``.

        Parameters and errors are those of ``idle``.
        """
        from logs.frames import idle_frame  # noqa: PLC0415 - NumPy

        found, _ = self.idle(
            schedule=schedule, passes=passes, gpus_per_lease=gpus_per_lease
        )
        return idle_frame(found)

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
