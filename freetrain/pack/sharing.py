"""Who gets how much of the CPUs: FlowCon, or all the same."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from freetrain.pack.pack import SharingName
from freetrain.priority.flowcon_look import is_due, look
from freetrain.priority.flowcon_state import Settings, State, from_json, to_json

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from freetrain.pack.pack import Pack
    from freetrain.priority.flowcon_growth import Seen


class Sharing(Protocol):
    """Says what part of the CPUs each member gets."""

    def is_due(self, names: Iterable[str], now_s: float) -> bool:
        """Tell whether to look now."""
        ...

    def look(self, seen: Sequence[Seen], now_s: float) -> dict[str, float]:
        """Return each one's part, above 0; 1 in all."""
        ...

    def measured_s(self, name: str) -> float:
        """Return until when the values of a member need not be shown any more."""
        ...

    def remember(self) -> dict[str, object]:
        """Return what it must be told when the pack goes on elsewhere, as JSON."""
        ...

    def words(self, name: str) -> str:
        """Return what it thinks of a member."""
        ...


def sharing_of(pack: Pack, remembered: Mapping[str, object]) -> Sharing:
    """Return the sharing that *pack* wants, going on from what was remembered."""
    if pack.sharing is SharingName.FAIR:
        return FairSharing()
    how = Settings(interval_s=pack.interval_s, alpha=pack.alpha)
    return FlowConSharing(how, from_json(remembered))


class FairSharing:
    """All the same, whatever they do."""

    def __init__(self) -> None:
        self._names: frozenset[str] = frozenset()

    def is_due(self, names: Iterable[str], now_s: float) -> bool:
        """Tell whether somebody came or went."""
        del now_s
        return self._names != frozenset(names)

    def look(self, seen: Sequence[Seen], now_s: float) -> dict[str, float]:
        """Return equal parts."""
        del now_s
        self._names = frozenset(one.name for one in seen)
        return {one.name: 1 / len(seen) for one in seen}

    def measured_s(self, name: str) -> float:
        """Nobody's values are looked at."""
        del name
        return float("inf")

    def remember(self) -> dict[str, object]:
        """Nothing is."""
        return {}

    def words(self, name: str) -> str:
        """Nothing is thought."""
        del name
        return "equal"


class FlowConSharing:
    """By growth efficiency."""

    def __init__(self, how: Settings, state: State = State()) -> None:  # noqa: B008
        self._how = how
        self._state = state

    def is_due(self, names: Iterable[str], now_s: float) -> bool:
        """Tell whether it is time, or somebody came or went."""
        return is_due(self._state, names, now_s)

    def look(self, seen: Sequence[Seen], now_s: float) -> dict[str, float]:
        """Return each one's part."""
        self._state = look(self._state, seen, now_s, self._how)
        return self._state.shares

    def measured_s(self, name: str) -> float:
        """Return the end of the member's last measured stretch."""
        found = [t.measured_s for t in self._state.tracks if t.name == name]
        return found[0] if found else 0.0

    def remember(self) -> dict[str, object]:
        """Return lists and back-off."""
        return to_json(self._state)

    def words(self, name: str) -> str:
        """Return a member's list and growth."""
        for track in self._state.tracks:
            if track.name == name:
                growth = "-" if track.growth is None else f"{track.growth:.3g}"
                return f"{track.place} {growth}"
        return "-"
