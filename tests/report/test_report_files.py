"""The files and drawings of a report: right, the same every time, safe to open."""

import csv
import io
import json
import re
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from freetrain.replay.engine import Step
from freetrain.replay.policies.registry import Gap
from freetrain.replay.pool import PoolTimeline
from freetrain.report.drawings import (
    bin_edges_s,
    binned_mean,
    completions_figure,
    pool_figure,
    slowdowns_figure,
    thinned,
    trainer_bands,
)
from freetrain.report.page import render_page, report_files
from freetrain.report.summary import (
    HEADINGS,
    LOSSES,
    VOLATILE,
    completion_record,
    full_record,
    gap_lines,
    gap_words,
    hole_lengths,
    lost_per_sample,
    percent,
    steady_record,
    table_row,
)
from freetrain.text import gap_percent, scaled
from logs.trace import IdleTrace
from tests.report.comparisons import comparison, forecasts, result


def test_the_same_comparison_gives_the_same_bytes_however_long_it_took() -> None:
    slow = replace(result("lookahead"), forecasts=forecasts())
    slower = replace(slow, wall_s=99.0, solver_s=98.0, peak_rss_bytes=97)

    files, again = (
        report_files(replace(comparison(), results=(result("equal"), r)))
        for r in (slow, slower)
    )

    assert files == again
    assert not set(VOLATILE) & steady_record(result()).keys()
    assert set(VOLATILE) <= full_record(result(), load_s=1.0).keys()


def test_steps_and_completions_read_back_row_by_row() -> None:
    shown = comparison("freetrain", "static")
    files = report_files(shown)

    steps = list(csv.DictReader(io.StringIO(files["steps.csv"].decode())))
    done = list(csv.DictReader(io.StringIO(files["completions.csv"].decode())))

    first = shown.results[0].steps[0]
    assert len(steps) == sum(len(r.steps) for r in shown.results)
    assert steps[0]["idle_nodes"] == str(first.idle_nodes)
    assert steps[0]["resized"].split()[0] == "=".join(map(str, first.resized[0]))
    assert len(done) == 200
    assert done[99]["finished_s"] == ""


def test_the_summary_holds_every_policy_and_caution_and_no_step() -> None:
    endless = replace(result(), images_per_s=float("nan"))
    shown = comparison()

    files = report_files(shown)

    assert steady_record(endless)["images_per_s"] is None  # JSON has no nan
    assert shown.figure_cautions[0] in files["report.html"].decode()
    summary = json.loads(files["summary.json"])
    assert summary["cautions"] == list(shown.figure_cautions)
    policies = [record["policy"] for record in summary["policies"]]
    assert policies == ["freetrain", "equal", "scavenger", "static"]
    percentiles = summary["policies"][0]["completion_s"].keys()
    assert percentiles == {"p5", "p25", "p50", "p75", "p95"}
    assert "steps" not in summary["policies"][0]


def test_the_page_asks_the_network_for_nothing() -> None:
    page = render_page(comparison())

    own = re.sub(r"<script>/\*.*?</script>", "", page, count=1, flags=re.DOTALL)
    assert len(page) < 7_000_000
    for heading in ("Policies compared", "Pool against use", "Sizes of the trainers"):
        assert heading in page
    assert len(own) < 1_500_000
    assert "default-src 'none'" in page
    assert not re.search(r"<(?:script|img|link|iframe)[^>]+(?:src|href)=", own)


def test_what_a_log_is_called_cannot_change_the_page() -> None:
    evil = "<img src=x onerror=alert(1)>.csv"
    shown = replace(
        comparison(), log=evil, command=evil, trainers=evil, log_cautions=(evil,)
    )

    page = render_page(shown)

    assert evil not in page
    assert "&lt;img src=x onerror=alert(1)" in page


def test_a_replay_in_which_nothing_happened_and_static_alone_can_be_shown() -> None:
    sums = dict.fromkeys(("samples", "end_s", "pool_node_s", *LOSSES), 0.0)
    empty: dict[str, Any] = {"efficiency": None, "steps": (), "completions": ()}
    nothing = replace(result(), **(empty | sums))

    page = render_page(replace(comparison(), results=(nothing,)))

    assert "Policies compared" in page
    assert table_row(nothing, "n")[2] == "-"
    assert "static" in render_page(comparison("static"))


def test_time_is_drawn_as_far_as_a_policy_follows_the_log() -> None:
    results = (result("freetrain", days=3.0), result("scavenger", days=6.0))
    shown = replace(comparison("freetrain", days=14.0), results=results)

    idle, freetrain, _ = pool_figure(shown).data

    late = [nodes for day, nodes in zip(idle.x, idle.y, strict=True) if day > 4]
    assert 5.9 < max(idle.x) < 6.0
    assert len(set(late)) > 100, "what was last seen idle is drawn on and on"
    assert list(freetrain.x) == list(idle.x)


