"""What a trainer is, as its user wrote it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from freetrain.jobfile.aims import Quality

if TYPE_CHECKING:
    from pathlib import Path

    from freetrain.jobfile.aims import Deadline, Target
    from slurm.records import Gres


_COMMITS = 2  # intervals in which there was one for sure
_MOST_DOUBLINGS = 20


class Launcher(StrEnum):
    """What starts a world's processes on its nodes."""

    MPIRUN = "mpirun"
    SRUN = "srun"
    TORCHRUN = "torchrun"
    CUSTOM = "custom"
    PACK = "pack"


class StopSignal(StrEnum):
    """What may ask a program to stop. USR1 may not: NCCL uses it (submitit #1701)."""

    USR2 = "USR2"
    TERM = "TERM"
    INT = "INT"
    HUP = "HUP"
    QUIT = "QUIT"


class Order(StrEnum):
    """Who is served first."""

    NORMAL = "normal"
    BACKGROUND = "background"


class ProgressFormat(StrEnum):
    """How a program that does not use ``freetrain.elastic`` tells its progress."""

    PATTERN = "pattern"
    CSV = "csv"
    JSON_LINES = "json-lines"


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """How a world is started.

    Attributes:
        launcher: What starts it.
        processes_per_node: Processes on each node, 1 or more.
        ahead: Whether an elastic program's next world starts while the last one still
            trains, and waits for it in ``elastic.join``.
        spare: Whether on each node a process waits that has done all that the program
            does before ``elastic.join``, and of which the next ranks are forked. None
            for no; it is not written, so that agents of an earlier release, which
            run while the program is upgraded, can read the file.
        threads: What OMP_NUM_THREADS is set to; None leaves it alone.
        executable: The launcher's program; empty for its usual name.
        options: Further words for the launcher, before the program's command.
        command: For ``custom``: what the program's command is appended to, with
            the placeholders of ``PLACEHOLDERS``.
        pack: For ``pack``: the file that names the trainers which share the node.
    """

    launcher: Launcher = Launcher.MPIRUN
    processes_per_node: int = 1
    ahead: bool = True
    spare: bool | None = None
    threads: int | None = None
    executable: str = ""
    options: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    pack: Path | None = None


PLACEHOLDERS = ("hostfile", "hosts", "nodes", "processes", "agent")
"""What ``{...}`` in a custom launcher's command may name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Nodes:
    """How many nodes a trainer can use, and which.

    Attributes:
        max_nodes: The most.
        min_nodes: The fewest.
        only: The counts that it can run on, ascending; empty for all.
        partition: Where leases for it are submitted; None as the site says.
        features: Features that each node must have, beside the site's.
        gres: Generic resources of each node; None as the site says.
        memory_mib: Memory that each node must have; None as the site says.
        cpus: CPUs that each node must have; None as the site says.
    """

    max_nodes: int
    min_nodes: int = 1
    only: tuple[int, ...] = ()
    partition: str | None = None
    features: tuple[str, ...] = ()
    gres: tuple[Gres, ...] | None = None
    memory_mib: int | None = None
    cpus: int | None = None

    @property
    def sizes(self) -> tuple[int, ...]:
        """The node counts that it can run on, ascending, never empty."""
        allowed = range(self.min_nodes, self.max_nodes + 1)
        return tuple(n for n in self.only or allowed if n in allowed)


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """When a trainer is done; without anything, when its program says so.

    Attributes:
        samples: Training samples; None for as many as its program likes.
        epochs: Epochs; likewise. Never both.
        time_limit_s: Time on nodes after which it is stopped; None for none.
    """

    samples: float | None = None
    epochs: int | None = None
    time_limit_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """Where and how often a trainer commits.

    Attributes:
        path: For a program that uses ``freetrain.elastic`` its run directory, for
            another what it writes; None for a run directory of FreeTrain's.
        every_s: Time between two commits: what a kill may cost.
    """

    path: Path | None = None
    every_s: float = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """How a program is asked to commit and end.

    Attributes:
        signal: The signal that asks.
        kill_after_s: How long it may take before it is killed.
    """

    signal: StopSignal = StopSignal.USR2
    kill_after_s: float = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Restart:
    """What is done when a program fails; taking its nodes away is no failure.

    Attributes:
        attempts: Failures in a row, without a commit between them, after which it
            is not started any more; 0 for never again.
        wait_s: Time before the next start; doubles with each failure in a row.
    """

    attempts: int = 3
    wait_s: float = 30.0

    def is_used_up(self, failures: int) -> bool:
        """Tell whether it is not started again after so many failures in a row."""
        return failures >= max(1, self.attempts)

    def pause_s(self, failures: int) -> float:
        """Return the time before the next start after so many, at least one."""
        return float(self.wait_s * 2.0 ** min(failures - 1, _MOST_DOUBLINGS))


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Where a program that does not use ``freetrain.elastic`` tells its progress.

    Attributes:
        form: How.
        file: The file that it appends to; None for what it prints.
        pattern: Regular expression to find in a line, its named groups being the
            fields; for ``PATTERN`` only.
        fields: Pairs of field and column or key; for the other two only. Fields
            are ``step``, ``samples``, ``epoch``, and names of metrics.
    """

    form: ProgressFormat
    file: Path | None = None
    pattern: str = ""
    fields: tuple[tuple[str, str], ...] = ()

    @property
    def told(self) -> frozenset[str]:
        """The fields that the program tells."""
        names = {name for name, _ in self.fields}
        return frozenset(names | re.compile(self.pattern).groupindex.keys())


