"""Files of recorded curves are read whole or refused; those that ship are sound."""

from __future__ import annotations

import re
from importlib import resources
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from freetrain.errors import BadDataError, MissingInputError
from freetrain.losscurve import recorded
from freetrain.losscurve.forecast import MetricDirection
from freetrain.losscurve.recorded import RecordedCurve, load_from, parse_curve
from tests.losscurve.files import CURVE, STEP_TIMES, folder, replaced

# Files


def test_a_curve_has_its_losses_and_its_validation_at_their_samples() -> None:
    curve = parse_curve(CURVE, file="small.csv")

    assert curve.name == "small"
    assert (curve.batch_size, curve.epoch_samples, curve.seed) == (4, 8, 1)
    assert curve.loss.metric == "squared_error"
    assert curve.loss.better is MetricDirection.LOWER
    np.testing.assert_array_equal(curve.loss.samples, [4, 8, 12, 16])
    np.testing.assert_array_equal(curve.loss.values, [1.25, np.inf, np.nan, np.nan])
    assert curve.validation.metric == "accuracy"
    assert curve.validation.better is MetricDirection.HIGHER
    np.testing.assert_array_equal(curve.validation.samples, [8, 16])
    np.testing.assert_array_equal(curve.validation.values, [0.5, np.nan])
    for series in (curve.loss, curve.validation):
        assert not series.samples.flags.writeable
        assert not series.values.flags.writeable


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
        ("batch_size: 4", "batch_size: 0", "line 11: batch_size is '0', expected a"),
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
    """Return the curve in *text*, or the message that refuses it."""
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
def test_any_text_is_read_as_a_curve_or_refused(text: str, place: int) -> None:
    read = outcome(CURVE[:place] + text + CURVE[place:])

    if isinstance(read, str):
        assert read.startswith("small.csv: line ")
    else:
        assert (np.diff(read.loss.samples) > 0).all()


def test_a_folder_without_curves_says_how_to_get_them(tmp_path: Path) -> None:
    with pytest.raises(MissingInputError, match="make curves"):
        load_from(tmp_path)


def test_step_times_are_optional_and_the_largest_share_is_first(
    tmp_path: Path,
) -> None:
    curve = load_from(folder(tmp_path, step_times=STEP_TIMES))["small"]

    first, second = curve.step_times
    assert (first.cpu_percent, first.step_s, first.steps) == (100, 0.002, 400)
    assert (second.cpu_percent, second.low_s, second.high_s) == (25, 0.007, 0.009)
    assert second.method == "cgroup v1"
    assert load_from(folder(tmp_path / "without"))["small"].step_times == ()


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


# The curves that ship


CURVES = recorded.load()

each = pytest.mark.parametrize("curve", CURVES.values(), ids=list(CURVES))


def of(part: str) -> list[RecordedCurve]:
    return [curve for curve in CURVES.values() if part in curve.name]


def last_quarter(values: np.ndarray) -> np.ndarray:
    return values[-len(values) // 4 :]


@each
def test_a_curve_names_its_origin_and_has_losses_and_validations_to_be_fitted(
    curve: RecordedCurve,
) -> None:
    assert "train, " in curve.data_set
    assert "numpy" in curve.made_with
    assert curve.licence == "Apache-2.0"
    assert curve.loss.better is MetricDirection.LOWER
    assert curve.epoch_samples % curve.batch_size == 0
    assert 100 <= len(curve.loss.values) <= 400
    assert len(curve.validation.values) >= 10
    assert len(set(np.diff(curve.loss.samples))) == 1
    epochs = curve.validation.samples / curve.epoch_samples
    np.testing.assert_array_equal(epochs, np.arange(1, len(epochs) + 1))
    for series in (curve.loss, curve.validation):
        finite = series.values[np.isfinite(series.values)]
        most = 1 if series.better is MetricDirection.HIGHER else np.inf
        assert ((finite >= 0) & (finite <= most)).all()


def test_the_page_has_a_row_for_each() -> None:
    page = Path(__file__).parents[2] / "docs" / "notes" / "recorded-curves.md"
    table, _, _ = page.read_text("utf-8").partition("## The files")
    rows = re.findall(r"^\| `([a-z0-9-]+)` \|", table, re.MULTILINE)

    assert sorted(rows) == list(CURVES) == sorted(CURVES)


def test_there_are_many_small_ones_that_differ_and_are_timed_alike() -> None:
    files = (resources.files("freetrain.losscurve") / "curves").iterdir()
    timed = {tuple(t.cpu_percent for t in own.step_times) for own in CURVES.values()}
    first_words = {curve.name.split("-")[0] for curve in CURVES.values()}
    data_sets = {curve.data_set.split(":")[0] for curve in CURVES.values()}

    assert len(CURVES) >= 16
    assert sum(len(file.read_bytes()) for file in files) < 500_000
    assert len(timed) == 1
    assert len(first_words) >= 10
    assert len(data_sets) >= 10
    assert len({curve.batch_size for curve in CURVES.values()}) >= 8


def test_only_trainings_that_diverge_have_losses_that_are_not_finite() -> None:
    broken = [c for c in CURVES.values() if not np.isfinite(c.loss.values).all()]

    assert broken == of("diverging")
    assert len(broken) >= 2
    assert all(np.isnan(curve.loss.values[-1]) for curve in broken)


def test_one_training_improves_before_it_diverges() -> None:
    (late,) = of("diverging-late")
    losses = late.loss.values[np.isfinite(late.loss.values)]

    assert losses.min() < losses[0] / 5
    assert losses.argmin() > len(losses) / 4


def test_overfitting_makes_the_loss_better_and_validation_worse() -> None:
    assert len(of("overfitting")) >= 2
    for curve in of("overfitting"):
        assert last_quarter(curve.loss.values).mean() < curve.loss.values[0] / 5
        best = curve.validation.values.min()
        assert last_quarter(curve.validation.values).min() > 1.05 * best


def test_losses_fall_where_the_learning_rate_drops() -> None:
    assert len(of("step-decay")) >= 2
    for curve in of("step-decay"):
        drop = int(curve.learning_rate.split("at epoch ")[1].split(",")[0])
        epoch = curve.loss.samples / curve.epoch_samples
        before = curve.loss.values[(epoch > drop - 3) & (epoch <= drop)].mean()
        after = curve.loss.values[(epoch > drop + 1) & (epoch <= drop + 4)].mean()
        assert after < 0.85 * before, (curve.name, before, after)


@pytest.mark.parametrize("words", ["warm-up", "cosine"])
def test_schedules_that_do_not_drop_are_there(words: str) -> None:
    found = [c for c in CURVES.values() if words in c.learning_rate]

    assert any(np.isfinite(curve.loss.values).all() for curve in found)


def test_most_end_on_a_plateau() -> None:
    flat = 0
    for curve in CURVES.values():
        values = curve.validation.values
        if np.isfinite(values).all():
            half, quarter = values[len(values) // 2 :], last_quarter(values)
            flat += abs(np.median(half) - np.median(quarter)) < 0.05 * np.ptp(values)

    assert flat >= 0.75 * len(CURVES)
