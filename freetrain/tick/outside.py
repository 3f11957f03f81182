"""All that a tick takes from outside, as one object."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from freetrain.store.turn import Ticker
    from slurm.backend import SlurmBackend


def nothing_happens(point: str) -> None:
    """Do nothing: what ``Outside.reached`` is where nobody tests."""
    del point


@dataclass(frozen=True, slots=True, kw_only=True)
class HookCall:
    """A program to be called once.

    Attributes:
        argv: It and its arguments; no shell sees them.
        folder: Where it starts.
        environment: Its variables, all of them.
        limit_s: After so long it is killed.
    """

    argv: tuple[str, ...]
    folder: Path
    environment: Mapping[str, str]
    limit_s: float


def cannot_call(call: HookCall) -> str:
    """Refuse: what ``Outside.call`` is where nothing may be started."""
    return f"{call.argv[0]} was not called, as nothing may be started here"


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Outside:
    """What a tick takes its time, its numbers and its Slurm from.

    Attributes:
        now_s: Unix time of this host: what turns last by. All else goes by
            slurmctld's clock.
        clock: Seconds from any moment on; only differences mean something.
        ticker: Who ticks.
        is_alive: Tells whether a process of this host lives.
        new_uuid: Makes up a name that no other submission has.
        connect: Makes a back end that answers at most so many requests.
        uid: Our user number.
        path: The PATH with which Slurm's programs are found, for leases.
        home: The user's home, for leases; empty for none.
        python: Absolute path of the Python that leases run.
        agent_patience: How patient agents are (``agent.patience``), empty for usual.
        peak_rss_bytes: The most memory that this process has held.
        call: Calls a hook; returns what went wrong, empty for nothing.
        reached: Called with a name before and after each effect; tests kill there.
    """

    now_s: Callable[[], float]
    clock: Callable[[], float]
    ticker: Ticker
    is_alive: Callable[[int], bool]
    new_uuid: Callable[[], str]
    connect: Callable[[int], SlurmBackend]
    uid: int
    path: str
    home: str
    python: str
    peak_rss_bytes: Callable[[], int]
    agent_patience: str = ""
    call: Callable[[HookCall], str] = cannot_call
    reached: Callable[[str], None] = nothing_happens
