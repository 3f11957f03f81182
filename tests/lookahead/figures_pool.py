"""What the figures of looking ahead share: days of Summit, and a way to say a gain."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from tests.lookahead.reliability_table import shared_folder, timeline

if TYPE_CHECKING:
    from freetrain.replay.pool import PoolTimeline

OURS = {"hps": "throughput", "imagenet": "price"}
"""The priority that we plan by, by set of trainers."""


@cache
def pool_from(day: float, days: float = 6.0) -> PoolTimeline:
    """Return some days from *day*."""
    return timeline(shared_folder(), from_day=day, days=days)


def gain_text(ours: float, theirs: float) -> str:
    """Return what *ours* is over *theirs*, in per cent."""
    return f"{100 * (ours / theirs - 1):+5.1f} %"
