"""Ticks that plan by forecasts of nodes: learned, saved, discarded, and used."""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NoReturn

import pytest

from freetrain.broker.lease import LeaseKey
from freetrain.broker.pool import Situation
from freetrain.broker.reasons import EndReason
from freetrain.config.site import LeaseMode
from freetrain.demo.fake_slurm import cluster as keeping
from freetrain.lookahead.base import Prospect
from freetrain.lookahead.experience import Experience
from freetrain.lookahead.live import IdleSnapshot, LiveForecast, validate_forecast
from freetrain.planning.settings import HORIZON_S
from freetrain.state.tables import (
    ended_lease_forecasts,
    pending_lease_forecasts,
    put_forecast,
)
from freetrain.tick.environment import TickContext
from freetrain.tick.lookahead import MOST_ENDED, NodeForecasts, foresee, restored
from freetrain.tick.observe import Observed
from freetrain.tick.plan import TickPlan, make_plan, with_bounded_wait
from slurm.errors import SlurmUnavailableError
from slurm.records import JobRecord, expand
from tests.broker.broker_records import NOW_S, intent
from tests.tick.tick_worlds import (
    TickWorld,
    observing,
    pass_by,
    running,
    taken,
    theirs,
)


@pytest.fixture(autouse=True)
def _looking_ahead(world: TickWorld) -> None:
    world.change("planner", policy="lookahead")


# What is learned is saved.


def test_forecasts_of_nodes_are_saved_from_tick_to_tick(world: TickWorld) -> None:
    world.tick()
    first = world.forecast()
    world.go_on(1, every_s=300.0)
    second = world.forecast()

    world.now_s += 60.0
    world.tick(dry_run=True)

    assert first["watched_s"] == 0.0
    assert second["watched_s"] > 300.0
    clusters = second["learned"]["clusters"]
    assert sum(len(nodes) for _, _, _, nodes in clusters) == 8
    assert world.forecast() == second, "a dry run saves nothing"


def test_a_trainer_runs_as_under_the_published_planner(world: TickWorld) -> None:
    world.submit("a", most=3)
    world.tick()
    world.beat()
    status = world.status()

    assert len(world.nodes()) == 3
    assert not status.problems
    assert "left out" not in status.planner_reason
    assert status.is_by_lives
    assert status.forecaster == "learned"
    assert status.planner_gap == pytest.approx(0.0, abs=1e-5)


def test_how_trainers_fare_is_learned_from_tick_to_tick(world: TickWorld) -> None:
    running(world, most=3)
    world.go_on(1, every_s=60.0)
    world.now_s += 60.0
    world.tick()

    found = world.forecast()["experience"]

    changes, trained_s = Experience().to_state()["changes"]
    assert len(found["held"]["a"]) == 3
    assert found["changes"][0] == changes
    assert found["changes"][1] >= trained_s + 60.0


def test_weights_and_the_background_count_looking_ahead(world: TickWorld) -> None:
    world.submit("late", 'order = "background"\nweight = 100.0', most=8)
    world.submit("light", "weight = 0.001", most=4)
    world.submit("heavy", "weight = 10.0", most=6)
    pass_by(world, 240.0, every_s=60.0)
    held = {name: len(world.nodes(name)) for name in ("late", "light", "heavy")}
    assert held == {"late": 0, "light": 2, "heavy": 6}


def test_nodes_that_left_together_are_held_together(world: TickWorld) -> None:
    every, odd = {f"n{k}" for k in range(1, 9)}, {"n1", "n3", "n5", "n7"}
    world.tick()
    for _ in range(2):
        taken(world, *odd)
        pass_by(world, 1_500.0)
    taken(world, *every)

    world.submit("a", most=4)
    world.submit("b", most=4)
    pass_by(world, 600.0, every_s=60.0)

    assert not world.forecast()["watched_s"] < 3_600.0
    held = [world.nodes(name) for name in ("a", "b")]
    assert odd in held
    assert held[0] | held[1] == every


def test_leases_start_where_nodes_are_expected_to_stay(world: TickWorld) -> None:
    restless(world)
    running(world, most=4)
    assert excluded(world) == "n[1-4]"
    assert world.nodes("a") == {"n5", "n6", "n7", "n8"}
    holes = world.status().holes
    leaves = {hole.node: hole.expected.leaves for hole in holes if hole.expected}
    assert leaves["n1"] > 2 * leaves["n5"]


def test_leases_are_kept_off_nodes_that_are_beyond_the_cap(world: TickWorld) -> None:
    world.change("caps", leases=2)
    restless(world)
    world.submit("a", most=4)
    world.tick()
    kept_off = set(expand(excluded(world)))
    assert len(kept_off) == 6
    assert {"n1", "n2", "n3", "n4"} < kept_off


def test_before_enough_was_seen_any_hole_will_do(world: TickWorld) -> None:
    world.tick()
    world.submit("a", most=4)
    world.tick()
    assert excluded(world) == ""


