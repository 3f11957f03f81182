"""Records what Slurm prints on a cluster, with all names replaced.

Run on a host where Slurm's programs answer, in FreeTrain's source tree::

    python -m tests.record_slurm DIR

It runs the commands of one snapshot (and their JSON, where the release has it) and
writes one file a command into DIR, with the exact commands in ``commands.txt``. Look
through the files before you attach them to a bug report. This is also how the
recordings under ``tests/data/slurm`` are made.

Users, accounts, names and comments of jobs, hosts, partitions, features, reservations,
paths and free reasons: each becomes the same pseudonym wherever it stands. Digits in
host names stay, so that ``n[1-8]`` stays a range; user numbers are counted anew. What
is not known to be harmless is replaced or left out. Times, job numbers, sizes and
Slurm's own words stay: they are what a bug report needs, and FreeTrain finds the same
holes in the recording.

First come pseudonyms, then Slurm's own words, then how one value is made harmless by
its meaning, then text, JSON and whole recordings.
"""

import argparse
import json
import os
import re
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path

from slurm.backend import TEXT
from slurm.errors import SlurmError, SlurmRefusedError, UnreadableOutputError
from slurm.json import JSON
from slurm.records import JobState, NodeState
from slurm.runner import Runner, SubprocessRunner, scrubbed
from slurm.text import (
    CONFIG_ARGV,
    FREE_WIDTH_COLUMNS,
    NOTHING,
    SDIAG_ARGV,
    TOPOLOGY_ARGV,
    TYPED_WIDTHS,
    VERSION_ARGV,
    check_whole,
    parse_topology,
    parse_version,
    read_records,
    remark,
    squeue_rows,
)

Change = Callable[["Pseudonyms", str], str]
"""How one value is made harmless."""

_LETTERS = re.compile(r"[^\W\d_]+")
_WORD = re.compile(r"[\w.+-]*[^\W\d][\w.+-]*")
_NUMERIC = re.compile(r"[0-9TKMG.,:%_\[\]+/ -]*")
_FIRST_UID = 1000
_ALPHABET = "abcdefghijklmnopqrstuvwxyz"
_PLAIN = NOTHING | {"UNLIMITED", "INFINITE", "Infinity", "YES", "NO", "none", "ALL"}
_KNOWN_GRES = frozenset({"gres", "gpu", "mps", "shard", "S", "IDX", "N", "A", "null"})


class Pseudonyms:
    """Made-up words for real ones: the same for the same, and no way back.

    Words are numbered as they come. Nothing is derived from what they stand for, so
    there is nothing to guess, and the mapping is kept in this object only.
    """

    def __init__(self) -> None:
        self._words: dict[tuple[str, str], str] = {}
        self._counts: dict[str, count[int]] = {}

    def word(self, kind: str, original: str) -> str:
        """Return the word for *original* among those of one *kind*.

        Args:
            kind: How the made-up words begin, for example ``user``.
            original: Any text; one of Slurm's words for nothing stays.
        """
        if original in NOTHING:
            return original
        return self._number(kind, original, lambda n: f"{kind}{n}")

    def words(self, kind: str, listed: str) -> str:
        """Return a comma-separated list, each of its items replaced."""
        if listed in NOTHING:
            return listed
        return ",".join(self.word(kind, item) for item in listed.split(","))

    def uid(self, original: str) -> str:
        """Return the number for a user's or group's number."""
        return self._number("uid", original, lambda n: str(_FIRST_UID + n))

    def hosts(self, expression: str) -> str:
        """Return a host name or hostlist whose letters are others.

        Digits, brackets and signs stay, so that ranges stay ranges and two names
        are equal afterwards if they were before.
        """
        if expression in NOTHING:
            return expression
        return _LETTERS.sub(lambda found: self._letters(found[0]), expression)

    def features(self, expression: str) -> str:
        """Return a feature expression with each name replaced, operators kept."""
        if expression in NOTHING:
            return expression
        return _WORD.sub(lambda found: self.word("feature", found[0]), expression)

    def gres(self, text: str) -> str:
        """Return generic resources with all but the usual names and types replaced."""
        if text in NOTHING:
            return text
        return _WORD.sub(lambda found: self._resource(found[0]), text)

    def plain(self, text: str) -> str:
        """Return numbers, times and Slurm's words for nothing as they are."""
        is_plain = text in _PLAIN or _NUMERIC.fullmatch(text) is not None
        return text if is_plain else self.word("text", text)

    def _resource(self, name: str) -> str:
        return name if name in _KNOWN_GRES else self.word("res", name)

    def _letters(self, letters: str) -> str:
        return self._number("host", letters, lambda n: f"h{_in_letters(n)}")

    def _number(self, kind: str, original: str, make: Callable[[int], str]) -> str:
        key = (kind, original)
        if key not in self._words:
            number = next(self._counts.setdefault(kind, count(1)))
            self._words[key] = make(number)
        return self._words[key]


