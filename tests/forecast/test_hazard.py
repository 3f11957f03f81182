import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from freetrain.lookahead.hazard import AGES_S, SIZES, Hazard

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
