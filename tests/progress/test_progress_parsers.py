"""What programs print, and what is made of it."""

from __future__ import annotations

import json
import math
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from freetrain.config.job import ProgressFormat, ProgressSettings
from freetrain.formats import (
    ProgressRecord,
    UnreadableLineError,
    number,
    parser_for,
    without_colours,
)
from freetrain.patterns import LONGEST_LINE

EPOCH_LOSS = r"Epoch (?P<epoch>\d+) .* Loss (?P<loss>\S+)"
STEP_LOSS = r"step (?P<step>\S+) loss (?P<loss>\S+)"


FIELDS = (("step", "step"), ("loss", "loss"))
BY_PATTERN = ProgressSettings(form=ProgressFormat.PATTERN, pattern=STEP_LOSS)
BY_JSON = ProgressSettings(form=ProgressFormat.JSON_LINES, fields=FIELDS)
BY_CSV = ProgressSettings(form=ProgressFormat.CSV, fields=FIELDS)


def by_pattern(line: str, pattern: str = STEP_LOSS) -> tuple[ProgressRecord, ...]:
    return parser_for(structs.replace(BY_PATTERN, pattern=pattern)).parse(line)


def by_json(line: str, **fields: str) -> tuple[ProgressRecord, ...]:
    return parser_for(structs.replace(BY_JSON, fields=tuple(fields.items()))).parse(
        line
    )


def by_csv(*lines: str, **fields: str) -> list[ProgressRecord]:
    named = tuple(fields.items()) or FIELDS
    parser = parser_for(structs.replace(BY_CSV, fields=named))
    return [record for line in lines for record in parser.parse(line)]


def elastic(**fields: Any) -> ProgressRecord:  # noqa: ANN401  # JSON
    (record,) = parser_for(None).parse(json.dumps(fields))
    return record


def same(value: float | None, other: float) -> bool:
    return value is not None and repr(value) == repr(other)


def test_a_progress_line_of_freetrain_elastic_has_all_fields() -> None:
    fields = {"t": 5.0, "step": 3, "samples": 96, "epoch": 0}
    fields |= {"generation": 2, "world_size": 4}

    assert elastic(**fields, loss=0.5) == ProgressRecord(
        **fields,  # type: ignore[arg-type]
        metrics={"loss": 0.5},
    )


def test_what_is_not_finite_comes_back_from_its_name() -> None:
    record = elastic(step=3, loss=None, nonfinite={"loss": "nan", "t": "inf"})

    assert math.isnan(record.metrics["loss"])
    assert list(record.metrics) == ["loss"]


def test_the_start_of_a_generation_has_no_metrics() -> None:
    record = elastic(event="start", step=3, rewound_from_step=7, generation=2)

    assert record == ProgressRecord(step=3, generation=2)


@pytest.mark.parametrize(
    ("told", "value"),
    [
        ("0.52,", 0.52),
        ("1e-3", 0.001),
        ("-4.5E+02", -450.0),
        ("nan", math.nan),
        ("-inf", -math.inf),
        ("Infinity", math.inf),
        ("1,234,567", 1_234_567.0),
        (" [7] ", 7.0),
        ("(93.5%)", 93.5),
        (3, 3.0),
        (10**400, math.inf),
    ],
)
def test_numbers_are_read_as_programs_print_them(told: object, value: float) -> None:
    assert same(number(told), value)


@pytest.mark.parametrize(
    "told",
    ["", "N/A", "1_000", "٣", "1,23", "0,250", "00,123", "1" * 65, True, None, [1], {}],
)
def test_what_is_no_number_is_none(told: object) -> None:
    assert number(told) is None


@given(st.text() | st.floats() | st.integers() | st.booleans() | st.none())
def test_reading_a_number_never_fails(told: object) -> None:
    number(told)


def test_the_pattern_of_the_documentation_reads_what_it_is_for() -> None:
    (record,) = by_pattern("Epoch 3 [10/20] Loss 1.5e-2, lr 0.1", EPOCH_LOSS)

    assert record == ProgressRecord(epoch=3.0, metrics={"loss": 0.015})


