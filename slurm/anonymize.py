"""Made-up words for real ones: the same for the same, and no way back.

Words are numbered as they come. Nothing is derived from what they stand for, so
there is nothing to guess, and which stood for what is kept in one object only, for
as long as one recording is made.
"""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import TYPE_CHECKING

from slurm.command_line import JSON, TEXT
from slurm.config import (
    CONFIG_ARGV,
    TOPOLOGY_ARGV,
    VERSION_ARGV,
    parse_topology,
    parse_version,
)
from slurm.errors import UnreadableOutputError
from slurm.records import (
    JobState,
    NodeState,
)
from slurm.text import (
    NOTHING,
    SDIAG_ARGV,
    TOLD,
    TYPED_WIDTHS,
    check_whole,
    read_records,
    remark,
    table,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping


# ----------------------------------------------------------------------
# Made-up words for real ones: the same for the same, and no way back.

_LETTERS = re.compile(r"[^\W\d_]+")
_WORD = re.compile(r"[\w.+-]*[^\W\d][\w.+-]*")
_NUMERIC = re.compile(r"[0-9TKMG.,:%_\[\]+/ -]*")
_FIRST_UID = 1000
_ALPHABET = "abcdefghijklmnopqrstuvwxyz"
_SAID = NOTHING | {"UNLIMITED", "INFINITE", "Infinity", "YES", "NO", "none", "ALL"}
_KNOWN_GRES = frozenset({"gres", "gpu", "mps", "shard", "S"})


class Disguise:
    """A mapping that is made as it goes."""

    def __init__(self) -> None:
        """Begin with nothing mapped."""
        self._words: dict[tuple[str, str], str] = {}
        self._counts: dict[str, count[int]] = {}

    def word(self, kind: str, original: str) -> str:
        """Return the word for *original* among those of one *kind*; nothing stays.

        Args:
            kind: What the made-up words begin with, for example ``user``.
            original: Any text.
        """
        if original in NOTHING:
            return original
        return self._number(kind, original, lambda n: f"{kind}{n}")

    def words(self, kind: str, listed: str) -> str:
        """Return a comma-separated list, each of its items mapped."""
        if listed in NOTHING:
            return listed
        return ",".join(self.word(kind, one) for one in listed.split(","))

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
        """Return a feature expression with each name mapped, operators kept."""
        if expression in NOTHING:
            return expression
        return _WORD.sub(lambda found: self.word("feature", found[0]), expression)

    def gres(self, text: str) -> str:
        """Return generic resources with names and types mapped, but for usual ones."""
        if text in NOTHING:
            return text
        return _WORD.sub(lambda found: self._resource(found[0]), text)

    def plain(self, text: str) -> str:
        """Return numbers, times and Slurm's words for nothing as they are."""
        is_plain = text in _SAID or _NUMERIC.fullmatch(text) is not None
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


# ----------------------------------------------------------------------
# What may stand in a recording as it is: Slurm's own words, named one by one.


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


_UNAVAILABLE = "Nodes required for job are DOWN, DRAINED or reserved for job"

STATES = frozenset({*map(str, NodeState), *map(str, JobState)})
"""States and flags of nodes and jobs."""

REASONS = _set(
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

MODES = _set("OFF CANCEL REQUEUE SUSPEND GANG WITHIN DISABLED")
"""Of preemption."""

SHARING = _set("NO YES EXCLUSIVE FORCE")
"""Of nodes."""

PARTITION_STATES = _set("UP DOWN DRAIN INACTIVE")
"""Of partitions."""

FLAGS = _set(
    """
    MAINT FLEX OVERLAP IGNORE_JOBS HOURLY DAILY WEEKLY WEEKDAY WEEKEND SPEC_NODES
    ANY_NODES ALL_NODES STATIC PART_NODES NO_PART_NODES PURGE_COMP FIRST_CORES
    TIME_FLOAT REPLACE REPLACE_DOWN NO_HOLD_JOBS_AFTER_END MAGNETIC SKIP USER_DELETE
    FORCE_START ACTIVE INACTIVE DEFAULT default HIDDEN ROOT_ONLY NO_ROOT
    """
)
"""Of reservations and partitions."""

PRIVATE = _set(
    "accounts cloud events jobs nodes partitions reservations usage users none"
)
"""What PrivateData may name."""

# ----------------------------------------------------------------------
# How one value is made harmless, by what it is; each keeps what Slurm wrote itself.

if TYPE_CHECKING:
    Change = Callable[[Disguise, str], str]

_DEPENDENCY = re.compile(r"[a-z]+(?::[0-9_+*]+(?:\([a-z]+\))?)*")
_RELEASE = re.compile(r"[0-9]+\.[0-9]+\.[0-9]+(?:[.-]?(?:rc|pre)?[0-9]+)*")
_PLUGIN = re.compile(r"(?:select|sched|priority|preempt|topology)/[a-z_0-9]+")
_PARAMETER = re.compile(r"([a-z][a-z_0-9]*)(?:=([0-9]+))?")


def one_of(words: frozenset[str]) -> Change:
    """Return what keeps *words*, joined by ``,`` ``+`` ``:`` ``|`` or numbers."""
    upper = {word.upper() for word in words}

    def change(disguise: Disguise, text: str) -> str:
        if text in words or text in NOTHING:
            return text
        # 22.05's JSON has them in small letters
        parts = re.split(r"([,+:|*]|[0-9]+)", text)
        return "".join(
            part
            if i % 2 or not part or part.upper() in upper
            else disguise.word("WORD", part)
            for i, part in enumerate(parts)
        )

    return change


def reason(disguise: Disguise, text: str) -> str:
    """Keep Slurm's own reasons; a job's may have been set by a site's plugin."""
    return text if text in REASONS else disguise.word("reason", text)


def dependency(disguise: Disguise, text: str) -> str:
    """Keep what jobs usually wait for."""
    parts = re.split(r"([,?])", text)
    is_usual = all(_DEPENDENCY.fullmatch(part) for part in parts[::2])
    return text if is_usual else disguise.word("dependency", text)


def kind(word: str) -> Change:
    """Return what maps one word of its kind."""
    return lambda disguise, text: disguise.word(word, text)


def kinds(word: str) -> Change:
    """Return what maps a list of words of one kind."""
    return lambda disguise, text: disguise.words(word, text)


def hosts(disguise: Disguise, text: str) -> str:
    """Map host names and lists of them."""
    return disguise.hosts(text)


def features(disguise: Disguise, text: str) -> str:
    """Map features."""
    return disguise.features(text)


def gres(disguise: Disguise, text: str) -> str:
    """Map generic resources."""
    return disguise.gres(text)


def plain(disguise: Disguise, text: str) -> str:
    """Keep numbers and times."""
    return disguise.plain(text)


def uid(disguise: Disguise, text: str) -> str:
    """Map a number of a user."""
    return disguise.uid(text)


def version_recorder_changes(disguise: Disguise, text: str) -> str:
    """Keep a release of Slurm, pre-releases too."""
    return text if _RELEASE.fullmatch(text) else disguise.plain(text)


def duration(disguise: Disguise, text: str) -> str:
    """Keep an amount with its unit."""
    amount, _, unit = text.partition(" ")
    is_known = unit in {"", "sec", "min", "usec"}
    return text if is_known and amount.isdecimal() else disguise.plain(text)


def plugin(disguise: Disguise, text: str) -> str:
    """Keep a plugin of one of the kinds that matter."""
    return text if _PLUGIN.fullmatch(text) else disguise.word("plugin", text)


def parameters(disguise: Disguise, text: str) -> str:
    """Keep names, as Slurm's manual has them, and whole numbers; leave out the rest."""
    del disguise
    if text in NOTHING:
        return text
    found = (_PARAMETER.fullmatch(word.strip()) for word in text.split(","))
    usual = (one for one in found if one and one[1].startswith(_PREFIXES))
    return ",".join(one[0] for one in usual) or "(null)"


_PREFIXES = ("bf_", "sched_", "max_", "default_", "defer", "batch_", "send_user_signal")


def select(disguise: Disguise, text: str) -> str:
    """Keep SelectTypeParameters."""
    is_known = all(word.startswith("CR_") for word in text.split(","))
    return text if is_known or text in NOTHING else disguise.word("SELECT", text)


# ----------------------------------------------------------------------
# Recordings of Slurm's JSON: the whole shape, which bug reports are about, no names.

_KEY = re.compile(r"[A-Za-z_]+|[0-9]+")
_NUMBERS = frozenset({"user_id", "group_id", "uid", "gid"})
_ALWAYS: Mapping[str, Change] = {
    "account": kind("account"),
    "accounts": kinds("account"),
    "comment": kind("comment"),
    "features": features,
    "active_features": features,
    "flags": one_of(FLAGS),
    "gres": gres,
    "node_list": hosts,
    "partition": kinds("part"),
    "partitions": kinds("part"),
    "qos": kind("qos"),
    "release": version_recorder_changes,
    "user_name": kind("user"),
    "users": kinds("user"),
}
_SECTION: Mapping[str, Mapping[str, Change]] = {
    "jobs": {
        "name": kind("job"),
        "nodes": hosts,
        "scheduled_nodes": hosts,
        "required_nodes": hosts,
        "job_state": one_of(STATES),
        "state_reason": reason,
        "dependency": dependency,
        "resv_name": kind("reservation"),
        "tres_per_node": gres,
        "tres_per_job": gres,
    },
    "nodes": {
        "name": hosts,
        "state": one_of(STATES),
        "state_flags": one_of(STATES),
        "reason": kind("reason"),
    },
    "partitions": {
        "name": kind("part"),
        "nodes": hosts,
        "configured": hosts,
        "state": one_of(PARTITION_STATES),
        "preempt_mode": one_of(MODES),
        "preemption_mode": one_of(MODES),
        "oversubscribe": one_of(SHARING),
        "exclusive": one_of(SHARING),
    },
    "reservations": {"name": kind("reservation")},
}


def anonymised(disguise: Disguise, text: str, *, section: str) -> str:
    """Return an answer with every text replaced that is not known to be harmless.

    Args:
        disguise: The mapping.
        text: The answer.
        section: The key of its records: jobs, nodes, partitions or reservations.

    Raises:
        ValueError: Not JSON.
    """
    changes = {**_ALWAYS, **_SECTION[section]}
    loaded: object = json.loads(text)
    return json.dumps(_walk(disguise, loaded, "", changes), indent=1) + "\n"


def _walk(
    disguise: Disguise, value: object, key: str, changes: Mapping[str, Change]
) -> object:
    match value:
        case dict():
            return {
                _key(disguise, inner): _walk(disguise, one, inner, changes)
                for inner, one in value.items()
            }
        case list():
            return [_walk(disguise, one, key, changes) for one in value]
        case str():
            return changes.get(key, plain)(disguise, value)
        case int() if key in _NUMBERS and not isinstance(value, bool):
            return int(disguise.uid(str(value)))
        case _:
            return value


def _key(disguise: Disguise, key: str) -> str:
    """Keep a key that Slurm's schema could have; nodes have been keys too."""
    return key if _KEY.fullmatch(key) else disguise.hosts(key)


# ----------------------------------------------------------------------
# Recordings of Slurm's text, written anew from what is known to be harmless.

_SETTING = re.compile(r"^(\S+)\s*= ?(.*)$", re.MULTILINE)
_AFTER_STATISTICS = re.compile(r"^Remote Procedure Call", re.MULTILINE)


_JOB: Mapping[str, Change] = {
    "Name": kind("job"),
    "Comment": kind("comment"),
    "Feature": features,
    "Reason": reason,
    "Dependency": dependency,
    "QOS": kind("qos"),
    "tres-per-node": gres,
    "tres-per-job": gres,
    "UserID": uid,
    "UserName": kind("user"),
    "Partition": kinds("part"),
    "State": one_of(STATES),
    "Reservation": kind("reservation"),
    "ReqNodes": hosts,
    "SchedNodes": hosts,
    "NodeList": hosts,
}
"""Columns; the others are numbers and times."""

_NODE: Mapping[str, Change] = {
    "NodeName": hosts,
    "CPUAlloc": plain,
    "CPUTot": plain,
    "ActiveFeatures": features,
    "Gres": gres,
    "RealMemory": plain,
    "AllocMem": plain,
    "State": one_of(STATES),
    "Weight": plain,
    "Partitions": kinds("part"),
    "BootTime": plain,
}
_PARTITION: Mapping[str, Change] = {
    "PartitionName": kind("part"),
    "Default": plain,
    "DefaultTime": plain,
    "GraceTime": plain,
    "Hidden": plain,
    "MaxNodes": plain,
    "MaxTime": plain,
    "MinNodes": plain,
    "Nodes": hosts,
    "PriorityTier": plain,
    "OverSubscribe": one_of(SHARING),
    "OverTimeLimit": plain,
    "PreemptMode": one_of(MODES),
    "State": one_of(PARTITION_STATES),
    "TotalCPUs": plain,
    "TotalNodes": plain,
}
_RESERVATION: Mapping[str, Change] = {
    "ReservationName": kind("reservation"),
    "StartTime": plain,
    "EndTime": plain,
    "Duration": plain,
    "Nodes": hosts,
    "NodeCnt": plain,
    "PartitionName": kind("part"),
    "Flags": one_of(FLAGS),
    "Users": kinds("user"),
    "Accounts": kinds("account"),
    "State": one_of(FLAGS),
}
_NO_RESERVATION = "No reservations in the system"

_CONFIG: Mapping[str, Change] = {
    "ClusterName": kind("cluster"),
    "CompleteWait": duration,
    "EpilogTimeout": duration,
    "KillWait": duration,
    "MaxArraySize": plain,
    "MinJobAge": duration,
    "OverTimeLimit": duration,
    "PreemptMode": one_of(MODES),
    "PreemptParameters": parameters,
    "PreemptType": plugin,
    "PriorityType": plugin,
    "PrivateData": one_of(PRIVATE),
    "PrologEpilogTimeout": duration,
    "SchedulerParameters": parameters,
    "SchedulerType": plugin,
    "SelectType": plugin,
    "SelectTypeParameters": select,
    "SLURM_VERSION": version_recorder_changes,
    "TopologyPlugin": plugin,
}
_SWITCH: Mapping[str, Change] = {
    "SwitchName": hosts,
    "Level": plain,
    "LinkSpeed": plain,
    "Nodes": hosts,
    "Switches": hosts,
}
_BLOCK: Mapping[str, Change] = {
    "BlockName": hosts,
    "BlockIndex": plain,
    "Nodes": hosts,
    "BlockSize": plain,
}


def jobs(disguise: Disguise, text: str) -> str:
    """Return ``squeue``'s table with all that people can fill in replaced."""
    header, *rows = table(text)
    return "".join((_row(header), *(_row(_job(disguise, row)) for row in rows)))


def nodes(disguise: Disguise, text: str) -> str:
    """Return nodes with what is harmless; their remarks become a word."""
    return _records(disguise, text, _NODE, command="scontrol show nodes")


def partitions(disguise: Disguise, text: str) -> str:
    """Return partitions with what is harmless."""
    return _records(disguise, text, _PARTITION, command="scontrol show partitions")


def reservations(disguise: Disguise, text: str) -> str:
    """Return reservations with what is harmless."""
    check_whole(text, "scontrol show reservations")
    if text.strip() == _NO_RESERVATION:
        return f"{_NO_RESERVATION}\n"
    return _records(disguise, text, _RESERVATION, command="scontrol show reservations")


def topology(disguise: Disguise, text: str) -> str:
    """Return switches and blocks with what is harmless; nothing where none are told.

    Raises:
        UnreadableOutputError: Not such an answer, or cut short.
    """
    parse_topology(text)
    lines = []
    for line in text.splitlines():
        changes = _BLOCK if line.startswith("BlockName=") else _SWITCH
        if line.startswith(f"{next(iter(changes))}="):
            fields = dict(field.split("=", 1) for field in line.split())
            lines.append(" ".join(_fields(disguise, fields, line, changes)))
    return "".join(f"{line}\n" for line in lines)


def statistics(disguise: Disguise, text: str) -> str:
    """Return ``sdiag`` up to where it tells who asked what."""
    del disguise
    check_whole(text, "sdiag")
    found = _AFTER_STATISTICS.search(text)
    return text[: found.start()] if found else text


def config(disguise: Disguise, text: str) -> str:
    """Return the settings that FreeTrain reads; of an epilog only that there is one."""
    check_whole(text, "scontrol show config")
    lines = ["Configuration data"]
    for name, value in _SETTING.findall(text):
        if name in _CONFIG:
            lines.append(f"{name:<23} = {_CONFIG[name](disguise, value.strip())}")
        elif re.fullmatch(r"Epilog(\[\d+\])?", name):
            path = disguise.word("/path", value.strip())
            lines.append(f"{name:<23} = {path}")
    return "".join(f"{line}\n" for line in lines)


def version_recorder_text(disguise: Disguise, text: str) -> str:
    """Return the release."""
    del disguise
    return f"slurm {parse_version(text)}\n"


def _job(disguise: Disguise, row: dict[str, str]) -> dict[str, str]:
    return {name: _JOB.get(name, plain)(disguise, row[name]) for name in row}


def _row(row: Mapping[str, str]) -> str:
    fixed = (f"{row[name]:<{width}}|" for name, width in TYPED_WIDTHS.items())
    return "".join((*fixed, *(f"{row[name]}|" for name in TOLD), "\n"))


def _records(
    disguise: Disguise, text: str, changes: Mapping[str, Change], *, command: str
) -> str:
    first = next(iter(changes))
    found = read_records(text, first, command=command, read=lambda f, r: (f, r))
    lines = (" ".join(_fields(disguise, *one, changes)) for one in found)
    return "".join(f"{line}\n" for line in lines)


def _fields(
    disguise: Disguise,
    fields: Mapping[str, str],
    record: str,
    changes: Mapping[str, Change],
) -> Iterator[str]:
    for name, make in changes.items():
        if name in fields:
            yield f"{name}={make(disguise, fields[name])}"
    for name in ("Reason", "Comment"):
        said = remark(record, name)
        if said and changes is _NODE:
            yield f"{name}={disguise.word(name.lower(), said)}"


# ----------------------------------------------------------------------
# What a recording is made of: commands, and how each answer is made harmless.

COMMANDS = "commands.txt"
"""The file that names the commands; a line each."""


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
    change: Callable[[Disguise, str], str]
    is_optional: bool = False


def _json(section: str, argv: tuple[str, ...]) -> Recorded:
    change = partial(anonymised, section=section)
    return Recorded(f"{section}.json", argv, change, is_optional=True)


RECORDED = (
    Recorded("sdiag-before.txt", SDIAG_ARGV, statistics),
    Recorded("nodes.txt", TEXT.nodes.argv, nodes),
    Recorded("jobs.txt", TEXT.jobs.argv, jobs),
    Recorded("reservations.txt", TEXT.reservations.argv, reservations),
    Recorded("partitions.txt", TEXT.partitions.argv, partitions),
    Recorded("sdiag-after.txt", SDIAG_ARGV, statistics),
    Recorded("config.txt", CONFIG_ARGV, config),
    Recorded("version.txt", VERSION_ARGV, version_recorder_text),
    Recorded("topology.txt", TOPOLOGY_ARGV, topology, is_optional=True),
    _json("nodes", JSON.nodes.argv),
    _json("jobs", JSON.jobs.argv),
    _json("reservations", JSON.reservations.argv),
    _json("partitions", JSON.partitions.argv),
)
"""All files, in the order in which a look asks."""


def recording(
    answers: Mapping[str, str], *, disguise: Disguise | None = None
) -> dict[str, str]:
    """Return the files of a recording, harmless, and the commands beside.

    Args:
        answers: What the commands answered, by file; optional ones may lack.
        disguise: The mapping; by default one that is gone afterwards.

    Raises:
        UnreadableOutputError: An answer is not what its command answers. Optional
            ones that cannot be read are left out.
    """
    mapping = disguise or Disguise()
    files, commands = {}, []
    for one in RECORDED:
        if one.file not in answers:
            continue
        try:
            files[one.file] = one.change(mapping, answers[one.file])
        # A release that answers --json with text, or tells a topology that is new.
        except (ValueError, UnreadableOutputError):
            if not one.is_optional:
                raise
        else:
            commands.append(f"{one.file}: {shlex.join(one.argv)}\n")
    return files | {COMMANDS: "".join(commands)}
