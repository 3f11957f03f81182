"""Files of curves are read whole, or refused with the line at fault."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from freetrain.errors import BadDataError, MissingInputError
from freetrain.losscurve.forecast import Better
from freetrain.losscurve.recorded import load_from, parse_curve
from tests.losscurve.files import CURVE, STEP_TIMES, folder, replaced

if TYPE_CHECKING:
    from pathlib import Path

    from freetrain.losscurve.recorded import RecordedCurve


def test_a_curve_has_its_losses_and_its_validation_at_their_samples() -> None:
    curve = parse_curve(CURVE, file="small.csv")

    assert curve.name == "small"
    assert (curve.batch_size, curve.epoch_samples, curve.seed) == (4, 8, 1)
    assert curve.loss.metric == "squared_error"
    assert curve.loss.better is Better.LOWER
    np.testing.assert_array_equal(curve.loss.samples, [4, 8, 12, 16])
    np.testing.assert_array_equal(curve.loss.values, [1.25, np.inf, np.nan, np.nan])
    assert curve.validation.metric == "accuracy"
    assert curve.validation.better is Better.HIGHER
    np.testing.assert_array_equal(curve.validation.samples, [8, 16])
    np.testing.assert_array_equal(curve.validation.values, [0.5, np.nan])


def test_curves_are_read_only() -> None:
    curve = parse_curve(CURVE, file="small.csv")

    for series in (curve.loss, curve.validation):
        for array in (series.samples, series.values):
            with pytest.raises(ValueError, match="read-only"):
                array[0] = 0.0


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("8,2,1,inf,0.5", "8,2,1,in", "line 14: 4 cells, expected 5"),
        ("8,2,1,inf,0.5", "8,2,1,in,0.5", "line 14: loss is 'in', expected a number"),
        ("8,2,1,inf,0.5", "8,3,1,inf,0.5", "line 14: step is '3', expected 2"),
        ("8,2,1,inf,0.5", "8,2,2,inf,0.5", "line 14: epoch is '2', expected 1"),
        ("8,2,1,inf,0.5", "4,1,0.5,1,0.5", "line 14: samples is '4', expected more"),
        ("8,2,1,inf,0.5", "-8,-2,-1,1,1", "line 14: samples is '-8', expected a whole"),
        ("8,2,1,inf,0.5", "8,2,1,,0.5", "line 14: loss is '', expected something"),
        ("8,2,1,inf,0.5", "# torn", "line 14: 1 cells, expected 5"),
        ("16,4,2,nan,nan", "16,4,2,nan,", "line 16: accuracy is '', expected"),
        ("loss,accuracy", "loss,error", "line 12: columns samples,step,epoch,loss,err"),
        ("# seed: 1\n", "", "line 10: seed is missing"),
        (
            "# batch_size: 4",
            "# batch_size: 0",
            "line 11: batch_size is '0', expected a",
        ),
        ("higher is better", "bigger is better", "line 11: validation is 'accuracy, b"),
    ],
)
def test_a_wrong_line_is_named(old: str, new: str, message: str) -> None:
    with pytest.raises(BadDataError) as caught:
        parse_curve(replaced(CURVE, old, new), file="small.csv")

    assert str(caught.value).startswith(f"small.csv: {message}")


@pytest.mark.parametrize(
    "key",
    [line[2:].partition(":")[0] for line in CURVE.splitlines() if line[0] == "#"],
)
def test_every_line_above_the_columns_is_needed(key: str) -> None:
    lines = [line for line in CURVE.splitlines() if not line.startswith(f"# {key}:")]

    with pytest.raises(BadDataError, match=f"{key} is missing"):
        parse_curve("\n".join(lines) + "\n", file="small.csv")


@pytest.mark.parametrize("lines", [0, 1, 11, 12])
def test_a_file_without_rows_is_refused(lines: int) -> None:
    above = "\n".join(CURVE.splitlines()[:lines])

    with pytest.raises(BadDataError, match="the file ends, expected columns and rows"):
        parse_curve(above, file="small.csv")


def outcome(text: str) -> RecordedCurve | str:
    """What *text* is read as, or why it is refused."""
    try:
        return parse_curve(text, file="small.csv")
    except BadDataError as error:
        return str(error)


@given(st.integers(0, len(CURVE) - 1))
def test_a_torn_file_is_refused_or_ends_with_a_row(length: int) -> None:
    torn = outcome(CURVE[:length])

    if isinstance(torn, str):
        assert torn.startswith("small.csv: line ")
    else:
        whole = parse_curve(CURVE, file="small.csv")
        count = len(torn.loss.samples)
        np.testing.assert_array_equal(torn.loss.samples, whole.loss.samples[:count])


@given(st.text(max_size=200), st.integers(0, len(CURVE)))
def test_no_text_is_read_as_anything_but_a_curve_or_refused(
    text: str, place: int
) -> None:
    read = outcome(CURVE[:place] + text + CURVE[place:])

    if isinstance(read, str):
        assert read.startswith("small.csv: line ")
    else:
        assert (np.diff(read.loss.samples) > 0).all()


def test_a_folder_without_curves_says_how_to_get_them(tmp_path: Path) -> None:
    with pytest.raises(MissingInputError, match="make curves"):
        load_from(tmp_path)


def test_step_times_have_the_largest_share_first(tmp_path: Path) -> None:
    curve = load_from(folder(tmp_path, step_times=STEP_TIMES))["small"]

    first, second = curve.step_times
    assert (first.cpu_percent, first.step_s, first.steps) == (100, 0.002, 400)
    assert (second.cpu_percent, second.low_s, second.high_s) == (25, 0.007, 0.009)
    assert second.method == "cgroup v1"


def test_a_curve_without_step_times_has_none(tmp_path: Path) -> None:
    assert load_from(folder(tmp_path))["small"].step_times == ()


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("small,25", "large,25", "line 3: name is 'large', expected the name of"),
        ("small,25", "small,100", "line 4: cpu_percent is '100', expected every share"),
        ("25,8,7,9", "25,6,7,9", "line 3: step_ms is '6', expected a time from low_ms"),
        ("25,8,7,9", "25,nan,7,9", "line 3: step_ms is 'nan', expected a number above"),
        ("steps,method", "steps,how", "line 2: columns name,cpu_percent"),
    ],
)
def test_a_wrong_step_time_is_named(
    tmp_path: Path, old: str, new: str, message: str
) -> None:
    at = folder(tmp_path, step_times=replaced(STEP_TIMES, old, new))

    with pytest.raises(BadDataError, match=f"^step_times.csv: {message}"):
        load_from(at)