def _in_letters(number: int) -> str:
    """Write *number* without digits, which would join those of a host's name."""
    letters = ""
    while number:
        number, last = divmod(number - 1, len(_ALPHABET))
        letters = _ALPHABET[last] + letters
    return letters


# Slurm's own words, which stay; named one by one.


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


_UNAVAILABLE = "Nodes required for job are DOWN, DRAINED or reserved for job"
_STATES = frozenset({*map(str, NodeState), *map(str, JobState)})

_REASONS = _set(
    """
    None Priority Resources Dependency DependencyNeverSatisfied JobHeldAdmin
    JobHeldUser BeginTime Licenses Reservation PartitionDown PartitionInactive
    PartitionNodeLimit PartitionTimeLimit PartitionConfig AccountNotAllowed
    QOSNotAllowed ReqNodeNotAvail NodeDown JobArrayTaskLimit Prolog Cleaning
    BurstBufferResources BurstBufferStageIn SystemFailure JobLaunchFailure
    NonZeroExitCode TimeLimit OutOfMemory RaisedSignal InactiveLimit InvalidAccount
    InvalidQOS QOSUsageThreshold QOSJobLimit QOSResourceLimit QOSTimeLimit
    QOSMaxJobsPerUserLimit QOSMaxSubmitJobPerUserLimit QOSMaxCpuPerUserLimit
    QOSMaxNodePerUserLimit QOSMaxGRESPerUser QOSGrpCpuLimit QOSGrpNodeLimit
    QOSGrpGRES QOSGrpMemLimit QOSMaxWallDurationPerJobLimit AssociationJobLimit
    AssociationResourceLimit AssociationTimeLimit AssocGrpCpuLimit AssocGrpGRES
    AssocGrpMemLimit AssocGrpNodeLimit AssocGrpJobsLimit AssocGrpCPUMinutesLimit
    AssocGrpCPURunMinutesLimit AssocMaxJobsLimit AssocMaxNodePerJobLimit
    AssocMaxCpuPerJobLimit AssocMaxWallDurationPerJobLimit MaxMemPerLimit
    """
) | {
    f"{_UNAVAILABLE}s in higher priority partitions",
    _UNAVAILABLE,
}
"""Why jobs wait: Slurm's words, and its one sentence, cut at squeue's width too."""

_MODES = _set("OFF CANCEL REQUEUE SUSPEND GANG WITHIN DISABLED")
"""Of preemption."""

_SHARING = _set("NO YES EXCLUSIVE FORCE")
"""Of nodes."""

_PARTITION_STATES = _set("UP DOWN DRAIN INACTIVE")

_FLAGS = _set(
    """
    MAINT FLEX OVERLAP IGNORE_JOBS HOURLY DAILY WEEKLY WEEKDAY WEEKEND SPEC_NODES
    ANY_NODES ALL_NODES STATIC PART_NODES NO_PART_NODES PURGE_COMP FIRST_CORES
    TIME_FLOAT REPLACE REPLACE_DOWN NO_HOLD_JOBS_AFTER_END MAGNETIC SKIP USER_DELETE
    FORCE_START ACTIVE INACTIVE DEFAULT default HIDDEN ROOT_ONLY NO_ROOT
    """
)
"""Of reservations and partitions."""

