"""FlowCon: the algorithm, which packs use too, and the priority."""

import json
import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from freetrain.losscurve.forecast import MetricDirection, MetricPoint
from freetrain.priority.base import Contender, RatingResult
from freetrain.priority.flowcon import (
    LEAST_SHARE,
    SHORTEST,
    FlowCon,
    FlowConSettings,
    FlowConState,
    GrowthList,
    GrowthSample,
    GrowthTrack,
    from_json,
    is_due,
    next_list,
    to_json,
    update,
)
from tests.priority.inputs import (
    FakeForecast,
    contender,
    flat,
    inputs_of,
    rated_in_turn,
)

INTERVAL_S = 10.0
HOW = FlowConSettings(interval_s=INTERVAL_S)
FALLING = (10, 8, 6), (5, 4, 3), (2.5, 2, 1.5), (1.2, 1, 0.8), (0.6, 0.5, 0.4)
FLAT = (10, 1, 1), *((1.0, 1.001, 1.0),) * 4

Values = tuple[float, ...]


def history(losses: Mapping[str, Sequence[Values]]) -> Iterator[FlowConState]:
    """Update every interval with trainers that use all they are given.

    The first look is at their start; then each tells the next of its *losses*.
    """
    used_s = dict.fromkeys(losses, 0.0)
    state = update(
        FlowConState(), [_seen(name, (), 0.0, 0.0) for name in losses], 0.0, HOW
    )
    for turn in range(max(map(len, losses.values()))):
        yield state
        now_s = (turn + 1) * INTERVAL_S
        used_s = {n: s + INTERVAL_S * state.shares[n] for n, s in used_s.items()}
        reported = {
            n: values[turn] if turn < len(values) else ()
            for n, values in losses.items()
        }
        state = update(
            state, [_seen(n, reported[n], now_s, used_s[n]) for n in losses], now_s, HOW
        )
    yield state


def _seen(name: str, values: Values, now_s: float, used_s: float) -> GrowthSample:
    timed = tuple((now_s - len(values) + k + 1, v) for k, v in enumerate(values))
    return GrowthSample(name=name, values=timed, used_s=used_s)


def last(losses: Mapping[str, Sequence[Values]]) -> dict[str, GrowthTrack]:
    *_, state = history(losses)
    return {track.name: track for track in state.tracks}


def places(losses: Sequence[Values]) -> list[GrowthList]:
    """The lists that a trainer is in, look by look, beside one that goes on falling."""
    return [state.tracks[0].place for state in history({"it": losses, "b": FALLING})]


def test_a_flat_loss_is_watched_after_one_strike_and_completing_after_two() -> None:
    new, watching, completing = GrowthList
    assert places(FLAT) == [new, new, watching, completing, completing, completing]


def test_a_trainer_that_falls_again_is_new_again() -> None:
    assert places([*FLAT[:3], (0.6, 0.5, 0.4)])[-1] is GrowthList.NEW


@pytest.mark.parametrize("growth", [-5.0, 0.0, 0.0299])
def test_below_the_threshold_is_a_strike(growth: float) -> None:
    moves = [next_list(place, growth, 0.03) for place in GrowthList]
    assert moves == [GrowthList.WATCHING, GrowthList.COMPLETING, GrowthList.COMPLETING]


def test_growth_is_the_part_of_the_drop_gained_by_interval_and_share() -> None:
    (*_, before, after) = history({"a": FALLING[:3], "b": FALLING[:3]})
    assert before.tracks[0].share == pytest.approx(0.5)
    # From 4 to 2, of a drop from 10, in one interval on half of the resource.
    assert after.tracks[0].growth == pytest.approx((4 - 2) / (10 - 2) / 0.5)


def test_a_loss_that_climbs_is_no_growth_and_gets_the_least() -> None:
    tracks = last({"up": [(1, 2, 3), (4, 5, 6), (7, 8, 9)], "down": FALLING[:3]})
    growth = tracks["up"].growth
    assert growth is not None
    assert growth < 0
    assert tracks["up"].place is GrowthList.COMPLETING
    assert tracks["up"].share < tracks["down"].share


