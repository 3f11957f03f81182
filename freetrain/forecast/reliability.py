"""How well survivals foretold agree with what came."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from freetrain.forecast.interface import Forecaster


@dataclass(frozen=True, slots=True)
class Event:
    """A moment at which nodes become idle or are taken.

    Attributes:
        time_s: When, ascending in a sequence of events.
        joined: Nodes that are idle from now on.
        left: Nodes that were idle until now.
    """

    time_s: float
    joined: tuple[int, ...]
    left: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Foretold:
    """One survival that was foretold, and what came.

    Attributes:
        said: The probability, 0 to 1.
        came: Whether the node stayed.
    """

    said: float
    came: bool


@dataclass(frozen=True, slots=True)
class Decile:
    """A tenth of all forecasts, those of like probability.

    Attributes:
        said: Their mean.
        came: The share of them that came true.
        count: How many they are.
    """

    said: float
    came: float
    count: int


def foretell(
    events: Sequence[Event],
    forecaster: Forecaster,
    *,
    horizon_s: float,
    every_s: float,
    from_s: float,
) -> list[Foretold]:
    """Show *events* to *forecaster* and ask it again and again for all idle nodes.

    Args:
        events: In order of time, the first with the nodes idle at the beginning.
        forecaster: One that has seen nothing, or what came before.
        horizon_s: Survival over how long is asked for.
        every_s: How often, at the first event after that time; what is still open
            when the events end is not counted.
        from_s: When the asking begins.
    """
    end_s = events[-1].time_s - horizon_s
    open_until: dict[int, list[tuple[float, float]]] = {}
    told: list[Foretold] = []
    ask_s = from_s
    for event in events:
        for node in event.left:
            asked = open_until.pop(node, [])
            told += [Foretold(s, came=due <= event.time_s) for due, s in asked]
        forecaster.see(event.time_s, joined=event.joined, left=event.left)
        for node in event.joined:
            open_until[node] = []
        if ask_s <= event.time_s < end_s:
            ask_s = event.time_s + every_s
            for node, asked in open_until.items():
                survival = forecaster.survival(node, horizon_s)
                asked.append((event.time_s + horizon_s, survival))
    told += [Foretold(s, came=True) for asked in open_until.values() for _, s in asked]
    return told


def deciles(told: Iterable[Foretold]) -> list[Decile]:
    """Return ten equal parts of *told*, by probability ascending; fewer of few."""
    ordered = sorted(told, key=lambda one: one.said)
    parts = np.array_split(np.arange(len(ordered)), 10)
    return [
        Decile(
            said=float(np.mean([ordered[k].said for k in part])),
            came=float(np.mean([ordered[k].came for k in part])),
            count=len(part),
        )
        for part in parts
        if len(part)
    ]
