"""The outlooks of all trainers, kept while little has changed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from freetrain.quality.broken import broken_outlook
from freetrain.quality.estimate import outlook_from
from freetrain.quality.history import History

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from freetrain.quality.fitted import FittedOutlook
    from freetrain.quality.outlook import Better, Outlook, Point

REFIT_SHARE = 0.1
"""By how much of its usable points a history grows before it is fitted again."""


@dataclass(slots=True)
class _Entry:
    """What is remembered of one trainer."""

    better: Better
    history: History
    told: int = 0
    last: Point | None = None
    fitted_points: int = 0
    outlook: FittedOutlook | None = None


class Outlooks:
    """Answers as ``outlook_of`` does, for the price of what is new.

    Between fits an outlook's points are all there and its forecast starts where the
    trainer is; only its curve and its scale are some points old. Answers depend on
    the looks made before, and on nothing else.
    """

    def __init__(self, *, refit_share: float = REFIT_SHARE) -> None:
        self._refit_share = refit_share
        self._entries: dict[str, _Entry] = {}

    def look(
        self, name: str, points: Sequence[Point], better: Better
    ) -> Outlook | None:
        """Return the outlook of the trainer *name*, None where nothing can be said.

        Args:
            name: Unique among trainers.
            points: All it has told, in order; what was given at the last look comes
                first. Where it does not, everything starts over.
            better: Which values are good.
        """
        entry = self._entries.get(name)
        if entry is None or not _continues(entry, points, better):
            entry = self._entries[name] = _Entry(better, History())
        new = points[entry.told :]
        if new:
            entry.history.extend(new)
            entry.told, entry.last = len(points), points[-1]
            self._move_on(entry)
        return entry.outlook or broken_outlook(entry.history, better)

    def keep(self, names: Iterable[str]) -> None:
        """Forget all trainers but *names*."""
        kept = set(names)
        self._entries = {k: v for k, v in self._entries.items() if k in kept}

    def _move_on(self, entry: _Entry) -> None:
        count = len(entry.history)
        old = entry.outlook
        grown = count - entry.fitted_points
        if old is None or not 0 <= grown < self._refit_share * entry.fitted_points:
            self._fit(entry)
            return
        entry.outlook = old.refreshed(entry.history)
        if entry.outlook.is_diverging != old.is_diverging:
            self._fit(entry)

    def _fit(self, entry: _Entry) -> None:
        entry.outlook = outlook_from(entry.history, entry.better)
        entry.fitted_points = len(entry.history)


def _continues(entry: _Entry, points: Sequence[Point], better: Better) -> bool:
    """Tell whether *points* begin with those of the last look."""
    if entry.better is not better or len(points) < entry.told:
        return False
    return (
        entry.told == 0
        or points[entry.told - 1] is entry.last
        or (points[entry.told - 1] == entry.last)
    )
