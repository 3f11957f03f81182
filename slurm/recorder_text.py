"""Recordings of Slurm's text, written anew from what is known to be harmless."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from slurm import recorder_changes as change
from slurm import recorder_words as known
from slurm.config import parse_version
from slurm.fields import check_whole, read_records, remark
from slurm.squeue import TOLD, TYPED_WIDTHS, table
from slurm.topology import parse_topology

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from slurm.recorder_changes import Change
    from slurm.recorder_disguise import Disguise

_SETTING = re.compile(r"^(\S+)\s*= ?(.*)$", re.MULTILINE)
_AFTER_STATISTICS = re.compile(r"^Remote Procedure Call", re.MULTILINE)


_JOB: Mapping[str, Change] = {
    "Name": change.kind("job"),
    "Comment": change.kind("comment"),
    "Feature": change.features,
    "Reason": change.reason,
    "Dependency": change.dependency,
    "QOS": change.kind("qos"),
    "tres-per-node": change.gres,
    "tres-per-job": change.gres,
    "UserID": change.uid,
    "UserName": change.kind("user"),
    "Partition": change.kinds("part"),
    "State": change.one_of(known.STATES),
    "Reservation": change.kind("reservation"),
    "ReqNodes": change.hosts,
    "SchedNodes": change.hosts,
    "NodeList": change.hosts,
}
"""Columns; the others are numbers and times."""

_NODE: Mapping[str, Change] = {
    "NodeName": change.hosts,
    "CPUAlloc": change.plain,
    "CPUTot": change.plain,
    "ActiveFeatures": change.features,
    "Gres": change.gres,
    "RealMemory": change.plain,
    "AllocMem": change.plain,
    "State": change.one_of(known.STATES),
    "Weight": change.plain,
    "Partitions": change.kinds("part"),
    "BootTime": change.plain,
}
_PARTITION: Mapping[str, Change] = {
    "PartitionName": change.kind("part"),
    "Default": change.plain,
    "DefaultTime": change.plain,
    "GraceTime": change.plain,
    "Hidden": change.plain,
    "MaxNodes": change.plain,
    "MaxTime": change.plain,
    "MinNodes": change.plain,
    "Nodes": change.hosts,
    "PriorityTier": change.plain,
    "OverSubscribe": change.one_of(known.SHARING),
    "OverTimeLimit": change.plain,
    "PreemptMode": change.one_of(known.MODES),
    "State": change.one_of(known.PARTITION_STATES),
    "TotalCPUs": change.plain,
    "TotalNodes": change.plain,
}
_RESERVATION: Mapping[str, Change] = {
    "ReservationName": change.kind("reservation"),
    "StartTime": change.plain,
    "EndTime": change.plain,
    "Duration": change.plain,
    "Nodes": change.hosts,
    "NodeCnt": change.plain,
    "PartitionName": change.kind("part"),
    "Flags": change.one_of(known.FLAGS),
    "Users": change.kinds("user"),
    "Accounts": change.kinds("account"),
    "State": change.one_of(known.FLAGS),
}
_NO_RESERVATION = "No reservations in the system"

_CONFIG: Mapping[str, Change] = {
    "ClusterName": change.kind("cluster"),
    "CompleteWait": change.duration,
    "EpilogTimeout": change.duration,
    "KillWait": change.duration,
    "MaxArraySize": change.plain,
    "MinJobAge": change.duration,
    "OverTimeLimit": change.duration,
    "PreemptMode": change.one_of(known.MODES),
    "PreemptParameters": change.parameters,
    "PreemptType": change.plugin,
    "PriorityType": change.plugin,
    "PrivateData": change.one_of(known.PRIVATE),
    "PrologEpilogTimeout": change.duration,
    "SchedulerParameters": change.parameters,
    "SchedulerType": change.plugin,
    "SelectType": change.plugin,
    "SelectTypeParameters": change.select,
    "SLURM_VERSION": change.version,
    "TopologyPlugin": change.plugin,
}
_SWITCH: Mapping[str, Change] = {
    "SwitchName": change.hosts,
    "Level": change.plain,
    "LinkSpeed": change.plain,
    "Nodes": change.hosts,
    "Switches": change.hosts,
}
_BLOCK: Mapping[str, Change] = {
    "BlockName": change.hosts,
    "BlockIndex": change.plain,
    "Nodes": change.hosts,
    "BlockSize": change.plain,
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


def version(disguise: Disguise, text: str) -> str:
    """Return the release."""
    del disguise
    return f"slurm {parse_version(text)}\n"


def _job(disguise: Disguise, row: dict[str, str]) -> dict[str, str]:
    return {name: _JOB.get(name, change.plain)(disguise, row[name]) for name in row}


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
