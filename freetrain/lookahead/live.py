"""A site's forecast, learned tick by tick from snapshots of the pool, and saved.

A tick sees which nodes are idle, not when that changed. :class:`LiveForecast` turns
snapshots into the events that a forecaster learns from, adds promised ends and the
experience of trainers, and answers by node name. A saved state may be spoilt anywhere:
:func:`validate_forecast` tries every answer that plans and people will need.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter
from dataclasses import astuple, dataclass, field
from typing import TYPE_CHECKING, Any

from freetrain.lookahead.affinity import LeafAffinity, RecentAffinity, line_order
from freetrain.lookahead.base import (
    DEFAULT_FORECASTER,
    LEAST_WATCHED_S,
    LinePosition,
    NodeForecast,
    Prospect,
    amount,
    check_origin,
    forecaster_named,
    lasting,
)
from freetrain.lookahead.experience import Experience
from freetrain.lookahead.promises import Promises
from logs.trace import natural_key

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from freetrain.lookahead.promises import DelayInterval, Promise
    from logs.trace import NaturalKey

VERSION = 4

LONGEST_GAP_S = 900.0
"""Between snapshots further apart a node may have left and come back, unseen."""

_EVEN = 0.5

_LEAST = 1e-12

_LADDER_S = tuple(60.0 * 2**k for k in range(11))
"""One minute to seventeen hours."""


@dataclass(frozen=True, slots=True)
class IdleSnapshot:
    """Idle nodes as a tick finds them.

    Attributes:
        idle: Nodes that are idle, or held by our leases alone.
        unclear: Nodes whose state is not clear; they stay what they were.
        promised: Promises of idle nodes.
        held: Nodes that trainers train on, by trainer.
    """

    idle: frozenset[str]
    unclear: frozenset[str]
    promised: Mapping[str, Promise]
    held: Mapping[str, frozenset[str]] = field(default_factory=dict)


class LiveForecast:
    """Learns from snapshots, and forecasts nodes by name.

    Args:
        horizon_s: How far prospects reach.
        names: Nodes ever seen idle; places are their numbers.
        pairs: Counts departures by pair.
        state: From ``to_state``; None to begin.
        leaf_of: The leaf switch, or block, of nodes by name; None where none are known.
        forecaster: A name in ``FORECASTERS``.

    Raises:
        UsageError: There is no such forecaster.
        ValueError, KeyError, TypeError: The state cannot be read, or is of another
            version or another forecaster.
    """

    def __init__(  # noqa: PLR0913 - parts that a tick or a test replaces
        self,
        horizon_s: float,
        *,
        names: Sequence[str] = (),
        pairs: RecentAffinity | None = None,
        state: Mapping[str, Any] | None = None,
        leaf_of: Mapping[str, str] | None = None,
        forecaster: str = DEFAULT_FORECASTER,
    ) -> None:
        self._forecaster = forecaster
        if state is not None:
            check_origin(state, version=VERSION, forecaster=forecaster)
        kept = state or {"learned": None, "promises": None}
        self._horizon_s = horizon_s
        self._pairs = RecentAffinity() if pairs is None else pairs
        self.names = list(names)
        self._leaf_of = leaf_of or {}
        self._leaf_affinity = LeafAffinity(
            self._pairs, self._leaf, state=kept.get("leaves")
        )
        self._learned = forecaster_named(forecaster)(
            horizon_s,
            pairs=self._leaf_affinity if self._leaf_of else self._pairs,
            checks=True,
            state=kept["learned"],
            learns_s=0.0,  # the time watched is counted here, without gaps
            order=line_order(self._leaf_of.values(), self._in_line),
        )
        self._promises = Promises(kept["promises"])
        self._experience = Experience(kept.get("experience"))
        self._looked_s = -math.inf if state is None else amount(state["looked_s"])
        self._watched_s = 0.0 if state is None else amount(state["watched_s"])
        self._number = {name: number for number, name in enumerate(self.names)}
        self._promised: Mapping[str, Promise] = {}
        self._by: Counter[str] = Counter()
        for number in self._learned.idle():
            self._name(number)
        if not self._experience.nodes.issubset(self._learned.idle()):
            raise ValueError("a trainer on nodes that are not idle")
        if self._experience.at_s not in {None, self._looked_s}:
            raise ValueError(
                f"trainers seen at {self._experience.at_s}, not at the last snapshot"
            )

    @property
    def is_learning(self) -> bool:
        """Whether it has seen too little for plans."""
        return self._watched_s < LEAST_WATCHED_S

    @property
    def leaf_rate(self) -> float | None:
        """How often pairs below one leaf leave together; None without known leaves."""
        return self._leaf_affinity.rate if self._leaf_of else None

    @property
    def hit_weight(self) -> float:
        """[κ] Weight of a foreseeable hit, learned from trainers' losses."""
        return self._experience.hit_weight

    @property
    def change_weight(self) -> float:
        """[η] Weight of a change; 1 until enough was watched."""
        learned = self._experience.change_weight(self._horizon_s)
        return 1.0 if self.is_learning else learned

    @property
    def stay_s(self) -> float:
        """How long trainers keep nodes once they have started."""
        return self._experience.service.stay_s

    def intervals(self) -> tuple[DelayInterval, ...]:
        """Return delays against promises, by lead."""
        return self._promises.intervals()

    def look(self, now_s: float, seen: IdleSnapshot) -> None:
        """Learn from a snapshot of *now_s*, Unix time."""
        self._pass_time(now_s)
        idle = {self._numbered(name) for name in sorted(seen.idle)}
        unclear = {n for n in map(self._number.get, seen.unclear) if n is not None}
        before = set(self._learned.idle())
        left, joined = before - idle - unclear, idle - before
        self._promised = {n: p for n, p in seen.promised.items() if n in seen.idle}
        self._by = Counter(promise.by for promise in self._promised.values())
        promised = {self._number[name]: p for name, p in self._promised.items()}
        self._experience.lose(left, self._learned.cluster)
        self._learned.see(now_s, joined=joined, left=left)
        self._promises.see(now_s, left=left, promised=promised)
        self._experience.note(
            now_s, {name: self._idle_of(own) for name, own in seen.held.items()}
        )
        self._looked_s = now_s

    def group(self, node: str) -> str:
        """Return the name of the nodes that are expected to leave with *node*."""
        promise = self._near(node)
        if promise is not None:
            return f"promised to {promise.by}"
        number = self._idle(node)
        return node if number is None else f"cluster {self._learned.cluster(number)}"

    def size(self, node: str) -> int:
        """Return how many idle nodes the group of *node* has, all kinds together."""
        number, near = self._idle(node), self._near(node)
        if near is None and number is not None:
            return len(self._learned.members(self._learned.cluster(number)))
        return 1 if near is None else self._by[near.by]

    def prospect(self, node: str, usable_s: float) -> Prospect:
        """Return the prospect of the nodes of the group of *node*.

        Args:
            node: One of them.
            usable_s: After how long they must be left in any case; ``math.inf``
                for never.
        """
        return self._promises.expected(
            self._plain(node),
            self._near(node),
            now_s=self._looked_s,
            usable_s=usable_s,
            horizon_s=self._horizon_s,
        )

    def expected(self, node: str) -> NodeForecast | None:
        """Return the forecast of *node*, for people; None if it is not idle."""
        number = self._idle(node)
        if number is None:
            return None
        promise = self._promised.get(node)
        near = self._near(node)
        line = LinePosition() if near else self._learned.in_line(number)
        return NodeForecast(
            horizon_s=self._horizon_s,
            leaves=1.0 - self._stays(node, number, self._horizon_s),
            even_s=self._even_s(node, number),
            together=self.size(node),
            promised_s=None if promise is None else promise.end_s,
            is_learning=self.is_learning,
            run=line.run,
            times_in_line=line.times,
        )

    def to_state(self) -> dict[str, Any]:
        """Return the whole state for JSON, except names and departures."""
        return {
            "version": VERSION,
            "forecaster": self._forecaster,
            "looked_s": self._looked_s,
            "watched_s": self._watched_s,
            "learned": self._learned.to_state(),
            "promises": self._promises.to_state(),
            "experience": self._experience.to_state(),
            "leaves": self._leaf_affinity.to_state(),
        }

    def _pass_time(self, now_s: float) -> None:
        passed_s = now_s - self._looked_s
        if 0.0 <= passed_s <= LONGEST_GAP_S:
            self._watched_s += passed_s
        else:
            self._learned.forget_pool()
            self._promises.forget_pool()
            self._experience.forget_pool()

    def _numbered(self, name: str) -> int:
        number = self._number.setdefault(name, len(self.names))
        if number == len(self.names):
            self.names.append(name)
        return number

    def _in_line(self, number: int) -> NaturalKey:
        """Return the sort key of a node in Slurm's order, which is by name."""
        return natural_key(self._name(number))

    def _leaf(self, number: int) -> str:
        return self._leaf_of.get(self._name(number), "")

    def _name(self, number: int) -> str:
        if number >= len(self.names):
            raise ValueError("idle nodes without a name")
        return self.names[number]

    def _idle_of(self, nodes: frozenset[str]) -> frozenset[int]:
        numbers = (self._idle(name) for name in nodes)
        return frozenset(number for number in numbers if number is not None)

    def _idle(self, node: str) -> int | None:
        number = self._number.get(node)
        return number if number in self._learned.idle() else None

    def _near(self, node: str) -> Promise | None:
        promise = self._promised.get(node)
        is_near = promise is not None and promise.is_near(self._looked_s)
        return promise if is_near else None

    def _plain(self, node: str) -> Prospect:
        """Return the prospect without promises."""
        number = self._idle(node)
        if self.is_learning or number is None:
            return lasting(self._horizon_s)
        return self._learned.prospect(self._learned.cluster(number))

    def _even_s(self, node: str, number: int) -> float:
        """Return the longest time that it stays with a probability of a half."""

        def leaves(after_s: float) -> float:
            return 1.0 - self._stays(node, number, after_s)

        steps = bisect_right(_LADDER_S, 1.0 - _EVEN, key=leaves)
        return _LADDER_S[steps - 1] if steps else 0.0

    def _stays(self, node: str, number: int, after_s: float) -> float:
        promise = self._near(node)
        if promise is None:
            return self._learned.survival(number, after_s)
        plain = self._learned.survival(number, self._horizon_s)
        return self._promises.survival(
            -math.log(max(plain, _LEAST)) / self._horizon_s,
            lead_s=promise.end_s - self._looked_s,
            after_s=after_s,
        )


