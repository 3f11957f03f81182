"""Priorities by name: settings, hysteresis, refusals, and those of other packages."""

from pathlib import Path

import pytest

from freetrain.errors import UsageError
from freetrain.priority.base import (
    PRIORITIES,
    RatingBasis,
    priority_named,
    priority_names,
    settings_of,
)
from tests.cli.commands import run
from tests.priority.inputs import contender, inputs_of

NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize("name", ["throughput", "speedup", "weight", "price"])
def test_priorities_by_the_trainer_alone_have_no_hysteresis_by_default(
    name: str,
) -> None:
    one = inputs_of(contender("a", held=4))
    plain, asked = priority_named(name), priority_named(name, {"hysteresis": 0.1})
    assert (plain.basis, asked.basis) == (RatingBasis.TRAINER, RatingBasis.MOMENT)
    before = plain.rate(one, {}).ratings[0].curve.value_per_s
    after = asked.rate(one, {}).ratings[0].curve.value_per_s
    assert after[4] == pytest.approx(1.1 * before[4])
    assert [after[n] for n in (3, 5)] == [before[n] for n in (3, 5)]


def test_others_have_five_percent_of_hysteresis_by_default() -> None:
    one = inputs_of(contender("a", held=4))
    usual = priority_named("fair").rate(one, {}).ratings[0].curve.value_per_s
    without = priority_named("fair", {"hysteresis": 0}).rate(one, {}).ratings[0]
    assert usual[4] == pytest.approx(1.05 * without.curve.value_per_s[4])


@pytest.mark.parametrize(
    ("name", "settings", "why"),
    [
        ("best", {}, r"no priority 'best'.*throughput, speedup"),
        ("fair", {"speed": 1}, r"no setting 'speed'. It has turn_s, hyst"),
        ("fair", {"horizon_s": 1}, r"It is one of slaq, slaq-min\."),
        ("slaq", {"horizon": 1}, "Did you mean 'horizon_s'"),
        *[("fair", {"hysteresis": value}, "hysteresis") for value in (-0.05, NAN, INF)],
        *[("fair", {"turn_s": value}, "turn_s") for value in (-1.0, NAN, INF)],
        *[("deadline", {"slack": value}, "slack") for value in (-0.1, 1.0, NAN)],
        *[
            (name, {"horizon_s": value}, "horizon_s")
            for name in ("slaq", "slaq-min")
            for value in (-1.0, NAN, INF)
        ],
        ("specon", {"threshold": -1.0}, "threshold -1 is not 0 or more"),
        ("specon", {"period_s": NAN}, "period_s nan is not 0 or more"),
        *[("flowcon", {"alpha": value}, "alpha") for value in (0.0, NAN, INF)],
    ],
    ids=str,
)
def test_a_name_or_a_setting_that_means_nothing_is_refused(
    name: str, settings: dict[str, float], why: str
) -> None:
    with pytest.raises(UsageError, match=why):
        priority_named(name, settings)


# Priorities of other packages

MODULE = """\
from freetrain.priority.base import RatingBasis, CurveCache, RatingResult, Rating

class Flat:
    name = "flat"
    basis = RatingBasis.TRAINER

    def __init__(self, *, worth: float = 1.0) -> None:
        self._worth = worth
        self._curves = CurveCache()

    def rate(self, inputs, memory, /):
        return RatingResult(tuple(
            Rating(
                curve=self._curves.weighted(self._curves.speed_up(one), self._worth),
                reason="flat",
            )
            for one in inputs.contenders
        ), {})

NO_PRIORITY = 3
"""
ENTRY_POINTS = """\
[freetrain.priorities]
flat = flat_for_freetrain:Flat
broken = flat_for_freetrain:Missing
strange = flat_for_freetrain:NO_PRIORITY
fair = flat_for_freetrain:Flat
"""


@pytest.fixture
def _installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Install a package that adds priorities."""
    metadata = tmp_path / "flat_for_freetrain-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Name: flat-for-freetrain\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(ENTRY_POINTS)
    (tmp_path / "flat_for_freetrain.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)


@pytest.mark.usefixtures("_installed")
def test_a_priority_of_another_package_rates_with_its_own_settings(
    tmp_path: Path,
) -> None:
    rated = priority_named("flat", {"worth": 3.0}).rate(inputs_of(contender("a")), {})
    words = ("--pool", "4", "--days", "0.1", "--policy", "freetrain", "--json")

    ran = run("replay", "--priority", "flat", *words, cwd=tmp_path)

    assert rated.ratings[0].reason == "flat"
    assert settings_of("flat") == ("worth", "hysteresis")
    assert priority_names()[-1] == "strange"
    assert {"flat", *PRIORITIES} <= set(priority_names())
    assert settings_of("fair") == ("turn_s", "hysteresis"), "built-in ones stay"
    assert (ran.code, '"priority": "flat"' in ran.stdout) == (0, True)


@pytest.mark.usefixtures("_installed")
@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("fla", r"no priority 'fla'.*throughput, .*flat"),
        ("broken", "'broken' cannot be used: .*Missing .* cannot be imported"),
        ("strange", "'strange' cannot be used: 3 is no class"),
    ],
)
def test_a_priority_that_cannot_be_used_is_refused_with_the_reason(
    name: str, said: str
) -> None:
    with pytest.raises(UsageError, match=said):
        priority_named(name)
