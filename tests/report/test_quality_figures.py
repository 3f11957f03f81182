"""Figures of quality, worked out by hand."""

import json
from dataclasses import replace

import numpy as np
import pytest

from freetrain.replay.run import Learning, ReplayResult
from freetrain.report.drawings import quality_figure
from freetrain.report.page import render_page, report_files
from freetrain.report.quality import (
    AGAINST_HEADINGS,
    QUALITY_HEADINGS,
    Score,
    against,
    against_row,
    cell,
    change,
    quality_of,
    quality_over_time,
    quality_records,
    quality_row,
    reached_s,
    scores_of,
    sweep_rows,
    waits_against,
)
from freetrain.report.summary import Comparison
from tests.report.comparisons import comparison, result


def way(name: str = "a", **changes: object) -> Learning:
    """A trainer that arrives at 10 s, is half as good at 20 s, and ends at 50 s."""
    made: dict[str, object] = {
        "trainer": name,
        "arrival_s": 10.0,
        "finished_s": 50.0,
        "times_s": (12.0, 20.0, 40.0, 50.0),
        "quality": (0.0, 0.5, 0.9, 1.0),
        "deliver_s": 40.0,
        "final_s": 50.0,
    }
    return Learning(**(made | changes))  # type: ignore[arg-type]


def replayed(
    *ways: Learning, priority: str = "slaq", end_s: float = 100.0
) -> ReplayResult:
    return replace(result(), priority=priority, end_s=end_s, learning=ways)


LATE = way("b", arrival_s=30.0, finished_s=None, times_s=(35.0,), quality=(0.0,))


def test_quality_over_time_is_of_those_who_are_there() -> None:
    times_s = np.array([5.0, 15.0, 25.0, 45.0, 60.0])

    under_way, worst, submitted = quality_over_time(replayed(way(), LATE), times_s)

    assert under_way.tolist() == pytest.approx(
        [np.nan, 0.0, 0.5, 0.45, 0.0], nan_ok=True
    )
    assert worst.tolist() == pytest.approx([np.nan, 0, 0.5, 0, 0], nan_ok=True)
    assert submitted.tolist() == pytest.approx([np.nan, 0, 0.5, 0.45, 0.5], nan_ok=True)


def test_the_legend_names_a_policy_once_and_both_its_lines_go_with_it() -> None:
    shown = replace(
        comparison(),
        results=(replayed(way()), replayed(way(), priority="tradl")),
    )

    lines = quality_figure(shown).data

    assert [line.name for line in lines if line.showlegend] == ["slaq", "tradl"]
    assert [line.legendgroup for line in lines] == ["slaq", "slaq", "tradl", "tradl"]


def test_waits_count_from_the_arrival_and_only_of_those_who_got_there() -> None:
    late = replace(LATE, deliver_s=None, final_s=None)

    found = quality_of(replayed(way(), late))

    waits = {
        name: wait and (wait.trainers, wait.mean_s)
        for name, wait in found.time_to.items()
    }
    assert waits == {
        "90%": (1, 30.0),
        "95%": (1, 40.0),
        "lacking": (1, 21.0),  # half of it after 10 s, 0.4 after 30 s, 0.1 after 40 s
        "deliver": (1, 30.0),
        "final": (1, 40.0),
        "finish": (1, 40.0),
    }
    assert found.makespan_s is None
    assert quality_of(replayed(way(), way("c", finished_s=80.0))).makespan_s == 70.0
    assert reached_s(way(), level=0.9) == 40.0
    assert reached_s(LATE, level=0.9) is None


def test_losers_are_counted_and_so_are_those_who_never_got_there() -> None:
    baseline = {"a": 10.0, "b": 10.0, "c": 10.0, "d": 10.0}

    found = waits_against({"a": 5.0, "b": 30.0, "c": 10.05}, baseline)

    assert found is not None
    assert (found.trainers, found.missed) == (3, 1)
    assert (found.best, found.worst) == (0.5, 3.0)
    # b is slower, d never got there; c is within 1 %.
    assert found.slower == pytest.approx(2 / 4)
    assert found.mean == pytest.approx(45.05 / 30)
    assert found.mean_share == pytest.approx((0.5 + 3 + 1.005) / 3)
    assert waits_against({}, baseline) is None


def test_both_are_looked_at_over_the_same_time() -> None:
    # The same until 50 s; then one of them goes on with a trainer that knows nothing.
    short = replayed(way(), end_s=50.0)
    long = replayed(way(), LATE, priority="fair", end_s=100.0)

    assert against(short, long).submitted == pytest.approx(
        against(replace(short, end_s=100.0), long).submitted
    )


def held(*results: ReplayResult) -> Comparison:
    return replace(comparison(), results=results, against="fair")


def test_who_is_held_against_whom_is_told_everywhere() -> None:
    slaq, fair = replayed(way()), replayed(way(deliver_s=45.0), priority="fair")
    shown = held(slaq, fair)

    page, files = render_page(shown), report_files(shown)

    assert (shown.name(slaq), shown.baseline) == ("slaq", fair)
    assert held(slaq, fair, *[result("equal")] * 2).name(slaq) == "slaq"
    assert "How soon models became good" in page
    assert "Against fair: who gains, who loses" in page
    assert "draw-quality" in page
    records = json.loads(files["summary.json"])["policies"]
    assert [record["against"]["name"] for record in records] == ["fair", "fair"]
    assert records[0]["against"]["time_to"]["deliver"]["mean"] == pytest.approx(30 / 35)
    assert "learning" not in records[0]


def test_without_quality_curves_nothing_is_said_of_quality() -> None:
    shown = held(replayed(), replayed(priority="fair"))

    assert "How soon models became good" not in render_page(shown)
    assert quality_records(shown, shown.results[0]) == {}


def test_rows_have_a_cell_a_heading_and_a_replay_equals_itself() -> None:
    one = replayed(way(), way("c"))

    found = against(one, one)

    assert (found.under_way, found.worst, found.makespan) == (1, 1, 1)
    assert {w and (w.mean, w.slower) for w in found.time_to.values()} == {(1, 0)}
    assert len(quality_row(one, "slaq")) == len(QUALITY_HEADINGS)
    assert len(against_row(one, one, "slaq")) == len(AGAINST_HEADINGS)
    assert (change(0.6), change(1.5), change(None)) == ("-40.0 %", "+50.0 %", "-")


def test_a_sweep_shows_mean_best_and_worst_seed_of_all_but_the_baseline() -> None:
    fair = replayed(way(), priority="fair")
    scores: list[Score] = []
    for seed, finished_s in enumerate((30.0, 90.0)):
        shown = held(replayed(way(finished_s=finished_s)), fair)
        scores += scores_of(shown, load=1.0, seed=seed)
    rows = {row.title: cell(row, scores) for row in sweep_rows()}

    assert [(score.priority, score.seed) for score in scores] == [
        ("slaq", 0),
        ("slaq", 1),
    ]
    # Arrival at 10 s: 20 s and 80 s to finish against 40 s.
    assert rows["time to finish"] == rows["makespan"] == "+25.0  -50..+100"
    assert rows["time to first tier"] == "+0.0  +0..+0"
    assert cell(sweep_rows()[0], []) == "-"
    with pytest.raises(ValueError, match="baseline"):
        scores_of(comparison(), load=1.0, seed=1)
