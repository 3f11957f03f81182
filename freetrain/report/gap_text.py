"""How far plans were from the best there can be, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from freetrain.toml.wording import per_cent

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from freetrain.replay.gaps import Gap

GAPS = "How far plans were below the best there can be, at most, by what they go by:"

_DIGITS = 2
"""Of a percentage: plans on Summit are within a few hundredths."""

_LEAST = 10.0 ** -(_DIGITS + 2)


def gap_percent(gap: float) -> str:
    """Return a gap as a percentage; one that only would read as 0 as less than that."""
    if 0.0 < gap < _LEAST:
        return f"< {_percent(_LEAST)}"
    return _percent(gap)


def _percent(gap: float) -> str:
    return per_cent(gap, f".{_DIGITS}f")


def gap_lines(found: Iterable[tuple[str, Gap | None]]) -> Iterator[str]:
    """Yield one sentence for each name that planned by an objective."""
    for name, gap in found:
        if gap is not None:
            yield f"{name}: {gap_words(gap)}"


def gap_words(gap: Gap) -> str:
    """Return *gap* in a few words, and how many plans it is of."""
    some = (
        f"{gap.sampled:,} of {gap.plans:,}"
        if gap.sampled < gap.plans
        else f"all {gap.plans:,}"
    )
    if not gap.most:
        return f"proven the best ({some})"
    return (
        f"mean {gap_percent(gap.mean)}, nine of ten within {_within(gap.high)}, "
        f"worst {gap_percent(gap.most)} ({some})"
    )


def _within(gap: float) -> str:
    """Return *gap* as a bound; of one that only would read as 0 a larger one."""
    return _percent(max(gap, _LEAST) if gap else gap)
