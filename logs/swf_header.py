"""Header comments of the Standard Workload Format, such as ``; MaxProcs: 100``."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from logs.fields import write_number

if TYPE_CHECKING:
    from logs.trace import JobTrace

_LABEL = re.compile(r"\s*([A-Za-z]+)\s*:\s*(.*)", re.ASCII)
_NUMBER = re.compile(r"\d{1,14}(?:\.\d+)?", re.ASCII)


class MachineSize(NamedTuple):
    """What a header says of the machine.

    Attributes:
        units: Allocation units, or None where it does not say.
        units_per_node: Units that make up a node, 1 or more.
    """

    units: int | None
    units_per_node: int


def comment_text(after_mark: str) -> str:
    """Return a comment without the blank that follows its mark."""
    return after_mark.removeprefix(" ").rstrip()


def machine_size(comments: tuple[str, ...]) -> MachineSize:
    """Return MaxProcs, else MaxNodes, and what one node has of it."""
    processors = int(_number(comments, "MaxProcs") or 0)
    nodes = int(_number(comments, "MaxNodes") or 0)
    if processors and nodes and processors % nodes == 0:
        return MachineSize(processors, processors // nodes)
    return MachineSize(processors or nodes or None, 1)


def unix_start_s(comments: tuple[str, ...]) -> float | None:
    """Return UnixStartTime: Unix time of t = 0, or None where it is not known.

    A 0 or -1 there is a stand-in for "not known", as in converted logs.
    """
    number = _number(comments, "UnixStartTime")
    return number or None


def swf_header(trace: JobTrace) -> tuple[str, ...]:
    """Return the comments that a Standard Workload Format file of *trace* needs.

    These are the trace's own, with Version, UnixStartTime, MaxNodes and MaxProcs
    added where they are missing and corrected where they say otherwise.
    """
    comments = tuple(" ".join(text.splitlines()).rstrip() for text in trace.comments)
    stated: dict[str, str] = {}
    if unix_start_s(comments) != trace.unix_start_s:
        start_s = trace.unix_start_s
        stated["UnixStartTime"] = write_number(-1 if start_s is None else start_s)
    if machine_size(comments) != MachineSize(trace.units, trace.units_per_node):
        stated["MaxNodes"] = str(trace.units // trace.units_per_node)
        stated["MaxProcs"] = str(trace.units)
    version = () if _values(comments, "Version") else ("Version: 2.2",)
    kept = (text for text in comments if _label(text)[0] not in stated)
    return (*version, *kept, *(f"{name}: {value}" for name, value in stated.items()))


def _number(comments: tuple[str, ...], name: str) -> float | None:
    """Return the number that the first *name* begins with: "1152 (8 a node)"."""
    for value in _values(comments, name):
        found = _NUMBER.match(value)
        return float(found.group()) if found else None
    return None


def _values(comments: tuple[str, ...], name: str) -> list[str]:
    labels = (_label(text) for text in comments)
    return [value for label, value in labels if label == name]


def _label(comment: str) -> tuple[str, str]:
    found = _LABEL.match(comment)
    return (found.group(1), found.group(2)) if found else ("", comment)