def restless(world: TickWorld) -> None:
    """Let four of the eight nodes come and go."""
    world.tick()
    for _ in range(12):
        taken(world, "n1", "n2", "n3", "n4", run_s=200.0)


def excluded(world: TickWorld) -> str:
    """Return what the only sbatch so far excluded."""
    (argv,) = world.slurm.calls("sbatch")
    words = (word for word in argv if word.startswith("--exclude="))
    return next(words, "").removeprefix("--exclude=")


def test_leases_kept_off_nodes_wait_a_few_minutes_at_most() -> None:
    long, short = intent(deadline_s=NOW_S + 9_000.0), intent(deadline_s=NOW_S + 3_660.0)
    assert with_bounded_wait(long).deadline_s == NOW_S + 60 * 60.0 + 180.0
    assert with_bounded_wait(short) == short


# Forecasts of leases, with their outcome.


def test_forecasts_of_leases_are_kept_with_their_outcome(world: TickWorld) -> None:
    world.submit("a", most=2)
    pass_by(world, 120.0, every_s=60.0)
    with world.reading() as state:
        pending = pending_lease_forecasts(state)
    world.change_jobs(limit_s=1.0)
    pass_by(world, 300.0, every_s=60.0)
    with world.reading() as state:
        ended = ended_lease_forecasts(state, most=MOST_ENDED)

    after = {(lease.uuid, lease.task): lease for lease in ended}
    assert len(pending) == 2
    for lease in pending:
        found = after[lease.uuid, lease.task]
        assert lease.ended_s is None
        assert 0.0 <= lease.departure_probability <= 1.0
        assert found.ended_s is not None
        assert found.outcome
        assert replace(found, ended_s=None, outcome="") == lease


@pytest.mark.parametrize("passed_s", [2 * 86_400.0, -7_200.0])
def test_a_forgotten_lease_ended_by_its_limit_and_after_it_ran(
    world: TickWorld, passed_s: float
) -> None:
    world.submit("a", most=1)
    pass_by(world, 120.0, every_s=60.0)
    (lease,) = world.status().leases
    with keeping.opened(world.slurm.folder) as cluster:
        cluster.jobs.clear()
    world.now_s += passed_s  # clocks may go back

    pass_by(world, 600.0)
    (outcome,) = world.status().came

    assert lease.end_s is not None
    assert outcome.at_s <= outcome.ended_s <= lease.end_s


# A saved forecast that cannot be used costs a line of the report, an hour, and no tick.


def promise(state: dict[str, Any]) -> None:
    pending = [state["looked_s"], state["looked_s"] + 300.0, 0.5, 1, [0], 0.0]
    state["promises"]["told"] = [pending]


def delay(state: dict[str, Any]) -> None:
    state["promises"]["delays"][0][3] = float("nan")


def hazard(state: dict[str, Any]) -> None:
    state["learned"]["hazard"]["shares"] = [1e-300] * 7


HELD = {**Experience().to_state(), "held": {"a": [77]}}
SPOILT: dict[str, Callable[[dict[str, Any]], object]] = {
    "another version": lambda state: state.update(version=99),
    "another cluster": lambda state: state.update(cluster="elsewhere"),
    "no learned state": lambda state: state.update(learned=7),
    "no promises": lambda state: state.update(promises={}),
    "no experience": lambda state: state.update(experience={"hits": 7}),
    "an unknown node": lambda state: state.update(experience=HELD),
    "a promise of half a kind": promise,
    "a delay that is no number": delay,
    "an infinite time": lambda state: state["experience"].update(at_s=float("inf")),
    "an infinite number": lambda state: state["learned"].update(numbers=float("inf")),
    "shares of next to nothing": hazard,
    "an unread nan": lambda state: state.update({"unread": float("nan")}),
    "a long text": lambda state: state.update(version="3" * 10_000),
}
TEXTS = {
    "deep": "[" * 200_000,
    "deeper": '{"a": ' * 200_000,
    "torn": "{",
    "nan": "NaN",
    "huge": "1e400",
    "null": "null",
    "text": '"x"',
    "list": "[]",
}


@pytest.mark.parametrize("spoilt", [*SPOILT, *TEXTS])
def test_a_forecast_that_cannot_be_used_is_learned_anew(
    world: TickWorld, spoilt: str
) -> None:
    running(world, most=3)
    world.go_on(1, every_s=60.0)
    state = world.forecast()
    if spoilt in SPOILT:
        SPOILT[spoilt](state)
    with world.writing() as connection:
        put_forecast(connection, TEXTS.get(spoilt, json.dumps(state)))

    world.now_s += 60.0
    status, first = world.status(), world.forecast()
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


def test_another_forecaster_learns_anew_and_is_reported(world: TickWorld) -> None:
    world.tick()
    world.change("planner", forecaster="life-table")
    world.now_s += 60.0
    status, first = world.status(), world.forecast()
    world.now_s += 60.0
    after = world.status()

    assert status.forecaster == "life-table"
    assert any("of forecaster 'learned'" in problem for problem in status.problems)
    assert (first["forecaster"], first["watched_s"]) == ("life-table", 0.0)
    assert len(first["learned"]["idle"]) == 8
    assert not after.problems
    assert world.forecast()["watched_s"] > 0.0