@pytest.mark.parametrize("odd", [math.nan, math.inf, -math.inf])
def test_a_loss_that_is_no_number_any_more_is_no_growth(odd: float) -> None:
    tracks = last({"odd": [(10, 8, 6), (5, 4, odd)], "down": FALLING[:2]})
    growth = tracks["odd"].growth
    assert growth is not None
    assert growth < 0
    assert json.dumps(to_json(FlowConState(tuple(tracks.values()))), allow_nan=False)


def test_one_odd_value_among_good_ones_changes_nothing() -> None:
    spiked = [(10, 8, 6), (5, 1e9, 4, 3, 2.9), (2.5, math.nan, 2, 1.5)]
    plain = [(10, 8, 6), (5, 4.5, 4, 3, 2.9), (2.5, 2, 2, 1.5)]
    with_spike = last({"a": spiked, "b": FALLING})["a"]
    assert with_spike.place is GrowthList.NEW
    without = last({"a": plain, "b": FALLING})["a"]
    assert (with_spike.growth or 0) == pytest.approx(without.growth, rel=0.6)


def test_noise_is_no_growth() -> None:
    chance = random.Random(1)  # noqa: S311 -- no secret

    def noisy() -> Values:
        return tuple(chance.gauss(1.0, 0.2) for _ in range(40))

    reported = [(2.0, 1.5, 1.2, *noisy()), *(noisy() for _ in range(9))]
    assert set(places(reported)[3:]) == {GrowthList.COMPLETING}


def test_a_spell_of_divergence_neither_hides_later_growth_nor_earns_anything() -> None:
    spell = [*FALLING[:2], (900, 1000, 800), FALLING[1], FALLING[2]]
    states = list(history({"a": spell, "b": FALLING}))
    growths = [state.tracks[0].growth for state in states]
    assert growths[3] is not None
    assert growths[3] < 0
    assert growths[4] == 0  # back to where it was
    assert states[5].tracks[0].place is GrowthList.NEW  # and on to a new best


def test_a_starved_trainer_does_not_explode() -> None:
    first = update(FlowConState(), [_seen("a", (), 0, 0)], 0.0, HOW)
    second = update(first, [_seen("a", (10, 8, 6), 10.0, 1e-9)], 10.0, HOW)
    assert second.tracks[0].growth == pytest.approx(1 / LEAST_SHARE)


def test_a_trainer_that_reports_nothing_gets_no_strike() -> None:
    assert places([*FALLING[:2], (), (), ()]) == [GrowthList.NEW] * 6


def test_a_newcomer_that_stays_silent_ends_with_an_equal_part() -> None:
    rows = list(history({"silent": [()] * 6, "b": FALLING, "c": FALLING}))
    shares = [state.shares["silent"] for state in rows]
    assert shares[0] == pytest.approx(1 / 3)
    growing = rows[-1].shares["b"]
    assert shares[-1] == pytest.approx(1 - 2 * growing)
    assert rows[-1].tracks[0].growth is None
    assert shares[-1] == pytest.approx(1 / 3 / (1 / 3 + 0.5 + 0.5))


def test_where_all_are_completing_all_have_the_same_and_updates_get_rarer() -> None:
    states = list(history({"a": FLAT, "b": FLAT}))
    gaps = [state.due_s - 10.0 * k for k, state in enumerate(states)]
    assert gaps == [10, 10, 10, 20, 40, 80]
    assert states[-1].shares == {"a": 0.5, "b": 0.5}


def test_where_all_are_completing_a_little_growth_makes_no_difference() -> None:
    creeping = [(10, 1, 1), *(((1 - 0.1 * k),) * 3 for k in range(1, 6))]
    tracks = last({"creeping": creeping, "flat": [*FLAT, FLAT[1]]})
    assert (tracks["creeping"].growth or 0) > 0.005
    assert tracks["creeping"].place is tracks["flat"].place is GrowthList.COMPLETING
    assert tracks["creeping"].share == tracks["flat"].share == 0.5


