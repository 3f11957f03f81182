"""What the page tells of leases that ended: what was expected, and what came."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from freetrain.broker.lease import LeaseKey
from freetrain.exchange.layout import lease_name

if TYPE_CHECKING:
    from freetrain.tick.foreseeing import Outlook


@dataclass(frozen=True, slots=True, kw_only=True)
class CameLine:
    """What had been expected of a lease's node when it began to run, and what came.

    Attributes:
        name: The lease's name, as files have it.
        node: Its node.
        at_s: When it was seen to run first, Unix time.
        horizon_s: How far ``leaves`` reaches, seconds.
        leaves: Probability that the node leaves within the horizon, as said then.
        even_s: It stays so long with a probability of a half or more, as said then.
        promised_s: When it was promised to somebody, Unix time; None for never.
        ended_s: When the lease was over, as far as looks tell, Unix time.
        came: How it ended.
    """

    name: str
    node: str
    at_s: float
    horizon_s: float
    leaves: float
    even_s: float
    promised_s: float | None
    ended_s: float
    came: str


def came_lines(outlook: Outlook) -> tuple[CameLine, ...]:
    """Return what came of the leases that ended last, as the last look told."""
    return tuple(
        CameLine(
            name=lease_name(LeaseKey(told.uuid, told.task)),
            node=told.node,
            at_s=told.at_s,
            horizon_s=told.horizon_s,
            leaves=told.leaves,
            even_s=told.even_s,
            promised_s=told.promised_s,
            ended_s=told.ended_s,
            came=told.came,
        )
        for told in outlook.ended
        if told.ended_s is not None
    )
