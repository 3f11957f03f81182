"""How messages write durations, shares and what was found."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from freetrain.text import closest, exact_duration, parse_duration, per_cent, shown


@pytest.mark.parametrize(
    ("share", "form", "said"),
    [
        (0.28, ".0f", "28 %"),
        (0.285, ".1f", "28.5 %"),
        (-0.4, "+.1f", "-40.0 %"),
        (0.0, "+.1f", "+0.0 %"),
    ],
)
def test_per_cent_stands_behind_a_space(share: float, form: str, said: str) -> None:
    assert per_cent(share, form) == said


@given(st.integers(0, 10**15).map(lambda microseconds: microseconds / 1_000_000))
def test_an_exact_duration_reads_back_as_the_same(seconds: float) -> None:
    assert parse_duration(exact_duration(seconds)) == seconds


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0, "0s"), (90.0, "90s"), (7_200.0, "2h"), (172_800.0, "2d"), (0.5, "0.5s")],
)
def test_an_exact_duration_has_the_largest_unit_that_fits(
    seconds: float, text: str
) -> None:
    assert exact_duration(seconds) == text


def test_a_huge_value_is_cut_where_it_is_shown() -> None:
    assert len(shown("a" * 10**6)) == 60
    assert len(shown(["a" * 10**6] * 3)) == 60


def test_a_huge_word_is_compared_in_its_beginning_only() -> None:
    assert closest("nodes" * 10**6, ["node", "nodes"]) == ""
    assert closest("nodse", ["min", "nodes"]) == " Did you mean 'nodes'?"
