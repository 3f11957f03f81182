"""Heartbeats: an agent's file about itself, written anew every few seconds.

Whether it beats is told by its number changing, on the watcher's own clock; clocks
of two nodes are never compared.
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from freetrain.exchange.errors import UnreadableFileError

if TYPE_CHECKING:
    from pathlib import Path


class AgentState(StrEnum):
    """What an agent is about."""

    IDLE = "idle"
    TRAINING = "training"
    LEAVING = "leaving"
    ENDED = "ended"


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """One beat.

    Attributes:
        beat: Counts up; the agent is alive while it changes.
        t: When, Unix time of the agent's node; for people.
        node: NodeName.
        host: The host's own name.
        pid: The agent's process number there.
        state: What it is about.
        trainer: Whose generation it belongs to, empty for none.
        generation: Which, 0 for none.
        is_stuck: Whether processes of that generation are stopped on its node.
        swept_generation: Up to which generation of that trainer no process is left
            on its node.
    """

    beat: int
    t: float
    node: str
    host: str
    pid: int
    state: AgentState = AgentState.IDLE
    trainer: str = ""
    generation: int = 0
    is_stuck: bool = False
    swept_generation: int = 0


def write_heartbeat(path: Path, beat: Heartbeat) -> None:
    """Replace the heartbeat at *path*, whole; a lost one is none the worse.

    Raises:
        OSError: It could not be written.
    """
    temporary = path.with_name(f".{path.name}.{beat.pid}")
    try:
        temporary.write_text(json.dumps(asdict(beat)), encoding="utf-8")
        temporary.replace(path)
    except OSError:
        with suppress(OSError):
            temporary.unlink()
        raise


def read_heartbeat(path: Path) -> Heartbeat | None:
    """Return the last beat; None before the first.

    Raises:
        UnreadableFileError: It is no heartbeat.
        OSError: It cannot be read.
    """
    try:
        fields = json.loads(path.read_bytes())
        return Heartbeat(**{**fields, "state": AgentState(fields["state"])})
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, KeyError) as error:
        raise UnreadableFileError(path, error) from error
