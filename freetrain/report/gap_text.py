"""How far plans were from the best there can be, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from freetrain.replay.gaps import Gap

GAPS = "How far below the best there can be plans were at most, by their own objective:"

_DIGITS = 2
"""Of a percentage: plans on Summit are within a few hundredths."""


def gap_percent(gap: float) -> str:
    """Return a gap as a percentage; one that would read as 0 and is not stays above."""
    least = 10.0 ** -(_DIGITS + 2)
    if 0.0 < gap < least:
        return f"less than {100.0 * least:.{_DIGITS}f} %"
    return f"{100.0 * gap:.{_DIGITS}f} %"


def gap_lines(found: Iterable[tuple[str, Gap | None]]) -> Iterator[str]:
    """Yield one sentence for each name that planned by an objective."""
    for name, gap in found:
        if gap is not None:
            yield f"{name}: {gap_words(gap)}"


def gap_words(gap: Gap) -> str:
    """Return *gap* as a sentence."""
    of = f"all {gap.plans:,}"
    if gap.sampled < gap.plans:
        of = f"{gap.sampled:,} looked at of {gap.plans:,}"
    if not gap.most:
        return f"proven the best ({of})."
    return (
        f"{gap_percent(gap.mean)} in the mean, nine of ten {gap_percent(gap.high)} or "
        f"less, the worst {gap_percent(gap.most)} ({of})."
    )