def validate_forecast(
    forecast: LiveForecast, nodes: Iterable[str], *, horizon_s: float
) -> None:
    """Try every answer of *forecast* after a snapshot; refuse impossible ones.

    One node of each group: the others have the same answers. Errors of the forecaster
    itself pass through.

    Args:
        forecast: The forecast.
        nodes: The nodes that were idle at the snapshot.
        horizon_s: How far its prospects reach.

    Raises:
        ValueError: An answer is impossible, such as a probability above 1.
    """
    for node in {forecast.group(node): node for node in nodes}.values():
        _check_prospect(forecast.prospect(node, math.inf), horizon_s)
        _check_expected(node, forecast.expected(node))
    weights = forecast.hit_weight, forecast.change_weight
    delays = [n for interval in forecast.intervals() for n in astuple(interval)]
    if not all(map(math.isfinite, (*weights, *delays))):
        raise ValueError(f"weights {weights} and delays {delays} are not finite")


def _check_prospect(prospect: Prospect, horizon_s: float) -> None:
    life_s, hit, share = prospect
    if not (0.0 <= life_s <= horizon_s and 0.0 <= hit <= 1.0 and 0.0 < share <= 1.0):
        raise ValueError(f"an impossible prospect: {prospect}")


def _check_expected(node: str, expected: NodeForecast | None) -> None:
    if expected is None:
        raise ValueError(f"no forecast of {node}, which is idle")
    if not (0.0 <= expected.leaves <= 1.0 and 0.0 < expected.times_in_line < math.inf):
        raise ValueError(f"an impossible forecast of {node}: {expected}")
