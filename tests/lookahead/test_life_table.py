"""The life table by hand."""

import math

import pytest

from freetrain.lookahead.base import LASTS_S
from freetrain.lookahead.life_table import LifeTable

HORIZON_S = 400.0
USUAL_S = 1_500.0


def test_before_anything_was_seen_a_node_stays_1500_seconds_in_the_mean() -> None:
    table = LifeTable(HORIZON_S)
    table.see(0.0, joined=(3, 4), left=())

    life_s, hit, share = table.prospect(table.cluster(3))
    stays = math.exp(-HORIZON_S / USUAL_S)

    assert table.survival(3, HORIZON_S) == pytest.approx(stays)
    assert hit == pytest.approx(1.0 - stays)
    assert share == 1.0
    assert life_s == pytest.approx(USUAL_S * (1.0 - stays))
    assert table.members(table.cluster(4)) == {4}
    assert table.affinity([3, 4])[0, 1] == pytest.approx(0.3)


def test_the_rate_of_a_class_of_age_is_its_departures_over_its_seconds() -> None:
    # Ten nodes stay for 30 s, the first class. Then four leave, and six stay for 12 s,
    # until 42 s; the second class ends at 30 * sqrt(2) = 42.43 s.
    table = LifeTable(HORIZON_S)
    table.see(0.0, joined=range(10), left=())
    table.see(30.0, joined=(), left=range(4))
    table.see(42.0, joined=(77,), left=())

    usual_s = (300.0 + 72.0 + USUAL_S) / (4.0 + 1.0)
    first, second = 1.0 / (300.0 + usual_s), 5.0 / (72.0 + usual_s)
    rest_s = 30.0 * math.sqrt(2.0) - 42.0

    assert table.survival(77, 20.0) == pytest.approx(math.exp(-20.0 * first))
    assert table.survival(77, 40.0) == pytest.approx(
        math.exp(-30.0 * first - 10.0 * second)
    )
    assert table.survival(5, rest_s) == pytest.approx(math.exp(-rest_s * second))


def test_lives_are_the_area_below_survival() -> None:
    table = LifeTable(HORIZON_S)
    for turn in range(5):
        table.see(turn * 1_000.0, joined=range(10), left=())
        table.see(turn * 1_000.0 + 50.0, joined=(), left=range(6))
        table.see(turn * 1_000.0 + 500.0, joined=(), left=range(6, 10))
    table.see(9_000.0, joined=(0,), left=())

    life_s, hit, _ = table.prospect(table.cluster(0))
    area_s = sum(table.survival(0, k + 0.5) for k in range(int(HORIZON_S)))

    assert life_s == pytest.approx(area_s, rel=1e-4)
    assert hit == pytest.approx(1.0 - table.survival(0, HORIZON_S))


def test_a_node_older_than_the_usual_age_of_departures_is_expected_to_stay() -> None:
    table = LifeTable(HORIZON_S)
    table.see(0.0, joined=(9,), left=())
    for turn in range(100):
        table.see(turn * 1_000.0 + 1.0, joined=(0,), left=())
        table.see(turn * 1_000.0 + 50.0, joined=(), left=(0,))
    table.see(100_000.0, joined=(0,), left=())

    assert table.survival(0, HORIZON_S) < 0.5
    assert table.survival(9, HORIZON_S) > 0.9


def test_departures_and_exposure_fade_alike() -> None:
    table = LifeTable(HORIZON_S)
    table.see(0.0, joined=range(2), left=())
    table.see(100.0, joined=(), left=(0,))
    before = table.to_state() | {"lived_s": 2 * LASTS_S}
    old = LifeTable(HORIZON_S, state=before)
    old.see(3_600.0, joined=(), left=())

    keeps = math.exp(-3_600.0 / LASTS_S)
    after = old.to_state()
    assert sum(after["departures"]) == pytest.approx(keeps)
    assert sum(after["exposure"]) == pytest.approx(keeps * 3_700.0)
