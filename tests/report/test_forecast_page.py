"""The page on forecasts: there where there are any, readable, and safe to open."""

import csv
import io
import json
import re
from dataclasses import replace

import pytest

from freetrain.lookahead.promises import DelayInterval
from freetrain.lookahead.reliability import (
    AffinityBlock,
    ForecastRecord,
    ScorePart,
)
from freetrain.report.page import (
    BLOCK_HEADINGS,
    MOST_BLOCKS,
    affinity_figure,
    block_rows,
    cell_name,
    forecast_texts,
    promise_rows,
    promises_figure,
    reliability_figure,
    reliability_row,
    render_forecasts,
    report_files,
    shown_words,
    survival_figure,
)
from freetrain.report.summary import FORECAST_PAGE, Comparison, Origin, forecast_records
from tests.report.comparisons import (
    NODES,
    affinity,
    ages,
    comparison,
    forecasts,
    nothing,
    part,
    result,
)

ORIGIN = Origin(
    "log.csv", "12 holes.", "freetrain replay log.csv", "0.1.0", "report.html"
)


def foretold(record: ForecastRecord) -> Comparison:
    """Two policies, the second of which has forecasts."""
    ours = replace(result("lookahead"), forecasts=record)
    return replace(comparison(), results=(result("equal"), ours))


def page_of(record: ForecastRecord | None = None) -> str:
    return render_forecasts(ORIGIN, record or forecasts(), "learned")


def own_part(page: str) -> str:
    """Return *page* without Plotly's script."""
    return re.sub(r"<script>/\*.*?</script>", "", page, count=1, flags=re.DOTALL)


def test_report_and_forecast_page_link_to_each_other_where_both_are() -> None:
    with_forecasts, without = (
        report_files(shown) for shown in (foretold(forecasts()), comparison())
    )
    alone = render_forecasts(replace(ORIGIN, report=None), forecasts(), "learned")

    assert f'href="{FORECAST_PAGE}"' in with_forecasts["report.html"].decode()
    assert 'href="report.html"' in with_forecasts[FORECAST_PAGE].decode()
    usual = {"summary.json", "steps.csv", "completions.csv", "report.html"}
    assert without.keys() == usual
    assert FORECAST_PAGE not in without["report.html"].decode()
    assert "<a href=" not in alone.rpartition("</script>")[0].partition("<body>")[2]


def test_the_page_asks_the_network_for_nothing() -> None:
    own = own_part(page_of())

    assert len(own) < 300_000
    assert "default-src 'none'" in own
    assert not re.search(r"<(?:script|img|link|iframe)[^>]+(?:src|href)=", own)
    assert re.findall(r'href="([^"]*)"', own) == ["report.html"]


@pytest.mark.parametrize("name", ["reliability", "survival", "affinity"])
def test_every_drawing_has_words_and_a_table_beside_it(name: str) -> None:
    _, _, after = page_of().partition(f'id="draw-{name}"')
    part, _, _ = after.partition("<h2>")
    assert "<figcaption>" in part
    assert "<table>" in part


def test_what_came_before_anything_was_due_can_still_be_shown() -> None:
    page = page_of(nothing())

    assert "No answer was due before the end." in page
    assert "Fewer than two nodes ever left." in page
    assert 'id="draw-' not in page
    assert report_files(foretold(nothing())).keys() >= {FORECAST_PAGE, "report.html"}


def test_the_page_says_whose_forecasts_they_are_and_where_others_are() -> None:
    usual = replace(result("lookahead"), forecaster="learned", forecasts=forecasts())
    other = replace(usual, forecaster="life-table", forecasts=nothing())
    results = (result("equal"), other, usual, replace(other, priority="fair"))

    page = forecast_texts(ORIGIN, results)[FORECAST_PAGE]
    alone = forecast_texts(ORIGIN, results[2:3])[FORECAST_PAGE]

    assert "Every 5 min the forecaster life-table was asked" in page
    assert "No answer was due before the end." in page
    assert "What learned said is in summary.json." in page
    assert "Every 5 min the forecaster learned was asked" in alone
    assert "summary.json" not in alone


