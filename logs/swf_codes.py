"""Numbers that the Standard Workload Format has for what other logs name."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from logs.trace import NO_VALUE

if TYPE_CHECKING:
    from collections.abc import Iterable

_NUMBER = re.compile(r"0|[1-9]\d{0,14}", re.ASCII)
_STATUSES = ("0", "1", "5")
_FAILED, _COMPLETED, _CANCELLED = map(int, _STATUSES)
_FAILURES = (
    "BOOT_FAIL",
    "DEADLINE",
    "FAILED",
    "NODE_FAIL",
    "OUT_OF_MEMORY",
    "PREEMPTED",
    "REQUEUED",
    "REVOKED",
    "TIMEOUT",
)


def numbered(labels: Iterable[str]) -> dict[str, int]:
    """Return a number for each of *labels*; the empty one gets ``NO_VALUE``.

    Labels that are all whole numbers already stand for themselves; otherwise
    each gets one from 1, in the order in which they appear.
    """
    distinct = dict.fromkeys(label for label in labels if label)
    if all(_NUMBER.fullmatch(label) for label in distinct):
        numbers = {label: int(label) for label in distinct}
    else:
        numbers = {label: place for place, label in enumerate(distinct, 1)}
    return {"": NO_VALUE, **numbers}


def status_code(state: str) -> int:
    """Return the status for a final state: the format's own, or Slurm's word."""
    if state in _STATUSES:
        return int(state)
    if state.startswith("COMPLETED"):
        return _COMPLETED
    if state.startswith("CANCELLED"):
        return _CANCELLED
    return _FAILED if state.startswith(_FAILURES) else NO_VALUE