_PRIVATE_DATA = _set(
    "accounts cloud events jobs nodes partitions reservations usage users none"
)
"""What PrivateData may name."""

# How one value is made harmless, by its meaning; each keeps Slurm's own words.
_DEPENDENCY = re.compile(r"[a-z]+(?::[0-9_+*]+(?:\([a-z]+\))?)*")
_RELEASE = re.compile(r"[0-9]+\.[0-9]+\.[0-9]+(?:[.-]?(?:rc|pre)?[0-9]+)*")
_PLUGIN = re.compile(r"(?:select|sched|priority|preempt|topology)/[a-z_0-9]+")
_PARAMETER = re.compile(r"([a-z][a-z_0-9]*)(?:=([0-9]+))?")
_PARAMETER_PREFIXES = (
    *("bf_", "sched_", "max_", "default_", "defer", "batch_", "send_user_signal"),
)


def _one(kind: str) -> Change:
    """Return the change of a single word of *kind*."""
    return lambda names, text: names.word(kind, text)


def _list(kind: str) -> Change:
    """Return the change of a comma-separated list of words of *kind*."""
    return lambda names, text: names.words(kind, text)


def _among(words: frozenset[str]) -> Change:
    """Return what keeps *words*, joined by ``,`` ``+`` ``:`` ``|`` or numbers."""
    upper = {word.upper() for word in words}

    def change(names: Pseudonyms, text: str) -> str:
        if text in words or text in NOTHING:
            return text
        # 22.05's JSON has them in small letters
        parts = re.split(r"([,+:|*]|[0-9]+)", text)
        return "".join(
            part
            if i % 2 or not part or part.upper() in upper
            else names.word("WORD", part)
            for i, part in enumerate(parts)
        )

    return change


def _reason(names: Pseudonyms, text: str) -> str:
    """Keep Slurm's own reasons; a job's may have been set by a site's plugin."""
    return text if text in _REASONS else names.word("reason", text)


def _dependency(names: Pseudonyms, text: str) -> str:
    """Keep the usual dependencies of jobs."""
    parts = re.split(r"([,?])", text)
    is_usual = all(_DEPENDENCY.fullmatch(part) for part in parts[::2])
    return text if is_usual else names.word("dependency", text)


def _release(names: Pseudonyms, text: str) -> str:
    """Keep a release of Slurm, pre-releases too."""
    return text if _RELEASE.fullmatch(text) else names.plain(text)


def _duration(names: Pseudonyms, text: str) -> str:
    """Keep an amount with its unit."""
    amount, _, unit = text.partition(" ")
    is_known = unit in {"", "sec", "min", "usec"}
    return text if is_known and amount.isdecimal() else names.plain(text)


def _plugin(names: Pseudonyms, text: str) -> str:
    """Keep a plugin of one of the kinds that matter."""
    return text if _PLUGIN.fullmatch(text) else names.word("plugin", text)


def _parameters(names: Pseudonyms, text: str) -> str:
    """Keep names that Slurm's manual has, and whole numbers; leave out the rest."""
    del names
    if text in NOTHING:
        return text
    found = (_PARAMETER.fullmatch(word.strip()) for word in text.split(","))
    usual = (
        match for match in found if match and match[1].startswith(_PARAMETER_PREFIXES)
    )
    return ",".join(match[0] for match in usual) or "(null)"


def _select(names: Pseudonyms, text: str) -> str:
    """Keep SelectTypeParameters."""
    is_known = all(word.startswith("CR_") for word in text.split(","))
    return text if is_known or text in NOTHING else names.word("SELECT", text)


# Text, written anew from what is known to be harmless.

_SETTING = re.compile(r"^(\S+)\s*= ?(.*)$", re.MULTILINE)
_AFTER_STATISTICS = re.compile(r"^Remote Procedure Call", re.MULTILINE)
_NO_RESERVATION = "No reservations in the system"

