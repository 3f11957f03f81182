"""How often clusters lose nodes, and how counts fade."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from freetrain.lookahead.base import LASTS_S, Fading
from freetrain.lookahead.experience import Experience
from freetrain.lookahead.learned import AGES_S, SIZES, Hazard, LearnedForecaster
from freetrain.lookahead.life_table import LifeTable

ages = st.floats(0.0, 20_000.0) | st.sampled_from(AGES_S)


@given(st.integers(1, 100), st.lists(ages, min_size=1, max_size=8))
def test_exposure_is_counted_at_each_age_however_often_one_looks(
    nodes: int, looks: list[float]
) -> None:
    hazard, (born, *later) = Hazard(), sorted(looks)
    before = hazard.to_state()["exposure"]

    meter = hazard.meter(nodes, born)
    for age_s in later:
        meter.live(age_s)

    size = max(place for place, least in enumerate(SIZES) if nodes >= least)
    last = max(looks)
    for row, (was, now) in enumerate(
        zip(before, hazard.to_state()["exposure"], strict=True)
    ):
        lived = [b - a for a, b in zip(was, now, strict=True)]
        ends = (*AGES_S[1:], math.inf)
        there = [
            max(0.0, min(end, last) - max(begin, born)) if row == size else 0.0
            for begin, end in zip(AGES_S, ends, strict=True)
        ]
        assert lived == pytest.approx(there, abs=1e-6)
    assert meter.age_s == last


HOUR_S = 3_600.0
LONG_S = 1e9


@given(st.lists(st.floats(0.0, 50 * HOUR_S), min_size=2, max_size=8))
def test_however_often_one_looks_as_much_is_forgotten(looks: list[float]) -> None:
    looks.sort()
    passed_s = looks[-1] - looks[0]
    often, once = Fading(2 * LASTS_S), Fading(2 * LASTS_S)

    kept = math.prod(map(often.keeps, looks[:-1], looks[1:]))

    within = 1.01 * HOUR_S / LASTS_S  # it goes by whole hours
    assert kept == pytest.approx(math.exp(-passed_s / LASTS_S), rel=within)
    assert kept == pytest.approx(once.keeps(looks[0], looks[-1]))
    assert often.lived_s == pytest.approx(once.lived_s)


def test_in_the_first_thirty_days_all_counts_alike() -> None:
    hours = int(LASTS_S / HOUR_S)
    new = Fading()
    first = [new.keeps(k * HOUR_S, (k + 1) * HOUR_S) for k in range(hours)]
    assert set(first) == {1.0}

    later = Fading(new.lived_s)
    assert later.keeps(hours * HOUR_S, (hours + 1) * HOUR_S) < 1.0


def test_nothing_is_forgotten_where_the_clock_goes_back() -> None:
    old = Fading(2 * LASTS_S)
    assert old.keeps(10 * HOUR_S, 2 * HOUR_S) == 1.0
    assert old.keeps(2 * HOUR_S, 10 * HOUR_S) < 1.0


def test_of_hazards_all_that_was_counted_fades() -> None:
    hazard, unread = Hazard(), Hazard()
    meter = hazard.meter(4, 0.0)
    meter.live(1_000.0)
    hazard.hit(4, 1_000.0, 2)
    once = hazard.to_state()

    hazard.fade(0.5)

    said = unread.to_state()
    for what, now in hazard.to_state().items():
        assert now == _half_way(said[what], once[what])
    meter.live(1_100.0)  # the next are counted on top
    assert hazard.to_state()["exposure"] != _half_way(
        said["exposure"], once["exposure"]
    )
    hazard.fade(0.0)
    assert hazard.to_state() == said


def _half_way(said: object, counted: object) -> object:
    if isinstance(said, list):
        assert isinstance(counted, list)
        return [_half_way(*pair) for pair in zip(said, counted, strict=True)]
    assert isinstance(said, float)
    assert isinstance(counted, float)
    return said + (counted - said) / 2


def test_what_trainers_met_a_year_ago_is_forgotten() -> None:
    """Then a node came or went every hour; since then nothing has."""
    experience, new = Experience(), Experience()
    for hour in range(100):
        experience.note(hour * HOUR_S, {"a": frozenset(range(hour % 2, 3))})
        experience.lose({2}, lambda node: node)
    assert _weights(experience) != pytest.approx(_weights(new), rel=0.1)

    for hour in range(100, 100 + 365 * 24):
        for one in (experience, new):
            one.note(hour * HOUR_S, {"a": frozenset({0, 1, 2})})

    assert _weights(experience) == pytest.approx(_weights(new), rel=1e-3)


def _weights(experience: Experience) -> tuple[float, float]:
    return experience.change_weight(HOUR_S), experience.hit_weight


DAY_S = 24 * HOUR_S


@pytest.mark.parametrize("maker", [LearnedForecaster, LifeTable])
def test_a_machine_that_has_changed_is_learned_anew(
    maker: type[LearnedForecaster | LifeTable],
) -> None:
    changed, new = Told(maker(100.0)), Told(maker(100.0))
    for _ in range(365):
        changed.a_day(stays_s=3_000.0)
    assert changed.leaves_at(90.0) < 0.01

    for _ in range(20):
        changed.a_day(stays_s=100.0)
        new.a_day(stays_s=100.0)

    assert changed.leaves_at(90.0) == pytest.approx(new.leaves_at(90.0), abs=0.1)


@pytest.mark.parametrize("maker", [LearnedForecaster, LifeTable])
def test_while_nobody_was_idle_nothing_is_forgotten(
    maker: type[LearnedForecaster | LifeTable],
) -> None:
    told, gone = Told(maker(100.0)), Told(maker(100.0))
    told.a_day(stays_s=1_000.0)
    gone.a_day(stays_s=1_000.0)

    gone.be_away(LONG_S)

    assert gone.leaves_at(90.0) == told.leaves_at(90.0)


class Told:
    """A forecaster that is told of one node, which comes back ten seconds later."""

    def __init__(self, forecaster: LearnedForecaster | LifeTable) -> None:
        self._forecaster = forecaster
        self._now_s = 0.0

    def a_day(self, *, stays_s: float) -> None:
        """Let the node stay as long as that, again and again."""
        end_s = self._now_s + DAY_S
        while self._now_s < end_s:
            self._stay(stays_s)
            self._leave()

    def leaves_at(self, age_s: float) -> float:
        """Return how likely the node leaves before the horizon once it is so old."""
        self._stay(age_s)
        self._forecaster.see(self._now_s, joined=(), left=())
        told = self._forecaster.prospect(self._forecaster.cluster(1)).hit
        self._leave()
        return told

    def be_away(self, lasts_s: float) -> None:
        """Tell nothing for so long."""
        self._now_s += lasts_s

    def _stay(self, lasts_s: float) -> None:
        self._forecaster.see(self._now_s, joined={1}, left=())
        self._now_s += lasts_s

    def _leave(self) -> None:
        self._forecaster.see(self._now_s, joined=(), left={1})
        self._now_s += 10.0
