"""slurmctld's statistics, from ``sdiag``."""

from __future__ import annotations

import re

from slurm.errors import UnreadableOutputError
from slurm.fields import check_whole
from slurm.records import Sdiag

_TAKEN = re.compile(r"^sdiag output at .*\((\d+)\)$", re.MULTILINE)
_SINCE = re.compile(r"^Data since .*\((\d+)\)$", re.MULTILINE)
_BACKFILL = re.compile(r"^Backfilling stats( \(WARNING)?.*$", re.MULTILINE)
_CYCLES = re.compile(r"^\tTotal cycles: (\d+)$", re.MULTILINE)
_TOOK = re.compile(r"^\tLast cycle:\s+(\d+)$", re.MULTILINE)
_LAST = re.compile(r"^\tLast cycle when: (?:N/A|.*\((\d+)\))$", re.MULTILINE)
_MICRO = 1e6


def sdiag_argv() -> list[str]:
    """Return the command that shows slurmctld's statistics."""
    return ["sdiag"]


def parse_sdiag(text: str) -> Sdiag:
    """Return the statistics that ``sdiag`` told.

    Raises:
        UnreadableOutputError: Not such an answer, empty, or cut short.
    """
    check_whole(text, "sdiag")
    backfill = _BACKFILL.search(text)
    if backfill is None:
        raise UnreadableOutputError("sdiag", 0, text, "it tells nothing of backfill")
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
