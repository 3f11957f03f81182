"""What was kept may hold anything: a line of the report, an hour, and no tick."""

from __future__ import annotations

import json
import sqlite3
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from msgspec import structs

from freetrain.config.site import PlannerSettings
from freetrain.lookahead.base import Prospect
from freetrain.lookahead.live import LiveForecast, PoolSnapshot, validate_forecast
from freetrain.tick.lookahead import restored
from tests.tick.tick_worlds import TickWorld, tick_world

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture
def world(quick_folder: Path) -> TickWorld:
    """Return one in which a trainer holds nodes, and another forecast is kept."""
    world = tick_world(quick_folder)
    planner = PlannerSettings(policy="lookahead")
    world = replace(world, site=structs.replace(world.site, planner=planner))
    world.submit("a", most=3)
    for _ in range(3):
        world.tick()
        world.beat()
        world.now_s += 60.0
    return world


def put(world: TickWorld, text: str) -> None:
    with world.writing() as state:
        state.execute("UPDATE forecast SET state = ?", (text,))


def promise(kind: float) -> Callable[[dict[str, Any]], None]:
    def spoil(state: dict[str, Any]) -> None:
        told = [state["looked_s"], state["looked_s"] + 300.0, kind, 1, [0], 0.0]
        state["promises"]["told"] = [told]

    return spoil


def delays(state: dict[str, Any]) -> None:
    state["promises"]["delays"][0][3] = float("nan")


def met(state: dict[str, Any]) -> None:
    state["experience"]["at_s"] = float("inf")


def numbers(state: dict[str, Any]) -> None:
    state["learned"]["numbers"] = float("inf")


def shares(state: dict[str, Any]) -> None:
    state["learned"]["hazard"]["shares"] = [1e-300] * 7


def elsewhere(state: dict[str, Any]) -> None:
    state["what nobody reads"] = float("nan")


def long(state: dict[str, Any]) -> None:
    state["version"] = "3" * 10_000


SPOILS = (promise(0.5), delays, met, numbers, shares, elsewhere, long)


@pytest.mark.parametrize("spoil", SPOILS)
def test_a_number_that_cannot_be_costs_a_line_and_no_tick(
    world: TickWorld, spoil: Callable[[dict[str, Any]], None]
) -> None:
    state = world.forecast()
    spoil(state)
    put(world, json.dumps(state))

    check_begins_anew(world)


@pytest.mark.parametrize(
    "text",
    ["[" * 200_000, '{"a": ' * 200_000, "{", "NaN", "1e400", "null", '"x"', "[]"],
    ids=["deep", "deeper", "torn", "nan", "huge", "null", "text", "list"],
)
def test_a_text_that_is_no_state_costs_a_line_and_no_tick(
    world: TickWorld, text: str
) -> None:
    put(world, text)

    check_begins_anew(world)


def check_begins_anew(world: TickWorld) -> None:
    status = world.status()
    first = world.forecast()
    world.now_s += 60.0
    world.beat()
    after = world.status()

    (problem,) = status.problems
    assert "the saved forecast of nodes cannot be used" in problem
    assert len(problem) < 500
    assert first["watched_s"] == 0.0
    assert not after.problems
    assert world.forecast()["watched_s"] > 0.0
    assert len(world.nodes()) == 3


@pytest.mark.parametrize(
    "error", [ZeroDivisionError, OverflowError, RecursionError, IndexError, MemoryError]
)
def test_what_fails_at_its_first_use_is_begun_anew_and_the_line_says_where(
    error: type[Exception],
) -> None:
    def begin(kept: dict[str, Any] | None) -> str:
        if kept is not None:
            raise error("in the look")
        return "anew"

    begun, problem = restored({"any": "state"}, begin)

    assert begun == "anew"
    assert f"{error.__name__}('in the look')" in problem
    assert f"in {__name__}, line " in problem


def test_what_fails_with_nothing_kept_is_no_fault_of_what_was_kept() -> None:
    def begin(kept: dict[str, Any] | None) -> str:
        raise ZeroDivisionError(str(kept))

    with pytest.raises(ZeroDivisionError, match="None"):
        restored({"any": "state"}, begin)
    with pytest.raises(ZeroDivisionError, match="None"):
        restored(None, begin)


def test_a_state_that_cannot_be_read_at_all_is_not_dropped() -> None:
    def begin(kept: dict[str, Any] | None) -> str:
        raise sqlite3.DatabaseError(str(kept))

    with pytest.raises(sqlite3.DatabaseError, match="any"):
        restored({"any": "state"}, begin)


class Absurd(LiveForecast):
    """Says of every node what cannot be."""

    def prospect(self, node: str, usable_s: float) -> Prospect:
        del node, usable_s
        return Prospect(float("nan"), 0.5, 1.0)


def test_an_answer_that_cannot_be_is_refused_before_plans_go_by_it() -> None:
    sound, absurd = LiveForecast(400.0), Absurd(400.0)
    for forecast in (sound, absurd):
        forecast.look(1e9, PoolSnapshot(frozenset({"n1"}), frozenset(), {}))

    validate_forecast(sound, ["n1"], horizon_s=400.0)
    with pytest.raises(ValueError, match="an impossible prospect"):
        validate_forecast(absurd, ["n1"], horizon_s=400.0)
    with pytest.raises(ValueError, match="no forecast of n2"):
        validate_forecast(sound, ["n2"], horizon_s=400.0)
