"""FlowCon's algorithm: one look at all trainers of one resource; pure."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from freetrain.priority.flowcon_growth import begun, measured, spent_s
from freetrain.priority.flowcon_shares import shares
from freetrain.priority.flowcon_state import List, State

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from freetrain.priority.flowcon_growth import Seen
    from freetrain.priority.flowcon_state import Settings, Track


def is_due(state: State, names: Iterable[str], now_s: float) -> bool:
    """Tell whether to look now: it is time, or somebody came or went."""
    return now_s >= state.due_s or {t.name for t in state.tracks} != set(names)


def look(state: State, seen: Sequence[Seen], now_s: float, how: Settings) -> State:
    """Return the state after a look at *seen*; call it when ``is_due`` says so.

    Args:
        state: What the last look returned; ``State()`` for the first.
        seen: The trainers there are, each once.
        now_s: The time, on a clock that never goes back.
        how: The settings; the same at every look.
    """
    known = {track.name: track for track in state.tracks}
    tracks = [_track(known.get(one.name), one, now_s, how) for one in seen]
    resting = bool(tracks) and all(one.place is List.COMPLETING for one in tracks)
    same = known.keys() == {one.name for one in seen}
    doublings = min(state.doublings + 1, how.most_doublings) if resting and same else 0
    due_s = now_s + how.interval_s * 2**doublings
    parts = shares(tracks, how)
    if same and _is_nearly([track.share for track in tracks], parts, how.least_gain):
        parts = [track.share for track in tracks]
    shared = (
        replace(track, share=part) for track, part in zip(tracks, parts, strict=True)
    )
    return State(tuple(shared), due_s, doublings)


def _track(track: Track | None, seen: Seen, now_s: float, how: Settings) -> Track:
    if track is None:
        return begun(seen, now_s)
    after = measured(track, seen, now_s, how.interval_s)
    if after is None:
        return replace(track, spent_s=spent_s(track, seen))
    if after.growth is None:
        return after
    return replace(after, place=moved(track.place, after.growth, how.alpha))


def moved(place: List, growth: float, alpha: float) -> List:
    """Return the list that a trainer in *place* is moved to: two strikes and out."""
    if growth >= alpha:
        return List.NEW
    return List.WATCHING if place is List.NEW else List.COMPLETING


def _is_nearly(old: Sequence[float], new: Sequence[float], least: float) -> bool:
    return all(abs(n - o) <= least * o for o, n in zip(old, new, strict=True))
