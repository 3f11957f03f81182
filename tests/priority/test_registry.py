"""Priorities by name, with settings; the plain ones as the replay has them."""

from pathlib import Path

import pytest

from freetrain.errors import UsageError
from freetrain.priority.base import PRIORITIES, Basis, priority_named, settings_of
from milp.problem import speed_up, throughput, weighted
from tests.priority.inputs import contender, inputs_of, speeds

PAGE = Path(__file__).parents[2] / "docs" / "guide" / "priorities.md"
PLAIN = ["throughput", "speedup", "weight"]


@pytest.mark.parametrize("name", PRIORITIES)
def test_a_priority_has_the_name_it_is_called_by(name: str) -> None:
    assert priority_named(name).name == name
    assert priority_named(name, {"hysteresis": 0.2}).name == name


def test_the_plain_priorities_are_the_objectives_to_the_bit() -> None:
    sizes = (2, 4, 8)
    own = speeds(8, one_node=1 / 3)
    one = contender("a", sizes=sizes, samples_per_s=own, weight=0.7, held=4)
    wanted = {
        "throughput": throughput(own, sizes),
        "speedup": speed_up(own, sizes),
        "weight": weighted(speed_up(own, sizes), 0.7),
    }
    for name in PLAIN:
        (rating,) = priority_named(name).rate(inputs_of(one), {}).ratings
        bits = rating.curve.value_per_s.tobytes()
        assert bits == wanted[name].value_per_s.tobytes(), name
        assert rating.curve.sizes == sizes
        assert (rating.floor, rating.is_background) == (0, False)


@pytest.mark.parametrize("name", PRIORITIES)
def test_a_curve_stays_the_same_object_while_nothing_changed(name: str) -> None:
    priority = priority_named(name)
    first = priority.rate(inputs_of(contender("a")), {}).ratings[0].curve
    again = priority.rate(inputs_of(contender("a", samples_per_s=speeds(8))), {})
    assert again.ratings[0].curve is first


@pytest.mark.parametrize("name", PLAIN)
def test_another_speed_is_another_curve(name: str) -> None:
    priority = priority_named(name)
    two = priority.rate(
        inputs_of(contender("a"), contender("b", samples_per_s=speeds(8) ** 0.5)), {}
    )
    assert two.ratings[0].curve is not two.ratings[1].curve


@pytest.mark.parametrize("name", PLAIN)
def test_priorities_by_the_trainer_alone_have_no_hysteresis_by_default(
    name: str,
) -> None:
    one = inputs_of(contender("a", held=4))
    plain, asked = priority_named(name), priority_named(name, {"hysteresis": 0.1})
    assert (plain.basis, asked.basis) == (Basis.TRAINER, Basis.MOMENT)
    before = plain.rate(one, {}).ratings[0].curve.value_per_s
    after = asked.rate(one, {}).ratings[0].curve.value_per_s
    assert after[4] == pytest.approx(1.1 * before[4])
    assert [after[n] for n in (3, 5)] == [before[n] for n in (3, 5)]


def test_others_have_five_percent_of_hysteresis_by_default() -> None:
    one = inputs_of(contender("a", held=4))
    usual = priority_named("fair").rate(one, {}).ratings[0].curve.value_per_s
    without = priority_named("fair", {"hysteresis": 0}).rate(one, {}).ratings[0]
    assert usual[4] == pytest.approx(1.05 * without.curve.value_per_s[4])


def test_an_unknown_priority_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UsageError, match=r"no priority 'best'.*throughput, speedup"):
        priority_named("best")


def test_an_unknown_setting_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UsageError, match=r"no setting 'speed'. It has turn_s, hyst"):
        priority_named("fair", {"speed": 1})
    assert settings_of("fair") == ("turn_s", "hysteresis")


def test_a_setting_of_another_priority_is_refused_with_its_owner() -> None:
    with pytest.raises(UsageError, match=r"It is one of slaq, slaq-min\."):
        priority_named("fair", {"horizon_s": 1})
    with pytest.raises(UsageError, match="Did you mean 'horizon_s'"):
        priority_named("slaq", {"horizon": 1})


@pytest.mark.parametrize("gain", [-0.05, float("nan"), float("inf")])
def test_a_hysteresis_that_means_nothing_is_refused(gain: float) -> None:
    with pytest.raises(UsageError, match="hysteresis"):
        priority_named("fair", {"hysteresis": gain})


@pytest.mark.parametrize("name", PRIORITIES)
def test_the_page_has_a_row_for_each_priority_and_its_settings(name: str) -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert f"| [`{name}`](" in page
    own = set(settings_of(name)) if name != "flowcon" else set()
    assert all(f"`{setting}`" in page for setting in own)
