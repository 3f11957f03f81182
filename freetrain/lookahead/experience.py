"""What losses and changes count [κ, η], and how long trainers keep nodes, learned.

A start is paid once, and earns for as long as the trainer then keeps nodes
(``planning.rating.start_cost_s``): :class:`ServiceTime` learns how long that is.

The objective W0 (docs/notes/lookahead.md) cannot know two things from nodes alone.
Clusters that a trainer holds are often hit at one event, which costs it once: another
cluster then adds fewer costs than its own hits. And plans do not last as long as the
horizon: a trainer that soon changes again gained little by the change before.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from freetrain.lookahead.base import (
    Fading,
    amount,
    amounts,
    amounts_above_0,
    check_shares,
    faded,
    members,
)
from freetrain.scaling import ASSUMED_STAY_S

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping


_PRIOR_SOLE, _PRIOR_HITS = 5.0, 20.0
"""The prior: of four hits one comes alone."""

_PRIOR_CHANGES, _PRIOR_TRAINED_S = 1.0, 1_000.0
"""The prior: a trainer is changed every 1,000 s."""


_PRIOR_ENDED, _PRIOR_SERVICE_S = 1.0, ASSUMED_STAY_S
"""The prior: a node that a trainer started on served it for 1,000 s."""

_SERVICE_FADES_S = 86_400.0
"""Counts fall to a third in a day, so that a trainer whose starts were not worth it is
tried again."""


class ServiceTime:
    """How long trainers keep nodes from a start on, learned.

    A *service* begins where a trainer without nodes gets some, and ends where it has
    lost all of them, or a plan took them; not where its work is done, as that start was
    worth it. Per node::

        stay = (1,000 s + node-seconds of service) / (1 + nodes on which services ended)

    Args:
        state: From ``to_state``; None to begin.

    Raises:
        ValueError, TypeError: The state is not one of these.
    """

    def __init__(self, state: Any = None) -> None:  # noqa: ANN401 - JSON
        self._ended, self._served_s = amounts_above_0(
            (_PRIOR_ENDED, _PRIOR_SERVICE_S) if state is None else state, 2
        )

    def to_state(self) -> list[float]:
        """Return the state for JSON."""
        return [self._ended, self._served_s]

    def note(self, passed_s: float, *, held: int, ended: int) -> None:
        """Count *passed_s* seconds of service on *held* nodes, then ends on *ended*."""
        keeps = math.exp(-max(0.0, passed_s) / _SERVICE_FADES_S)
        served_s = self._served_s + held * passed_s
        self._served_s = faded(served_s, _PRIOR_SERVICE_S, keeps)
        self._ended = faded(self._ended, _PRIOR_ENDED, keeps) + ended

    @property
    def stay_s(self) -> float:
        """The stay, to two digits, so that it seldom changes."""
        return float(f"{self._served_s / self._ended:.2g}")


class Experience:
    """Counts hits that came alone, how often trainers change, and how long they serve.

    Args:
        state: From ``to_state``; None to begin.

    Attributes:
        service: How long trainers keep nodes from a start on.

    Raises:
        ValueError, KeyError, TypeError: The state is not one of these.
    """

    def __init__(self, state: Mapping[str, Any] | None = None) -> None:
        kept = state or {
            "hits": (_PRIOR_SOLE, _PRIOR_HITS),
            "changes": (_PRIOR_CHANGES, _PRIOR_TRAINED_S),
            "held": {},
            "lived_s": 0.0,
            "at_s": None,
        }
        self._sole, self._hits = amounts(kept["hits"], 2)
        amounts_above_0([self._hits], 1)
        self._changes, self._trained_s = amounts_above_0(kept["changes"], 2)
        self._held: Mapping[str, frozenset[int]] = {
            name: frozenset(members(own)) for name, own in dict(kept["held"]).items()
        }
        self._fading = Fading(kept["lived_s"])
        self._at_s = None if kept["at_s"] is None else amount(kept["at_s"])
        check_shares([self._sole], [self._hits])
        # States of before have no service.
        self.service = ServiceTime(kept.get("service"))

    def to_state(self) -> dict[str, Any]:
        """Return the state for JSON."""
        return {
            "hits": [self._sole, self._hits],
            "changes": [self._changes, self._trained_s],
            "lived_s": self._fading.lived_s,
            "held": {name: sorted(own) for name, own in self._held.items()},
            "at_s": self._at_s,
            "service": self.service.to_state(),
        }

    @property
    def at_s(self) -> float | None:
        """Time of the last ``note``; None before the first and after a lost pool."""
        return self._at_s

    @property
    def nodes(self) -> frozenset[int]:
        """All nodes that trainers held at the last ``note``."""
        return frozenset().union(*self._held.values())

    @property
    def hit_weight(self) -> float:
        """[κ] Weight of a foreseeable hit: the share of hits that came alone.

        Of hits on trainers with several clusters. 1 where clusters leave
        independently; small where a drain takes most nodes of a trainer, so that one
        cluster fewer would have saved it nothing.
        """
        return self._sole / self._hits

    def change_weight(self, horizon_s: float) -> float:
        """Return [η] the weight of a change: above 1 where plans do not last.

        ::

            η = H μ / (1 - exp(-μ H))

        A trainer changes μ times a second, so that a plan lasts (1 - exp(-μ H)) / μ of
        the H seconds that the objective counts.
        """
        often = self._changes / self._trained_s * horizon_s
        return -often / math.expm1(-often)

    def lose(self, left: Collection[int], cluster: Callable[[int], int]) -> None:
        """Count the hits of nodes that leave; call before the forecaster's ``see``.

        Args:
            left: Nodes.
            cluster: Returns the cluster of an idle node.
        """
        if not left:
            return
        for own in self._held.values():
            if not own.isdisjoint(left) and len({cluster(node) for node in own}) > 1:
                hit = len({cluster(node) for node in own.intersection(left)})
                self._hits += hit
                self._sole += hit == 1

    def forget_pool(self) -> None:
        """Forget the nodes that trainers hold, but nothing that was learned."""
        self._held, self._at_s = {}, None

    def note(self, now_s: float, held: Mapping[str, frozenset[int]]) -> None:
        """Count the time trained and the changes, from the nodes held from now on.

        Args:
            now_s: Never earlier than the last.
            held: Idle nodes by trainer that has begun; not to be changed afterwards.
        """
        if self._at_s is not None:
            trains = sum([1 for own in self._held.values() if own])
            if trains and (keeps := self._fading.keeps(self._at_s, now_s)) < 1.0:
                self._fade(keeps)
            self._trained_s += trains * (now_s - self._at_s)
            self._serve(now_s - self._at_s, held)
        known = self._held.get
        for name, own in held.items():
            before = known(name)
            # Most hold what they held, in the very same set.
            if before is not own and before and own and len(before) != len(own):
                self._changes += 1.0
        self._held, self._at_s = held, now_s

    def _serve(self, passed_s: float, held: Mapping[str, frozenset[int]]) -> None:
        """Count services; a trainer that is not in *held* any more is done."""
        ended = served = 0
        for name, before in self._held.items():
            served += len(before)
            now = held.get(name)
            if now is not before and now is not None and now.isdisjoint(before):
                ended += len(before)
        self.service.note(passed_s, held=served, ended=ended)

    def _fade(self, keeps: float) -> None:
        """Keep the share *keeps* of the counts, and the whole prior."""
        self._sole = faded(self._sole, _PRIOR_SOLE, keeps)
        self._hits = faded(self._hits, _PRIOR_HITS, keeps)
        self._changes = faded(self._changes, _PRIOR_CHANGES, keeps)
        self._trained_s = faded(self._trained_s, _PRIOR_TRAINED_S, keeps)
