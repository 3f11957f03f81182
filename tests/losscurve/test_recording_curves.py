"""The program that recorded the curves does what the files say."""

import os
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

if find_spec("sklearn") is None or find_spec("examples") is None:
    pytest.skip(
        "no scikit-learn here (pip install scikit-learn), or no examples folder",
        allow_module_level=True,
    )

from collections.abc import Callable

from numpy.typing import NDArray

from examples.record_curves import splits
from examples.record_curves.__main__ import main
from examples.record_curves.catalogue import TRAININGS
from examples.record_curves.layers import (
    Convolution,
    Dense,
    Halve,
    Layer,
    Recurrent,
    Relu,
    Reshape,
)
from examples.record_curves.losses import CROSS_ENTROPY, HINGE, SQUARED_ERROR, Loss
from examples.record_curves.rates import Rate
from examples.record_curves.shares import CPU_CGROUPS, PERIOD_US, DutyCycle, Quota
from examples.record_curves.step_times import heading, measure, starved
from examples.record_curves.training import Training, train
from freetrain.losscurve import recorded
from freetrain.losscurve.recorded import parse_curve, parse_step_times
from tests.losscurve.files import STEP_TIMES, replaced

Array = NDArray[np.float64]

QUICK = "logistic-iris"
NAMED = {training.name: training for training in TRAININGS}


def slope_at(function: Callable[[], float], place: Array, small: float) -> Array:
    """Return the gradient of *function* by moving each number of *place* a little."""
    slopes = np.empty_like(place)
    for index in np.ndindex(place.shape):
        kept = place[index]
        place[index] = kept + small
        above = function()
        place[index] = kept - small
        slopes[index] = (above - function()) / (2 * small)
        place[index] = kept
    return slopes


LAYERS: dict[str, tuple[Callable[[np.random.Generator], Layer], tuple[int, ...]]] = {
    "dense": (partial(Dense, 4, 3), (5, 4)),
    "relu": (lambda _: Relu(), (5, 4)),
    "reshape": (lambda _: Reshape(2, 2), (5, 4)),
    "convolution": (partial(Convolution, 2, 3), (2, 2, 4, 4)),
    "halve": (lambda _: Halve(), (2, 2, 4, 4)),
    "recurrent": (partial(Recurrent, 3, 4), (2, 5, 3)),
}


@pytest.mark.parametrize("kind", LAYERS)
def test_a_layer_goes_back_along_its_slope(kind: str) -> None:
    make, shape = LAYERS[kind]
    random = np.random.default_rng(5)
    layer, x = make(random), random.normal(size=shape)
    counts = random.normal(size=layer.forward(x).shape)

    def total() -> float:
        return float((layer.forward(x) * counts).sum())

    layer.forward(x)
    of_x, of_weights = layer.backward(counts)

    np.testing.assert_allclose(of_x, slope_at(total, x, 1e-6), atol=1e-6)
    for weight, gradient in zip(layer.weights, of_weights, strict=True):
        np.testing.assert_allclose(gradient, slope_at(total, weight, 1e-6), atol=1e-6)


@pytest.mark.parametrize("loss", [CROSS_ENTROPY, HINGE, SQUARED_ERROR])
def test_a_loss_has_its_own_slope(loss: Loss) -> None:
    random = np.random.default_rng(5)
    values = random.normal(size=(6, 3))
    wanted = values + 1 if loss is SQUARED_ERROR else np.array([0, 1, 2, 0, 1, 2])

    _, gradient = loss.of(values, wanted)

    slope = slope_at(lambda: loss.of(values, wanted)[0], values, 1e-6)
    np.testing.assert_allclose(gradient, slope, atol=1e-6)


@pytest.mark.parametrize(
    ("rate", "epochs", "rates"),
    [
        pytest.param(
            Rate(0.8, warm_up=2, cosine=10),
            (0, 1, 2, 6, 10, 11),
            (0, 0.4, 0.8, 0.4, 0, 0),
            id="warm-up, then a cosine to 0",
        ),
        pytest.param(
            Rate(1.0, drops=(2, 5), factor=0.5),
            (1.9, 2, 4.9, 5),
            (1, 0.5, 0.5, 0.25),
            id="drops",
        ),
    ],
)
def test_a_rate_follows_its_schedule(
    rate: Rate, epochs: tuple[float, ...], rates: tuple[float, ...]
) -> None:
    assert [rate.at(epoch) for epoch in epochs] == pytest.approx(rates)


def test_every_training_of_the_catalogue_ships_and_no_other() -> None:
    assert len(NAMED) == len(TRAININGS)
    assert set(recorded.load()) == set(NAMED)


def test_the_seed_alone_decides_the_bytes_of_a_training(tmp_path: Path) -> None:
    def losses(training: Training) -> list[float]:
        learner, split = training.begin()
        return [row.loss for row in train(training, learner, samples=len(split.x))]

    files = [tmp_path / folder / f"{QUICK}.csv" for folder in ("first", "second")]
    for file in files:
        main(["curves", "--out", str(file.parent), "--only", QUICK])

    assert list(files[0].parent.iterdir()) == files[:1]
    assert files[0].read_bytes() == files[1].read_bytes()
    assert losses(NAMED[QUICK]) != losses(replace(NAMED[QUICK], seed=2))