_JOB: Mapping[str, Change] = {
    "Name": _one("job"),
    "Comment": _one("comment"),
    "Feature": Pseudonyms.features,
    "Reason": _reason,
    "Dependency": _dependency,
    "QOS": _one("qos"),
    "Account": _one("account"),
    "tres-per-node": Pseudonyms.gres,
    "tres-per-job": Pseudonyms.gres,
    "tres-per-task": Pseudonyms.gres,
    "tres-per-socket": Pseudonyms.gres,
    "UserID": Pseudonyms.uid,
    "UserName": _one("user"),
    "Partition": _list("part"),
    "State": _among(_STATES),
    "Reservation": _one("reservation"),
    "ReqNodes": Pseudonyms.hosts,
    "SchedNodes": Pseudonyms.hosts,
    "NodeList": Pseudonyms.hosts,
}
"""Columns; the others are numbers and times."""

_NODE: Mapping[str, Change] = {
    "NodeName": Pseudonyms.hosts,
    "CPUAlloc": Pseudonyms.plain,
    "CPUEfctv": Pseudonyms.plain,
    "CPUTot": Pseudonyms.plain,
    "ActiveFeatures": Pseudonyms.features,
    "Gres": Pseudonyms.gres,
    "GresUsed": Pseudonyms.gres,
    "RealMemory": Pseudonyms.plain,
    "AllocMem": Pseudonyms.plain,
    "MemSpecLimit": Pseudonyms.plain,
    "Sockets": Pseudonyms.plain,
    "CoresPerSocket": Pseudonyms.plain,
    "Owner": _one("user"),
    "MCS_label": _one("label"),
    "State": _among(_STATES),
    "Weight": Pseudonyms.plain,
    "Partitions": _list("part"),
    "BootTime": Pseudonyms.plain,
}

_PARTITION: Mapping[str, Change] = {
    "PartitionName": _one("part"),
    "Default": Pseudonyms.plain,
    "DefaultTime": Pseudonyms.plain,
    "GraceTime": Pseudonyms.plain,
    "Hidden": Pseudonyms.plain,
    "MaxNodes": Pseudonyms.plain,
    "MaxTime": Pseudonyms.plain,
    "MaxCPUsPerNode": Pseudonyms.plain,
    "MinNodes": Pseudonyms.plain,
    "Nodes": Pseudonyms.hosts,
    "PriorityTier": Pseudonyms.plain,
    "OverSubscribe": _among(_SHARING),
    "OverTimeLimit": Pseudonyms.plain,
    "PreemptMode": _among(_MODES),
    "State": _among(_PARTITION_STATES),
    "TotalCPUs": Pseudonyms.plain,
    "TotalNodes": Pseudonyms.plain,
}

_RESERVATION: Mapping[str, Change] = {
    "ReservationName": _one("reservation"),
    "StartTime": Pseudonyms.plain,
    "EndTime": Pseudonyms.plain,
    "Duration": Pseudonyms.plain,
    "Nodes": Pseudonyms.hosts,
    "NodeCnt": Pseudonyms.plain,
    "PartitionName": _one("part"),
    "Flags": _among(_FLAGS),
    "Users": _list("user"),
    "Accounts": _list("account"),
    "State": _among(_FLAGS),
}

_CONFIG: Mapping[str, Change] = {
    "ClusterName": _one("cluster"),
    "CompleteWait": _duration,
    "EpilogTimeout": _duration,
    "KillWait": _duration,
    "MaxArraySize": Pseudonyms.plain,
    "MinJobAge": _duration,
    "OverTimeLimit": _duration,
    "PreemptMode": _among(_MODES),
    "PreemptParameters": _parameters,
    "PreemptType": _plugin,
    "PriorityType": _plugin,
    "PrivateData": _among(_PRIVATE_DATA),
    "PrologEpilogTimeout": _duration,
    "SchedulerParameters": _parameters,
    "SchedulerType": _plugin,
    "SelectType": _plugin,
    "SelectTypeParameters": _select,
    "SLURM_VERSION": _release,
    "TopologyPlugin": _plugin,
}