def test_output_of_ranks_that_ran_into_one_line_gives_a_record_for_each() -> None:
    found = by_pattern("[1,0]: step 4 loss 0.5 [1,1]: step 5 loss 0.25")

    assert [record.step for record in found] == [4, 5]


def test_several_metrics_are_all_kept_and_one_without_a_number_is_left_out() -> None:
    pattern = r"step (?P<step>\d+) loss (?P<loss>\S+) acc (?P<acc>\S+)"

    (record,) = by_pattern("step 4 loss -inf acc N/A", pattern)

    assert record == ProgressRecord(
        step=4, metrics={"loss": -math.inf}, unreadable=("acc",)
    )


@pytest.mark.parametrize("step", ["-1", "nan", "1.5", "inf", "1e30", "many"])
def test_an_absurd_step_is_refused(step: str) -> None:
    with pytest.raises(UnreadableLineError):
        by_pattern(f"step {step} loss 0.5")


def test_a_step_in_scientific_notation_is_a_step() -> None:
    assert by_pattern("step 1e3 loss 0.5")[0].step == 1000


def test_a_pattern_sees_the_beginning_of_a_long_line_only() -> None:
    assert by_pattern("loading data ...") == ()
    assert by_pattern("x" * LONGEST_LINE + " step 4 loss 0.5") == ()


def test_a_pattern_with_quadratic_backtracking_ends_soon_on_a_hostile_line() -> None:
    pattern = r"(?P<loss>\d+)\d*\d*!"

    assert by_pattern("7" * 200 + "x" * 250_000, pattern) == ()


def test_keys_of_json_lines_may_be_nested_or_have_dots_in_them() -> None:
    line = '{"trainer": {"step": 7}, "train/loss": "0.5", "val.loss": 2}'
    fields = {"step": "trainer.step", "loss": "train/loss", "val": "val.loss"}

    assert by_json(line, **fields) == (
        ProgressRecord(step=7, metrics={"loss": 0.5, "val": 2}),
    )


def test_a_json_line_without_the_keys_is_no_progress() -> None:
    assert by_json('{"event": "saved"}', step="iteration") == ()


@pytest.mark.parametrize(
    "line",
    [
        "",
        "[1]",
        "7",
        '{"step": ',
        "[" * 100_000,
        '{"step": -1}',
        '{"step": {}}',
        '{"step": ' + "9" * 5000 + "}",
        "\ufffd\ufffd",
        '{"step": true}',
    ],
)
def test_absurd_json_is_refused_and_never_worse(line: str) -> None:
    for progress in (None, BY_JSON):
        with pytest.raises(UnreadableLineError):
            parser_for(progress).parse(line)


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_columns_are_found_by_their_names_whatever_parts_them(delimiter: str) -> None:
    lines = [
        delimiter.join(row)
        for row in (["# epoch", "lr", "train loss"], ["1", "0.1", "2.5"])
    ]

    found = by_csv(*lines, epoch="epoch", loss="train loss")

    assert found == [ProgressRecord(epoch=1.0, metrics={"loss": 2.5})]


def test_a_header_written_again_at_a_restart_may_order_columns_anew() -> None:
    found = by_csv("step,loss", "1,0.5", "loss,step", "0.25,2")

    assert [(r.step, r.metrics["loss"]) for r in found] == [(1, 0.5), (2, 0.25)]


def test_an_empty_cell_and_a_short_row_leave_their_fields_out() -> None:
    found = by_csv("step,loss", "1,", "2")

    assert found == [ProgressRecord(step=1), ProgressRecord(step=2)]


@pytest.mark.parametrize("row", ["x,y", "-3,0.5", "nan,1"])
def test_an_absurd_row_is_refused(row: str) -> None:
    with pytest.raises(UnreadableLineError):
        by_csv("step,loss", row)


