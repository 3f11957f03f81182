"""sbatch: one-node jobs and arrays of them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from freetrain.standin.complaint import ComplaintError
from freetrain.standin.records import MINUTE_S, Job
from freetrain.standin.telling import MAX_ARRAY_SIZE
from freetrain.standin.times import read_iso
from freetrain.standin.words import split

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from freetrain.standin.records import Cluster

_FLAGS = frozenset({"parsable", "no-requeue", "requeue", "exclusive", "hold"})
_SHORT = {"J": "job-name", "N": "nodes", "n": "ntasks", "o": "output", "t": "time"}
_SHORT |= {"p": "partition", "a": "array", "D": "chdir"}
_FAILED = "sbatch: error: Batch job submission failed: "
_SPAN = r"[0-9]+(?:-[0-9]+)?"
_PART = re.compile(rf"([^][,]+)(?:\[({_SPAN}(?:,{_SPAN})*)\])?(?:,|$)", re.ASCII)


def sbatch(
    cluster: Cluster,
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
    options, words = split("sbatch", argv, short=_SHORT, flags=_FLAGS)
    _check(cluster, options, words)
    tasks = _tasks(options.get("array", ""))
    first = cluster.take_id()
    for task in range(tasks or 1):
        job = _job(cluster, options, words, now_s)
        job.job_id, job.directory = first, options.get("chdir", directory)
        job.environment = _exported(options.get("export", "ALL"), environ)
        if tasks > 1:
            job.array_id, job.task = first, task
        cluster.jobs.append(job)
    return f"{first}\n" if "parsable" in options else f"Submitted batch job {first}\n"


def _job(
    cluster: Cluster, options: Mapping[str, str], words: Sequence[str], now_s: float
) -> Job:
    deadline = options.get("deadline", "")
    return Job(
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
        excluded=_nodes(options.get("exclude", "")),
    )


def _check(cluster: Cluster, options: Mapping[str, str], words: Sequence[str]) -> None:
    if not words:
        raise ComplaintError(f"{_FAILED}this stand-in needs a script in a file")
    if cluster.part(_partition(cluster, options)) is None:
        raise ComplaintError(f"{_FAILED}Invalid partition name specified")
    if _tasks(options.get("array", "")) > MAX_ARRAY_SIZE:
        raise ComplaintError(f"{_FAILED}Invalid job array specification")
    if options.get("constraint") or options.get("gres"):
        raise ComplaintError(f"{_FAILED}Requested node configuration is not available")
    if options.get("nodes", "1") != "1":
        raise ComplaintError(f"{_FAILED}this stand-in has one-node jobs only")


def _nodes(text: str) -> list[str]:
    """Return the names in a hostlist of one bracket a name, as ``n[1-3,7],m1``."""
    names: list[str] = []
    rest = text
    while rest:
        part = _PART.match(rest)
        if part is None:
            raise ComplaintError(f"{_FAILED}Invalid node name specified")
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


def _partition(cluster: Cluster, options: Mapping[str, str]) -> str:
    default = next(part.name for part in cluster.parts if part.is_default)
    return options.get("partition", default)


def _tasks(array: str) -> int:
    """Return how many tasks ``0-7`` asks for; 0 where it is no array."""
    if not array:
        return 0
    first, _, last = array.partition("-")
    if first != "0" or not last.isdecimal():
        raise ComplaintError(f"{_FAILED}this stand-in has arrays such as 0-7 only")
    return int(last) + 1


def _number(text: str) -> int:
    if not text.isdecimal():
        raise ComplaintError(f"{_FAILED}not a whole number: {text[:40]!r}")
    return int(text)


def _exported(export: str, environ: Mapping[str, str]) -> dict[str, str]:
    """Return what ``--export`` passes on: all, nothing, or what it names."""
    passed: dict[str, str] = {}
    for word in export.split(","):
        name, equals, value = word.partition("=")
        if word == "ALL":
            passed |= environ
        elif equals:
            passed[name] = value
        elif name in environ:
            passed[name] = environ[name]
    return passed
