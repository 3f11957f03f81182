from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from freetrain.errors import BadDataError
from freetrain.scaling import (
    HALF_LIFE_S,
    LearnedScaling,
    Prior,
    Profiling,
    Rescale,
    RescaleCost,
    Stake,
    TrainedFragment,
    curve_values,
    estimate,
    from_state,
    pool,
    shown_by,
    site_prior,
    to_state,
)
from tests.scaling.fragments import (
    fragments,
    learned_from,
    learned_scalings,
    steady,
)


@given(st.lists(fragments(), max_size=12), st.integers(1, 80))
def test_estimates_are_finite_and_above_0_whatever_programs_tell(
    told: list[TrainedFragment], most: int
) -> None:
    learned = learned_from(*told)

    known = estimate(learned, most, now_s=1e9)
    values = curve_values(known, profiling=Profiling(), stake=Stake(rescale_s=1.0))

    assert known.samples_per_s[0] == values[0] == 0.0
    assert np.isfinite(known.samples_per_s).all()
    assert np.isfinite(known.log_sd).all()
    assert (known.samples_per_s[1:] > 0).all()
    assert (values >= known.samples_per_s).all()


@given(learned_scalings())
def test_state_comes_back_from_json_as_it_was(learned: LearnedScaling) -> None:
    assert from_state(json.loads(json.dumps(to_state(learned)))) == learned


@given(learned_scalings())
def test_merging_what_is_known_already_changes_nothing(learned: LearnedScaling) -> None:
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


@given(st.lists(st.floats(10.0, 1e5), min_size=8, max_size=8))
def test_a_measured_curve_is_reproduced_whatever_its_shape(speeds: list[float]) -> None:
    learned = learned_from(
        *(steady(n, v, trained_s=3600.0, began_s=n) for n, v in enumerate(speeds, 1))
    )

    # A prior that lets neighbours differ as much as these do.
    known = estimate(learned, 8, now_s=0.0, prior=Prior(log_sd_per_doubling=1.0))

    assert known.samples_per_s[1:] == pytest.approx(speeds, rel=0.05)


def test_a_curve_that_falls_is_not_made_to_grow() -> None:
    table = {1: 100.0, 2: 190.0, 4: 350.0, 8: 240.0, 16: 120.0}
    learned = learned_from(*(steady(n, v, began_s=n) for n, v in table.items()))

    speeds = estimate(learned, 32, now_s=0.0).samples_per_s

    assert speeds[list(table)] == pytest.approx(list(table.values()), rel=0.03)
    assert speeds[4] > speeds[8] > speeds[16]


def test_one_measured_size_scales_the_prior() -> None:
    known = estimate(learned_from(steady(4, 1000.0)), 64, now_s=0.0)

    assert known.measured == {4}
    assert known.samples_per_s[4] == pytest.approx(1000.0, rel=0.01)
    assert known.samples_per_s[16] == pytest.approx(1000.0 * 4**0.9, rel=0.02)
    assert known.log_sd[4] < known.log_sd[8] < known.log_sd[16] < known.log_sd[64]


@given(st.floats(0.6, 1.1), st.floats(1.0, 1e6))
def test_more_sizes_measured_bring_the_curve_closer(power: float, scale: float) -> None:
    truth = scale * np.arange(1, 65) ** power
    few, more = (
        learned_from(*(steady(n, truth[n - 1], began_s=n) for n in sizes))
        for sizes in ((2,), (2, 8, 32))
    )

    away = [
        np.abs(np.log(estimate(one, 64, now_s=0.0).samples_per_s[1:] / truth)).max()
        for one in (few, more)
    ]

    assert away[1] <= away[0] + 0.01


def test_a_user_s_curve_is_believed_until_it_is_measured() -> None:
    user = {1: 100.0, 8: 400.0}

    before = estimate(LearnedScaling(), 16, now_s=0.0, user=user)
    after = estimate(learned_from(steady(8, 800.0)), 16, now_s=0.0, user=user)

    assert before.samples_per_s[[1, 8]] == pytest.approx([100.0, 400.0])
    assert after.samples_per_s[8] == pytest.approx(800.0, rel=0.02)
    assert after.samples_per_s[1] > 120.0


def test_one_absurd_fragment_among_four_does_not_move_a_size() -> None:
    usual = [steady(4, 100.0, began_s=1000.0 * k) for k in range(3)]
    learned = learned_from(*usual, steady(4, 1.0, began_s=5000.0))

    assert estimate(learned, 8, now_s=0.0).samples_per_s[4] == pytest.approx(100, 0.05)