def test_a_row_before_the_column_names_is_refused() -> None:
    with pytest.raises(UnreadableLineError, match="before the line of column names"):
        by_csv("1,0.5")


@given(st.text())
def test_no_line_does_worse_than_being_refused(line: str) -> None:
    anything = structs.replace(BY_PATTERN, pattern=r"(?P<step>\S+) (?P<loss>.*)")
    for progress in (None, BY_CSV, BY_JSON, anything):
        with suppress(UnreadableLineError):
            parser_for(progress).parse(line)


COLOURED = "\x1b[1mstep\x1b[0m 4 \x1b[2K\x1b[32mloss \x1b[38;5;9m0.25\x1b[0m"


def test_colours_of_a_terminal_hide_neither_a_line_nor_its_values() -> None:
    found = ProgressRecord(step=4, metrics={"loss": 0.25})

    assert by_pattern(COLOURED) == (found,)
    assert by_pattern("step 4 loss 0.25\x1b[0m") == (found,)
    assert by_pattern("step 4 loss 0.25\x1b(B\x1b[m") == (found,), "as tput writes it"
    link = "\x1b]8;;https://a/b\x1b\\0.25\x1b]8;;\x07"
    assert by_pattern(f"step 4 loss {link}") == (found,)
    assert by_csv("\x1b[1mstep,loss\x1b[0m", "4,\x1b[32m0.25\x1b[0m") == [found]
    assert by_json('\x1b[1m{"step": 4, "loss": "0.25"}\x1b[0m', **dict(FIELDS)) == (
        found,
    )
    assert by_json(r'{"step": 4, "loss": "0.25\u001b[0m"}', **dict(FIELDS)) == (found,)


@pytest.mark.parametrize("escape", [r"\x1b", r"\033", "\x1b"])
def test_a_pattern_that_names_colours_sees_them(escape: str) -> None:
    pattern = rf"step (?P<step>\d+) {escape}\[32m(?P<loss>[\d.]+){escape}\[0m"

    (record,) = by_pattern("step 4 \x1b[32m0.25\x1b[0m", pattern)

    assert record == ProgressRecord(step=4, metrics={"loss": 0.25})


@given(st.text(st.sampled_from("\x1b[](;0m1K?B\x07\\"), max_size=200))
def test_any_escape_sequences_are_taken_out_in_one_pass(text: str) -> None:
    plain = without_colours(text)

    assert without_colours(text.replace("\x1b", "")) == text.replace("\x1b", "")
    assert len(plain) <= len(text)


@pytest.mark.parametrize("factor", [1, 1e3, 1e6, 1e9], ids=["s", "ms", "µs", "ns"])
def test_times_are_unix_seconds_whatever_unit_the_program_writes(
    factor: float,
) -> None:
    (record,) = by_json(
        json.dumps({"step": 1, "at": 1767225600.5 * factor}), step="step", t="at"
    )

    assert record.t == pytest.approx(1767225600.5, abs=1e-3)


@pytest.mark.parametrize("t", ["1e30", "-1", "nan", "yesterday"])
def test_an_absurd_time_is_refused(t: str) -> None:
    with pytest.raises(UnreadableLineError):
        by_json(json.dumps({"step": 1, "t": t}), step="step", t="t")


def test_a_metric_without_a_number_is_named_by_its_record() -> None:
    (record,) = by_json('{"step": 1, "loss": "0.25abc"}', **dict(FIELDS))

    assert record == ProgressRecord(step=1, unreadable=("loss",))


def test_a_metrics_file_of_mlflow_is_read_with_the_pattern_that_the_guide_gives() -> (
    None
):
    page = Path(__file__).parents[2] / "docs" / "guide" / "job-file.md"
    (pattern,) = re.findall(r"MLflow: .* pattern `'(.*)'`", page.read_text())

    (record,) = by_pattern("1767225600500 0.25 7", pattern)

    assert record == ProgressRecord(
        t=1767225600.5, t_unit="ms", step=7, metrics={"loss": 0.25}
    )