def test_updates_get_rarer_only_so_far() -> None:
    state = FlowConState()
    for number in range(40):
        values = FLAT[0] if number == 1 else FLAT[1]
        at_s = 1000.0 * number
        state = update(
            state, [_seen("a", values if number else (), at_s, at_s)], at_s, HOW
        )
    assert state.due_s - at_s == INTERVAL_S * 2**HOW.most_doublings


def test_an_arrival_and_an_exit_cause_an_update_and_end_the_back_off() -> None:
    *_, resting = history({"a": FLAT, "b": FLAT})
    assert not is_due(resting, ["a", "b"], 51.0)
    assert is_due(resting, ["a", "b", "c"], 51.0)
    assert is_due(resting, ["a"], 51.0)
    came = update(resting, [_seen(n, (), 51.0, 25.0) for n in "abc"], 51.0, HOW)
    gone = update(resting, [_seen("a", (), 51.0, 25.0)], 51.0, HOW)
    assert came.due_s == gone.due_s == 61.0
    assert came.shares["c"] > 0.6  # 1 against 1/4 and 1/4


def test_an_update_soon_after_another_measures_nothing() -> None:
    *_, state = history({"a": FALLING[:2], "b": FALLING[:2]})
    soon_s = 20.0 + SHORTEST * INTERVAL_S - 0.1
    samples = [_seen("a", (9.0, 9.0), soon_s, 10.0), _seen("b", (), soon_s, 10.0)]
    after = update(state, [*samples, _seen("c", (), soon_s, 0.0)], soon_s, HOW)
    assert [t.growth for t in after.tracks[:2]] == [t.growth for t in state.tracks]
    assert after.tracks[0].measured_s == 20.0  # the next look still sees these values


def test_shares_that_would_hardly_change_stay() -> None:
    *_, state = history({"a": FALLING[:2], "b": FALLING[:2]})
    almost = (2.5, 2.02, 1.5)
    used_s = [track.used_s + 5.0 for track in state.tracks]
    samples = [_seen("a", FALLING[2], 30, used_s[0]), _seen("b", almost, 30, used_s[1])]
    after = update(state, samples, 30.0, HOW)
    assert after.tracks[0].growth != after.tracks[1].growth
    assert after.shares == state.shares


def test_a_trainer_with_a_past_is_judged_by_what_it_does_from_now_on() -> None:
    past = (*(100.0,) * 5, *(1.0,) * 35)
    begun = update(FlowConState(), [_seen("a", past, 40.0, 12.0)], 40.0, HOW)
    assert begun.tracks[0].growth is None
    flat = _seen("a", (1.0, 1.0), 50.0, 22.0)
    after = update(begun, [flat], 50.0, HOW)
    assert after.tracks[0].growth == 0
    assert after.tracks[0].first == 100.0


values = st.floats(allow_nan=True, allow_infinity=True)
turns = st.lists(st.lists(values, max_size=5).map(tuple), min_size=1, max_size=6)


@given(st.dictionaries(st.sampled_from("abcd"), turns, min_size=1))
def test_shares_sum_to_one_and_starve_no_trainer_for_any_values(
    losses: dict[str, list[Values]],
) -> None:
    for state in history(losses):
        shares = state.shares.values()
        assert sum(shares) == pytest.approx(1)
        # Parts are 1/(n+1) at least, and below 3 together: those by growth 1, those
        # of the watched 1, and the least of all n.
        assert min(shares) > 1 / (len(losses) + 1) / 3
        bound = 1 / LEAST_SHARE / SHORTEST
        assert all(abs(t.growth or 0) <= bound + 1e-9 for t in state.tracks)


@given(st.dictionaries(st.sampled_from("abcd"), turns, min_size=1))
def test_state_survives_json(losses: dict[str, list[Values]]) -> None:
    for state in history(losses):
        assert (
            from_json(json.loads(json.dumps(to_json(state), allow_nan=False))) == state
        )