@pytest.mark.parametrize(("answers", "departures"), [(0.9, 10.0), (1.0, 0.9)])
def test_too_few_answers_are_told_in_words_and_not_drawn(
    answers: float, departures: float
) -> None:
    some = ScorePart(said=0.67, came=1.0, count=answers, departures=departures)
    told = replace(forecasts(), deciles=(some,) * 10, by_age=ages())
    enough = replace(some, count=1.0, departures=1.0)
    telling = replace(told, deciles=(enough,) * 10)

    page = page_of(told)

    assert "are too few to tell how far it can be relied on" in page
    assert "33.0 points" not in page
    assert 'id="draw-reliability"' not in page
    assert 'id="draw-survival"' not in page
    assert 'id="draw-affinity"' in page
    assert "33.0 points" in page_of(telling)


def test_a_map_on_which_all_pairs_are_alike_is_told_in_words() -> None:
    drawn, far = forecasts(), 0.3
    assert drawn.affinity is not None
    alike = tuple(
        tuple(None if one is None else far for one in row)
        for row in drawn.affinity.affinity
    )
    blocks = tuple(AffinityBlock((name,), None, far) for name in NODES)
    shown = replace(drawn.affinity, affinity=alike, blocks=blocks)

    page = page_of(replace(drawn, affinity=shown))

    assert "it knows no pairs" in page
    assert 'id="draw-affinity"' not in page
    assert 'id="draw-affinity"' in page_of(drawn)


def test_what_nodes_are_called_cannot_change_the_page() -> None:
    evil = ("<img src=x onerror=alert(1)>", "a b", "[", "</script>")

    files = report_files(foretold(forecasts(evil)))

    page = files[FORECAST_PAGE].decode()
    assert evil[0] not in page
    assert "&lt;img src=x onerror=" in page
    own = own_part(page)
    assert own.count("<script") == own.count("</script>")


def test_promises_are_shown_where_there_were_any() -> None:
    kinds = (
        DelayInterval(0.0, 1_200, 0.4, 0.1, -90.0, 0.0, 30.0),
        DelayInterval(600.0, 80, 0.5, 0.25, -600.0, -60.0, 300.0),
        DelayInterval(3_600.0, 9, 0.5, 0.25, -600.0, -60.0, 300.0),
    )
    record = replace(forecasts(), promises=kinds)

    (spans,) = promises_figure(kinds).data

    assert "Planned starts, and when they came" in page_of(record)
    assert "Planned starts, and when they came" not in page_of()
    counts, delays = "80 | 50.0 % | 25.0 %", "-10.0 min | -1.0 min | +5.0 min"
    assert " | ".join(promise_rows(kinds)[1]) == f"10-30 min | {counts} | {delays}"
    assert list(spans.y) == ["0-2 min", "10-30 min", "> 60 min"]
    assert list(spans.x) == [0.0, -1.0, -1.0]
    assert list(spans.error_x.array) == [0.5, 6.0, 6.0]
    assert list(spans.error_x.arrayminus) == [1.5, 9.0, 9.0]


def test_json_holds_the_figures_of_the_page() -> None:
    files = report_files(foretold(forecasts()))

    other, ours = json.loads(files["summary.json"])["policies"]
    assert "forecasts" not in other
    told = ours["forecasts"]
    assert told["worst_difference"] == pytest.approx(0.3)
    last = {"said": 0.8, "came": 0.5, "answers": 100, "departures": 4}
    assert told["reliability"][-1] == last
    assert told["by_age"][1]["to_s"] is None
    where = {"from_s": 70.0, "to_s": 150.0, "from_nodes": 2, "to_nodes": 4}
    middle = {"said": 0.5, "came": 0.6, "answers": 100, "departures": 50}
    assert told["by_age"][2] == where | middle
    assert told["affinity"] == {
        "nodes_left": 9,
        "nodes_shown": 4,
        "blocks": [
            {"count": 3, "nodes": "n[1-3]", "within": 0.8, "outside": 0.2},
            {"count": 1, "nodes": "x7", "within": None, "outside": 0.2},
        ],
    }
    empty: dict[str, object] = {
        "reliability": [],
        "by_age": [],
        "affinity": None,
        "promises": [],
    }
    asked = {"horizon_s": 600.0, "every_s": 300.0, "worst_difference": 0.0}
    record = forecast_records(replace(result(), forecasts=nothing()))
    assert record == {"forecasts": asked | empty}


