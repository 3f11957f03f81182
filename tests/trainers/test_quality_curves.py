"""Quality curves: their values, their files, and sets of trainers drawn from them."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from freetrain.errors import (
    BadConfigurationError,
    BadDataError,
    MissingInputError,
    UsageError,
)
from freetrain.losscurve.forecast import MetricDirection
from freetrain.priority.base import Target
from freetrain.replay.trainers import (
    QualityTruth,
    TrainerSpec,
    quality_trainers,
    truth_of,
)
from freetrain.replay.trainers_file import read_curve, read_trainers

LOSS = truth_of([1, 2, 3, 4], [3.0, 2.0, 2.5, 1.0], MetricDirection.LOWER, name="loss")
SCORE = truth_of([0, 5], [0.2, 0.9], MetricDirection.HIGHER, name="score")

values = st.floats(-1e6, 1e6) | st.sampled_from([np.nan, np.inf, -np.inf])


def test_quality_is_the_best_so_far_between_the_first_and_the_best_value() -> None:
    assert LOSS.quality().tolist() == [0, 0.5, 0.5, 1]
    assert SCORE.quality().tolist() == [0, 1]
    assert LOSS.quality(until=3).tolist() == [0, 1, 1]


@given(st.lists(values, min_size=2, max_size=30), st.sampled_from(MetricDirection))
def test_quality_never_falls_and_ends_at_1_or_never_leaves_0(
    reported: list[float], better: MetricDirection
) -> None:
    curve = truth_of(range(len(reported)), reported, better, name="any")

    quality = curve.quality()

    assert (np.diff(quality) >= 0).all()
    assert quality[0] == 0
    assert quality[-1] in (0, 1)


def test_a_value_at_a_quality_is_reached_where_the_quality_is() -> None:
    assert LOSS.value_at_quality(0.5) == 2.0
    assert LOSS.value_at_quality(0.9) == 1.0
    assert LOSS.reached_at(2.0) == 2
    assert LOSS.reached_at(0.5) is None
    assert SCORE.reached_at(0.2) == 0


def test_a_curve_is_stretched_to_the_work_of_a_trainer() -> None:
    assert LOSS.scaled_to(400.0).samples.tolist() == [100, 200, 300, 400]
    assert LOSS.scaled_to(400.0).values is LOSS.values


def test_points_come_in_any_order_and_the_last_of_two_counts() -> None:
    curve = truth_of([4, 2, 4], [1.0, 2.0, 3.0], MetricDirection.LOWER, name="c")

    assert curve.samples.tolist() == [2, 4]
    assert curve.values.tolist() == [2, 3]


@pytest.mark.parametrize("places", [[], [1.0], [1.0, 1.0], [-1.0, 2.0], [1.0, np.nan]])
def test_a_curve_without_two_places_is_refused(places: list[float]) -> None:
    with pytest.raises(UsageError, match="2 or more, finite and not negative"):
        truth_of(places, [0.0] * len(places), MetricDirection.LOWER, name="c")


CSV = "progress,iteration,metric,grad_sqr\n100,7,0.5,1e3\n200,14,0.75,nan\n"


def test_a_curve_file_is_read_with_comments_and_gaps(tmp_path: Path) -> None:
    file = tmp_path / "c.csv"
    file.write_text(
        "# model: m\nsamples,loss,accuracy\n10,2.5,\n20,nan,0.5\n30,1,0.6\n"
    )

    loss = read_curve(file, "loss", MetricDirection.LOWER)
    accuracy = read_curve(file, "accuracy", MetricDirection.HIGHER)

    assert loss.samples.tolist() == [10, 20, 30]
    assert np.isnan(loss.values[1])
    assert accuracy.samples.tolist() == [20, 30]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "found the columns none"),
        ("a,metric\n1,2\n", "found the columns a, metric; expected metric and one of"),
        ("progress,loss\n1,2\n", "expected metric and one of samples, progress"),
        ("progress,metric\n1,2\n2,x\n", "row 2 is not a number: '2', 'x'"),
        ("progress,metric\n1,2\n,5\n", "row 2 is not a number: '', '5'"),
    ],
)
def test_a_file_that_is_no_curve_is_refused(
    tmp_path: Path, text: str, why: str
) -> None:
    (tmp_path / "c.csv").write_text(text)

    with pytest.raises(BadDataError, match=why):
        read_curve(tmp_path / "c.csv", "metric", MetricDirection.HIGHER)


TRAINERS = """
[[trainer]]
name = "a"
samples = 1000
model = "vgg16"
arrival = "1h"
deadline = "2h"
quality = { file = "curves/c.csv", metric = "metric", better = "higher" }
target = { deliver = 0.6, final = 0.7 }
"""


def written(folder: Path, trainers: str = TRAINERS) -> Path:
    (folder / "curves").mkdir()
    (folder / "curves" / "c.csv").write_text(CSV)
    (folder / "t.toml").write_text(trainers)
    return folder / "t.toml"


def test_a_trainers_file_names_a_curve_beside_it_and_targets(tmp_path: Path) -> None:
    (trainer,) = read_trainers(written(tmp_path))

    assert trainer.quality is not None
    assert trainer.quality.samples.tolist() == [500, 1000]
    assert trainer.quality.better is MetricDirection.HIGHER
    assert trainer.target == Target(deliver=0.6, final=0.7)
    assert trainer.deadline_s == 3 * 3_600
    assert trainer.work == 1000


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ('"higher"', '"up"', "better = 'up', expected one of lower, higher"),
        ("deliver = 0.6, ", "", "deliver is missing"),
        ("0.7", '"all"', "final = 'all', expected a number"),
        ("0.7", "1" + "0" * 400, "[target]: final = 1000000"),
        (", final", ", last", "unknown key 'last'"),
        ('quality = { file = "curves/c.csv"', 'grow = "1s"\n#', "target without qual"),
        ("metric = ", "metrics = ", "unknown key 'metrics'. Did you mean 'metric'"),
    ],
)
def test_mistakes_about_quality_are_named(
    tmp_path: Path, old: str, new: str, why: str
) -> None:
    with pytest.raises(BadConfigurationError) as refused:
        read_trainers(written(tmp_path, TRAINERS.replace(old, new)))

    assert why in str(refused.value).replace('"', "'")


def test_a_curve_file_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(MissingInputError, match=r"curve file curves/none\.csv"):
        read_trainers(written(tmp_path, TRAINERS.replace("c.csv", "none.csv")))


def drawn(count: int = 30, *, seed: int = 1, load: float = 1.0) -> list[TrainerSpec]:
    curves = [LOSS, SCORE, truth_of([1, 2], [1, 2], MetricDirection.LOWER, name="bad")]
    return list(quality_trainers(count, curves, seed=seed, nodes=16.0, load=load))


def plain(team: list[TrainerSpec]) -> list[tuple[object, ...]]:
    return [
        (t.name, t.samples, t.target, t.costs.grow_s, t.scaling.model) for t in team
    ]


def test_the_seed_alone_decides_the_trainers_and_the_load_their_arrivals() -> None:
    once, twice = drawn(load=1.0), drawn(load=2.0)

    assert [t.arrival_s for t in drawn()] == [t.arrival_s for t in once]
    assert plain(drawn()) == plain(once) == plain(twice)
    assert plain(drawn()) != plain(drawn(seed=2))
    assert [t.arrival_s for t in twice] == pytest.approx(
        [t.arrival_s / 2 for t in once]
    )


def test_the_load_is_the_work_that_arrives_over_what_the_nodes_can_do() -> None:
    many = drawn(4_000, load=3.0)

    one_node_s = sum(t.work / t.scaling.samples_per_s[1] for t in many)
    assert one_node_s / (16.0 * many[-1].arrival_s) == pytest.approx(3.0, rel=0.1)


def test_parts_of_drawn_trainers_fit_each_other() -> None:
    for trainer in drawn(200):
        assert isinstance(trainer.quality, QualityTruth)
        assert trainer.quality.samples[-1] == trainer.samples
        assert trainer.deadline_s is not None
        assert trainer.deadline_s > trainer.arrival_s + trainer.shortest_s
        assert len(trainer.scaling.samples_per_s) == trainer.scaling.sizes[-1] + 1
        if trainer.name.startswith("bad"):
            assert trainer.target is None
            continue
        assert trainer.target is not None
        assert trainer.target.final is not None
        first = trainer.quality.reached_at(trainer.target.deliver)
        last = trainer.quality.reached_at(trainer.target.final)
        assert first is not None
        assert last is not None
        assert first <= last == trainer.work


def test_targets_are_drawn_at_60_to_90_and_at_95_to_100_percent_of_quality() -> None:
    line = truth_of(range(1001), range(1001), MetricDirection.HIGHER, name="line")
    trainers = quality_trainers(400, [line], seed=1, nodes=16.0, load=1.0)
    targets = [trainer.target for trainer in trainers]

    first = [1e-3 * own.deliver for own in targets if own]
    last = [1e-3 * own.final for own in targets if own and own.final]
    for found, low, high in ((first, 0.6, 0.9), (last, 0.95, 1.0)):
        assert len(found) == 400
        assert low - 1e-9 <= min(found) < low + 0.01
        assert high - 0.01 < max(found) <= high + 0.001


def test_a_set_without_curves_is_refused() -> None:
    with pytest.raises(UsageError, match="no quality curves"):
        quality_trainers(3, [], seed=1, nodes=1.0, load=1.0)
