"""What a trainer has shown of its speed and its rescale costs, over all fragments."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeVar

from freetrain.scaling.fragment import Paid, Seen, paid_for, seen_in
from freetrain.scaling.median import weighted_median

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from freetrain.scaling.fragment import Fragment, Rescale

_MOST_SEEN = 7
"""Speeds kept of one size: three absurd ones do not move the median."""

_MOST_PAID = 9

_Kept = TypeVar("_Kept", bound=Seen | Paid)


@dataclass(frozen=True, slots=True)
class LearnedScaling:
    """Everything that is remembered of a trainer's fragments; a value.

    Attributes:
        seen: By node count, the newest speeds, ascending in time.
        paid: By kind, what the newest rescales cost, ascending in time.
    """

    seen: Mapping[int, tuple[Seen, ...]] = field(
        default_factory=lambda: MappingProxyType({})
    )
    paid: Mapping[Rescale, tuple[Paid, ...]] = field(
        default_factory=lambda: MappingProxyType({})
    )

    def with_fragment(self, fragment: Fragment) -> LearnedScaling:
        """Return what is known with *fragment* too.

        A fragment that was added before is replaced, so that one under way may be
        added again and again as it goes on.
        """
        return self.merged(_from_one(fragment))

    def merged(self, newer: LearnedScaling) -> LearnedScaling:
        """Return what both say; where both know a fragment, *newer* is right."""
        seen, paid = dict(self.seen), dict(self.paid)
        for nodes, speeds in newer.seen.items():
            seen[nodes] = _newest(seen.get(nodes, ()), speeds, _MOST_SEEN)
        for kind, costs in newer.paid.items():
            paid[kind] = _newest(paid.get(kind, ()), costs, _MOST_PAID)
        return LearnedScaling(MappingProxyType(seen), MappingProxyType(paid))

    def cost_s(self, kind: Rescale, *, assumed_s: float) -> float:
        """Return seconds without training: a median that *assumed_s* belongs to.

        So the first rescale meets the assumption halfway, and no single one that
        took absurdly long decides.
        """
        seconds = [assumed_s, *(one.seconds for one in self.paid.get(kind, ()))]
        return weighted_median(seconds, [1.0] * len(seconds))


def _from_one(fragment: Fragment) -> LearnedScaling:
    seen, paid = seen_in(fragment), paid_for(fragment)
    return LearnedScaling(
        {} if seen is None else {fragment.nodes: (seen,)},
        {} if paid is None else {paid[0]: (paid[1],)},
    )


def _newest(
    known: Iterable[_Kept], newer: Iterable[_Kept], most: int
) -> tuple[_Kept, ...]:
    """Return both by the time their fragments began, the last *most* of them."""
    by_start = {one.began_s: one for one in (*known, *newer)}
    return tuple(by_start[began_s] for began_s in sorted(by_start)[-most:])
