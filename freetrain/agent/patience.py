"""How long an agent waits for what; tests and demo are less patient."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

from freetrain.errors import UsageError

VARIABLE = "FREETRAIN_AGENT_PATIENCE"


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """Times that an agent goes by.

    Attributes:
        poll_s: Between two looks.
        beat_s: Between two heartbeats.
        scan_s: Between two looks at the processes of the node.
        silent_s: A heartbeat that does not change for so long is a lost lease.
        stuck_s: A process that is stopped for so long is stuck.
        ready_patience_s: For a member's first heartbeat.
        ahead_patience_s: For a world that was launched ahead to be ready.
        begin_patience_s: For an elastic program to begin, from its launch on. Its
            imports take minutes on some file systems; an mpirun whose ranks end at
            once may wait for them for ever.
        turn_s: Between what one survivor would do and the next one's doing it.
        gather_s: For other leases to get their notice too, before one that leaves makes
            the next generation: Slurm takes several at once.
        farewell_s: For ranks of a world that has committed to end by themselves,
            where a lease of it leaves; three times as long for its daemons.
        rescue_s: For a world whose head is lost to commit and end.
        idle_s: Without work, before the lease is given back.
        sweep_grace_s: Between TERM and KILL for processes of a world that is over.
    """

    poll_s: float = 0.1
    beat_s: float = 1.0
    scan_s: float = 1.0
    silent_s: float = 10.0
    stuck_s: float = 10.0
    ready_patience_s: float = 20.0
    ahead_patience_s: float = 30.0
    begin_patience_s: float = 600.0
    turn_s: float = 1.0
    gather_s: float = 0.15
    farewell_s: float = 0.3
    rescue_s: float = 2.0
    idle_s: float = 900.0
    sweep_grace_s: float = 2.0


def read_patience(text: str) -> Patience:
    """Return the defaults but for what *text* says, ``silent_s=3,stuck_s=3``.

    Raises:
        UsageError: It says something that cannot be.
    """
    known = {field.name for field in fields(Patience)}
    chosen = {}
    for word in filter(None, text.split(",")):
        name, _, value = word.partition("=")
        if name not in known:
            raise _wrong(word, f"names are {', '.join(sorted(known))}")
        chosen[name] = _seconds(word, value)
    return Patience(**chosen)


def _seconds(word: str, value: str) -> float:
    try:
        seconds = float(value)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < math.inf:
        raise _wrong(word, "times are seconds above 0")
    return seconds


def _wrong(word: str, why: str) -> UsageError:
    return UsageError(
        f"{VARIABLE} says {word[:80]!r}: {why}. The agent did not start; correct the "
        f"variable, or unset it."
    )