@pytest.mark.parametrize("name", [QUICK, "logistic-breast-cancer", "k-means-digits"])
def test_a_curve_that_ships_is_what_its_training_gives(
    tmp_path: Path, name: str
) -> None:
    """To four digits: other processors and versions add up in another order."""
    main(["curves", "--out", str(tmp_path), "--only", name])
    file = f"{name}.csv"
    anew = parse_curve((tmp_path / file).read_text("ascii"), file=file)
    ships = recorded.load()[name]

    np.testing.assert_allclose(anew.loss.values, ships.loss.values, rtol=1e-4)
    np.testing.assert_allclose(anew.validation.values, ships.validation.values, 1e-4)
    for field in ("model", "data_set", "optimizer", "learning_rate"):
        assert getattr(anew, field) == getattr(ships, field)


def test_an_epoch_trains_each_sample_once_in_batches_that_fit() -> None:
    batches = NAMED[QUICK].batches(120)

    for _ in range(2):
        epoch = np.concatenate([next(batches) for _ in range(6)])
        assert sorted(epoch) == list(range(120))
    with pytest.raises(ValueError, match="120 samples are not a whole number of rows"):
        next(replace(NAMED[QUICK], batch_size=50).batches(120))


def test_validation_uses_no_sample_of_the_training() -> None:
    for training in TRAININGS:
        split = training.split()
        seen = {row.tobytes() for row in split.x}
        both = sum(row.tobytes() in seen for row in split.x_validation)
        # Iris has flowers that are alike, and so may other sets.
        assert both <= 2, training.name


def test_labels_are_spoilt_in_the_training_set_only() -> None:
    clean = splits.digits(320)
    noisy = splits.noisy(clean, 0.4)

    assert 0.3 < (noisy.y != clean.y).mean() < 0.4
    assert noisy.y_validation is clean.y_validation


@pytest.mark.parametrize(
    ("percent", "times_s", "slept_s"),
    [(25, [0.01, 0.03], [pytest.approx(0.09)]), (100, [1.0], [0.0])],
)
def test_a_duty_cycle_sleeps_in_proportion_to_the_work(
    percent: int, times_s: list[float], slept_s: list[float]
) -> None:
    now_s = 0.0
    found_s: list[float] = []

    with DutyCycle(lambda: now_s, found_s.append).of(percent) as rest:
        for now_s in times_s:  # noqa: B007 - the clock of the cycle
            rest()

    assert found_s == slept_s


def test_the_table_of_step_times_is_one_that_can_be_read() -> None:
    lines = measure(
        [NAMED[QUICK]],
        DutyCycle(sleep_s=lambda _: None),
        percents=(100, 50),
        seconds=0.0,
        repeats=3,
    )
    text = "\n".join([*heading(0.0, 3), *lines]) + "\n"

    times = parse_step_times(text, file="step_times.csv", names={QUICK})

    assert [time.cpu_percent for time in times[QUICK]] == [100, 50]
    assert all(time.steps == 3 for time in times[QUICK])


def test_shares_that_others_took_are_reported() -> None:
    table = replaced(STEP_TIMES, "25.1,100", "20,100")

    assert starved(STEP_TIMES) == []
    assert starved(table) == [("small", 25)]


def test_the_table_is_written_where_the_command_says(tmp_path: Path) -> None:
    out = tmp_path / "step_times.csv"
    quick = ["--only", QUICK, "--seconds", "0", "--repeats", "1", "--percent", "100"]

    main(["steps", "--out", str(out), *quick])

    times = parse_step_times(out.read_text("ascii"), file=out.name, names={QUICK})
    assert [time.steps for time in times[QUICK]] == [1]


# A share of a processor, enforced by the kernel where it lets us


def group() -> Path:
    """Return this process's folder in the cgroup hierarchy of cpu, or skip."""
    lines = Path("/proc/self/cgroup").read_text("ascii").splitlines()
    found = (w[2] for w in (x.split(":", 2) for x in lines) if "cpu" in w[1].split(","))
    for path in found:
        return CPU_CGROUPS / path.removeprefix("/")
    pytest.skip("there is no cgroup v1 hierarchy of cpu here")


@pytest.fixture
def quota() -> Quota:
    """Skip by the machine's answer, not by the quota's own."""
    needed = (group(), group() / "cgroup.procs")
    if not all(os.access(path, os.W_OK) for path in needed):
        pytest.skip("this process may not make cgroups (version 1) of its own")
    return Quota()


def test_a_quota_holds_within_and_nothing_is_left_after(quota: Quota) -> None:
    before = group()
    own = before / f"freetrain-steps-{os.getpid()}"

    with quota.of(50):
        assert group() == own
        limit_us = int((own / "cpu.cfs_quota_us").read_text("ascii"))
    assert quota.works()
    assert limit_us == PERIOD_US // 2
    assert group() == before
    assert not own.exists()

    with quota.of(100):
        assert group() == own
    with pytest.raises(ZeroDivisionError), quota.of(50):
        _ = 1 / 0
    assert group() == before
    assert not own.exists()


def test_a_process_that_could_not_return_does_not_move(tmp_path: Path) -> None:
    assert not Quota(tmp_path).works()
    assert list(tmp_path.iterdir()) == []