_SWITCH: Mapping[str, Change] = {
    "SwitchName": Pseudonyms.hosts,
    "Level": Pseudonyms.plain,
    "LinkSpeed": Pseudonyms.plain,
    "Nodes": Pseudonyms.hosts,
    "Switches": Pseudonyms.hosts,
}

_BLOCK: Mapping[str, Change] = {
    "BlockName": Pseudonyms.hosts,
    "BlockIndex": Pseudonyms.plain,
    "Nodes": Pseudonyms.hosts,
    "BlockSize": Pseudonyms.plain,
}


def anonymous_jobs(names: Pseudonyms, text: str) -> str:
    """Return ``squeue``'s table with all that people can fill in replaced."""
    header, *rows = (row for _, row in squeue_rows(text))
    changed = (
        {name: _JOB.get(name, Pseudonyms.plain)(names, row[name]) for name in row}
        for row in rows
    )
    return "".join(map(_line, (header, *changed)))


def _line(row: Mapping[str, str]) -> str:
    fixed = (f"{row[name]:<{width}}|" for name, width in TYPED_WIDTHS.items())
    return "".join((*fixed, *(f"{row[name]}|" for name in FREE_WIDTH_COLUMNS), "\n"))


def anonymous_nodes(names: Pseudonyms, text: str) -> str:
    """Return nodes with their harmless fields; remarks become a word."""
    return _records(names, text, _NODE, command="scontrol show nodes")


def _partitions(names: Pseudonyms, text: str) -> str:
    return _records(names, text, _PARTITION, command="scontrol show partitions")


def _reservations(names: Pseudonyms, text: str) -> str:
    check_whole(text, "scontrol show reservations")
    if text.strip() == _NO_RESERVATION:
        return f"{_NO_RESERVATION}\n"
    return _records(names, text, _RESERVATION, command="scontrol show reservations")


def _topology(names: Pseudonyms, text: str) -> str:
    """Return switches and blocks with their harmless fields; none where there are none.

    Raises:
        UnreadableOutputError: Not such an answer, or cut short.
    """
    parse_topology(text)
    lines = []
    for line in text.splitlines():
        changes = _BLOCK if line.startswith("BlockName=") else _SWITCH
        if line.startswith(f"{next(iter(changes))}="):
            fields = dict(field.split("=", 1) for field in line.split())
            lines.append(" ".join(_fields(names, fields, line, changes)))
    return "".join(f"{line}\n" for line in lines)


def anonymous_statistics(names: Pseudonyms, text: str) -> str:
    """Return ``sdiag`` up to where it lists the users' requests."""
    del names
    check_whole(text, "sdiag")
    found = _AFTER_STATISTICS.search(text)
    return text[: found.start()] if found else text


def anonymous_config(names: Pseudonyms, text: str) -> str:
    """Return the settings that FreeTrain reads; of an epilog only that there is one."""
    check_whole(text, "scontrol show config")
    lines = ["Configuration data"]
    for name, value in _SETTING.findall(text):
        if name in _CONFIG:
            lines.append(f"{name:<23} = {_CONFIG[name](names, value.strip())}")
        elif re.fullmatch(r"Epilog(\[\d+\])?", name):
            path = names.word("/path", value.strip())
            lines.append(f"{name:<23} = {path}")
    return "".join(f"{line}\n" for line in lines)


def _version(names: Pseudonyms, text: str) -> str:
    del names
    return f"slurm {parse_version(text)}\n"


def _records(
    names: Pseudonyms, text: str, changes: Mapping[str, Change], *, command: str
) -> str:
    first = next(iter(changes))
    found = read_records(text, first, command=command, read=lambda f, r: (f, r))
    lines = (" ".join(_fields(names, *record, changes)) for record in found)
    return "".join(f"{line}\n" for line in lines)


