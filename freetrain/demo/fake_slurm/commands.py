"""The fake Slurm's programs: squeue, scontrol, sdiag, sinfo, sbatch, scancel and srun.

``main`` is one call of one program: it brings the state to now, does what is asked for,
and prints what Slurm 22.05 would print.
"""

from __future__ import annotations

import calendar
import os
import re
import sys
import time
from typing import TYPE_CHECKING

from freetrain.demo.fake_slurm.cluster import (
    Deed,
    FakeJob,
    FakeJobState,
    Order,
    Process,
    end,
    is_planned,
    opened,
    terminate,
)
from freetrain.demo.fake_slurm.processes import (
    bring_to,
    carry_out,
    control,
    machine_now_s,
    process_of,
    step_environment,
    supervise,
    without_slurm,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from freetrain.demo.fake_slurm.cluster import ClusterPart, FakeCluster


class ComplaintError(Exception):
    """The text that a program writes to its standard error before it exits with 1."""


def main(folder: Path, program: str, argv: Sequence[str]) -> int:
    """Be *program* once and return its exit status."""
    if program == "supervise":
        supervise(folder, int(argv[0]))
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
        now_s = machine_now_s()
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


def _do(
    folder: Path, cluster: FakeCluster, program: str, argv: Sequence[str], now_s: float
) -> str:
    match program:
        case "sbatch":
            where = os.getcwd()  # noqa: PTH109 - as text, and nothing else
            return sbatch(cluster, argv, now_s, directory=where, environ=os.environ)
        case "scancel":
            _cancel(folder, cluster, argv, now_s)
            return ""
        case "squeue":
            return squeue(cluster, argv, now_s)
        case "scontrol":
            return scontrol(cluster, argv, now_s)
        case "sdiag":
            return sdiag(cluster, now_s)
        case _:
            return sacctmgr(cluster, argv) if program == "sacctmgr" else sinfo(argv)


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


def _cancel(
    folder: Path, cluster: FakeCluster, argv: Sequence[str], now_s: float
) -> None:
    try:
        orders = scancel(cluster, argv, now_s)
    except PartlyDoneError as partly:
        carry_out(folder, cluster, partly.orders)
        raise
    carry_out(folder, cluster, orders)


# ----------------------------------------------------------------------
# Command lines: options, then the rest


def split(
    program: str,
    argv: Sequence[str],
    *,
    short: Mapping[str, str],
    flags: frozenset[str],
) -> tuple[dict[str, str], list[str]]:
    """Split *argv* into options by long name, and what stands after them.

    Args:
        program: For messages.
        argv: The words.
        short: Long name of each one-letter option, all of which take a value.
        flags: Long options that take none.

    Raises:
        ComplaintError: An option without its value.
    """
    options: dict[str, str] = {}
    words = list(argv)
    while words and words[0].startswith("-") and words[0] != "-":
        word = words.pop(0)
        if word == "--":
            break
        if not word.startswith("--"):
            name, value = short.get(word[1], word[1]), word[2:]
            has_value = bool(value)
        else:
            name, equals, value = word[2:].partition("=")
            has_value = bool(equals) or name in flags
        if not has_value:
            if not words:
                raise ComplaintError(f"{program}: option requires an argument: {word}")
            value = words.pop(0)
        options[name] = value
    return options, words


# ----------------------------------------------------------------------
# Times and durations as Slurm writes and reads them with ``TZ=UTC``

MINUTE_S = 60.0
_FORM = "%Y-%m-%dT%H:%M:%S"


def iso(time_s: float | None) -> str:
    """Write a time, to the second."""
    return "N/A" if time_s is None else time.strftime(_FORM, time.gmtime(time_s))


def read_iso(text: str) -> float:
    """Read a time.

    Raises:
        ValueError: It is none.
    """
    return float(calendar.timegm(time.strptime(text, _FORM)))


def sdiag_time(time_s: float) -> str:
    """Write a time as sdiag does."""
    shown = time.strftime("%a %b %d %H:%M:%S %Y", time.gmtime(time_s))
    return f"{shown} ({int(time_s)})"


def clock(duration_s: float) -> str:
    """Write a duration: ``[[D-]H:]MM:SS``."""
    minutes, seconds = divmod(int(duration_s), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days}-{hours:02d}:{minutes:02d}:{seconds:02d}"
    if hours:
        return f"{hours}:{minutes:02d}:{seconds:02d}"
    return f"{minutes}:{seconds:02d}"


# ----------------------------------------------------------------------
# sbatch: one-node jobs and arrays of them

_SBATCH_FLAGS = frozenset({"parsable", "no-requeue", "requeue", "exclusive", "hold"})

_SBATCH_SHORT = {
    "J": "job-name",
    "N": "nodes",
    "n": "ntasks",
    "o": "output",
    "t": "time",
}

_SBATCH_SHORT |= {"p": "partition", "a": "array", "D": "chdir"}
_SBATCH_FAILED = "sbatch: error: Batch job submission failed: "
_SPAN = r"[0-9]+(?:-[0-9]+)?"
_PART = re.compile(rf"([^][,]+)(?:\[({_SPAN}(?:,{_SPAN})*)\])?(?:,|$)", re.ASCII)


def sbatch(
    cluster: FakeCluster,
    argv: Sequence[str],
    now_s: float,
    *,
    directory: str,
    environ: Mapping[str, str],
) -> str:
    """Submit, and answer with the number.

    Raises:
        ComplaintError: Slurm would refuse it, or this stand-in cannot do it.
    """
    options, words = split("sbatch", argv, short=_SBATCH_SHORT, flags=_SBATCH_FLAGS)
    _check(cluster, options, words)
    tasks = _tasks(options.get("array", ""))
    alive = sum(
        job.user == cluster.user and (job.is_pending or job.is_running)
        for job in cluster.jobs
    )
    if cluster.submit_limit is not None and alive + (tasks or 1) > cluster.submit_limit:
        raise ComplaintError(
            f"sbatch: error: AssocMaxSubmitJobLimit\n{_SBATCH_FAILED}Job violates "
            f"accounting/QOS policy (job submit limit, user's size and/or time limits)"
        )
    first = cluster.take_id()
    for task in range(tasks or 1):
        job = _job(cluster, options, words, now_s)
        job.job_id, job.directory = first, options.get("chdir", directory)
        job.environment = _exported(options, environ)
        if tasks > 1:
            job.array_id, job.task = first, task
        cluster.jobs.append(job)
    return f"{first}\n" if "parsable" in options else f"Submitted batch job {first}\n"


def _job(
    cluster: FakeCluster, options: Mapping[str, str], words: Sequence[str], now_s: float
) -> FakeJob:
    deadline = options.get("deadline", "")
    return FakeJob(
        job_id=0,
        name=options.get("job-name", words[0].rpartition("/")[2]),
        comment=options.get("comment", ""),
        user=cluster.user,
        partition=_partition(cluster, options),
        nice=_number(options.get("nice", "0")),
        limit_s=MINUTE_S * _number(options.get("time", "60")),
        deadline_s=read_iso(deadline) if deadline else None,
        script=words[0],
        arguments=list(words[1:]),
        output=options.get("output", "slurm-%j.out"),
        submit_s=now_s,
        excluded=_hostlist_names(options.get("exclude", "")),
    )


def _check(
    cluster: FakeCluster, options: Mapping[str, str], words: Sequence[str]
) -> None:
    if not words:
        raise ComplaintError(f"{_SBATCH_FAILED}this stand-in needs a script in a file")
    if cluster.part(_partition(cluster, options)) is None:
        raise ComplaintError(f"{_SBATCH_FAILED}Invalid partition name specified")
    if _tasks(options.get("array", "")) > MAX_ARRAY_SIZE:
        raise ComplaintError(f"{_SBATCH_FAILED}Invalid job array specification")
    if options.get("constraint") or options.get("gres"):
        raise ComplaintError(
            f"{_SBATCH_FAILED}Requested node configuration is not available"
        )
    if options.get("nodes", "1") != "1":
        raise ComplaintError(f"{_SBATCH_FAILED}this stand-in has one-node jobs only")


def _hostlist_names(text: str) -> list[str]:
    """Return the names in a hostlist of one bracket a name, as ``n[1-3,7],m1``."""
    names: list[str] = []
    rest = text
    while rest:
        part = _PART.match(rest)
        if part is None:
            raise ComplaintError(f"{_SBATCH_FAILED}Invalid node name specified")
        prefix, ranges = part[1], part[2]
        names += _numbered(prefix, ranges) if ranges else [prefix]
        rest = rest[part.end() :]
    return names


def _numbered(prefix: str, ranges: str) -> list[str]:
    names: list[str] = []
    for span in ranges.split(","):
        first, _, last = span.partition("-")
        numbers = range(int(first), int(last or first) + 1)
        names += [f"{prefix}{number:0{len(first)}}" for number in numbers]
    return names


def _partition(cluster: FakeCluster, options: Mapping[str, str]) -> str:
    default = next(part.name for part in cluster.parts if part.is_default)
    return options.get("partition", default)


def _tasks(array: str) -> int:
    """Return how many tasks ``0-7`` asks for; 0 where it is no array."""
    if not array:
        return 0
    first, _, last = array.partition("-")
    if first != "0" or not last.isdecimal():
        raise ComplaintError(
            f"{_SBATCH_FAILED}this stand-in has arrays such as 0-7 only"
        )
    return int(last) + 1


def _number(text: str) -> int:
    if not text.isdecimal():
        raise ComplaintError(f"{_SBATCH_FAILED}not a whole number: {text[:40]!r}")
    return int(text)


def _exported(options: Mapping[str, str], environ: Mapping[str, str]) -> dict[str, str]:
    """Return what ``--export`` passes on: all, nothing, or what it names.

    Raises:
        ComplaintError: Variables are to come from a file.
    """
    passed: dict[str, str] = {}
    file = options.get("export-file", "")
    if file not in {"", os.devnull}:
        raise ComplaintError(f"{_SBATCH_FAILED}this stand-in reads no {file[:40]!r}")
    for word in [] if file else options.get("export", "ALL").split(","):
        name, equals, value = word.partition("=")
        if word == "ALL":
            passed |= environ
        elif equals:
            passed[name] = value
        elif name in environ:
            passed[name] = environ[name]
    return passed


# ----------------------------------------------------------------------
# scancel, as strange as that of 22.05

_SCANCEL_FLAGS = frozenset({"full", "batch", "quiet", "verbose"})

_SCANCEL_SHORT = {
    "u": "user",
    "n": "name",
    "t": "state",
    "s": "signal",
    "p": "partition",
}

_GONE = "Invalid job id specified"
_WAITS = "Job is pending execution"


class PartlyDoneError(ComplaintError):
    """scancel did what it could, and complains of the rest.

    Attributes:
        orders: For the processes of the jobs that it ended or signalled.
    """

    def __init__(self, said: str, orders: tuple[Order, ...]) -> None:
        super().__init__(said)
        self.orders = orders


def scancel(
    cluster: FakeCluster, argv: Sequence[str], now_s: float
) -> tuple[Order, ...]:
    """End or signal jobs; return the orders for their processes.

    Raises:
        ComplaintError: Some words name no job; the other jobs were ended or signalled.
    """
    short = [word for word in argv if word not in {"-f", "-b", "-Q"}]
    options, words = split("scancel", short, short=_SCANCEL_SHORT, flags=_SCANCEL_FLAGS)
    if not words:
        meant = [job for job in cluster.jobs if _matches(job, options)]
        return _apply(meant, options, now_s)
    orders: list[Order] = []
    complaints = []
    for word in words:
        found = _meant(cluster, word, options)
        if found is None or _only_ended_by(options, found):
            why = _GONE if found is None else _WAITS
            complaints.append(f"scancel: error: Kill job error on job id {word}: {why}")
        else:
            orders += _apply(found, options, now_s)
    if complaints:
        raise PartlyDoneError("\n".join(complaints), tuple(orders))
    return tuple(orders)


def _matches(job: FakeJob, options: Mapping[str, str]) -> bool:
    fields = {
        "name": job.name,
        "user": job.user,
        "state": str(job.state),
        "partition": job.partition,
    }
    named = [
        options[option] == value
        for option, value in fields.items()
        if option in options
    ]
    return _is_alive(job) and bool(named) and all(named)


def _is_alive(job: FakeJob) -> bool:
    return job.is_pending or job.is_running


def _meant(
    cluster: FakeCluster, word: str, options: Mapping[str, str]
) -> list[FakeJob] | None:
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


def _only_ended_by(options: Mapping[str, str], meant: Sequence[FakeJob]) -> bool:
    signals = options.get("signal", "KILL") not in {"KILL", "9"}
    return signals and any(job.is_pending for job in meant)


def _apply(
    meant: Sequence[FakeJob], options: Mapping[str, str], now_s: float
) -> tuple[Order, ...]:
    orders: list[Order] = []
    name = options.get("signal", "").removeprefix("SIG")
    for job in meant:
        if not name:
            orders += _cancel_job(job, now_s)
        elif name in {"KILL", "9"}:
            orders += end(job, FakeJobState.CANCELLED, now_s)
        else:
            job.signals.append(name)
            deed = Deed.SIGNAL_ALL if "full" in options else Deed.SIGNAL_STEPS
            orders.append(Order(deed, job, name))
    return tuple(orders)


def _cancel_job(job: FakeJob, now_s: float) -> tuple[Order, ...]:
    if job.is_pending:
        return end(job, FakeJobState.CANCELLED, now_s)
    return terminate(job, FakeJobState.CANCELLED, now_s)


# ----------------------------------------------------------------------
# srun: a step of a running job, from within it or from anywhere

_SRUN_FLAGS = frozenset(
    {"overlap", "exact", "quiet", "unbuffered", "label", "immediate", "exclusive"}
)

_SRUN_SHORT = {"N": "nodes", "n": "ntasks", "w": "nodelist", "c": "cpus-per-task"}
_SRUN_SHORT |= {"J": "job-name", "t": "time", "D": "chdir", "K": "kill-on-bad-exit"}
_SRUN_FAILED = "srun: error: Unable to create step for job "


def step(
    cluster: FakeCluster,
    folder: Path,
    argv: Sequence[str],
    *,
    process: Process,
    environ: Mapping[str, str],
) -> tuple[list[str], dict[str, str], str]:
    """Make *process* a step; return its command, environment and folder.

    Raises:
        ComplaintError: There is no such job that runs, or not on that node.
    """
    words = [word for word in argv if word not in {"-Q", "-u", "-l"}]
    options, command = split("srun", words, short=_SRUN_SHORT, flags=_SRUN_FLAGS)
    wanted = options.get("jobid", environ.get("SLURM_JOB_ID", ""))
    job = _running(cluster, wanted)
    node = options.get("nodelist", job.nodes[0])
    if node not in job.nodes:
        raise ComplaintError(
            f"{_SRUN_FAILED}{wanted}: Requested node configuration is not available"
        )
    if not command or options.get("ntasks", "1") != "1":
        raise ComplaintError("srun: error: this stand-in has steps of one task only")
    job.steps.append(process)
    kept = {} if options.get("export") == "NONE" else without_slurm(environ)
    described = step_environment(folder, job, len(job.steps) - 1)
    return command, kept | described, options.get("chdir", "")


def _running(cluster: FakeCluster, wanted: str) -> FakeJob:
    for job in cluster.jobs:
        if job.is_running and str(job.job_id) == wanted and job.supervisor is not None:
            return job
    raise ComplaintError(
        f"{_SRUN_FAILED}{wanted[:40]}: Job/step already completing or completed"
    )


# ----------------------------------------------------------------------
# squeue: cells of given widths, cut and padded in bytes


def squeue(cluster: FakeCluster, argv: Sequence[str], now_s: float) -> str:
    """Return the jobs asked for, in the columns asked for.

    Raises:
        ComplaintError: No columns, or one that squeue does not know.
    """
    options = dict(word.split("=", 1) for word in argv if "=" in word)
    names = options.get("--name", "").split(",") if "--name" in options else None
    shows_all = options.get("--states", "").lower() == "all"
    jobs = [
        job
        for job in cluster.jobs
        if job.submit_s <= now_s
        and _is_remembered(job, now_s)
        and (shows_all or job.is_pending or job.holds_nodes)
        and (names is None or job.name in names)
    ]
    together = "--array" not in argv
    if options.get("--format") == _OF_WAITING:
        waiting = (group[0] for group in _groups(jobs, together=together))
        rows = map(_of_waiting, filter(_is_pending, waiting))
        return "".join(["JOBID|OVER_SUBSCRIBE|EXC_NODES|\n", *rows])
    if "--Format" not in options:
        raise ComplaintError("squeue: error: this stand-in needs --Format=")
    return queue_text(jobs, options["--Format"], cluster, now_s, together=together)


def _is_remembered(job: FakeJob, now_s: float) -> bool:
    return job.end_s is None or now_s - job.end_s <= MIN_JOB_AGE_S


_OF_WAITING = "%A|%h|%x|"


def _is_pending(job: FakeJob) -> bool:
    return job.is_pending


def _of_waiting(job: FakeJob) -> str:
    return f"{job.job_id}|OK|{','.join(job.excluded)}|\n"


_HEADINGS = {"JobArrayID": "JOBID", "UserID": "UID", "UserName": "USER"}
_PRIORITY = 4_294_901_760
_NULL = ("Dependency", "QOS", "Reservation")
_NONE = (
    *("tres-per-node", "tres-per-job", "tres-per-task", "tres-per-socket"),
    "HetJobID",
)


def queue_text(
    jobs: Sequence[FakeJob],
    form: str,
    cluster: FakeCluster,
    now_s: float,
    *,
    together: bool,
) -> str:
    """Return the table of *jobs*.

    Args:
        jobs: In order.
        form: Of ``--Format``: ``Name:100|,JobID:|,…``; no width never cuts.
        cluster: Where they are.
        now_s: Unix time.
        together: Whether waiting tasks of an array share a line.

    Raises:
        ComplaintError: A column that squeue does not know.
    """
    columns = [_column(word) for word in form.split(",")]
    rows = [_row(group, cluster, now_s) for group in _groups(jobs, together=together)]
    headings = {name: _HEADINGS.get(name, name.upper()) for name, _, _ in columns}
    lines = [b"".join(_cells(columns, row)) for row in (headings, *rows)]
    return b"\n".join([*lines, b""]).decode("utf-8", "surrogateescape")


def _column(word: str) -> tuple[str, int, str]:
    """Split ``Name:100|`` into name, width and what stands behind the value."""
    name, _, size = word.partition(":")
    width = size.rstrip("|")
    return name, int(width) if width.isdecimal() else 0, size[len(width) :]


def _cells(
    columns: Iterable[tuple[str, int, str]], row: dict[str, str]
) -> Iterable[bytes]:
    for name, width, behind in columns:
        if name not in row:
            raise ComplaintError(f"squeue: error: Invalid job format: {name}")
        value = row[name].encode("utf-8", "surrogateescape")
        yield (value[:width].ljust(width) if width else value) + behind.encode()


def _groups(jobs: Sequence[FakeJob], *, together: bool) -> list[list[FakeJob]]:
    groups: dict[str, list[FakeJob]] = {}
    for job in jobs:
        is_together = together and job.is_pending and job.array_id
        key = f"{job.array_id}_[]" if is_together else job.display_id
        groups.setdefault(key, []).append(job)
    return list(groups.values())


def _row(group: list[FakeJob], cluster: FakeCluster, now_s: float) -> dict[str, str]:
    job = group[0]
    return {
        "Name": job.name,
        "Comment": job.comment or "(null)",
        "Reason": job.reason,
        "Feature": job.features or "(null)",
        **dict.fromkeys(_NULL, "(null)"),
        **dict.fromkeys(_NONE, "N/A"),
        **_ids(group),
        "UserID": str(cluster.uid if job.user == cluster.user else cluster.uid + 1),
        "UserName": job.user,
        "Account": job.account if cluster.has_limits else "(null)",
        "Partition": job.partition,
        "State": _state(job),
        "PriorityLong": str(_PRIORITY - job.nice),
        "Nice": str(job.nice),
        **_times(job, now_s),
        **_node_cells(job, now_s),
    }


def _ids(group: list[FakeJob]) -> dict[str, str]:
    job = group[0]
    if len(group) > 1:
        tasks = ",".join(str(task.task) for task in group)
        array = str(job.array_id)
        shown = f"{array}_[{tasks}]"
    else:
        tasks = str(job.task) if job.array_id else "N/A"
        array, shown = str(job.array_id or job.job_id), job.display_id
    return {
        "JobID": str(job.job_id),
        "JobArrayID": shown,
        "ArrayJobID": array,
        "ArrayTaskID": tasks,
    }


def _times(job: FakeJob, now_s: float) -> dict[str, str]:
    start_s = job.due_s if is_planned(job, now_s) else job.start_s
    end_s = job.end_s
    if end_s is None and job.start_s is not None:
        end_s = job.start_s + job.limit_s
    return {
        "SubmitTime": iso(job.submit_s),
        "EligibleTime": iso(job.submit_s),
        "StartTime": iso(start_s),
        "EndTime": iso(end_s),
        "TimeLimit": clock(job.limit_s),
    }


def _node_cells(job: FakeJob, now_s: float) -> dict[str, str]:
    count = len(job.nodes or job.wanted) or 1
    return {
        "NumNodes": str(count),
        "NumCPUs": str(2 * count),
        "NumTasks": str(count),
        "MinCPUs": "1",
        "MinMemory": "0",
        "ReqNodes": "",
        "SchedNodes": ",".join(job.wanted) if is_planned(job, now_s) else "(null)",
        "NodeList": ",".join(job.nodes),
    }


def _state(job: FakeJob) -> str:
    """Return the one word that squeue has for a state: the flag, where it is set."""
    is_completing = job.is_completing and job.state is not FakeJobState.RUNNING
    return "COMPLETING" if is_completing else str(job.state)


# ----------------------------------------------------------------------
# scontrol, sdiag and sinfo: the state as 22.05 writes it

RELEASE = "22.05.8"
CPUS = 2
MEMORY_MIB = 2_000
MAX_ARRAY_SIZE = 101
MIN_JOB_AGE_S = 300.0

_CONFIG = {
    "ClusterName": "standin",
    "CompleteWait": "0 sec",
    "Epilog": "(null)",
    "MaxArraySize": str(MAX_ARRAY_SIZE),
    "MinJobAge": f"{MIN_JOB_AGE_S:.0f} sec",
    "OverTimeLimit": "0 min",
    "PreemptMode": "CANCEL",
    "PreemptType": "preempt/partition_prio",
    "PriorityType": "priority/basic",
    "PrivateData": "none",
    "ProctrackType": "proctrack/linuxproc",
    "PrologEpilogTimeout": "65534",
    "SchedulerParameters": "bf_interval=1,bf_resolution=1,bf_window=1440",
    "SchedulerType": "sched/backfill",
    "SelectType": "select/cons_tres",
    "SelectTypeParameters": "CR_CPU_MEMORY",
    "SLURM_VERSION": RELEASE,
    "SlurmUser": "root(0)",
}


def scontrol(cluster: FakeCluster, argv: Sequence[str], now_s: float) -> str:
    """Return nodes, reservations, partitions, configuration, topology or accounts.

    ``update`` changes the comment, or the end, of jobs and arrays, and nothing else.

    Raises:
        ComplaintError: Something else was asked for.
    """
    if list(argv[:1]) == ["update"]:
        return _update(cluster, argv[1:], now_s)
    tell: dict[str, Callable[[], str]] = {
        "nodes": lambda: "".join(_node(cluster, n, now_s) for n in cluster.nodes),
        "partitions": lambda: "".join(_part(cluster, part) for part in cluster.parts),
        "reservations": lambda: "No reservations in the system\n",
        "config": lambda: _config(cluster, now_s),
        "topology": lambda: _topology(cluster),
        "assoc_mgr": lambda: _assoc_mgr(cluster, argv),
    }
    asked = [word for word in argv if not word.startswith("-")]
    if asked[:1] != ["show"] or len(asked) < 2 or asked[1] not in tell:  # noqa: PLR2004
        said = " ".join(asked)
        raise ComplaintError(f"scontrol: error: this stand-in cannot `{said[:80]}`")
    return tell[asked[1]]()


def _update(cluster: FakeCluster, argv: Sequence[str], now_s: float) -> str:
    """Change comments of jobs that have not ended, or let running ones end sooner."""
    asked = dict(word.partition("=")[::2] for word in argv)
    changes = asked.keys() - {"JobId"}
    if changes not in ({"Comment"}, {"EndTime"}):
        raise ComplaintError(
            "scontrol: error: this stand-in updates comments and ends only"
        )
    complaints = []
    for word in asked.get("JobId", "").split(","):
        number = int(word) if word.isdecimal() else 0
        named = [
            job
            for job in cluster.jobs
            if word == job.display_id or number in {job.array_id or -1, job.job_id}
        ]
        meant = [job for job in named if not number or job.array_id in {0, number}]
        alive = [job for job in meant if _is_alive(job)]
        if not alive:
            why = "Job has already finished" if meant else "Invalid job id specified"
            complaints.append(f"{why} for job {word}")
        for job in alive:
            why = _why_not(job, asked, cluster.user, now_s)
            if why:
                complaints.append(f"{why} for job {word}")
                continue
            job.comment = asked.get("Comment", job.comment)
            if "EndTime" in asked:
                job.limit_s = _uts_s(asked["EndTime"]) - (job.start_s or 0.0)
    if complaints:
        raise ComplaintError("\n".join(complaints))
    return ""


def _why_not(job: FakeJob, asked: Mapping[str, str], user: str, now_s: float) -> str:
    """Return why *user* may not change *job* as *asked*; empty where it may be."""
    if job.user != user:
        return "Access/permission denied"
    if "EndTime" not in asked:
        return ""
    if job.start_s is None:
        return "Job is not running"
    end_s = _uts_s(asked["EndTime"])
    if end_s < now_s:
        return "Invalid time specified"
    is_later = end_s > job.start_s + job.limit_s
    return "Access/permission denied" if is_later else ""


def _uts_s(word: str) -> float:
    """Return the Unix time that *word* says in Slurm's form ``uts1700000000``."""
    return float(word.removeprefix("uts"))


def _node(cluster: FakeCluster, name: str, now_s: float) -> str:
    holder = cluster.holder(name)
    cpus = 0 if holder is None else CPUS
    parts = ",".join(part.name for part in cluster.parts)
    return (
        f"NodeName={name} Arch=x86_64 CPUAlloc={cpus} CPUEfctv={CPUS} CPUTot={CPUS} "
        f"CPULoad=0.00 AvailableFeatures=(null) ActiveFeatures=(null) Gres=(null) "
        f"NodeAddr=127.0.0.1 NodeHostName=localhost Version={RELEASE} "
        f"RealMemory={MEMORY_MIB} AllocMem={cpus and MEMORY_MIB} "
        f"State={_node_state(cluster, name, holder, now_s)} Weight=1 "
        f"Partitions={parts}\n"
    )


def _node_state(
    cluster: FakeCluster, name: str, holder: FakeJob | None, now_s: float
) -> str:
    if holder is not None:
        return "ALLOCATED+COMPLETING" if holder.is_completing else "ALLOCATED"
    planned = (job for job in cluster.jobs if is_planned(job, now_s))
    return "IDLE+PLANNED" if any(name in job.wanted for job in planned) else "IDLE"


def _part(cluster: FakeCluster, part: ClusterPart) -> str:
    count = len(cluster.nodes)
    return (
        f"PartitionName={part.name} AllowGroups=ALL "
        f"Default={'YES' if part.is_default else 'NO'} GraceTime={part.grace_s} "
        f"Hidden=NO MaxTime={clock(part.max_time_s)} Nodes={','.join(cluster.nodes)} "
        f"PriorityTier={part.tier} OverSubscribe=NO OverTimeLimit=NONE "
        f"PreemptMode={'CANCEL' if part.is_preemptable else 'OFF'} State=UP "
        f"TotalCPUs={count * CPUS} TotalNodes={count}\n"
    )


def _topology(cluster: FakeCluster) -> str:
    """Return leaf switches below one more; nothing at all where there are none."""
    if not cluster.leaves:
        return ""
    lines = [
        f"SwitchName={name} Level=0 LinkSpeed=1 Nodes={','.join(nodes)}\n"
        for name, nodes in cluster.leaves.items()
    ]
    return (
        f"{''.join(lines)}SwitchName=spine Level=1 LinkSpeed=1 "
        f"Nodes={','.join(cluster.nodes)} Switches={','.join(cluster.leaves)}\n"
    )


def _config(cluster: FakeCluster, now_s: float) -> str:
    settings = _CONFIG | {
        "AccountingStorageEnforce": "associations,limits"
        if cluster.has_limits
        else "none",
        "KillWait": f"{cluster.kill_wait_s:.0f} sec",
        "TopologyPlugin": f"topology/{'tree' if cluster.leaves else 'none'}",
    }
    lines = (f"{key:<24}= {value}\n" for key, value in sorted(settings.items()))
    return f"Configuration data as of {iso(now_s)}\n{''.join(lines)}\n"


def sdiag(cluster: FakeCluster, now_s: float) -> str:
    """Return the statistics of now."""
    waiting = sum(job.is_pending and job.submit_s <= now_s for job in cluster.jobs)
    rule = "*" * 55
    return (
        f"{rule}\nsdiag output at {sdiag_time(now_s)}\nData since      "
        f"{sdiag_time(cluster.since_s)}\n{rule}\nServer thread count:  3\n\n"
        f"Jobs pending:   {waiting}\n"
        f"Jobs running:   {sum(job.is_running for job in cluster.jobs)}\n\n"
        f"Main schedule statistics (microseconds):\n\tLast cycle:   91\n\n"
        f"Backfilling stats\n\tTotal cycles: {cluster.cycles}\n"
        f"\tLast cycle when: {sdiag_time(cluster.planned_s)}\n\tLast cycle: 161\n"
        f"\tLast depth cycle: {waiting}\n\tLast queue length: {waiting}\n\n"
        f"Pending RPC statistics\n\tNo pending RPCs\n"
    )


def _assoc_mgr(cluster: FakeCluster, argv: Sequence[str]) -> str:
    """Return our user's record, or the accounts with our user in the first.

    Others are not asked for.

    Raises:
        ComplaintError: Limits are not shown.
    """
    if not cluster.shows_limits:
        raise ComplaintError("slurm_load_assoc_mgr_info error: Access denied")
    user = f"{cluster.user}({cluster.uid})"
    title = "Current Association Manager state\n"
    if "flags=users" in argv:
        level = f"DefAccount= DefWckey= AdminLevel={cluster.admin_level}"
        return f"{title}User Records\nUserName={user} {level}\n"
    lines = [_association(cluster, name, "", "") for name in _accounts(cluster)]
    submitted = "" if cluster.submit_limit is None else f"{cluster.submit_limit}(0)"
    lines.append(_association(cluster, _accounts(cluster)[0], user, submitted))
    qos = "QOS=normal(1) UsageRaw=0.0 GrpJobs=N(0) GrpTRES=cpu=N(0),node=N(0)\n"
    head = f"{title}Association Records\n"
    return f"{head}{''.join(lines)}QOS Records\n{qos}"


def _accounts(cluster: FakeCluster) -> list[str]:
    return list(dict.fromkeys([*cluster.parents, *cluster.parents.values()]))


def _association(cluster: FakeCluster, account: str, user: str, submitted: str) -> str:
    parent = "" if user else cluster.parents.get(account, "")
    most = "N" if user else cluster.node_limits.get(account, "N")
    return (
        f"ClusterName={_CONFIG['ClusterName']} Account={account} UserName={user} "
        f"Partition= Priority=0 ID=1 ParentAccount={parent and f'{parent}(1)'} Lft=1 "
        f"DefAssoc={'Yes' if user else 'No'} GrpJobs=N(0) "
        f"GrpTRES=cpu=N(0),node={most}(0) MaxJobs= MaxSubmitJobs={submitted}\n"
    )


def sacctmgr(cluster: FakeCluster, argv: Sequence[str]) -> str:
    """Return the QOS, which have no limits, or which of them our user's jobs are of.

    Raises:
        ComplaintError: Something else was asked for.
    """
    if cluster.shows_limits and f"users={cluster.user}" in argv:
        qos = f"|{cluster.default_qos}|normal"
        return f"{_accounts(cluster)[0]}|{qos}\n"
    columns = next((word for word in argv if word.startswith("format=Name,")), "")
    if not cluster.shows_limits or "qos" not in argv or not columns:
        raise ComplaintError("sacctmgr: error: this stand-in tells no such thing")
    return f"normal{'|' * columns.count(',')}\n"


def sinfo(argv: Sequence[str]) -> str:
    """Return the release.

    Raises:
        ComplaintError: Something else was asked for.
    """
    if list(argv) != ["--version"]:
        raise ComplaintError("sinfo: error: this stand-in knows --version only")
    return f"slurm-standin {RELEASE}\n"
