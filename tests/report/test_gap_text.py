"""How far plans were from the best, in words."""

from __future__ import annotations

from dataclasses import replace

import pytest

from freetrain.replay.gaps import Gap
from freetrain.report.page import render_page
from freetrain.report.summary import gap_lines, gap_words, steady_record
from freetrain.text import gap_percent
from tests.report.comparisons import comparison, result

SOME = Gap(mean=0.0008, high=0.002, most=0.0166, sampled=28, plans=6_925)


def test_a_sample_of_plans_is_told_with_its_size() -> None:
    assert gap_words(SOME) == (
        "mean 0.08 %, nine of ten at most 0.20 %, worst 1.66 % (28 of 6,925 plans)"
    )


def test_a_bound_that_only_would_read_as_0_is_one_of_the_least_that_can_be_read() -> (
    None
):
    assert gap_words(replace(SOME, mean=1e-7, high=2e-7)) == (
        "mean < 0.01 %, nine of ten at most 0.01 %, worst 1.66 % (28 of 6,925 plans)"
    )


def test_plans_that_all_are_proven_are_told_so() -> None:
    assert gap_words(Gap(0.0, 0.0, 0.0, 6_188, 6_188)) == (
        "0, all 6,188 plans proven optimal"
    )


def test_who_plans_by_no_objective_is_left_out() -> None:
    assert gap_lines([("equal", None), ("lookahead", SOME)]) == [
        f"lookahead: {gap_words(SOME)}"
    ]


@pytest.mark.parametrize(
    ("gap", "said"),
    [(0.0, "0.00 %"), (1e-7, "< 0.01 %"), (0.01, "1.00 %"), (2.0, "200.00 %")],
)
def test_a_gap_reads_as_0_only_where_it_is(gap: float, said: str) -> None:
    assert gap_percent(gap) == said


def test_the_page_and_json_tell_of_every_policy_that_plans() -> None:
    ahead = replace(result("lookahead"), gap=SOME)
    compared = replace(comparison(), results=(ahead, result("equal")))
    page = render_page(compared)

    assert f"lookahead: {gap_words(SOME)}" in page
    assert "equal: " not in page
    assert steady_record(ahead)["gap"] == {
        "mean": 0.0008,
        "high": 0.002,
        "most": 0.0166,
        "sampled": 28,
        "plans": 6_925,
    }
    assert steady_record(result("equal"))["gap"] is None