def _fields(
    names: Pseudonyms,
    fields: Mapping[str, str],
    record: str,
    changes: Mapping[str, Change],
) -> Iterator[str]:
    for name, change in changes.items():
        if name in fields:
            yield f"{name}={change(names, fields[name])}"
    for name in ("Reason", "Comment"):
        said = remark(record, name)
        if said and changes is _NODE:
            yield f"{name}={names.word(name.lower(), said)}"


# JSON keeps its whole shape, which bug reports are about, and no names.

_KEY = re.compile(r"[A-Za-z_]+|[0-9]+")
_USER_NUMBERS = frozenset({"user_id", "group_id", "uid", "gid"})
_IN_EVERY_SECTION: Mapping[str, Change] = {
    "account": _one("account"),
    "accounts": _list("account"),
    "comment": _one("comment"),
    "features": Pseudonyms.features,
    "active_features": Pseudonyms.features,
    "flags": _among(_FLAGS),
    "gres": Pseudonyms.gres,
    "node_list": Pseudonyms.hosts,
    "partition": _list("part"),
    "partitions": _list("part"),
    "qos": _one("qos"),
    "release": _release,
    "user_name": _one("user"),
    "users": _list("user"),
}

_SECTION: Mapping[str, Mapping[str, Change]] = {
    "jobs": {
        "name": _one("job"),
        "nodes": Pseudonyms.hosts,
        "scheduled_nodes": Pseudonyms.hosts,
        "required_nodes": Pseudonyms.hosts,
        "excluded_nodes": Pseudonyms.hosts,
        "job_state": _among(_STATES),
        "state_reason": _reason,
        "dependency": _dependency,
        "resv_name": _one("reservation"),
        "tres_per_node": Pseudonyms.gres,
        "tres_per_job": Pseudonyms.gres,
        "tres_per_task": Pseudonyms.gres,
        "tres_per_socket": Pseudonyms.gres,
    },
    "nodes": {
        "name": Pseudonyms.hosts,
        "state": _among(_STATES),
        "state_flags": _among(_STATES),
        "reason": _one("reason"),
        "gres_used": Pseudonyms.gres,
        "owner": _one("user"),
        "mcs_label": _one("label"),
    },
    "partitions": {
        "name": _one("part"),
        "nodes": Pseudonyms.hosts,
        "configured": Pseudonyms.hosts,
        "state": _among(_PARTITION_STATES),
        "preempt_mode": _among(_MODES),
        "preemption_mode": _among(_MODES),
        "oversubscribe": _among(_SHARING),
        "exclusive": _among(_SHARING),
    },
    "reservations": {"name": _one("reservation")},
}


def anonymous_json(names: Pseudonyms, text: str, *, section: str) -> str:
    """Return an answer with every text replaced that is not known to be harmless.

    Args:
        names: The pseudonyms.
        text: The answer.
        section: The key of its records: jobs, nodes, partitions or reservations.

    Raises:
        ValueError: Not JSON.
    """
    changes = {**_IN_EVERY_SECTION, **_SECTION[section]}
    loaded: object = json.loads(text)
    return json.dumps(_walk(names, loaded, "", changes), indent=1) + "\n"


def _walk(
    names: Pseudonyms, value: object, key: str, changes: Mapping[str, Change]
) -> object:
    match value:
        case dict():
            return {
                _key(names, inner): _walk(names, item, inner, changes)
                for inner, item in value.items()
            }
        case list():
            return [_walk(names, item, key, changes) for item in value]
        case str():
            return changes.get(key, Pseudonyms.plain)(names, value)
        case int() if key in _USER_NUMBERS and not isinstance(value, bool):
            return int(names.uid(str(value)))
        case _:
            return value


def _key(names: Pseudonyms, key: str) -> str:
    """Keep a key that Slurm's schema could have; nodes have been keys too."""
    return key if _KEY.fullmatch(key) else names.hosts(key)


# A whole recording.

COMMANDS = "commands.txt"
"""The file that names the commands; a line each."""

