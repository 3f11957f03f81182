"""A forecaster that fails costs others no wait and trainers no tick."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

from freetrain.broker.limits import EndReason
from freetrain.broker.reconcile import EndLeases
from freetrain.config.site import LeaseMode
from freetrain.lookahead.live import LiveForecast
from freetrain.planning.settings import HORIZON_S
from freetrain.tick.environment import TickContext
from freetrain.tick.lookahead import foresee
from freetrain.tick.observe import observe
from freetrain.tick.plan import make_plan
from slurm.errors import SlurmUnavailableError
from tests.tick.test_looking_ahead import looking_ahead
from tests.tick.tick_worlds import TickWorld, running, theirs, tick_world

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from freetrain.tick.lookahead import NodeForecasts
    from freetrain.tick.observe import Observed
    from freetrain.tick.plan import TickPlan
    from slurm.records import JobRecord


@pytest.fixture
def world(quick_folder: Path) -> TickWorld:
    """Return one in which somebody waits for three of eight nodes, all leased."""
    made = looking_ahead(tick_world(quick_folder))
    made.change("lease", mode=LeaseMode.YIELD)
    running(made, most=8)
    made.slurm.standin.add([theirs(made) for _ in range(3)])
    return made


class Failing(LiveForecast):
    """Forecasts that fail once plans are to go by them."""

    def group(self, node: str) -> NoReturn:
        raise ValueError(f"{node}: cannot convert float NaN to integer")


def fails(*_: object, **__: object) -> NoReturn:
    raise ZeroDivisionError("float division by zero")


def fails_when_asked(
    context: TickContext, observed: Observed, *, is_ours: Callable[[JobRecord], bool]
) -> NodeForecasts:
    forecasts = foresee(context, observed, is_ours=is_ours)
    return replace(forecasts, forecast=Failing(HORIZON_S))


def decided(
    world: TickWorld, foresee: Callable[..., NodeForecasts] | None = None
) -> TickPlan:
    with world.reading() as state:
        context = TickContext(
            site=world.site,
            environment=world.environment,
            folder=world.folder,
            state=state,
            backend=world.connect(20),
            leader_lock=None,
        )
        return make_plan(context, observe(context), foresee=foresee)


def made_room(of: TickPlan) -> list[EndLeases]:
    cancels = [one for one in of.decision.actions if isinstance(one, EndLeases)]
    return [one for one in cancels if one.why is EndReason.CLAIMED]


@pytest.mark.parametrize("failing", [fails, fails_when_asked])
def test_where_forecasts_fail_a_tick_makes_room_all_the_same(
    world: TickWorld, failing: Callable[..., NodeForecasts]
) -> None:
    sound, failed = decided(world), decided(world, failing)

    (line,) = failed.problems
    assert line.startswith("looking ahead failed (")
    assert f"in {__name__}, line " in line
    assert not sound.problems
    assert made_room(failed) == made_room(sound) != []


class Unkept(LiveForecast):
    """Forecasts of which something is to be kept that JSON cannot hold."""

    def to_state(self) -> dict[str, Any]:
        return {**super().to_state(), "learned": {"idle": {1, 2}}}


def cannot_be_kept(
    context: TickContext, observed: Observed, *, is_ours: Callable[[JobRecord], bool]
) -> NodeForecasts:
    forecasts = foresee(context, observed, is_ours=is_ours)
    return replace(forecasts, forecast=Unkept(HORIZON_S))


def test_where_what_was_learned_cannot_be_kept_a_tick_makes_room_all_the_same(
    world: TickWorld,
) -> None:
    sound, failed = decided(world), decided(world, cannot_be_kept)

    (line,) = failed.problems
    assert line.startswith("looking ahead failed (")
    assert "to_state of the forecaster 'learned' is no JSON: " in line
    assert failed.forecasts is None
    assert made_room(failed) == made_room(sound) != []


def test_what_is_no_defect_of_forecasts_goes_through(world: TickWorld) -> None:
    def unavailable(*_: object, **__: object) -> NoReturn:
        raise SlurmUnavailableError("no answer")

    with pytest.raises(SlurmUnavailableError):
        decided(world, unavailable)
