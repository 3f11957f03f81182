"""Submitting, marking and ending one-node jobs: builders of commands, and a parser.

Every value is one element of an argument list and never meets a shell. Values that
Slurm itself would misread are refused here, before anything is submitted.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from slurm.errors import UnreadableOutputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from slurm.records import Gres

MAX_VALUE_BYTES = 1_000
"""Longest value of an option; Slurm's tables show far less of it."""

MAX_ARGUMENT_BYTES = 100_000
"""Longest argument of the script; Linux takes no single one above 131,072."""

NO_ENVIRONMENT = "/dev/null"
"""The file that ``--export-file`` takes a job's variables from: none but Slurm's own.

For ``--export=NONE`` a node loads the user's login environment (``su -``) before the
script. Start-up files that hang keep the node for 120 s; those that exit have the job
requeued and held from 25.05 on, and before that the node drained with no_env_cache.
``--export=NIL`` does without, but is unknown before 23.02.3. With a file, limits of the
submitting shell (``ulimit``) stay behind as well, such as those of cron.
Source: sbatch.c, slurmd's ``_get_user_env`` and 33ab915427 of Slurm, 21.08 to 26.05.
"""

_JOB_ID = re.compile(r"[0-9]{1,10}(?:_[0-9]{1,10})?", re.ASCII)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", re.ASCII)
_SIGNAL = re.compile(r"[A-Z][A-Z0-9]{1,9}", re.ASCII)
_GONE = re.compile(
    "Invalid job id specified|already (completing or completed|finished)"
    # scontrol's answer for each task that it did change, beside those that are gone
    "|: No error$"
)
_ANSWER = re.compile(r"([0-9]{1,10})(?:;(\S+))?\n", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseRequest:
    """One or more equal one-node jobs to submit, as one job array.

    Attributes:
        name: Job name: letters, digits, ``.``, ``_`` and ``-``, so that squeue can
            look it up and scancel can be held to it.
        comment: Free remark.
        partition: Partition.
        limit_min: Time limit, whole minutes, 1 or more.
        nice: How much to lower the priority, 0 or more.
        script: Absolute path of the batch script.
        arguments: Its arguments.
        tasks: How many jobs; above 1 they are an array.
        deadline_s: Unix time by which each must have ended; Slurm removes those
            that can no longer. None for none.
        output: Absolute path for their output, with sbatch's ``%`` patterns.
        exclusive: Take whole nodes with all their memory. An exclusive job that
            names no memory gets the default, 600 of 2,000 MB on a test cluster.
        memory_mib: Memory for one that is not exclusive, 0 for the default.
        cpus: CPUs for one that is not exclusive, 0 for the default.
        qos: Quality of service, empty for the default.
        account: Account to charge, empty for the default.
        features: Feature expression, empty for none.
        gres: Generic resources, for example ``gpu:a100:2``, empty for none.
        excluded: Nodes that none of them may get, a hostlist, empty for none.
    """

    name: str
    comment: str
    partition: str
    limit_min: int
    nice: int
    script: str
    arguments: tuple[str, ...] = ()
    tasks: int = 1
    deadline_s: float | None = None
    output: str = "/dev/null"
    exclusive: bool = True
    memory_mib: int = 0
    cpus: int = 0
    qos: str = ""
    account: str = ""
    features: str = ""
    gres: str = ""
    excluded: str = ""


@dataclass(frozen=True, slots=True)
class SubmittedJob:
    """The job that sbatch submitted.

    Attributes:
        job_id: Raw number of the job or of the whole array.
        cluster: Cluster it went to, empty where sbatch does not say.
    """

    job_id: int
    cluster: str


def sbatch_argv(request: LeaseRequest) -> list[str]:
    """Return the command that submits *request*.

    It must run in the environment of ``slurm.runner.scrubbed``: the deadline is
    written in UTC. Its answer is read by ``parse_sbatch``. The jobs are never
    requeued: a lease that was taken back is not wanted again.

    Raises:
        ValueError: A value that Slurm would misread or that no command can hold.
    """
    _check_request(request)
    return [
        "sbatch",
        "--parsable",
        "--no-requeue",
        "--nodes=1",
        "--ntasks=1",
        f"--time={request.limit_min}",
        f"--nice={request.nice}",
        *_size_options(request),
        *_options(request),
        request.script,
        *request.arguments,
    ]


def parse_sbatch(text: str) -> SubmittedJob:
    """Return the job that ``sbatch --parsable`` says it submitted.

    Raises:
        UnreadableOutputError: Not such an answer: whether a job was submitted is
            unknown, and must be looked up by name.
    """
    found = _ANSWER.fullmatch(text)
    if found is None:
        raise UnreadableOutputError("sbatch", 1, text, "expected a job's number")
    return SubmittedJob(job_id=int(found[1]), cluster=found[2] or "")


def scancel_argv(display_ids: Sequence[str], *, signal: str = "") -> list[str]:
    """Return the command that ends, or signals, some of our own jobs.

    It names jobs and nothing else. With ``--name`` or ``--user`` beside it, 22.05
    takes one waiting task for all the tasks of its array that wait; hence the ids
    must come from a snapshot just taken, in which user and name were right.

    Args:
        display_ids: ``18_0`` for an array task (``JobRecord.display_id``). Its raw
            number would do nothing on 22.05, and where it equals the array's it
            would end every task.
        signal: For example ``TERM``, to the steps; empty to end the jobs. ``--full``
            would reach the batch script's children too: an srun among them kills
            its step at once (22.05), before it has committed anything.

    Raises:
        ValueError: No job; or a value that scancel would misread.
    """
    if not display_ids:
        raise ValueError("no job named; nothing was cancelled or signalled")
    for display_id in display_ids:
        _check(_JOB_ID.fullmatch(display_id), "job id", display_id)
    if not signal:
        return ["scancel", *display_ids]
    _check(_SIGNAL.fullmatch(signal), "signal", signal)
    return ["scancel", f"--signal={signal}", *display_ids]


def comment_argv(job_id: int, comment: str) -> list[str]:
    """Return the command that replaces the comment of a job, or of a whole array.

    Raises:
        ValueError: A value that Slurm would misread; nothing was changed.
    """
    _check(job_id >= 1, "job id", job_id)
    _check_value("comment", comment)
    return ["scontrol", "update", f"JobId={job_id}", f"Comment={comment}"]


def end_time_argv(display_ids: Sequence[str], end_s: float) -> list[str]:
    """Return the command that lets running jobs of ours end sooner.

    Args:
        display_ids: Jobs and array tasks, such as ``["18", "19_3"]``.
        end_s: The new end, Unix time, rounded down to a second; not later than the old
            one, as only operators may lengthen a job.

    Raises:
        ValueError: As ``scancel_argv``, or no usable time; nothing was changed.
    """
    if not display_ids:
        raise ValueError("no job named; nothing was changed")
    for display_id in display_ids:
        _check(_JOB_ID.fullmatch(display_id), "job id", display_id)
    _check(0.0 < end_s < math.inf, "time", end_s)
    jobs = ",".join(display_ids)
    return ["scontrol", "update", f"JobId={jobs}", f"EndTime=uts{math.floor(end_s)}"]


def only_gone(said: str) -> bool:
    """Tell whether Slurm complained only of jobs that have ended already."""
    complaints = said.strip().splitlines()
    return bool(complaints) and all(map(_GONE.search, complaints))


def _size_options(request: LeaseRequest) -> list[str]:
    if request.exclusive:
        return ["--exclusive", "--mem=0"]
    options = []
    if request.memory_mib:
        options.append(f"--mem={request.memory_mib}M")
    if request.cpus:
        options.append(f"--cpus-per-task={request.cpus}")
    return options


def _options(request: LeaseRequest) -> list[str]:
    """Return the options that are given only where they say something."""
    values = {
        "job-name": request.name,
        "comment": request.comment,
        "partition": request.partition,
        "output": request.output,
        "export-file": NO_ENVIRONMENT,
        "qos": request.qos,
        "account": request.account,
        "constraint": request.features,
        "gres": request.gres,
        "exclude": request.excluded,
        "deadline": _utc(request.deadline_s),
        "array": f"0-{request.tasks - 1}" if request.tasks > 1 else "",
    }
    return [f"--{option}={value}" for option, value in values.items() if value]


def _utc(time_s: float | None) -> str:
    """Write a Unix time as sbatch reads it with ``TZ=UTC``, seconds cut off."""
    if time_s is None:
        return ""
    return datetime.fromtimestamp(int(time_s), tz=UTC).strftime("%Y-%m-%dT%H:%M:%S")


def _check_request(request: LeaseRequest) -> None:
    _check(_NAME.fullmatch(request.name), "job name", request.name)
    _check(request.limit_min >= 1, "time limit in minutes", request.limit_min)
    _check(request.tasks >= 1, "number of tasks", request.tasks)
    _check(request.nice >= 0, "nice value", request.nice)
    _check(request.memory_mib >= 0, "memory in MiB", request.memory_mib)
    _check(request.cpus >= 0, "number of CPUs", request.cpus)
    _check(request.partition, "partition", request.partition)
    _check(request.script.startswith("/"), "absolute script path", request.script)
    _check(request.output.startswith("/"), "absolute output path", request.output)
    for option in (
        *("comment", "partition", "script", "output", "qos"),
        *("account", "features", "gres", "excluded"),
    ):
        _check_value(option, getattr(request, option))
    for argument in request.arguments:
        whole = "\0" not in argument and _bytes(argument) <= MAX_ARGUMENT_BYTES
        _check(whole, "script argument", argument)


def _check_value(option: str, value: str) -> None:
    """Refuse a value that would break a line of Slurm's tables, or is too long."""
    _check(value.isprintable() and _bytes(value) <= MAX_VALUE_BYTES, option, value)


def _bytes(value: str) -> int:
    return len(value.encode("utf-8", "surrogateescape"))


def _check(is_good: object, what: str, value: object) -> None:
    if not is_good:
        shown = repr(value)[:100]
        raise ValueError(f"not a usable {what}: {shown}; Slurm was not asked")


def gres_argument(gres: Gres) -> str:
    """Return *gres* in sbatch's notation, such as ``gpu:a100:2``."""
    return ":".join(filter(None, (gres.name, gres.kind, str(gres.count))))
