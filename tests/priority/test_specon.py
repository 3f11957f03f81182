"""Slow growers make room after two strikes, where that pays, and come back."""

import json
from dataclasses import replace

import pytest

from freetrain.errors import UsageError
from freetrain.priority.base import Contender, Memory, Rating, RatingInputs
from freetrain.priority.specon import SpeCon
from tests.priority.fake_forecast import FakeForecast, exponential, power_law
from tests.priority.inputs import contender, look, planned

SLOW = power_law(at=1e3, steepness=0.5)  # .05 an e-fold of work at 1e5 samples
FAST = exponential(at=1e5)


def slow(name: str = "slow", **changes: object) -> Contender:
    forecast = FakeForecast(truth=SLOW, done=1e5)
    return contender(name, **({"forecast": forecast, "held": 4} | changes))


def fast(name: str = "fast", **changes: object) -> Contender:
    forecast = FakeForecast(truth=FAST, done=1e5)
    return contender(name, **({"forecast": forecast, "held": 4} | changes))


def again(
    seen: RatingInputs, *, after_s: float = 10.0, work: float = 1.01
) -> RatingInputs:
    trained = [
        replace(one, done_samples=one.done_samples * work) for one in seen.contenders
    ]
    return replace(seen, now_s=seen.now_s + after_s, contenders=tuple(trained))


def after_looks(*seen: RatingInputs) -> tuple[Rating, ...]:
    """Return the ratings at the last look, memory having been through JSON."""
    memory: Memory = {}
    for one in seen:
        rated = SpeCon().rate(one, memory)
        memory = json.loads(json.dumps(rated.memory))
    return rated.ratings


def test_a_slow_grower_is_moved_to_its_smallest_size_at_the_second_strike() -> None:
    seen = look(slow(), fast())
    assert planned(seen, after_looks(seen)) == {"slow": 4, "fast": 4}
    assert planned(seen, after_looks(seen, again(seen))) == {"slow": 1, "fast": 7}


@pytest.mark.parametrize(
    ("after_s", "work"), [(9.0, 1.01), (10.0, 1.0)], ids=["too soon", "no work"]
)
def test_looks_too_close_or_without_work_are_no_strikes(
    after_s: float, work: float
) -> None:
    seen = look(slow(), fast())
    nothing_new = again(seen, after_s=after_s, work=work)
    assert planned(seen, after_looks(seen, nothing_new)) == {"slow": 4, "fast": 4}


def test_growing_again_clears_the_strikes() -> None:
    seen = look(slow(), fast())
    awake = replace(seen, contenders=(fast("slow"), fast()))
    looks = seen, again(awake), again(seen, after_s=20.0, work=1.1)
    assert planned(seen, after_looks(*looks)) == {"slow": 4, "fast": 4}


def test_a_slow_grower_comes_back_when_there_is_room() -> None:
    seen = look(slow(held=1), fast(), nodes=16)
    small = fast(sizes=(1, 2, 3, 4))
    left = look(slow(held=1), small, nodes=10)
    assert planned(seen, after_looks(seen, again(seen))) == {"slow": 8, "fast": 8}
    assert planned(left, after_looks(left, again(left))) == {"slow": 6, "fast": 4}
    assert "room for all" in after_looks(seen, again(seen))[0].reason


def test_a_move_that_costs_more_than_it_brings_is_not_made() -> None:
    dear = look(slow(shrink_s=1500.0), fast())
    slow_rating, _ = after_looks(dear, again(dear))
    assert "costs more" in slow_rating.reason
    dear = look(slow(), fast(grow_s=120.0))
    slow_rating, _ = after_looks(dear, again(dear))
    assert "costs more" in slow_rating.reason


def test_who_would_be_the_last_to_finish_makes_no_room() -> None:
    for held in (1, 4):
        long = look(slow(total_samples=3e5, held=held), fast(total_samples=3e5))
        rating, _ = after_looks(long, again(long))
        assert "last to finish" in rating.reason
    for others in (3e5, None):
        short = look(slow(total_samples=1.2e5), fast(total_samples=others))
        ratings = after_looks(short, again(short))
        assert planned(short, ratings) == {"slow": 1, "fast": 7}


def test_who_has_made_room_stays_away_while_others_want_it() -> None:
    seen = look(slow(held=1), fast(held=7))
    assert planned(seen, after_looks(seen, again(seen))) == {"slow": 1, "fast": 7}
    assert "makes room" in after_looks(seen, again(seen))[0].reason


def test_fast_growers_have_equal_shares_of_what_slow_ones_leave() -> None:
    seen = look(slow(), fast("a", held=2), fast("b", held=2), contender("silent"))
    looks = replace(seen, nodes=13), replace(again(seen), nodes=13)
    counts = planned(looks[1], after_looks(*looks))
    assert counts == {"slow": 1, "a": 4, "b": 4, "silent": 4}


def test_nobody_makes_room_for_a_diverging_trainer() -> None:
    forecast = FakeForecast(truth=FAST, done=1e5, is_diverging=True)
    seen = look(slow(), contender("broken", forecast=forecast, held=4))
    rating, _ = after_looks(seen, again(seen))
    assert "costs more than others gain" in rating.reason


def test_slow_growers_make_no_room_for_each_other() -> None:
    slower = FakeForecast(truth=power_law(at=1e3, steepness=1.0), done=1e5)
    seen = look(slow("a", forecast=slower, held=7), slow("b", held=1))
    rating, _ = after_looks(seen, again(seen))
    assert "costs more than others gain" in rating.reason


def test_slow_growers_alone_make_room_for_nobody() -> None:
    seen = look(slow("a"), slow("b"))
    ratings = after_looks(seen, again(seen))
    assert planned(seen, ratings) == {"a": 4, "b": 4}
    assert all("costs more than others gain" in one.reason for one in ratings)


@pytest.mark.parametrize("settings", [{"threshold": -1.0}, {"period_s": float("nan")}])
def test_settings_that_mean_nothing_are_refused(settings: dict[str, float]) -> None:
    with pytest.raises(UsageError, match="is not 0 or more"):
        SpeCon(**settings)