_TIMEOUT_S = 120.0
_FOLDER_MODE = 0o700


@dataclass(frozen=True, slots=True)
class Recorded:
    """One file of a recording.

    Attributes:
        file: Its name.
        argv: The command whose answer it has.
        change: Makes the answer harmless.
        is_optional: Whether some releases have no such command.
    """

    file: str
    argv: tuple[str, ...]
    change: Change
    is_optional: bool = False


def _json(section: str, argv: tuple[str, ...]) -> Recorded:
    change = partial(anonymous_json, section=section)
    return Recorded(f"{section}.json", argv, change, is_optional=True)


RECORDED = (
    Recorded("sdiag-before.txt", SDIAG_ARGV, anonymous_statistics),
    Recorded("nodes.txt", TEXT.nodes.argv, anonymous_nodes),
    Recorded("jobs.txt", TEXT.jobs.argv, anonymous_jobs),
    Recorded("reservations.txt", TEXT.reservations.argv, _reservations),
    Recorded("partitions.txt", TEXT.partitions.argv, _partitions),
    Recorded("sdiag-after.txt", SDIAG_ARGV, anonymous_statistics),
    Recorded("config.txt", CONFIG_ARGV, anonymous_config),
    Recorded("version.txt", VERSION_ARGV, _version),
    Recorded("topology.txt", TOPOLOGY_ARGV, _topology, is_optional=True),
    _json("nodes", JSON.nodes.argv),
    _json("jobs", JSON.jobs.argv),
    _json("reservations", JSON.reservations.argv),
    _json("partitions", JSON.partitions.argv),
)
"""All files, in the order of a snapshot."""


def recording(
    answers: Mapping[str, str], *, names: Pseudonyms | None = None
) -> dict[str, str]:
    """Return the files of a recording, harmless, and the commands beside.

    Args:
        answers: What the commands printed, by file; optional ones may be missing.
        names: The pseudonyms; by default new ones, which nobody keeps.

    Raises:
        UnreadableOutputError: An answer is not what its command prints. Optional
            ones that cannot be read are left out.
    """
    names = names or Pseudonyms()
    files, commands = {}, []
    for recorded in RECORDED:
        if recorded.file not in answers:
            continue
        try:
            files[recorded.file] = recorded.change(names, answers[recorded.file])
        # A release that answers --json with text, or has a new kind of topology.
        except (ValueError, UnreadableOutputError):
            if not recorded.is_optional:
                raise
        else:
            commands.append(f"{recorded.file}: {shlex.join(recorded.argv)}\n")
    return files | {COMMANDS: "".join(commands)}


def record(runner: Runner, folder: Path) -> tuple[str, ...]:
    """Ask Slurm and write a recording into *folder*; return the files' names.

    Nothing is written before it is harmless.

    Raises:
        OSError: The folder holds something, or cannot be written.
        SlurmError: Slurm did not answer, or not in a form that could be made
            harmless; nothing was written.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise FileExistsError(
            f"{folder} is not an empty folder. Nothing was asked; name another."
        )
    answers = {}
    for recorded in RECORDED:
        try:
            answers[recorded.file] = runner.run(recorded.argv, timeout_s=_TIMEOUT_S)
        except SlurmRefusedError:
            if not recorded.is_optional:
                raise
    files = recording(answers)
    folder.mkdir(mode=_FOLDER_MODE, parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(text, "utf-8", "replace")
    return tuple(files)


def main(argv: Sequence[str]) -> None:
    """Record this host's Slurm into the folder that *argv* names."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.record_slurm", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("dir", type=Path, help="a new or empty folder")
    folder: Path = parser.parse_args(argv).dir
    try:
        files = record(SubprocessRunner(scrubbed(os.environ)), folder)
    except (SlurmError, OSError) as error:
        sys.exit(f"error: {error}")
    sys.stdout.write(f"{len(files)} files in {folder}: look through them.\n")


if __name__ == "__main__":
    main(sys.argv[1:])
