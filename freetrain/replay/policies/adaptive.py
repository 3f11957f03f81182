"""The policy ``adaptive``: follows whichever of several policies has trained most.

Each policy is played in shadow, from the first event on and on the same pool events, by
an engine of its own with the same trainers. Every quarter of an hour the samples of the
shadows are compared. Shadows know no more than the replay that they accompany: neither
events nor arrivals to come.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from freetrain.replay.policies.base import Change, Foretelling
from freetrain.replay.pool import PoolEvent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from freetrain.lookahead.reliability import ScoredForecaster
    from freetrain.replay.engine import Engine
    from freetrain.replay.policies.base import ReplayPolicy, View

FOLLOWED = ("lookahead", "freetrain", "equal")
"""The policies in shadow; the first is followed at first."""

BY_PRICE = "lookahead by price"
"""In shadow, too, where trainers scale in several ways. A plan by throughput starves
networks of few samples a node, which then keep their places for long; one by speed-up
gives such networks nodes on which others would train more samples."""

RIGID_SIZES = (1, 2, 4, 8, 16)
"""Jobs of these sizes are in shadow, too, each by itself."""

JUDGED_EVERY_S = 900.0
FADES_S = 43_200.0
"""Samples count a third after half a day, as pools and trainers change."""

DEVIATIONS = 1.0
"""A shadow is followed that leads by so many standard deviations of chance."""

CHANCE = 0.05
"""The least that chance makes of the samples between two comparisons, as a share of
them: a few that happen to be alike say little, and a change of leader costs rescales.
These four are the best of 70 for the sample week, Summit and KTH-SP2, chosen when
spans counted by time."""


@dataclass(frozen=True, slots=True, eq=False)
class Shadow:
    """A policy that is played beside the replay.

    Attributes:
        engine: Its replay; it is fed event by event.
        follow: Makes a policy that plans for the replay's own trainers, with what the
            shadow has learned.
    """

    engine: Engine
    follow: Callable[[], ReplayPolicy]


class AdaptivePolicy:
    """Plays policies in shadow, and does as the leader does.

    Until the leader changes for the first time, the replay and the leader's shadow are
    the same to the digit: the shadow's changes are made, and nothing is planned twice.
    From then on the leader's way of planning is asked for the trainers as they are.

    Args:
        shadows: By policy; the first is followed at first.
        is_alike: Whether shadows train just as the replay does. They do not where the
            replay knows when a trainer's model is good: then it is asked from the
            first event on.

    Attributes:
        shadows: By policy.
        led_s: For how long each policy was followed, seconds.
    """

    name = "adaptive"

    def __init__(self, shadows: Mapping[str, Shadow], *, is_alike: bool = True) -> None:
        self.shadows = shadows
        self._leader = next(iter(shadows))
        self._record = SampleRecord(tuple(shadows))
        self._own = None if is_alike else shadows[self._leader].follow()
        self._is_over = False
        self._at_s = 0.0
        self._judge_s = JUDGED_EVERY_S
        self.led_s = dict.fromkeys(shadows, 0.0)

    @property
    def forecasts(self) -> ScoredForecaster | None:
        """Those of a shadow that has some, where they are watched."""
        policies = [shadow.engine.policy for shadow in self.shadows.values()]
        found = (p.forecasts for p in policies if isinstance(p, Foretelling))
        return next(found, None)

    def decide(self, view: View) -> Sequence[Change]:
        """Play the shadows up to now, and do as the leader does."""
        self.led_s[self._leader] += view.now_s - self._at_s
        self._at_s = view.now_s
        event = PoolEvent(view.now_s, view.joined, view.left)
        leader = self.shadows[self._leader].engine
        if event.joined or event.left:
            for shadow in self.shadows.values():
                self._is_over |= not shadow.engine.advance(event)
        elif self._own is None:
            self._is_over |= not leader.advance(event)
        else:
            # A forecaster that is asked now must not be shown earlier events later.
            self._is_over |= not leader.play_until(view.now_s)
        self._judge(view.now_s)
        if self._own is None:
            return list(_changes_like(leader, view))
        return self._own.decide(view)

    def _judge(self, now_s: float) -> None:
        """Change the leader where another is ahead, four times an hour.

        A shadow that has trained all there is has nothing more to show.
        """
        if now_s < self._judge_s or self._is_over:
            return
        self._judge_s = now_s - now_s % JUDGED_EVERY_S + JUDGED_EVERY_S
        engines = [shadow.engine for shadow in self.shadows.values()]
        for engine in engines:
            engine.settle(now_s)
        tallies = [engine.tally for engine in engines]
        self._record.note(
            now_s, [tally.samples for tally in tallies], tallies[0].pool_node_s
        )
        best = self._record.leader(self._leader)
        if best != self._leader:
            self._leader = best
            self._own = self.shadows[best].follow()


class SampleRecord:
    """What each of several policies trained, from one comparison to the next.

    Args:
        names: The policies.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names
        self._before = [0.0] * len(names)
        self._node_s = 0.0
        self._at_s = 0.0
        self._spans: deque[tuple[float, float, list[float]]] = deque()

    def note(self, now_s: float, samples: Sequence[float], node_s: float) -> None:
        """Note what each policy has trained by *now_s*, in *node_s* idle node-time."""
        gained = [now - then for now, then in zip(samples, self._before, strict=True)]
        self._before = list(samples)
        self._spans.append((now_s, node_s - self._node_s, gained))
        self._at_s, self._node_s = now_s, node_s
        while self._spans[0][0] < now_s - 5 * FADES_S:
            self._spans.popleft()

    def leader(self, leader: str) -> str:
        """Return the policy to follow in place of *leader*, or *leader*.

        The one with the most samples, faded, if it leads by ``DEVIATIONS`` times what
        chance makes: the root of the summed squares of the differences of each span
        from the mean by idle node-time, and of ``CHANCE`` times its samples. By
        node-time, a machine that empties is no chance, and few idle nodes say little.
        Of n spans, counted by node-time, that sum is too small by (n - 1) / n: one span
        makes no leader.
        """
        now_s = self._at_s
        weights = [math.exp((at_s - now_s) / FADES_S) for at_s, _, _ in self._spans]
        spans = list(zip(weights, self._spans, strict=True))
        totals = [
            sum(weight * gained[k] for weight, (_, _, gained) in spans)
            for k in range(len(self._names))
        ]
        best, own = totals.index(max(totals)), self._names.index(leader)
        lead = totals[best] - totals[own]
        shares = [weight * node_s for weight, (_, node_s, _) in spans]
        whole, alone = sum(shares) ** 2, sum(share**2 for share in shares)
        if lead <= 0.0 or whole <= alone:
            return leader
        faster, squares = lead / sum(shares), 0.0
        for weight, (_, node_s, gained) in spans:
            ours, theirs = gained[own], gained[best]
            off = theirs - ours - faster * node_s
            least = CHANCE * max(abs(ours), abs(theirs))
            squares += weight**2 * (off**2 + least**2)
        squares *= whole / (whole - alone)
        return self._names[best] if lead > DEVIATIONS * math.sqrt(squares) else leader


def _changes_like(shadow: Engine, view: View) -> Iterator[Change]:
    """Yield the changes that give each trainer the nodes it has in *shadow*."""
    for place, (trainer, run) in enumerate(
        zip(view.trainers, shadow.running, strict=True)
    ):
        if trainer.held != run.held:
            drop, take = trainer.held - run.held, run.held - trainer.held
            yield Change(place, tuple(sorted(drop)), tuple(sorted(take)))