def test_short_fragments_count_little() -> None:
    long, short = steady(4, 100.0), steady(4, 50.0, began_s=1.0, trained_s=20.0)

    assert estimate(learned_from(long, short), 8, now_s=0.0).samples_per_s[
        4
    ] == pytest.approx(100.0, rel=0.1)


def test_a_machine_that_changed_is_learned_anew() -> None:
    now_s = 10 * HALF_LIFE_S
    learned = learned_from(steady(4, 100.0), steady(4, 60.0, began_s=now_s))

    speeds = estimate(learned, 8, now_s=now_s).samples_per_s

    assert speeds[4] == pytest.approx(60.0, rel=0.02)


def test_what_is_old_is_less_certain() -> None:
    seen = learned_from(steady(4, 100.0)).seen[4]

    assert pool(seen, now_s=10 * HALF_LIFE_S).log_sd > pool(seen, now_s=0.0).log_sd


def test_a_fragment_under_way_is_replaced_as_it_goes_on() -> None:
    learned = learned_from(steady(4, 90.0, trained_s=60.0), steady(4, 100.0))

    assert [one.samples_per_s for one in learned.seen[4]] == [pytest.approx(100.0)]


def test_costs_leave_the_assumption_and_ignore_one_hang() -> None:
    took_s = [18.0, 17.0, 900.0, 18.0, 19.0]
    paid = tuple(RescaleCost(float(k), seconds) for k, seconds in enumerate(took_s))

    assert LearnedScaling().cost_s(Rescale.GROW, assumed_s=3.0) == 3.0
    cost_s = LearnedScaling(paid={Rescale.GROW: paid}).cost_s(
        Rescale.GROW, assumed_s=3.0
    )
    assert 17.0 <= cost_s <= 19.0


def test_a_site_tells_how_steep_trainers_are_and_how_alike() -> None:
    alike = [
        learned_from(*(steady(n, s * n**0.6, began_s=n) for n in (1, 4, 16)))
        for s in (90.0, 100.0, 110.0) * 5
    ]

    prior = site_prior([one for a in alike if (one := shown_by(a, now_s=0.0))])

    assert prior.one_node_per_s == pytest.approx(100.0, rel=0.05)
    assert prior.exponent == pytest.approx(0.6, abs=0.02)
    assert prior.log_sd_per_doubling < Prior().log_sd_per_doubling


def test_a_size_is_hoped_for_only_where_it_is_worth_its_rescales() -> None:
    known = estimate(learned_from(steady(4, 1000.0)), 64, now_s=0.0)
    ample, cheap = Profiling(horizon_s=3e4), Stake(held=4, rescale_s=1.0)
    late = Stake(held=4, rescale_s=1.0, remaining_samples=5000.0)
    dear = Stake(held=4, rescale_s=1e5)

    hopeful = curve_values(known, profiling=ample, stake=cheap)

    assert hopeful[8] > known.samples_per_s[8]
    most = known.samples_per_s * (1.0 + ample.most)
    assert (hopeful <= most * (1.0 + 1e-9)).all()
    assert hopeful[4] == known.samples_per_s[4]
    for stake in (late, dear):
        values = curve_values(known, profiling=ample, stake=stake)
        assert (values == known.samples_per_s).all()


def test_hopes_end_as_sizes_get_known() -> None:
    known = estimate(
        learned_from(
            *(steady(n, 100.0 * n, began_s=n, trained_s=36e3) for n in range(1, 9))
        ),
        8,
        now_s=0.0,
    )

    values = curve_values(known, profiling=Profiling(), stake=Stake(held=4))

    assert (values == known.samples_per_s).all()


def test_who_seems_slow_for_one_bad_size_is_asked_again_on_its_smallest() -> None:
    known = estimate(learned_from(steady(64, 10.0)), 64, now_s=0.0)
    waiting = Stake(node_per_s=1000.0, rescale_s=60.0)

    values = curve_values(known, profiling=Profiling(), stake=waiting)

    assert values[1] > 1000.0
    assert values[64] - values[1] == pytest.approx(
        known.samples_per_s[64] - known.samples_per_s[1]
    )


def test_the_newest_fragments_of_a_size_are_kept() -> None:
    learned = learned_from(*(steady(4, 100.0 + k, began_s=k) for k in range(20)))

    assert [one.began_s for one in learned.seen[4]] == list(range(13, 20))


def test_speeds_beyond_all_measure_do_not_overflow() -> None:
    learned = learned_from(steady(1, 1e-200), steady(2, 1e200, began_s=1.0))

    assert np.isfinite(estimate(learned, 64, now_s=0.0).samples_per_s).all()
