"""What FlowCon remembers from one look to the next; JSON goes in and out."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

DEFAULT_ALPHA = 0.03
"""The authors' threshold."""


class List(StrEnum):
    """The list that a trainer is in."""

    NEW = "new"
    WATCHING = "watching"
    COMPLETING = "completing"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How FlowCon looks.

    Attributes:
        interval_s: Time between two looks while anybody grows; the unit of time in
            which growth is told.
        alpha: Growth efficiency below which a trainer gets a strike.
        most_doublings: How often the interval doubles at the most.
        least_gain: Shares that would change by less than this part stay.
    """

    interval_s: float
    alpha: float = DEFAULT_ALPHA
    most_doublings: int = 6
    least_gain: float = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Track:
    """What is remembered of one trainer. Levels are medians; lower is better.

    Attributes:
        name: The trainer.
        measured_s: The end of the last stretch of time whose level is known.
        used_s: What it had used by then: seconds of the whole resource.
        spent_s: What it has used since then.
        first: The level that it began with; None before its first value.
        best: The lowest level so far; likewise.
        last: The level of the last stretch; likewise.
        growth: Growth efficiency over the last stretch; None where nobody knows.
        place: The list that it is in.
        share: Its part of the resource, 0 to 1.
    """

    name: str
    measured_s: float
    used_s: float = 0.0
    spent_s: float = 0.0
    first: float | None = None
    best: float | None = None
    last: float | None = None
    growth: float | None = None
    place: List = List.NEW
    share: float = 0.0


@dataclass(frozen=True, slots=True)
class State:
    """What is remembered of all.

    Attributes:
        tracks: The trainers at the last look, in their order.
        due_s: When the next look is due, if nobody comes or goes before.
        doublings: How often the interval has doubled.
    """

    tracks: tuple[Track, ...] = ()
    due_s: float = 0.0
    doublings: int = 0

    @property
    def shares(self) -> dict[str, float]:
        """The part of the resource that each trainer is to have; 1 in all."""
        return {track.name: track.share for track in self.tracks}


def to_json(state: State) -> dict[str, object]:
    """Return *state* as JSON has it."""
    told = asdict(state)
    return told | {"tracks": list(told["tracks"])}


def from_json(told: Mapping[str, object]) -> State:
    """Return what ``to_json`` was given; a beginning where *told* is nothing of it."""
    try:
        tracks = told["tracks"]
        if not isinstance(tracks, list):
            return State()
        read = tuple(
            Track(**{**track, "place": List(track["place"])}) for track in tracks
        )
        return State(read, float(str(told["due_s"])), int(str(told["doublings"])))
    except (KeyError, TypeError, ValueError):
        return State()
