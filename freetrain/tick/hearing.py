"""Which agents answer, as far as their heartbeat files tell a tick."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from freetrain.broker.lease import LeaseState
from freetrain.exchange.errors import UnreadableFileError
from freetrain.exchange.heartbeat import AgentState, read_heartbeat
from freetrain.store.beats import SeenBeat

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from freetrain.broker.lease import Lease, LeaseKey
    from freetrain.exchange.heartbeat import Heartbeat
    from freetrain.exchange.layout import StateDir

SILENT_S = 20.0
"""An agent that told the same number for so long is not there; it beats each second."""

_GOING = {AgentState.LEAVING, AgentState.ENDED}


@dataclass(frozen=True, slots=True)
class Hearing:
    """What agents tell.

    Attributes:
        beats: The last heartbeat of each running lease that has one.
        seen: What to remember until the next tick.
        silent: Running leases that no generation may be formed of.
        first: Leases that are heard of for the first time.
        absent: Running leases of which no agent was ever heard.
        unheard_s: For how long running leases have told nothing new, or nothing at
            all since they started.
    """

    beats: Mapping[LeaseKey, Heartbeat]
    seen: tuple[SeenBeat, ...]
    silent: frozenset[LeaseKey]
    first: frozenset[LeaseKey]
    absent: frozenset[LeaseKey]
    unheard_s: Mapping[LeaseKey, float]


def hear(
    folder: StateDir,
    leases: Iterable[Lease],
    before: Mapping[LeaseKey, SeenBeat],
    *,
    now_s: float,
) -> Hearing:
    """Return what the agents of running *leases* tell.

    Whether an agent lives is told by its number changing from one tick to a later
    one; until then it is believed. The clocks of two nodes are never compared.

    Raises:
        OSError: The files cannot be read.
    """
    running = {one.key: one for one in leases if one.state is LeaseState.RUNNING}
    told = {key: _beat(folder, key) for key in running}
    beats = {key: beat for key, beat in told.items() if beat is not None}
    seen = {key: _seen(key, beat, before, now_s) for key, beat in beats.items()}
    lost = {key for key, one in seen.items() if now_s - one.since_s >= SILENT_S}
    going = {key for key, beat in beats.items() if beat.state in _GOING}
    absent = told.keys() - beats.keys()
    starts_s = {key: running[key].start_s or now_s for key in absent}
    since_s = {key: one.since_s for key, one in seen.items()} | starts_s
    return Hearing(
        beats=beats,
        seen=tuple(seen.values()),
        silent=frozenset(absent | going | lost),
        first=frozenset(beats.keys() - before.keys()),
        absent=frozenset(absent),
        unheard_s={key: now_s - then_s for key, then_s in since_s.items()},
    )


def _beat(folder: StateDir, key: LeaseKey) -> Heartbeat | None:
    try:
        return read_heartbeat(folder.lease(key).heartbeat)
    except UnreadableFileError:  # no honest agent writes such a thing
        return None


def _seen(
    key: LeaseKey,
    beat: Heartbeat,
    before: Mapping[LeaseKey, SeenBeat],
    now_s: float,
) -> SeenBeat:
    last = before.get(key)
    if last is not None and last.beat == beat.beat and last.since_s <= now_s:
        return last
    return SeenBeat(key, beat.beat, now_s)
