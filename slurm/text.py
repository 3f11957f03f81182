"""Reading the text that Slurm's commands print: one command and one parser a kind.

First values (times, durations, sizes), then records of ``Key=value`` pairs as
``scontrol -o show …`` writes them, with nodes, partitions and reservations; then
``sdiag``; then ``squeue``, whose columns are cut by their width in bytes; last the
release, the configuration and the topology of the cluster.
"""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, TypeVar

from slurm.errors import UnreadableOutputError
from slurm.records import (
    MINUTE_S,
    ClusterConfig,
    Gres,
    JobRecord,
    Leaf,
    Node,
    Partition,
    Release,
    Reservation,
    Sdiag,
    cpu_groups,
    expand,
    gres_in_use,
    job_states,
    node_states,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence


NOTHING = frozenset({"", "(null)", "N/A", "n/a", "None", "Unknown", "NONE", "NOT_SET"})
"""Slurm's words for no value."""

_UNBOUNDED = frozenset({"UNLIMITED", "INFINITE", "Infinity"})
_CLOCK = re.compile(
    r"(?:(?P<days>\d+)-)?(?:(?P<h>\d+):)?(?P<m>\d+):(?P<s>\d+)", re.ASCII
)
_COUNTED = re.compile(r"(\d+)(?:\s*(usec|sec|min|s))?", re.ASCII)
_LONGEST_NUMBER = 40
"""Characters of a duration; the digits of a number of any length have no end."""

_UNIT_S = {"usec": 1e-6, "sec": 1.0, "s": 1.0, "min": 60.0}


def check_whole(text: str, command: str) -> None:
    """Raise where *text* is empty or ends within a line.

    An answer that is entirely empty is a failed query, never an empty cluster:
    Slurm says in words, or with a header, that there is nothing.
    """
    if not text.strip():
        raise UnreadableOutputError(command, 0, text, "the answer is empty")
    if not text.endswith("\n"):
        last = text.rsplit("\n", 1)[-1]
        number = text.count("\n") + 1
        raise UnreadableOutputError(command, number, last, "the answer is cut short")


def text_or_empty(text: str) -> str:
    """Return *text*, empty where Slurm wrote one of its words for nothing."""
    return "" if text in NOTHING else text


def words(text: str) -> tuple[str, ...]:
    """Return the words of a comma-separated list, none where there is no value."""
    return tuple(text.split(",")) if text not in NOTHING else ()


def unix_time(text: str) -> float | None:
    """Return Unix time of ``2026-11-21T08:22:20`` (UTC), None for no value.

    Raises:
        ValueError: Neither.
    """
    if text in NOTHING:
        return None
    when = datetime.fromisoformat(text)
    if when.tzinfo is None:
        when = when.replace(tzinfo=UTC)
    try:
        return when.timestamp()
    except OverflowError:
        raise ValueError(f"{text!r} is not a time") from None


def duration_s(text: str, *, unit_s: float = 1.0) -> float | None:
    """Return seconds of ``1-02:03:04``, ``10:00``, ``30 sec``, ``UNLIMITED``, ….

    Args:
        text: As Slurm writes it; unlimited is ``math.inf``, no value is None.
        unit_s: The unit of a bare number, in seconds.

    Raises:
        ValueError: No duration.
    """
    if text in NOTHING:
        return None
    if text.upper() in _UNBOUNDED or text in _UNBOUNDED:
        return math.inf
    if len(text) > _LONGEST_NUMBER:
        raise ValueError(f"{text[:_LONGEST_NUMBER]!r}... is not a duration")
    clock = _CLOCK.fullmatch(text)
    if clock:
        days, hours, minutes, seconds = (int(part or 0) for part in clock.groups())
        return float(((days * 24 + hours) * 60 + minutes) * 60 + seconds)
    counted = _COUNTED.fullmatch(text)
    if counted:
        return int(counted[1]) * (_UNIT_S[counted[2]] if counted[2] else unit_s)
    raise ValueError(f"{text!r} is not a duration")


_WHOLE = re.compile(r"[+-]?[0-9]{1,18}", re.ASCII)


def whole_number(text: str) -> int | None:
    """Return a whole number of up to 18 digits, None for no value.

    Raises:
        ValueError: Neither.
    """
    if text in NOTHING:
        return None
    if _WHOLE.fullmatch(text) is None:
        raise ValueError(f"{text[:_LONGEST_NUMBER]!r} is not a whole number")
    return int(text)


def amount(text: str) -> int:
    """Return a whole number of up to 18 digits, 0 or more.

    Raises:
        ValueError: No such number.
    """
    found = whole_number(text)
    if found is None or found < 0:
        raise ValueError(f"{text!r} is not 0 or more")
    return found


def count(text: str) -> int:
    """Return a count such as ``128``, ``4K`` or ``2-4`` (the least), 0 for none.

    Raises:
        ValueError: No count.
    """
    if text in NOTHING:
        return 0
    least = text.split("-", 1)[0]
    unit = "KMGT".find(least[-1:].upper()) + 1 if least[-1:].isalpha() else 0
    return amount(least[:-1]) * 1024**unit if unit else amount(least)


_BRACKETS = re.compile(r"\([^()]*\)")
_COUNT = re.compile(r"\d+[KMGTkmgt]?", re.ASCII)


def read_gres(text: str) -> tuple[Gres, ...]:
    """Return the resources of a ``Gres=`` value, none where there is no value."""
    if text in NOTHING:
        return ()
    return tuple(
        _read_resource(item) for item in _BRACKETS.sub("", text).split(",") if item
    )


def _read_resource(item: str) -> Gres:
    name, *rest = item.split(":")
    rest = [word for word in rest if word != "no_consume"]
    how_many = count(rest.pop()) if rest and _COUNT.fullmatch(rest[-1]) else 1
    return Gres(name=name, kind=":".join(rest), count=how_many)


_FIELD = re.compile(r"(?:^| )([A-Z][A-Za-z_]*)=(\S*)")
_NEXT_KEY = re.compile(r" (?:Comment|Extra|InstanceId|ReservationName|Topology)=")
T = TypeVar("T")


def read_records(
    text: str,
    first_key: str,
    *,
    command: str,
    read: Callable[[dict[str, str], str], T],
) -> tuple[T, ...]:
    """Return the result of *read* for each record of *text*.

    Values may hold anything, line breaks included (an administrator's node comment),
    so a record begins where its first key does, and of a key that comes twice the
    first counts: text of people comes after text of Slurm.

    Args:
        text: The whole answer.
        first_key: Key that each record begins with.
        command: The command, for messages.
        read: Takes a record's fields and its text; raises KeyError for a field
            that is missing and ValueError for one that it cannot read.

    Raises:
        UnreadableOutputError: Empty, cut short, or *read* could not.
    """
    check_whole(text, command)
    records = []
    for line_number, record in _split(text, f"{first_key}=", command):
        pairs = _FIELD.findall(record)
        try:
            records.append(read(dict(reversed(pairs)), record))
        except KeyError as error:
            why = f"the field {error.args[0]} is missing"
            raise UnreadableOutputError(command, line_number, record, why) from error
        except ValueError as error:
            why = str(error)
            raise UnreadableOutputError(command, line_number, record, why) from error
    return tuple(records)


def _split(text: str, start: str, command: str) -> Iterator[tuple[int, str]]:
    """Yield each record with the number of its first line."""
    number, lines = 0, list[str]()
    for line_number, line in enumerate(text.split("\n")[:-1], start=1):
        if line.startswith(start):
            if lines:
                yield number, "\n".join(lines)
            number, lines = line_number, [line]
        elif lines:
            lines.append(line)
        else:
            why = f"expected {start}…"
            raise UnreadableOutputError(command, line_number, line, why)
    yield number, "\n".join(lines)


def remark(record: str, key: str) -> str:
    """Return free text of *record* from *key* to the next one that may follow."""
    _, found, rest = record.partition(f" {key}=")
    return _NEXT_KEY.split(rest, maxsplit=1)[0].strip() if found else ""


NODES_ARGV = ("scontrol", "--all", "--details", "--oneliner", "show", "nodes")
"""Shows every node, those of hidden partitions too, and what jobs have of each."""


def parse_nodes(text: str) -> tuple[Node, ...]:
    """Return the nodes that ``scontrol show nodes`` printed, in its order.

    Raises:
        UnreadableOutputError: Not such an answer, empty, or cut short.
    """
    return read_records(text, "NodeName", command="scontrol show nodes", read=_node)


def _node(fields: dict[str, str], record: str) -> Node:
    known, unknown = node_states(fields["State"].split("+"))
    gres, allocated_cpus = read_gres(fields["Gres"]), amount(fields["CPUAlloc"])
    used = fields.get("GresUsed")  # only with --details
    reported = None if used is None else read_gres(used)
    cpus = amount(fields["CPUTot"])
    cpus_per_core, cpus_per_socket = cpu_groups(
        cpus,
        sockets=amount(fields.get("Sockets", "0")),
        cores_per_socket=amount(fields.get("CoresPerSocket", "0")),
    )
    reserved_mib = amount(fields.get("MemSpecLimit", "0"))
    owner = text_or_empty(fields.get("Owner", "")).partition("(")[0]  # "ada(1001)"
    return Node(
        name=fields["NodeName"],
        states=known,
        unknown_states=unknown,
        features=frozenset(words(fields["ActiveFeatures"])),
        gres=gres,
        cpus=amount(fields.get("CPUEfctv", "0")) or cpus,
        memory_mib=amount(fields["RealMemory"]) - reserved_mib,
        partitions=words(fields.get("Partitions", "")),
        reason=remark(record, "Reason"),
        comment=remark(record, "Comment"),
        allocated_cpus=allocated_cpus,
        allocated_memory_mib=amount(fields.get("AllocMem", "0")),
        allocated_gres=gres_in_use(gres, reported, allocated_cpus=allocated_cpus),
        cpus_per_core=cpus_per_core,
        cpus_per_socket=cpus_per_socket,
        owner=owner or text_or_empty(fields.get("MCS_label", "")),
    )


_CPU_BOUNDS = ("Node", "Socket")
"""Of a partition's jobs together. A bound by socket is taken for one by node, which it
is where a node has one socket, and less than it allows elsewhere."""

PARTITIONS_ARGV = ("scontrol", "--all", "--oneliner", "show", "partitions")
"""Shows every partition, hidden ones too."""


def parse_partitions(text: str) -> tuple[Partition, ...]:
    """Return the partitions that ``scontrol show partitions`` printed.

    Raises:
        UnreadableOutputError: Not such an answer, empty, or cut short.
    """
    command = "scontrol show partitions"
    return read_records(text, "PartitionName", command=command, read=_partition)


def _partition(fields: dict[str, str], record: str) -> Partition:
    del record
    max_time_s = duration_s(fields["MaxTime"])
    # Since 26.05 [run] a field of its own: "Exclusive=NODE … OverSubscribe=NO".
    is_exclusive = fields.get("Exclusive") == "NODE"
    bounds = (fields.get(f"MaxCPUsPer{part}", "UNLIMITED") for part in _CPU_BOUNDS)
    most_cpus = [amount(text) for text in bounds if text not in _UNBOUNDED]
    return Partition(
        name=fields["PartitionName"],
        nodes=text_or_empty(fields["Nodes"]),
        is_up=fields["State"] == "UP",
        max_time_s=math.inf if max_time_s is None else max_time_s,
        priority_tier=amount(fields["PriorityTier"]),
        preempt_mode=fields["PreemptMode"],
        grace_time_s=float(amount(fields["GraceTime"])),
        over_time_limit_s=duration_s(fields["OverTimeLimit"], unit_s=MINUTE_S),
        is_default=fields["Default"] == "YES",
        is_hidden=fields["Hidden"] == "YES",
        oversubscribe="EXCLUSIVE" if is_exclusive else fields["OverSubscribe"],
        qos=text_or_empty(fields.get("QoS", "")),
        most_cpus_per_node=min(most_cpus, default=None),
    )


_NONE = "No reservations in the system"

RESERVATIONS_ARGV = ("scontrol", "--all", "--oneliner", "show", "reservations")
"""Shows every reservation."""


def parse_reservations(text: str) -> tuple[Reservation, ...]:
    """Return the reservations that ``scontrol show reservations`` printed.

    Raises:
        UnreadableOutputError: Not such an answer, empty, or cut short.
    """
    command = "scontrol show reservations"
    check_whole(text, command)
    if text.strip() == _NONE:
        return ()
    return read_records(text, "ReservationName", command=command, read=_reservation)


def _reservation(fields: dict[str, str], record: str) -> Reservation:
    del record
    start_s = unix_time(fields["StartTime"])
    if start_s is None:
        raise ValueError("a reservation without a start")
    return Reservation(
        name=fields["ReservationName"],
        start_s=start_s,
        end_s=unix_time(fields["EndTime"]),
        nodes=text_or_empty(fields["Nodes"]),
        flags=frozenset(words(fields["Flags"])),
        users=words(fields["Users"]),
        accounts=words(fields["Accounts"]),
        partition=text_or_empty(fields["PartitionName"]),
    )


SDIAG_ARGV = ("sdiag",)
"""Shows slurmctld's statistics."""

_TAKEN = re.compile(r"^sdiag output at .*\((\d{1,18})\)$", re.MULTILINE)
_SINCE = re.compile(r"^Data since .*\((\d{1,18})\)$", re.MULTILINE)
_BACKFILL = re.compile(r"^Backfilling stats( \(WARNING)?.*$", re.MULTILINE)
_CYCLES = re.compile(r"^\tTotal cycles: (\d{1,18})$", re.MULTILINE)
_TOOK = re.compile(r"^\tLast cycle:\s+(\d{1,18})$", re.MULTILINE)
_LAST = re.compile(r"^\tLast cycle when: (?:N/A|.*\((\d{1,18})\))$", re.MULTILINE)
_MICRO = 1e6


def parse_sdiag(text: str) -> Sdiag:
    """Return the statistics that ``sdiag`` printed.

    Raises:
        UnreadableOutputError: Not such an answer, empty, or cut short.
    """
    check_whole(text, "sdiag")
    backfill = _BACKFILL.search(text)
    if backfill is None:
        raise UnreadableOutputError("sdiag", 0, text, "it says nothing of backfill")
    at = backfill.end()
    last = _find(_LAST, text, at)[1]
    return Sdiag(
        taken_s=float(_find(_TAKEN, text)[1]),
        since_s=float(_find(_SINCE, text)[1]),
        bf_active=backfill[1] is not None,
        bf_cycles=int(_find(_CYCLES, text, at)[1]),
        bf_last_cycle_s=None if last is None else float(last),
        bf_last_took_s=float(_find(_TOOK, text, at)[1]) / _MICRO,
    )


def _find(pattern: re.Pattern[str], text: str, at: int = 0) -> re.Match[str]:
    found = pattern.search(text, at)
    if found is None:
        why = f"nothing in it reads {pattern.pattern}"
        raise UnreadableOutputError("sdiag", 0, text, why)
    return found


TYPED_WIDTHS: Mapping[str, int] = {
    "Name": 100,
    "Comment": 200,
    "Feature": 200,
    "Reason": 60,
    "Dependency": 60,
    "QOS": 40,
    "Account": 60,
    "tres-per-node": 80,
    "tres-per-job": 80,
    "tres-per-task": 80,
    "tres-per-socket": 80,
}
"""Columns that users can fill, and their widths in bytes."""

FREE_WIDTH_COLUMNS = (
    "JobID",
    "JobArrayID",
    "ArrayJobID",
    "ArrayTaskID",
    "UserID",
    "UserName",
    "Partition",
    "State",
    "PriorityLong",
    "Nice",
    "SubmitTime",
    "EligibleTime",
    "StartTime",
    "EndTime",
    "TimeLimit",
    "NumNodes",
    "NumCPUs",
    "NumTasks",
    "MinCPUs",
    "MinMemory",
    "HetJobID",
    "Reservation",
    "ReqNodes",
    "SchedNodes",
    "NodeList",
)
"""Columns that Slurm fills, as wide as they need to be."""

_MAY_BE_CUT = {
    "Feature": "features",
    "tres-per-node": "gres_per_node",
    "tres-per-job": "gres_per_job",
    "tres-per-task": "gres_per_task",
    "tres-per-socket": "gres_per_socket",
}
"""Fields of a job's record of which a part means something else than the whole."""

_MIB = 1024**2

_COLUMNS = (*TYPED_WIDTHS, *FREE_WIDTH_COLUMNS)
_MARK = b"|"


def squeue_argv(*, names: Sequence[str] = (), all_states: bool = False) -> list[str]:
    """Return the command that shows the queue.

    Args:
        names: Only jobs of these names, each array task on a line of its own;
            by default all jobs, waiting tasks of an array on one line.
        all_states: Jobs that have ended too, as long as Slurm remembers them.

    Raises:
        ValueError: A name that squeue would read as several, or as none.
    """
    for name in names:
        if not name or "," in name or "\0" in name:
            raise ValueError(f"squeue cannot look for a job named {name!r}")
    fixed = [f"{field}:{width}|" for field, width in TYPED_WIDTHS.items()]
    free = [f"{field}:|" for field in FREE_WIDTH_COLUMNS]
    argv = ["squeue", "--all", "--local", f"--Format={','.join(fixed + free)}"]
    if names:
        argv += ["--array", f"--name={','.join(names)}"]
    if all_states:
        argv.append("--states=all")
    return argv


_FIRST_WITH_EXCLUSIVE = (26, 5)


def waiting_argv(release: Release) -> tuple[str, ...]:
    """Return the command that shows of waiting jobs what no column above does.

    That is whether they share nodes, and the nodes that they exclude: before 24.05 no
    field of ``--Format`` has these. From 26.05 on ``OverSubscribe`` no longer tells
    which jobs want whole nodes, and ``Exclusive`` does.

    Args:
        release: That of squeue.
    """
    form = "--format=%A|%h|%x|"
    if release.series >= _FIRST_WITH_EXCLUSIVE:
        form = "--Format=JobID:|,Exclusive:|,ExcNodes:|"
    return "squeue", "--all", "--local", "--states=PENDING", form


_EXCLUSIVE_WORDS = {"NO": "OK", "NODE": "NO"}
"""Words for jobs of 26.05 that earlier releases say in another way."""


def parse_waiting(text: str) -> dict[int, tuple[str, str]]:
    """Return what the command of ``waiting_argv`` shows, by the number of the job.

    Returns:
        Slurm's word for how it shares nodes, as ``JobRecord.oversubscribe`` has it, and
        the nodes that it excludes, a hostlist.

    Raises:
        UnreadableOutputError: Not such an answer, empty, or cut short.
    """
    check_whole(text, "squeue")
    waiting = {}
    header, *lines = text.splitlines()
    is_exclusive = header.startswith("JOBID|EXCLUSIVE|")
    for line_number, line in enumerate(lines, start=2):
        number, *values = line.split("|")
        if len(values) != len(("%h", "%x", "")) or not number.isdecimal():
            why = "expected the number of a job, how it shares nodes, and nodes"
            raise UnreadableOutputError("squeue", line_number, line, why)
        sharing, nodes, _ = map(text_or_empty, values)
        word = _EXCLUSIVE_WORDS.get(sharing, sharing) if is_exclusive else sharing
        waiting[int(number)] = word, nodes
    return waiting


def parse_squeue(text: str) -> tuple[JobRecord, ...]:
    """Return the jobs that ``squeue`` printed, in its order.

    Raises:
        UnreadableOutputError: Not such an answer, empty, or cut short.
    """
    rows = squeue_rows(text)
    next(rows)
    return tuple(_job(line_number, row) for line_number, row in rows)


def squeue_rows(text: str) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield the header and then each row: its line number, and text by column.

    Raises:
        UnreadableOutputError: Not such an answer, empty, or cut short.
    """
    check_whole(text, "squeue")
    for line_number, row in _rows(text.encode("utf-8", "surrogateescape")):
        yield line_number, dict(zip(_COLUMNS, row, strict=True))


def _rows(output: bytes) -> Iterator[tuple[int, list[str]]]:
    """Yield the values of each row, the header's first, with its line number."""
    at, line_number = 0, 1
    while at < len(output):
        values, tail_at = _fixed_columns(output, at, line_number)
        end = output.find(b"\n", tail_at)
        rest = output[tail_at:end].split(_MARK)
        if end < 0 or len(rest) != len(FREE_WIDTH_COLUMNS) + 1 or rest[-1]:
            raise _unreadable(
                output, at, line_number, f"{len(FREE_WIDTH_COLUMNS)} values expected"
            )
        values += [_text(value) for value in rest[:-1]]
        yield line_number, values
        line_number += output.count(b"\n", at, end + 1)
        at = end + 1


def _fixed_columns(output: bytes, at: int, line_number: int) -> tuple[list[str], int]:
    """Return the values of the fixed columns from *at*, and where they end."""
    values = []
    start = at
    for field, width in TYPED_WIDTHS.items():
        end = start + width
        if output[end : end + 1] != _MARK:
            raise _unreadable(output, at, line_number, f"{field} is not {width} wide")
        values.append(_text(output[start:end].rstrip(b" ")))
        start = end + 1
    return values, start


def _text(value: bytes) -> str:
    return value.decode("utf-8", "replace")


def _job(line_number: int, row: dict[str, str]) -> JobRecord:
    try:
        return _read_job(row)
    except ValueError as error:
        shown = "|".join(row.values())
        raise UnreadableOutputError("squeue", line_number, shown, str(error)) from error


def _read_job(row: dict[str, str]) -> JobRecord:
    known, unknown = job_states([row["State"]])
    task = text_or_empty(row["ArrayTaskID"])
    is_single = task.isdecimal()
    return JobRecord(
        job_id=amount(row["JobID"]),
        display_id=row["JobArrayID"],
        states=known,
        unknown_states=unknown,
        array_job_id=amount(row["ArrayJobID"]) if task else None,
        array_task_id=amount(task) if is_single else None,
        array_tasks="" if is_single else task,
        user=row["UserName"],
        uid=None if row["UserID"] in NOTHING else amount(row["UserID"]),
        name=row["Name"],
        comment=text_or_empty(row["Comment"]),
        partitions=words(row["Partition"]),
        reason=text_or_empty(row["Reason"]),
        priority=whole_number(row["PriorityLong"]),
        nice=whole_number(row["Nice"]) or 0,
        submit_s=unix_time(row["SubmitTime"]),
        eligible_s=unix_time(row["EligibleTime"]),
        start_s=unix_time(row["StartTime"]),
        end_s=unix_time(row["EndTime"]),
        limit_s=duration_s(row["TimeLimit"]),
        planned_nodes=text_or_empty(row["SchedNodes"]),
        nodes=text_or_empty(row["NodeList"]),
        requested_nodes=text_or_empty(row["ReqNodes"]),
        node_count=count(row["NumNodes"]),
        cpu_count=count(row["NumCPUs"]),
        task_count=count(row["NumTasks"]),
        least_cpus=count(row["MinCPUs"]),
        least_memory_mib=count(row["MinMemory"]) // _MIB,
        features=text_or_empty(row["Feature"]),
        gres_per_node=text_or_empty(row["tres-per-node"]),
        gres_per_job=text_or_empty(row["tres-per-job"]),
        gres_per_task=text_or_empty(row["tres-per-task"]),
        gres_per_socket=text_or_empty(row["tres-per-socket"]),
        dependency=text_or_empty(row["Dependency"]),
        reservation=text_or_empty(row["Reservation"]),
        qos=text_or_empty(row["QOS"]),
        account=text_or_empty(row["Account"]),
        het_job_id=whole_number(row["HetJobID"]) or 0,
        cut=frozenset(_cut_fields(row)),
    )


def _cut_fields(row: dict[str, str]) -> Iterator[str]:
    """Yield the fields of a record whose text fills its column, and may be longer."""
    for column, field in _MAY_BE_CUT.items():
        text = row[column]
        if len(text) >= TYPED_WIDTHS[column] or (
            not text.isascii() and len(text.encode()) >= TYPED_WIDTHS[column]
        ):
            yield field


def _unreadable(output: bytes, at: int, number: int, why: str) -> UnreadableOutputError:
    end = output.find(b"\n", at)
    line = output[at : end if end >= 0 else len(output)]
    return UnreadableOutputError("squeue", number, _text(line), why)


VERSION_ARGV = ("sinfo", "--version")
"""Shows the release of the installed programs."""

_VERSION = re.compile(r"slurm\S* (\d{1,4})\.(\d{1,4})\.(\S+)")


def parse_version(text: str) -> Release:
    """Return the release that ``sinfo --version`` printed.

    Raises:
        UnreadableOutputError: Not such an answer.
    """
    found = _VERSION.match(text.strip())
    if found is None:
        raise UnreadableOutputError("sinfo --version", 1, text, "no release in it")
    return Release(int(found[1]), int(found[2]), found[3])


CONFIG_ARGV = ("scontrol", "show", "config")
"""Shows the configuration."""

_SETTING = re.compile(r"^(\S+)\s*= ?(.*)$", re.MULTILINE)


def parse_config(text: str) -> ClusterConfig:
    """Return the configuration that ``scontrol show config`` printed.

    Raises:
        UnreadableOutputError: Not such an answer, or a setting is missing.
    """
    command = "scontrol show config"
    check_whole(text, command)
    settings = {key: value.strip() for key, value in reversed(_SETTING.findall(text))}
    try:
        return _config(settings)
    except KeyError as error:
        why = f"the setting {error.args[0]} is missing"
        raise UnreadableOutputError(command, 0, text, why) from error
    except ValueError as error:
        raise UnreadableOutputError(command, 0, text, str(error)) from error


def _config(settings: dict[str, str]) -> ClusterConfig:
    return ClusterConfig(
        cluster=settings["ClusterName"],
        release=parse_version(f"slurm {settings['SLURM_VERSION']}"),
        select_type=settings["SelectType"],
        select_type_parameters=settings["SelectTypeParameters"],
        scheduler_type=settings["SchedulerType"],
        scheduler_parameters=_parameters(settings["SchedulerParameters"]),
        priority_type=settings["PriorityType"],
        preempt_type=settings["PreemptType"],
        preempt_mode=settings["PreemptMode"],
        private_data=_private(settings["PrivateData"]),
        kill_wait_s=_seconds(settings["KillWait"]),
        complete_wait_s=_seconds(settings["CompleteWait"]),
        over_time_limit_s=_seconds(settings["OverTimeLimit"]),
        has_epilog=_has_epilog(settings),
        max_array_size=amount(settings["MaxArraySize"]),
        topology_plugin=text_or_empty(settings.get("TopologyPlugin", "")),
        enforces_limits=not _ENFORCING.isdisjoint(
            settings.get("AccountingStorageEnforce", "").split(",")
        ),
        confines=_confined(settings),
        slurm_uid=_uid(settings.get("SlurmUser", "")),
    )


_BY_CGROUPS = {
    "ConstrainCores": "cpus",
    "ConstrainRAMSpace": "memory",
    "ConstrainDevices": "devices",
}


def _confined(settings: dict[str, str]) -> frozenset[str]:
    """Return the resources to whose part Slurm keeps jobs.

    By control groups, if the task plugin uses them, or by a look at jobs' memory.
    Source: cgroup.conf(5), slurm.conf(5), JobAcctGatherParams.
    """
    found = set()
    if "task/cgroup" in settings.get("TaskPlugin", "").split(","):
        found |= {
            resource
            for name, resource in _BY_CGROUPS.items()
            if settings.get(name, "") == "yes"
        }
    if "OverMemoryKill" in settings.get("JobAcctGatherParams", "").split(","):
        found.add("memory")
    return frozenset(found)


_ENFORCING = {"limits", "safe"}
"""Words of AccountingStorageEnforce with which limits count."""


def _parameters(text: str) -> dict[str, str]:
    if text in NOTHING:
        return {}
    pairs = (word.partition("=") for word in text.split(","))
    return {name.strip(): value for name, _, value in pairs if name.strip()}


def _private(text: str) -> tuple[str, ...]:
    return () if text == "none" else tuple(text_or_empty(text).split(","))


def _uid(text: str) -> int | None:
    """Return the number in ``slurm(64030)``."""
    found = re.fullmatch(r".*\(([0-9]{1,10})\)", text)
    return int(found[1]) if found else None


def _seconds(text: str) -> float:
    return duration_s(text) or 0.0


def _has_epilog(settings: dict[str, str]) -> bool:
    """Tell whether an Epilog is set; 23.11 and later number several of them."""
    return any(
        re.fullmatch(r"Epilog(\[\d+\])?", key) and value not in NOTHING
        for key, value in settings.items()
    )


TOPOLOGY_ARGV = ("scontrol", "--oneliner", "show", "topology")
"""Shows switches or blocks."""

_TOPOLOGY = "scontrol show topology"
_PAIR = re.compile(r"(?:^| )([A-Za-z]+)=(\S*)")


def parse_topology(text: str) -> tuple[Leaf, ...]:
    """Return the leaves that ``scontrol show topology`` printed, in its order.

    Switches above others and blocks made of blocks are left out, and so are leaves
    without nodes, and other kinds that a newer Slurm may know (rings).

    Raises:
        UnreadableOutputError: Not such an answer, or cut short.
    """
    if not text.strip():
        return ()
    check_whole(text, _TOPOLOGY)
    return tuple(_leaves(text))


def _leaves(text: str) -> Iterator[Leaf]:
    for number, line in enumerate(text.splitlines(), start=1):
        pairs = _PAIR.findall(line)
        if not pairs or not line.startswith(f"{pairs[0][0]}="):
            why = "expected SwitchName=… or BlockName=…"
            raise UnreadableOutputError(_TOPOLOGY, number, line, why)
        (kind, name), fields = pairs[0], dict(reversed(pairs))
        is_leaf = kind in {"SwitchName", "BlockName"} and "Switches" not in fields
        if is_leaf and name and expand(fields.get("Nodes", "")):
            yield Leaf(name, fields["Nodes"])