@pytest.mark.parametrize(
    "reported",
    [{}, {"tracks": 3}, {"tracks": [{"name": "a"}], "due_s": 1, "doublings": 0}],
)
def test_an_unreadable_state_is_a_new_state(reported: dict[str, object]) -> None:
    assert from_json(reported) == FlowConState()


# The priority

T_FWD_S = 60.0
NODES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Reported(FakeForecast):
    """A forecast of which only the past is asked: a value each ten seconds."""

    values: tuple[float, ...]
    until_s: float = math.inf

    @property
    def points(self) -> tuple[MetricPoint, ...]:
        past = (MetricPoint(10.0 * (k + 1), 0.0, v) for k, v in enumerate(self.values))
        return tuple(point for point in past if point.t_s <= self.until_s)


def reported(
    *values: float, better: MetricDirection = MetricDirection.LOWER
) -> Reported:
    return Reported(truth=flat(), done=0.0, better=better, values=values)


DOWN = reported(*(100 * 0.9**k for k in range(24)))
REST = reported(100.0, *(1.0,) * 23)
UP = reported(*(-value for value in DOWN.values), better=MetricDirection.HIGHER)


def trainer(name: str, forecast: Reported | None = None, **own: float) -> Contender:
    linear = 100.0 * np.arange(NODES + 1)
    return contender(name, samples_per_s=linear, held=2, forecast=forecast, **own)


def rate_each_minute(*forecasts: Reported | None, times: int = 5) -> RatingResult:
    moments = [T_FWD_S * number for number in range(times)]
    return rated_in_turn(
        FlowCon,
        [
            inputs_of(
                *[
                    trainer(name, own and replace(own, until_s=now_s))
                    for name, own in zip("ab", forecasts, strict=True)
                ],
                now_s=now_s,
                t_fwd_s=T_FWD_S,
            )
            for now_s in moments
        ],
    )


@pytest.mark.parametrize(
    ("first", "second", "nodes"),
    [(DOWN, REST, (6, 2)), (DOWN, DOWN, (4, 4)), (UP, REST, (6, 2))],
    ids=["one still grows", "equals", "a metric that is better when higher"],
)
def test_growth_is_worth_nodes(
    first: Reported, second: Reported, nodes: tuple[int, int]
) -> None:
    rated = rate_each_minute(first, second)
    one, other = (rating.curve.value_per_s for rating in rated.ratings)
    divisions = [(n, NODES - n) for n in range(NODES + 1)]
    assert max(divisions, key=lambda n: one[n[0]] + other[n[1]]) == nodes


def test_without_a_usable_loss_throughput_counts_and_the_reason_says_so() -> None:
    mute, falling = rate_each_minute(None, DOWN).ratings
    assert "throughput" in mute.reason
    assert 0 < mute.curve.value_per_s[1] < falling.curve.value_per_s[1]


def test_between_two_updates_nothing_changes_unless_a_trainer_comes_or_goes() -> None:
    rated = rate_each_minute(DOWN, REST)
    both, now_s = (trainer("a", DOWN), trainer("b", REST)), T_FWD_S * 4 + 5
    again, more = (
        FlowCon().rate(inputs_of(*team, now_s=now_s, t_fwd_s=T_FWD_S), rated.memory)
        for team in (both, (*both, trainer("c")))
    )
    reasons = [rating.reason for rating in rated.ratings]
    assert [rating.reason for rating in again.ratings] == reasons
    worths = [rating.curve.value_per_s[1] for rating in more.ratings]
    assert worths[2] > 2 * max(worths[:2])  # a newcomer is guessed to grow


def test_a_users_weight_counts() -> None:
    inputs = inputs_of(trainer("heavy", weight=3.0), trainer("light"))
    heavy, light = FlowCon().rate(inputs, {}).ratings
    assert heavy.curve.value_per_s == pytest.approx(3 * light.curve.value_per_s)
