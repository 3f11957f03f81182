"""The files of a report: whole, the same every time, and safe to open."""

import csv
import io
import json
import re
from dataclasses import replace
from typing import Any

import pytest

from freetrain.replay.policies.registry import Gap
from freetrain.report.drawings import completions_figure, pool_figure, slowdowns_figure
from freetrain.report.page import render_page, report_files
from freetrain.report.summary import (
    HEADINGS,
    LOSSES,
    VOLATILE,
    full_record,
    gap_lines,
    gap_words,
    lost_share,
    percent,
    steady_record,
    table_row,
)
from freetrain.text import gap_percent, scaled
from tests.report.comparisons import comparison, result


def test_the_same_comparison_gives_the_same_bytes() -> None:
    assert report_files(comparison()) == report_files(comparison())


def test_how_long_a_replay_took_is_in_no_file() -> None:
    slow = comparison()
    slower = replace(
        slow,
        results=tuple(
            replace(r, wall_s=99.0, solver_s=98.0, peak_rss_bytes=97)
            for r in slow.results
        ),
    )

    assert report_files(slow) == report_files(slower)
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


def test_the_summary_holds_every_policy_and_no_step() -> None:
    summary = json.loads(report_files(comparison())["summary.json"])

    policies = [record["policy"] for record in summary["policies"]]
    assert policies == ["freetrain", "equal", "scavenger", "static"]
    percentiles = summary["policies"][0]["completion_s"].keys()
    assert percentiles == {"p5", "p25", "p50", "p75", "p95"}
    assert "steps" not in summary["policies"][0]


def test_the_page_asks_the_network_for_nothing() -> None:
    page = render_page(comparison())

    own = re.sub(r"<script>/\*.*?</script>", "", page, count=1, flags=re.DOTALL)
    assert len(page) < 7_000_000
    assert len(own) < 1_500_000
    assert "default-src 'none'" in page
    assert not re.search(r"<(?:script|img|link|iframe)[^>]+(?:src|href)=", own)


def test_the_page_has_its_parts() -> None:
    page = render_page(comparison())

    for heading in ("Policies compared", "Pool against use", "Sizes of the trainers"):
        assert heading in page


def test_what_a_log_is_called_cannot_change_the_page() -> None:
    evil = "<img src=x onerror=alert(1)>.csv"
    shown = replace(
        comparison(), log=evil, command=evil, trainers=evil, left_out=(evil,)
    )

    page = render_page(shown)

    assert evil not in page
    assert "&lt;img src=x onerror=alert(1)" in page


def test_a_replay_in_which_nothing_happened_can_still_be_shown() -> None:
    sums: dict[str, Any] = dict.fromkeys(
        ("samples", "end_s", "pool_node_s", *LOSSES), 0.0
    )
    nothing = replace(
        result(),
        **sums,
        efficiency=None,
        steps=(),
        completions=(),
    )

    page = render_page(replace(comparison(), results=(nothing,)))

    assert "Policies compared" in page
    assert table_row(nothing, "n")[2] == "-"


def test_static_alone_can_be_shown() -> None:
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


def test_delay_protections_are_on_the_page_and_in_the_summary() -> None:
    (caution,) = comparison().cautions

    files = report_files(comparison())

    assert caution in files["report.html"].decode()
    assert json.loads(files["summary.json"])["cautions"] == [caution]


def test_figures_that_json_lacks_become_null() -> None:
    record = steady_record(replace(result(), images_per_s=float("nan")))

    assert record["images_per_s"] is None


def test_losses_are_a_share_of_what_was_possible() -> None:
    replay = replace(
        result(),
        samples=70.0,
        rescale_samples=20.0,
        preempt_samples=6.0,
        start_samples=4.0,
    )

    assert lost_share(replay) == pytest.approx(0.30)
    assert lost_share(replay, ["preempt_samples"]) == pytest.approx(0.06)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0, "0"),
        (999.4, "999"),
        (1500, "1.50 k"),
        (89.58e9, "89.58 G"),
        (-2e6, "-2.00 M"),
    ],
)
def test_large_figures_are_scaled(value: float, shown: str) -> None:
    assert scaled(value) == shown


def test_no_figure_however_large_widens_the_table() -> None:
    slow = [replace(c, slowdown=9e14) for c in result().completions]
    row = table_row(replace(result(), samples=3e29, completions=tuple(slow)), "n")

    assert row[1] == "3.00e+29"
    assert row[-1] == "9.0e+14 x"


def test_a_row_has_a_cell_a_heading() -> None:
    assert len(table_row(result(), "n")) == len(HEADINGS)
    assert (percent(0.9301), percent(None)) == ("93.0 %", "-")


SOME = Gap(mean=0.0008, high=0.002, most=0.0166, sampled=28, plans=6_925)
WORST = "worst 1.66 % (28 of 6,925 plans)"


@pytest.mark.parametrize(
    ("gap", "said"),
    [
        (
            SOME,
            "mean 0.08 %, nine of ten at most 0.20 %, worst 1.66 % (28 of 6,925 plans)",
        ),
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


def test_a_policy_without_an_objective_has_no_line_on_gaps() -> None:
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