@pytest.mark.parametrize(
    "error", [ZeroDivisionError, OverflowError, RecursionError, IndexError, MemoryError]
)
def test_only_a_saved_forecast_that_fails_at_first_use_begins_anew(
    error: type[Exception],
) -> None:
    def begin(saved: dict[str, Any] | None) -> str:
        if saved is not None:
            raise error("in the look")
        return "anew"

    def fail(saved: dict[str, Any] | None) -> str:
        raise error(str(saved))

    begun, problem = restored({"any": "state"}, begin)

    assert begun == "anew"
    assert f"{error.__name__}('in the look')" in problem
    assert f"in {__name__}, line " in problem
    for saved in ({"any": "state"}, None):
        with pytest.raises(error, match="None"):
            restored(saved, fail)


def test_a_state_that_cannot_be_read_at_all_is_not_dropped() -> None:
    def begin(saved: dict[str, Any] | None) -> str:
        raise OSError(str(saved))

    with pytest.raises(OSError, match="any"):
        restored({"any": "state"}, begin)


class Absurd(LiveForecast):
    """Says of every node what cannot be."""

    def prospect(self, node: str, usable_s: float) -> Prospect:
        del node, usable_s
        return Prospect(float("nan"), 0.5, 1.0)


def test_an_impossible_forecast_is_refused_before_plans_go_by_it() -> None:
    sound, absurd = LiveForecast(400.0), Absurd(400.0)
    for forecast in (sound, absurd):
        forecast.look(1e9, IdleSnapshot(frozenset({"n1"}), frozenset(), {}))
    validate_forecast(sound, ["n1"], horizon_s=400.0)
    with pytest.raises(ValueError, match="an impossible prospect"):
        validate_forecast(absurd, ["n1"], horizon_s=400.0)
    with pytest.raises(ValueError, match="no forecast of n2"):
        validate_forecast(sound, ["n2"], horizon_s=400.0)


# A forecaster that fails costs others no wait and trainers no tick.


class FailsWhenAsked(LiveForecast):
    """Forecasts that fail once plans are to go by them."""

    def group(self, node: str) -> NoReturn:
        raise ValueError(f"{node}: cannot convert float NaN to integer")


class Unsaved(LiveForecast):
    """Forecasts with a state that JSON cannot hold."""

    def to_state(self) -> dict[str, Any]:
        return {**super().to_state(), "learned": {"idle": {1, 2}}}


def failing(kind: type[LiveForecast]) -> Callable[..., NodeForecasts]:
    def made(
        context: TickContext,
        observed: Observed,
        *,
        is_ours: Callable[[JobRecord], bool],
        situation: Situation,
    ) -> NodeForecasts:
        forecasts = foresee(context, observed, is_ours=is_ours, situation=situation)
        return replace(forecasts, forecast=kind(HORIZON_S))

    return made


def fails(*_: object, **__: object) -> NoReturn:
    raise ZeroDivisionError("float division by zero")


def planned(
    world: TickWorld, foresee: Callable[..., NodeForecasts] | None = None
) -> tuple[TickPlan, Mapping[LeaseKey, EndReason]]:
    """Return the plan of a tick, and the leases that made room for it."""
    with observing(world) as (context, observed):
        return make_plan(context, observed, foresee=foresee), observed.gave_way


@pytest.fixture
def crowded(world: TickWorld) -> TickWorld:
    """Jobs wait for three of eight nodes, all of which are leased."""
    world.change("lease", mode=LeaseMode.YIELD)
    running(world, most=8)
    world.slurm.standin.add([theirs(world) for _ in range(3)])
    return world


@pytest.mark.parametrize(
    ("foresee", "said"),
    [
        (fails, f"in {__name__}, line "),
        (failing(FailsWhenAsked), f"in {__name__}, line "),
        (failing(Unsaved), "to_state of the forecaster 'learned' is no JSON: "),
    ],
    ids=["at once", "when asked", "when saved"],
)
def test_where_forecasts_fail_a_tick_makes_room_all_the_same(
    crowded: TickWorld, foresee: Callable[..., NodeForecasts], said: str
) -> None:
    (sound, room), (failed, same_room) = planned(crowded), planned(crowded, foresee)
    (line,) = failed.problems
    assert line.startswith("looking ahead failed (")
    assert said in line
    assert failed.forecasts is None
    assert not sound.problems
    assert room == same_room
    assert list(room.values()) == 3 * [EndReason.CLAIMED]


def test_an_error_that_is_no_defect_of_forecasts_goes_through(
    crowded: TickWorld,
) -> None:
    def unavailable(*_: object, **__: object) -> NoReturn:
        raise SlurmUnavailableError("no answer")

    with pytest.raises(SlurmUnavailableError):
        planned(crowded, unavailable)
