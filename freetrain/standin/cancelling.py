"""scancel, as strange as that of 22.05."""

from __future__ import annotations

from typing import TYPE_CHECKING

from freetrain.standin.complaint import ComplaintError
from freetrain.standin.records import JobState
from freetrain.standin.schedule import Deed, Order, end, terminate
from freetrain.standin.words import split

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from freetrain.standin.records import Cluster, Job

_FLAGS = frozenset({"full", "batch", "quiet", "verbose"})
_SHORT = {"u": "user", "n": "name", "t": "state", "s": "signal", "p": "partition"}
_GONE = "Invalid job id specified"
_WAITS = "Job is pending execution"


def scancel(cluster: Cluster, argv: Sequence[str], now_s: float) -> tuple[Order, ...]:
    """End or signal jobs; return what their processes get.

    Raises:
        ComplaintError: Some were none; what was meant for the others is done.
    """
    short = [word for word in argv if word not in {"-f", "-b", "-Q"}]
    options, words = split("scancel", short, short=_SHORT, flags=_FLAGS)
    if not words:
        meant = [job for job in cluster.jobs if _matches(job, options)]
        return _do(meant, options, now_s)
    orders: list[Order] = []
    complaints = []
    for word in words:
        found = _meant(cluster, word, options)
        if found is None or _only_ended_by(options, found):
            why = _GONE if found is None else _WAITS
            complaints.append(f"scancel: error: Kill job error on job id {word}: {why}")
        else:
            orders += _do(found, options, now_s)
    if complaints:
        raise PartlyDoneError("\n".join(complaints), tuple(orders))
    return tuple(orders)


class PartlyDoneError(ComplaintError):
    """scancel did what it could, and complains of the rest.

    Attributes:
        orders: What the processes of the others get.
    """

    def __init__(self, said: str, orders: tuple[Order, ...]) -> None:
        super().__init__(said)
        self.orders = orders


def _matches(job: Job, options: Mapping[str, str]) -> bool:
    told = {
        "name": job.name,
        "user": job.user,
        "state": str(job.state),
        "partition": job.partition,
    }
    named = [
        options[option] == value for option, value in told.items() if option in options
    ]
    return _is_alive(job) and bool(named) and all(named)


def _is_alive(job: Job) -> bool:
    return job.is_pending or job.is_running


def _meant(cluster: Cluster, word: str, options: Mapping[str, str]) -> list[Job] | None:
    """Return the jobs that scancel takes *word* for; None where it is none."""
    alive = [job for job in cluster.jobs if _is_alive(job)]
    meant = [job for job in alive if job.display_id == word]
    if not meant and word.isdecimal():
        if any(job.array_id and job.job_id == int(word) for job in alive):
            # the whole array; any other raw number of a task: silence
            meant = [job for job in alive if job.array_id == int(word)]
        elif any(job.job_id == int(word) for job in alive):
            return []
    if options.keys() & {"name", "user"}:  # 22.05 widens a waiting task to all
        waiting = {job.array_id for job in meant if job.is_pending} - {0}
        meant += [j for j in alive if j.array_id in waiting and j.is_pending]
    return meant or None


def _only_ended_by(options: Mapping[str, str], meant: Sequence[Job]) -> bool:
    signals = options.get("signal", "KILL") not in {"KILL", "9"}
    return signals and any(job.is_pending for job in meant)


def _do(
    meant: Sequence[Job], options: Mapping[str, str], now_s: float
) -> tuple[Order, ...]:
    orders: list[Order] = []
    name = options.get("signal", "").removeprefix("SIG")
    for job in meant:
        if not name:
            orders += _cancel(job, now_s)
        elif name in {"KILL", "9"}:
            orders += end(job, JobState.CANCELLED, now_s)
        else:
            job.signals.append(name)
            deed = Deed.SIGNAL_ALL if "full" in options else Deed.SIGNAL_STEPS
            orders.append(Order(deed, job, name))
    return tuple(orders)


def _cancel(job: Job, now_s: float) -> tuple[Order, ...]:
    if job.is_pending:
        return end(job, JobState.CANCELLED, now_s)
    return terminate(job, JobState.CANCELLED, now_s)
