"""What the page tells of forecasts: what is expected, and what came."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from freetrain.broker.lease import LeaseKey
from freetrain.exchange.layout import lease_name

if TYPE_CHECKING:
    from freetrain.tick.foreseeing import Outlook

_MOST = 20
"""Leases that ended last; the store keeps more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedLine:
    """What is expected of a node.

    Attributes:
        horizon_s: How far ``leaves`` reaches, seconds.
        leaves: Probability that it leaves within the horizon, 0 to 1.
        even_s: It stays so long with a probability of a half or more.
        together: How many nodes are expected to leave with it, itself included.
        promised_s: When it is promised to somebody, Unix time; None for never.
        is_learning: Whether too little was seen to plan by that.
    """

    horizon_s: float
    leaves: float
    even_s: float
    together: int
    promised_s: float | None
    is_learning: bool


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
        ended_s: When the lease was seen to be over, Unix time.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class PromiseLine:
    """The interval between what was promised and what came, by lead.

    Attributes:
        lead_s: Promises told so long ahead, or longer, up to the next line.
        nodes: How many nodes were promised and have left since.
        early: Share of these that left more than a minute before.
        late: Share of these that left more than a minute after.
        low_s: A tenth of them came no later than this after the promise.
        middle_s: The same of a half.
        high_s: The same of nine tenths.
    """

    lead_s: float
    nodes: int
    early: float
    late: float
    low_s: float
    middle_s: float
    high_s: float


def expected_line(outlook: Outlook | None, node: str) -> ExpectedLine | None:
    """Return what is expected of *node*; None where nobody looks ahead."""
    expected = None if outlook is None else outlook.forecast.expected(node)
    if expected is None:
        return None
    return ExpectedLine(
        horizon_s=expected.horizon_s,
        leaves=expected.leaves,
        even_s=expected.even_s,
        together=expected.together,
        promised_s=expected.promised_s,
        is_learning=expected.is_learning,
    )


def came_lines(outlook: Outlook | None) -> tuple[CameLine, ...]:
    """Return what came of the leases that ended last, as the last look told."""
    if outlook is None:
        return ()
    ended = [
        (told.ended_s, told)
        for told in outlook.told.values()
        if told.ended_s is not None
    ]
    ended.sort(key=lambda one: -one[0])
    return tuple(
        CameLine(
            name=lease_name(LeaseKey(told.uuid, told.task)),
            node=told.node,
            at_s=told.at_s,
            horizon_s=told.horizon_s,
            leaves=told.leaves,
            even_s=told.even_s,
            promised_s=told.promised_s,
            ended_s=ended_s,
            came=told.came,
        )
        for ended_s, told in ended[:_MOST]
    )


def promise_lines(outlook: Outlook | None) -> tuple[PromiseLine, ...]:
    """Return what came against what was promised, by lead."""
    if outlook is None:
        return ()
    return tuple(
        PromiseLine(
            lead_s=one.lead_s,
            nodes=one.nodes,
            early=one.early,
            late=one.late,
            low_s=one.low_s,
            middle_s=one.middle_s,
            high_s=one.high_s,
        )
        for one in outlook.forecast.intervals()
    )
