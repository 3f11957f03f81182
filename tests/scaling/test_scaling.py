"""Speeds and costs of fragments, estimates from them, and the curves of a planner."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from freetrain.errors import BadDataError
from freetrain.priority.base import PRIORITIES
from freetrain.scaling import (
    HALF_LIFE_S,
    NORMAL_MAD,
    Estimate,
    LearnedScaling,
    MeasuredSpeed,
    Profiling,
    Rescale,
    RescaleCost,
    SpeedPrior,
    Stake,
    TrainedFragment,
    cautious,
    curve_values,
    deviations_for,
    estimate,
    from_state,
    measured_speed,
    pool,
    rescale_cost,
    shown_by,
    site_prior,
    to_state,
)
from tests.scaling.fragments import (
    at_speeds,
    fragments,
    learned_from,
    learned_scalings,
    steady,
)

ALL_NODES = slice(1, None)
REPORTED = given(st.lists(fragments(), max_size=12), st.integers(1, 80))


def estimated(*fragments: TrainedFragment, most: int = 64) -> Estimate:
    return estimate(learned_from(*fragments), most, now_s=0.0)


# One fragment


def speed_of(fragment: TrainedFragment) -> MeasuredSpeed:
    found = measured_speed(fragment)
    assert found is not None
    return found


def test_a_steady_fragment_shows_its_speed_with_or_without_marks() -> None:
    assert speed_of(steady(4, 100.0)).samples_per_s == pytest.approx(100.0)
    assert speed_of(replace(steady(4, 100.0), marks=())).samples_per_s == 100.0


@given(st.integers(1, 8), st.floats(0.0, 0.8))
def test_a_warm_up_of_any_length_is_left_out(slow: int, share: float) -> None:
    found = speed_of(at_speeds(4, [100.0 * share] * slow + [100.0] * 10))

    assert found.samples_per_s == pytest.approx(100.0, rel=0.01)
    assert found.trained_s == pytest.approx(100.0)


@given(st.integers(10, 18), st.floats(0.0, 1e6))
def test_an_absurd_interval_does_not_move_the_speed_far(at: int, speed: float) -> None:
    speeds = [100.0] * 20
    speeds[at] = speed

    found = speed_of(at_speeds(4, speeds))
    assert found.samples_per_s == pytest.approx(100.0, rel=0.01)


def test_a_stall_longer_than_all_the_rest_does_not_halve_the_speed() -> None:
    fragment = at_speeds(4, [100.0] * 20)
    marks = tuple(
        replace(mark, t_s=mark.t_s + 1000.0) if mark.t_s > 200.0 else mark
        for mark in fragment.marks
    )
    stalled = replace(fragment, marks=marks, last_step_s=fragment.last_step_s + 1000.0)

    assert speed_of(stalled).samples_per_s > 90.0


def test_a_fragment_of_a_single_step_shows_no_speed() -> None:
    assert measured_speed(replace(steady(4, 100.0), steps=1)) is None
    assert measured_speed(replace(steady(4, 100.0), first_step_s=None)) is None


CAME = replace(steady(4, 100.0), nodes_before=2, step_before_s=-5.0)


@pytest.mark.parametrize(
    ("fragment", "cost"),
    [
        (replace(CAME, nodes_before=0, step_before_s=None), (Rescale.START, 10.0)),
        (CAME, (Rescale.GROW, 15.0)),
        (replace(CAME, nodes_before=8), (Rescale.SHRINK, 15.0)),
        pytest.param(replace(CAME, follows_failure=True), None, id="after a failure"),
        pytest.param(replace(CAME, step_before_s=50.0), None, id="clock goes back"),
        pytest.param(replace(CAME, nodes_before=4), None, id="as many nodes"),
    ],
)
def test_a_rescale_costs_the_time_between_the_steps_around_it(
    fragment: TrainedFragment, cost: tuple[Rescale, float] | None
) -> None:
    found = rescale_cost(fragment)

    assert (found and (found[0], found[1].seconds)) == cost


# All fragments


def test_a_fragment_under_way_is_replaced_as_it_goes_on() -> None:
    learned = learned_from(steady(4, 90.0, trained_s=60.0), steady(4, 100.0))

    assert [own.samples_per_s for own in learned.seen[4]] == [pytest.approx(100.0)]


def test_the_newest_fragments_of_a_size_are_kept() -> None:
    learned = learned_from(*(steady(4, 100.0 + k, began_s=k) for k in range(20)))

    assert [own.began_s for own in learned.seen[4]] == list(range(13, 20))


def test_costs_leave_the_assumption_and_ignore_a_single_hang() -> None:
    took_s = [18.0, 17.0, 900.0, 18.0, 19.0]
    paid = tuple(RescaleCost(float(k), seconds) for k, seconds in enumerate(took_s))
    learned = LearnedScaling(paid={Rescale.GROW: paid})

    assert LearnedScaling().cost_s(Rescale.GROW, assumed_s=3.0) == 3.0
    assert 17.0 <= learned.cost_s(Rescale.GROW, assumed_s=3.0) <= 19.0


@given(learned_scalings())
def test_state_comes_back_from_json_and_merges_with_itself(
    learned: LearnedScaling,
) -> None:
    assert from_state(json.loads(json.dumps(to_state(learned)))) == learned
    assert learned.merged(learned) == learned
    assert LearnedScaling().merged(learned) == learned


@pytest.mark.parametrize(
    "state",
    [
        {},
        {"version": 2, "seen": {}, "paid": {}},
        {"version": 1, "seen": [], "paid": {}},
        {"version": 1, "seen": {"0": []}, "paid": {}},
        {"version": 1, "seen": {"4": [[0.0, 1.0]]}, "paid": {}},
        {"version": 1, "seen": {"4": [[0.0, -1.0, 5.0]]}, "paid": {}},
        {"version": 1, "seen": {"4": [[0.0, float("nan"), 5.0]]}, "paid": {}},
        {"version": 1, "seen": {"4": [[0.0, True, 5.0]]}, "paid": {}},
        {"version": 1, "seen": {}, "paid": {"jump": []}},
        {"version": 1, "seen": {}, "paid": {"grow": [[0.0, -1.0]]}},
    ],
)
def test_a_damaged_state_is_refused(state: dict[str, object]) -> None:
    with pytest.raises(BadDataError, match="learned again"):
        from_state(state)


# The speed at one size


@pytest.mark.parametrize(
    ("speeds", "trained_s", "age_s", "log_sd"),
    [
        pytest.param([100.0], 5.0, 0.0, 0.1, id="five seconds: 10 %"),
        pytest.param([100.0], 20.0, 0.0, 0.05, id="twenty seconds: 5 %"),
        pytest.param([100.0], 40.0, HALF_LIFE_S, 0.05, id="half after the half-life"),
        pytest.param(
            [100.0 * math.exp(away) for away in (-0.1, 0.0, 0.1) * 3],
            1e9,
            0.0,
            NORMAL_MAD * 0.1 / 3,
            id="nine that differ: their spread over 3",
        ),
    ],
)
def test_a_pooled_speed_is_the_surer_the_longer_and_the_more_alike_its_fragments(
    speeds: list[float], trained_s: float, age_s: float, log_sd: float
) -> None:
    seen = [MeasuredSpeed(float(k), own, trained_s) for k, own in enumerate(speeds)]

    pooled = pool(seen, now_s=age_s)

    assert pooled.log_speed == pytest.approx(math.log(100.0))
    assert pooled.log_sd == pytest.approx(math.hypot(0.005, log_sd), rel=0.01)


# The estimate


@REPORTED
def test_estimates_and_curves_are_possible_for_any_reports(
    reports: list[TrainedFragment], most: int
) -> None:
    known = estimate(learned_from(*reports), most, now_s=1e9)
    stake = replace(STAKE, sizes=range(1, most + 1))
    values = curve_values(known, profiling=Profiling(), stake=stake)
    careful = cautious(known, held=0)

    for speeds in (known.samples_per_s, values, careful.samples_per_s):
        assert speeds[0] == 0.0
        assert np.isfinite(speeds).all()
        assert (speeds[ALL_NODES] > 0).all()
    assert np.isfinite(known.log_sd).all()
    assert (values >= known.samples_per_s).all() or not known.measured
    assert (careful.samples_per_s <= known.samples_per_s).all()
    assert (careful.log_sd == known.log_sd).all()
    assert careful.measured == known.measured


@given(st.lists(st.floats(10.0, 1e5), min_size=8, max_size=8))
def test_a_measured_curve_of_any_shape_is_reproduced(speeds: list[float]) -> None:
    learned = learned_from(
        *(steady(n, v, trained_s=3600.0, began_s=n) for n, v in enumerate(speeds, 1))
    )

    # A prior that lets neighbours differ as much as these do.
    known = estimate(learned, 8, now_s=0.0, prior=SpeedPrior(log_sd_per_doubling=1.0))

    assert known.samples_per_s[1:] == pytest.approx(speeds, rel=0.05)


def test_a_curve_that_falls_is_not_made_to_grow() -> None:
    table = {1: 100.0, 2: 190.0, 4: 350.0, 8: 240.0, 16: 120.0}
    known = estimated(*(steady(n, v, began_s=n) for n, v in table.items()), most=32)

    speeds = known.samples_per_s
    assert speeds[list(table)] == pytest.approx(list(table.values()), rel=0.03)
    assert speeds[4] > speeds[8] > speeds[16]


def test_a_single_measured_size_scales_the_prior() -> None:
    known = estimated(steady(4, 1000.0))

    assert known.measured == {4}
    assert known.samples_per_s[4] == pytest.approx(1000.0, rel=0.01)
    assert known.samples_per_s[16] == pytest.approx(1000.0 * 4**0.9, rel=0.02)
    assert known.log_sd[4] < known.log_sd[8] < known.log_sd[16] < known.log_sd[64]


@given(st.floats(0.6, 1.1), st.floats(1.0, 1e6))
def test_more_measured_sizes_bring_the_curve_closer(power: float, scale: float) -> None:
    truth = scale * np.arange(1, 65) ** power

    few, more = (
        estimated(*(steady(n, truth[n - 1], began_s=n) for n in sizes)).samples_per_s
        for sizes in ((2,), (2, 8, 32))
    )
    away = [np.abs(np.log(own[1:] / truth)).max() for own in (few, more)]
    assert away[1] <= away[0] + 0.01


def test_a_user_s_curve_is_used_until_it_is_measured() -> None:
    user = {1: 100.0, 8: 400.0}

    before = estimate(LearnedScaling(), 16, now_s=0.0, user=user)
    after = estimate(learned_from(steady(8, 800.0)), 16, now_s=0.0, user=user)

    assert before.samples_per_s[[1, 8]] == pytest.approx([100.0, 400.0])
    assert after.samples_per_s[8] == pytest.approx(800.0, rel=0.02)
    assert after.samples_per_s[1] > 120.0


OLD_S = 10 * HALF_LIFE_S
ALIKE = [steady(4, 100.0, began_s=1000.0 * k) for k in range(3)]
DOUBTFUL = {
    "an absurd fragment among four": (
        *([*ALIKE, steady(4, 1.0, began_s=5000.0)], 0.0, 100.0, 0.05),
    ),
    "a short fragment": (
        [steady(4, 100.0), steady(4, 50.0, began_s=1.0, trained_s=20.0)],
        *(0.0, 100.0, 0.1),
    ),
    "an old fragment, of a machine that changed": (
        *([steady(4, 100.0), steady(4, 60.0, began_s=OLD_S)], OLD_S, 60.0, 0.02),
    ),
}


@pytest.mark.parametrize(
    ("fragments", "now_s", "speed", "within"), DOUBTFUL.values(), ids=DOUBTFUL
)
def test_absurd_short_and_old_fragments_count_little(
    fragments: list[TrainedFragment], now_s: float, speed: float, within: float
) -> None:
    known = estimate(learned_from(*fragments), 8, now_s=now_s)

    assert known.samples_per_s[4] == pytest.approx(speed, rel=within)


def test_speeds_beyond_all_measure_do_not_overflow() -> None:
    known = estimated(steady(1, 1e-200), steady(2, 1e200, began_s=1.0))

    assert np.isfinite(known.samples_per_s).all()


def test_the_prior_of_a_site_has_the_slope_and_spread_of_its_trainers() -> None:
    alike = [
        learned_from(*(steady(n, s * n**0.6, began_s=n) for n in (1, 4, 16)))
        for s in (90.0, 100.0, 110.0) * 5
    ]

    prior = site_prior([own for a in alike if (own := shown_by(a, now_s=0.0))])

    assert prior.one_node_per_s == pytest.approx(100.0, rel=0.05)
    assert prior.exponent == pytest.approx(0.6, abs=0.02)
    assert prior.log_sd_per_doubling < SpeedPrior().log_sd_per_doubling


def test_the_variance_about_a_power_law_is_that_of_a_doubling() -> None:
    """Five points, two of which the law takes; two doublings stray by log 1.2 each."""
    speeds = {1: 1.0, 2: 1.0, 4: 1.2, 8: 1.0, 16: 1.0}
    learned = learned_from(
        *(steady(n, by * n**0.6, began_s=n) for n, by in speeds.items())
    )

    shown = shown_by(learned, now_s=0.0)

    assert shown is not None
    assert shown.exponent == pytest.approx(0.6)
    assert shown.log_variance == pytest.approx(2 * math.log(1.2) ** 2 / 3)


# Caution


def test_a_trainer_measured_on_many_nodes_only_hardly_seems_quicker_on_few() -> None:
    # Both train 100 samples/s a node on any number, more evenly than is expected.
    few, many = (estimated(steady(n, 100.0 * n), most=16) for n in (2, 16))

    careful = [cautious(known, held=0).samples_per_s[2] for known in (few, many)]

    assert many.samples_per_s[2] > 1.15 * few.samples_per_s[2]
    assert careful[1] < 1.1 * careful[0]


def test_speeds_are_lowered_by_deviations_of_their_logarithm() -> None:
    known = estimated(steady(4, 1000.0), most=8)

    none, half, whole = (
        cautious(known, held=0, deviations=own).samples_per_s for own in (0.0, 0.5, 1.0)
    )

    assert (none == known.samples_per_s).all()
    for lowered, deviations in ((half, 0.5), (whole, 1.0)):
        away = np.log(none[ALL_NODES] / lowered[ALL_NODES])
        expected = deviations * known.log_sd[ALL_NODES]
        assert away == pytest.approx(expected, abs=1e-6)
    assert not whole.flags.writeable


def test_speeds_do_not_hang_on_the_last_digits_of_a_processor() -> None:
    known, other = (
        estimated(steady(4, 987.654321 * (1.0 + off)), most=8) for off in (0.0, 1e-13)
    )

    assert (known.samples_per_s == other.samples_per_s).all()
    assert (known.log_sd == other.log_sd).all()


def test_running_and_never_measured_trainers_keep_their_speeds() -> None:
    known = estimated(steady(4, 1000.0))
    expected = estimate(LearnedScaling(), 8, now_s=0.0, prior=SpeedPrior(exponent=0.8))

    assert cautious(known, held=4) is known
    assert cautious(expected, held=0) is expected


@pytest.mark.parametrize("priority", PRIORITIES)
def test_only_priorities_that_compare_samples_are_cautious(priority: str) -> None:
    assert deviations_for(priority) == (1.0 if priority == "throughput" else 0.0)


# Which sizes are tried

DOUBLINGS = (1, 2, 4, 8, 16, 32, 64)
STAKE = Stake(sizes=DOUBLINGS, held=1, remaining_samples=1e9, rescale_s=30.0)


def tried(table: dict[int, float], stake: Stake = STAKE) -> list[int]:
    """Return unmeasured sizes worth more than any measured one, the highest first."""
    known = estimated(*(steady(n, v, began_s=n) for n, v in table.items()))
    held = replace(stake, held=max(table, key=table.__getitem__))
    values = curve_values(known, profiling=Profiling(), stake=held)
    raised = [n for n in stake.sizes if values[n] > max(table.values())]
    return sorted(set(raised) - set(table), key=lambda n: -values[n])


def test_a_trainer_begins_on_its_smallest_size() -> None:
    stake = replace(STAKE, sizes=(4, 8), held=0)
    known = estimate(LearnedScaling(), 8, now_s=0.0)

    values = curve_values(known, profiling=Profiling(), stake=stake)

    assert list(values[[4, 8]]) == [known.samples_per_s[4]] * 2
    on_more = curve_values(known, profiling=Profiling(), stake=replace(stake, held=8))
    assert list(on_more) == list(known.samples_per_s), "it is not made to shrink"


def test_the_largest_free_size_comes_next_and_then_sizes_between() -> None:
    assert tried({1: 100.0})[0] == 64
    assert tried({1: 100.0, 64: 300.0})[0] == 8


def test_the_smallest_size_comes_before_others_where_it_is_unknown() -> None:
    assert 1 in tried({8: 100.0, 64: 120.0})
    assert 2 not in tried({8: 100.0, 64: 120.0})


@pytest.mark.parametrize(
    ("table", "sizes"),
    [
        pytest.param({1: 100.0, 64: 6000.0}, [], id="rises: smaller ones are slower"),
        pytest.param({1: 100.0, 2: 40.0, 64: 1.0}, [], id="falls: 8 has at most 70"),
        pytest.param({1: 100.0, 64: 20.0}, [2, 4, 8, 16], id="falls slowly"),
    ],
)
def test_sizes_are_tried_that_may_be_quicker_and_no_others(
    table: dict[int, float], sizes: list[int]
) -> None:
    assert sorted(tried(table)) == sorted(sizes)


FALLING = {1: 100.0, 2: 180.0, 3: 170.0, 5: 160.0, 8: 150.0}
RISING = {1: 100.0, 10: 600.0, 20: 900.0, 48: 850.0, 64: 1000.0}


@pytest.mark.parametrize(
    ("table", "sizes"),
    [
        pytest.param({1: 100.0, 16: 1500.0, 18: 400.0}, [17], id="between 16 and 18"),
        pytest.param({1: 100.0, 16: 1500.0, 18: 1400.0}, [], id="it falls smoothly"),
        pytest.param({1: 100.0, 48: 4500.0, 50: 900.0}, [], id="49 is hardly more"),
        pytest.param({**RISING, 36: 600.0}, [27], id="it rises again"),
        pytest.param({**RISING, 36: 800.0}, [], id="it hardly falls"),
        pytest.param({1: 100.0, 16: 1500.0, 20: 900.0}, [18], id="faster still"),
        pytest.param({1: 100.0, 16: 1500.0, 20: 1000.0}, [], id="as squares"),
        pytest.param({**FALLING, 14: 100.0}, [], id="beyond the best it only falls"),
    ],
)
def test_before_a_cliff_sizes_are_tried_until_they_are_3_percent_apart(
    table: dict[int, float], sizes: list[int]
) -> None:
    assert tried(table, replace(STAKE, sizes=range(1, max(table) + 1))) == sizes


def test_nothing_is_tried_shortly_before_the_end_nor_by_one_that_waits() -> None:
    known = estimated(steady(1, 100.0))
    ending, waiting = (
        replace(STAKE, remaining_samples=100.0 * 200.0),
        replace(STAKE, held=0),
    )

    for stake in (ending, waiting):
        values = curve_values(known, profiling=Profiling(), stake=stake)
        assert values == pytest.approx(known.samples_per_s, rel=0.0)


def test_among_contending_trainers_bonuses_are_smaller() -> None:
    known = estimated(steady(1, 100.0), steady(8, 150.0, began_s=1.0))
    free, scarce = (
        curve_values(
            known, profiling=Profiling(), stake=replace(STAKE, held=8, is_scarce=own)
        )
        for own in (False, True)
    )

    assert known.samples_per_s[4] < scarce[4] <= 2.1 * known.samples_per_s[8]
    assert free[4] > scarce[4]


def test_a_trainer_returns_to_its_best_size() -> None:
    table = dict.fromkeys(DOUBLINGS, 100.0) | {8: 110.0}
    known = estimated(*(steady(n, v, began_s=n) for n, v in table.items()))

    values = curve_values(known, profiling=Profiling(), stake=replace(STAKE, held=64))

    assert values[8] > (1.0 + STAKE.rescale_s / 120.0) * values[64]
    assert [n for n in DOUBLINGS if values[n] > known.samples_per_s[n]] == [8]


def test_what_siblings_showed_counts_unless_own_speed_is_another() -> None:
    siblings = learned_from(steady(1, 100.0), steady(8, 500.0, began_s=1.0))
    alike, other = (learned_from(steady(1, v, began_s=9.0)) for v in (105.0, 130.0))

    assert alike.with_siblings(siblings, now_s=9.0).seen.keys() == {1, 8}
    assert alike.with_siblings(siblings, now_s=9.0).seen[1] == alike.seen[1]
    assert other.with_siblings(siblings, now_s=9.0) is other
    assert LearnedScaling().with_siblings(siblings, now_s=9.0) == siblings
    assert siblings.with_siblings(siblings, now_s=9.0) == siblings
