"""The built-in sets are the published ones."""

import csv
from pathlib import Path

import numpy as np
import pytest

from freetrain.errors import UsageError
from freetrain.replay.trainers import (
    BUILTIN_NAMES,
    builtin_trainers,
    interpolate,
    measured_points,
)


def test_hps_is_a_thousand_identical_shufflenets() -> None:
    trainers = builtin_trainers("hps")

    assert len(trainers) == 1000
    assert {id(t.scaling) for t in trainers} == {id(trainers[0].scaling)}
    assert trainers[0].scaling.model == "shufflenet"


def test_imagenet_cycles_through_seven_networks() -> None:
    trainers = builtin_trainers("imagenet")

    assert len(trainers) == 1001
    assert " ".join(own.scaling.model for own in trainers[:8]) == (
        "AlexNet vgg16 resnet18 DenseNet mnasnet1 shufflenet mobilenet AlexNet"
    )
    assert trainers[0].scaling is trainers[7].scaling


@pytest.mark.parametrize("name", BUILTIN_NAMES)
def test_built_in_trainers_are_named_arrive_every_36_s_and_run_on_1_to_64(
    name: str,
) -> None:
    trainers = builtin_trainers(name)

    for trainer in trainers:
        assert trainer.scaling.sizes == tuple(range(1, 65))
        assert trainer.scaling.samples_per_s.shape == (65,)
        assert trainer.scaling.samples_per_s[0] == 0.0

    assert len({t.name for t in trainers}) == len(trainers)
    assert [t.arrival_s for t in trainers[:3]] == [0.0, 36.0, 72.0]
    assert {t.samples for t in trainers} == {1.3e8}
    assert {(t.costs.grow_s, t.costs.shrink_s) for t in trainers} == {(18.0, 12.0)}


def test_speeds_are_linear_between_measured_points_and_cannot_be_changed() -> None:
    scaling = interpolate("m", {1: 10.0, 4: 40.0, 8: 48.0})

    assert scaling.samples_per_s.tolist() == [0, 10, 20, 30, 40, 42, 44, 46, 48]
    with pytest.raises(ValueError, match="read-only"):
        scaling.samples_per_s[1] = 11.0


def test_an_unknown_set_is_refused_with_the_names_that_exist() -> None:
    with pytest.raises(UsageError, match="hps, imagenet"):
        builtin_trainers("cifar")


@pytest.mark.shared
def test_the_shipped_table_is_the_published_one(shared: Path) -> None:
    with (shared / "trainers" / "summit_dnn_scaling.csv").open() as file:
        published = {
            (row["model"], int(row["nodes"])): float(row["images_per_s"])
            for row in csv.DictReader(file)
            if row["nodes"] != "0"
        }

    shipped = {
        (model, nodes): speed
        for model, points in measured_points().items()
        for nodes, speed in points.items()
    }

    assert shipped == published
    assert np.isfinite(list(shipped.values())).all()
