"""Old counts fade: a machine that has changed is learned anew."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from freetrain.lookahead.base import LASTS_S, Fading
from freetrain.lookahead.experience import Experience
from freetrain.lookahead.learned import LearnedForecaster
from freetrain.lookahead.life_table import LifeTable

HOUR_S = 3_600.0
DAY_S = 24 * HOUR_S

EITHER = pytest.mark.parametrize("maker", [LearnedForecaster, LifeTable])


@given(st.lists(st.floats(0.0, 50 * HOUR_S), min_size=2, max_size=8))
def test_as_much_fades_however_often_it_is_asked(times_s: list[float]) -> None:
    times_s.sort()
    passed_s = times_s[-1] - times_s[0]
    often, once = Fading(2 * LASTS_S), Fading(2 * LASTS_S)

    kept = math.prod(map(often.keeps, times_s[:-1], times_s[1:]))

    within = 1.01 * HOUR_S / LASTS_S  # whole hours
    assert kept == pytest.approx(math.exp(-passed_s / LASTS_S), rel=within)
    assert kept == pytest.approx(once.keeps(times_s[0], times_s[-1]))
    assert often.lived_s == pytest.approx(once.lived_s)


def test_nothing_fades_in_the_first_thirty_days_or_when_the_clock_goes_back() -> None:
    hours = int(LASTS_S / HOUR_S)
    new = Fading()
    first = [new.keeps(k * HOUR_S, (k + 1) * HOUR_S) for k in range(hours)]
    assert set(first) == {1.0}

    later = Fading(new.lived_s)
    assert later.keeps(hours * HOUR_S, (hours + 1) * HOUR_S - 1.0) == 1.0
    assert later.keeps(hours * HOUR_S, (hours + 1) * HOUR_S) < 1.0
    assert later.keeps(10 * HOUR_S, 2 * HOUR_S) == 1.0
    assert later.keeps(2 * HOUR_S, 10 * HOUR_S) < 1.0


def test_hits_and_changes_of_a_year_ago_are_forgotten() -> None:
    """A node came or went every hour; after that none did."""

    def weights(experience: Experience) -> tuple[float, float]:
        return experience.change_weight(HOUR_S), experience.hit_weight

    experience, new = Experience(), Experience()
    for hour in range(100):
        experience.note(hour * HOUR_S, {"a": frozenset(range(hour % 2, 3))})
        experience.lose({2}, lambda node: node)
    assert weights(experience) != pytest.approx(weights(new), rel=0.1)

    for hour in range(100, 100 + 365 * 24):
        for own in (experience, new):
            own.note(hour * HOUR_S, {"a": frozenset({0, 1, 2})})

    assert weights(experience) == pytest.approx(weights(new), rel=1e-3)


class OneNode:
    """A forecaster that sees one node, which comes back ten seconds after it left."""

    def __init__(self, forecaster: LearnedForecaster | LifeTable) -> None:
        self._forecaster = forecaster
        self.now_s = 0.0

    def live(self, days: int, *, stays_s: float) -> None:
        for _ in range(days):
            end_s = self.now_s + DAY_S
            while self.now_s < end_s:
                self._stay(stays_s)
                self._leave()

    def leaves_at(self, age_s: float) -> float:
        """Return how likely the node leaves before the horizon once it is so old."""
        self._stay(age_s)
        self._forecaster.see(self.now_s, joined=(), left=())
        hit = self._forecaster.prospect(self._forecaster.cluster(1)).hit
        self._leave()
        return hit

    def _stay(self, lasts_s: float) -> None:
        self._forecaster.see(self.now_s, joined={1}, left=())
        self.now_s += lasts_s

    def _leave(self) -> None:
        self._forecaster.see(self.now_s, joined=(), left={1})
        self.now_s += 10.0


@EITHER
def test_a_machine_that_has_changed_is_learned_anew(
    maker: type[LearnedForecaster | LifeTable],
) -> None:
    changed, new = OneNode(maker(100.0)), OneNode(maker(100.0))
    changed.live(365, stays_s=3_000.0)
    assert changed.leaves_at(90.0) < 0.01

    changed.live(20, stays_s=100.0)
    new.live(20, stays_s=100.0)

    assert changed.leaves_at(90.0) == pytest.approx(new.leaves_at(90.0), abs=0.1)


@EITHER
def test_nothing_is_forgotten_while_no_node_is_idle(
    maker: type[LearnedForecaster | LifeTable],
) -> None:
    straight, away = OneNode(maker(100.0)), OneNode(maker(100.0))
    straight.live(1, stays_s=1_000.0)
    away.live(1, stays_s=1_000.0)

    away.now_s += 1e9

    assert away.leaves_at(90.0) == straight.leaves_at(90.0)
