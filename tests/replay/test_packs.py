"""Packs in replays: trainers share nodes, and rules move them."""

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from freetrain.losscurve.forecast import MetricDirection
from freetrain.replay.packs import PackReplay, replay_packs
from freetrain.replay.settings import PACK_RULES, PLACED
from freetrain.replay.trainers import (
    Costs,
    TrainerSpec,
    interpolate,
    quality_trainers,
    truth_of,
)
from freetrain.report.quality import makespan_s

INTERVAL_S = 60.0
CURVES = tuple(
    truth_of(
        list(range(1, 101)),
        [1 / (1 + k / turn) for k in range(1, 101)],
        MetricDirection.LOWER,
        name=f"turn-{turn}",
    )
    for turn in (2, 50)
)
START_S = 10.0


def trainer(name: str, hours: float, arrival_s: float = 0.0) -> TrainerSpec:
    samples = hours * 3_600.0
    return TrainerSpec(
        name=name,
        scaling=interpolate("one a second", {1: 1.0}),
        samples=samples,
        arrival_s=arrival_s,
        costs=Costs(grow_s=0.0, shrink_s=0.0, start_s=START_S),
        quality=CURVES[1].scaled_to(samples),
    )


def played(rule: str, *trainers: TrainerSpec, nodes: int = 2) -> PackReplay:
    return replay_packs(trainers, rule, nodes=nodes, interval_s=INTERVAL_S)


def finished_s(result: PackReplay) -> dict[str, float | None]:
    return {one.trainer: one.finished_s for one in result.learning}


@pytest.mark.parametrize("rule", PACK_RULES)
def test_a_trainer_alone_has_the_whole_node(rule: str) -> None:
    result = played(rule, trainer("a", 1.0), nodes=1)

    assert finished_s(result) == {"a": pytest.approx(START_S + 3_600.0)}
    assert result.moves == 0


def test_trainers_that_share_a_node_take_as_long_as_was_measured() -> None:
    result = played(PLACED, trainer("a", 1.0), trainer("b", 1.0), nodes=1)

    each = START_S + 2 * 1.12 * 3_600.0
    assert finished_s(result) == {"a": pytest.approx(each), "b": pytest.approx(each)}


def test_a_node_that_runs_dry_gets_a_trainer_but_where_all_stay() -> None:
    trainers = [
        trainer(name, hours)
        for name, hours in (("a", 4.0), ("short", 0.1), ("b", 4.0), ("brief", 0.1))
    ]

    results = {rule: played(rule, *trainers) for rule in PACK_RULES}

    assert results[PLACED].moves == 0
    assert all(results[rule].moves >= 1 for rule in PACK_RULES if rule != PLACED)
    assert min(r.end_s for r in results.values()) < 0.7 * results[PLACED].end_s


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from(PACK_RULES), st.integers(1, 4))
def test_all_trainers_finish_and_no_plan_does_work_that_nodes_cannot(
    seed: int, rule: str, nodes: int
) -> None:
    trainers = quality_trainers(6, CURVES, seed=seed, nodes=nodes, load=4.0)

    result = replay_packs(trainers, rule, nodes=nodes, interval_s=120.0)

    work_s = sum(one.work / one.scaling.samples_per_s.item(1) for one in trainers)
    taken_s = makespan_s(result)
    assert taken_s is not None
    assert taken_s * nodes >= work_s * (1 - 1e-9)
    for one, spec in zip(
        result.learning, sorted(trainers, key=lambda t: t.arrival_s), strict=True
    ):
        assert one.finished_s is not None
        alone_s = spec.work / spec.scaling.samples_per_s.item(1)
        took_s = one.finished_s - one.arrival_s
        assert took_s >= alone_s or math.isclose(took_s, alone_s)
        assert list(one.times_s) == sorted(one.times_s)


@pytest.mark.parametrize("rule", PACK_RULES)
def test_a_replay_of_packs_is_the_same_each_time(rule: str) -> None:
    trainers = quality_trainers(8, CURVES, seed=3, nodes=3, load=4.0)

    one, two = (
        replay_packs(trainers, rule, nodes=3, interval_s=120.0) for _ in range(2)
    )

    assert one == two


def test_a_start_that_costs_nothing_ends_sooner() -> None:
    dear = trainer("a", 1.0)
    free = replace(dear, costs=dear.costs.times(0.0))

    assert played(PLACED, free).end_s == pytest.approx(3_600.0)
    usual = replay_packs(
        [dear], PLACED, nodes=1, interval_s=INTERVAL_S, cost_factor=0.0
    )
    assert usual.end_s == pytest.approx(3_600.0)
