"""A replay over time, thinned: the means are right and nothing is lost."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from freetrain.replay.engine import Step
from freetrain.replay.pool import PoolTimeline
from freetrain.report.drawings import bin_edges_s, binned_mean, thinned, trainer_bands
from freetrain.report.summary import hole_lengths_s
from logs.trace import IdleTrace
from tests.report.comparisons import result

changes = st.lists(
    st.tuples(st.integers(0, 5000), st.integers(0, 64)), min_size=1, max_size=30
).map(lambda pairs: sorted(dict(pairs).items()))


def test_a_mean_weighs_each_value_by_how_long_it_held() -> None:
    means = binned_mean([0.0, 30.0, 90.0], [4.0, 10.0, 0.0], np.array([0, 60.0, 120]))

    assert means.tolist() == [7.0, 5.0]


def test_before_its_first_time_a_value_is_nothing() -> None:
    assert binned_mean([50.0], [8.0], np.array([0.0, 100.0])).tolist() == [4.0]
    assert binned_mean([], [], np.array([0.0, 100.0])).tolist() == [0.0]


@given(changes, st.integers(1, 50))
def test_binning_keeps_the_area(pairs: list[tuple[int, int]], bins: int) -> None:
    times, values = zip(*pairs, strict=True)
    edges_s = np.linspace(0.0, 6000.0, bins + 1)

    means = binned_mean(times, values, edges_s)

    until = [*times[1:], 6000]
    area = sum(v * (b - a) for v, a, b in zip(values, times, until, strict=True))
    assert (means * np.diff(edges_s)).sum() == pytest.approx(area)
    assert means.min() >= -1e-9
    assert means.max() <= max(values) + 1e-9


@pytest.mark.parametrize(
    ("span_s", "bins"), [(1.0, 1), (600.0, 10), (1e9, 700), (90_000.0, 700)]
)
def test_bins_are_a_minute_wide_at_least(span_s: float, bins: int) -> None:
    edges_s = bin_edges_s(span_s, most_bins=700)

    assert len(edges_s) == bins + 1
    assert edges_s[-1] == span_s


def test_bands_are_as_many_as_trainers_at_a_time_and_hold_all_nodes() -> None:
    replay = result()
    edges_s = bin_edges_s(86_400.0, most_bins=100)

    bands, slots_per_band = trainer_bands(replay, edges_s, most_bands=40)

    used = binned_mean(
        [s.time_s for s in replay.steps], [s.used_nodes for s in replay.steps], edges_s
    )
    assert bands.shape == (10, 100)
    assert slots_per_band == 1
    assert bands.sum(axis=0) == pytest.approx(used)


def test_more_trainers_than_bands_share_them() -> None:
    edges_s = bin_edges_s(86_400.0, most_bins=10)

    bands, slots_per_band = trainer_bands(result(), edges_s, most_bands=4)

    assert (bands.shape, slots_per_band) == ((4, 10), 3)


def test_a_trainer_that_starts_over_takes_the_lowest_free_band() -> None:
    steps = (
        Step(0.0, 4, 4, (("a", 2), ("b", 2)), ()),
        Step(50.0, 4, 2, (("a", 0),), ("a",)),
        Step(60.0, 4, 4, (("a", 2),), ()),
    )
    replay = replace(result(), steps=steps)

    bands, _ = trainer_bands(replay, np.array([0.0, 100.0]), most_bands=40)

    assert bands.tolist() == [[1.8], [2.0]]


@given(st.lists(st.floats(0, 1e6), max_size=200), st.integers(2, 50))
def test_thinning_keeps_the_ends_and_the_order(values: list[float], most: int) -> None:
    kept = thinned(values, most=most).tolist()

    assert len(kept) == min(len(values), most)
    assert kept == sorted(kept)
    if values:
        assert (kept[0], kept[-1]) == (min(values), max(values))


intervals = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 50), st.integers(1, 20)), min_size=1
)


@given(intervals, st.none() | st.floats(0.00005, 0.001))
def test_hole_lengths_add_up_to_the_pool(
    drawn: list[tuple[int, int, int]], days: float | None
) -> None:
    ends: dict[int, int] = {}
    rows = []
    for node, gap, length in drawn:
        start = ends.get(node, 0) + gap
        ends[node] = start + length
        rows.append((start, node, start + length))
    rows.sort()
    trace = IdleTrace(
        source="t",
        node_names=("0", "1", "2", "3"),
        node=np.array([row[1] for row in rows], np.int32),
        start_s=np.array([row[0] for row in rows], np.float64),
        end_s=np.array([row[2] for row in rows], np.float64),
    )
    timeline = PoolTimeline.from_trace(trace, days=days)

    lengths = hole_lengths_s(timeline)

    assert (lengths > 0).all()
    pool_node_s = timeline.mean_nodes * timeline.horizon_s
    assert lengths.sum() == pytest.approx(pool_node_s, abs=1e-6)
