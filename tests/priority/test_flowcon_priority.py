"""FlowCon among nodes, as the planner hears of it."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from freetrain.losscurve.forecast import Better, Expected, Point
from freetrain.priority.base import Contender, Memory, RatingInputs, RatingResult
from freetrain.priority.flowcon import FlowCon

if TYPE_CHECKING:
    from collections.abc import Mapping

T_FWD_S = 60.0
NODES = 8


@dataclass(frozen=True)
class Told:
    """A forecast of which only the past is asked."""

    points: tuple[Point, ...]
    better: Better = Better.LOWER
    is_diverging: bool = False
    family: str = "none"

    def expected(self, samples: float) -> Expected:
        raise NotImplementedError

    def quality(self, value: float) -> float:
        raise NotImplementedError

    def samples_to(self, value: float) -> float:
        raise NotImplementedError


def contender(name: str, *, held: int = 2, forecast: Told | None = None) -> Contender:
    return Contender(
        name=name,
        sizes=tuple(range(1, NODES + 1)),
        samples_per_s=np.arange(NODES + 1, dtype=np.float64) * 100,
        held=held,
        done_samples=0.0,
        forecast=forecast,
    )


def told(*values: float, better: Better = Better.LOWER) -> Told:
    """One value each ten seconds from 10 s on."""
    points = (Point(10.0 * (k + 1), 0.0, v) for k, v in enumerate(values))
    return Told(tuple(points), better)


FALLING = tuple(100 * 0.9**k for k in range(24))
FLAT = (100.0, *(1.0,) * 23)


def rate_each_minute(
    forecasts: Mapping[str, Told | None], looks: int = 5
) -> RatingResult:
    memory: Memory = {}
    for number in range(looks):
        now_s = T_FWD_S * number
        present = tuple(
            contender(name, forecast=_until(forecast, now_s))
            for name, forecast in forecasts.items()
        )
        rated = FlowCon().rate(_look(now_s, present), memory)
        memory = json.loads(json.dumps(rated.memory, allow_nan=False))
    return rated


def _until(forecast: Told | None, now_s: float) -> Told | None:
    if forecast is None:
        return None
    return replace(forecast, points=tuple(p for p in forecast.points if p.t_s <= now_s))


def _look(now_s: float, contenders: tuple[Contender, ...]) -> RatingInputs:
    return RatingInputs(
        now_s=now_s, contenders=contenders, nodes=NODES, t_fwd_s=T_FWD_S
    )


def best_division(rated: RatingResult) -> tuple[int, int]:
    """The two node counts that are worth most together."""
    first, second = (rating.curve.value_per_s for rating in rated.ratings)
    return max(
        ((n, NODES - n) for n in range(NODES + 1)),
        key=lambda counts: first[counts[0]] + second[counts[1]],
    )


def test_a_trainer_that_still_grows_is_worth_more_nodes() -> None:
    rated = rate_each_minute({"falling": told(*FALLING), "flat": told(*FLAT)})
    assert best_division(rated) == (6, 2)


def test_equals_are_worth_equal_nodes() -> None:
    rated = rate_each_minute({"a": told(*FALLING), "b": told(*FALLING)})
    assert best_division(rated) == (4, 4)


def test_a_metric_that_is_better_when_higher_is_turned_round() -> None:
    rising = told(*(-value for value in FALLING), better=Better.HIGHER)
    rated = rate_each_minute({"rising": rising, "flat": told(*FLAT)})
    assert best_division(rated) == (6, 2)


def test_without_a_usable_loss_throughput_counts_and_the_reason_says_so() -> None:
    rated = rate_each_minute({"mute": None, "falling": told(*FALLING)})
    mute, falling = rated.ratings
    assert "throughput" in mute.reason
    assert mute.curve.value_per_s[1] < falling.curve.value_per_s[1]
    assert mute.curve.value_per_s[1] > 0


def test_a_trainer_that_diverges_gets_what_the_others_leave() -> None:
    lost = replace(told(*FALLING), is_diverging=True)
    rated = rate_each_minute({"lost": lost, "falling": told(*FALLING)})
    assert [rating.is_background for rating in rated.ratings] == [True, False]
    assert "diverging" in rated.ratings[0].reason
    assert best_division(rated)[0] < NODES / 2


def test_between_two_updates_nothing_changes_unless_a_trainer_comes_or_goes() -> None:
    forecasts = {"falling": told(*FALLING), "flat": told(*FLAT)}
    rated = rate_each_minute(forecasts)
    now_s = T_FWD_S * 4 + 5
    present = tuple(contender(name, forecast=one) for name, one in forecasts.items())
    again = FlowCon().rate(_look(now_s, present), rated.memory)
    more = FlowCon().rate(_look(now_s, (*present, contender("c"))), rated.memory)
    reasons = [rating.reason for rating in rated.ratings]
    assert [rating.reason for rating in again.ratings] == reasons
    worths = [rating.curve.value_per_s[1] for rating in more.ratings]
    assert worths[2] > 2 * max(worths[:2])  # a newcomer is guessed to grow


def test_memory_keeps_nothing_of_trainers_that_are_gone() -> None:
    rated = rate_each_minute({"stays": told(*FALLING), "goes": told(*FLAT)})
    left = (contender("stays", forecast=told(*FALLING)),)
    after = FlowCon().rate(_look(T_FWD_S * 5, left), rated.memory)
    assert "goes" not in json.dumps(after.memory)


def test_the_same_inputs_get_the_same_ratings() -> None:
    one, other = (rate_each_minute({"a": told(*FALLING)}) for _ in range(2))
    assert one.memory == other.memory
    assert [r.reason for r in one.ratings] == [r.reason for r in other.ratings]


def test_a_users_weight_counts() -> None:
    present = (replace(contender("heavy"), weight=3.0), contender("light"))
    heavy, light = FlowCon().rate(_look(0.0, present), {}).ratings
    assert heavy.curve.value_per_s == pytest.approx(3 * light.curve.value_per_s)
