"""What an agent knows of its own lease when it starts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from freetrain.broker.lease import LeaseKey


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """One lease, as its agent is told of it.

    Attributes:
        key: The lease.
        node: NodeName, or what stands for it.
        host: The host's own name.
        pid: The agent's process number.
        limit_s: Its time limit.
        grace_s: How long it has from Slurm's first word to the kill.
    """

    key: LeaseKey
    node: str
    host: str
    pid: int
    limit_s: float
    grace_s: float
