"""Promised ends of idle nodes, scored by outcomes: how late or early a node leaves.

A *promise*: Slurm plans a waiting job on a node from a time on. :class:`Promises`
learns when promised nodes really leave, by how long ahead the promise was made, and
:class:`Delays` counts how much earlier or later than promised they left.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from freetrain.lookahead.base import Prospect, amount, members, table, whole

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

LEADS_S = (0.0, 120.0, 300.0, 600.0, 1_800.0, 3_600.0)
"""Where kinds of promise begin, in seconds ahead of the promised end."""

PARTS = (0.0, 0.25, 0.5, 0.75, 0.9, 1.0, 1.1, 1.5, 2.0)
"""Where classes of time begin, in parts of the lead since the promise was made."""

_ENDS = (*PARTS[1:], math.inf)

NEAR_S = 3_600.0
"""Of promises further ahead the next minutes depend less than on age."""

_PRIOR = 2.0
"""Weight of the prior, in leads lived through."""

_PRIOR_AFTER = 4.0
"""Prior of promised nodes: they leave, in the mean a quarter of a lead late."""

_SHORTEST_S = 30.0
"""A promise that is due or overdue counts as one made so long ago."""

_PATIENCE_S = 14_400.0
"""A promise that has not come true so long after its end is dropped."""


@dataclass(frozen=True, slots=True)
class Promise:
    """A job is planned on a node from a time on.

    Attributes:
        end_s: When the node's idle time ends, by the last snapshot's plan and clock.
        by: The job, such as its number: it takes all nodes promised to it at once.
    """

    end_s: float
    by: str

    def is_near(self, now_s: float) -> bool:
        """Tell whether its end is so near that the promise is used."""
        return self.end_s - now_s < NEAR_S


class Promises:
    """Learns when promised nodes leave, by how long ahead the promise was made.

    For each kind of promise a life table: hazards by the part of the lead that has
    passed since the promise was made, whichever job took the node, and whether or not
    the promise was moved or withdrawn meanwhile. A node counts once for each kind and
    idle interval. Deterministic and causal.

    Args:
        state: From ``to_state``; None to begin.

    Raises:
        ValueError, KeyError, TypeError: The state is not one of these.
    """

    def __init__(self, state: Mapping[str, Any] | None = None) -> None:
        self._hits = [[0.0] * len(PARTS) for _ in LEADS_S]
        self._exposure = [[0.0] * len(PARTS) for _ in LEADS_S]
        self._delays = [Delays() for _ in LEADS_S]
        self._open: list[_OpenPromise] = []
        if state is not None:
            self._hits = table(state["hits"], len(LEADS_S), len(PARTS))
            self._exposure = table(state["exposure"], len(LEADS_S), len(PARTS))
            self._delays = _delays(state["delays"])
            self._open = [_open_promise_from(row) for row in state["told"]]

    def see(
        self, now_s: float, *, left: Collection[int], promised: Mapping[int, Promise]
    ) -> None:
        """Learn from a snapshot.

        Args:
            now_s: Never earlier than the last one.
            left: Nodes that were idle at the last one and are no more.
            promised: Promises of nodes that are idle now; other nodes have none.
        """
        self._settle(now_s, frozenset(left))
        self._remember(now_s, promised)

    def forget_pool(self) -> None:
        """Forget the open promises, but nothing that was learned."""
        self._open.clear()

    def prospect(
        self, plain: Prospect, *, lead_s: float, usable_s: float, horizon_s: float
    ) -> Prospect:
        """Return the prospect of nodes that are promised to one job.

        The hazard by the part u of the lead is that of earlier promises of this kind;
        its prior λ0 is the hazard without the promise, until that is due::

            λ(u) = (hits + 2 λ0(u)) / (exposure + 2)    a lead
            λ0(u) = f Λ lead / horizon until u = 1, then 4 or more

        Args:
            plain: Their prospect without the promise, until *horizon_s*.
            lead_s: Seconds from now to the promised end; below 0 where overdue.
            usable_s: Seconds from now until they must be left in any case, such as
                the end of a lease; ``math.inf`` for never.
            horizon_s: How far the prospect reaches, seconds.
        """
        until_s = max(0.0, min(usable_s, horizon_s))
        rate = departures_per_s(plain, horizon_s)
        life_s, hits = self._lived(rate, lead_s, until_s)
        if usable_s < horizon_s:
            return Prospect(life_s, 1.0, 1.0)
        return Prospect(life_s, -math.expm1(-hits), 1.0)

    def expected(
        self,
        plain: Prospect,
        promise: Promise | None,
        *,
        now_s: float,
        usable_s: float,
        horizon_s: float,
    ) -> Prospect:
        """Return the prospect of nodes, whether they are promised or not.

        Args:
            plain: Their prospect without a promise, until *horizon_s*.
            promise: Theirs; None for none.
            now_s: The moment, on the clock of the promise.
            usable_s: As for ``prospect``.
            horizon_s: How far the prospect reaches, seconds.
        """
        if promise is not None:
            lead_s = promise.end_s - now_s
            return self.prospect(
                plain, lead_s=lead_s, usable_s=usable_s, horizon_s=horizon_s
            )
        if usable_s >= horizon_s:
            return plain
        rate = departures_per_s(plain, horizon_s)
        lived_s = -math.expm1(-rate * usable_s) / rate if rate else usable_s
        return Prospect(max(0.0, lived_s), 1.0, 1.0)

    def survival(self, rate: float, *, lead_s: float, after_s: float) -> float:
        """Return the probability that a promised node is idle still *after_s* from now.

        Args:
            rate: Its expected departures a second without the promise.
            lead_s: Seconds from now to the promised end.
            after_s: How far ahead, seconds.
        """
        return math.exp(-self._lived(rate, lead_s, after_s)[1])

    def intervals(self) -> tuple[DelayInterval, ...]:
        """Return delays against promises, by kind; empty kinds left out."""
        found = (
            delays.interval(lead_s)
            for lead_s, delays in zip(LEADS_S, self._delays, strict=True)
        )
        return tuple(interval for interval in found if interval is not None)

    def _lived(self, rate: float, lead_s: float, until_s: float) -> tuple[float, float]:
        """Return the mean seconds lived until *until_s*, and the departures by then."""
        whole_s = max(lead_s, _SHORTEST_S)
        kind, at = _kind(whole_s), 0.0 if lead_s > 0.0 else 1.0
        end = at + until_s / whole_s
        life_s, gone, place = 0.0, 0.0, _part(at)
        while at < end:
            until = min(end, _ENDS[place])
            hazard, step = self._hazard(kind, place, rate * whole_s), until - at
            lived = -math.expm1(-hazard * step) / hazard if hazard > 0.0 else step
            life_s += math.exp(-gone) * lived * whole_s
            gone += hazard * step
            at, place = until, place + 1
        return min(life_s, until_s), gone

    def _hazard(self, kind: int, place: int, a_lead: float) -> float:
        """Return departures a lead, in a class of time."""
        prior = a_lead if PARTS[place] < 1.0 else max(a_lead, _PRIOR_AFTER)
        hits, exposure = self._hits[kind][place], self._exposure[kind][place]
        return (hits + _PRIOR * prior) / (exposure + _PRIOR)

    def _settle(self, now_s: float, left: frozenset[int]) -> None:
        """Score the open promises by departures until *now_s*."""
        for promise in self._open:
            part = (now_s - promise.at_s) / (promise.end_s - promise.at_s)
            self._live(promise, part)
            gone = promise.nodes & left
            if gone:
                self._hits[promise.kind][_part(part)] += len(gone) * promise.weight
                self._delays[promise.kind].add(now_s - promise.end_s, len(gone))
                promise.nodes -= gone
        self._open = [
            promise
            for promise in self._open
            if promise.nodes and now_s <= promise.end_s + _PATIENCE_S
        ]

    def _live(self, promise: _OpenPromise, part: float) -> None:
        row, weight = self._exposure[promise.kind], len(promise.nodes) * promise.weight
        place = _part(promise.counted)
        while promise.counted < part:
            until = min(part, _ENDS[place])
            row[place] += (until - promise.counted) * weight
            promise.counted, place = until, place + 1

    def _remember(self, now_s: float, promised: Mapping[int, Promise]) -> None:
        """Remember promises that are made for the first time, by kind."""
        known = {
            (node, promise.kind) for promise in self._open for node in promise.nodes
        }
        fresh: dict[tuple[float, int], set[int]] = {}
        for node, promise in promised.items():
            kind = _kind(promise.end_s - now_s)
            if promise.end_s > now_s and (node, kind) not in known:
                fresh.setdefault((promise.end_s, kind), set()).add(node)
        self._open += [
            _OpenPromise(now_s, end_s, kind, len(nodes), nodes)
            for (end_s, kind), nodes in fresh.items()
        ]

    def to_state(self) -> dict[str, Any]:
        """Return the state for JSON."""
        return {
            "hits": [list(row) for row in self._hits],
            "exposure": [list(row) for row in self._exposure],
            "delays": [delays.to_state() for delays in self._delays],
            "told": [
                [own.at_s, own.end_s, own.kind, own.of, sorted(own.nodes), own.counted]
                for own in self._open
            ],
        }


def departures_per_s(prospect: Prospect, horizon_s: float) -> float:
    """Return the departures of a node a second by *prospect*."""
    hits = -math.log1p(-min(prospect.hit, 1.0 - 1e-12))
    return hits * prospect.share / horizon_s


def _delays(rows: Any) -> list[Delays]:  # noqa: ANN401 - JSON
    delays = [Delays(row) for row in rows]
    if len(delays) != len(LEADS_S):
        raise ValueError(f"{len(delays)} kinds of promises, expected {len(LEADS_S)}")
    return delays


def _kind(lead_s: float) -> int:
    return max(0, bisect_right(LEADS_S, lead_s) - 1)


def _part(part: float) -> int:
    return max(0, bisect_right(PARTS, part) - 1)


@dataclass(slots=True)
class _OpenPromise:
    """A promise as it was made first, and which of its nodes are left.

    Attributes:
        at_s: When it was made.
        end_s: Its promised end.
        kind: Its kind, by lead.
        of: How many nodes it was made of.
        nodes: Those that are still idle.
        counted: Up to what part of the lead its exposure is counted.
    """

    at_s: float
    end_s: float
    kind: int
    of: int
    nodes: set[int]
    counted: float = 0.0

    @property
    def weight(self) -> float:
        """Weight of a node: nodes fare alike, so together they weigh their root."""
        return 1.0 / math.sqrt(self.of)


def _open_promise_from(row: Any) -> _OpenPromise:  # noqa: ANN401 - JSON
    """Return a saved promise; raises as ``Promises``."""
    at_s, end_s, kind, of, nodes, counted = row
    promise = _OpenPromise(
        amount(at_s),
        amount(end_s),
        whole(kind),
        whole(of),
        members(nodes),
        amount(counted),
    )
    is_kind = at_s < end_s and kind == _kind(end_s - at_s)
    if not (is_kind and 0 < len(promise.nodes) <= of):
        raise ValueError(f"an impossible promise: {row}")
    return promise


# ----------------------------------------------------------------------
# Delays

EDGES_S = (
    *(-14_400.0, -7_200.0, -3_600.0, -1_800.0, -900.0, -600.0, -300.0, -120.0, -60.0),
    *(60.0, 120.0, 300.0, 600.0, 900.0, 1_800.0, 3_600.0, 7_200.0, 14_400.0),
)
"""Where classes of delay begin and end, in seconds; below 0 is early. Within a minute
is on time: ticks see no more than that."""

_ON_TIME = EDGES_S.index(60.0)


@dataclass(frozen=True, slots=True)
class DelayInterval:
    """Delays of departures against promises of one kind; keys of published JSON.

    Attributes:
        lead_s: Promises made so long ahead, or longer, up to the next kind.
        nodes: How many nodes were promised and have left since.
        early: Share of these that left more than a minute before, 0 to 1.
        late: Share of these that left more than a minute after.
        low_s: A tenth of them left no later than this after the promised end;
            below 0 is early.
        middle_s: The same of a half.
        high_s: The same of nine tenths.
    """

    lead_s: float
    nodes: int
    early: float
    late: float
    low_s: float
    middle_s: float
    high_s: float


class Delays:
    """Counts of nodes by delay.

    Args:
        state: From ``to_state``; None to begin.

    Raises:
        ValueError, TypeError: The state is not one of these.
    """

    def __init__(self, state: Sequence[int] | None = None) -> None:
        kept = [0] * (len(EDGES_S) + 1) if state is None else state
        self._counts = [whole(count) for count in kept]
        if len(self._counts) != len(EDGES_S) + 1:
            raise ValueError(f"{state} are no counts of delays")

    def add(self, delay_s: float, nodes: int) -> None:
        """Count that *nodes* left *delay_s* after the promised end."""
        self._counts[bisect_right(EDGES_S, delay_s)] += nodes

    def interval(self, lead_s: float) -> DelayInterval | None:
        """Return their quantiles; None where no node has left yet."""
        nodes = sum(self._counts)
        if not nodes:
            return None
        low_s, middle_s, high_s = (self._quantile_s(q) for q in (0.1, 0.5, 0.9))
        return DelayInterval(
            lead_s=lead_s,
            nodes=nodes,
            early=sum(self._counts[:_ON_TIME]) / nodes,
            late=sum(self._counts[_ON_TIME + 1 :]) / nodes,
            low_s=low_s,
            middle_s=middle_s,
            high_s=high_s,
        )

    def _quantile_s(self, share: float) -> float:
        """Return a quantile, straight within a class; at the ends the edge."""
        wanted = share * sum(self._counts)
        summed = list(accumulate(self._counts))
        place = next(k for k, total in enumerate(summed) if total >= wanted)
        if place in {0, len(EDGES_S)}:
            return EDGES_S[0] if place == 0 else EDGES_S[-1]
        before = summed[place] - self._counts[place]
        weight = (wanted - before) / self._counts[place]
        return EDGES_S[place - 1] + weight * (EDGES_S[place] - EDGES_S[place - 1])

    def to_state(self) -> list[int]:
        """Return the state for JSON."""
        return list(self._counts)