def test_a_short_replay_is_drawn_in_hours() -> None:
    figure = pool_figure(comparison(days=1.0))

    assert figure.layout.xaxis.title.text == "hours"
    assert 23.9 < max(figure.data[0].x) < 24.0


def test_a_replay_in_which_nobody_finished_says_so() -> None:
    waiting = replace(result(), finished=0, completions=())

    page = render_page(replace(comparison(), results=(waiting,)))

    assert "None did." in page
    assert "draw-slowdowns" not in page


@pytest.mark.parametrize(("finished", "highest"), [(4, 4.4), (90, 101)])
def test_where_few_finished_their_share_still_fills_the_drawing(
    finished: int, highest: float
) -> None:
    late = [
        replace(c, finished_s=None, slowdown=None)
        for c in result().completions[finished:]
    ]
    few = replace(result(), completions=(*result().completions[:finished], *late))

    for draw in (completions_figure, slowdowns_figure):
        shown = draw(replace(comparison(), results=(few, few))).layout.yaxis.range
        assert shown == (0, pytest.approx(highest))


def test_losses_are_per_sample_trained() -> None:
    lost: dict[str, Any] = {
        "rescale_samples": 20.0,
        "preempt_samples": 6.0,
        "start_samples": 4.0,
    }
    replay = replace(result(), samples=70.0, **lost)

    assert lost_per_sample(replay) == pytest.approx(30 / 70)
    assert lost_per_sample(replay, ["preempt_samples"]) == pytest.approx(6 / 70)


def test_a_policy_that_trains_nothing_does_not_lose_least() -> None:
    idle = replace(
        result(), samples=0.0, rescale_samples=0, preempt_samples=0, start_samples=0
    )

    assert lost_per_sample(idle) is None
    assert table_row(idle, "idle")[5] == "-"


def test_slowdowns_are_shown_by_their_median_and_the_worst_only_in_records() -> None:
    # 100 trainers, of which 90 finished: 5 + k / 50 for k of 0 to 89.
    row = table_row(result(), "freetrain")

    assert row[-1] == "5.9 / 6.7"
    assert completion_record(result())["worst_slowdown"] == 5 + 89 / 50


def test_the_bound_is_called_so() -> None:
    assert table_row(result("static"), "static")[0] == "static (bound)"
    page = report_files(comparison())["report.html"].decode()
    assert "no policy that can be run" in page


@pytest.mark.parametrize(
    ("values", "ticks"),
    [
        ([3.0, 40.0], ["1", "2", "5", "10", "20", "50", "100", "200", "500"]),
        ([0.5, 8_000.0], ["0.1", "1", "10", "100", "1,000", "10,000"]),
    ],
)
def test_logarithmic_axes_have_plain_numbers(
    values: list[float], ticks: list[str]
) -> None:
    done = result().completions[:2]
    made = tuple(replace(c, slowdown=v) for c, v in zip(done, values, strict=True))
    few = replace(result(), completions=made)

    axis = slowdowns_figure(replace(comparison(), results=(few,))).layout.xaxis

    assert (axis.type, list(axis.ticktext)) == ("log", ticks)
    assert [f"{value:,.10g}" for value in axis.tickvals] == ticks


SCALED = {0: "0", 999.4: "999", 1500: "1.50 k", 89.58e9: "89.58 G", -2e6: "-2.00 M"}


@pytest.mark.parametrize(("value", "shown"), SCALED.items())
def test_large_figures_are_scaled(value: float, shown: str) -> None:
    assert scaled(value) == shown


def test_no_figure_however_large_widens_the_table() -> None:
    slow = [replace(c, slowdown=9e14) for c in result().completions]
    row = table_row(replace(result(), samples=3e29, completions=tuple(slow)), "n")

    assert len(row) == len(HEADINGS)
    assert row[1] == "3.00e+29"
    assert row[-1] == "9.0e+14 / 9.0e+14"
    assert (percent(0.9301), percent(None)) == ("93.0 %", "-")


SOME = Gap(mean=0.0008, high=0.002, most=0.0166, sampled=28, plans=6_925)
WORST = "worst 1.66 % (28 of 6,925 plans)"


