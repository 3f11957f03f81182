from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from freetrain.priority.base import PRIORITIES
from freetrain.scaling import (
    LearnedScaling,
    Prior,
    Profiling,
    Stake,
    cautious,
    curve_values,
    deviations_for,
    estimate,
)
from tests.scaling.fragments import fragments, learned_from, steady

if TYPE_CHECKING:
    from freetrain.scaling import TrainedFragment

ALL_NODES = slice(1, None)


@given(st.lists(fragments(), max_size=12), st.integers(1, 80))
def test_nothing_is_told_quicker_than_it_seems_and_nothing_as_standing_still(
    told: list[TrainedFragment], most: int
) -> None:
    known = estimate(learned_from(*told), most, now_s=1e9)

    careful = cautious(known, held=0)

    assert (careful.samples_per_s <= known.samples_per_s).all()
    assert (careful.samples_per_s[ALL_NODES] > 0).all()
    assert careful.samples_per_s[0] == 0.0
    assert (careful.log_sd == known.log_sd).all()
    assert careful.measured == known.measured


def test_of_two_that_are_alike_the_one_measured_longer_seems_quicker() -> None:
    short, long = (
        cautious(estimate(learned_from(one), 4, now_s=0.0), held=0).samples_per_s
        for one in (steady(2, 100.0, trained_s=60.0), steady(2, 100.0, trained_s=6e3))
    )

    assert short[2] < 0.99 * long[2]
    assert long[2] == pytest.approx(100.0, rel=0.01)


def test_who_ran_on_many_nodes_only_is_hardly_taken_for_quicker_on_few() -> None:
    # Both train 100 samples/s a node on any number, more evenly than is expected.
    few, many = (
        estimate(learned_from(steady(n, 100.0 * n)), 16, now_s=0.0) for n in (2, 16)
    )

    told = [cautious(known, held=0).samples_per_s[2] for known in (few, many)]

    assert many.samples_per_s[2] > 1.15 * few.samples_per_s[2]
    assert told[1] < 1.1 * told[0]


def test_who_runs_does_not_cling_to_sizes_that_it_has_seen() -> None:
    known = estimate(learned_from(steady(4, 1000.0)), 64, now_s=0.0)

    assert cautious(known, held=4) is known


def test_a_whole_deviation_is_twice_the_caution_of_half_of_one() -> None:
    known = estimate(learned_from(steady(4, 1000.0)), 8, now_s=0.0)

    none, half, whole = (
        np.log(cautious(known, held=0, deviations=one).samples_per_s[ALL_NODES])
        for one in (0.0, 0.5, 1.0)
    )

    assert (none == np.log(known.samples_per_s[ALL_NODES])).all()
    assert none - whole == pytest.approx(2.0 * (none - half))
    assert none - whole == pytest.approx(known.log_sd[ALL_NODES])


@pytest.mark.parametrize("priority", PRIORITIES)
def test_only_who_compares_samples_is_cautious(priority: str) -> None:
    assert deviations_for(priority) == (1.0 if priority == "throughput" else 0.0)


def test_who_never_ran_keeps_what_is_expected_of_it() -> None:
    expected = estimate(LearnedScaling(), 8, now_s=0.0, prior=Prior(exponent=0.8))

    assert cautious(expected, held=0) is expected


def test_who_waits_and_is_known_hopes_for_no_size() -> None:
    known = estimate(learned_from(steady(4, 1000.0)), 64, now_s=0.0)
    ample = Profiling(horizon_s=3e4)

    waiting = curve_values(known, profiling=ample, stake=Stake(rescale_s=1.0))
    running = curve_values(known, profiling=ample, stake=Stake(held=4, rescale_s=1.0))

    assert (waiting == known.samples_per_s).all()
    assert (running > known.samples_per_s).any()


def test_who_waits_is_told_by_a_value_that_cannot_be_written_to() -> None:
    known = estimate(learned_from(steady(4, 1000.0)), 8, now_s=0.0)

    assert not cautious(known, held=0).samples_per_s.flags.writeable