def test_the_map_reads_back_from_its_file() -> None:
    files = report_files(foretold(forecasts()))

    head, *rows = csv.reader(io.StringIO(files["affinity.csv"].decode()))
    assert head == ["nodes", *NODES]
    assert [row[0] for row in rows] == list(NODES)
    assert rows[3] == ["x7", "0.2", "0.2", "0.2", ""]


def test_a_point_is_a_tenth_open_where_few_departed_and_within_the_axes() -> None:
    record = forecasts()

    figure = reliability_figure(record)

    *_, points = figure.data
    tenths = record.deciles
    assert list(points.x) == pytest.approx([100 * one.said for one in tenths])
    assert list(points.y) == pytest.approx([100 * one.came for one in tenths])
    assert list(points.marker.symbol) == ["circle"] * 9 + ["circle-open"]
    (low, high), other = figure.layout.xaxis.range, figure.layout.yaxis.range
    assert other == (low, high)
    assert low < 30
    assert high > 80


def test_a_size_has_a_line_of_what_came_and_one_of_what_was_said() -> None:
    figure = survival_figure(forecasts())

    named = [line for line in figure.data if line.showlegend is not False]
    assert [line.name for line in named] == [
        "1 node left",
        "2-4 nodes left",
        "17 or more nodes left",
        "what was said",
    ]
    ages = ["< 1.2 min", "1.2-2.5 min", "> 160 min"]
    assert list(figure.layout.xaxis.categoryarray) == ages
    came, said = figure.data[:2]
    assert list(came.x) == ages
    assert list(came.y) == [35.0, None, 95.0]
    assert list(said.y) == [40.0, None, 90.0]
    assert said.line.dash == "dot"
    assert said.line.color == came.line.color


def test_a_size_has_the_same_colour_whichever_others_are_there() -> None:
    record = forecasts()
    large = replace(record, by_age=record.by_age[2:])

    *_, before, _, _ = survival_figure(record).data
    *_, after, _, _ = survival_figure(large).data

    assert before.line.color == after.line.color


def test_the_map_is_drawn_from_0_to_1_in_its_own_order() -> None:
    (cells,) = affinity_figure(affinity()).data

    assert tuple(cells.x) == tuple(cells.y) == NODES
    assert (cells.zmin, cells.zmax) == (0.0, 1.0)
    assert list(cells.z[0]) == [None, 0.8, 0.8, 0.2]


def test_the_words_beside_the_map_fit_its_nodes_and_cells() -> None:
    some, grouped = affinity(), replace(affinity(), cells=(NODES[:2], NODES[2:]))

    assert cell_name(("n1", "n2", "n3")) == "n1 and 2 more"
    assert cell_name(("n4",)) == "n4"
    assert shown_words(some) == (
        "The 4 nodes that left most often, of 9 that left; each row a node."
    )
    assert shown_words(replace(grouped, nodes_left=4)) == (
        "All 4 nodes that ever left; up to 2 neighbours a row."
    )


def test_what_came_as_said_is_off_by_nothing() -> None:
    assert reliability_row(part(0.3, 0.29999))[2] == "+0.0"
    assert reliability_row(part(0.3, 0.289))[2] == "-1.1"


def test_the_largest_blocks_come_first_and_names_stay_short() -> None:
    (block, lonely) = affinity().blocks
    many = replace(block, nodes=tuple(f"node-{k}-a" for k in range(0, 90, 2)))

    rows = block_rows([lonely, block, many, *[lonely] * 40])

    assert len(rows) == MOST_BLOCKS
    assert [row[0] for row in rows[:3]] == ["45", "3", "1"]
    assert rows[1] == ("3", "0.80", "0.20", "n[1-3]")
    assert rows[2][1] == "-"
    assert all(len(row) == len(BLOCK_HEADINGS) and len(row[-1]) < 30 for row in rows)
