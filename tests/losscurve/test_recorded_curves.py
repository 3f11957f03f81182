"""The curves that ship with FreeTrain are many, whole, and of every kind."""

from __future__ import annotations

import re
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from freetrain.losscurve import recorded
from freetrain.losscurve.forecast import Better

if TYPE_CHECKING:
    from freetrain.losscurve.recorded import RecordedCurve

CURVES = recorded.load()

each = pytest.mark.parametrize("curve", CURVES.values(), ids=list(CURVES))


def of(part: str) -> list[RecordedCurve]:
    """The curves with *part* in their names."""
    return [curve for curve in CURVES.values() if part in curve.name]


def last_quarter(values: np.ndarray) -> np.ndarray:
    return values[-len(values) // 4 :]


@each
def test_a_curve_says_what_was_trained(curve: RecordedCurve) -> None:
    assert "train, " in curve.data_set
    assert "numpy" in curve.made_with
    assert curve.licence == "Apache-2.0"
    assert curve.loss.better is Better.LOWER
    assert curve.epoch_samples % curve.batch_size == 0


@each
def test_a_curve_is_long_enough_to_be_fitted(curve: RecordedCurve) -> None:
    assert 100 <= len(curve.loss.values) <= 400
    assert len(curve.validation.values) >= 10


@each
def test_losses_come_at_regular_samples_and_validation_at_each_epoch(
    curve: RecordedCurve,
) -> None:
    assert len(set(np.diff(curve.loss.samples))) == 1
    epochs = curve.validation.samples / curve.epoch_samples
    np.testing.assert_array_equal(epochs, np.arange(1, len(epochs) + 1))


@each
def test_values_are_where_their_metric_can_be(curve: RecordedCurve) -> None:
    for series in (curve.loss, curve.validation):
        finite = series.values[np.isfinite(series.values)]
        most = 1 if series.better is Better.HIGHER else np.inf
        assert ((finite >= 0) & (finite <= most)).all()


def test_they_come_in_the_order_of_their_names() -> None:
    assert list(CURVES) == sorted(CURVES)


def test_the_page_has_a_row_for_each() -> None:
    page = Path(__file__).parents[2] / "docs" / "notes" / "recorded-curves.md"
    table, _, _ = page.read_text("utf-8").partition("## The files")
    rows = re.findall(r"^\| `([a-z0-9-]+)` \|", table, re.MULTILINE)

    assert sorted(rows) == list(CURVES)


def test_there_are_many_and_they_differ() -> None:
    first_words = {curve.name.split("-")[0] for curve in CURVES.values()}
    data_sets = {curve.data_set.split(":")[0] for curve in CURVES.values()}

    assert len(CURVES) >= 16
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


def test_the_files_are_small() -> None:
    folder = resources.files("freetrain.losscurve") / "curves"

    assert sum(len(file.read_bytes()) for file in folder.iterdir()) < 500_000


def test_every_training_was_timed_at_every_share_or_none_was() -> None:
    shares = {
        tuple(time.cpu_percent for time in curve.step_times)
        for curve in CURVES.values()
    }

    assert len(shares) == 1