@pytest.mark.parametrize(
    ("gap", "said"),
    [
        (SOME, f"mean 0.08 %, nine of ten at most 0.20 %, {WORST}"),
        (
            replace(SOME, mean=1e-7, high=2e-7),
            f"mean < 0.01 %, nine of ten at most 0.01 %, {WORST}",
        ),
        (Gap(0.0, 0.0, 0.0, 6_188, 6_188), "0, all 6,188 plans proven optimal"),
    ],
    ids=["of a sample", "too small to read", "none"],
)
def test_an_optimality_gap_is_told_with_the_plans_it_is_of(gap: Gap, said: str) -> None:
    assert gap_words(gap) == said


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

    line = f"lookahead: {gap_words(SOME)}"
    assert gap_lines([("equal", None), ("lookahead", SOME)]) == [line]
    assert line in page
    assert "equal: " not in page
    assert steady_record(ahead)["gap"] == asdict(SOME)
    assert steady_record(result("equal"))["gap"] is None


changes = st.lists(
    st.tuples(st.integers(0, 5000), st.integers(0, 64)), min_size=1, max_size=30
).map(lambda pairs: sorted(dict(pairs).items()))


def test_a_mean_weighs_each_value_by_how_long_it_held_nothing_before_the_first() -> (
    None
):
    means = binned_mean([0.0, 30.0, 90.0], [4.0, 10.0, 0.0], np.array([0, 60.0, 120]))

    assert means.tolist() == [7.0, 5.0]
    assert binned_mean([50.0], [8.0], np.array([0.0, 100.0])).tolist() == [4.0]
    assert binned_mean([], [], np.array([0.0, 100.0])).tolist() == [0.0]


@given(changes, st.integers(1, 50))
def test_binning_keeps_the_area(pairs: list[tuple[int, int]], bins: int) -> None:
    times, values = zip(*pairs, strict=True)
    edges_s = np.linspace(0.0, 6000.0, bins + 1)

    means = binned_mean(times, values, edges_s)

    until = [*times[1:], 6000]
    area = sum(v * (b - a) for v, a, b in zip(values, times, until, strict=True))
    assert (means * np.diff(edges_s)).sum() == pytest.approx(area)
    assert means.min() >= -1e-9
    assert means.max() <= max(values) + 1e-9


def test_bands_are_as_many_as_trainers_at_a_time_and_hold_all_nodes() -> None:
    replay = result()
    edges_s = bin_edges_s(86_400.0, most_bins=100)

    bands, slots_per_band = trainer_bands(replay, edges_s, most_bands=40)

    used = binned_mean(
        [s.time_s for s in replay.steps], [s.used_nodes for s in replay.steps], edges_s
    )
    assert bands.shape == (10, 100)
    assert slots_per_band == 1
    assert bands.sum(axis=0) == pytest.approx(used)


def test_a_trainer_that_starts_over_takes_the_lowest_free_band() -> None:
    steps = (
        Step(0.0, 4, 4, (("a", 2), ("b", 2)), ()),
        Step(50.0, 4, 2, (("a", 0),), ("a",)),
        Step(60.0, 4, 4, (("a", 2),), ()),
    )
    replay = replace(result(), steps=steps)

    bands, _ = trainer_bands(replay, np.array([0.0, 100.0]), most_bands=40)

    assert bands.tolist() == [[1.8], [2.0]]


@given(st.lists(st.floats(0, 1e6), max_size=200), st.integers(2, 50))
def test_thinning_keeps_the_ends_and_the_order(values: list[float], most: int) -> None:
    kept = thinned(values, most=most).tolist()

    assert len(kept) == min(len(values), most)
    assert kept == sorted(kept)
    if values:
        assert (kept[0], kept[-1]) == (min(values), max(values))


intervals = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 50), st.integers(1, 20)), min_size=1
)


@given(intervals, st.none() | st.floats(0.00005, 0.001))
def test_hole_lengths_add_up_to_the_pool(
    drawn: list[tuple[int, int, int]], days: float | None
) -> None:
    ends: dict[int, int] = {}
    rows = []
    for node, gap, length in drawn:
        start = ends.get(node, 0) + gap
        ends[node] = start + length
        rows.append((start, node, start + length))
    rows.sort()
    trace = IdleTrace(
        source="t",
        node_names=("0", "1", "2", "3"),
        node=np.array([row[1] for row in rows], np.int32),
        start_s=np.array([row[0] for row in rows], np.float64),
        end_s=np.array([row[2] for row in rows], np.float64),
    )
    timeline = PoolTimeline.from_trace(trace, days=days)

    lengths_s, counts = hole_lengths(timeline)

    assert (lengths_s > 0).all()
    pool_node_s = timeline.mean_nodes * timeline.horizon_s
    assert (lengths_s * counts).sum() == pytest.approx(pool_node_s, abs=1e-6)
