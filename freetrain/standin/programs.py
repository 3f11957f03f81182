"""One call of one program: the state brought to now, and what was asked for done."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from freetrain.standin import supervising, telling
from freetrain.standin.cancelling import PartlyDoneError, scancel
from freetrain.standin.complaint import ComplaintError
from freetrain.standin.environment import mark_of
from freetrain.standin.keeping import opened, write
from freetrain.standin.processes import (
    detach,
    is_alive,
    process_of,
    reap,
    signal_group,
    signal_marked,
)
from freetrain.standin.records import Process
from freetrain.standin.schedule import Deed, advance
from freetrain.standin.stepping import step
from freetrain.standin.submitting import sbatch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from freetrain.standin.records import Cluster
    from freetrain.standin.schedule import Order

NAMES = ("sbatch", "scancel", "scontrol", "sdiag", "sinfo", "squeue", "srun")
_TICK_S = 0.1


def main(folder: Path, program: str, argv: Sequence[str]) -> int:
    """Be *program* once and return its exit status."""
    if program == "supervise":
        supervising.supervise(folder, int(argv[0]))
        return 0
    if program == "control":
        return control(folder)
    try:
        if program == "srun":
            return _run_step(folder, argv)
        said = answer(folder, program, argv)
    except ComplaintError as complaint:
        sys.stderr.write(f"{complaint}\n")
        return 1
    except FileNotFoundError:
        sys.stderr.write(f"{program}: error: Unable to contact slurm controller\n")
        return 1
    sys.stdout.buffer.write(said.encode("utf-8", "surrogateescape"))
    return 0


def answer(
    folder: Path, program: str, argv: Sequence[str], *, now_s: float | None = None
) -> str:
    """Do what one call of *program* asks for, and return what it prints.

    Args:
        folder: The stand-in's.
        program: Its name.
        argv: What it is called with.
        now_s: Unix time; None for the machine's.

    Raises:
        ComplaintError: It was refused.
        OSError: The state is gone or cannot be kept.
    """
    if now_s is None:
        now_s = _now_s()
    with opened(folder) as cluster:
        bring_to(folder, cluster, now_s)
        try:
            said, complaint = _do(folder, cluster, program, argv, now_s), None
        except ComplaintError as refused:
            said, complaint = "", refused
        bring_to(folder, cluster, now_s)
    if complaint is not None:
        raise complaint
    return said


def control(folder: Path) -> int:
    """Bring the state to now again and again, until the keeper or the folder is gone.

    Every other program does so too; this one only lets things happen in time.
    """
    while True:
        try:
            with opened(folder) as cluster:
                bring_to(folder, cluster, _now_s())
        except FileNotFoundError:
            return 0
        if cluster.keeper is not None and not is_alive(cluster.keeper):
            return 0
        reap()
        time.sleep(_TICK_S)


def bring_to(folder: Path, cluster: Cluster, now_s: float) -> None:
    """Bring *cluster* to *now_s*, and processes to what it says."""
    lost = _lost(cluster)  # first: a supervisor reports, then goes
    exits = supervising.exits(folder)
    for job in cluster.jobs:
        if job.job_id in lost.keys() - exits.keys():
            signal_marked(mark_of(folder, job), signal.SIGKILL)
    carry_out(folder, cluster, advance(cluster, now_s, exits=lost | exits))


def carry_out(folder: Path, cluster: Cluster, orders: Sequence[Order]) -> None:
    """Start and signal processes.

    The state is written before anything is signalled: scancel may be part of the
    very job that it kills.
    """
    signals = [order for order in orders if order.deed is not Deed.START]
    for order in orders:
        if order.deed is Deed.START:
            _start(folder, order)
    if signals:
        write(folder, cluster)
    for order in signals:
        _signal(folder, order)


def command(folder: Path, program: str) -> list[str]:
    """Return the command that is *program*, without its arguments."""
    top = Path(__file__).resolve().parent.parent.parent
    code = (
        f"import sys; sys.path.insert(0, {str(top)!r}); from pathlib import Path; "
        f"from freetrain.standin.programs import main; "
        f"sys.exit(main(Path({str(folder)!r}), {program!r}, sys.argv[1:]))"
    )
    return [sys.executable, "-I", "-S", "-c", code]


def _do(
    folder: Path, cluster: Cluster, program: str, argv: Sequence[str], now_s: float
) -> str:
    match program:
        case "sbatch":
            where = os.getcwd()  # noqa: PTH109 - as text, and nothing else
            return sbatch(cluster, argv, now_s, directory=where, environ=os.environ)
        case "scancel":
            _cancel(folder, cluster, argv, now_s)
            return ""
        case "squeue":
            return telling.squeue(cluster, argv, now_s)
        case "scontrol":
            return telling.scontrol(cluster, argv, now_s)
        case "sdiag":
            return telling.sdiag(cluster, now_s)
        case _:
            return telling.sinfo(argv)


def _cancel(folder: Path, cluster: Cluster, argv: Sequence[str], now_s: float) -> None:
    try:
        orders = scancel(cluster, argv, now_s)
    except PartlyDoneError as partly:
        carry_out(folder, cluster, partly.orders)
        raise
    carry_out(folder, cluster, orders)


def _run_step(folder: Path, argv: Sequence[str]) -> int:
    if os.getpgrp() != os.getpid():
        os.setpgid(0, 0)
    process = process_of(os.getpid()) or Process(os.getpid(), 0)
    with opened(folder) as cluster:
        words, environ, where = step(
            cluster, folder, argv, process=process, environ=os.environ
        )
    if where:
        os.chdir(where)
    try:
        os.execvpe(words[0], words, environ)  # noqa: S606 - a list, never a shell
    except OSError as error:
        raise ComplaintError(f"srun: error: {words[0]}: {error.strerror}") from error


def _start(folder: Path, order: Order) -> None:
    # A bare environment: a supervisor that some lease's own call happened to start
    # must not be taken for a process of that lease.
    words = [*command(folder, "supervise"), str(order.job.job_id)]
    order.job.supervisor = detach(words, {"HOME": os.environ.get("HOME", "/")})


def _signal(folder: Path, order: Order) -> None:
    number = signal.Signals[f"SIG{order.signal}"]
    for process in order.job.steps:
        signal_group(process, number)
    if order.deed is Deed.SIGNAL_ALL and order.job.batch is not None:
        signal_group(order.job.batch, number)
    if number == signal.SIGKILL:
        signal_marked(mark_of(folder, order.job), number)


def _lost(cluster: Cluster) -> dict[int, int]:
    """Return the jobs whose supervisor was killed: nobody will report their end."""
    return {
        job.job_id: 1
        for job in cluster.jobs
        if job.supervisor is not None and not is_alive(job.supervisor)
    }


def _now_s() -> float:
    return time.time()  # noqa: TID251 - whole programs: this is the edge
