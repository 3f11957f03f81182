"""How often clusters of an age and a size lose nodes."""

from __future__ import annotations

import math
from bisect import bisect_right
from math import exp, expm1
from typing import TYPE_CHECKING, Any, NamedTuple

from freetrain.lookahead.counts import amounts_above_0, check_shares, faded

if TYPE_CHECKING:
    from collections.abc import Mapping

AGES_S = (0.0, 70.0, 150.0, 300.0, 600.0, 1200.0, 2400.0, 4800.0, 9600.0)
"""Where classes of age begin, in seconds since the cluster became idle."""

_ENDS_S = (*AGES_S[1:], math.inf)

SIZES = (1, 2, 3, 5, 9, 17, 65)
"""Where classes of size begin, in nodes that are left."""

_PRIOR_HITS = 2.0

_PRIOR_EXPOSURE_S = 3000.0
"""The prior: a hit in 1,500 s."""

_PRIOR_SHARE = (1.0, 1.0, 0.7, 0.6, 0.5, 0.5, 0.5)
"""The prior share that a hit takes, by class of size; counts as one hit."""

_LEAST_SHARE = 1e-6
"""A hit takes one node of a million, or more of them."""


class Risk(NamedTuple):
    """The hits and life that a cluster may expect.

    Attributes:
        hits: [Λ] Hits expected until a horizon, 0 or more.
        life_s: [L] Mean seconds until then that one of its nodes stays.
        share: [f] Share of its nodes that a hit takes.
    """

    hits: float
    life_s: float
    share: float


class Hazard:
    """Counts hits and exposure by age and size.

    The hazard is λ = (hits + 2) / (exposure + 3000 s), in hits a second.

    Args:
        state: From ``to_state``; None to begin.

    Raises:
        ValueError, KeyError, TypeError: The state is not one of these.
    """

    def __init__(self, state: Mapping[str, Any] | None = None) -> None:
        self._hits = [[_PRIOR_HITS] * len(AGES_S) for _ in SIZES]
        self._exposure_s = [[_PRIOR_EXPOSURE_S] * len(AGES_S) for _ in SIZES]
        self._share = list(_PRIOR_SHARE)
        self._shares = [1.0] * len(SIZES)
        if state is not None:
            self._hits = [amounts_above_0(row, len(AGES_S)) for row in state["hits"]]
            self._exposure_s = [
                amounts_above_0(row, len(AGES_S)) for row in state["exposure"]
            ]
            self._share = amounts_above_0(state["share"], len(SIZES))
            self._shares = amounts_above_0(state["shares"], len(SIZES))
            if not len(self._hits) == len(self._exposure_s) == len(SIZES):
                raise ValueError("hazards of other classes of size")
            check_shares(self._share, self._shares)
            check_shares([_LEAST_SHARE * of for of in self._shares], self._share)

    def to_state(self) -> dict[str, Any]:
        """Return the state for JSON."""
        return {
            "hits": [list(row) for row in self._hits],
            "exposure": [list(row) for row in self._exposure_s],
            "share": list(self._share),
            "shares": list(self._shares),
        }

    def meter(self, nodes: int, age_s: float) -> Meter:
        """Return a meter of the exposure of a cluster of *nodes*, from *age_s* on."""
        return Meter(self._exposure_s[bisect_right(SIZES, nodes) - 1], age_s)

    def hit(self, nodes: int, age_s: float, lost: int) -> None:
        """Count that a cluster of *nodes* lost some of them at an age."""
        size = bisect_right(SIZES, nodes) - 1
        self._hits[size][bisect_right(AGES_S, age_s) - 1] += 1.0
        self._share[size] += lost / nodes
        self._shares[size] += 1.0

    def fade(self, keeps: float) -> None:
        """Keep the share *keeps* of the counts, and the whole prior."""
        for hits, exposure_s in zip(self._hits, self._exposure_s, strict=True):
            hits[:] = [faded(count, _PRIOR_HITS, keeps) for count in hits]
            # In place, as meters count into these very rows.
            exposure_s[:] = [
                faded(count, _PRIOR_EXPOSURE_S, keeps) for count in exposure_s
            ]
        for size, share in enumerate(_PRIOR_SHARE):
            self._share[size] = faded(self._share[size], share, keeps)
            self._shares[size] = faded(self._shares[size], 1.0, keeps)

    def risk(
        self, nodes: int, age_s: float, times: float = 1.0, *, horizon_s: float
    ) -> Risk:
        """Return the risk of a cluster of *nodes* until *horizon_s* from now.

        The hazard is followed through the classes of age, as if the size stayed::

            Λ = ∫ c λ(age + t) dt    L = ∫ exp(-f Λ(t)) dt    over t from 0 to horizon

        Args:
            nodes: Its size.
            age_s: Its age.
            times: [c] Its hazard over that of others of its size and age.
            horizon_s: Until when.
        """
        size = bisect_right(SIZES, nodes) - 1
        hits, exposure_s = self._hits[size], self._exposure_s[size]
        share = self._share[size] / self._shares[size]
        place, at_s = bisect_right(AGES_S, age_s) - 1, age_s
        end_s = age_s + horizon_s
        expected, life_s = 0.0, 0.0
        while at_s < end_s:
            ends_s = _ENDS_S[place]
            # A tenth of the time of this loop goes into ``min`` otherwise.
            until_s = ends_s if ends_s < end_s else end_s  # noqa: FURB136
            rate, span_s = times * hits[place] / exposure_s[place], until_s - at_s
            fall = share * rate
            life_s -= exp(-share * expected) * expm1(-fall * span_s) / fall
            expected += rate * span_s
            at_s, place = until_s, place + 1
        return Risk(expected, min(life_s, horizon_s), share)


class Meter:
    """Counts the exposure of one cluster, for as long as it loses no node.

    All clusters are counted at every event. Remembering the class of size and of age
    takes a third of the time of finding them again.

    Attributes:
        age_s: Up to what age its exposure is counted.
    """

    __slots__ = ("_ends_s", "_place", "_row_s", "age_s")

    def __init__(self, row_s: list[float], age_s: float) -> None:
        """Count into *row_s*, exposure by class of age, from *age_s* on."""
        self._row_s, self.age_s = row_s, age_s
        self._place = bisect_right(AGES_S, age_s) - 1
        self._ends_s = _ENDS_S[self._place]

    def live(self, to_s: float) -> None:
        """Count that it lost no node until age *to_s*."""
        while to_s > self._ends_s:
            self._row_s[self._place] += self._ends_s - self.age_s
            self.age_s, self._place = self._ends_s, self._place + 1
            self._ends_s = _ENDS_S[self._place]
        if to_s > self.age_s:
            self._row_s[self._place] += to_s - self.age_s
            self.age_s = to_s
