"""Drawings of forecasts and what came, and the words and rows beside them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from freetrain.report.forecast import (
    BLOCK_HEADINGS,
    MOST_BLOCKS,
    block_rows,
    cell_name,
    reliability_row,
    shown_words,
)
from freetrain.report.forecast_page import (
    affinity_figure,
    reliability_figure,
    survival_figure,
)
from tests.report.forecasts import NODES, affinity, forecasts, part


def test_a_point_is_a_tenth_and_open_where_few_departures_stand_behind_it() -> None:
    record = forecasts()

    *_, points = reliability_figure(record).data

    tenths = record.reliability.deciles
    assert list(points.x) == pytest.approx([100 * one.said for one in tenths])
    assert list(points.y) == pytest.approx([100 * one.came for one in tenths])
    assert list(points.marker.symbol) == ["circle"] * 9 + ["circle-open"]


def test_all_points_and_as_much_of_the_line_are_within_the_axes() -> None:
    layout = reliability_figure(forecasts()).layout

    (low, high), other = layout.xaxis.range, layout.yaxis.range
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
    came, said = figure.data[:2]
    assert list(came.x) == ["< 1.2 min", "1.2-2.5 min", "> 160 min"]
    assert list(came.y) == [35.0, None, 95.0]
    assert list(said.y) == [40.0, None, 90.0]
    assert said.line.dash == "dot"
    assert said.line.color == came.line.color


def test_a_size_has_the_same_colour_whichever_others_are_there() -> None:
    record = forecasts()
    told = record.reliability
    large = replace(record, reliability=replace(told, by_age=told.by_age[2:]))

    *_, before, _, _ = survival_figure(record).data
    *_, after, _, _ = survival_figure(large).data

    assert before.line.color == after.line.color


def test_ages_stand_in_order_whichever_size_has_them() -> None:
    axis = survival_figure(forecasts()).layout.xaxis

    assert list(axis.categoryarray) == ["< 1.2 min", "1.2-2.5 min", "> 160 min"]


def test_the_map_is_drawn_from_0_to_1_in_its_own_order() -> None:
    (cells,) = affinity_figure(affinity()).data

    assert tuple(cells.x) == tuple(cells.y) == NODES
    assert (cells.zmin, cells.zmax) == (0.0, 1.0)
    assert list(cells.z[0]) == [None, 0.8, 0.8, 0.2]


def test_what_is_shown_of_the_nodes_is_said() -> None:
    some, grouped = affinity(), replace(affinity(), cells=(NODES[:2], NODES[2:]))

    assert shown_words(some) == (
        "The 4 nodes that left most often, of 9 that left; each row a node."
    )
    assert shown_words(replace(grouped, nodes_left=4)) == (
        "All 4 nodes that ever left; up to 2 neighbours a row."
    )


def test_what_came_as_said_is_off_by_nothing() -> None:
    assert reliability_row(part(0.3, 0.29999))[2] == "+0.0"
    assert reliability_row(part(0.3, 0.289))[2] == "-1.1"


def test_no_two_cells_of_the_map_are_called_alike() -> None:
    assert cell_name(("n1", "n2", "n3")) == "n1 and 2 more"
    assert cell_name(("n4",)) == "n4"


def test_the_largest_blocks_come_first_and_names_stay_short() -> None:
    (block, lonely) = affinity().blocks
    many = replace(block, nodes=tuple(f"node-{k}-a" for k in range(0, 90, 2)))

    rows = block_rows([lonely, block, many, *[lonely] * 40])

    assert len(rows) == MOST_BLOCKS
    assert [row[0] for row in rows[:3]] == ["45", "3", "1"]
    assert rows[1] == ("3", "0.80", "0.20", "n[1-3]")
    assert rows[2][1] == "-"
    assert all(len(row) == len(BLOCK_HEADINGS) and len(row[-1]) < 30 for row in rows)
