"""Priorities that other packages add by an entry point."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from freetrain.errors import UsageError
from freetrain.priority.base import (
    PRIORITIES,
    priority_named,
    priority_names,
    settings_of,
)
from tests.cli.commands import run
from tests.priority.inputs import contender, inputs_of

if TYPE_CHECKING:
    from pathlib import Path

MODULE = """\
from freetrain.priority.base import Basis, CurveCache, RatingResult, Rating

class Flat:
    name = "flat"
    basis = Basis.TRAINER

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


@pytest.fixture(autouse=True)
def _installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Install a package that adds priorities."""
    metadata = tmp_path / "flat_for_freetrain-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Name: flat-for-freetrain\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(ENTRY_POINTS)
    (tmp_path / "flat_for_freetrain.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)


def test_a_priority_of_another_package_rates_with_its_own_settings() -> None:
    rated = priority_named("flat", {"worth": 3.0}).rate(inputs_of(contender("a")), {})

    assert rated.ratings[0].reason == "flat"
    assert settings_of("flat") == ("worth", "hysteresis")
    assert priority_names()[-1] == "strange"
    assert "flat" in priority_names()


def test_a_replay_goes_by_a_priority_of_another_package(tmp_path: Path) -> None:
    words = ("--pool", "4", "--days", "0.1", "--policy", "freetrain", "--json")

    ran = run("replay", "--priority", "flat", *words, cwd=tmp_path)

    assert (ran.code, '"priority": "flat"' in ran.stdout) == (0, True)


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


def test_a_built_in_priority_cannot_be_replaced() -> None:
    assert set(PRIORITIES) <= set(priority_names())
    assert settings_of("fair") == ("turn_s", "hysteresis")