@dataclass(frozen=True, slots=True, kw_only=True)
class RescaleCosts:
    """Time without training at a change of nodes; None until it is measured.

    Attributes:
        grow_s: When nodes are added.
        shrink_s: When nodes are given up or lost.
        start_s: When it starts from no nodes.
    """

    grow_s: float | None = None
    shrink_s: float | None = None
    start_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainerJob:
    """A trainer as its user wrote it. All paths are absolute.

    Attributes:
        name: What people call it.
        command: The program and its arguments; no shell sees them. Empty for a pack,
            whose members have theirs.
        directory: Where the program starts.
        environment: Variables for it, by name.
        elastic: Whether the program uses ``freetrain.elastic``.
        logs: Folder for what it prints; None for one of FreeTrain's.
        weight: What its work is worth to the planner, above 0.
        order: Whether it is served with the others or after them.
        scaling: Samples a second by node count, ascending, as far as its user knows;
            what is measured counts more.
        deadline: When it should be finished; None for no time.
        launch: How a world is started.
        nodes: How many nodes, and which.
        work: When it is done.
        checkpoint: Where and how often it commits.
        stop: How it is asked to end.
        restart: What is done when it fails.
        progress: Where it tells its progress; None if ``elastic``, or nowhere.
        quality: Which metric says how good it is; None for a loss, which the next
            property says. None is not written, so that agents of an earlier
            release, which run while the program is upgraded, can read the file.
        target: What value is wanted, and what is done then; None for nothing.
        costs: What a rescale costs.
    """

    name: str
    directory: Path
    nodes: Nodes
    command: tuple[str, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()
    elastic: bool = True
    logs: Path | None = None
    weight: float = 1.0
    order: Order = Order.NORMAL
    scaling: tuple[tuple[int, float], ...] = ()
    deadline: Deadline | None = None
    launch: Launch = Launch()
    work: Work = Work()
    checkpoint: Checkpoint = Checkpoint()
    stop: Stop = Stop()
    restart: Restart = Restart()
    progress: Progress | None = None
    quality: Quality | None = None
    target: Target | None = None
    costs: RescaleCosts = RescaleCosts()

    @property
    def measure(self) -> Quality:
        """Which metric says how good it is."""
        return self.quality or Quality()

    def must_have_committed(self, ran_s: float) -> bool:
        """Tell whether a program that tells of no commit made one in so long a run."""
        return not self.elastic and ran_s >= _COMMITS * self.checkpoint.every_s
